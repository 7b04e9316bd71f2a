"""``alphaiou paper report``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.paper.options import RUNS, RecordOptions, study_of

if TYPE_CHECKING:
    from alphaiou.paper.study import Study


@dataclass(frozen=True)
class PaperReport(RecordOptions):
    """Write all tables, charts and pictures as one HTML file.

    It loads nothing from elsewhere, and reads well on a phone and in the dark.
    """

    out: Annotated[Path, tyro.conf.arg(metavar="FOLDER|FILE")] = RUNS
    """Folder to write report.html to, or a file that ends in .html."""


def run_paper_report(command: PaperReport) -> int:
    """Write the page."""
    path = write_page(study_of(command), command.out)
    sys.stdout.write(f"wrote {path}\n")
    return 0


def write_page(study: Study, out: Path) -> Path:
    """Write the page to a folder, or to a file that ends in .html."""
    from alphaiou.paper.study import REPORT_LEAD, REPORT_TITLE
    from alphaiou.study.report import write_report

    return write_report(
        out if out.suffix == ".html" else out / "report.html",
        study.grids,
        study.records,
        study.paths,
        title=REPORT_TITLE,
        lead=REPORT_LEAD,
    )
