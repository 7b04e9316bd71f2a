"""Trainings side by side on a processor, each in a process with its share of the cores.

A small detector gains little from a second core, and its threads wait for one another many times a
step: with anything else running, that costs far more than it gains.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from alphaiou.training.fit import Execution, Report, TrainingFailedError, fit

if TYPE_CHECKING:
    from alphaiou.training.recipe import Recipe

    #: A run's number, what happened, and the facts of it.
    Event = tuple[int, str, tuple[Any, ...]]
    Events = multiprocessing.Queue[Event]

TOLD = ("note", "cached", "stepped", "epoch_done")
DONE, FAILED = "done", "failed"


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fit_side_by_side(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    execution: Execution = Execution(device="cpu"),  # noqa: B008
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
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    at_once = max(1, min(cores(), len(recipes)))
    execution = replace(execution, workers=cores() // at_once)
    events: Events = context.Queue()
    workers = [
        context.Process(target=_work, args=(number, recipe, folder, execution, events))
        for number, recipe in enumerate(recipes)
    ]
    waiting, left = iter(workers), set(range(len(workers)))
    listeners = [report(recipe) for recipe in recipes]
    try:
        for worker in islice(waiting, at_once):
            worker.start()
        while left:
            number, kind, facts = _next_event(events, workers, left)
            if kind == FAILED:
                raise facts[0]
            if kind == DONE:
                left.remove(number)
                for worker in islice(waiting, 1):
                    worker.start()
            else:
                getattr(listeners[number], kind)(*facts)
    finally:
        _stop(workers)


def _work(number: int, recipe: Recipe, folder: Path, execution: Execution, events: Events) -> None:
    """One run, in its own process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process stops it
    torch.set_num_threads(execution.workers or 1)

    def tell(kind: str) -> Callable[..., None]:
        return lambda *facts: events.put((number, kind, facts))

    try:
        fit(recipe, folder, execution=execution, report=Report(**{key: tell(key) for key in TOLD}))
    except Exception as error:  # raised again over there
        error.add_note(traceback.format_exc())
        tell(FAILED)(error)
    else:
        tell(DONE)()


def _next_event(events: Events, workers: Sequence[BaseProcess], left: Collection[int]) -> Event:
    """What happens next, or an error if a process is gone without a word."""
    while True:
        try:
            return events.get(timeout=1.0)
        except queue.Empty:
            codes = [workers[number].exitcode for number in left]
            gone = [code for code in codes if code]
            if gone:
                raise TrainingFailedError(
                    f"a training was ended from outside (exit code {gone[0]}), perhaps for want "
                    "of memory; run the same command again to go on"
                ) from None


def _stop(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        if worker.is_alive():
            worker.terminate()
    for worker in workers:
        if worker.pid is not None:
            worker.join()
