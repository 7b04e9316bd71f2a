"""``alphaiou compare``."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from alphaiou.cli.options import Missing, check_missing
from alphaiou.data.problems import MISSING

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.study.compare import ComparedRun
    from alphaiou.training.loop import Report
    from alphaiou.training.recipe import Recipe

REPORT = "comparison.html"


@dataclass(frozen=True)
class Compare:
    """Train a small detector under each loss: table, curves, pictures.

    Same detector, data and seed: the loss alone differs.

    Without --data, drawn images: two losses take under three minutes on two cores.

    Prints a table and writes to --out:
    - comparison.html   scores, curves, IoU distribution and pictures in one file
    - a folder a run    record and weights; run again, what is finished is not
                        repeated, and what was stopped goes on
    """

    losses: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[LOSS ...]")
    ] = ("iou", "iou:3")
    """kind, kind:alpha or kind:alpha:penalty_alpha; also kind+modifier, as in iou+wise_v3:3."""

    data: str = "shapes-discs-64"
    """A VOC devkit, COCO JSON or YOLO layout, or a word for a drawn set."""

    seed: int = 0
    """Of the weights at the start, the order and the augmentation."""

    epochs: int | None = None
    """Passes over the training images: 16 for drawn sets, 50 for others, unless given."""

    detector: str = "yolov5n"
    """yolov5n, yolov5s, yolov5m, yolov5l, yolov5x, fasterrcnn_r50_fpn or detr_r50."""

    image_size: int | None = None
    """Long side of the images in pixels: 64 for drawn sets, 320 for others, unless given."""

    batch_size: int = 16
    """Images a step."""

    missing: Missing = MISSING

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    out: Path = Path("runs/compare")
    """Folder to write to."""


def run_compare(command: Compare) -> int:
    """Train under every loss, then print the table and write the report."""
    from rich.console import Console

    from alphaiou._environment import device_kind
    from alphaiou.study.compare import run_comparison, unfinished
    from alphaiou.study.report.comparison import write_report
    from alphaiou.training.loop import Execution

    execution = Execution(device=command.device, missing=check_missing(command.missing))
    recipes = _recipes(command)
    command.out.mkdir(parents=True, exist_ok=True)  # if it cannot be, better now than later
    console = Console()
    todo = unfinished(recipes, command.out, device_kind(command.device))
    with _Progress(todo, console) as progress:
        runs = run_comparison(
            recipes,
            command.out,
            execution=execution,
            report=progress.report_of,
            side_by_side=True,
        )
    _print_table(runs, console)
    path = write_report(runs, command.out / REPORT)
    console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _recipes(command: Compare) -> list[Recipe]:
    from alphaiou.boxes import check_choice
    from alphaiou.cli import UsageError
    from alphaiou.detectors import DETECTORS
    from alphaiou.errors import AlphaIoUError
    from alphaiou.losses.spec import LossSpec
    from alphaiou.study.compare import CompareSettings, compare_recipes

    try:
        losses = list(dict.fromkeys(LossSpec.parse(text) for text in command.losses))
        check_choice("detector", command.detector, DETECTORS)
        settings = CompareSettings(
            data=command.data,
            seed=command.seed,
            detector=command.detector,
            image_size=command.image_size,
            batch_size=command.batch_size,
            epochs=command.epochs,
        )
        return compare_recipes(losses, settings)
    except AlphaIoUError:  # about the data, not about what was typed
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


class _Progress:
    """A bar with the time left over all runs; lines of text where there is no terminal."""

    def __init__(self, recipes: list[Recipe], console: Console) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self.console, self.start = console, time.monotonic()
        self.reached: dict[str, float] = {}  # epochs of each run
        self.scores: dict[str, str] = {}
        self.said: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self.task = self.bar.add_task("", total=sum(recipe.epochs for recipe in recipes))

    def __enter__(self) -> _Progress:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def report_of(self, recipe: Recipe) -> Report:
        """Who is told what the run of a recipe does."""
        from alphaiou.training.loop import Report

        name = recipe.loss.display_name

        def stepped(epoch: int, step: int, steps: int) -> None:
            self.reached[name] = epoch + step / steps
            self.bar.update(self.task, completed=sum(self.reached.values()))

        def epoch_done(entry: dict[str, Any]) -> None:
            scores = _scores_line(entry)
            if scores:
                self.scores[name] = f"{name} {scores}"
                self.bar.update(self.task, description=" · ".join(self.scores.values()))
            if not self.console.is_terminal:
                place = f"epoch {entry['epoch']} of {recipe.epochs}"
                facts = (place, f"box loss {entry['box']:.3f}", scores, self._time_left())
                self._say(f"{name}: {', '.join(filter(None, facts))}")

        return Report(note=self._note, stepped=stepped, epoch_done=epoch_done)

    def _note(self, text: str) -> None:
        """Say what is true of every run once."""
        if text not in self.said:
            self.said.add(text)
            self._say(text)

    def _say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False, soft_wrap=True)

    def _time_left(self) -> str:
        task = self.bar.tasks[self.task]
        left = (task.total or 0) - task.completed
        seconds = (time.monotonic() - self.start) * left / task.completed
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f} left" if seconds > 0 else ""


def _scores_line(entry: dict[str, Any]) -> str:
    scores = entry.get("val")
    return f"AP50 {100 * scores['ap50']:.1f}, mAP {100 * scores['map']:.1f}" if scores else ""


def _print_table(runs: list[ComparedRun], console: Console) -> None:
    from alphaiou.inference.tables import comparison_table
    from alphaiou.metrics.comparison import PAPER_COLUMNS
    from alphaiou.study.report.comparison import data_line, named_runs, score_rows

    rows = score_rows(named_runs(runs), PAPER_COLUMNS)
    console.print(comparison_table(rows, "average precision, %", first="loss"))
    console.print(f"{data_line(runs[0])}; one seed decides nothing small", highlight=False)
