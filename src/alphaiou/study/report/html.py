"""Pages and charts as text: HTML and SVG that take their colours from the page's style sheet."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: Colours that the style sheet has for series, as classes ``s0`` to ``s6``.
SERIES_COLOURS = 7
WIDTH, HEIGHT = 400, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40  # margins around the area of a chart

Points = Sequence[tuple[float, float]]


def escape(text: object) -> str:
    """Text as it may stand in a page."""
    return html.escape(str(text))


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element; children are markup, attributes are text, ``class_`` is ``class``.

    Examples:
        >>> tag("p", escape("a < b"), class_="note")
        '<p class="note">a &lt; b</p>'
    """
    named = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items()}
    inside = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    return f"<{name}{inside}>{''.join(children)}</{name}>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text; the first column heads its rows."""
    titles = (tag("th", escape(cell), scope="col") for cell in head)
    lines = (
        tag("tr", tag("th", escape(row[0]), scope="row"), *(tag("td", escape(c)) for c in row[1:]))
        for row in rows
    )
    return tag("table", tag("thead", tag("tr", *titles)), tag("tbody", *lines))


@dataclass(frozen=True)
class Axis:
    """An axis of a chart.

    Attributes:
        label: What it shows.
        low: Where it starts.
        high: Where it ends.
        whole: Whether it counts, so that there is nothing between 1 and 2.
    """

    label: str
    low: float
    high: float
    whole: bool = False

    def share(self, value: float) -> float:
        """How far along the axis a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round numbers along the axis, about five of them.

        Examples:
            >>> Axis("", 0, 9).ticks(), Axis("", 0.5, 1).ticks()
            ([0.0, 2.0, 4.0, 6.0, 8.0], [0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
        """
        rough = max((self.high - self.low) / 5, float(self.whole))
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(m * power for m in (1, 2, 5, 10) if m * power >= 0.999 * rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(place * step, 10) for place in range(first, last + 1)]


def spanning(label: str, values: Iterable[float]) -> Axis:
    """An axis from 0 to a little more than the largest value.

    Examples:
        >>> spanning("loss", [1.0, 2.0]).high
        2.1
    """
    highest = max(values, default=0.0)
    return Axis(label, 0.0, 1.05 * highest if highest > 0 else 1.0)


def line_chart(series: Mapping[str, Points], x: Axis, y: Axis, title: str) -> str:
    """A figure with a line a series and a legend; series without points are named there too.

    Examples:
        >>> chart = line_chart({"IoU": [(0, 0), (1, 2)]}, Axis("epoch", 0, 1), Axis("", 0, 2), "a")
        >>> 'class="s0"' in chart
        True
    """
    lines = [
        tag("polyline", class_=series_class(number), points=_path(points, x, y))
        for number, points in enumerate(series.values())
    ]
    drawing = tag(
        "svg",
        *grid_lines(x, y),
        *lines,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=f"{title}: {', '.join(series)}",
    )
    return tag("figure", tag("h3", escape(title)), drawing, legend(series_looks(series)))


def legend(looks: Mapping[str, str]) -> str:
    """The names of series in their styles."""
    keys = (tag("span", escape(name), class_=f"key {look}") for name, look in looks.items())
    return tag("figcaption", *keys)


def series_looks(names: Iterable[str]) -> dict[str, str]:
    """The style of each of some series, by their order."""
    return {name: series_class(number) for number, name in enumerate(names)}


def series_class(number: int) -> str:
    """The style of a series: a colour, and dashes once the colours are used up.

    Examples:
        >>> series_class(1), series_class(8)
        ('s1', 's1 dashed')
    """
    return f"s{number % SERIES_COLOURS}" + " dashed" * (number >= SERIES_COLOURS)


def steps(counts: Sequence[float], edges: Sequence[float]) -> Points:
    """The outline of a histogram.

    Examples:
        >>> steps([3, 1], [0, 1, 2])
        [(0, 3), (1, 3), (1, 1), (2, 1)]
    """
    return [
        (edge, count) for count, ends in zip(counts, pairwise(edges), strict=True) for edge in ends
    ]


def grid_lines(x: Axis, y: Axis) -> list[str]:
    """Lines and numbers at the ticks, and the names of the axes."""
    parts = []
    for value in y.ticks():
        level = position(x.low, value, x, y)[1]
        parts.append(tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=level, y2=level))
        parts.append(tag("text", f"{value:g}", x=LEFT - 6, y=level + 4, text_anchor="end"))
    floor = HEIGHT - BOTTOM
    for value in x.ticks():
        place = position(value, y.low, x, y)[0]
        parts.append(tag("text", f"{value:g}", x=place, y=floor + 16, text_anchor="middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(tag("text", escape(x.label), x=middle, y=HEIGHT - 6, text_anchor="middle"))
    turned = f"rotate(-90 12 {(TOP + floor) / 2})"
    up = {"x": 12, "y": (TOP + floor) / 2, "text_anchor": "middle", "transform": turned}
    return [*parts, tag("text", escape(y.label), **up)]


def _path(points: Points, x: Axis, y: Axis) -> str:
    places = (position(*point, x, y) for point in points)
    return " ".join(f"{across},{down}" for across, down in places)


def position(across: float, up: float, x: Axis, y: Axis) -> tuple[float, float]:
    """Where a point lies in the drawing."""
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    return round(LEFT + width * x.share(across), 1), round(TOP + height * (1 - y.share(up)), 1)
