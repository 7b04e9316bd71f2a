"""Records of finished runs, and which of them belong to the rows of a grid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from alphaiou.errors import AlphaIoUError
from alphaiou.metrics.columns import optional_columns, read_score
from alphaiou.study.grid import Grid, Row
from alphaiou.training.recipe import AUTO, Recipe, recipe_from, recipe_hash
from alphaiou.training.record import RECORD

RunRecord = dict[str, Any]
#: The folder beside the runs that links to every data set by its name in recipes. A record then
#: says what a run was, and not where somebody keeps the images.
DATA_LINKS = "data"
_COMMITTED = re.compile(r"[0-9a-f]{12}\.json")


class RecordError(AlphaIoUError):
    """A file that should be the record of a run is not."""


# Files


def record_paths(folders: Iterable[Path]) -> dict[str, Path]:
    """The paths of the records below some folders, by the names of their runs.

    A record is either ``HASH.json``, as it is committed, or ``HASH/record.json``, as training
    leaves it. Other files are skipped. If a run has several records, the first folder wins, and
    within a folder the shortest path.
    """
    paths: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.json"), key=lambda file: (len(file.parts), file)):
            if path.name == RECORD:
                paths.setdefault(path.parent.name, path)
            elif _COMMITTED.fullmatch(path.name):
                paths.setdefault(path.stem, path)
    return dict(sorted(paths.items()))


def load_records(folders: Iterable[Path]) -> dict[str, RunRecord]:
    """The records below some folders, by the names of their runs.

    Raises:
        RecordError: A file is damaged; the message names it.
    """
    return {name: read_record(path) for name, path in record_paths(folders).items()}


def read_record(path: Path) -> RunRecord:
    """The record of a run.

    Raises:
        RecordError: The file is damaged; the message names it.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RecordError(
            f"{path} is damaged: it is no JSON ({error}); delete it, or restore it"
        ) from None
    if not isinstance(record, dict) or record.get("record") != "run":
        raise RecordError(f"{path} is not the record of a run; delete it, or name another folder")
    return record


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
    """

    row: Row
    runs: Mapping[int, RunRecord]
    missing: tuple[int, ...] = ()

    def scores(self, column: str) -> dict[int, float]:
        """A score by seed; NaN where it is not defined."""
        return {seed: read_score(run["scores"], column) for seed, run in self.runs.items()}

    def with_scores(self, columns: Iterable[str]) -> RowRuns:
        """The same row; runs whose records are older than one of these scores count as missing."""
        wanted = optional_columns(columns)
        runs = {seed: run for seed, run in self.runs.items() if wanted <= run["scores"].keys()}
        return replace(self, runs=runs, missing=(*self.missing, *(self.runs.keys() - runs.keys())))


def grid_runs(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RowRuns]:
    """The runs of every row by its label.

    A record that is older than a score that the grid compares counts as missing.
    """
    by_question = _by_question(records.values())
    rows = {}
    for row in grid.rows:
        answers = {s: _answer(replace(row.recipe, seed=s), by_question) for s in grid.seeds}
        runs = {seed: record for seed, record in answers.items() if record is not None}
        missing = tuple(seed for seed, record in answers.items() if record is None)
        rows[row.label] = RowRuns(row, runs, missing).with_scores(grid.compared)
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
    return [
        replace(row, runs={seed: run for seed, run in row.runs.items() if seed in shared})
        for row in rows
    ]


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
    return _answer(recipe, _by_question(records.values()))


def _by_question(records: Iterable[RunRecord]) -> dict[str, list[tuple[Recipe, RunRecord]]]:
    by_question: dict[str, list[tuple[Recipe, RunRecord]]] = {}
    for record in records:
        try:
            recipe = _recipe(json.dumps(record["recipe"]))
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"the record {record['name']} has a recipe that cannot be read: {error}; it is of "
                "another version, or damaged"
            ) from None
        by_question.setdefault(_question(recipe), []).append((recipe, record))
    return by_question


@cache  # every table and chart asks for the same records and recipes
def _recipe(text: str) -> Recipe:
    return recipe_from(json.loads(text))


@cache
def _question(recipe: Recipe) -> str:
    """A key shared by all runs that differ only in what ``auto`` was resolved to."""
    place = Path(recipe.data.path).name
    data = replace(recipe.data, path=place, train=AUTO, val=AUTO, test=AUTO)
    return recipe_hash(replace(recipe, data=data, precision=AUTO))


def _answer(
    recipe: Recipe, by_question: Mapping[str, Sequence[tuple[Recipe, RunRecord]]]
) -> RunRecord | None:
    candidates = by_question.get(_question(recipe), ())
    fitting = [record for other, record in candidates if _fits(recipe, other)]
    return min(
        fitting, key=lambda record: (record["recipe"]["precision"], record["name"]), default=None
    )


def _fits(asked: Recipe, other: Recipe) -> bool:
    pairs = zip(_resolvable(asked), _resolvable(other), strict=True)
    return all(wanted in (AUTO, value) for wanted, value in pairs)


def _resolvable(recipe: Recipe) -> tuple[str | None, ...]:
    """The settings that may be ``auto``."""
    return recipe.precision, recipe.data.train, recipe.data.val, recipe.data.test
