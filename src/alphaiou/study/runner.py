"""Compute the runs of grids.

Finished runs are not repeated, a failed run does not stop the others, and several processes may
compute grids in one folder at the same time: each run is trained by one of them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from alphaiou._environment import device_kind
from alphaiou._files import PART, WriteError, write_file
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.inference.kept_detections import DETECTIONS
from alphaiou.metrics.columns import optional_columns
from alphaiou.study.detections import FINDINGS
from alphaiou.study.grid import Grid
from alphaiou.study.pool import Ended, Job, RecipeJob, WorkerPool, schedule, share_gpus_in_turn
from alphaiou.study.records import DATA_LINKS, read_record, record_paths
from alphaiou.training.loop import Execution, Report, check_data
from alphaiou.training.recipe import DataRecipe, Recipe, recipe_hash
from alphaiou.training.record import RECORD
from alphaiou.training.setup import DataDigest, resolve_auto

#: A run whose process is killed is started once more.
TRIES = 2
IN_TURN = (
    "several runs share a GPU without NVIDIA's MPS and take turns on it, which is no faster than "
    "one after the other; nvidia-cuda-mps-control -d starts it"
)


@dataclass(frozen=True)
class PlannedRun:
    """A run that some grids need.

    Attributes:
        name: The hash of its recipe.
        label: Its label: the first grid that needs it, its row there, and its seed.
        recipe: The recipe.
        pictures: Whether a grid needs the findings of the detector as well.
        columns: Scores that a grid compares, which records of earlier versions may lack.
    """

    name: str
    label: str
    recipe: Recipe
    pictures: bool = False
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GridResult:
    """The outcome of the runs of some grids.

    Attributes:
        records: The record of every finished run, by its name.
        failed: The runs that failed, and why.
        left: The runs that were not started: their data are missing, or the time was over.
    """

    records: Mapping[str, Path]
    failed: Sequence[tuple[PlannedRun, Exception]] = ()
    left: Sequence[PlannedRun] = ()


@dataclass(frozen=True)
class GridReport:
    """Listens to the events of the runs of a grid; by default nobody does.

    Attributes:
        planned: Called once with the runs to compute and the number of finished ones.
        run: Gives the listener to the events of one run.
        ended: Called when a run has ended, with the error if it failed.
        note: Called with remarks about all runs.
    """

    planned: Callable[[Sequence[PlannedRun], int], None] = lambda _runs, _finished: None
    run: Callable[[PlannedRun], Report] = lambda _: Report()
    ended: Callable[[PlannedRun, Exception | None], None] = lambda _run, _error: None
    note: Callable[[str], None] = lambda _: None


def run_grid(
    grids: Iterable[Grid],
    folder: Path,
    *,
    data: Mapping[str, Path] | None = None,
    earlier: Sequence[Path] = (),
    keep: Path | None = None,
    execution: Execution = Execution(),
    workers: int | None = None,
    keep_detections: bool = False,
    ray: str | None = None,
    seconds: float | None = None,
    report: GridReport = GridReport(),
) -> GridResult:
    """Compute the runs of some grids that are not finished.

    Stopped and called again, it goes on from the last checkpoints. A run that another process
    trains in the same folder is not trained twice: the other runs come first, and then this
    function waits for that process. The calling program must keep its entry point under
    ``if __name__ == "__main__"``, since runs are processes of their own.

    Args:
        grids: The grids.
        folder: Each run has its own folder under this one.
        data: The paths of the data sets by their names in recipes; runs whose data set is missing
            are left out. By default recipes hold paths, relative to the working directory.
        earlier: Folders with records of runs that need not be computed again.
        keep: A folder to copy every record to as soon as its run is finished, as HASH.json.
        execution: How each run is computed.
        workers: Runs at a time: per GPU, where the default is one, or on the CPU, where the default
            is one per core.
        keep_detections: Whether to keep the detections of each run in its folder.
        ray: The address of a Ray cluster that computes the runs instead of this machine.
        seconds: No run is started that, by the pace of the others, would end after this time; a
            shorter run may still be.
        report: Listens to the events.

    Raises:
        DataError: A data set is not at its path.
        RecordError: A finished run was trained on other data than those there now.
    """
    folder = folder.absolute()
    device = device_kind(execution.device) if ray is None else "cpu"
    runs = planned_runs(grids, device)
    finished = record_paths([folder, *earlier])
    todo = [run for run in runs if not _is_finished(run, finished, folder, keep_detections)]
    possible = [run for run in todo if data is None or _has_data(run, data)]
    links = None if data is None else link_data(data, folder)
    check_same_data([run for run in runs if run not in todo], folder, links, report.note)
    report.planned(possible, len(runs) - len(todo))
    jobs = [RecipeJob(run.recipe, folder, links, run.pictures, keep_detections) for run in possible]
    failed = {} if keep is None else _copy_missing(runs, folder, keep, earlier)
    clock = Clock([run.recipe for run in possible], seconds)
    listeners: dict[int, Report] = {}

    def listener(number: int) -> Report:
        run = possible[number]
        if (folder / run.name / RECORD).exists():  # another process has finished it meanwhile
            clock.forget(number)
        else:
            clock.begin(number)
        if number not in listeners:
            listeners[number] = report.run(run)
        return listeners[number]

    pool = make_pool(
        jobs,
        len(jobs),
        execution=execution,
        workers=workers,
        ray=ray,
        data=data,
        listener=listener,
        may_start=clock.may_start,
        note=report.note,
    )
    ended = set()
    with closing(pool.run()) as ends:
        for number, failure in ends:
            run, error = possible[number], failure
            ended.add(run.name)
            if error is None:
                clock.end(number)
                error = None if keep is None else _copy_record(run.name, folder, keep)
            if error is not None:
                failed[run.name] = error
            report.ended(run, error)
    records = record_paths([folder, *earlier])
    return GridResult(
        {run.name: records[run.name] for run in runs if run.name in records},
        [(run, failed[run.name]) for run in runs if run.name in failed],
        [
            run
            for run in todo
            if not (run.name in ended or _is_finished(run, records, folder, keep_detections))
        ],
    )


class Pool(Protocol):
    """Computes runs."""

    def run(self) -> Generator[Ended, None, None]:
        """Compute them, and yield each that has ended."""


def make_pool(
    jobs: Iterable[Job],
    most: int,
    *,
    execution: Execution,
    workers: int | None,
    ray: str | None,
    listener: Callable[[int], Report],
    data: Mapping[str, Path] | None = None,
    may_start: Callable[[int], bool] = lambda _: True,
    note: Callable[[str], None] = lambda _: None,
    one_by_one: bool = False,
) -> Pool:
    """The pool that computes runs, on this machine or on a Ray cluster.

    Args:
        jobs: The runs.
        most: Their number, or the largest that it may be.
        execution: How each run is computed.
        workers: Runs at a time, as in :func:`run_grid`.
        ray: The address of a Ray cluster, if there is one.
        listener: Gives the listener to the events of a run, by its number.
        data: The paths of the data sets on every machine of the cluster, by their names.
        may_start: Whether the run of a number may begin; a cluster begins all.
        note: Called with remarks about all runs.
        one_by_one: Whether the next run may depend on those that have ended.
    """
    if ray is not None:
        from alphaiou.study.ray import RayPool

        places = data or {}
        return RayPool(jobs, ray, places, execution, listener, workers or 1, one_by_one)
    here = schedule(device_kind(execution.device), most, workers)
    if share_gpus_in_turn(here):
        note(IN_TURN)
    return WorkerPool(jobs, here, execution, listener, may_start, TRIES)


# Which runs to compute


def planned_runs(grids: Iterable[Grid], device: str = "cpu") -> list[PlannedRun]:
    """Every run of some grids once, in their order."""
    runs: dict[str, PlannedRun] = {}
    for grid in grids:
        for row, seeded in grid.recipes():
            recipe = resolve_auto(seeded, device)
            name = recipe_hash(recipe)
            label = f"{grid.name}: {row.label}, seed {recipe.seed}"
            run = runs.get(name, PlannedRun(name, label, recipe))
            runs[name] = replace(
                run,
                pictures=run.pictures or grid.pictures,
                columns=run.columns | optional_columns(grid.compared),
            )
    return list(runs.values())


def is_scored(run: PlannedRun, records: Mapping[str, Path]) -> bool:
    """Whether a run has a record with all the scores that its grids compare."""
    path = records.get(run.name)
    return path is not None and (
        not run.columns or run.columns <= read_record(path)["scores"].keys()
    )


def _is_finished(
    run: PlannedRun, records: Mapping[str, Path], folder: Path, keep_detections: bool
) -> bool:
    """Whether a run has its record, and its other files unless the record was committed alone."""
    if not is_scored(run, records):
        return False
    has_weights = records[run.name].parent == folder / run.name
    wanted = [FINDINGS] * run.pictures + [DETECTIONS] * keep_detections
    return not has_weights or all((folder / run.name / name).exists() for name in wanted)


def check_same_data(
    finished: Iterable[PlannedRun],
    folder: Path,
    links: Path | None,
    note: Callable[[str], None],
) -> None:
    """Compare the data of the finished runs in a folder with what they are now.

    Raises:
        RecordError: The annotations or the sizes of image files have changed since a run.
    """
    known: dict[DataRecipe, DataDigest] = {}
    for run in finished:
        path = folder / run.name / RECORD
        if not path.exists():  # a committed record, whose data may be elsewhere
            continue
        data = run.recipe.data
        if links is not None and (links / data.path).exists():
            data = replace(data, path=str(links / data.path))
        check_data(read_record(path), path.parent, data, note, known)


def _has_data(run: PlannedRun, data: Mapping[str, Path]) -> bool:
    path = run.recipe.data.path
    return path in data or bool(SHAPES_WORD.fullmatch(path)) or Path(path).is_absolute()


def link_data(paths: Mapping[str, Path], folder: Path) -> Path:
    """A folder with links to data sets, in which recipes find them by their names.

    Raises:
        DataError: A data set is not at its path.
    """
    for path in paths.values():
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder")
    links = folder / DATA_LINKS
    links.mkdir(parents=True, exist_ok=True)
    for name, path in paths.items():
        link = links / name
        if link.resolve() != path.resolve():
            # Replaced and not removed first: another grid may be reading through it.
            part = link.with_name(f".{name}.{secrets.token_hex(4)}{PART}")
            part.symlink_to(path.resolve())
            part.replace(link)
    return links


def _copy_record(name: str, folder: Path, keep: Path) -> WriteError | None:
    """Copy the record of a run to a file of its own, as it is committed; return why it failed."""
    try:
        write_file(keep / f"{name}.json", (folder / name / RECORD).read_bytes())
    except WriteError as error:
        return error
    return None


def _copy_missing(
    runs: Iterable[PlannedRun], folder: Path, keep: Path, earlier: Sequence[Path]
) -> dict[str, Exception]:
    """Copy the records that an earlier call could not copy; return what failed."""
    elsewhere = record_paths([keep, *earlier])
    missing = (
        run.name
        for run in runs
        if run.name not in elsewhere and (folder / run.name / RECORD).exists()
    )
    errors = {name: _copy_record(name, folder, keep) for name in missing}
    return {name: error for name, error in errors.items() if error is not None}


# How long runs take


@dataclass
class Clock:
    """Decides whether there is time for another run.

    Attributes:
        recipes: The runs.
        seconds: How long runs may be computed; without a limit if None.
        start: When that time began.
        begun: When each run was started.
        pace: Seconds per unit of work, of the last run of each detector: the first run is slower
            than all others, since it compiles the kernels.
    """

    recipes: Sequence[Recipe]
    seconds: float | None
    start: float = field(default_factory=time.monotonic)
    begun: dict[int, float] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)

    def may_start(self, number: int) -> bool:
        """Whether a run would end in time, by the pace of the others."""
        if self.seconds is None:
            return True
        recipe, used = self.recipes[number], time.monotonic() - self.start
        return used + self.pace.get(recipe.detector.name, 0.0) * _work(recipe) <= self.seconds

    def begin(self, number: int) -> None:
        """A run starts."""
        self.begun[number] = time.monotonic()

    def forget(self, number: int) -> None:
        """A run is not computed here, which says nothing about the pace."""
        self.begun.pop(number, None)

    def end(self, number: int) -> None:
        """A run has finished."""
        if number in self.begun:
            recipe, took = self.recipes[number], time.monotonic() - self.begun[number]
            self.pace[recipe.detector.name] = took / _work(recipe)


def _work(recipe: Recipe) -> float:
    """The work of a run, relative to others of the same detector and data."""
    return recipe.epochs * recipe.subset * recipe.image_size**2
