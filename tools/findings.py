"""What the committed runs say, as the sections of ``docs/findings.md``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from alphaiou.metrics.iou_histogram import SURE
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import BUDGET, budgets, quick_scale
from alphaiou.study.grid import Grid
from alphaiou.study.records import (
    RowRuns,
    RunRecord,
    drawn_runs,
    grid_runs,
    with_found_seeds,
)
from alphaiou.study.series import Sweep, change_sweeps, found_lines, sweeps_of
from alphaiou.study.tables import markdown_lines, study_table
from benchmarks.record import Record
from studies.voc320.exchange import FARTHEST
from studies.voc320.search import exchanges

#: The data set of the quick grids, by the name that it has in recipes.
DATA = Path("voc320")
#: The detector whose length of training is the budget; the others have their own.
SWEPT_DETECTOR = "yolov5s"
#: What does not depend on the budget of epochs.
ANY_BUDGET = "length"
#: What is said below pictures, by what they show.
NOTES = {
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
Shown = Literal["levels", "changes", "exchange", "found"]


@dataclass(frozen=True)
class Drawing:
    """A picture of the findings.

    Attributes:
        shows: Scores against what is varied, what changes along it, what candidates exchange, or
            what is found with at least an IoU.
        rows: The runs.
        sweep: What is varied, where anything is.
    """

    shows: Shown
    rows: Mapping[str, RowRuns]
    sweep: Sweep | None = None


def findings(record: Record) -> str:
    """Every table that has a comparison to show, and a sentence on each comparison.

    Args:
        record: A folder of runs, as ``read_record`` gives it.
    """
    records = {run["name"]: run for run in record["runs"]}
    lengths = budgets(
        run["recipe"]["epochs"]
        for run in records.values()
        if run["recipe"]["detector"] == SWEPT_DETECTOR
    )
    apart = _apart(records)
    seen = {name for grid in apart for name in _names(grid, records)} if lengths[1:] else set()
    sections: list[str] = []
    for epochs in lengths:
        # The other lengths that were tried have a table of their own.
        own = _grids(epochs, records, seen if sections else set())
        parts = _sections(own, records, "###", pictured=epochs == BUDGET)
        if parts:
            sections.append("\n\n".join([f"## {epochs} epochs", *parts]))
    shown = [grid for grid in apart if grid.name != ANY_BUDGET or lengths[1:]]
    return "\n\n".join([*sections, *_sections(shown, records, "##", pictured=True)])


def drawn(record: Record) -> dict[str, Drawing]:
    """What the pictures of the findings show, by the names of their files."""
    records = {run["name"]: run for run in record["runs"]}
    grids = [*_grids(BUDGET, records, set()), *_apart(records)]
    return {name: drawing for grid in grids for name, drawing in _drawings(grid, records).items()}


def _drawings(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Drawing]:
    """Where rows are compared at every value of what is varied, what changes there is drawn."""
    name, rows = f"{DATA.name}_{grid.name}", drawn_runs(grid, records)
    if grid.searches:
        return {name: Drawing("exchange", rows)} if exchanges(rows) else {}
    if grid.found_shares:
        return {name: Drawing("found", rows)} if found_lines(rows) else {}
    changing = change_sweeps(rows)
    return {
        f"{name}_{sweep.name}": Drawing("changes" if sweep in changing else "levels", rows, sweep)
        for sweep in sweeps_of(rows)
    }


def _pictures(grid: Grid, records: Mapping[str, RunRecord]) -> list[str]:
    """The files of the pictures of a grid, and what is said below each."""
    return [
        text
        for name, drawing in _drawings(grid, records).items()
        for text in (f"![{grid.title}](images/{name}.svg)", NOTES[drawing.shows])
    ]


def _apart(records: Mapping[str, RunRecord]) -> list[Grid]:
    """The grids whose length is not the budget's."""
    grids = (grid for grid in paper_grids(quick_scale(DATA)).values() if grid.rows)
    return [_of_found_runs(grid, records) for grid in grids if not _is_swept(grid)]


def _is_swept(grid: Grid) -> bool:
    """Whether the budget of epochs decides how long its runs are."""
    return grid.name != ANY_BUDGET and grid.rows[0].recipe.detector == SWEPT_DETECTOR


def _grids(epochs: int, records: Mapping[str, RunRecord], seen: set[str]) -> list[Grid]:
    """The grids at a budget that say more of their runs than was seen, or than earlier ones do."""
    chosen: list[Grid] = []
    for grid in paper_grids(quick_scale(DATA, epochs)).values():
        if not (grid.rows and _is_swept(grid)):
            continue
        found = _of_found_runs(grid, records)
        names = _names(found, records)
        if names - seen or (names and grid.found_shares):
            chosen.append(found)
            seen = seen | names
    return chosen


def _of_found_runs(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid with the rows and the seeds that were run."""
    grid = with_found_seeds(grid, records)
    rows = grid_runs(grid, records)
    return replace(grid, rows=tuple(own.row for own in rows.values() if own.runs))


def _names(grid: Grid, records: Mapping[str, RunRecord]) -> set[str]:
    rows = grid_runs(grid, records)
    return {record["name"] for own in rows.values() for record in own.runs.values()}


def _sections(
    grids: Iterable[Grid],
    records: Mapping[str, RunRecord],
    level: str,
    *,
    pictured: bool,
) -> list[str]:
    parts = []
    for grid in grids:
        table = study_table(grid, records)
        if not any(row.changes for row in table.rows):
            continue
        pictures = _pictures(grid, records) if pictured else []
        text = [
            f"{level} {table.title}",
            f"{_setting(grid)} {table.notes[0]}",
            markdown_lines(table),
            *pictures,
        ]
        parts.append("\n\n".join([*text, *_listed(table.sentences)]))
    return parts


def _setting(grid: Grid) -> str:
    """What was trained for how long, as far as all rows agree."""
    recipes = [row.recipe for row in grid.rows]
    lengths = sorted({recipe.epochs for recipe in recipes})
    return f"{recipes[0].detector}, {', '.join(map(str, lengths))} epochs."


def _listed(sentences: Sequence[str]) -> list[str]:
    return ["\n".join(f"- {sentence}" for sentence in sentences)] if sentences else []
