"""The series that figures of a grid draw: scores by epoch and against what its rows vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from alphaiou.metrics.comparison import relative_improvement
from alphaiou.metrics.iou_histogram import HISTOGRAM_THRESHOLDS
from alphaiou.study.records import RowRuns, RunRecord, at_shared_seeds
from alphaiou.study.statistics import PairedChange, bootstrap_mean, paired_change
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import at_default_gain, gain_factor, gain_name

Item = TypeVar("Item")


@dataclass(frozen=True)
class Point:
    """A mean over seeds, or a change of one, in percent.

    Attributes:
        x: Where it is drawn.
        mean: The mean.
        low: Where its bootstrap interval starts; the mean itself with one seed.
        high: Where it ends.
        name: What it is of, where its line does not say so.
        alone: Whether it is of one seed.
    """

    x: float
    mean: float
    low: float
    high: float
    name: str = ""
    alone: bool = False


@dataclass(frozen=True)
class Sweep:
    """Something that the rows of a grid vary.

    Attributes:
        name: A word for files.
        label: What the axis says.
        value: The value of a recipe.
        rest: The recipe without it: rows with the same rest are points of the same line.
        plain: The value of what the others are compared with; None where each has a baseline of
            its own value.
    """

    name: str
    label: str
    value: Callable[[Recipe], float]
    rest: Callable[[Recipe], Recipe]
    plain: float | None = None


SWEEPS = (
    Sweep(
        "alpha",
        "α",
        lambda r: r.loss.alpha,
        lambda r: replace(r, loss=replace(r.loss, alpha=1.0)),
        plain=1.0,
    ),
    Sweep("gain", "box gain, times the usual", gain_factor, at_default_gain),
    Sweep("noise", "rate of noise", lambda r: r.noise, lambda r: replace(r, noise=0.0)),
    Sweep(
        "subset",
        "share of the training images",
        lambda r: r.subset,
        lambda r: replace(r, subset=1.0),
    ),
    Sweep(
        "epochs",
        "epochs of training",
        lambda r: float(r.epochs),
        lambda r: replace(r, epochs=1, evaluate_every=0),
    ),
)
#: The sweep whose values are drawn on a logarithmic axis.
ON_A_LOGARITHM = "alpha"
#: A line is worth drawing from so many values on.
FEWEST_VALUES = 3


def sweeps_of(rows: Mapping[str, RowRuns]) -> list[Sweep]:
    """What the rows of a grid vary often enough to be drawn as a line."""
    return [
        sweep
        for sweep in SWEEPS
        if has_line(sweep, lines_of(_placed(rows, sweep), sweep, _recipe).values(), _recipe)
    ]


def swept(rows: Mapping[str, RowRuns], sweep: Sweep, score: str) -> dict[str, list[Point]]:
    """A score against what is varied, a line for each setting of everything else.

    The points of a line are means over the seeds that all of them have, if there are any: a line
    that went from some seeds to others would show how these differ.
    """
    lines = lines_of(_placed(rows, sweep), sweep, _recipe)
    return {name: _line(line, sweep, score) for name, line in lines.items()}


def lines_of(
    rows: Iterable[Item], sweep: Sweep, recipe_of: Callable[[Item], Recipe]
) -> dict[str, list[Item]]:
    """Rows by the names of the lines that they are points of."""
    by_rest: dict[Recipe, list[Item]] = {}
    for row in rows:
        by_rest.setdefault(sweep.rest(recipe_of(row)), []).append(row)
    lines: dict[str, list[Item]] = {}
    for rest, name in _names(list(by_rest)).items():
        lines.setdefault(name, []).extend(by_rest[rest])
    return lines


def has_line(
    sweep: Sweep, lines: Iterable[Sequence[Item]], recipe_of: Callable[[Item], Recipe]
) -> bool:
    """Whether any of some lines has enough values to be drawn."""
    values = ({sweep.value(recipe_of(row)) for row in line} for line in lines)
    return any(len(own) >= FEWEST_VALUES for own in values)


def _recipe(own: RowRuns) -> Recipe:
    return own.row.recipe


def _placed(rows: Mapping[str, RowRuns], sweep: Sweep) -> list[RowRuns]:
    return [own for own in rows.values() if own.runs and _has_place(own.row.recipe, sweep)]


def _line(line: Sequence[RowRuns], sweep: Sweep, score: str) -> list[Point]:
    points = [
        mean_point(sweep.value(own.row.recipe), list(own.scores(score).values()))
        for own in at_shared_seeds(line)
    ]
    return sorted(points, key=lambda point: point.x)


def _has_place(recipe: Recipe, sweep: Sweep) -> bool:
    """Whether a run has one value of what is varied, which an α or a gain that moves is not."""
    moving = {"alpha": recipe.alpha_schedule, "gain": recipe.final_box_gain}
    return moving.get(sweep.name) is None


def curves(rows: Mapping[str, RowRuns], score: str) -> dict[str, list[Point]]:
    """A score by epoch, a line a cell: what was scored during the runs."""
    return {
        label: [mean_point(epoch, values) for epoch, values in _by_epoch(own, score).items()]
        for label, own in rows.items()
        if own.runs
    }


def mean_point(x: float, values: Sequence[float]) -> Point:
    """The mean of some fractions and its interval, in percent.

    Examples:
        >>> mean_point(60, [0.5, 0.75])
        Point(x=60, mean=62.5, low=50.0, high=75.0, name='', alone=False)
    """
    mean = 100 * sum(values) / len(values)
    interval = bootstrap_mean(values)
    if interval is None:
        return Point(x, mean, mean, mean, alone=True)
    return Point(x, mean, 100 * interval.low, 100 * interval.high)


def change_point(x: float, change: PairedChange, name: str = "") -> Point:
    """A change in percent of its baseline, and its interval.

    Examples:
        >>> change_point(0.3, paired_change({0: 0.375}, {0: 0.25}))
        Point(x=0.3, mean=50.0, low=50.0, high=50.0, name='', alone=True)
    """
    mean, interval = 100 * change.relative, change.relative_bootstrap
    if interval is None:
        return Point(x, mean, mean, mean, name, change.seeds == 1)
    return Point(x, mean, 100 * interval.low, 100 * interval.high, name)


def paired_point(x: float, own: RowRuns, base: RowRuns, score: str) -> Point | None:
    """What a row changes against another; None where nothing is shared, or nothing defines it."""
    change = paired_change(own.scores(score), base.scores(score))
    if change is None or not math.isfinite(change.relative):
        return None
    return change_point(x, change)


def _by_epoch(own: RowRuns, score: str) -> dict[float, list[float]]:
    """The scores of every seed at the epochs that all of them were scored at."""
    by_seed = [_scored(run, score) for run in own.runs.values()]
    shared = set.intersection(*(set(one) for one in by_seed))
    return {epoch: [one[epoch] for one in by_seed] for epoch in sorted(shared)}


def _scored(run: RunRecord, score: str) -> dict[float, float]:
    found = {}
    for entry in run["history"]:
        value = (entry.get("val") or entry.get("test") or {}).get(score)
        if value is not None:
            found[float(entry["epoch"])] = float(value)
    return found


def _names(recipes: Sequence[Recipe]) -> dict[Recipe, str]:
    """A name for each line: its loss, and in what else it differs from the others."""
    varied = [part for part in _PARTS if len({part(one) for one in recipes}) > 1]
    return {one: ", ".join([one.loss_name, *(part(one) for part in varied)]) for one in recipes}


_PARTS: tuple[Callable[[Recipe], str], ...] = (
    lambda r: r.detector,
    lambda r: r.data.path,
    lambda r: f"noise {r.noise:g}" if r.noise else "clean",
    lambda r: f"{r.subset:.0%} of the images" if r.subset < 1 else "all images",
    lambda r: f"gain {gain_name(r)}",
    lambda r: f"objectness {r.objectness}",
    lambda r: f"{r.epochs} epochs",
)


#: A row and what it is compared with.
Pair = tuple[RowRuns, RowRuns]


def change_sweeps(rows: Mapping[str, RowRuns]) -> list[Sweep]:
    """What rows vary together with their baselines, often enough to be drawn as a line."""
    return [
        sweep for sweep in SWEEPS if has_line(sweep, _lines(rows, sweep).values(), _swept_recipe)
    ]


def changes_along(rows: Mapping[str, RowRuns], sweep: Sweep, score: str) -> dict[str, list[Point]]:
    """The change of each row in percent of its baseline, over the seeds that both have.

    Where all rows of a line have one baseline, it is a point of the line too. A score of zero has
    no changes: a line without any is left out.
    """
    plain = [] if sweep.plain is None else [Point(sweep.plain, 0.0, 0.0, 0.0)]

    def change(x: float, own: RowRuns, base: RowRuns) -> Point | None:
        return paired_point(x, own, base, score)

    lines = _points(rows, sweep, change)
    return {name: _in_order([*plain, *points]) for name, points in lines.items()}


def published_along(
    rows: Mapping[str, RowRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The same as the paper prints it, by the same names; nothing where it prints nothing."""

    def printed(x: float, own: RowRuns, base: RowRuns) -> Point | None:
        after, before = (one.row.published.get(score) for one in (own, base))
        if after is None or before is None:
            return None
        change = 100 * relative_improvement(after, before)
        return Point(x, change, change, change)

    return {name: _in_order(points) for name, points in _points(rows, sweep, printed).items()}


def _points(
    rows: Mapping[str, RowRuns],
    sweep: Sweep,
    point: Callable[[float, RowRuns, RowRuns], Point | None],
) -> dict[str, list[Point]]:
    """The points of every line that has any."""
    lines = {
        name: list(filter(None, (point(sweep.value(_swept_recipe(pair)), *pair) for pair in line)))
        for name, line in _lines(rows, sweep).items()
    }
    return {name: points for name, points in lines.items() if points}


def _in_order(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.x)


def _lines(rows: Mapping[str, RowRuns], sweep: Sweep) -> dict[str, list[Pair]]:
    return lines_of(_pairs(rows, sweep), sweep, _swept_recipe)


def _swept_recipe(pair: Pair) -> Recipe:
    return pair[0].row.recipe


def _pairs(rows: Mapping[str, RowRuns], sweep: Sweep) -> Iterator[Pair]:
    """Rows and their baselines with a seed in common: of the same value, or the plain one."""
    for own in rows.values():
        base = rows.get(own.row.baseline or "")
        if base is None or not own.runs.keys() & base.runs.keys():
            continue
        before = sweep.value(own.row.recipe) if sweep.plain is None else sweep.plain
        if sweep.value(base.row.recipe) == before and _alike(own, base, sweep):
            yield own, base


def _alike(own: RowRuns, base: RowRuns, sweep: Sweep) -> bool:
    """Whether nothing but what is varied differs, where all are compared with one."""
    recipes = (sweep.rest(one.row.recipe) for one in (own, base))
    return sweep.plain is None or len(set(recipes)) == 1


#: The scores of records that say it, and the IoU of each.
FOUND = {f"found{round(100 * threshold)}": threshold for threshold in HISTOGRAM_THRESHOLDS}
#: Rows that can be told apart in one picture.
MOST_ROWS = 6


def found_lines(rows: Mapping[str, RowRuns]) -> dict[str, list[Point]]:
    """The share of the objects by IoU, a line a cell, in percent.

    Records that were made before runs counted it have no share; nothing is returned where no cell
    has any, or too many have.
    """
    counted = _counted(rows)
    lines = {
        label: [mean_point(iou, list(own.scores(score).values())) for score, iou in FOUND.items()]
        for label, own in counted.items()
    }
    return lines if len(lines) <= MOST_ROWS else {}


def found_changes(rows: Mapping[str, RowRuns]) -> dict[str, list[Point]]:
    """By how many percent more objects a row finds than its baseline, by IoU."""
    counted = _counted(rows)
    pairs = {
        label: (own, counted[own.row.baseline])
        for label, own in counted.items()
        if own.row.baseline in counted
    }
    lines = {
        label: [paired_point(iou, *pair, score) for score, iou in FOUND.items()]
        for label, pair in pairs.items()
    }
    defined = {label: list(filter(None, points)) for label, points in lines.items()}
    return {label: points for label, points in defined.items() if points}


def _counted(rows: Mapping[str, RowRuns]) -> dict[str, RowRuns]:
    counted = (own.with_scores(FOUND) for own in rows.values())
    return {own.row.label: own for own in counted if own.runs}
