"""Runs on the machines of a Ray cluster.

A run is a task, which Ray starts again if its machine is lost. Runs have a folder on the machine
that computes them, so that a task that returns to it goes on from the last checkpoint. The files
of a finished run are copied to this machine.
"""

from __future__ import annotations

import getpass
import logging
import os
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphaiou._files import WriteError, write_file
from alphaiou.errors import AlphaIoUError, add_note, install_hint
from alphaiou.inference.kept_detections import DETECTIONS
from alphaiou.inference.weights import WEIGHTS, CheckpointError
from alphaiou.study.detections import EXAMPLES, FINDINGS
from alphaiou.study.pool import (
    BUSY_SECONDS,
    RESULT,
    Ended,
    Job,
    RunKilledError,
    RunStoppedError,
    busy_note,
    picklable,
    sent_events,
)
from alphaiou.training.checkpoint import locked
from alphaiou.training.loop import Execution, Report
from alphaiou.training.record import RECORD

if TYPE_CHECKING:
    from ray import ObjectRef

# Under ``uv run`` Ray would send the current folder, with data and runs, to every machine and start
# its workers by the same command there. Ray reads this when it is imported.
os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
#: The number of machines that a run may lose before it counts as failed.
RETRIES = 3
#: Seconds between two requests for events.
POLL_SECONDS = 0.5
#: Seconds that the end of a run, and of all runs, waits for a board that does not answer.
PATIENCE_SECONDS = 30.0
#: The number of a run, the kind of the event, and its facts.
Event = tuple[int, str, tuple[Any, ...]]
#: The files of a run by their names in its folder.
Files = dict[str, bytes]


class RayError(AlphaIoUError):
    """Ray is not installed, or its cluster cannot be reached."""


@dataclass
class RayPool:
    """Runs as tasks of a Ray cluster.

    Attributes:
        jobs: The runs; all of them are submitted at once.
        address: The cluster: HOST:PORT, ray://HOST:PORT, or auto for the one of this machine.
        data: The paths of the data sets on every machine of it, by their names in recipes.
        execution: How each run is computed.
        report: Gives the listener to the events of a run, by its number, in this process.
        at_once: Runs at a time per GPU.
        one_by_one: Whether the next run is drawn only when the cluster has room for it, so that it
            may depend on those that have ended.
    """

    jobs: Iterable[Job]
    address: str
    data: Mapping[str, Path]
    execution: Execution
    report: Callable[[int], Report] = lambda _: Report()
    at_once: int = 1
    one_by_one: bool = False
    _drawn: list[Job] = field(default_factory=list)

    def run(self) -> Generator[Ended, None, None]:
        """Compute all runs.

        Yields:
            The number of a run that has ended, and why it failed if it did.

        Raises:
            RayError: Ray is not installed, or no cluster answers.
        """
        ray = _connect(self.address)
        locks: dict[int, ExitStack] = {}
        try:
            board, handled = _board(), list[str]()
            task = ray.remote(**self._needs(ray.cluster_resources()))(_train)
            rest, listeners, waiting = iter(self.jobs), list[Report](), dict[int, bool]()
            pending: dict[ObjectRef[Any], int] = {}
            while True:
                for job in self._draw(rest, len(waiting) + len(pending), ray.cluster_resources):
                    waiting[len(self._drawn)] = False
                    listeners.append(self.report(len(self._drawn)))
                    self._drawn.append(job)
                if not (waiting or pending):
                    return
                for number, was_busy in list(waiting.items()):
                    lock = _lock(self._folder(number))
                    if lock is None:
                        if not was_busy:
                            listeners[number].note(busy_note(self._folder(number)))
                        waiting[number] = True
                        continue
                    del waiting[number]
                    job = self._drawn[number]
                    if was_busy and (self._folder(number) / job.result).exists():
                        lock.close()
                        yield number, None  # the other process has finished it
                        continue
                    locks[number] = lock
                    run = task.remote(number, job, dict(self.data), self.execution, board)
                    pending[run] = number
                if not pending:
                    time.sleep(BUSY_SECONDS)
                    continue
                ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                # Events that do not arrive now arrive next time, if there is one.
                is_last = len(ready) == len(pending)
                seconds = PATIENCE_SECONDS if is_last else POLL_SECONDS
                for number, kind, facts in _events(board, handled, seconds):
                    _hear(board, listeners, number, kind, facts)
                for reference in ready:
                    number = pending.pop(reference)
                    with locks.pop(number):
                        error = self._fetch(number, reference)
                    yield number, error
        finally:
            for lock in locks.values():
                lock.close()
            ray.shutdown()

    def _folder(self, number: int) -> Path:
        """The folder of a run on this machine."""
        job = self._drawn[number]
        return job.folder / job.name

    def _draw(
        self, rest: Iterator[Job], begun: int, resources: Callable[[], Mapping[str, float]]
    ) -> Iterator[Job]:
        """The runs to begin now: all, or as many as the cluster has room for."""
        if not self.one_by_one:
            return rest
        now = resources()
        room = self.at_once * now.get("GPU", 0) if self._on_gpu(now) else now.get("CPU", 0)
        return islice(rest, max(0, int(room) - begun))

    def _on_gpu(self, resources: Mapping[str, float]) -> bool:
        device = self.execution.device
        return device == "cuda" or (device == "auto" and resources.get("GPU", 0) > 0)

    def _needs(self, resources: Mapping[str, float]) -> dict[str, Any]:
        """The resources that a run takes."""
        share = 1 / self.at_once if self._on_gpu(resources) else 0
        return {"num_cpus": 1, "num_gpus": share, "max_retries": RETRIES}

    def _fetch(self, number: int, reference: ObjectRef[Any]) -> Exception | None:
        """Write the files of a run; if it failed, return why."""
        import ray
        from ray.exceptions import RayError as Lost

        try:
            outcome: Files | Exception = ray.get(reference)
        except Lost as error:
            reason = str(error).strip().splitlines()[0]
            return RunKilledError(f"its machines were lost {RETRIES + 1} times: {reason}")
        if isinstance(outcome, Exception):
            return outcome
        try:
            # The record last: with it, a run is finished.
            for name in sorted(outcome, key=lambda name: name == RECORD):
                write_file(self._folder(number) / name, outcome[name])
        except WriteError as error:  # the files are still on the machine that computed them
            return error
        return None


def _lock(folder: Path) -> ExitStack | None:
    """Lock the folder of a run; None if another process computes the run."""
    lock = ExitStack()
    try:
        lock.enter_context(locked(folder))
    except CheckpointError:
        return None
    except OSError:  # a folder that cannot be made fails the run when its files are written
        pass
    return lock


def _board_class() -> type[Any]:
    """The class of boards. Ray sends it by value: importing it there would load torch."""

    class Board:
        """Keeps the events of runs until they are taken.

        Ray repeats a call whose answer is lost. So events have names, by which each is kept once,
        and are deleted only after they have been received.
        """

        def __init__(self) -> None:
            self.events: dict[str, Event] = {}
            self.stopped: set[int] = set()

        def stop(self, number: int) -> None:
            """Let a run end after its next epoch."""
            self.stopped.add(number)

        def is_stopped(self, number: int) -> bool:
            """Whether a run ends now."""
            return number in self.stopped

        def add(self, name: str, event: Event) -> None:
            """Keep an event."""
            self.events[name] = event

        def take(self, handled: Iterable[str]) -> dict[str, Event]:
            """Delete the events that were handled, and return the others."""
            for name in handled:
                self.events.pop(name, None)
            return dict(self.events)

    return Board


def _board() -> Any:  # noqa: ANN401 - an actor
    """A board that outlives lost machines.

    It runs on the machine of this process, or with ``ray://`` on the one that answers, so that no
    other machine that is lost takes events with it. If its process ends, Ray starts it again, and
    events wait for it meanwhile.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    # One byte: an actor without any resource is put on any machine, whatever the strategy says.
    place: dict[str, Any] = {"num_cpus": 0, "memory": 1, "scheduling_strategy": here}
    return ray.remote(max_restarts=-1, max_task_retries=-1, **place)(_board_class()).remote()


def _events(board: Any, handled: list[str], seconds: float) -> list[Event]:  # noqa: ANN401
    """The new events on the board; none if it does not answer in time."""
    import ray
    from ray.exceptions import RayError as Lost

    try:
        events: dict[str, Event] = ray.get(board.take.remote(handled), timeout=seconds)
    except Lost:
        return []
    handled[:] = events
    return list(events.values())


def _hear(
    board: Any,  # noqa: ANN401
    listeners: Sequence[Report],
    number: int,
    kind: str,
    facts: tuple[Any, ...],
) -> None:
    """Tell the listener of an event, and the board if it stops the run."""
    try:
        getattr(listeners[number], kind)(*facts)
    except RunStoppedError:
        board.stop.remote(number)


def _train(
    number: int,
    job: Job,
    data: Mapping[str, Path],
    execution: Execution,
    board: Any,  # noqa: ANN401
) -> Files | Exception:
    """One run on a machine of the cluster: its files, or why it failed."""
    from alphaiou.study.runner import link_data

    pending: set[Future[None]] = set()

    def send(kind: str, facts: tuple[Any, ...]) -> None:
        future = board.add.remote(uuid.uuid4().hex, (number, kind, facts)).future()
        pending.add(future)
        future.add_done_callback(pending.discard)

    try:
        home = _home()
        job = job.placed(home, link_data(data, home))
        goes_on = partial(_goes_on, board, number) if job.asks else None
        job.do(execution, sent_events(send, goes_on))
        return _files(job.folder / job.name)
    except Exception as error:  # a failed run is an answer, not a lost machine
        add_note(error, traceback.format_exc())
        return picklable(error)
    finally:  # so that all events are on the board when the run has ended
        wait(list(pending), PATIENCE_SECONDS)


def _goes_on(board: Any, number: int) -> bool:  # noqa: ANN401
    """Whether a run goes on, by what its listener has said of earlier epochs."""
    import ray
    from ray.exceptions import RayError as Lost

    try:
        return not ray.get(board.is_stopped.remote(number), timeout=PATIENCE_SECONDS)
    except Lost:
        return True


def _home() -> Path:
    """The folder of runs on this machine, one per node if several nodes share the machine."""
    import ray

    node: str = ray.get_runtime_context().get_node_id()
    return Path(tempfile.gettempdir()) / f"alphaiou-{getpass.getuser()}" / node


def _files(folder: Path) -> Files:
    paths = [folder / name for name in (RECORD, RESULT, WEIGHTS, FINDINGS, DETECTIONS)]
    paths += sorted((folder / EXAMPLES).glob("*.png"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.exists()}


def _connect(address: str) -> Any:  # noqa: ANN401 - the module
    try:
        import ray
    except ModuleNotFoundError:
        raise RayError(f"--ray needs Ray, which is missing: {install_hint('ray')}") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = " ".join(str(error).split())
        raise RayError(
            f"--ray {address}: no cluster answers there ({reason}); ray start --head begins one"
        ) from None
    return ray
