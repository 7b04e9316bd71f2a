"""Records of finished runs, and which of them belong to the rows of a grid."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from alphaiou.detectors.yolov5.config import YOLOv5Config
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import optional_columns, read_score
from alphaiou.study.grid import Grid, Row
from alphaiou.training.recipe import AUTO, Recipe, recipe_from, recipe_hash
from alphaiou.training.recipes import at_default_gain
from alphaiou.training.record import RECORD, RecordError, RunRecord, read_record

__all__ = [
    "DATA_LINKS",
    "RecordError",
    "RowRuns",
    "RunRecord",
    "at_shared_seeds",
    "by_name",
    "comparable_rows",
    "drawn_runs",
    "find_record",
    "grid_runs",
    "load_records",
    "read_record",
    "record_paths",
    "run_folder",
    "with_found_seeds",
]
#: The folder beside the runs that links to every data set by its name in recipes. A record then
#: says what a run was, and not where somebody keeps the images.
DATA_LINKS = "data"
_COMMITTED = re.compile(r"[0-9a-f]{12}\.json")


# Files


def record_paths(folders: Iterable[Path]) -> dict[str, Path]:
    """The paths of the records below some folders, by the names of their runs.

    A record is either ``HASH.json``, as it is committed, or ``HASH/record.json``, as training
    leaves it. Other files are skipped. If a run has several records, the first folder wins, and
    within a folder the shortest path.

    Raises:
        RecordError: A file is damaged; the message names it.
    """
    paths: dict[str, Path] = {}
    for path, record in _records(folders):
        paths.setdefault(record["name"], path)
    return dict(sorted(paths.items()))


def load_records(folders: Iterable[Path]) -> dict[str, RunRecord]:
    """The records below some folders, by the names of their runs, as :func:`by_name` gives them.

    Raises:
        RecordError: A file is damaged; the message names it.
    """
    return by_name(record for _, record in _records(folders))


def by_name(records: Iterable[RunRecord]) -> dict[str, RunRecord]:
    """Records by the names of their runs, in order.

    A run that was repeated, with the same recipe and seed, has a number behind its name:
    ``0123456789ab#2``. A copy of a record is left out, and so is a repeated run with the same
    scores, which a CPU gives.
    """
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        same = found.setdefault(record["name"], [])
        if all(record["scores"] != other["scores"] for other in same):
            same.append(record)
    return {
        name if number == 1 else f"{name}#{number}": record
        for name, same in sorted(found.items())
        for number, record in enumerate(same, 1)
    }


def _records(folders: Iterable[Path]) -> Iterator[tuple[Path, RunRecord]]:
    """By the name in the record: a file of the first edition has another one."""
    for folder in folders:
        for path in sorted(folder.rglob("*.json"), key=lambda file: (len(file.parts), file)):
            if path.name == RECORD or _COMMITTED.fullmatch(path.name):
                yield path, read_record(path)


def run_folder(path: Path) -> Path:
    """The folder of a run's other files, its weights and pictures.

    Args:
        path: The path of its record.

    Examples:
        >>> run_folder(Path("runs/0123456789ab/record.json")).name
        '0123456789ab'
        >>> run_folder(Path("results/0123456789ab.json")).name
        '0123456789ab'
    """
    return path.parent if path.name == RECORD else path.with_suffix("")


# Rows


@dataclass(frozen=True)
class RowRuns:
    """The finished runs of a row.

    Attributes:
        row: The row of the grid.
        runs: Its records by seed.
        missing: The seeds without a record.
        repeats: The records of further runs with the same seed, by seed.
    """

    row: Row
    runs: Mapping[int, RunRecord]
    missing: tuple[int, ...] = ()
    repeats: Mapping[int, Sequence[RunRecord]] = field(default_factory=dict)

    def every(self) -> list[tuple[int, RunRecord]]:
        """The seed and the record of every run, repeated ones included."""
        return [
            (seed, record)
            for seed, run in self.runs.items()
            for record in (run, *self.repeats.get(seed, ()))
        ]

    def scores(self, column: str) -> dict[int, float]:
        """A score by seed, the mean where a seed was run several times; NaN if not defined."""
        by_seed: dict[int, list[float]] = {seed: [] for seed in self.runs}
        for seed, record in self.every():
            score = read_score(record["scores"], column)
            by_seed[seed] += [score] * math.isfinite(score)
        return {seed: fmean(known) if known else math.nan for seed, known in by_seed.items()}

    def where(self, keep: Callable[[int, RunRecord], bool]) -> RowRuns:
        """The same row with some of its runs; what is left of a seed moves up."""
        kept = [(seed, record) for seed, record in self.every() if keep(seed, record)]
        return _row_runs(self.row, kept, self.missing)

    def each(self, change: Callable[[RunRecord], RunRecord]) -> RowRuns:
        """The same row with a change of every record."""
        every = [(seed, change(record)) for seed, record in self.every()]
        return _row_runs(self.row, every, self.missing)

    def with_scores(self, columns: Iterable[str]) -> RowRuns:
        """The same row; runs whose records are older than one of these scores count as missing."""
        wanted = optional_columns(columns)
        kept = self.where(lambda _, record: wanted <= record["scores"].keys())
        return replace(kept, missing=(*self.missing, *(self.runs.keys() - kept.runs.keys())))


def _row_runs(
    row: Row, every: Iterable[tuple[int, RunRecord]], missing: tuple[int, ...] = ()
) -> RowRuns:
    by_seed: dict[int, list[RunRecord]] = {}
    for seed, record in every:
        by_seed.setdefault(seed, []).append(record)
    runs = {seed: records[0] for seed, records in by_seed.items()}
    repeats = {seed: records[1:] for seed, records in by_seed.items() if records[1:]}
    return RowRuns(row, runs, missing, repeats)


def grid_runs(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RowRuns]:
    """The runs of every row by its label.

    A record that is older than a score that the grid compares counts as missing.
    """
    by_question = _by_question(records.values())
    rows = {}
    for row in grid.rows:
        answers = {s: _answers(replace(row.recipe, seed=s), by_question) for s in grid.seeds}
        every = [(seed, record) for seed, same in answers.items() for record in same]
        missing = tuple(seed for seed, same in answers.items() if not same)
        rows[row.label] = _row_runs(row, every, missing).with_scores(grid.compared)
    return rows


def drawn_runs(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RowRuns]:
    """The runs of every row, and of the rows of other grids that its figures include."""
    return grid_runs(replace(grid, rows=(*grid.rows, *grid.beside)), records)


def at_shared_seeds(rows: Sequence[RowRuns]) -> list[RowRuns]:
    """The same rows reduced to the seeds that all of them have; unchanged if they share none.

    Means over different seeds would differ as the seeds do.
    """
    shared = set.intersection(*(set(row.runs) for row in rows)) if rows else set()
    if not shared:
        return list(rows)
    return [row.where(lambda seed, _: seed in shared) for row in rows]


def comparable_rows(
    rows: Mapping[str, RowRuns], records: Mapping[str, RunRecord]
) -> dict[str, RowRuns]:
    """The rows with all other runs that are comparable with one of them.

    These differ from a row in nothing but the loss, the gains, what objectness learns, the learning
    rate and the seed, and are scored on the same split. They tell how much the scores of runs vary.

    Args:
        rows: Rows by their labels.
        records: By the names of their runs.

    Returns:
        The rows, with further runs of their own, and the others by a hash of their recipes.
    """
    every = [(label, run) for label, own in rows.items() for _, run in own.every()]
    labels = {_identity(_recipe_of(run)): label for label, run in every}
    settings = {_setting(_recipe_of(run)) for _, run in every}
    splits, known = ({run[key] for _, run in every} for key in ("scored_on", "name"))
    kept = {label: own.row for label, own in rows.items()}
    found = {label: own.every() for label, own in rows.items()}
    for record in records.values():
        if record["scored_on"] not in splits or record["name"] in known:
            continue
        recipe = _recipe_of(record)
        if _setting(recipe) in settings:
            identity = _identity(recipe)
            label = labels.get(identity, identity)
            kept.setdefault(label, Row(label, recipe))
            found.setdefault(label, []).append((recipe.seed, record))
    return {label: _row_runs(row, found[label]) for label, row in kept.items()}


@cache
def _setting(recipe: Recipe) -> str:
    """A key shared by all runs that differ in their losses, gains, rates and seeds alone."""
    recipe = at_default_gain(replace(recipe, loss=LossSpec("iou"), alpha_schedule=None))
    if isinstance(recipe.detector, YOLOv5Config):
        usual = type(recipe.detector)()
        detector = replace(
            recipe.detector,
            class_gain=usual.class_gain,
            objectness_gain=usual.objectness_gain,
            objectness=usual.objectness,
            objectness_alpha=usual.objectness_alpha,
        )
        recipe = replace(recipe, detector=detector)
    return _identity(replace(recipe, optimisation=replace(recipe.optimisation, lr=1.0)))


@cache
def _identity(recipe: Recipe) -> str:
    """A key shared by all runs that differ in their seeds alone.

    Where the data lay changes no result, nor does how often a run was scored whose last weights
    are kept.
    """
    data = replace(recipe.data, path=Path(recipe.data.path).name)
    every = 0 if recipe.select == "last" else recipe.evaluate_every
    return recipe_hash(replace(recipe, data=data, seed=0, evaluate_every=every))


def with_found_seeds(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid with every seed that any of its rows was run with; unchanged without runs."""
    every = sorted({record["recipe"]["seed"] for record in records.values()})
    rows = grid_runs(replace(grid, seeds=tuple(every)), records)
    seeds = tuple(seed for seed in every if any(seed in row.runs for row in rows.values()))
    return replace(grid, seeds=seeds or grid.seeds)


# Which record answers a recipe


def find_record(recipe: Recipe, records: Mapping[str, RunRecord]) -> RunRecord | None:
    """The record of a run, wherever it was made.

    A setting that the recipe leaves ``auto`` may have any value in the record. Data sets are
    compared by the last part of their paths: their place changes no result.
    """
    return next(iter(_answers(recipe, _by_question(records.values()))), None)


def _by_question(records: Iterable[RunRecord]) -> dict[str, list[tuple[Recipe, RunRecord]]]:
    by_question: dict[str, list[tuple[Recipe, RunRecord]]] = {}
    for record in records:
        recipe = _recipe_of(record)
        by_question.setdefault(_question(recipe), []).append((recipe, record))
    return by_question


def _recipe_of(record: RunRecord) -> Recipe:
    try:
        return _recipe(json.dumps(record["recipe"]))
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"the record {record['name']} has a recipe that cannot be read: {error}; it is of "
            "another version, or damaged"
        ) from None


@cache  # every table and chart asks for the same records and recipes
def _recipe(text: str) -> Recipe:
    return recipe_from(json.loads(text))


@cache
def _question(recipe: Recipe) -> str:
    """A key shared by all runs that differ only in what ``auto`` was resolved to."""
    place = Path(recipe.data.path).name
    data = replace(recipe.data, path=place, train=AUTO, val=AUTO, test=AUTO)
    return recipe_hash(replace(recipe, data=data, precision=AUTO))


def _answers(
    recipe: Recipe, by_question: Mapping[str, Sequence[tuple[Recipe, RunRecord]]]
) -> list[RunRecord]:
    """The record that answers a recipe, and those of the same run repeated."""
    candidates = by_question.get(_question(recipe), ())
    fitting = [record for other, record in candidates if _fits(recipe, other)]
    chosen = min(
        fitting, key=lambda record: (record["recipe"]["precision"], record["name"]), default=None
    )
    return [record for record in fitting if chosen and record["name"] == chosen["name"]]


def _fits(asked: Recipe, other: Recipe) -> bool:
    pairs = zip(_resolvable(asked), _resolvable(other), strict=True)
    return all(wanted in (AUTO, value) for wanted, value in pairs)


def _resolvable(recipe: Recipe) -> tuple[str | None, ...]:
    """The settings that may be ``auto``."""
    return recipe.precision, recipe.data.train, recipe.data.val, recipe.data.test
