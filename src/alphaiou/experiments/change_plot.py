"""The plot of what rows change against their baselines along what both vary, beside the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphaiou.experiments.paper_changes import changes_along, published_along
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_series import ON_A_LOGARITHM, Point, Sweep
from alphaiou.experiments.score_figures import looks
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.style import FULL_WIDTH, panel_title, values_only

PANELS = ("ap50", "map", "map75_95")
IN_THE_PAPER = "the same in the paper"
PUBLISHED: dict[str, Any] = {"lw": 0.9, "ls": (0, (3, 2.2)), "marker": "x", "ms": 4, "mew": 0.9}
MARK: dict[str, Any] = {"marker": "o", "ms": 4.5}


def change_figure(cells: Mapping[str, CellRuns], sweep: Sweep) -> Figure:
    """Changes in percent of the baselines, with intervals; hollow marks have one seed.

    What the paper prints for the same rows is dashed, in the same colours.
    """
    figure = Figure(figsize=(FULL_WIDTH, 2.7), layout="constrained")
    panels = figure.subplots(1, len(PANELS))
    is_printed = False
    for letter, axes, score in zip("abc", panels, PANELS, strict=True):
        axes.axhline(0, color="#8C8C8C", lw=0.6, zorder=0)
        own, printed = (made(cells, sweep, score) for made in (changes_along, published_along))
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
