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
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alphaiou.errors import AlphaIoUError
from alphaiou.experiments.detection_pictures import EXAMPLES, FINDINGS
from alphaiou.experiments.worker_pool import Ended, Job, do_job, sendable, telling
from alphaiou.training.checkpoint import write_whole
from alphaiou.training.fit import Execution, Report, TrainingFailedError
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.record import RECORD
from alphaiou.training.weights import WEIGHTS

if TYPE_CHECKING:
    from ray import ObjectRef

#: Machines that may be lost under a run before it counts as failed.
RETRIES = 3
#: How often is asked what the runs do, in seconds.
POLL_SECONDS = 0.5
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
            # It comes back if its machine is lost; what was on it is only news.
            board = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
            task = ray.remote(**self._needs(ray.cluster_resources()))(_train)
            listeners = [self.report(number) for number in range(len(self.jobs))]
            pending: dict[ObjectRef[Any], int] = {
                task.remote(number, job, dict(self.data), self.execution, board): number
                for number, job in enumerate(self.jobs)
            }
            while pending:
                ready, _ = ray.wait(list(pending), timeout=POLL_SECONDS)
                for number, kind, facts in _news(board):
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
            write_whole(outcome[name], path)
        return None


def _news(board: Any) -> list[News]:  # noqa: ANN401 - an actor
    import ray
    from ray.exceptions import RayError as Lost

    try:
        news: list[News] = ray.get(board.take.remote())
    except Lost:
        return []
    return news


class _Board:
    """Where runs write what they do, for who asks."""

    def __init__(self) -> None:
        self.news: list[News] = []

    def tell(self, number: int, kind: str, facts: tuple[Any, ...]) -> None:
        """Write."""
        self.news.append((number, kind, facts))

    def take(self) -> list[News]:
        """Read, and wipe."""
        news, self.news = self.news, []
        return news


def _train(
    number: int,
    job: Job,
    data: Mapping[str, Path],
    execution: Execution,
    board: Any,  # noqa: ANN401
) -> Files | Exception:
    """One run on a machine of the cluster: the files that it leaves, or why it failed."""
    from alphaiou.experiments.grid_runner import link_data

    def tell(kind: str, facts: tuple[Any, ...]) -> None:
        board.tell.remote(number, kind, facts)

    try:
        home = _home()
        job = replace(job, folder=home, data=link_data(data, home))
        do_job(job, execution, telling(tell))
        return _files(home / recipe_hash(job.recipe))
    except Exception as error:  # a failed run is an answer, not a lost machine
        error.add_note(traceback.format_exc())
        return sendable(error)


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
