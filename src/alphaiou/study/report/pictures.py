"""Pictures of a report: images with their ground truth and what each detector found."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from alphaiou.metrics.iou_histogram import SURE
from alphaiou.study.detections import (
    FOUND,
    Box,
    Differences,
    Example,
    PicturedRun,
    difference_title,
)
from alphaiou.study.report.html import escape, series_class, tag

#: The detections of a picture that are listed below it.
MOST_NAMED = 4
#: The width of a letter as a part of its height, with some room.
LETTER = 0.62


def examples_grid(named: Mapping[str, PicturedRun], mark: str) -> str:
    """The same images under each loss.

    Args:
        named: A run of each loss by its label, all on the same images.
        mark: A name that no other pictures of the page have.
    """
    first = next(iter(named.values()))
    rows = [
        example_row(
            f"{mark}{place}",
            {name: run.findings.examples[place] for name, run in named.items()},
            first.folder,
        )
        for place in range(len(first.findings.examples))
    ]
    note = (
        "The same images under each loss, spread evenly over the split, whatever was detected in "
        f"them. {_legend(first.findings.least_score)}"
    )
    grid = tag("div", *rows, class_="examples", style=f"--columns: {len(named) + 1}")
    return tag("p", escape(note), class_="note") + grid


def differing_images(
    differences: Differences, first: str, second: str, folder: Path, mark: str
) -> str:
    """Images where two losses differ, of every kind: also those where the second does worse.

    Args:
        differences: The images by kind.
        first: The label of the first loss.
        second: The label of the second.
        folder: The folder of the pictures.
        mark: A name that no other pictures of the page have.
    """
    parts = [tag("p", escape(_legend(SURE)), class_="note")]
    for kind, pairs in differences.items():
        rows = [
            example_row(f"{mark}-{kind}{place}", {first: one, second: other}, folder)
            for place, (one, other) in enumerate(pairs)
        ]
        shown = tag("div", *rows, class_="examples", style="--columns: 3")
        title = tag("h3", escape(difference_title(kind, first, second)))
        parts.append(title + (shown if rows else tag("p", "In no image.")))
    return "".join(parts)


def _legend(least: float) -> str:
    """The legend of pictures of detections of a score of at least ``least``."""
    return (
        f"Dashed: ground truth. In colour: detections of a score of at least {least:g}, with their "
        "IoU. Dotted, and counted as elsewhere: detections without an object of their class at an "
        f"IoU of {_decimal(FOUND)} or more."
    )


def example_row(mark: str, by_loss: Mapping[str, Example], folder: Path) -> str:
    """One image: its ground truth, then the detections under each loss.

    Args:
        mark: The id of the image within the page.
        by_loss: The image with its detections, by the labels of the losses.
        folder: The folder of the picture of the first of them.
    """
    example = next(iter(by_loss.values()))
    picture = base64.b64encode((folder / example.picture).read_bytes()).decode()
    width, height = example.size
    whole = {"width": width, "height": height, "id": mark}
    image = tag("image", href=f"data:image/png;base64,{picture}", **whole)
    objects = [*_outlines(example.objects, "object"), *_names(example)]
    pictures = [_picture(example, [image, *objects], "ground truth", _classes(example), "")]
    again = tag("use", href=f"#{mark}")
    for number, (name, one) in enumerate(by_loss.items()):
        boxes = [*_outlines(one.objects, "object"), *_outlines(one.found, "found")]
        pictures.append(
            _picture(example, [again, *boxes], name, _ious(one.found), series_class(number))
        )
    return tag("div", *pictures, class_="example")


def _classes(example: Example) -> str:
    """The classes of the objects, such as bird ×2, horse."""
    counts = Counter(box.label for box in example.objects)
    named = (f"{label} ×{count}" if count > 1 else label for label, count in counts.items())
    return ", ".join(named) or "no objects"


def _picture(example: Example, parts: Sequence[str], name: str, caption: str, look: str) -> str:
    width, height = example.size
    drawing = tag(
        "svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=f"{name}: {caption}"
    )
    below = tag("figcaption", tag("b", escape(name)), " ", escape(caption))
    return tag("figure", drawing, below, class_=look)


def _outlines(boxes: Sequence[Box], kind: str) -> list[str]:
    """Rectangles, each with a dark outline to be seen on any ground; dotted on the background."""
    drawn = []
    for box in boxes:
        x1, y1, x2, y2 = box.corners
        place = {"x": x1, "y": y1, "width": round(x2 - x1, 2), "height": round(y2 - y1, 2)}
        astray = "" if box.on_object else " astray"
        drawn += [tag("rect", class_=look + astray, **place) for look in ("shade", kind)]
    return drawn


def _names(example: Example) -> list[str]:
    """The class of each object above its box or at its foot, where no other name is."""
    size = 0.06 * max(example.size)
    drawn: dict[tuple[float, float, float], str] = {}
    for box in example.objects:
        left, top, _, bottom = box.corners
        width = LETTER * size * len(box.label)
        left = max(min(left, round(example.size[0] - width, 2)), 0)
        lines = (max(top - 0.25 * size, size), bottom - 0.25 * size)
        places = ((left, left + width, round(y, 2)) for y in lines)
        free = next((p for p in places if not any(_overlap(p, o, size) for o in drawn)), None)
        if free is not None:
            look = {"class_": "name", "style": f"font-size: {size:.1f}px"}
            drawn[free] = tag("text", escape(box.label), x=left, y=free[2], **look)
    return list(drawn.values())


def _overlap(
    one: tuple[float, float, float], other: tuple[float, float, float], size: float
) -> bool:
    """Whether two texts, given by left end, right end and line, would overlap."""
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < size


def _ious(found: Sequence[Box]) -> str:
    """The detections as a list of classes and IoUs, those of the highest scores first."""
    right = [box for box in found if box.on_object]
    named = [f"{box.label} {_decimal(box.iou)}" for box in right[:MOST_NAMED]]
    if len(right) > MOST_NAMED:
        named.append(f"{len(right) - MOST_NAMED} more")
    if len(found) > len(right):
        named.append(f"{len(found) - len(right)} elsewhere")
    return ", ".join(named) or "nothing"


def _decimal(value: float) -> str:
    return f"{value:.2f}".lstrip("0") or "0"
