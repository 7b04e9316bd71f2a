"""Plots of a grid: scores by epoch, against α, gain or noise, and how well detections lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from alphaiou.experiments.change_plot import change_figure
from alphaiou.experiments.exchange_plot import exchange_figure
from alphaiou.experiments.found_plot import found_figure
from alphaiou.experiments.grid import Grid
from alphaiou.experiments.paper_changes import change_sweeps
from alphaiou.experiments.paper_found import found_lines
from alphaiou.experiments.paper_records import CellRuns, RunRecord, drawn_scores, grid_scores
from alphaiou.experiments.paper_search import exchanges
from alphaiou.experiments.paper_series import ON_A_LOGARITHM, Point, Sweep, curves, sweeps_of, swept
from alphaiou.experiments.score_figures import looks
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.style import FULL_WIDTH, panel_title, save_figure, values_only

PANELS = ("ap50", "map75_95", "ap95")
LEGEND_LETTERS = 105  # across a figure


def save_plots(grid: Grid, records: Mapping[str, RunRecord], out: Path) -> list[Path]:
    """Draw everything that the records of a grid allow, as PNG and SVG, the same bytes each time.

    Args:
        grid: Its cells and seeds.
        records: By the names of their runs.
        out: The folder to write to.
    """
    return [
        path
        for name, draw in _drawings(grid, records).items()
        for path in save_figure(draw, out / f"{grid.name}-{name}")
    ]


def _drawings(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Callable[[], Figure]]:
    cells = grid_scores(grid, records)
    if grid.searches:  # of which a line a row would be a thicket
        return {"exchange": partial(exchange_figure, cells)} if exchanges(cells) else {}
    drawings: dict[str, Callable[[], Figure]] = {}
    if len(list(filter(None, curves(cells, PANELS[0]).values()))) > 1:
        drawings["curves"] = partial(curves_figure, cells)
    drawn = drawn_scores(grid, records)
    for sweep in sweeps_of(drawn):
        drawings[sweep.name] = partial(sweep_figure, drawn, sweep)
    for sweep in change_sweeps(drawn):
        drawings[f"{sweep.name}-change"] = partial(change_figure, drawn, sweep)
    if (grid.pictures or grid.found_shares) and found_lines(cells):
        drawings["ious"] = partial(found_figure, cells)
    return drawings


def curves_figure(cells: Mapping[str, CellRuns]) -> Figure:
    """Three scores by epoch; bands are the intervals of the means of several seeds."""
    return _panels({score: curves(cells, score) for score in PANELS}, "epoch")


def sweep_figure(cells: Mapping[str, CellRuns], sweep: Sweep) -> Figure:
    """Three scores against what the cells vary; bands are the intervals of the means."""
    figure = _panels({score: swept(cells, sweep, score) for score in PANELS}, sweep.label)
    values = sorted({sweep.value(own.cell.recipe) for own in cells.values()})
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
