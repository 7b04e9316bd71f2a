"""``alphaiou paper list``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from alphaiou.cli.paper.options import RUNS, GridOptions, chosen_grids


@dataclass(frozen=True)
class PaperList(GridOptions):
    """List the tables and figures, their runs, and how many of these are finished."""

    results: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[DIR ...]")] = (RUNS,)
    """Folders with records of runs."""


def run_paper_list(command: PaperList) -> int:
    """Print one row per grid."""
    from rich.console import Console
    from rich.table import Table

    from alphaiou.study.records import record_paths
    from alphaiou.study.runner import is_scored, planned_runs

    grids = chosen_grids((), command)
    records = record_paths(command.results)
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("grid", "what it shows", "in the paper"):
        table.add_column(name, no_wrap=name == "grid")
    for name in ("runs", "finished"):
        table.add_column(name, justify="right")
    for grid in grids:
        runs = planned_runs([grid])
        done = sum(is_scored(run, records) for run in runs)
        counts = (str(len(runs)), str(done)) if runs else ("–", "–")
        table.add_row(grid.name, grid.title, grid.place or "–", *counts)
    console = Console()
    console.print(table)
    everything = planned_runs(grids)
    done = sum(is_scored(run, records) for run in everything)
    console.print(
        f"{len(everything)} different runs, {done} finished; "
        "alphaiou paper run GRID computes the others",
        highlight=False,
        soft_wrap=True,
    )
    return 0
