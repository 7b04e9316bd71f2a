"""Trainings side by side on a processor, each in a process with its share of the cores.

A small detector gains little from a second core, and its threads wait for one another many times a
step: with anything else running, that costs far more than it gains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from alphaiou.experiments.worker_pool import Job, WorkerPool, seats_for
from alphaiou.training.fit import Execution, Report
from alphaiou.training.recipe import Recipe


def fit_side_by_side(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    execution: Execution = Execution(device="cpu"),
    report: Callable[[Recipe], Report] = lambda _: Report(),
) -> None:
    """Run ``fit`` for every recipe, as many at once as there are cores.

    Args:
        recipes: The runs.
        folder: Each is kept in its own folder under this one.
        execution: How each is computed, but for the number of its threads.
        report: Who is told what a run does, in this process.

    Raises:
        AlphaIoUError: A run failed. The others are stopped; called again, they go on.
    """
    jobs = [Job(recipe, folder) for recipe in recipes]
    pool = WorkerPool(
        jobs,
        seats_for("cpu", len(jobs)),
        execution,
        report=lambda number: report(recipes[number]),
    )
    with closing(pool.run()) as ends:
        for _, error in ends:
            if error is not None:
                raise error
