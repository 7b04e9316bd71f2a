"""Runs on the machines of a Ray cluster.

A run is a task, which Ray starts again if its machine is lost. Runs have a folder on the machine
that computes them, so that a task that returns to it goes on from the last checkpoint. The files
of a finished run are copied to this machine.
"""

from __future__ import annotations

import getpass
import logging
import tempfile
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphaiou._files import write_file
from alphaiou.errors import AlphaIoUError
from alphaiou.inference.weights import WEIGHTS
from alphaiou.study.detections import EXAMPLES, FINDINGS
from alphaiou.study.pool import Ended, Job, do_job, picklable, sent_events
from alphaiou.training.loop import Execution, Report, TrainingFailedError
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.record import RECORD

if TYPE_CHECKING:
    from ray import ObjectRef

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
        jobs: The runs.
        address: The cluster: HOST:PORT, ray://HOST:PORT, or auto for the one of this machine.
        data: The paths of the data sets on every machine of it, by their names in recipes.
        execution: How each run is computed.
        report: Gives the listener to the events of a run, by its number, in this process.
        at_once: Runs at a time per GPU.
    """

    jobs: Sequence[Job]
    address: str
    data: Mapping[str, Path]
    execution: Execution
    report: Callable[[int], Report] = lambda _: Report()
    at_once: int = 1

    def run(self) -> Generator[Ended, None, None]:
        """Compute all runs.

        Yields:
            The number of a run that has ended, and why it failed if it did.

        Raises:
            RayError: Ray is not installed, or no cluster answers.
        """
        ray = _connect(self.address)
        try:
            board, handled = _board(), list[str]()
            task = ray.remote(**self._needs(ray.cluster_resources()))(_train)
            listeners = [self.report(number) for number in range(len(self.jobs))]
            pending: dict[ObjectRef[Any], int] = {
                task.remote(number, job, dict(self.data), self.execution, board): number
                for number, job in enumerate(self.jobs)
            }
            while pending:
                ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                # Events that do not arrive now arrive next time, if there is one.
                is_last = len(ready) == len(pending)
                seconds = PATIENCE_SECONDS if is_last else POLL_SECONDS
                for number, kind, facts in _events(board, handled, seconds):
                    getattr(listeners[number], kind)(*facts)
                for reference in ready:
                    number = pending.pop(reference)
                    yield number, self._fetch(number, reference)
        finally:
            ray.shutdown()

    def _needs(self, resources: Mapping[str, float]) -> dict[str, Any]:
        """The resources that a run takes."""
        device = self.execution.device
        on_gpu = device == "cuda" or (device == "auto" and resources.get("GPU", 0) > 0)
        share = 1 / self.at_once if on_gpu else 0
        return {"num_cpus": 1, "num_gpus": share, "max_retries": RETRIES}

    def _fetch(self, number: int, reference: ObjectRef[Any]) -> Exception | None:
        """Write the files of a run; if it failed, return why."""
        import ray
        from ray.exceptions import RayError as Lost

        try:
            outcome: Files | Exception = ray.get(reference)
        except Lost as error:
            reason = str(error).strip().splitlines()[0]
            return TrainingFailedError(f"its machines were lost {RETRIES + 1} times: {reason}")
        if isinstance(outcome, Exception):
            return outcome
        job = self.jobs[number]
        folder = job.folder / recipe_hash(job.recipe)
        # The record last: with it, a run is finished.
        for name in sorted(outcome, key=lambda name: name == RECORD):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            write_file(path, outcome[name])
        return None


def _board_class() -> type[Any]:
    """The class of boards. Ray sends it by value: importing it there would load torch."""

    class Board:
        """Keeps the events of runs until they are taken.

        Ray repeats a call whose answer is lost. So events have names, by which each is kept once,
        and are deleted only after they have been received.
        """

        def __init__(self) -> None:
            self.events: dict[str, Event] = {}

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
        job = replace(job, folder=home, data=link_data(data, home))
        do_job(job, execution, sent_events(send))
        return _files(home / recipe_hash(job.recipe))
    except Exception as error:  # a failed run is an answer, not a lost machine
        error.add_note(traceback.format_exc())
        return picklable(error)
    finally:  # so that all events are on the board when the run has ended
        wait(list(pending), PATIENCE_SECONDS)


def _home() -> Path:
    """The folder of runs on this machine, one per node if several nodes share the machine."""
    import ray

    node: str = ray.get_runtime_context().get_node_id()
    return Path(tempfile.gettempdir()) / f"alphaiou-{getpass.getuser()}" / node


def _files(folder: Path) -> Files:
    paths = [folder / name for name in (RECORD, WEIGHTS, FINDINGS)]
    paths += sorted((folder / EXAMPLES).glob("*.png"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.exists()}


def _connect(address: str) -> Any:  # noqa: ANN401 - the module
    try:
        import ray
    except ModuleNotFoundError:
        raise RayError("--ray needs Ray, which is missing: pip install 'alphaiou[ray]'") from None
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = " ".join(str(error).split())
        raise RayError(
            f"--ray {address}: no cluster answers there ({reason}); ray start --head begins one"
        ) from None
    return ray
