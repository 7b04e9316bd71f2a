"""The sections of ``docs/findings.md`` and their figures, from the committed runs.

``python -m tools.findings`` draws the figures of the docs into ``docs/images``; the tables are
rendered with all others by ``python -m tools.render``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from matplotlib.figure import Figure

from alphaiou._figures import save_figure
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import BUDGET, budgets, quick_scale
from alphaiou.study.figures import PANELS, change_chart, curves_chart, found_chart, sweep_chart
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, drawn_runs, grid_runs, with_found_seeds
from alphaiou.study.series import change_sweeps, curves, found_lines, sweeps_of
from alphaiou.study.tables import markdown_lines, study_table
from benchmarks.record import Record, load_record
from studies.voc320 import search
from studies.voc320.exchange import FARTHEST, exchange_figure
from tools.runs import plain_grid, rows_of

RECORDS = Path("studies/voc320/records")
#: The data set of the quick grids, by its name in recipes.
DATA = Path("voc320")
#: The detector whose length of training is the budget; the others have their own.
SWEPT_DETECTOR = "yolov5s"
#: The grid that does not depend on the budget of epochs.
ANY_BUDGET = "length"
#: Figures of the training curves: the runs of so many epochs, or those of the largest grid.
CURVES: dict[str, tuple[str, int | None]] = {
    "voc320_curves": ("yolov5s", 100),
    "voc320_faster_rcnn_curves": (FASTER_RCNN, None),
    "voc320_detr_curves": (DETR, None),
}
Shown = Literal["levels", "changes", "exchange", "found"]
#: The caption of a figure, by what it shows.
CAPTIONS: dict[Shown, str] = {
    "levels": "The points of a line are means over the seeds that all of them have.",
    "changes": (
        "Changes against the same loss without the power, over the seeds that both have, with "
        "their 95 % intervals; hollow marks have one seed."
    ),
    "exchange": (
        "Changes against IoU at its best gain; in brackets is α, and ×2/2/4 are the gains of "
        "boxes, classes and objectness. Named are the choices that no other beats at both scores, "
        "and IoU; hollow marks have one seed; what is asked for is in the shaded corner; what "
        f"loses {100 * FARTHEST:g} % of mAP75:95 or more is not drawn."
    ),
    "found": (
        "Objects found by a detection of a score of at least "
        f"{SURE:g}, each counted once; hollow marks have one seed."
    ),
}


@dataclass(frozen=True)
class Drawing:
    """A figure of the findings: what it shows, and how it is drawn."""

    shows: Shown
    draw: Callable[[], Figure]


def findings(record: Record) -> str:
    """Every table that has a comparison to show, with its figures.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
    """
    records = {run["name"]: run for run in record["runs"]}
    lengths = budgets(
        run["recipe"]["epochs"]
        for run in records.values()
        if run["recipe"]["detector"] == SWEPT_DETECTOR
    )
    fixed = _fixed_grids(records)
    seen = {name for grid in fixed for name in _names(grid, records)} if lengths[1:] else set()
    sections: list[str] = []
    for epochs in lengths:
        # Runs of the other lengths are shown in the grid that compares lengths.
        grids = _budget_grids(epochs, records, seen if sections else set())
        parts = _sections(grids, records, "###", with_figures=epochs == BUDGET)
        if parts:
            sections.append("\n\n".join([f"## {epochs} epochs", *parts]))
    shown = [grid for grid in fixed if grid.name != ANY_BUDGET or lengths[1:]]
    return "\n\n".join([*sections, *_sections(shown, records, "##", with_figures=True)])


def drawings(record: Record) -> dict[str, Drawing]:
    """The figures of the findings, by the names of their files."""
    records = {run["name"]: run for run in record["runs"]}
    grids = [*_budget_grids(BUDGET, records, set()), *_fixed_grids(records)]
    return {name: one for grid in grids for name, one in _drawings(grid, records).items()}


def _drawings(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Drawing]:
    """The figures of a grid; changes rather than levels where every row has a baseline."""
    name, rows = f"{DATA.name}_{grid.name}", drawn_runs(grid, records)
    if grid.name == search.NAME:
        draw = partial(exchange_figure, rows)
        return {name: Drawing("exchange", draw)} if search.exchanges(rows) else {}
    if grid.found_shares:
        return {name: Drawing("found", found_chart(rows).draw)} if found_lines(rows) else {}
    changing = change_sweeps(rows)
    return {
        f"{name}_{sweep.name}": Drawing("changes", change_chart(rows, sweep).draw)
        if sweep in changing
        else Drawing("levels", sweep_chart(rows, sweep).draw)
        for sweep in sweeps_of(rows)
    }


def _fixed_grids(records: Mapping[str, RunRecord]) -> list[Grid]:
    """The grids whose length does not follow the budget."""
    grids = (grid for grid in _grids(None) if not _is_swept(grid))
    return [_with_runs(grid, records) for grid in grids]


def _budget_grids(epochs: int, records: Mapping[str, RunRecord], seen: set[str]) -> list[Grid]:
    """The grids at a budget with runs that no earlier grid has shown."""
    chosen: list[Grid] = []
    for grid in filter(_is_swept, _grids(epochs)):
        found = _with_runs(grid, records)
        names = _names(found, records)
        if names - seen or (names and grid.found_shares):
            chosen.append(found)
            seen = seen | names
    return chosen


def _grids(epochs: int | None) -> list[Grid]:
    """The paper's grids and our search, those without rows left out."""
    scale = quick_scale(DATA) if epochs is None else quick_scale(DATA, epochs)
    grids = [*paper_grids(scale).values(), search.search_grid(scale)]
    return [grid for grid in grids if grid.rows]


def _is_swept(grid: Grid) -> bool:
    """Whether the budget of epochs decides the length of its runs."""
    return grid.name != ANY_BUDGET and grid.rows[0].recipe.detector == SWEPT_DETECTOR


def _with_runs(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid with the rows and seeds that have runs."""
    grid = with_found_seeds(grid, records)
    runs = grid_runs(grid, records).values()
    return replace(grid, rows=tuple(own.row for own in runs if own.runs))


def _names(grid: Grid, records: Mapping[str, RunRecord]) -> set[str]:
    runs = grid_runs(grid, records).values()
    return {record["name"] for own in runs for record in own.runs.values()}


def _sections(
    grids: Iterable[Grid], records: Mapping[str, RunRecord], level: str, *, with_figures: bool
) -> list[str]:
    parts = []
    for grid in grids:
        is_search = grid.name == search.NAME
        table = (search.search_table if is_search else study_table)(grid, records)
        if not any(row.changes for row in table.rows):
            continue
        text = [
            f"{level} {table.title}",
            f"{_setting(grid)} {table.notes[0]}",
            markdown_lines(table),
        ]
        if with_figures:
            for name, drawing in _drawings(grid, records).items():
                text += [f"![{grid.title}](images/{name}.svg)", CAPTIONS[drawing.shows]]
        parts.append("\n\n".join(text))
    return parts


def _setting(grid: Grid) -> str:
    """The detector and the lengths of training."""
    recipes = [row.recipe for row in grid.rows]
    lengths = sorted({recipe.epochs for recipe in recipes})
    return f"{recipes[0].detector}, {', '.join(map(str, lengths))} epochs."


def curve_drawings(record: Record) -> dict[str, Callable[[], Figure]]:
    """The training curves of each detector."""
    found: dict[str, Callable[[], Figure]] = {}
    for name, (detector, epochs) in CURVES.items():
        grid = plain_grid(record["runs"], detector, epochs)
        rows: dict[str, RowRuns] = rows_of(grid, record["runs"]) if grid else {}
        if any(curves(rows, PANELS[0]).values()):
            found[name] = curves_chart(rows).draw
    return found


def main(root: Path | None = None) -> int:
    """Draw the figures whose runs are committed."""
    root = root or Path.cwd()
    record = load_record(root / RECORDS)
    every = curve_drawings(record) | {name: one.draw for name, one in drawings(record).items()}
    for name, draw in every.items():
        for path in save_figure(draw, root / "docs/images" / name, ("svg",)):
            sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
