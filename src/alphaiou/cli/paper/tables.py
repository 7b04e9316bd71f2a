"""``alphaiou paper tables``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from alphaiou.cli.paper.options import RecordOptions, study_of


@dataclass(frozen=True)
class PaperTables(RecordOptions):
    """Print tables of finished runs, with intervals, beside the paper's.

    Means over seeds, changes with 95 % intervals, marked if not significant.

    CSV has all numbers, with Student's intervals.
    """

    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder to write one file per grid to; printed unless given."""

    format: Literal["md", "csv", "latex"] = "md"
    """Markdown, CSV, or LaTeX for the package booktabs."""


def run_paper_tables(command: PaperTables) -> int:
    """Print the tables, or write them."""
    from alphaiou._files import write_file
    from alphaiou.study.tables import study_table, table_text

    study = study_of(command)
    ending = {"md": "md", "csv": "csv", "latex": "tex"}[command.format]
    for grid in study.grids:
        text = table_text(study_table(grid, study.records), command.format)
        if command.out is None:
            sys.stdout.write(f"{text}\n")
        else:
            path = command.out / f"{grid.name}.{ending}"
            write_file(path, text)
            sys.stdout.write(f"wrote {path}\n")
    return 0
