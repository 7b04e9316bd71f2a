"""Figures of scores: precision against recall, and the IoU of detections with objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MultipleLocator

from alphaiou._figures import CATEGORICAL, DASHES, FULL_WIDTH, panel_title
from alphaiou._shapes import Float64
from alphaiou.metrics import Scores, counts_above

CURVE_THRESHOLDS = (0.5, 0.75, 0.9)
BINS = np.linspace(0.5, 1.0, 26)
LINE_LENGTH = 110  # letters of the legend across a figure


def precision_recall_figure(scores: Mapping[str, Scores]) -> Figure:
    """Precision against recall at three IoU thresholds, the mean over the classes."""
    figure = _figure(2.95, scores)
    panels = figure.subplots(1, len(CURVE_THRESHOLDS), sharey=True)
    for letter, axes, iou in zip("abc", panels, CURVE_THRESHOLDS, strict=True):
        for (name, one), look in zip(scores.items(), looks(len(scores)), strict=True):
            axes.plot(*one.precision_recall(iou), label=name, **look)
            axes.text(
                0.97,
                0.96 - 0.085 * list(scores).index(name),
                f"{100 * one.ap[round(100 * iou)]:.1f}",
                color=look["color"],
                transform=axes.transAxes,
                ha="right",
                va="top",
            )
        panel_title(axes, letter, f"IoU ≥ {iou:g}, with AP")
        axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="recall")
        axes.set_aspect("equal")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MultipleLocator(0.25))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    panels[0].set_ylabel("precision")
    _legend(figure, scores)
    return figure


def iou_figure(ious: Mapping[str, Float64[np.ndarray, " detections"]]) -> Figure:
    """The paper's figure of IoU distributions: detections by IoU, and counts above thresholds.

    Args:
        ious: The result of ``detection_ious`` by the name of the predictions.
    """
    figure = _figure(2.75, ious)
    left, right = figure.subplots(1, 2)
    for (name, one), look in zip(ious.items(), looks(len(ious)), strict=True):
        counts, edges = np.histogram(one, BINS)
        left.stairs(counts, edges, baseline=None, label=name, linewidth=1.4, **look)
    panel_title(left, "a", "Detections by their IoU with the best object")
    left.set(xlim=(0.5, 1), xlabel="IoU", ylabel="detections, in steps of .02")
    left.set_ylim(bottom=0)
    _draw_counts(right, [counts_above(one) for one in ious.values()])
    for axes in (left, right):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    _legend(figure, ious)
    return figure


def looks(count: int) -> list[dict[str, Any]]:
    """The styles of some lines: colours, and dashes once the colours are used up."""
    return [
        {
            "color": CATEGORICAL[i % len(CATEGORICAL)],
            "linestyle": (0, DASHES[i // len(CATEGORICAL) % len(DASHES)] or (1, 0)),
        }
        for i in range(count)
    ]


def _draw_counts(axes: Axes, counts: Sequence[Mapping[float, int]]) -> None:
    """Bars side by side; with two sets, the change in percent above them."""
    places, width = np.arange(len(counts[0])), 0.8 / len(counts)
    for number, (one, look) in enumerate(zip(counts, looks(len(counts)), strict=True)):
        shift = (number - (len(counts) - 1) / 2) * width
        axes.bar(places + shift, list(one.values()), 0.92 * width, color=look["color"])
    if len(counts) == 2:
        for place, before, after in zip(places, *(one.values() for one in counts), strict=True):
            text = f"{100 * (after - before) / before:+.0f}%" if before else "–"
            axes.annotate(
                text,
                (float(place), max(before, after)),
                xytext=(0, 2),
                textcoords="offset points",
                ha="center",
                fontsize=6.5,
            )
    axes.set_xticks(places, [f"{threshold:g}".lstrip("0") for threshold in counts[0]])
    axes.grid(False, axis="x")
    axes.margins(y=0.1)
    axes.set(xlabel="IoU at least", ylabel="detections")
    panel_title(axes, "b", "Detections of at least an IoU")


def _figure(height: float, named: Mapping[str, object]) -> Figure:
    """A figure with room for its legend."""
    rows = -(-len(named) // _legend_columns(named))
    return Figure(figsize=(FULL_WIDTH, height + 0.16 * (rows - 1)), layout="constrained")


def _legend(figure: Figure, named: Mapping[str, object]) -> None:
    if len(named) > 1:
        handles, _ = figure.axes[0].get_legend_handles_labels()
        labels = [_short(name) for name in named]
        columns = _legend_columns(named)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def _legend_columns(named: Mapping[str, object]) -> int:
    longest = max(len(_short(name)) for name in named)
    return max(1, min(len(named), 4, LINE_LENGTH // (longest + 6)))


def _short(name: str) -> str:
    """The end of a long name, where paths differ."""
    return name if len(name) <= LINE_LENGTH // 2 else f"…{name[1 - LINE_LENGTH // 2 :]}"
