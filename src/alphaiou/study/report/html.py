"""Parts of a page as text: elements, tables, and charts with their values."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from alphaiou._figures import CATEGORICAL, INK, STYLE, figure_svg

if TYPE_CHECKING:
    from alphaiou.study.figures import Chart

#: The colours of figures and their counterparts in the style sheet, which has dark ones too.
PAGE_COLOURS = {
    **{colour.lower(): f"var(--s{number})" for number, colour in enumerate(CATEGORICAL)},
    INK: "var(--ink)",
    str(STYLE["axes.edgecolor"]).lower(): "var(--quiet)",
    str(STYLE["grid.color"]).lower(): "var(--rule)",
    "#ffffff": "var(--panel)",  # inside hollow marks
}
_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
#: A fallback with the widths of DejaVu Sans, by which the text was placed.
FONTS = "'DejaVu Sans', Verdana, sans-serif"


def whole_page(title: str, body: str) -> str:
    """A page of a title and the markup of its body, which loads nothing."""
    template = files("alphaiou.study.report").joinpath("template.html").read_text(encoding="utf-8")
    return Template(template).substitute(title=escape(title), body=body)


def escape(text: object) -> str:
    """Text as HTML."""
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


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", **attributes: object
) -> str:
    """A table of text; the first column heads its rows."""
    titles = (tag("th", escape(cell), scope="col") for cell in head)
    lines = (
        tag("tr", tag("th", escape(row[0]), scope="row"), *(tag("td", escape(c)) for c in row[1:]))
        for row in rows
    )
    named = tag("caption", escape(caption)) if caption else ""
    body = tag("thead", tag("tr", *titles)) + tag("tbody", *lines)
    return tag("table", named, body, **attributes)


def scrolling(label: str, *children: str) -> str:
    """A region that scrolls by itself where it is wider than the page."""
    return tag("div", *children, class_="scroll", tabindex=0, role="region", aria_label=label)


def series_class(number: int) -> str:
    """The class of a series, which gives it a colour.

    Examples:
        >>> series_class(1), series_class(8)
        ('s1', 's1')
    """
    return f"s{number % len(CATEGORICAL)}"


def chart_figure(chart: Chart, mark: str) -> str:
    """A chart as SVG within the page, its note, and a table of its values.

    Args:
        chart: The chart.
        mark: A name that no other chart of the page has.
    """
    names = dict.fromkeys(name for panel in chart.panels for name in panel.lines)
    label = f"{chart.title}: {', '.join(names)}"
    tables = [table(head, rows, title, class_="values") for title, head, rows in chart.values()]
    values = tag(
        "details", tag("summary", "Values"), scrolling(f"Values of {chart.title}", *tables)
    )
    note = tag("p", escape(chart.note), class_="note") if chart.note else ""
    return tag(
        "figure",
        tag("figcaption", tag("h3", escape(chart.title))),
        scrolling(chart.title, inline_svg(figure_svg(chart.draw), label, mark)),
        note,
        values,
        class_="chart",
    )


def inline_svg(svg: str, label: str, mark: str) -> str:
    """An SVG file of matplotlib as part of a page: with the page's colours, and its own ids.

    Args:
        svg: The file.
        label: The text for readers who do not see it.
        mark: A name that no other picture of the page has.
    """
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None  # matplotlib writes one
    body = svg[svg.index(">") + 1 :]
    # Only clip paths and markers are referred to; the ids of groups are the same in every figure.
    body = re.sub(r'<g id="[^"]*">', "<g>", body)
    body = re.sub(r' id="([^"]+)"', rf' id="{mark}-\1"', body)
    body = re.sub(r'(href="|url\()#', rf"\1#{mark}-", body)
    body = _COLOUR.sub(lambda found: PAGE_COLOURS.get(found[0], found[0]), body)
    body = body.replace("'DejaVu Sans'", FONTS)
    return f'<svg {view[0]} role="img" aria-label="{escape(label)}">{body}'
