"""Which charts the page shows of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from alphaiou.experiments.grid import Grid
from alphaiou.experiments.html import tag
from alphaiou.experiments.paper_changes import change_sweeps, changes_along, published_along
from alphaiou.experiments.paper_charts import band_chart, dot_chart
from alphaiou.experiments.paper_exchange import ACROSS, JOINED, exchange_points
from alphaiou.experiments.paper_found import found_changes, found_lines
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_search import WANTED
from alphaiou.experiments.paper_series import curves, sweeps_of, swept
from alphaiou.experiments.score_tables import column_title

CHARTS = ("ap50", "map", "map75_95", "ap95")


def grid_charts(grid: Grid, cells: Mapping[str, CellRuns], drawn: Mapping[str, CellRuns]) -> str:
    """Against what is varied where that is many values, else by epoch; and how boxes lie.

    Where rows are compared at every value, what changes there is shown: the levels of all of them
    lie on one another.

    Args:
        grid: What is shown.
        cells: Its runs.
        drawn: These, and those of other grids that belong to its pictures.
    """
    if grid.found_shares:
        charts = _found(cells)
    elif grid.searches:
        charts = _exchanges(cells)
    else:
        charts = _changes(drawn) or _sweeps(drawn) or _by_epoch(cells)
        charts += _found(cells) if grid.pictures else []
    return tag("div", *charts, class_="charts")


def _by_epoch(cells: Mapping[str, CellRuns]) -> list[str]:
    scored = {score: curves(cells, score) for score in CHARTS}
    return [
        band_chart(lines, f"{column_title(score)} by epoch", "epoch")
        for score, lines in scored.items()
        if all(lines.values())
    ]


def _found(cells: Mapping[str, CellRuns]) -> list[str]:
    """How well boxes lie: objects found by IoU, and by how many more than the baseline."""
    lines, changes = found_lines(cells), found_changes(cells)
    title = "Objects found with at least this IoU"
    charts = [band_chart(lines, title, "IoU", "% of objects")] if lines else []
    if lines and changes:
        change = f"{title}, change"
        charts.append(band_chart(changes, change, "IoU", "change in %", among=lines))
    return charts


def _exchanges(cells: Mapping[str, CellRuns]) -> list[str]:
    """What candidates give for what they gain; a line for each of them would be a thicket."""
    given = f"{column_title(ACROSS)}, change in %"
    points = {score: exchange_points(cells, score) for score in WANTED}
    return [
        dot_chart(
            groups,
            f"{column_title(score)} against {column_title(ACROSS)}, both against IoU at its best",
            given,
            100 * WANTED[score],
            joined=JOINED,
        )
        for score, groups in points.items()
        if groups
    ]


def _sweeps(cells: Mapping[str, CellRuns]) -> list[str]:
    return [
        band_chart(
            swept(cells, sweep, score),
            f"{column_title(score)} against {sweep.label}",
            sweep.label,
        )
        for sweep in sweeps_of(cells)
        for score in CHARTS
    ]


def _changes(cells: Mapping[str, CellRuns]) -> list[str]:
    """What rows change against their baselines, ours and as the paper prints it."""
    charts = []
    for sweep, score in product(change_sweeps(cells), CHARTS):
        lines, printed = (made(cells, sweep, score) for made in (changes_along, published_along))
        if lines:
            beside = {name: points for name, points in printed.items() if name in lines}
            title = f"{column_title(score)}, change against {sweep.label}"
            charts.append(band_chart(lines, title, sweep.label, "change in %", beside=beside))
    return charts
