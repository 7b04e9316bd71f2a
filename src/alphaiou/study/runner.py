"""Grids run: what is finished is not run again, and a run that fails does not stop the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from alphaiou._environment import device_kind
from alphaiou._files import write_file
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.study.detections import FINDINGS
from alphaiou.study.grid import Grid
from alphaiou.study.pool import Ended, Job, WorkerPool, seats_for, take_turns
from alphaiou.study.records import DATA_LINKS, read_record, record_paths
from alphaiou.training.loop import Execution, Report
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import RECORD
from alphaiou.training.setup import resolve_auto


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


#: A run whose process is ended from outside is begun once more.
TRIES = 2
TURNS = (
    "several runs share a GPU without NVIDIA's MPS and take turns on it, which is no faster than "
    "one after the other; nvidia-cuda-mps-control -d starts it"
)


@dataclass(frozen=True)
class PlannedRun:
    """A run that some grids need.

    Attributes:
        name: The hash of its recipe.
        label: What to call it: the first grid that needs it, its row there, and its seed.
        recipe: What is run.
        pictures: Whether a grid needs what the detector finds as well.
        columns: Scores that a grid is about, which records of earlier versions may lack.
    """

    name: str
    label: str
    recipe: Recipe
    pictures: bool = False
    columns: frozenset[str] = frozenset()


@dataclass(frozen=True)
class GridResult:
    """What became of the runs of some grids.

    Attributes:
        records: The record of every run that is finished, by its name.
        failed: The runs that failed, and why.
        left: The runs that were not begun: their data are not here, or the time was over.
    """

    records: Mapping[str, Path]
    failed: Sequence[tuple[PlannedRun, Exception]] = ()
    left: Sequence[PlannedRun] = ()


@dataclass(frozen=True)
class GridReport:
    """Who is told what the runs of a grid do; by default nobody.

    Attributes:
        planned: Is told once which runs are to be computed, and how many are finished.
        run: Gives who is told what one run does.
        ended: Is told when one has ended, and why if it failed.
        note: Is told what is worth knowing of all of them.
    """

    planned: Callable[[Sequence[PlannedRun], int], None] = lambda _runs, _finished: None
    run: Callable[[PlannedRun], Report] = lambda _: Report()
    ended: Callable[[PlannedRun, Exception | None], None] = lambda _run, _error: None
    note: Callable[[str], None] = lambda _: None


@dataclass
class Clock:
    """Whether there is time for another run.

    Attributes:
        recipes: The runs.
        seconds: How long runs may be computed; for ever if None.
        start: When that time began.
        begun: When each run was begun.
        pace: Seconds by a unit of work, of the run of each detector that ended last: the first is
            slower than all others, since its kernels are made.
    """

    recipes: Sequence[Recipe]
    seconds: float | None
    start: float = field(default_factory=time.monotonic)
    begun: dict[int, float] = field(default_factory=dict)
    pace: dict[str, float] = field(default_factory=dict)

    def may_start(self, number: int) -> bool:
        """Whether a run would end in time, as far as the others tell."""
        if self.seconds is None:
            return True
        recipe, used = self.recipes[number], time.monotonic() - self.start
        return used + self.pace.get(recipe.detector, 0.0) * _work(recipe) <= self.seconds

    def begin(self, number: int) -> None:
        """A run begins."""
        self.begun[number] = time.monotonic()

    def end(self, number: int) -> None:
        """A run has ended well."""
        recipe, took = self.recipes[number], time.monotonic() - self.begun[number]
        self.pace[recipe.detector] = took / _work(recipe)


def _work(recipe: Recipe) -> float:
    """How much a run computes, beside others of the same detector and data."""
    return recipe.epochs * recipe.subset * recipe.image_size**2


def planned_runs(grids: Iterable[Grid], device: str = "cpu") -> list[PlannedRun]:
    """Every run of some grids once, in their order."""
    runs: dict[str, PlannedRun] = {}
    for grid in grids:
        for cell, seeded in grid.recipes():
            recipe = resolve_auto(seeded, device)
            name = recipe_hash(recipe)
            label = f"{grid.name}: {cell.label}, seed {recipe.seed}"
            known = runs.get(name, PlannedRun(name, label, recipe))
            runs[name] = replace(
                known,
                pictures=known.pictures or grid.pictures,
                columns=known.columns.union(grid.found_shares),
            )
    return list(runs.values())


def run_grid(
    grids: Iterable[Grid],
    folder: Path,
    *,
    data: Mapping[str, Path] | None = None,
    earlier: Sequence[Path] = (),
    keep: Path | None = None,
    execution: Execution = Execution(),
    workers: int | None = None,
    ray: str | None = None,
    seconds: float | None = None,
    report: GridReport = GridReport(),
) -> GridResult:
    """Compute the runs of some grids that are not finished.

    Stopped and called again, it goes on where it was. A program that calls it must keep its own
    start under ``if __name__ == "__main__"``: runs are processes of their own.

    Args:
        grids: What is wanted.
        folder: Each run is kept in its own folder under this one.
        data: Where the data sets are, by their names in recipes.
        earlier: Folders with records of runs that need not be computed again.
        keep: Where every record is copied to as soon as its run is finished, as HASH.json.
        execution: How each run is computed.
        workers: Runs at a time: on each GPU, one unless given; or on the processor, one a core.
        ray: The address of a Ray cluster to run them on, rather than on this machine.
        seconds: No run is begun that, by the pace of the others, would end after this time; one
            that is shorter may be.
        report: Who is told.

    Raises:
        DataError: A data set is not where it is said to be.
    """
    folder, data = folder.absolute(), data or {}
    device = device_kind(execution.device) if ray is None else "cpu"
    runs = planned_runs(grids, device)
    there = record_paths([folder, *earlier])
    todo = [run for run in runs if not (is_scored(run, there) and _is_seen(run, there, folder))]
    here = [run for run in todo if _is_reachable(run, data)]
    report.planned(here, len(runs) - len(todo))
    jobs = [Job(run.recipe, folder, link_data(data, folder), run.pictures) for run in here]
    clock = Clock([run.recipe for run in here], seconds)

    def listener(number: int) -> Report:
        clock.begin(number)
        return report.run(here[number])

    pool: Pool
    if ray is None:
        seats = seats_for(device, len(jobs), workers)
        if take_turns(seats):
            report.note(TURNS)
        pool = WorkerPool(jobs, seats, execution, listener, clock.may_start, TRIES)
    else:
        from alphaiou.study.ray import RayPool

        pool = RayPool(jobs, ray, data, execution, listener, workers or 1)
    failed: dict[str, Exception] = {}
    begun = set()
    with closing(pool.run()) as ends:
        for number, error in ends:
            run = here[number]
            begun.add(run.name)
            if error is not None:
                failed[run.name] = error
            else:
                clock.end(number)
                if keep is not None:
                    _copy_record(run.name, folder, keep)
            report.ended(run, error)
    records = record_paths([folder, *earlier])
    return GridResult(
        {run.name: records[run.name] for run in runs if run.name in records},
        [(run, failed[run.name]) for run in todo if run.name in failed],
        [run for run in todo if run.name not in begun],
    )


class Pool(Protocol):
    """Who computes the runs."""

    def run(self) -> Generator[Ended, None, None]:
        """Compute them, and say of each that it has ended."""


def _copy_record(name: str, folder: Path, keep: Path) -> None:
    """The record of a run as a file of its own, as it is committed."""
    keep.mkdir(parents=True, exist_ok=True)
    write_file(keep / f"{name}.json", (folder / name / RECORD).read_bytes())


def link_data(places: Mapping[str, Path], folder: Path) -> Path:
    """A folder with links to data sets, in which recipes find them by their names.

    Raises:
        DataError: A data set is not there.
    """
    for path in places.values():
        if not path.exists():
            raise DataError(f"{path}: there is no such file or folder")
    links = folder / DATA_LINKS
    links.mkdir(parents=True, exist_ok=True)
    for name, path in places.items():
        link = links / name
        if link.resolve() != path.resolve():
            link.unlink(missing_ok=True)
            link.symlink_to(path.resolve())
    return links


def is_scored(run: PlannedRun, records: Mapping[str, Path]) -> bool:
    """Whether a run has a record with all that its grids are about."""
    path = records.get(run.name)
    return path is not None and (
        not run.columns or run.columns <= read_record(path)["scores"].keys()
    )


def _is_seen(run: PlannedRun, records: Mapping[str, Path], folder: Path) -> bool:
    """Whether the pictures are there; those of a committed record cannot be had without weights."""
    own = records[run.name].parent == folder / run.name
    return not (run.pictures and own) or (folder / run.name / FINDINGS).exists()


def _is_reachable(run: PlannedRun, data: Mapping[str, Path]) -> bool:
    path = run.recipe.data.path
    return path in data or bool(SHAPES_WORD.fullmatch(path)) or Path(path).is_absolute()
