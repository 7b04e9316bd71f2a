"""Worker processes that train one recipe after another, several at a time.

A worker keeps what the next run can use: decoded images and compiled kernels. If a worker is
killed, only its current run is affected, and that run goes on in a new worker.
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
#: Step events are sent at least this many seconds apart.
STEP_SECONDS = 0.1
#: The runs of a process before a new one replaces it: compilers keep some memory for each.
MOST_RUNS = 24
#: The number of a run, and why it failed if it did.
Ended = tuple[int, Exception | None]
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


@dataclass(frozen=True)
class Job:
    """A run for a worker.

    Attributes:
        recipe: The run.
        folder: The run's folder is made under this one.
        data: The working directory of the run, against which relative paths of data sets are
            resolved; by default that of the worker.
        pictures: Whether to keep the findings of the detector as well.
    """

    recipe: Recipe
    folder: Path
    data: Path | None = None
    pictures: bool = False


def do_job(job: Job, execution: Execution, report: Report) -> None:
    """Train, and keep the findings of the detector if they are wanted."""
    if job.data is not None:
        os.chdir(job.data)
    record = fit(job.recipe, job.folder, execution=execution, report=report)
    if job.pictures:
        findings_of(job.folder / record["name"], device_kind(execution.device))


# Where workers compute


@dataclass(frozen=True)
class Worker:
    """The share of a machine that one worker computes on.

    Attributes:
        threads: Its CPU threads, unless the execution sets a number.
        gpu: The only GPU that it sees; any if None.
    """

    threads: int = 1
    gpu: str | None = None


def schedule(device: str, jobs: int, at_once: int | None = None) -> list[Worker]:
    """The workers that compute a number of runs on this machine.

    Args:
        device: ``cpu`` or ``cuda``.
        jobs: The number of runs.
        at_once: Runs at a time: per GPU, where the default is one, or on the CPU, where the default
            is one per core.

    Example:
        >>> schedule("cpu", jobs=3, at_once=2)[0].gpu is None
        True
    """
    gpus: list[str | None] = [None]
    each = at_once or cores()
    if device == "cuda":
        gpus, each = list(_gpus()), at_once or 1
    count = max(1, min(len(gpus) * each, jobs))
    threads = max(1, cores() // count)
    return [Worker(threads, gpus[number % len(gpus)]) for number in range(count)]


def share_gpus_in_turn(workers: Sequence[Worker]) -> bool:
    """Whether workers share a GPU and cannot compute on it at the same time.

    The driver lets one process at a time compute on a GPU, unless NVIDIA's MPS runs, whose daemon
    keeps a pipe.
    """
    gpus = [worker.gpu for worker in workers if worker.gpu is not None]
    pipes = Path(os.environ.get(MPS_PIPES, "/tmp/nvidia-mps"))
    return len(set(gpus)) < len(gpus) and not (pipes / "control").exists()


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The names of the GPUs that this process sees."""
    visible = os.environ.get(VISIBLE_GPUS)
    count = torch.cuda.device_count()
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]


# The pool


@dataclass
class _Process:
    """The process of a worker, and the number of its current run."""

    worker: Worker
    process: BaseProcess
    connection: Connection
    number: int | None = None
    finished: int = 0


@dataclass
class WorkerPool:
    """Workers and their jobs.

    Attributes:
        jobs: The runs.
        workers: Where they are computed.
        execution: How each run is computed; its ``workers``, if set, is the number of threads.
        report: Gives the listener to the events of a run, by its number, in this process.
        may_start: Whether the run of a number may begin.
        tries: How often a run is begun whose worker is killed.
    """

    jobs: Sequence[Job]
    workers: Sequence[Worker]
    execution: Execution
    report: Callable[[int], Report] = lambda _: Report()
    may_start: Callable[[int], bool] = lambda _: True
    tries: int = 1
    _waiting: deque[int] = field(default_factory=deque)
    _begun: dict[int, int] = field(default_factory=dict)
    _listeners: dict[int, Report] = field(default_factory=dict)

    def run(self) -> Generator[Ended, None, None]:
        """Train, one run per worker at a time.

        Yields:
            The number of a run that has ended, and why it failed if it did.
        """
        self._waiting.extend(range(len(self.jobs)))
        processes: list[_Process] = []
        try:
            for worker in self.workers:
                self._start(processes, worker)
            while busy := [process for process in processes if process.number is not None]:
                ready = wait([process.connection for process in busy])
                for process in busy:
                    if process.connection in ready:
                        yield from self._receive(processes, process)
        finally:
            _stop(processes)

    def _start(self, processes: list[_Process], worker: Worker) -> None:
        """Start a process for a worker, if there is a run for it."""
        if self._next() is not None:
            processes.append(_start_process(worker, self.execution))
            self._assign(processes[-1])

    def _assign(self, process: _Process) -> None:
        """Send the next run to an idle process, if there is one."""
        process.number = number = self._next()
        if number is None:
            return
        self._waiting.remove(number)
        self._begun[number] = self._begun.get(number, 0) + 1
        if number not in self._listeners:
            self._listeners[number] = self.report(number)
        with contextlib.suppress(OSError):  # it has ended, which the next receive notices
            process.connection.send(self.jobs[number])

    def _next(self) -> int | None:
        return next(filter(self.may_start, self._waiting), None)

    def _receive(self, processes: list[_Process], process: _Process) -> Iterator[Ended]:
        """Handle an event of a process, or its end."""
        number = process.number
        assert number is not None
        try:
            kind, facts = process.connection.recv()
        except (EOFError, OSError):
            _stop([process])
            if self._begun[number] < self.tries:
                self._waiting.appendleft(number)
            else:
                yield number, _killed(process.process.exitcode)
            processes.remove(process)
            self._start(processes, process.worker)
            return
        if kind not in (DONE, FAILED):
            getattr(self._listeners[number], kind)(*facts)
            return
        error, is_sound = facts
        yield number, error
        process.finished += 1
        if is_sound and process.finished < MOST_RUNS:
            self._assign(process)
        else:
            _stop([process])
            processes.remove(process)
            self._start(processes, process.worker)


def _start_process(worker: Worker, execution: Execution) -> _Process:
    context = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(there, worker, execution))
    process.start()
    there.close()  # so that the end of the process closes the connection
    return _Process(worker, process, here)


def _stop(processes: Sequence[_Process]) -> None:
    """End processes, and those that they have started."""
    for process in processes:
        process.connection.close()  # which ends the idle ones
        if process.number is not None:
            process.process.terminate()
    for process in processes:
        process.process.join()
        if hasattr(os, "killpg") and process.process.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.process.pid, signal.SIGKILL)


def _killed(code: int | None) -> TrainingFailedError:
    return TrainingFailedError(
        f"a training was ended from outside (exit code {code}), perhaps for want of memory; run "
        "the same command again to go on"
    )


# Inside a worker


def _work(connection: Connection, worker: Worker, execution: Execution) -> None:
    """Compute one run after another until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process stops this one
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # the processes that it starts are ended with it
    if worker.gpu is not None:
        os.environ[VISIBLE_GPUS] = worker.gpu
    threads = execution.workers or worker.threads
    torch.set_num_threads(threads)
    execution = replace(execution, workers=threads, decoded={})

    def send(kind: str, facts: tuple[Any, ...]) -> None:
        connection.send((kind, facts))

    with contextlib.suppress(EOFError, BrokenPipeError):  # the parent has closed the connection
        while True:
            job: Job = connection.recv()
            try:
                do_job(job, execution, sent_events(send))
            except Exception as error:  # raised again in the parent
                error.add_note(traceback.format_exc())
                # An error that is not about the data or the run may leave the GPU unusable.
                send(FAILED, (picklable(error), isinstance(error, AlphaIoUError)))
            else:
                send(DONE, (None, True))
            _free_memory()


def _free_memory() -> None:
    """Free the memory of a run on the GPU, so that the next one has its own peak."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def sent_events(send: Callable[[str, tuple[Any, ...]], None]) -> Report:
    """A report that sends the events of a run elsewhere, and steps no faster than anyone reads."""
    last = 0.0

    def event(kind: str) -> Callable[..., None]:
        return lambda *facts: send(kind, facts)

    def stepped(epoch: int, step: int, steps: int) -> None:
        nonlocal last
        if step == steps or time.monotonic() - last > STEP_SECONDS:
            last = time.monotonic()
            send("stepped", (epoch, step, steps))

    return Report(event("note"), event("cached"), stepped, event("epoch_done"))


def picklable(error: Exception) -> Exception:
    """The error, or one with the same message if it cannot be sent between processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class raises
        plain = TrainingFailedError(f"{type(error).__name__}: {error}")
        plain.add_note(error.__notes__[-1])
        return plain
    return error
