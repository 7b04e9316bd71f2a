"""Worker processes that compute one run after another, several at a time.

A worker keeps what the next run can use: decoded images and compiled kernels. If a worker is
killed, only its current run is affected, and that run goes on in a new worker. A run that another
process trains is left to it: other runs come first, and then the pool waits for that process.
The next run is asked for when a worker is free, so that it may depend on those that have ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import pickle
import secrets
import signal
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

import torch

from alphaiou._environment import device_kind
from alphaiou._files import write_file
from alphaiou.errors import AlphaIoUError, TerminatedError, add_note
from alphaiou.inference.kept_detections import DETECTIONS
from alphaiou.study.detections import FINDINGS, findings_of
from alphaiou.study.kept import keep_detections
from alphaiou.training.checkpoint import RunBusyError, locked
from alphaiou.training.loop import Execution, Report, TrainingFailedError, fit
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import RECORD

DONE, FAILED, BUSY = "done", "failed", "busy"
#: Step events are sent at least this many seconds apart.
STEP_SECONDS = 0.1
#: Seconds until a run that another process trains is tried again.
BUSY_SECONDS = 1.0
#: The runs of a process before a new one replaces it: compilers keep some memory for each.
MOST_RUNS = 24
#: The number of a run, and why it failed if it did.
Ended = tuple[int, Exception | None]
#: The scores of a training function, in the folder of the run.
RESULT = "result.json"
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
MPS_PIPES = "CUDA_MPS_PIPE_DIRECTORY"


class RunStoppedError(AlphaIoUError):
    """The listener to a run has stopped it; raised in ``Report.epoch_done``."""


class RunKilledError(TrainingFailedError):
    """The processes or machines of a run were lost as often as it may be begun."""


class Job(Protocol):
    """A run for a worker."""

    @property
    def name(self) -> str:
        """The name of its folder."""

    @property
    def folder(self) -> Path:
        """The folder under which it has its own."""

    @property
    def asks(self) -> bool:
        """Whether it waits after each epoch until the listener lets it go on."""

    @property
    def result(self) -> str:
        """The name of the file without which it is not finished."""

    def do(self, execution: Execution, report: Report) -> None:
        """Compute it, unless it is finished.

        Raises:
            RunBusyError: Another process computes this run.
        """

    def placed(self, folder: Path, data: Path) -> Job:
        """The same run on another machine, with the folder that links to its data sets."""


@dataclass(frozen=True)
class RecipeJob:
    """The training of a recipe.

    Attributes:
        recipe: The run.
        folder: The run's folder is made under this one.
        data: The working directory of the run, against which relative paths of data sets are
            resolved; by default that of the worker.
        pictures: Whether to keep the findings of the detector as well.
        keep_detections: Whether to keep its detections.
        asks: Whether it waits after each epoch until the listener lets it go on.
    """

    recipe: Recipe
    folder: Path
    data: Path | None = None
    pictures: bool = False
    keep_detections: bool = False
    asks: bool = False
    result: str = RECORD

    @property
    def name(self) -> str:
        """The hash of the recipe."""
        return recipe_hash(self.recipe)

    def placed(self, folder: Path, data: Path) -> RecipeJob:
        """The same run on another machine."""
        return replace(self, folder=folder, data=data)

    def do(self, execution: Execution, report: Report) -> None:
        """Train, and keep the findings of the detector if they are wanted."""
        if self.data is not None:
            os.chdir(self.data)
        record = fit(self.recipe, self.folder, execution=execution, report=report)
        folder = self.folder / record["name"]
        if self.pictures and not (folder / FINDINGS).exists():
            with locked(folder):
                findings_of(folder, device_kind(execution.device))
        if self.keep_detections and not (folder / DETECTIONS).exists():
            with locked(folder):
                keep_detections(folder, device=device_kind(execution.device), note=report.note)


@dataclass(frozen=True)
class FunctionJob:
    """A call of somebody's own training function.

    Attributes:
        name: The name of the run.
        folder: The run's folder is made under this one.
        function: Called with the settings and a function that reports the scores of an epoch; it
            returns the final scores.
        settings: Its first argument.
        asks: Whether it waits after each epoch until the listener lets it go on.
    """

    name: str
    folder: Path
    function: Callable[[Any, Callable[[int, Mapping[str, float]], None]], Mapping[str, float]]
    settings: Any
    asks: bool = False
    result: str = RESULT

    def placed(self, folder: Path, _: Path) -> FunctionJob:
        """The same run on another machine, in a new folder: functions may share a name."""
        return replace(self, folder=folder / secrets.token_hex(6))

    def do(self, execution: Execution, report: Report) -> None:
        """Call the function and write what it returns, unless that is written."""
        del execution  # that of the function is its own
        path = self.folder / self.name / self.result
        with locked(path.parent):
            if path.exists():
                return

            def epoch_done(epoch: int, scores: Mapping[str, float]) -> None:
                report.epoch_done({"epoch": epoch, "val": dict(scores)})

            scores = self.function(self.settings, epoch_done)
            write_file(path, json.dumps({name: float(score) for name, score in scores.items()}))


def busy_note(folder: Path) -> str:
    """The remark that another process computes the run of a folder."""
    return (
        f"{folder}: another process is training this run; the other runs come first, then this "
        "one waits for that process"
    )


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
        jobs: The runs; the next one is drawn when a worker is free.
        workers: Where they are computed.
        execution: How each run is computed; its ``workers``, if set, is the number of threads.
        report: Gives the listener to the events of a run, by its number, in this process. It is
            called again for a run that another process trained at the first attempt.
        may_start: Whether the run of a number may begin.
        tries: How often a run is begun whose worker is killed.
    """

    jobs: Iterable[Job]
    workers: Sequence[Worker]
    execution: Execution
    report: Callable[[int], Report] = lambda _: Report()
    may_start: Callable[[int], bool] = lambda _: True
    tries: int = 1
    _drawn: list[Job] = field(default_factory=list)
    _waiting: deque[int] = field(default_factory=deque)
    _busy: dict[int, float] = field(default_factory=dict)
    _noted: set[int] = field(default_factory=set)
    _free: deque[Worker] = field(default_factory=deque)
    _begun: dict[int, int] = field(default_factory=dict)
    _listeners: dict[int, Report] = field(default_factory=dict)

    def run(self) -> Generator[Ended, None, None]:
        """Train, one run per worker at a time.

        Yields:
            The number of a run that has ended, and why it failed if it did.
        """
        self._rest = iter(self.jobs)
        self._free.extend(self.workers)
        processes: list[_Process] = []
        try:
            while True:
                self._retry()
                self._fill(processes)
                working = [process for process in processes if process.number is not None]
                if not (working or self._busy):
                    return
                seconds = BUSY_SECONDS if self._busy else None
                ready = wait([process.connection for process in working], seconds)
                for process in working:
                    if process.connection in ready:
                        yield from self._receive(processes, process)
        finally:
            _stop(processes)

    def _retry(self) -> None:
        """Let runs begin again that another process trained a while ago."""
        for number, busy_since in list(self._busy.items()):
            if time.monotonic() - busy_since >= BUSY_SECONDS:
                del self._busy[number]
                self._waiting.append(number)

    def _fill(self, processes: list[_Process]) -> None:
        """Give every worker that has no run the next one."""
        for process in processes:
            if process.number is None:
                self._assign(process)
        while self._free and self._next() is not None:
            processes.append(_start_process(self._free.popleft(), self.execution))
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
            process.connection.send(self._drawn[number])

    def _next(self) -> int | None:
        """The first run that may begin, drawn if none of those that wait may."""
        for number in self._waiting:
            if self.may_start(number):
                return number
        for job in self._rest:
            self._drawn.append(job)
            self._waiting.append(len(self._drawn) - 1)
            if self.may_start(self._waiting[-1]):
                return self._waiting[-1]
        return None

    def _receive(self, processes: list[_Process], process: _Process) -> Iterator[Ended]:
        """Handle an event of a process, or its end."""
        number = process.number
        assert number is not None
        try:
            kind, facts = process.connection.recv()
        except (EOFError, OSError):
            self._end(processes, process)
            if self._begun[number] < self.tries:
                self._waiting.appendleft(number)
            else:
                yield number, _killed(process.process.exitcode)
            return
        if kind not in (DONE, FAILED, BUSY):
            self._hear(process, number, kind, facts)
            return
        error, is_sound = facts
        if kind == BUSY:
            self._set_aside(number)
        else:
            yield number, error
            process.finished += 1
        if is_sound and process.finished < MOST_RUNS:
            process.number = None
        else:
            self._end(processes, process)

    def _hear(self, process: _Process, number: int, kind: str, facts: tuple[Any, ...]) -> None:
        """Tell the listener of an event, and a run that asks whether it may go on."""
        goes_on = True
        try:
            getattr(self._listeners[number], kind)(*facts)
        except RunStoppedError:
            goes_on = False
        if kind == "epoch_done" and self._drawn[number].asks:
            with contextlib.suppress(OSError):  # it has ended, which the next receive notices
                process.connection.send(goes_on)

    def _set_aside(self, number: int) -> None:
        """Leave a run to the process that trains it, for now."""
        self._begun[number] -= 1
        self._busy[number] = time.monotonic()
        listener = self._listeners.pop(number)
        if number not in self._noted:
            self._noted.add(number)
            job = self._drawn[number]
            listener.note(busy_note(job.folder / job.name))

    def _end(self, processes: list[_Process], process: _Process) -> None:
        """End a process, so that another may take its place."""
        _stop([process])
        processes.remove(process)
        self._free.append(process.worker)


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


def _killed(code: int | None) -> RunKilledError:
    return RunKilledError(
        f"a training was ended from outside (exit code {code}), perhaps for want of memory; run "
        "the same command again to go on"
    )


# Inside a worker


def _work(connection: Connection, worker: Worker, execution: Execution) -> None:
    """Compute one run after another until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process stops this one
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # the processes that it starts are ended with it
    Thread(target=_end_with_parent, daemon=True).start()
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
                job.do(execution, sent_events(send, connection.recv if job.asks else None))
            except TerminatedError:  # its checkpoint is saved
                raise SystemExit(143) from None
            except Exception as error:  # raised again in the parent
                if isinstance(error, RunBusyError):
                    send(BUSY, (None, True))
                    continue
                add_note(error, traceback.format_exc())
                # An error that is not about the data or the run may leave the GPU unusable.
                send(FAILED, (picklable(error), isinstance(error, AlphaIoUError)))
            else:
                send(DONE, (None, True))
            _free_memory()


def _end_with_parent() -> None:
    """End this process, and those that it has started, when its parent is killed.

    Otherwise it would go on until its next event, which nobody receives, and that may be long.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _free_memory() -> None:
    """Free the memory of a run on the GPU, so that the next one has its own peak."""
    gc.collect()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def sent_events(
    send: Callable[[str, tuple[Any, ...]], None], goes_on: Callable[[], bool] | None = None
) -> Report:
    """A report that sends the events of a run elsewhere, and steps no faster than anyone reads.

    Args:
        send: Sends the kind of an event and its facts.
        goes_on: Asked after each epoch whether the run goes on, if it asks.
    """
    last = 0.0

    def event(kind: str) -> Callable[..., None]:
        return lambda *facts: send(kind, facts)

    def stepped(epoch: int, step: int, steps: int) -> None:
        nonlocal last
        if step == steps or time.monotonic() - last > STEP_SECONDS:
            last = time.monotonic()
            send("stepped", (epoch, step, steps))

    def epoch_done(entry: dict[str, Any]) -> None:
        send("epoch_done", (entry,))
        if goes_on is not None and not goes_on():
            raise RunStoppedError(f"stopped after epoch {entry['epoch']}")

    return Report(event("note"), event("cached"), stepped, epoch_done)


def picklable(error: Exception) -> Exception:
    """The error, or one with the same message if it cannot be sent between processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever its class raises
        plain = TrainingFailedError(f"{type(error).__name__}: {error}")
        add_note(plain, getattr(error, "__notes__", [""])[-1])
        return plain
    return error
