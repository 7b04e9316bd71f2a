"""The pictures of a comparison: what is there, and what the detector of each loss found."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alphaiou.experiments.html import escape, series_class, tag

if TYPE_CHECKING:
    from pathlib import Path

    from alphaiou.experiments.compare import ComparedRun
    from alphaiou.experiments.detection_pictures import Box, Example

MOST_NAMED = 4


def examples_section(named: Mapping[str, ComparedRun]) -> str:
    """The same images under each loss, as a part of a page."""
    return tag("h2", "Pictures") + examples_grid(named, "picture")


def examples_grid(named: Mapping[str, ComparedRun], mark: str) -> str:
    """The images without a heading; ``mark`` tells them from those of other parts of the page."""
    first = next(iter(named.values()))
    rows = [
        example_row(
            f"{mark}{place}",
            {name: run.findings.examples[place] for name, run in named.items()},
            first.folder,
        )
        for place in range(len(first.findings.examples))
    ]
    least = first.findings.least_score
    note = (
        f"The same images under each loss, spread evenly over the split; none was chosen by what "
        f"was found. Dashed: the objects. In colour: detections of a score of at least {least:g}, "
        "with their IoU."
    )
    grid = tag("div", *rows, class_="examples", style=f"--columns: {len(named) + 1}")
    return tag("p", escape(note), class_="note") + grid


def example_row(mark: str, by_loss: Mapping[str, Example], folder: Path) -> str:
    """One image: what is there, then what each loss's detector found.

    Args:
        mark: What the image is called within the page.
        by_loss: What was found in it, by the names of the losses.
        folder: Where the picture of the first of them lies.
    """
    example = next(iter(by_loss.values()))
    picture = base64.b64encode((folder / example.picture).read_bytes()).decode()
    width, height = example.size
    whole = {"width": width, "height": height, "id": mark}
    image = tag("image", href=f"data:image/png;base64,{picture}", **whole)
    objects = [*_outlines(example.objects, "object"), *_names(example)]
    pictures = [_picture(example, [image, *objects], "there are", _count(example), "")]
    again = tag("use", href=f"#{mark}")
    for number, (name, own) in enumerate(by_loss.items()):
        boxes = [*_outlines(own.objects, "object"), *_outlines(own.found, "found")]
        pictures.append(
            _picture(example, [again, *boxes], name, _ious(own.found), series_class(number))
        )
    return tag("div", *pictures, class_="example")


def _count(example: Example) -> str:
    count = len(example.objects)
    return f"{count} object{'s' * (count != 1)}"


def _picture(example: Example, parts: Sequence[str], name: str, caption: str, look: str) -> str:
    width, height = example.size
    drawing = tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=name)
    says = tag("figcaption", tag("b", escape(name)), " ", escape(caption))
    return tag("figure", drawing, says, class_=look)


def _outlines(boxes: Sequence[Box], kind: str) -> list[str]:
    """Rectangles, each on a dark one so that it is seen on any ground."""
    drawn = []
    for box in boxes:
        x1, y1, x2, y2 = box.corners
        place = {"x": x1, "y": y1, "width": round(x2 - x1, 2), "height": round(y2 - y1, 2)}
        drawn += [tag("rect", class_=look, **place) for look in ("shade", kind)]
    return drawn


def _names(example: Example) -> list[str]:
    """The class of each object, at its upper left corner."""
    size = 0.06 * max(example.size)
    return [
        tag(
            "text",
            escape(box.label),
            class_="name",
            x=box.corners[0],
            y=round(max(box.corners[1] - 0.25 * size, size), 2),
            style=f"font-size: {size:.1f}px",
        )
        for box in example.objects
    ]


def _ious(found: Sequence[Box]) -> str:
    """The detections in words, the best first."""
    named = [f"{box.label} {_decimal(box.iou)}" for box in found[:MOST_NAMED]]
    if len(found) > MOST_NAMED:
        named.append(f"{len(found) - MOST_NAMED} more")
    return ", ".join(named) or "nothing"


def _decimal(value: float) -> str:
    return f"{value:.2f}".lstrip("0") or "0"
