"""Plots of a grid: scores by epoch, against α, gain or noise, and how well detections lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphaiou._figures import FULL_WIDTH, INK, panel_title, save_figure, values_only
from alphaiou.inference.figures import looks
from alphaiou.inference.tables import column_title
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, drawn_runs, grid_runs
from alphaiou.study.series import (
    ON_A_LOGARITHM,
    Point,
    Sweep,
    change_sweeps,
    changes_along,
    curves,
    found_changes,
    found_lines,
    published_along,
    sweeps_of,
    swept,
)

CHANGE_PANELS = ("ap50", "map", "map75_95")
IN_THE_PAPER = "the same in the paper"
PUBLISHED: dict[str, Any] = {"lw": 0.9, "ls": (0, (3, 2.2)), "marker": "x", "ms": 4, "mew": 0.9}
MARK: dict[str, Any] = {"marker": "o", "ms": 4.5}


def change_figure(rows: Mapping[str, RowRuns], sweep: Sweep) -> Figure:
    """Changes in percent of the baselines, with intervals; hollow marks have one seed.

    What the paper prints for the same rows is dashed, in the same colours.
    """
    figure = Figure(figsize=(FULL_WIDTH, 2.7), layout="constrained")
    panels = figure.subplots(1, len(CHANGE_PANELS))
    is_printed = False
    for letter, axes, score in zip("abc", panels, CHANGE_PANELS, strict=True):
        axes.axhline(0, color="#8C8C8C", lw=0.6, zorder=0)
        own, printed = (made(rows, sweep, score) for made in (changes_along, published_along))
        for (name, points), look in zip(own.items(), looks(len(own)), strict=True):
            draw_changes(axes, points, name, look)
            axes.plot(*_places(printed.get(name, [])), color=look["color"], **PUBLISHED)
        is_printed |= bool(printed)
        panel_title(axes, letter, f"{column_title(score)}, change in %")
        if sweep.name == ON_A_LOGARITHM:
            axes.set_xscale("log")
        values_only(axes, sorted({point.x for points in own.values() for point in points}))
        axes.set(xlabel=sweep.label)
    handles, names = panels[0].get_legend_handles_labels()
    if is_printed:
        handles += panels[0].plot([], [], color="#8C8C8C", **PUBLISHED)
        names = [*names, IN_THE_PAPER]
    figure.legend(handles, names, loc="outside lower center", ncols=len(names))
    return figure


def draw_changes(axes: Axes, points: Sequence[Point], name: str, look: Mapping[str, Any]) -> None:
    """A line of changes with their intervals; hollow marks have one seed."""
    x, means = _places(points)
    axes.plot(x, means, label=name, **look, **MARK)
    for point in points:
        axes.plot([point.x] * 2, [point.low, point.high], lw=0.9, color=look["color"])
        if point.alone:
            axes.plot(point.x, point.mean, mec=look["color"], mfc="white", **MARK)


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.x for point in points], [point.mean for point in points]


def found_figure(rows: Mapping[str, RowRuns]) -> Figure:
    """Shares of all objects as bars, and by how much rows differ from their baselines.

    Intervals are those of the means over seeds; hollow marks have one seed.
    """
    lines, changes = found_lines(rows), found_changes(rows)
    colours = dict(zip(lines, (look["color"] for look in looks(len(lines))), strict=True))
    figure = Figure(figsize=(FULL_WIDTH, 2.9), layout="constrained")
    panels = figure.subplots(1, 2, width_ratios=(3, 2)) if changes else [figure.subplots()]
    _bars(panels[0], lines, colours)
    if changes:
        for label, points in changes.items():
            draw_changes(panels[1], points, label, {"color": colours[label]})
        panel_title(panels[1], "b", "change against the baseline, %")
        panels[1].axhline(0, color="#8C8C8C", lw=0.6, zorder=0)
        panels[1].set(xlabel="IoU at least")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 4))
    return figure


def _bars(axes: Axes, lines: Mapping[str, Sequence[Point]], colours: Mapping[str, str]) -> None:
    thresholds = [point.x for point in next(iter(lines.values()))]
    places, width = np.arange(len(thresholds)), 0.8 / len(lines)
    for number, (label, points) in enumerate(lines.items()):
        shift = (number - (len(lines) - 1) / 2) * width
        ends = np.array([[p.mean - p.low, p.high - p.mean] for p in points]).T
        axes.bar(
            places + shift,
            [point.mean for point in points],
            0.92 * width,
            color=colours[label],
            yerr=None if all(point.alone for point in points) else ends,
            error_kw={"elinewidth": 0.7, "ecolor": INK},
            label=label,
        )
    axes.set_xticks(places, [f"{threshold:g}".lstrip("0") for threshold in thresholds])
    axes.grid(False, axis="x")
    axes.set(xlabel="IoU at least")
    panel_title(axes, "a", "objects found, % of all")


PANELS = ("ap50", "map75_95", "ap95")
LEGEND_LETTERS = 105  # across a figure


def save_plots(grid: Grid, records: Mapping[str, RunRecord], out: Path) -> list[Path]:
    """Draw everything that the records of a grid allow, as PNG and SVG, the same bytes each time.

    Args:
        grid: Its rows and seeds.
        records: By the names of their runs.
        out: The folder to write to.
    """
    return [
        path
        for name, draw in _drawings(grid, records).items()
        for path in save_figure(draw, out / f"{grid.name}-{name}")
    ]


def _drawings(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Callable[[], Figure]]:
    rows = grid_runs(grid, records)
    drawings: dict[str, Callable[[], Figure]] = {}
    if len(list(filter(None, curves(rows, PANELS[0]).values()))) > 1:
        drawings["curves"] = partial(curves_figure, rows)
    drawn = drawn_runs(grid, records)
    for sweep in sweeps_of(drawn):
        drawings[sweep.name] = partial(sweep_figure, drawn, sweep)
    for sweep in change_sweeps(drawn):
        drawings[f"{sweep.name}-change"] = partial(change_figure, drawn, sweep)
    if (grid.pictures or grid.found_shares) and found_lines(rows):
        drawings["ious"] = partial(found_figure, rows)
    return drawings


def curves_figure(rows: Mapping[str, RowRuns]) -> Figure:
    """Three scores by epoch; bands are the intervals of the means of several seeds."""
    return _panels({score: curves(rows, score) for score in PANELS}, "epoch")


def sweep_figure(rows: Mapping[str, RowRuns], sweep: Sweep) -> Figure:
    """Three scores against what the rows vary; bands are the intervals of the means."""
    figure = _panels({score: swept(rows, sweep, score) for score in PANELS}, sweep.label)
    values = sorted({sweep.value(own.row.recipe) for own in rows.values()})
    for axes in figure.axes:
        if sweep.name == ON_A_LOGARITHM and values[0] > 0:
            axes.set_xscale("log")
        values_only(axes, values)
    return figure


def _panels(series: Mapping[str, Mapping[str, Sequence[Point]]], label: str) -> Figure:
    """A panel a score, a line and its band a series."""
    names = list(next(iter(series.values())))
    rows = -(-len(names) // _legend_columns(names))
    figure = Figure(figsize=(FULL_WIDTH, 2.5 + 0.16 * rows), layout="constrained")
    panels = figure.subplots(1, len(series))
    for letter, axes, (score, lines) in zip("abc", panels, series.items(), strict=True):
        for (name, points), look in zip(lines.items(), looks(len(lines)), strict=True):
            x = [point.x for point in points]
            axes.plot(x, [point.mean for point in points], marker=".", ms=4, label=name, **look)
            band = [point.low for point in points], [point.high for point in points]
            axes.fill_between(x, *band, color=look["color"], alpha=0.16, linewidth=0)
        panel_title(axes, letter, f"{column_title(score)}, %")
        axes.set(xlabel=label)
    _legend(figure, panels[0])
    return figure


def _legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=_legend_columns(names))


def _legend_columns(names: Sequence[str]) -> int:
    """As many as there is room for, but no more than fill the rows that it takes."""
    most = max(1, min(len(names), LEGEND_LETTERS // (max(map(len, names)) + 6)))
    rows = -(-len(names) // most)
    return -(-len(names) // rows)
