"""What the rows of a grid change against their baselines, along something that both vary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_series import (
    SWEEPS,
    Point,
    Sweep,
    has_line,
    lines_of,
    paired_point,
)
from alphaiou.metrics.comparison import relative_improvement
from alphaiou.training.recipe import Recipe

#: A row and what it is compared with.
Pair = tuple[CellRuns, CellRuns]


def change_sweeps(cells: Mapping[str, CellRuns]) -> list[Sweep]:
    """What rows vary together with their baselines, often enough to be drawn as a line."""
    return [sweep for sweep in SWEEPS if has_line(sweep, _lines(cells, sweep).values(), _recipe)]


def changes_along(
    cells: Mapping[str, CellRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The change of each row in percent of its baseline, over the seeds that both have.

    Where all rows of a line have one baseline, it is a point of the line too. A score of zero has
    no changes: a line without any is left out.
    """
    plain = [] if sweep.plain is None else [Point(sweep.plain, 0.0, 0.0, 0.0)]

    def change(x: float, own: CellRuns, base: CellRuns) -> Point | None:
        return paired_point(x, own, base, score)

    lines = _points(cells, sweep, change)
    return {name: _in_order([*plain, *points]) for name, points in lines.items()}


def published_along(
    cells: Mapping[str, CellRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The same as the paper prints it, by the same names; nothing where it prints nothing."""

    def printed(x: float, own: CellRuns, base: CellRuns) -> Point | None:
        after, before = (one.cell.published.get(score) for one in (own, base))
        if after is None or before is None:
            return None
        change = 100 * relative_improvement(after, before)
        return Point(x, change, change, change)

    return {name: _in_order(points) for name, points in _points(cells, sweep, printed).items()}


def _points(
    cells: Mapping[str, CellRuns],
    sweep: Sweep,
    point: Callable[[float, CellRuns, CellRuns], Point | None],
) -> dict[str, list[Point]]:
    """The points of every line that has any."""
    lines = {
        name: list(filter(None, (point(sweep.value(_recipe(pair)), *pair) for pair in line)))
        for name, line in _lines(cells, sweep).items()
    }
    return {name: points for name, points in lines.items() if points}


def _in_order(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.x)


def _lines(cells: Mapping[str, CellRuns], sweep: Sweep) -> dict[str, list[Pair]]:
    return lines_of(_pairs(cells, sweep), sweep, _recipe)


def _recipe(pair: Pair) -> Recipe:
    return pair[0].cell.recipe


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
