"""Runs on the machines of a Ray cluster.

A run is a task that Ray begins again where its machine is lost. On the machine it has a folder of
its own, so that a task that comes back there goes on from the last checkpoint; what it leaves is
brought to this machine.
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
from alphaiou.study.pool import Ended, Job, do_job, sendable, telling
from alphaiou.training.loop import Execution, Report, TrainingFailedError
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.record import RECORD

if TYPE_CHECKING:
    from ray import ObjectRef

#: Machines that may be lost under a run before it counts as failed.
RETRIES = 3
#: How often is asked what the runs do, in seconds.
POLL_SECONDS = 0.5
#: How long the end of a run, and of the last, waits for a board that does not answer.
PATIENCE_SECONDS = 30.0
#: The number of a run, what happened, and the facts of it.
News = tuple[int, str, tuple[Any, ...]]
#: The files of a run by their names in its folder.
Files = dict[str, bytes]


class RayError(AlphaIoUError):
    """Ray is not there, or its cluster cannot be reached."""


@dataclass
class RayPool:
    """Runs as tasks of a Ray cluster.

    Attributes:
        jobs: The runs.
        address: The cluster: HOST:PORT, ray://HOST:PORT, or auto for the one of this machine.
        data: Where the data sets are on every machine of it, by their names in recipes.
        execution: How each run is computed.
        report: Who is told what the run of a number does, in this process.
        at_once: Runs at a time on a GPU.
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
            The number of a run that has ended, and why if it failed.

        Raises:
            RayError: Ray is not installed, or there is no such cluster.
        """
        ray = _connect(self.address)
        try:
            board, heard = _board(), list[str]()
            task = ray.remote(**self._needs(ray.cluster_resources()))(_train)
            listeners = [self.report(number) for number in range(len(self.jobs))]
            pending: dict[ObjectRef[Any], int] = {
                task.remote(number, job, dict(self.data), self.execution, board): number
                for number, job in enumerate(self.jobs)
            }
            while pending:
                ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                # What is not heard now is heard next time, if there is one.
                is_last = len(ready) == len(pending)
                seconds = PATIENCE_SECONDS if is_last else POLL_SECONDS
                for number, kind, facts in _news(board, heard, seconds):
                    getattr(listeners[number], kind)(*facts)
                for reference in ready:
                    number = pending.pop(reference)
                    yield number, self._fetch(number, reference)
        finally:
            ray.shutdown()

    def _needs(self, there: Mapping[str, float]) -> dict[str, Any]:
        """What a run takes of a machine."""
        device = self.execution.device
        on_gpu = device == "cuda" or (device == "auto" and there.get("GPU", 0) > 0)
        share = 1 / self.at_once if on_gpu else 0
        return {"num_cpus": 1, "num_gpus": share, "max_retries": RETRIES}

    def _fetch(self, number: int, reference: ObjectRef[Any]) -> Exception | None:
        """Write what a run left; or why it left nothing."""
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
    """The class of boards, which Ray sends as it is: to import it would be to load torch."""

    class Board:
        """Where runs write what they do, for who asks.

        A call is made again where its answer is lost. So news have names, by which they are there
        once, and are wiped only when whoever asks has them.
        """

        def __init__(self) -> None:
            self.news: dict[str, News] = {}

        def tell(self, name: str, news: News) -> None:
            """Write."""
            self.news[name] = news

        def take(self, heard: Iterable[str]) -> dict[str, News]:
            """Wipe what was heard, and read the rest."""
            for name in heard:
                self.news.pop(name, None)
            return dict(self.news)

    return Board


def _board() -> Any:  # noqa: ANN401 - an actor
    """A board that lasts.

    It is on the machine of this process, or with ``ray://`` on the one that answers it: another
    machine that is lost takes no news with it. Should its process end, it is begun again, and what
    it is told meanwhile waits for it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    # One byte: Ray puts what needs nothing of a machine on any, whatever it is told.
    place: dict[str, Any] = {"num_cpus": 0, "memory": 1, "scheduling_strategy": here}
    return ray.remote(max_restarts=-1, max_task_retries=-1, **place)(_board_class()).remote()


def _news(board: Any, heard: list[str], seconds: float) -> list[News]:  # noqa: ANN401
    """What is on the board but for what was heard; nothing if it does not answer in time."""
    import ray
    from ray.exceptions import RayError as Lost

    try:
        news: dict[str, News] = ray.get(board.take.remote(heard), timeout=seconds)
    except Lost:
        return []
    heard[:] = news
    return list(news.values())


def _train(
    number: int,
    job: Job,
    data: Mapping[str, Path],
    execution: Execution,
    board: Any,  # noqa: ANN401
) -> Files | Exception:
    """One run on a machine of the cluster: the files that it leaves, or why it failed."""
    from alphaiou.study.runner import link_data

    under_way: set[Future[None]] = set()

    def tell(kind: str, facts: tuple[Any, ...]) -> None:
        future = board.tell.remote(uuid.uuid4().hex, (number, kind, facts)).future()
        under_way.add(future)
        future.add_done_callback(under_way.discard)

    try:
        home = _home()
        job = replace(job, folder=home, data=link_data(data, home))
        do_job(job, execution, telling(tell))
        return _files(home / recipe_hash(job.recipe))
    except Exception as error:  # a failed run is an answer, not a lost machine
        error.add_note(traceback.format_exc())
        return sendable(error)
    finally:  # who sees that the run has ended finds the last of its news on the board
        wait(list(under_way), PATIENCE_SECONDS)


def _home() -> Path:
    """Where runs are kept on this machine; its own if several of the cluster are one."""
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
