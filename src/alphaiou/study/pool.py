"""Processes that train one recipe after another, several at a time.

A worker keeps what the next run can use: decoded images and compiled kernels. One that is ended
from outside takes nothing with it but its run, which goes on in a new one.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from alphaiou._environment import device_kind
from alphaiou.errors import AlphaIoUError
from alphaiou.study.detections import findings_of
from alphaiou.training.loop import Execution, Report, TrainingFailedError, fit
from alphaiou.training.recipe import Recipe

DONE, FAILED = "done", "failed"
#: Steps are told this many seconds apart at least.
STEP_SECONDS = 0.1
#: The runs of a worker before a new one takes its place: compilers keep something of each.
MOST_RUNS = 24
#: The number of a run, and why it failed if it did.
Ended = tuple[int, Exception | None]
GPUS_SEEN = "CUDA_VISIBLE_DEVICES"
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True)
class Job:
    """A run for a worker.

    Attributes:
        recipe: The run.
        folder: Its folder is under this one.
        data: Where data sets are looked for whose path in the recipe is not absolute; by default
            where the worker is.
        pictures: Whether to keep what the detector finds as well.
    """

    recipe: Recipe
    folder: Path
    data: Path | None = None
    pictures: bool = False


@dataclass(frozen=True)
class Seat:
    """Where a worker computes.

    Attributes:
        threads: How many it may use, unless told otherwise.
        gpu: The only GPU that it sees; any if None.
    """

    threads: int = 1
    gpu: str | None = None


@dataclass
class _Worker:
    """A process and the run that it has."""

    seat: Seat
    process: BaseProcess
    line: Connection
    number: int | None = None
    served: int = 0


@dataclass
class WorkerPool:
    """Workers, and what they have to do.

    Attributes:
        jobs: The runs.
        seats: A worker for each.
        execution: How each run is computed; with as many threads as ``workers`` if it is given.
        report: Who is told what the run of a number does, in this process.
        may_start: Whether the run of a number may begin.
        tries: How often a run is begun whose worker is ended from outside.
    """

    jobs: Sequence[Job]
    seats: Sequence[Seat]
    execution: Execution
    report: Callable[[int], Report] = lambda _: Report()
    may_start: Callable[[int], bool] = lambda _: True
    tries: int = 1
    _waiting: deque[int] = field(default_factory=deque)
    _begun: dict[int, int] = field(default_factory=dict)
    _listeners: dict[int, Report] = field(default_factory=dict)

    def run(self) -> Generator[Ended, None, None]:
        """Train, as many at a time as there are seats.

        Yields:
            The number of a run that has ended, and why if it failed.
        """
        self._waiting.extend(range(len(self.jobs)))
        workers: list[_Worker] = []
        try:
            for seat in self.seats:
                self._hire(workers, seat)
            while busy := [worker for worker in workers if worker.number is not None]:
                ready = wait([worker.line for worker in busy])
                for worker in busy:
                    if worker.line in ready:
                        yield from self._hear(workers, worker)
        finally:
            _dismiss(workers)

    def _give(self, worker: _Worker) -> None:
        """The next run for a worker that has none, if there is one."""
        worker.number = number = self._next()
        if number is None:
            return
        self._waiting.remove(number)
        self._begun[number] = self._begun.get(number, 0) + 1
        if number not in self._listeners:
            self._listeners[number] = self.report(number)
        with contextlib.suppress(OSError):  # it is gone, which is heard next
            worker.line.send(self.jobs[number])

    def _hear(self, workers: list[_Worker], worker: _Worker) -> Iterator[Ended]:
        """What a worker says, or that it is gone."""
        number = worker.number
        assert number is not None
        try:
            kind, facts = worker.line.recv()
        except (EOFError, OSError):
            _dismiss([worker])
            if self._begun[number] < self.tries:
                self._waiting.appendleft(number)
            else:
                yield number, _ended(worker.process.exitcode)
            workers.remove(worker)
            self._hire(workers, worker.seat)
            return
        if kind not in (DONE, FAILED):
            getattr(self._listeners[number], kind)(*facts)
            return
        error, is_sound = facts
        yield number, error
        worker.served += 1
        if is_sound and worker.served < MOST_RUNS:
            self._give(worker)
        else:
            _dismiss([worker])
            workers.remove(worker)
            self._hire(workers, worker.seat)

    def _hire(self, workers: list[_Worker], seat: Seat) -> None:
        """A new worker, if there is more to do."""
        if self._next() is not None:
            workers.append(_start(seat, self.execution))
            self._give(workers[-1])

    def _next(self) -> int | None:
        return next(filter(self.may_start, self._waiting), None)


def _start(seat: Seat, execution: Execution) -> _Worker:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, seat, execution))
    process.start()
    there.close()  # so that its end is heard here
    return _Worker(seat, process, here)


def _work(line: Connection, seat: Seat, execution: Execution) -> None:
    """A worker: one run after another until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this process stops it
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # the processes that it starts are ended with it
    if seat.gpu is not None:
        os.environ[GPUS_SEEN] = seat.gpu
    threads = execution.workers or seat.threads
    torch.set_num_threads(threads)
    execution = replace(execution, workers=threads, decoded={})

    def tell(kind: str, facts: tuple[Any, ...]) -> None:
        line.send((kind, facts))

    with contextlib.suppress(EOFError, BrokenPipeError):  # nobody listens any more
        while True:
            job: Job = line.recv()
            try:
                do_job(job, execution, telling(tell))
            except Exception as error:  # raised again over there
                error.add_note(traceback.format_exc())
                # What is not about the data or the run may have left the GPU unusable.
                tell(FAILED, (sendable(error), isinstance(error, AlphaIoUError)))
            else:
                tell(DONE, (None, True))
            _forget()


def _forget() -> None:
    """Free what a run had on the GPU, so that the next one has the room and its own peak."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def do_job(job: Job, execution: Execution, report: Report) -> None:
    """Train, and look at what was learnt where that is asked for."""
    if job.data is not None:
        os.chdir(job.data)
    record = fit(job.recipe, job.folder, execution=execution, report=report)
    if job.pictures:
        findings_of(job.folder / record["name"], device_kind(execution.device))


def telling(tell: Callable[[str, tuple[Any, ...]], None]) -> Report:
    """What a run does, told elsewhere; steps not more often than anyone can see."""
    last = 0.0

    def of(kind: str) -> Callable[..., None]:
        return lambda *facts: tell(kind, facts)

    def stepped(epoch: int, step: int, steps: int) -> None:
        nonlocal last
        if step == steps or time.monotonic() - last > STEP_SECONDS:
            last = time.monotonic()
            tell("stepped", (epoch, step, steps))

    return Report(of("note"), of("cached"), stepped, of("epoch_done"))


def sendable(error: Exception) -> Exception:
    """The error, or one of the same words if it cannot be sent from process to process."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class makes of it
        plain = TrainingFailedError(f"{type(error).__name__}: {error}")
        plain.add_note(error.__notes__[-1])
        return plain
    return error


def _ended(code: int | None) -> TrainingFailedError:
    return TrainingFailedError(
        f"a training was ended from outside (exit code {code}), perhaps for want of memory; run "
        "the same command again to go on"
    )


def _dismiss(workers: Sequence[_Worker]) -> None:
    """End workers, and what they have started."""
    for worker in workers:
        worker.line.close()  # which ends those that have nothing to do
        if worker.number is not None:
            worker.process.terminate()
    for worker in workers:
        worker.process.join()
        if hasattr(os, "killpg") and worker.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(worker.process.pid, signal.SIGKILL)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def seats_for(device: str, jobs: int, workers: int | None = None) -> list[Seat]:
    """Where a number of runs is computed on this machine.

    Args:
        device: ``cpu`` or ``cuda``.
        jobs: How many runs there are.
        workers: Runs at a time: on each GPU, one unless given; or on the processor, one a core.

    Example:
        >>> seats_for("cpu", jobs=3, workers=2)[0].gpu is None
        True
    """
    gpus: list[str | None] = [None]
    each = workers or cores()
    if device == "cuda":
        gpus, each = list(_gpus()), workers or 1
    count = max(1, min(len(gpus) * each, jobs))
    threads = max(1, cores() // count)
    return [Seat(threads, gpus[number % len(gpus)]) for number in range(count)]


def take_turns(seats: Sequence[Seat]) -> bool:
    """Whether workers share a GPU and may not compute on it at the same time.

    The driver lets one process at a time compute on a GPU, unless NVIDIA's MPS runs, whose daemon
    keeps a pipe.
    """
    gpus = [seat.gpu for seat in seats if seat.gpu is not None]
    pipes = Path(os.environ.get(MPS_PIPES, "/tmp/nvidia-mps"))
    return len(set(gpus)) < len(gpus) and not (pipes / "control").exists()


def _gpus() -> list[str]:
    """The names of the GPUs that this process sees."""
    seen = os.environ.get(GPUS_SEEN)
    count = torch.cuda.device_count()
    return seen.split(",")[:count] if seen else [str(number) for number in range(count)]
