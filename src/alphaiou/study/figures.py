"""The charts of a grid: scores by epoch, against what its rows vary, and IoU of detections.

A chart holds the values that it draws, so that the report can print them beside the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from alphaiou._figures import FULL_WIDTH, INK, panel_title, save_figure, values_only
from alphaiou.inference.figures import looks
from alphaiou.metrics.columns import column_title
from alphaiou.study.detections import Findings
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, comparable_rows, drawn_runs, grid_runs
from alphaiou.study.series import (
    MOST_ROWS,
    Point,
    Sweep,
    change_sweeps,
    changes_along,
    curves,
    found_changes,
    found_lines,
    loss_curves,
    published_along,
    shared_loss_parts,
    sweeps_of,
    swept,
)

PANELS = ("ap50", "map75_95", "ap95")
CHANGE_PANELS = ("ap50", "map", "map75_95")
IN_THE_PAPER = "the same in the paper"
LEGEND_LETTERS = 105  # across a figure
AXIS_GREY = "#8C8C8C"
PUBLISHED: dict[str, Any] = {"lw": 0.9, "ls": (0, (3, 2.2)), "marker": "x", "ms": 4, "mew": 0.9}
MARKER: dict[str, Any] = {"marker": "o", "ms": 4.5}
BINS = np.linspace(0.5, 1.0, 21)

Lines = Mapping[str, Sequence[Point]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: What is shown, with its unit.
        x_label: The label of the x axis.
        lines: The points of each series.
        kind: ``bands`` are lines with bands that span the seeds, ``changes`` lines with an interval
            at each mark, ``bars`` bars with the span of the seeds, ``steps`` the outlines of
            histograms.
        published: What the paper prints for some of the series: dashed.
        only_values: Whether the x axis marks the values of the points and no others.
        is_logarithmic: Whether the x axis is.
        digits: Decimals of the values when they are printed.
    """

    title: str
    x_label: str
    lines: Lines
    kind: Literal["bands", "changes", "bars", "steps"] = "bands"
    published: Lines = field(default_factory=dict)
    only_values: bool = False
    is_logarithmic: bool = False
    digits: int = 2

    @property
    def x(self) -> list[float]:
        """Every value on the x axis, ascending."""
        return sorted({point.x for points in self.lines.values() for point in points})

    def values(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of a table of all values, one column per series."""
        series = dict(self.lines)
        series |= {f"{name}, in the paper": points for name, points in self.published.items()}
        columns = [{point.x: point for point in points} for points in series.values()]
        rows = [[f"{x:g}", *(self._text(column.get(x)) for column in columns)] for x in self.x]
        return [self.x_label, *series], rows

    def _text(self, point: Point | None) -> str:
        if point is None:
            return "–"
        mean, low, high = (f"{v:.{self.digits}f}" for v in (point.mean, point.low, point.high))
        return f"{mean} ({low} to {high})" if point.low < point.high else mean


@dataclass(frozen=True)
class Chart:
    """A figure of a grid, and the values that it draws.

    Attributes:
        title: Its title.
        panels: The panels, from left to right.
        note: What a reader has to know about it.
    """

    title: str
    panels: tuple[Panel, ...]
    note: str = ""

    def draw(self) -> Figure:
        """The figure; series have the same colour in every panel."""
        names = list(dict.fromkeys(name for panel in self.panels for name in panel.lines))
        style = dict(zip(names, looks(len(names)), strict=True))
        legend_rows = -(-len(names) // _legend_columns(names))
        figure = Figure(figsize=(FULL_WIDTH, 2.5 + 0.16 * legend_rows), layout="constrained")
        row = figure.subplots(1, len(self.panels), squeeze=False)[0]
        for letter, axes, panel in zip("abcdef", row, self.panels, strict=False):
            _DRAW[panel.kind](axes, panel, style)
            if panel.is_logarithmic and panel.x and panel.x[0] > 0:
                axes.set_xscale("log")
            if panel.only_values:
                values_only(axes, panel.x)
            elif panel.kind == "bands":  # epochs
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.set(xlabel=panel.x_label)
            if len(self.panels) > 1:
                panel_title(axes, letter, panel.title)
            else:
                axes.set_title(panel.title, color=INK)
        _legend(figure, names, has_published=any(panel.published for panel in self.panels))
        return figure

    def values(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """A table of the values of each panel: its title, its head and its rows."""
        return [(panel.title, *panel.values()) for panel in self.panels]


# Which charts a grid has


def grid_figures(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Chart]:
    """The charts that the records of a grid allow, by name.

    Where the rows vary a setting, the scores are drawn against it: as changes if every value has
    a baseline, since the scores themselves would lie on top of one another. Otherwise scores and
    losses are drawn by epoch. A grid with pictures or found shares also has a chart of how well
    detections fit the objects.

    Args:
        grid: Its rows and seeds.
        records: By the names of their runs.
    """
    rows, drawn = grid_runs(grid, records), drawn_runs(grid, records)
    comparable = comparable_rows(drawn, records)
    charts: dict[str, Chart] = {}
    if not grid.found_shares:
        changing = change_sweeps(drawn)
        for sweep in sweeps_of(drawn):
            if sweep in changing:
                charts[f"{sweep.name}-change"] = change_chart(drawn, sweep, comparable)
            else:
                charts[sweep.name] = sweep_chart(drawn, sweep)
        charts = charts or {"curves": curves_chart(rows), "losses": loss_chart(rows)}
    if grid.pictures or grid.found_shares:
        charts["ious"] = found_chart(rows, comparable)
    return {name: chart for name, chart in charts.items() if chart.panels}


def save_plots(grid: Grid, records: Mapping[str, RunRecord], out: Path) -> list[Path]:
    """Draw the charts of a grid as PNG and SVG files, the same bytes each time.

    Args:
        grid: Its rows and seeds.
        records: By the names of their runs.
        out: The folder to write to.
    """
    return [
        path
        for name, chart in grid_figures(grid, records).items()
        for path in save_figure(chart.draw, out / f"{grid.name}-{name}")
    ]


# Charts


def curves_chart(rows: Mapping[str, RowRuns]) -> Chart:
    """Three scores by epoch; bands span the seeds."""
    panels = (
        Panel(f"{column_title(score)}, %", "epoch", _not_empty(curves(rows, score)))
        for score in PANELS
    )
    return Chart("Scores by epoch", _with_lines(panels), _bands_note(rows))


def loss_chart(rows: Mapping[str, RowRuns]) -> Chart:
    """The training loss of the boxes and of everything else by epoch."""
    parts = shared_loss_parts(rows)
    others = [part for part in parts if part != "box"]
    groups = {"box loss": ["box"] if "box" in parts else []}
    groups |= {f"{' + '.join(others).replace('_', ' ')} loss": others} if others else {}
    if sum(bool(row.runs) for row in rows.values()) > MOST_ROWS:
        groups = {}
    panels = (
        Panel(title.capitalize(), "epoch", loss_curves(rows, group), digits=4)
        for title, group in groups.items()
        if group
    )
    return Chart(
        "Training losses",
        _with_lines(panels),
        "Compare the shapes of the box losses, not their heights: a power changes the scale of a "
        "loss.",
    )


def sweep_chart(rows: Mapping[str, RowRuns], sweep: Sweep) -> Chart:
    """Three scores against a setting; bands span the seeds."""
    panels = (
        Panel(
            f"{column_title(score)}, %",
            sweep.label,
            swept(rows, sweep, score),
            only_values=True,
            is_logarithmic=sweep.is_logarithmic,
        )
        for score in PANELS
    )
    return Chart(
        f"Scores against {sweep.label}",
        _with_lines(panels),
        f"The points of a line are means over the seeds that all of them have. {_bands_note(rows)}",
    )


def change_chart(
    rows: Mapping[str, RowRuns], sweep: Sweep, comparable: Mapping[str, RowRuns] | None = None
) -> Chart:
    """Changes in percent of the baselines against a setting, with what the paper prints."""
    panels = []
    for score in CHANGE_PANELS:
        lines = changes_along(rows, sweep, score, comparable)
        published = published_along(rows, sweep, score)
        panels.append(
            Panel(
                f"{column_title(score)}, change in %",
                sweep.label,
                lines,
                kind="changes",
                published={name: points for name, points in published.items() if name in lines},
                only_values=True,
                is_logarithmic=sweep.is_logarithmic,
            )
        )
    return Chart(
        f"Changes against {sweep.label}",
        _with_lines(panels),
        "Changes against the baseline with their 95 % intervals; hollow marks have one seed.",
    )


def found_chart(
    rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> Chart:
    """Shares of all objects that are found, and the changes against the baselines."""
    label = "IoU at least"
    panels = (
        Panel("Objects found, % of all", label, found_lines(rows), kind="bars"),
        Panel(
            "Change against the baseline, %", label, found_changes(rows, comparable), kind="changes"
        ),
    )
    return Chart(
        "Objects found with at least an IoU",
        _with_lines(panels) if panels[0].lines else (),
        "Lines on bars span the seeds; changes have their 95 % intervals; hollow marks have one "
        "seed.",
    )


def distribution_chart(findings: Mapping[str, Findings]) -> Chart:
    """The IoU of detections with the objects that they find, as histograms.

    Args:
        findings: The findings of a detector by the label of its row.
    """
    lines = {}
    for label, one in findings.items():
        shares = 100 * np.histogram(one.ious, BINS)[0] / max(one.objects, 1)
        points = [Point(x, y, y, y) for x, y in zip(BINS.tolist(), shares.tolist(), strict=False)]
        lines[label] = points
    panel = Panel("Objects, % of all, in steps of .025", "IoU", lines, kind="steps")
    return Chart("IoU of detections with their objects", _with_lines([panel]))


def _bands_note(rows: Mapping[str, RowRuns]) -> str:
    has_seeds = any(len(row.runs) > 1 for row in rows.values())
    return "Lines are means over several seeds, bands span the seeds." if has_seeds else ""


def _not_empty(lines: Lines) -> Lines:
    return {name: points for name, points in lines.items() if points}


def _with_lines(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    return tuple(panel for panel in panels if panel.lines)


# Drawing

#: The colour and the dashes of each series.
Style = Mapping[str, dict[str, Any]]


def draw_changes(axes: Axes, points: Sequence[Point], name: str, look: Mapping[str, Any]) -> None:
    """A line of changes with their intervals; hollow marks have one seed."""
    axes.plot(*_places(points), label=name, **look, **MARKER)
    for point in points:
        axes.plot([point.x] * 2, [point.low, point.high], lw=0.9, color=look["color"])
        if point.alone:
            axes.plot(point.x, point.mean, mec=look["color"], mfc="white", **MARKER)


def _bands(axes: Axes, panel: Panel, style: Style) -> None:
    for name, points in panel.lines.items():
        axes.plot(*_places(points), marker=".", ms=4, label=name, **style[name])
        band = [point.low for point in points], [point.high for point in points]
        colour = style[name]["color"]
        axes.fill_between(_places(points)[0], *band, color=colour, alpha=0.16, linewidth=0)


def _changes(axes: Axes, panel: Panel, style: Style) -> None:
    axes.axhline(0, color=AXIS_GREY, lw=0.6, zorder=0)
    for name, points in panel.lines.items():
        draw_changes(axes, points, name, style[name])
        published = panel.published.get(name, ())
        axes.plot(*_places(published), color=style[name]["color"], **PUBLISHED)


def _bars(axes: Axes, panel: Panel, style: Style) -> None:
    places, width = np.arange(len(panel.x)), 0.8 / len(panel.lines)
    for number, (name, points) in enumerate(panel.lines.items()):
        shift = (number - (len(panel.lines) - 1) / 2) * width
        ends = np.array([[p.mean - p.low, p.high - p.mean] for p in points]).T
        axes.bar(
            places + shift,
            [point.mean for point in points],
            0.92 * width,
            color=style[name]["color"],
            yerr=None if all(point.alone for point in points) else ends,
            error_kw={"elinewidth": 0.7, "ecolor": INK},
            label=name,
        )
    axes.set_xticks(places, [f"{threshold:g}".lstrip("0") for threshold in panel.x])
    axes.grid(False, axis="x")


def _steps(axes: Axes, panel: Panel, style: Style) -> None:
    for name, points in panel.lines.items():
        x, y = _places(points)
        axes.step([*x, 1.0], [*y, y[-1]], where="post", label=name, **style[name])
    axes.set(xlim=(panel.x[0], 1.0))
    axes.set_ylim(bottom=0)


_DRAW: dict[str, Callable[[Axes, Panel, Style], None]] = {
    "bands": _bands,
    "changes": _changes,
    "bars": _bars,
    "steps": _steps,
}


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [point.x for point in points], [point.mean for point in points]


def _legend(figure: Figure, names: Sequence[str], *, has_published: bool) -> None:
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    columns = _legend_columns(names)
    if has_published:
        (handles[IN_THE_PAPER],) = figure.axes[0].plot([], [], color=AXIS_GREY, **PUBLISHED)
        columns = _legend_columns([*names, IN_THE_PAPER])
    figure.legend(handles.values(), list(handles), loc="outside lower center", ncols=columns)


def _legend_columns(names: Sequence[str]) -> int:
    """As many as fit across the figure, but no more than fill the rows that it takes."""
    most = max(1, min(len(names), LEGEND_LETTERS // (max(map(len, names)) + 6)))
    rows = -(-len(names) // most)
    return -(-len(names) // rows)
