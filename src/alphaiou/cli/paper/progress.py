"""The progress of the runs of a grid."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.study.runner import GridReport, PlannedRun
    from alphaiou.training.loop import Report


class GridProgress:
    """A bar over all epochs of all runs with the time left, and one line per finished run.

    Without a terminal there are only the lines, which count the runs.
    """

    def __init__(self, console: Console) -> None:
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self.console, self.start = console, time.monotonic()
        self.epochs = self.runs = self.ended = 0
        self.reached: dict[str, float] = {}  # epochs of each run
        self.begun: dict[str, float] = {}  # epochs of each run that an earlier call computed
        self.notes: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
        self.bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
        self.task = self.bar.add_task("starting", total=None)

    def __enter__(self) -> GridProgress:
        if self.console.is_terminal:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:  # else it leaves an empty line
            self.bar.stop()

    def report(self) -> GridReport:
        """The listener to the events of all runs."""
        from alphaiou.study.runner import GridReport

        return GridReport(self._planned, self._run, self._ended, self._note)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self.bar.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _planned(self, runs: Sequence[PlannedRun], finished: int) -> None:
        self.runs, self.epochs = len(runs), sum(run.recipe.epochs for run in runs)
        self.bar.update(self.task, total=self.epochs)
        self.say(f"{finished} runs are finished, {len(runs)} to compute")

    def _run(self, run: PlannedRun) -> Report:
        from alphaiou.training.loop import Report

        def stepped(epoch: int, step: int, steps: int) -> None:
            reached = epoch + step / steps
            self.begun.setdefault(run.name, float(epoch))
            self.reached[run.name] = reached
            self._show()

        return Report(note=self._note, stepped=stepped)

    def _note(self, text: str) -> None:
        """Print a remark about many runs once."""
        if text not in self.notes:
            self.notes.add(text)
            self.say(text)

    def _ended(self, run: PlannedRun, error: Exception | None) -> None:
        self.ended += 1
        self.begun.setdefault(run.name, float(run.recipe.epochs))
        self.reached[run.name] = run.recipe.epochs
        self._show()
        outcome = "finished" if error is None else f"failed: {_one_line(error)}"
        self.say(f"{run.label}: {outcome} ({self.ended} of {self.runs}{self._time_left()})")

    def _show(self) -> None:
        description = f"{self.ended} of {self.runs} runs"
        self.bar.update(self.task, completed=sum(self.reached.values()), description=description)

    def _time_left(self) -> str:
        """The time left by the pace of this call, without what an earlier call computed."""
        done = sum(self.reached.values())
        computed = done - sum(self.begun.values())
        if computed <= 0 or done >= self.epochs:
            return ""
        seconds = (time.monotonic() - self.start) * (self.epochs - done) / computed
        return f", {timedelta(seconds=round(seconds))} left"


def _one_line(error: Any) -> str:  # noqa: ANN401
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
