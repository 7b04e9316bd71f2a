"""Which grids some records belong to: their scale is read off the records themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import (
    BUDGET,
    COCO,
    DRAWN_DATA,
    VOC,
    Scale,
    budgets,
    paper_scale,
    quick_scale,
)
from alphaiou.study.grid import Grid
from alphaiou.study.records import (
    RecordError,
    RunRecord,
    grid_runs,
    load_records,
    record_paths,
    with_found_seeds,
)

Value = TypeVar("Value", int, str)


@dataclass(frozen=True)
class Study:
    """Grids, and the records that there are of them.

    Attributes:
        grids: Those that were asked for, or all that have a run.
        records: By the names of their runs.
        paths: Where these are.
    """

    grids: Sequence[Grid]
    records: Mapping[str, RunRecord]
    paths: Mapping[str, Path]


def open_study(
    names: Sequence[str],
    folders: Iterable[Path],
    *,
    data: Path | None = None,
    epochs: int | None = None,
) -> Study:
    """The grids of some records, each with the seeds that it was run with.

    Args:
        names: The grids; all that have a run unless given.
        folders: Where the records are.
        data: The data set of quick runs; the one with the most records unless given.
        epochs: Their budget; unless given the usual one, or the one with the most records.

    Raises:
        RecordError: There are no records, or one is damaged.
        ValueError: There is no grid of such a name; the message lists those that there are.
    """
    folders = list(folders)
    records = load_records(folders)
    if not records:
        places = ", ".join(map(str, folders))
        raise RecordError(f"no records of runs in {places}; alphaiou paper run --quick makes some")
    grids = paper_grids(scale_of(records.values(), data=data, epochs=epochs))
    for name in names:
        if name not in grids:
            raise ValueError(f"no grid {name!r}; there are {', '.join(grids)}")
    chosen = [with_found_seeds(grids[name], records) for name in names or grids]
    if not names:
        chosen = [grid for grid in chosen if _has_runs(grid, records)]
    return Study(chosen, records, record_paths(folders))


def scale_of(
    records: Iterable[RunRecord], *, data: Path | None = None, epochs: int | None = None
) -> Scale:
    """The scale that most of the records are of, or the one that is asked for.

    Examples:
        >>> recipe = {"detector": "yolov5s", "epochs": 100, "data": {"path": "voc320"}}
        >>> scale = scale_of([{"recipe": recipe}])
        >>> scale.name, scale.recipe().epochs
        ('voc320', 100)
    """
    recipes = [record["recipe"] for record in records]
    where = data.name if data else _most([recipe["data"]["path"] for recipe in recipes])
    if where in (VOC, COCO):
        return paper_scale()
    if where == DRAWN_DATA.path:
        return quick_scale()
    lengths = [
        recipe["epochs"]
        for recipe in recipes
        if (recipe["data"]["path"], recipe["detector"]) == (where, "yolov5s")
    ]
    return quick_scale(data or Path(where), epochs or next(iter(budgets(lengths)), BUDGET))


def _most(values: Sequence[Value]) -> Value:
    return Counter(values).most_common(1)[0][0]


def _has_runs(grid: Grid, records: Mapping[str, RunRecord]) -> bool:
    return any(own.runs for own in grid_runs(grid, records).values())
