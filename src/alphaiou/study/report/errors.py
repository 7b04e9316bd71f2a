"""The error analysis of some detectors as a part of a page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from alphaiou.metrics.bootstrap import SAMPLES, Difference
from alphaiou.metrics.columns import column_title
from alphaiou.metrics.error_analysis import (
    BoxParts,
    ErrorAnalysis,
    ErrorComparison,
    ErrorGroup,
    ImageDifference,
)
from alphaiou.metrics.errors import ERROR_TYPES
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.metrics.localisation import PARTS
from alphaiou.study.figures import Chart, Panel
from alphaiou.study.report.html import chart_figure, escape, scrolling, table, tag
from alphaiou.study.series import MOST_ROWS, Point

#: A bin of scores with fewer detections than this is not drawn.
FEWEST = 10
ABOUT = (
    "TIDE's types. Each cell is what fixing all errors of a type would add to AP, in points; under "
    "it is the number of errors. The gains do not add up, since fixing one type can make room for "
    "another."
)
ABOUT_PARTS = (
    "The mean of 1 − IoU, in percent, and what the centre, the scale and the aspect of the box "
    "contribute to it: the Shapley values of correcting each of the three."
)

Named = Mapping[str, Sequence[ErrorAnalysis]]


def errors_part(analyses: Named, mark: str) -> str:
    """The tables and the chart of some detectors.

    Args:
        analyses: The analysis of every run of a detector, by its name; numbers are means over
            runs.
        mark: A name that no other part of the page has.
    """
    first = next(iter(analyses.values()))[0]
    parts = [tag("h3", "Errors by type"), tag("p", escape(ABOUT), class_="note")]
    for place, shown in enumerate(first.tables):
        parts.append(_types_table(analyses, place, f"Errors at IoU {_decimal(shown.iou)}"))
    parts += [tag("h3", "Where boxes are wrong"), tag("p", escape(ABOUT_PARTS), class_="note")]
    parts += [_parts_table(analyses), *_calibration(analyses, mark)]
    for name, several in analyses.items():
        suffix = " (first run)" if len(several) > 1 else ""
        title = f"Errors of {name} by class and by size{suffix}"
        tables = "".join(_groups_tables(several[0], place) for place in range(len(first.tables)))
        parts.append(tag("details", tag("summary", escape(title)), tables))
    return "".join(parts)


def _types_table(analyses: Named, place: int, title: str) -> str:
    head = tag("tr", *(tag("th", t, scope="col") for t in ("loss", "AP", *ERROR_TYPES)))
    rows = []
    for name, several in analyses.items():
        tables = [one.tables[place] for one in several]
        cells = [_cell(_percent(fmean(one.ap for one in tables)))]
        for kind in ERROR_TYPES:
            gain = fmean(one.delta_ap[kind] for one in tables)
            count = fmean(one.counts[kind] for one in tables)
            cells.append(_cell(_percent(gain), f"{count:,.0f}"))
        rows.append(_row(name, cells))
    whole = tag("table", tag("thead", head), tag("tbody", *rows), class_="study")
    return tag("h4", escape(title)) + scrolling(title, whole)


def _parts_table(analyses: Named) -> str:
    rows = []
    for name, several in analyses.items():
        kinds = {
            "true positives at .5": [one.tables[0].right for one in several],
            "localisation errors at .5": [one.tables[0].wrong_place for one in several],
        }
        for kind, boxes in kinds.items():
            known = [one for one in boxes if one.detections]
            if known:
                rows.append([f"{name}: {kind}", *_part_cells(known)])
    return scrolling(ABOUT_PARTS, table(["", "boxes", "1 − IoU", *PARTS], rows, class_="values"))


def _part_cells(boxes: Sequence[BoxParts]) -> list[str]:
    means = (fmean(one.parts[part] for one in boxes) for part in PARTS)
    return [
        f"{fmean(one.detections for one in boxes):,.0f}",
        _percent(fmean(one.error for one in boxes)),
        *map(_percent, means),
    ]


def _calibration(analyses: Named, mark: str) -> list[str]:
    """The chart of scores against IoU and precision, and a line of numbers per detector."""
    lines: dict[str, dict[str, list[Point]]] = {"iou": {}, "right": {}}
    facts = []
    for name, several in list(analyses.items())[:MOST_ROWS]:
        one = several[0].calibration
        bins = [part for part in one.bins if part.detections >= FEWEST]
        for key, values in (
            ("iou", [part.iou for part in bins]),
            ("right", [part.precision[50] for part in bins]),
        ):
            points = [
                Point(round(part.score, 3), value, value, value)
                for part, value in zip(bins, values, strict=True)
            ]
            if points:
                lines[key][name] = points
        facts.append(
            f"{name}: mean distance of score and IoU {one.iou_gap:.3f}, expected calibration error "
            f"{one.errors[50]:.3f} at IoU .5 and {one.errors[75]:.3f} at .75, rank correlation of "
            f"score and IoU {one.correlation:.2f}"
        )
    if not lines["iou"]:
        return []
    panels = (
        Panel("Mean IoU", "score", lines["iou"]),
        Panel("Precision at IoU .5", "score", lines["right"]),
    )
    note = "One point per tenth of the scores with ten detections or more; the first run of each."
    chart = Chart("Scores against what they promise", panels, note)
    return [
        chart_figure(chart, f"{mark}-calibration"),
        tag("p", escape("; ".join(facts) + "."), class_="note"),
    ]


def _groups_tables(analysis: ErrorAnalysis, place: int) -> str:
    shown = analysis.tables[place]
    title = f"At IoU {_decimal(shown.iou)}"
    return (
        tag("h4", escape(title))
        + _groups_table(shown.classes, f"{title}, by class")
        + _groups_table(shown.sizes, f"{title}, by size")
    )


def _groups_table(groups: Mapping[str, ErrorGroup], title: str) -> str:
    head = tag("tr", *(tag("th", t, scope="col") for t in ("", "AP", *ERROR_TYPES)))
    rows = []
    for name, group in groups.items():
        cells = [_cell("" if group.ap is None else _percent(group.ap))]
        cells += [
            _cell(_percent(group.delta_ap[kind]), f"{group.counts[kind]:,}") for kind in ERROR_TYPES
        ]
        rows.append(_row(name, cells))
    whole = tag("table", tag("thead", head), tag("tbody", *rows), class_="study")
    return scrolling(title, whole)


# Two detectors


def comparison_part(
    first: str, second: str, comparison: ErrorComparison, files: Mapping[int, str]
) -> str:
    """The differences of two detectors, with intervals, and the images that differ most.

    Args:
        first: The name of the baseline.
        second: The name of the other.
        comparison: The comparison.
        files: The file of each image by its number, where it is known.
    """
    about = (
        f"Differences with 95 % intervals from {SAMPLES:,} paired bootstrap samples of the images; "
        "bold where zero is outside. They do not cover another seed of the training."
    )
    scores = [[column_title(name), *_points(one)] for name, one in comparison.ap.items()]
    parts = [
        tag("h3", escape(f"{second} against {first}")),
        tag("p", escape(about), class_="note"),
        _difference_table(["AP, %", first, second, "difference"], scores),
    ]
    for percent, counts in comparison.counts.items():
        rows = [[name, *_numbers(one)] for name, one in counts.items()]
        head = [f"number at IoU .{percent}", first, second, "difference"]
        parts.append(_difference_table(head, rows))
    if comparison.images:
        title = "The images that differ most"
        rows = [_image_row(one, files) for one in comparison.images]
        head = ["image", "objects", f"right: {first}", second, f"wrong: {first}", second]
        note = f"Detections of a score of at least {SURE:g}, at IoU .5."
        listed = scrolling(title, table(head, rows, class_="values"))
        parts.append(
            tag("details", tag("summary", title), tag("p", escape(note), class_="note"), listed)
        )
    return "".join(parts)


def _image_row(one: ImageDifference, files: Mapping[int, str]) -> list[str]:
    name = files.get(one.image_id, str(one.image_id))
    return [name, str(one.objects), *map(str, (*one.right, *one.wrong))]


def _points(one: Difference) -> list[str]:
    first, second = _percent(one.first), _percent(one.second)
    low, high = 100 * one.low, 100 * one.high
    text = f"{100 * one.difference:+.2f} ({low:+.2f} to {high:+.2f})"
    return [first, second, f"*{text}" if one.is_clear else text]


def _numbers(one: Difference) -> list[str]:
    text = f"{one.difference:+,.0f} ({one.low:+,.0f} to {one.high:+,.0f})"
    return [f"{one.first:,.0f}", f"{one.second:,.0f}", f"*{text}" if one.is_clear else text]


def _difference_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of which the cells that begin with a star are bold."""
    titles = tag("tr", *(tag("th", escape(cell), scope="col") for cell in head))
    lines = []
    for name, *cells in rows:
        shown = (
            tag("td", tag("b", escape(cell[1:])) if cell.startswith("*") else escape(cell))
            for cell in cells
        )
        lines.append(tag("tr", tag("th", escape(name), scope="row"), *shown))
    whole = tag("table", tag("thead", titles), tag("tbody", *lines), class_="values")
    return scrolling(head[0], whole)


# Cells


def _row(name: str, cells: Sequence[str]) -> str:
    return tag("tr", tag("th", tag("span", escape(name)), scope="row"), *cells)


def _cell(text: str, under: str = "") -> str:
    return tag("td", escape(text), tag("small", escape(under)) if under else "")


def _percent(value: float) -> str:
    """A share in percent."""
    return "–" if math.isnan(value) else f"{100 * value:.2f}"


def _decimal(value: float) -> str:
    return f"{value:g}".lstrip("0")


def image_files(files: Sequence[str], ids: Sequence[int]) -> dict[int, str]:
    """The name of the file of each image, without its folder."""
    return {int(number): Path(name).name for number, name in zip(ids, files, strict=True)}
