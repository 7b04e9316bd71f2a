"""Charts of a page whose values can be read off: by pointer, by finger and by keyboard."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from alphaiou.experiments.html import (
    HEIGHT,
    WIDTH,
    Axis,
    escape,
    grid_lines,
    legend,
    position,
    series_class,
    tag,
)
from alphaiou.experiments.paper_series import Point

#: Percent from the bottom of a chart to its top at least: less would draw rounding.
LEAST_SPAN = 1.0
Lines = Mapping[str, Sequence[Point]]


def band_chart(lines: Lines, title: str, x_label: str, y_label: str = "%") -> str:
    """A figure with a line a series and a band where it has an interval.

    The page's script shows the values at the place that is pointed at; without it the figure is a
    plain one.

    Examples:
        >>> chart = band_chart({"IoU": [Point(1, 2, 1, 3), Point(2, 3, 3, 3)]}, "mAP", "epoch")
        >>> chart.count("<polyline"), chart.count("<polygon")
        (1, 1)
    """
    x, y = axes_of(lines, x_label, y_label)
    drawn = [
        part
        for number, points in enumerate(lines.values())
        for part in _line(points, series_class(number), x, y)
    ]
    names = ", ".join(lines)
    drawing = tag(
        "svg",
        *grid_lines(x, y),
        *drawn,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {names}",
    )
    return tag(
        "figure",
        tag("h3", escape(title)),
        drawing,
        legend(lines),
        tag("p", class_="reading", aria_live="polite"),
        _data(lines, x, y),
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
    upper = [position(point.x, point.high, x, y) for point in points]
    lower = [position(point.x, point.low, x, y) for point in reversed(points)]
    parts = [tag("polyline", class_=look, points=_path(means))]
    if upper != lower[::-1]:
        parts.insert(0, tag("polygon", class_=f"band {look}", points=_path([*upper, *lower])))
    dots = (
        tag("circle", class_=f"dot {look}", cx=across, cy=down, r=2.6) for across, down in means
    )
    return [*parts, *dots]


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{across},{down}" for across, down in places)


def _data(lines: Lines, x: Axis, y: Axis) -> str:
    """What the script reads: where the values are, and what to say there."""
    series = [
        {
            "name": name,
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
    interval = f" ({point.low:.2f} to {point.high:.2f})" if point.low < point.high else ""
    return f"{point.mean:.2f}{interval}"
