"""``alphaiou paper tables``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.cli.paper.options import RecordOptions, study_of

if TYPE_CHECKING:
    from alphaiou.study.tables import StudyTable


@dataclass(frozen=True)
class PaperTables(RecordOptions):
    """Print tables of finished runs, with intervals, beside the paper's.

    Means over seeds, changes with 95 % intervals, marked if not significant.

    CSV has all numbers, with Student's intervals.

    With --choose, hyperparameters are not chosen on the images that are scored.
    """

    out: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Folder to write one file per grid to; printed unless given."""

    format: Literal["md", "csv", "latex"] = "md"
    """Markdown, CSV, or LaTeX for the package booktabs."""

    choose: Annotated[str | None, tyro.conf.arg(metavar="SCORE")] = None
    """Print the box gain of each loss that is best on val by this score, scored on test."""

    per: Literal["loss", "kind"] = "loss"
    """kind: with --choose, the best α of each kind of loss is chosen too."""


def run_paper_tables(command: PaperTables) -> int:
    """Print the tables, or write them."""
    from alphaiou._files import write_file
    from alphaiou.study.tables import table_text

    ending = {"md": "md", "csv": "csv", "latex": "tex"}[command.format]
    for table in _tables(command):
        text = table_text(table, command.format)
        if command.out is None:
            sys.stdout.write(f"{text}\n")
        else:
            path = command.out / f"{table.name}.{ending}"
            write_file(path, text)
            sys.stdout.write(f"wrote {path}\n")
    return 0


def _tables(command: PaperTables) -> list[StudyTable]:
    """The tables of the grids, of all rows or of the chosen ones."""
    from alphaiou.boxes import check_choice
    from alphaiou.cli import UsageError
    from alphaiou.metrics.columns import columns_of
    from alphaiou.study.records import RecordError
    from alphaiou.study.tables import selected_table, study_table

    score = command.choose
    if score is None:
        study = study_of(command)
        return [study_table(grid, study.records) for grid in study.grids]
    try:
        check_choice("--choose", score, columns_of("threshold", "mean"))
    except ValueError as error:
        raise UsageError(str(error)) from None
    study = study_of(command)
    tables = [selected_table(grid, study.records, score, command.per) for grid in study.grids]
    chosen = [table for table in tables if table is not None]
    if not chosen:
        raise RecordError(
            "--choose needs runs with scores on val and on test, and these have none: train them "
            "on a data set with both splits"
        )
    return chosen
