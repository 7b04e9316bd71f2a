"""Training progress in the terminal."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from alphaiou.training.loop import Report
    from alphaiou.training.recipe import Recipe

#: Without a terminal, the seconds between printed epochs; epochs with scores are always printed.
QUIET_SECONDS = 10.0


class TrainingProgress:
    """A progress bar and one line per epoch; without a terminal, only the lines.

    Args:
        recipe: The recipe of the run.
        console: The console to print to.
    """

    def __init__(self, recipe: Recipe, console: Console) -> None:
        self.epochs, self.console = recipe.epochs, console
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self.bar = Progress(
            *columns,
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task("reading images", total=None)
        self.last_line = 0.0

    def __enter__(self) -> TrainingProgress:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def report(self) -> Report:
        """Return the callbacks that update the progress."""
        from alphaiou.training.loop import Report

        return Report(
            note=self._print,
            cached=self._cached,
            stepped=self._stepped,
            epoch_done=self._epoch_done,
        )

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _cached(self, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total)

    def _stepped(self, epoch: int, step: int, steps: int) -> None:
        done = epoch * steps + step
        if self.bar.tasks[0].total != self.epochs * steps:
            # Restart the bar: reading images and epochs of an earlier call had a different speed.
            self.bar.reset(self.task, total=self.epochs * steps, completed=done - 1)
        description = f"epoch {epoch + 1} of {self.epochs}"
        self.bar.update(self.task, completed=done, description=description)

    def _epoch_done(self, entry: dict[str, Any]) -> None:
        now, scored = time.monotonic(), "val" in entry or "test" in entry
        due = now - self.last_line > QUIET_SECONDS or entry["epoch"] == self.epochs
        if scored or due or self.console.is_terminal:
            self.last_line = now
            self._print(epoch_line(entry, self.epochs))


def epoch_line(entry: dict[str, Any], epochs: int) -> str:
    """Format an epoch as one line: losses, speed, memory, remaining time, scores."""
    from alphaiou.metrics.columns import EPOCH_COLUMNS, column_title
    from alphaiou.training.record import loss_parts

    losses = " ".join(f"{name} {number:.3f}" for name, number in loss_parts(entry).items())
    left = timedelta(seconds=round((epochs - entry["epoch"]) * entry["seconds"]))
    parts = [
        f"epoch {entry['epoch']:{len(str(epochs))}} of {epochs}: {losses}",
        f"{entry['images_per_second']:,.{1 if entry['images_per_second'] < 10 else 0}f} images/s",
        f"{entry['memory_bytes'] / 2**30:.1f} GiB",
    ]
    if entry["epoch"] < epochs:
        parts.append(f"{left} left")
    for name in ("val", "test"):
        if name in entry:
            scores = (f"{column_title(c)} {100 * entry[name][c]:.2f}" for c in EPOCH_COLUMNS)
            parts.append(f"{name} {' '.join(scores)}")
    if entry["lost_boxes"]:
        parts.append(f"{entry['lost_boxes']:,} boxes exceeded the slots")
    return ", ".join(parts)


def final_table(record: dict[str, Any]) -> Table:
    """Return the scores of a run as a table."""
    from alphaiou.inference.tables import comparison_table
    from alphaiou.metrics import comparison_rows
    from alphaiou.metrics.columns import read_score
    from alphaiou.training.recipe import recipe_from

    recipe: Recipe = recipe_from(record["recipe"])
    name = f"{recipe.detector.name}, {recipe.loss_name}"
    numbers = {key: read_score(record["scores"], key) for key in record["scores"]}
    selected = record["selected"]
    which = f"epoch {selected['epoch']}, best on {selected['on']}" if best(record) else "last epoch"
    title = scores_title(recipe.data.path, record["scored_on"], recipe.rule, which)
    return comparison_table(comparison_rows({name: numbers}), title)


def scores_title(data: str, split: str, rule: str, epoch: str) -> str:
    """Return the title of the scores of a run; ``alphaiou eval --weights`` prints the same."""
    return f"{data}, {split}, rule {rule}, {epoch}, %"


def best(record: dict[str, Any]) -> bool:
    """Return whether the weights of a run are those of its best epoch, not of its last."""
    return isinstance(record["selected"], dict)
