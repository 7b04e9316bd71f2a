"""``alphaiou paper run``."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.cli.options import Missing, check_missing
from alphaiou.cli.paper.options import RUNS, GridOptions, chosen_grids, scale_of
from alphaiou.data.problems import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from alphaiou.study.grid import Grid
    from alphaiou.study.runner import GridResult


@dataclass(frozen=True)
class PaperRun(GridOptions):
    """Compute the runs of tables and figures; print the tables, write the report.

    Run again, what is finished is not repeated, and what was stopped goes on.

    A run that fails does not stop the others.

    Without data: alphaiou paper run table1 --quick, minutes on two cores.
    """

    grids: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="GRID [GRID ...]")
    ] = ()
    """Names from alphaiou paper list, such as table1."""

    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = RUNS
    """Folder for the runs and the report."""

    results: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[DIR ...]")] = ()
    """Folders with records of runs that need not be computed again."""

    keep: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to copy each record to as soon as its run is finished, to be committed."""

    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Runs at a time: per GPU, where the default is one, or one per CPU core."""

    minutes: Annotated[float | None, tyro.conf.arg(metavar="N")] = None
    """Start no run that, by the pace of the others, would not end in this time."""

    keep_detections: bool = False
    """Keep the detections of each run in detections.npz; the report analyses their errors."""

    missing: Missing = MISSING

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS")] = None
    """A Ray cluster to compute on: HOST:PORT, or auto for the one of this machine."""


def run_paper_run(command: PaperRun) -> int:
    """Compute the runs, print the tables, write the report, and print what failed or was left."""
    from rich.console import Console

    from alphaiou.cli.paper.progress import GridProgress
    from alphaiou.paper.grids import NOISY_BOXES
    from alphaiou.paper.study import save_noisy_boxes
    from alphaiou.study.runner import run_grid
    from alphaiou.training.loop import Execution

    _check(command)
    execution = Execution(device=command.device, missing=check_missing(command.missing))
    scale, grids = scale_of(command), chosen_grids(command.grids, command)
    console = Console()
    for line in dict.fromkeys(sentence for grid in grids for sentence in grid.differs):
        console.print(line, style="dim", highlight=False, soft_wrap=True)
    with GridProgress(console) as progress:
        result = run_grid(
            grids,
            command.out,
            data=scale.places,
            earlier=command.results,
            keep=command.keep,
            execution=execution,
            workers=command.workers,
            keep_detections=command.keep_detections,
            ray=command.ray,
            seconds=None if command.minutes is None else 60 * command.minutes,
            report=progress.report(),
        )
    if any(grid.name == NOISY_BOXES for grid in grids):
        for path in save_noisy_boxes(scale, command.out):
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    _conclude_study(grids, command, console)
    return _conclude(result, command, console)


def _check(command: PaperRun) -> None:
    """Reject options that cannot be run before anything is opened."""
    from alphaiou.cli import UsageError

    if not command.grids:
        raise UsageError("which grids? alphaiou paper list names them, such as table1")
    if command.workers is not None and command.workers < 1:
        raise UsageError(f"--workers must be at least 1, got {command.workers}")
    if command.ray is not None and command.minutes is not None:
        raise UsageError("--minutes is for this machine; a cluster of --ray keeps its own time")
    if not (command.quick or command.data or command.coco):
        raise UsageError(
            "--data PATH is the VOC devkit, --coco PATH is COCO; --quick needs neither"
        )


def _conclude_study(grids: Sequence[Grid], command: PaperRun, console: Console) -> None:
    """Print the tables of the grids that have runs, and write the report."""
    from alphaiou.cli.paper.plots import differences_of
    from alphaiou.cli.paper.report import write_page
    from alphaiou.paper.study import Study
    from alphaiou.study.records import grid_runs, load_records, record_paths
    from alphaiou.study.tables import study_table, table_text

    folders = (command.out, *command.results)
    study = Study(grids, load_records(folders), record_paths(folders))
    for grid in grids:
        if grid.pictures:
            differences_of(grid, study)
    for grid in grids:
        if any(row.runs for row in grid_runs(grid, study.records).values()):
            sys.stdout.write(f"{table_text(study_table(grid, study.records))}\n")
    path = write_page(study, command.out / "report.html")
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)


def _conclude(result: GridResult, command: PaperRun, console: Console) -> int:
    """Print failures last, where they are seen."""
    for run, error in result.failed:
        text = f"failed: {run.label}: {error}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if result.left:
        rest = f"{len(result.left)} runs were not begun, such as {result.left[0].label}"
        console.print(f"{rest}: {_why_left(result, command)}", highlight=False, soft_wrap=True)
    records = f"{len(result.records)} records below {command.out}"
    console.print(records, highlight=False, soft_wrap=True)
    return 1 if result.failed else 0


def _why_left(result: GridResult, command: PaperRun) -> str:
    missing = {run.recipe.data.path for run in result.left} - set(scale_of(command).places)
    options = {"voc": "--data", "coco": "--coco"}
    asked = [options[name] for name in sorted(missing) if name in options]
    if asked and not command.quick:
        return f"their data are given with {' and '.join(asked)}"
    return "the same command goes on with them"
