"""Records of finished runs, and which of them are the rows of a grid."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from alphaiou.errors import AlphaIoUError
from alphaiou.study.grid import Grid, Row
from alphaiou.training.recipe import AUTO, Recipe, recipe_from, recipe_hash
from alphaiou.training.record import RECORD

RunRecord = dict[str, Any]
#: The folder below that of the runs with a link to every data set, by its name in recipes: a
#: record says what a run was, and not where somebody keeps the images.
DATA_LINKS = "data"
_COMMITTED = re.compile(r"[0-9a-f]{12}\.json")


class RecordError(AlphaIoUError):
    """A file that should be the record of a run is none."""


def record_paths(folders: Iterable[Path]) -> dict[str, Path]:
    """The records below some folders by the names of their runs.

    A record lies there as ``HASH.json``, as it is committed, or as ``HASH/record.json``, as a
    training leaves it. Other files are passed over. Of a run with several records the one in the
    first folder is taken, and there the one that lies less deep.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.json"), key=lambda one: (len(one.parts), one)):
            if path.name == RECORD:
                found.setdefault(path.parent.name, path)
            elif _COMMITTED.fullmatch(path.name):
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def load_records(folders: Iterable[Path]) -> dict[str, RunRecord]:
    """The records below some folders by the names of their runs.

    Raises:
        RecordError: A file is damaged; the message names it.
    """
    return {name: read_record(path) for name, path in record_paths(folders).items()}


def run_folder(path: Path) -> Path:
    """Where the other files of the run of a record are, its weights and pictures.

    Examples:
        >>> run_folder(Path("runs/0123456789ab/record.json")).name
        '0123456789ab'
        >>> run_folder(Path("results/0123456789ab.json")).name
        '0123456789ab'
    """
    return path.parent if path.name == RECORD else path.with_suffix("")


@dataclass(frozen=True)
class RowRuns:
    """The runs of a cell that there are.

    Attributes:
        row: The row of the grid.
        runs: Its records by seed.
        missing: The seeds without a record.
    """

    row: Row
    runs: Mapping[int, RunRecord]
    missing: tuple[int, ...] = ()

    def scores(self, column: str) -> dict[int, float]:
        """A score by seed; NaN where nothing defines it."""
        return {seed: as_number(run["scores"].get(column)) for seed, run in self.runs.items()}

    def with_scores(self, columns: Iterable[str]) -> RowRuns:
        """The same without the runs whose records do not have some scores; these are missing."""
        wanted = set(columns)
        runs = {seed: run for seed, run in self.runs.items() if wanted <= run["scores"].keys()}
        return replace(self, runs=runs, missing=(*self.missing, *(self.runs.keys() - runs.keys())))


def at_shared_seeds(rows: Sequence[RowRuns]) -> list[RowRuns]:
    """The same rows with the seeds that all of them have; as they are where they share none.

    Means over different seeds would differ as these do.
    """
    shared = set.intersection(*(set(own.runs) for own in rows)) if rows else set()
    if not shared:
        return list(rows)
    return [
        replace(own, runs={seed: run for seed, run in own.runs.items() if seed in shared})
        for own in rows
    ]


def grid_runs(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RowRuns]:
    """The runs of every cell by its label; what has no record is counted, never made up.

    A record without the columns that the grid is about is none.
    """
    known = _by_question(records.values())
    rows = {}
    for cell in grid.rows:
        found = {seed: _answer(replace(cell.recipe, seed=seed), known) for seed in grid.seeds}
        runs = {seed: record for seed, record in found.items() if record is not None}
        missing = tuple(seed for seed, record in found.items() if record is None)
        rows[cell.label] = RowRuns(cell, runs, missing).with_scores(grid.found_shares)
    return rows


def drawn_runs(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RowRuns]:
    """The runs of every cell, and of those of other grids that belong to its pictures."""
    return grid_runs(replace(grid, rows=(*grid.rows, *grid.beside)), records)


def with_found_seeds(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid with all seeds that any of its rows was run with; as it is if there are none."""
    every = sorted({record["recipe"]["seed"] for record in records.values()})
    rows = grid_runs(replace(grid, seeds=tuple(every)), records)
    seeds = tuple(seed for seed in every if any(seed in own.runs for own in rows.values()))
    return replace(grid, seeds=seeds or grid.seeds)


def find_record(recipe: Recipe, records: Mapping[str, RunRecord]) -> RunRecord | None:
    """The record of a run, wherever it was made.

    What the recipe leaves ``auto`` may be anything in the record, and a data set is known by the
    last part of its path: where it lies changes no result.
    """
    return _answer(recipe, _by_question(records.values()))


def _by_question(records: Iterable[RunRecord]) -> dict[str, list[tuple[Recipe, RunRecord]]]:
    known: dict[str, list[tuple[Recipe, RunRecord]]] = {}
    for record in records:
        try:
            recipe = _recipe(json.dumps(record["recipe"]))
        except (TypeError, ValueError) as error:
            raise RecordError(
                f"the record {record['name']} has a recipe that cannot be read: {error}; it is of "
                "another version, or damaged"
            ) from None
        known.setdefault(_question(recipe), []).append((recipe, record))
    return known


@cache  # the same records and recipes are asked about for every table and chart
def _recipe(text: str) -> Recipe:
    return recipe_from(json.loads(text))


@cache
def _question(recipe: Recipe) -> str:
    """A name for all runs that are the same but for what ``auto`` may become."""
    place = Path(recipe.data.path).name
    data = replace(recipe.data, path=place, train=AUTO, val=AUTO, test=AUTO)
    return recipe_hash(replace(recipe, data=data, precision=AUTO))


def _answer(
    recipe: Recipe, known: Mapping[str, Sequence[tuple[Recipe, RunRecord]]]
) -> RunRecord | None:
    fitting = [record for other, record in known.get(_question(recipe), ()) if _fits(recipe, other)]
    return min(
        fitting, key=lambda record: (record["recipe"]["precision"], record["name"]), default=None
    )


def _fits(asked: Recipe, found: Recipe) -> bool:
    return all(
        wanted in (AUTO, own) for wanted, own in zip(_open(asked), _open(found), strict=True)
    )


def _open(recipe: Recipe) -> tuple[str | None, ...]:
    return recipe.precision, recipe.data.train, recipe.data.val, recipe.data.test


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


def as_number(value: float | None) -> float:
    """A score of a record; NaN where nothing defines it."""
    return float("nan") if value is None else float(value)
