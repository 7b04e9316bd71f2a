"""``alphaiou compare``."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from alphaiou.cli.options import Missing, check_missing
from alphaiou.data.problems import MISSING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from alphaiou.study.grid import Grid
    from alphaiou.study.runner import GridReport, PlannedRun
    from alphaiou.study.tables import StudyTable
    from alphaiou.training.loop import Report

REPORT = "comparison.html"
#: Runs whose scores stand beside the bar.
MOST_SHOWN = 3


@dataclass(frozen=True)
class Compare:
    """Train a small detector under each loss: table, curves, pictures.

    Same detector, data and seeds: the loss alone differs.

    Without --data, drawn images: two losses take under three minutes on two cores.

    Prints a table and writes to --out:
    - comparison.html   scores, curves, IoU distribution and pictures in one file,
                        also of earlier runs with other losses or seeds
    - a folder per run  record and weights; run again, finished runs are not
                        repeated, and stopped runs go on
    """

    losses: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[LOSS ...]")
    ] = ("iou", "iou:3")
    """kind, kind:alpha or kind:alpha:penalty_alpha; also kind+modifier, as in iou+wise_v3:3."""

    data: str = "shapes-discs-64"
    """Data set in any layout that alphaiou data reads, or a word for a drawn set."""

    seed: int = 0
    """Of the initial weights, the order and the augmentation."""

    seeds: Annotated[
        int | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="N", help_behavior_hint=""),
    ] = None
    """Train every loss with seeds 0 to N-1 instead, for intervals."""

    epochs: int | None = None
    """Passes over the training images: 16 for drawn sets, 50 for others, unless given."""

    detector: str = "yolov5n"
    """Name of a detector, as in alphaiou train --detector."""

    image_size: int | None = None
    """Long side of the images in pixels: 64 for drawn sets, 320 for others, unless given."""

    batch_size: int = 16
    """Images per step."""

    keep_detections: bool = True
    """Keep the detections of each run in detections.npz; the report analyses their errors."""

    missing: Missing = MISSING

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    out: Path = Path("runs/compare")
    """Folder to write to."""


def run_compare(command: Compare) -> int:
    """Train under every loss, then print the table and write the report."""
    from rich.console import Console

    from alphaiou.metrics.columns import PAPER_COLUMNS
    from alphaiou.study.compare import runs_on_same_data, with_other_runs
    from alphaiou.study.records import load_records, record_paths
    from alphaiou.study.report import write_report
    from alphaiou.study.runner import run_grid
    from alphaiou.study.tables import study_table
    from alphaiou.training.loop import Execution

    execution = Execution(device=command.device, missing=check_missing(command.missing))
    grid = _grid(command)
    command.out.mkdir(parents=True, exist_ok=True)  # if this fails, then before the training
    console = Console()
    with _Progress(grid, command, console) as progress:
        result = run_grid(
            [grid],
            command.out,
            execution=execution,
            keep_detections=command.keep_detections,
            report=progress.report(),
        )
    for _, error in result.failed:
        raise error
    records = runs_on_same_data(grid, load_records([command.out]))
    data = _data_line(grid, next(iter(result.records.values())).parent)
    _print_table(study_table(grid, records, PAPER_COLUMNS), console)
    console.print(data, highlight=False, soft_wrap=True)
    every = with_other_runs(grid, records)
    path = write_report(
        command.out / REPORT,
        [every],
        records,
        record_paths([command.out]),
        title=" against ".join(row.label for row in every.rows),
        lead=f"{_shared_line(every)} {data}.",
    )
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _grid(command: Compare) -> Grid:
    from alphaiou.boxes import check_choice
    from alphaiou.cli import UsageError
    from alphaiou.detectors import DETECTORS
    from alphaiou.errors import AlphaIoUError
    from alphaiou.losses.spec import LossSpec
    from alphaiou.study.compare import CompareSettings, compare_grid

    if command.seeds is not None and command.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {command.seeds}")
    if command.seeds is not None and command.seed:
        raise UsageError("--seed is one seed, --seeds N are 0 to N-1; give one of the two")
    try:
        losses = list(dict.fromkeys(LossSpec.parse(text) for text in command.losses))
        check_choice("detector", command.detector, tuple(DETECTORS))
        settings = CompareSettings(
            data=command.data,
            seed=command.seed,
            detector=command.detector,
            image_size=command.image_size,
            batch_size=command.batch_size,
            epochs=command.epochs,
        )
        grid = compare_grid(losses, settings)
        return replace(grid, seeds=tuple(range(command.seeds))) if command.seeds else grid
    except AlphaIoUError:  # about the data, not about the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


class _Progress:
    """A bar with the time left over all runs; lines of text where there is no terminal."""

    def __init__(self, grid: Grid, command: Compare, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self.grid, self.command, self.console = grid, command, console
        self.start = time.monotonic()
        self.reached: dict[str, float] = {}  # epochs of each run
        self.scores: dict[str, str] = {}
        self.notes: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self.task = self.bar.add_task("", total=None)

    def __enter__(self) -> _Progress:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def report(self) -> GridReport:
        """The listener to the events of all runs."""
        from alphaiou.study.runner import GridReport

        return GridReport(planned=self._planned, run=self._run, note=self._note)

    def _planned(self, todo: Sequence[PlannedRun], _: int) -> None:
        from alphaiou._environment import device_kind
        from alphaiou.study.runner import planned_runs

        self.bar.update(self.task, total=sum(run.recipe.epochs for run in todo))
        for run in planned_runs([self.grid], device_kind(self.command.device)):
            if run not in todo:
                self._print(f"{self.command.out / run.name} is finished already")

    def _run(self, run: PlannedRun) -> Report:
        from alphaiou.training.loop import Report

        recipe, name = run.recipe, run.recipe.loss.display_name
        if len(self.grid.seeds) > 1:
            name = f"{name}, seed {recipe.seed}"

        def stepped(epoch: int, step: int, steps: int) -> None:
            self.reached[name] = epoch + step / steps
            self.bar.update(self.task, completed=sum(self.reached.values()))

        def epoch_done(entry: dict[str, Any]) -> None:
            scores = _scores_line(entry)
            if scores:
                self.scores.pop(name, None)  # the newest comes last
                self.scores[name] = f"{name} {scores}"
                shown = list(self.scores.values())[-MOST_SHOWN:]
                self.bar.update(self.task, description=" · ".join(shown))
            if not self.console.is_terminal:
                place = f"epoch {entry['epoch']} of {recipe.epochs}"
                facts = (place, f"box loss {entry['box']:.3f}", scores, self._time_left())
                self._print(f"{name}: {', '.join(filter(None, facts))}")

        return Report(note=self._note, stepped=stepped, epoch_done=epoch_done)

    def _note(self, text: str) -> None:
        """Print a remark about all runs once."""
        if text not in self.notes:
            self.notes.add(text)
            self._print(text)

    def _print(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, soft_wrap=True)

    def _time_left(self) -> str:
        task = self.bar.tasks[self.task]
        left = (task.total or 0) - task.completed
        seconds = (time.monotonic() - self.start) * left / task.completed
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f} left" if seconds > 0 else ""


def _scores_line(entry: dict[str, Any]) -> str:
    from alphaiou.metrics.columns import EPOCH_COLUMNS, column_title

    scores = entry.get("val") or {}
    return ", ".join(f"{column_title(c)} {100 * scores[c]:.1f}" for c in EPOCH_COLUMNS if scores)


def _shared_line(grid: Grid) -> str:
    """What all rows share."""
    recipe = grid.rows[0].recipe
    seeds = f"seed{'s' * (len(grid.seeds) > 1)} {', '.join(map(str, grid.seeds))}"
    return (
        f"The same {recipe.detector.name} at {recipe.image_size} pixels and the same data, "
        f"{recipe.epochs} epochs under each loss with {seeds}; scored after the last epoch, "
        f"rule “{recipe.rule}”."
    )


def _data_line(grid: Grid, folder: Path) -> str:
    """The images and objects that the run in a folder was scored on."""
    from alphaiou.study.detections import findings_of

    findings = findings_of(folder)
    return (
        f"{grid.rows[0].recipe.data.path}: scored on {findings.images:,} images of "
        f"{findings.split!r} with {findings.objects:,} objects"
    )


def _print_table(table: StudyTable, console: Console) -> None:
    """Print the table; an interval stands under its change, so that columns stay narrow."""
    from rich import box
    from rich.table import Table

    from alphaiou.metrics.columns import column_title
    from alphaiou.study.tables import table_lines

    shown = Table(box=box.SIMPLE_HEAD, title="average precision, %")
    shown.add_column("loss", overflow="fold")
    for column in table.columns:
        shown.add_column(column_title(column), justify="right")
    for line in table_lines(table):
        cells = [cell.replace(" (", "\n").removesuffix(")") for cell in line.cells]
        style = None if line.kind == "ours" else "dim italic"
        shown.add_row(line.name, *cells, style=style)
    console.print(shown)
    for note in table.notes:
        console.print(note, style="dim", highlight=False, soft_wrap=True)
