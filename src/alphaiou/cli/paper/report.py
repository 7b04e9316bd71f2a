"""``alphaiou paper report``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alphaiou.cli.paper.reading import RecordOptions, study_of


@dataclass(frozen=True)
class PaperReport(RecordOptions):
    """Write all tables, charts and pictures as one HTML file.

    It loads nothing from elsewhere, and reads well on a phone and in the dark.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER|FILE")] = Path("runs/paper")
    """Folder to write report.html to, or a file that ends in .html."""


def run_paper_report(command: PaperReport) -> int:
    """Write the page."""
    from alphaiou.study.report.page import write_paper_report

    study = study_of(command)
    path = write_paper_report(study.grids, command.results, command.out)
    sys.stdout.write(f"wrote {path}\n")
    return 0
