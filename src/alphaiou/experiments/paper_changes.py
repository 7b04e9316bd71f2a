"""What the rows of a grid change against their baselines, along something that both vary."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_series import (
    FEWEST_VALUES,
    SWEEPS,
    Point,
    Sweep,
    change_point,
    line_names,
)
from alphaiou.experiments.statistics import paired_change
from alphaiou.metrics.comparison import relative_improvement

Pair = tuple[CellRuns, CellRuns]


def change_sweeps(cells: Mapping[str, CellRuns]) -> list[Sweep]:
    """What rows vary together with their baselines, often enough to be drawn as a line."""
    return [
        sweep
        for sweep in SWEEPS
        if any(
            len({sweep.value(own.cell.recipe) for own, _ in line}) >= FEWEST_VALUES
            for line in _lines(cells, sweep).values()
        )
    ]


def changes_along(
    cells: Mapping[str, CellRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The change of each row in percent of its baseline, over the seeds that both have.

    Where all rows of a line have one baseline, it is a point of the line too.
    """
    plain = [] if sweep.plain is None else [Point(sweep.plain, 0.0, 0.0, 0.0)]
    return {
        name: _in_order([*plain, *(_change(own, base, sweep, score) for own, base in line)])
        for name, line in _lines(cells, sweep).items()
    }


def published_along(
    cells: Mapping[str, CellRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The same as the paper prints it, by the same names; nothing where it prints nothing."""
    lines = {
        name: _in_order(_published(own, base, sweep, score) for own, base in line)
        for name, line in _lines(cells, sweep).items()
    }
    return {name: points for name, points in lines.items() if points}


def _in_order(points: Iterable[Point | None]) -> list[Point]:
    return sorted(filter(None, points), key=lambda point: point.x)


def _change(own: CellRuns, base: CellRuns, sweep: Sweep, score: str) -> Point | None:
    change = paired_change(own.scores(score), base.scores(score))
    if change is None or not math.isfinite(change.relative):
        return None
    return change_point(sweep.value(own.cell.recipe), change)


def _published(own: CellRuns, base: CellRuns, sweep: Sweep, score: str) -> Point | None:
    printed, before = (one.cell.published.get(score) for one in (own, base))
    if printed is None or before is None:
        return None
    change = 100 * relative_improvement(printed, before)
    return Point(sweep.value(own.cell.recipe), change, change, change)


def _lines(cells: Mapping[str, CellRuns], sweep: Sweep) -> dict[str, list[Pair]]:
    """Rows with their baselines, a line for each setting of everything that is not varied."""
    pairs = list(_pairs(cells, sweep))
    names = line_names([sweep.rest(own.cell.recipe) for own, _ in pairs])
    lines: dict[str, list[Pair]] = {name: [] for name in names.values()}
    for own, base in pairs:
        lines[names[sweep.rest(own.cell.recipe)]].append((own, base))
    return lines


def _pairs(cells: Mapping[str, CellRuns], sweep: Sweep) -> Iterator[Pair]:
    """Rows and their baselines with a seed in common: of the same value, or the plain one."""
    for own in cells.values():
        base = cells.get(own.cell.baseline or "")
        if base is None or not own.runs.keys() & base.runs.keys():
            continue
        before = sweep.value(own.cell.recipe) if sweep.plain is None else sweep.plain
        if sweep.value(base.cell.recipe) == before and _alike(own, base, sweep):
            yield own, base


def _alike(own: CellRuns, base: CellRuns, sweep: Sweep) -> bool:
    """Whether nothing but what is varied differs, where all are compared with one."""
    recipes = (sweep.rest(one.cell.recipe) for one in (own, base))
    return sweep.plain is None or len(set(recipes)) == 1
