"""The series that figures of a grid draw: scores by epoch, and against what the rows vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from alphaiou.metrics.columns import columns_of
from alphaiou.metrics.comparison import relative_improvement
from alphaiou.metrics.iou_histogram import HISTOGRAM_THRESHOLDS
from alphaiou.study.records import RowRuns, RunRecord, at_shared_seeds
from alphaiou.study.statistics import Change, Model, fit_rows
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import (
    at_default_gain,
    gain_factor,
    gain_name,
    learns_similarity,
    objectness_alpha,
)
from alphaiou.training.record import loss_parts

Item = TypeVar("Item")
#: A row and its baseline.
Pair = tuple[RowRuns, RowRuns]

#: The scores of found objects, and the IoU threshold of each.
FOUND = dict(zip(columns_of("found"), HISTOGRAM_THRESHOLDS, strict=True))
#: The most rows that one chart of found objects or of losses can show.
MOST_ROWS = 6
#: The fewest values that make a line.
FEWEST_VALUES = 3


# Points


@dataclass(frozen=True)
class Point:
    """A mean over seeds, or a change of one, in percent.

    Attributes:
        x: The place on the x axis.
        mean: The mean.
        low: The lowest seed of a mean, or the lower end of the 95 % interval of a change; the
            value itself where there is none.
        high: The highest seed, or the upper end.
        name: The row it belongs to, where its line does not say so.
        alone: Whether it is of a single seed.
    """

    x: float
    mean: float
    low: float
    high: float
    name: str = ""
    alone: bool = False


def mean_point(x: float, values: Sequence[float], unit: float = 100) -> Point:
    """The mean of some values and their range: of fractions in percent, unless told otherwise.

    Examples:
        >>> mean_point(60, [0.5, 0.75])
        Point(x=60, mean=62.5, low=50.0, high=75.0, name='', alone=False)
    """
    mean, low, high = (
        unit * value for value in (sum(values) / len(values), min(values), max(values))
    )
    return Point(x, mean, low, high, alone=len(values) == 1)


def change_point(x: float, change: Change, name: str = "") -> Point:
    """A change in percent of its baseline, and its interval.

    Examples:
        >>> change_point(0.3, Change(1, 0.25, 0.375, 0.125, 0.5))
        Point(x=0.3, mean=50.0, low=50.0, high=50.0, name='', alone=True)
    """
    mean, interval, alone = 100 * change.relative, change.relative_interval, change.runs == 1
    if interval is None:
        return Point(x, mean, mean, mean, name, alone)
    return Point(x, mean, 100 * interval.low, 100 * interval.high, name, alone)


def _model_point(x: float, model: Model, row: RowRuns, baseline: RowRuns) -> Point | None:
    """The change of a row against another; None where they cannot be compared."""
    change = model.change(row.row.label, baseline.row.label)
    if change is None or not math.isfinite(change.relative):
        return None
    return change_point(x, change)


# What the rows of a grid vary


@dataclass(frozen=True)
class Sweep:
    """A setting that the rows of a grid vary.

    Attributes:
        name: A word for file names.
        label: The label of the axis.
        value: The value of a recipe.
        rest: The recipe without the setting: rows with the same rest are points of one line.
        plain: The value of the baseline of all others; None where each value has its own baseline.
        moving: Whether a recipe changes the setting during training, so that it has no one value.
        is_logarithmic: Whether its axis is.
    """

    name: str
    label: str
    value: Callable[[Recipe], float]
    rest: Callable[[Recipe], Recipe]
    plain: float | None = None
    moving: Callable[[Recipe], bool] = lambda _: False
    is_logarithmic: bool = False


SWEEPS = (
    Sweep(
        "alpha",
        "α",
        lambda r: r.loss.alpha,
        lambda r: replace(r, loss=replace(r.loss, alpha=1.0)),
        plain=1.0,
        moving=lambda r: r.alpha_schedule is not None,
        is_logarithmic=True,
    ),
    Sweep(
        "gain",
        "box gain, times the usual",
        gain_factor,
        at_default_gain,
        moving=lambda r: r.final_box_gain is not None,
    ),
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


def lines_of(
    items: Iterable[Item], sweep: Sweep, recipe_of: Callable[[Item], Recipe]
) -> dict[str, list[Item]]:
    """Items grouped into lines, by the names of the lines."""
    by_rest: dict[Recipe, list[Item]] = {}
    for item in items:
        by_rest.setdefault(sweep.rest(recipe_of(item)), []).append(item)
    lines: dict[str, list[Item]] = {}
    for rest, name in _line_names(list(by_rest)).items():
        lines.setdefault(name, []).extend(by_rest[rest])
    return lines


def has_line(
    sweep: Sweep, lines: Iterable[Sequence[Item]], recipe_of: Callable[[Item], Recipe]
) -> bool:
    """Whether any of some lines has enough values to be drawn."""
    values = ({sweep.value(recipe_of(item)) for item in line} for line in lines)
    return any(len(distinct) >= FEWEST_VALUES for distinct in values)


def _line_names(recipes: Sequence[Recipe]) -> dict[Recipe, str]:
    """The name of each line: its loss, and its other differences from the other lines."""
    varied = [part for part in _NAME_PARTS if len({part(recipe) for recipe in recipes}) > 1]
    return {
        recipe: ", ".join([recipe.loss_name, *(part(recipe) for part in varied)])
        for recipe in recipes
    }


_NAME_PARTS: tuple[Callable[[Recipe], str], ...] = (
    lambda r: r.detector.name,
    lambda r: r.data.path,
    lambda r: f"noise {r.noise:g}" if r.noise else "clean",
    lambda r: f"{r.subset:.0%} of the images" if r.subset < 1 else "all images",
    lambda r: f"box gain {gain_name(r)}",
    lambda r: f"objectness {'similarity' if learns_similarity(r) else 'iou'}",
    lambda r: f"objectness γ={objectness_alpha(r):g}",
    lambda r: f"{r.epochs} epochs",
)


# Scores against what is varied


def sweeps_of(rows: Mapping[str, RowRuns]) -> list[Sweep]:
    """The settings that the rows vary often enough to be drawn as a line."""
    return [
        sweep
        for sweep in SWEEPS
        if has_line(sweep, lines_of(_placed(rows, sweep), sweep, _recipe).values(), _recipe)
    ]


def swept(rows: Mapping[str, RowRuns], sweep: Sweep, score: str) -> dict[str, list[Point]]:
    """A score against a setting, one line per combination of the other settings.

    The points of a line are means over the seeds that all of them have, if there are any.
    Otherwise the line would show how the seeds differ.
    """
    lines = lines_of(_placed(rows, sweep), sweep, _recipe)
    return {
        name: _in_order(
            mean_point(sweep.value(row.row.recipe), list(row.scores(score).values()))
            for row in at_shared_seeds(line)
        )
        for name, line in lines.items()
    }


def _recipe(row: RowRuns) -> Recipe:
    return row.row.recipe


def _placed(rows: Mapping[str, RowRuns], sweep: Sweep) -> list[RowRuns]:
    """The rows that have runs, and one value of the setting."""
    return [row for row in rows.values() if row.runs and not sweep.moving(row.row.recipe)]


def _in_order(points: Iterable[Point]) -> list[Point]:
    return sorted(points, key=lambda point: point.x)


# Changes against the baseline, along what is varied


def change_sweeps(rows: Mapping[str, RowRuns]) -> list[Sweep]:
    """The settings that rows vary together with their baselines, often enough for a line."""
    return [
        sweep
        for sweep in SWEEPS
        if has_line(sweep, _pair_lines(rows, sweep).values(), _recipe_of_pair)
    ]


def changes_along(
    rows: Mapping[str, RowRuns],
    sweep: Sweep,
    score: str,
    comparable: Mapping[str, RowRuns] | None = None,
) -> dict[str, list[Point]]:
    """The change of each row in percent of its baseline.

    Where all rows of a line share a baseline, it is a point of the line too. A score of zero has
    no changes: a line without any is left out. Changes and their intervals are estimated from the
    ``comparable`` rows, by default from the rows themselves.
    """
    plain = [] if sweep.plain is None else [Point(sweep.plain, 0.0, 0.0, 0.0)]
    model = fit_rows(comparable or rows, score)

    def change(x: float, row: RowRuns, baseline: RowRuns) -> Point | None:
        return _model_point(x, model, row, baseline)

    lines = _pair_points(rows, sweep, change)
    return {name: _in_order([*plain, *points]) for name, points in lines.items()}


def published_along(
    rows: Mapping[str, RowRuns], sweep: Sweep, score: str
) -> dict[str, list[Point]]:
    """The changes that the paper prints for the same lines; empty where it prints none."""

    def published(x: float, row: RowRuns, baseline: RowRuns) -> Point | None:
        after, before = (one.row.published.get(score) for one in (row, baseline))
        if after is None or before is None:
            return None
        change = 100 * relative_improvement(after, before)
        return None if math.isnan(change) else Point(x, change, change, change)

    lines = _pair_points(rows, sweep, published)
    return {name: _in_order(points) for name, points in lines.items()}


def _pair_points(
    rows: Mapping[str, RowRuns],
    sweep: Sweep,
    point: Callable[[float, RowRuns, RowRuns], Point | None],
) -> dict[str, list[Point]]:
    """The points of every line that has any."""
    lines = {
        name: list(filter(None, (point(sweep.value(_recipe_of_pair(p)), *p) for p in pairs)))
        for name, pairs in _pair_lines(rows, sweep).items()
    }
    return {name: points for name, points in lines.items() if points}


def _pair_lines(rows: Mapping[str, RowRuns], sweep: Sweep) -> dict[str, list[Pair]]:
    return lines_of(_pairs(rows, sweep), sweep, _recipe_of_pair)


def _recipe_of_pair(pair: Pair) -> Recipe:
    return pair[0].row.recipe


def _pairs(rows: Mapping[str, RowRuns], sweep: Sweep) -> Iterator[Pair]:
    """Rows and their baselines that share a seed: of the same value, or of the plain one."""
    for row in rows.values():
        baseline = rows.get(row.row.baseline or "")
        if baseline is None or not row.runs.keys() & baseline.runs.keys():
            continue
        before = sweep.value(row.row.recipe) if sweep.plain is None else sweep.plain
        if sweep.value(baseline.row.recipe) == before and _differ_in(sweep, row, baseline):
            yield row, baseline


def _differ_in(sweep: Sweep, row: RowRuns, baseline: RowRuns) -> bool:
    """Whether rows that share a baseline differ from it in the setting alone."""
    rests = {sweep.rest(one.row.recipe) for one in (row, baseline)}
    return sweep.plain is None or len(rests) == 1


# By epoch


def curves(rows: Mapping[str, RowRuns], score: str) -> dict[str, list[Point]]:
    """A score by epoch, as far as runs were scored during training: one line per row."""
    return {
        label: [
            mean_point(epoch, values)
            for epoch, values in _by_epoch(row, lambda run: _scored(run, score)).items()
        ]
        for label, row in rows.items()
        if row.runs
    }


def loss_curves(rows: Mapping[str, RowRuns], parts: Sequence[str]) -> dict[str, list[Point]]:
    """The sum of some parts of the training loss by epoch: one line per row."""

    def losses(run: RunRecord) -> dict[float, float]:
        return {
            float(entry["epoch"]): sum(entry[part] for part in parts) for entry in run["history"]
        }

    return {
        label: [mean_point(epoch, values, 1) for epoch, values in _by_epoch(row, losses).items()]
        for label, row in rows.items()
        if row.runs
    }


def shared_loss_parts(rows: Mapping[str, RowRuns]) -> list[str]:
    """The parts of the training loss that all runs have, in their order."""
    runs = [run for row in rows.values() for run in row.runs.values()]
    parts = [list(loss_parts(run["history"][0])) if run["history"] else [] for run in runs]
    return [part for part in parts[0] if all(part in other for other in parts)] if parts else []


def _by_epoch(
    row: RowRuns, values_of: Callable[[RunRecord], Mapping[float, float]]
) -> dict[float, list[float]]:
    """The values of every seed at the epochs that all of them have."""
    by_seed = [values_of(run) for run in row.runs.values()]
    shared = set.intersection(*(set(values) for values in by_seed))
    return {epoch: [values[epoch] for values in by_seed] for epoch in sorted(shared)}


def _scored(run: RunRecord, score: str) -> dict[float, float]:
    scores = {}
    for entry in run["history"]:
        value = (entry.get("val") or entry.get("test") or {}).get(score)
        if value is not None:
            scores[float(entry["epoch"])] = float(value)
    return scores


# Objects found


def found_lines(rows: Mapping[str, RowRuns]) -> dict[str, list[Point]]:
    """The share of the objects found by IoU threshold in percent, one line per row.

    Empty where no record has these scores, or where there are more rows than a chart can show.
    """
    lines = {
        label: [mean_point(iou, list(row.scores(score).values())) for score, iou in FOUND.items()]
        for label, row in _with_found(rows).items()
    }
    return lines if len(lines) <= MOST_ROWS else {}


def found_changes(
    rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> dict[str, list[Point]]:
    """By how many percent more objects a row finds than its baseline, by IoU threshold."""
    counted = _with_found(rows)
    pairs = {
        label: (row, counted[row.row.baseline])
        for label, row in counted.items()
        if row.row.baseline in counted
    }
    fitted = _with_found(comparable or rows)
    models = {score: fit_rows(fitted, score) for score in FOUND}
    lines = {
        label: [_model_point(iou, models[score], *pair) for score, iou in FOUND.items()]
        for label, pair in pairs.items()
    }
    defined = {label: list(filter(None, points)) for label, points in lines.items()}
    return {label: points for label, points in defined.items() if points}


def _with_found(rows: Mapping[str, RowRuns]) -> dict[str, RowRuns]:
    counted = {label: row.with_scores(FOUND) for label, row in rows.items()}
    return {label: row for label, row in counted.items() if row.runs}
