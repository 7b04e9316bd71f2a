"""The grids of some records, whose scale is read from the records themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from alphaiou.data.dataset import load_dataset
from alphaiou.data.noise import perturb_index
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
#: The images of the figure of noisy boxes, and its rate of noise.
PICTURES, RATE = 6, 0.3
REPORT_TITLE = "The paper's experiments, repeated"
REPORT_LEAD = (
    "The tables and figures of the Alpha-IoU paper, and controls that it lacks, from finished "
    "runs. Each row is a mean over its seeds; changes and their 95 % intervals come from one "
    "linear model of all comparable runs."
)


@dataclass(frozen=True)
class Study:
    """Grids and their records.

    Attributes:
        grids: The grids asked for, or all that have a run.
        records: The records by the names of their runs.
        paths: The paths of the records.
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
        names: The grids; by default all that have a run.
        folders: The folders of the records.
        data: The data set of quick runs; by default the one with the most records.
        epochs: Their budget; by default the usual one, or the one with the most records.

    Raises:
        RecordError: There are no records, or one is damaged.
        ValueError: A grid is unknown; the message lists the known ones.
    """
    folders = list(folders)
    records = load_records(folders)
    if not records:
        places = ", ".join(map(str, folders))
        raise RecordError(f"no records of runs in {places}; alphaiou paper run --quick makes some")
    grids = paper_grids(scale_of_records(records.values(), data=data, epochs=epochs))
    for name in names:
        if name not in grids:
            raise ValueError(f"no grid {name!r}; there are {', '.join(grids)}")
    chosen = [with_found_seeds(grids[name], records) for name in names or grids]
    if not names:
        chosen = [grid for grid in chosen if _has_runs(grid, records)]
    return Study(chosen, records, record_paths(folders))


def scale_of_records(
    records: Iterable[RunRecord], *, data: Path | None = None, epochs: int | None = None
) -> Scale:
    """The scale of most of the records, or the one that is asked for.

    Examples:
        >>> recipe = {"detector": {"name": "yolov5s"}, "epochs": 100, "data": {"path": "voc320"}}
        >>> scale = scale_of_records([{"recipe": recipe}])
        >>> scale.name, scale.recipe().epochs
        ('voc320', 100)
    """
    recipes = [record["recipe"] for record in records]
    where = data.name if data else _most([recipe["data"]["path"] for recipe in recipes])
    if where in (VOC, COCO):
        return paper_scale()
    selections = [r.get("select", "last") for r in recipes if r["data"]["path"] == where]
    select = _most(selections or ["last"])
    if where == DRAWN_DATA.path:
        return quick_scale(select=select)
    lengths = [
        recipe["epochs"]
        for recipe in recipes
        if (recipe["data"]["path"], recipe["detector"]["name"]) == (where, "yolov5s")
    ]
    budget = epochs or next(iter(budgets(lengths)), BUDGET)
    return quick_scale(data or Path(where), budget, select)


def _most(values: Sequence[Value]) -> Value:
    return Counter(values).most_common(1)[0][0]


def _has_runs(grid: Grid, records: Mapping[str, RunRecord]) -> bool:
    return any(row.runs for row in grid_runs(grid, records).values())


def save_noisy_boxes(scale: Scale, out: Path) -> Iterator[Path]:
    """Draw clean and noisy boxes, the paper's last figure, for every data set that is available."""
    from alphaiou.data.figures import save_noise_figure

    for data in scale.benchmarks.values():
        place = scale.place(data.path)
        if place is not None:
            clean = load_dataset(place, data.train).index
            noisy = perturb_index(clean, RATE, 0)
            stem = out / f"noisy-boxes-{data.path}"
            yield from save_noise_figure(clean, noisy, RATE, PICTURES, stem)
