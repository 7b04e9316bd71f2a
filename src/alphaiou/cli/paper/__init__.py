"""``alphaiou paper``: the paper's tables and figures, run again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro

from alphaiou.cli.paper.list import PaperList, run_paper_list
from alphaiou.cli.paper.plots import PaperPlots, run_paper_plots
from alphaiou.cli.paper.report import PaperReport, run_paper_report
from alphaiou.cli.paper.run import PaperRun, run_paper_run
from alphaiou.cli.paper.tables import PaperTables, run_paper_tables

TASKS: dict[type, Callable[[Any], int]] = {
    PaperList: run_paper_list,
    PaperRun: run_paper_run,
    PaperTables: run_paper_tables,
    PaperPlots: run_paper_plots,
    PaperReport: run_paper_report,
}


@dataclass(frozen=True)
class Paper:
    """Run the paper's tables and figures again, with intervals."""

    task: Annotated[
        Annotated[PaperList, tyro.conf.subcommand("list")]
        | Annotated[PaperRun, tyro.conf.subcommand("run")]
        | Annotated[PaperTables, tyro.conf.subcommand("tables")]
        | Annotated[PaperPlots, tyro.conf.subcommand("plots")]
        | Annotated[PaperReport, tyro.conf.subcommand("report")],
        tyro.conf.arg(name=""),
    ]


def run_paper(command: Paper) -> int:
    """Do one of the tasks."""
    return TASKS[type(command.task)](command.task)
