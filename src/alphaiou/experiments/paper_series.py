"""What plots and pages draw of a grid: scores by epoch, and scores against what the cells vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from alphaiou.experiments.paper_records import CellRuns, RunRecord, at_shared_seeds
from alphaiou.experiments.recipes import at_usual_gain, gain_factor, gain_name
from alphaiou.experiments.statistics import PairedChange, bootstrap_mean, paired_change
from alphaiou.training.recipe import Recipe

Row = TypeVar("Row")


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
    """Something that the cells of a grid vary.

    Attributes:
        name: A word for files.
        label: What the axis says.
        value: The value of a recipe.
        rest: The recipe without it: cells with the same rest are points of the same line.
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
    Sweep("gain", "box gain, times the usual", gain_factor, at_usual_gain),
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


def sweeps_of(cells: Mapping[str, CellRuns]) -> list[Sweep]:
    """What the cells of a grid vary often enough to be drawn as a line."""
    return [
        sweep
        for sweep in SWEEPS
        if has_line(sweep, lines_of(_placed(cells, sweep), sweep, _recipe).values(), _recipe)
    ]


def swept(cells: Mapping[str, CellRuns], sweep: Sweep, score: str) -> dict[str, list[Point]]:
    """A score against what is varied, a line for each setting of everything else.

    The points of a line are means over the seeds that all of them have, if there are any: a line
    that went from some seeds to others would show how these differ.
    """
    lines = lines_of(_placed(cells, sweep), sweep, _recipe)
    return {name: _line(line, sweep, score) for name, line in lines.items()}


def lines_of(
    rows: Iterable[Row], sweep: Sweep, recipe_of: Callable[[Row], Recipe]
) -> dict[str, list[Row]]:
    """Rows by the names of the lines that they are points of."""
    by_rest: dict[Recipe, list[Row]] = {}
    for row in rows:
        by_rest.setdefault(sweep.rest(recipe_of(row)), []).append(row)
    lines: dict[str, list[Row]] = {}
    for rest, name in _names(list(by_rest)).items():
        lines.setdefault(name, []).extend(by_rest[rest])
    return lines


def has_line(
    sweep: Sweep, lines: Iterable[Sequence[Row]], recipe_of: Callable[[Row], Recipe]
) -> bool:
    """Whether any of some lines has enough values to be drawn."""
    values = ({sweep.value(recipe_of(row)) for row in line} for line in lines)
    return any(len(own) >= FEWEST_VALUES for own in values)


def _recipe(own: CellRuns) -> Recipe:
    return own.cell.recipe


def _placed(cells: Mapping[str, CellRuns], sweep: Sweep) -> list[CellRuns]:
    return [own for own in cells.values() if own.runs and _has_place(own.cell.recipe, sweep)]


def _line(line: Sequence[CellRuns], sweep: Sweep, score: str) -> list[Point]:
    points = [
        mean_point(sweep.value(own.cell.recipe), list(own.scores(score).values()))
        for own in at_shared_seeds(line)
    ]
    return sorted(points, key=lambda point: point.x)


def _has_place(recipe: Recipe, sweep: Sweep) -> bool:
    """Whether a run has one value of what is varied, which an α or a gain that moves is not."""
    moving = {"alpha": recipe.alpha_schedule, "gain": recipe.final_box_gain}
    return moving.get(sweep.name) is None


def curves(cells: Mapping[str, CellRuns], score: str) -> dict[str, list[Point]]:
    """A score by epoch, a line a cell: what was scored during the runs."""
    return {
        label: [mean_point(epoch, values) for epoch, values in _by_epoch(own, score).items()]
        for label, own in cells.items()
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


def paired_point(x: float, own: CellRuns, base: CellRuns, score: str) -> Point | None:
    """What a row changes against another; None where nothing is shared, or nothing defines it."""
    change = paired_change(own.scores(score), base.scores(score))
    if change is None or not math.isfinite(change.relative):
        return None
    return change_point(x, change)


def _by_epoch(own: CellRuns, score: str) -> dict[float, list[float]]:
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
