"""Which charts the page shows of a grid."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from alphaiou.inference.tables import column_title
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns
from alphaiou.study.report.html import (
    HEIGHT,
    WIDTH,
    Axis,
    escape,
    grid_lines,
    legend,
    position,
    series_looks,
    tag,
)
from alphaiou.study.series import (
    Point,
    change_sweeps,
    changes_along,
    curves,
    found_changes,
    found_lines,
    published_along,
    sweeps_of,
    swept,
)

#: Percent from the bottom of a chart to its top at least: less would draw rounding.
LEAST_SPAN = 1.0
Lines = Mapping[str, Sequence[Point]]


def band_chart(
    lines: Lines,
    title: str,
    x_label: str,
    y_label: str = "%",
    *,
    beside: Lines | None = None,
    among: Iterable[str] = (),
) -> str:
    """A figure with a line a series and a band where it has an interval.

    A line with points of one seed has their intervals in place of a band, and hollow marks there.

    The page's script shows the values at the place that is pointed at; without it the figure is a
    plain one.

    Args:
        lines: The points of each series.
        title: Of the figure.
        x_label: What is varied.
        y_label: What is shown.
        beside: What the paper prints for some of the series, by their names: dashed.
        among: The series of another figure, whose colours these have too.

    Examples:
        >>> chart = band_chart({"IoU": [Point(1, 2, 1, 3), Point(2, 3, 3, 3)]}, "mAP", "epoch")
        >>> chart.count("<polyline"), chart.count("<polygon")
        (1, 1)
    """
    every, whole = series_looks(among or lines), dict(lines)
    looks = {name: every[name] for name in lines}
    for name, points in (beside or {}).items():
        looks[f"{name}, in the paper"] = f"{looks[name]} dashed"
        whole[f"{name}, in the paper"] = points
    x, y = axes_of(whole, x_label, y_label)
    drawn = [part for name, points in whole.items() for part in _line(points, looks[name], x, y)]
    return _figure(whole, looks, drawn, title, (x, y))


def _figure(
    lines: Lines,
    looks: Mapping[str, str],
    drawn: Iterable[str],
    title: str,
    axes: tuple[Axis, Axis],
) -> str:
    names = ", ".join(lines)
    drawing = tag(
        "svg",
        *grid_lines(*axes),
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {names}",
    )
    return tag(
        "figure",
        tag("h3", escape(title)),
        drawing,
        legend(looks),
        tag("p", class_="reading", aria_live="polite"),
        _data(lines, looks, *axes),
        class_="chart",
        tabindex=0,
        role="group",
        aria_label=f"{title}; arrow keys read the values",
    )


def axes_of(lines: Lines, x_label: str, y_label: str) -> tuple[Axis, Axis]:
    """Axes that hold all points, with a little room above and below.

    Examples:
        >>> x, y = axes_of({"a": [Point(0, 10, 10, 10), Point(4, 20, 20, 20)]}, "", "")
        >>> x.low, x.high, y.low, y.high
        (0, 4, 9.2, 20.8)
    """
    points = [point for line in lines.values() for point in line]
    across = [point.x for point in points]
    left, right = min(across), max(across)
    if left == right:
        left, right = left - 1, right + 1
    low, high = min(point.low for point in points), max(point.high for point in points)
    room = max(0.08 * (high - low), (LEAST_SPAN - (high - low)) / 2)
    floor = 0.0 if low >= 0 else low - room
    whole = all(float(place).is_integer() for place in across)
    return Axis(x_label, left, right, whole), Axis(y_label, max(low - room, floor), high + room)


def _line(points: Sequence[Point], look: str, x: Axis, y: Axis) -> list[str]:
    means = [position(point.x, point.mean, x, y) for point in points]
    path = tag("polyline", class_=look, points=_path(means))
    if any(point.alone for point in points):
        # A band would be thinnest where least is known.
        return [path, *(part for point in points for part in _dot(point, look, x, y))]
    upper = [position(point.x, point.high, x, y) for point in points]
    lower = [position(point.x, point.low, x, y) for point in reversed(points)]
    band = tag("polygon", class_=f"band {look}", points=_path([*upper, *lower]))
    dots = (
        tag("circle", class_=f"dot {look}", cx=across, cy=down, r=2.6) for across, down in means
    )
    return [*([band] if upper != lower[::-1] else []), path, *dots]


def _dot(point: Point, look: str, x: Axis, y: Axis) -> list[str]:
    (across, low), (_, high) = (position(point.x, end, x, y) for end in (point.low, point.high))
    middle = position(point.x, point.mean, x, y)[1]
    interval = tag("line", class_=f"interval {look}", x1=across, x2=across, y1=low, y2=high)
    look = f"dot hollow {look}" if point.alone else f"dot {look}"
    dot = tag("circle", class_=look, cx=across, cy=middle, r=3.4)
    return [dot] if low == high else [interval, dot]


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{across},{down}" for across, down in places)


def _data(lines: Lines, looks: Mapping[str, str], x: Axis, y: Axis) -> str:
    """What the script reads: where the values are, and what to say there."""
    series = [
        {
            "name": name,
            "look": looks[name],
            "points": [
                {"at": position(point.x, point.mean, x, y), "x": point.x, "says": _says(point)}
                for point in points
            ],
        }
        for name, points in lines.items()
    ]
    text = json.dumps({"label": x.label, "series": series}, ensure_ascii=False)
    return tag("script", text.replace("<", "\\u003c"), type="application/json")


def _says(point: Point) -> str:
    name = f"{point.name} " if point.name else ""
    interval = f" ({point.low:.2f} to {point.high:.2f})" if point.low < point.high else ""
    return f"{name}{point.mean:.2f}{interval}"


CHARTS = ("ap50", "map", "map75_95", "ap95")


def grid_charts(grid: Grid, rows: Mapping[str, RowRuns], drawn: Mapping[str, RowRuns]) -> str:
    """Against what is varied where that is many values, else by epoch; and how boxes lie.

    Where rows are compared at every value, what changes there is shown: the levels of all of them
    lie on one another.

    Args:
        grid: What is shown.
        rows: Its runs.
        drawn: These, and those of other grids that belong to its pictures.
    """
    if grid.found_shares:
        charts = _found(rows)
    else:
        charts = _changes(drawn) or _sweeps(drawn) or _by_epoch(rows)
        charts += _found(rows) if grid.pictures else []
    return tag("div", *charts, class_="charts")


def _by_epoch(rows: Mapping[str, RowRuns]) -> list[str]:
    scored = {score: curves(rows, score) for score in CHARTS}
    return [
        band_chart(lines, f"{column_title(score)} by epoch", "epoch")
        for score, lines in scored.items()
        if all(lines.values())
    ]


def _found(rows: Mapping[str, RowRuns]) -> list[str]:
    """How well boxes lie: objects found by IoU, and by how many more than the baseline."""
    lines, changes = found_lines(rows), found_changes(rows)
    title = "Objects found with at least this IoU"
    charts = [band_chart(lines, title, "IoU", "% of objects")] if lines else []
    if lines and changes:
        change = f"{title}, change"
        charts.append(band_chart(changes, change, "IoU", "change in %", among=lines))
    return charts


def _sweeps(rows: Mapping[str, RowRuns]) -> list[str]:
    return [
        band_chart(
            swept(rows, sweep, score),
            f"{column_title(score)} against {sweep.label}",
            sweep.label,
        )
        for sweep in sweeps_of(rows)
        for score in CHARTS
    ]


def _changes(rows: Mapping[str, RowRuns]) -> list[str]:
    """What rows change against their baselines, ours and as the paper prints it."""
    charts = []
    for sweep, score in product(change_sweeps(rows), CHARTS):
        lines, printed = (made(rows, sweep, score) for made in (changes_along, published_along))
        if lines:
            beside = {name: points for name, points in printed.items() if name in lines}
            title = f"{column_title(score)}, change against {sweep.label}"
            charts.append(band_chart(lines, title, sweep.label, "change in %", beside=beside))
    return charts
