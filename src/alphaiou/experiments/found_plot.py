"""The plot of the paper's IoU distributions: objects found with at least an IoU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphaiou.experiments.change_plot import draw_changes
from alphaiou.experiments.paper_found import found_changes, found_lines
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_series import Point
from alphaiou.experiments.score_figures import looks
from alphaiou.experiments.style import FULL_WIDTH, INK, panel_title


def found_figure(cells: Mapping[str, CellRuns]) -> Figure:
    """Shares of all objects as bars, and by how much rows differ from their baselines.

    Intervals are those of the means over seeds; hollow marks have one seed.
    """
    lines, changes = found_lines(cells), found_changes(cells)
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
