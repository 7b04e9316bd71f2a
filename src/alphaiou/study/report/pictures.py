"""What the detectors of a grid find, where it was kept beside their records."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from alphaiou.study.compare import ComparedRun
from alphaiou.study.detections import FINDINGS, FOUND, Box, Example, Findings, findings_of
from alphaiou.study.records import RowRuns, run_folder
from alphaiou.study.report.html import escape, series_class, tag

if TYPE_CHECKING:
    from pathlib import Path

    from alphaiou.study.compare import ComparedRun


MOST_NAMED = 4
#: The width of a letter as a part of its height, with some room.
LETTER = 0.62


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
    note = (
        "The same images under each loss, spread evenly over the split; none was chosen by what "
        f"was found. {drawn_note(first.findings.least_score)}"
    )
    grid = tag("div", *rows, class_="examples", style=f"--columns: {len(named) + 1}")
    return tag("p", escape(note), class_="note") + grid


def drawn_note(least: float) -> str:
    """What is drawn in pictures of detections of a score of at least ``least``."""
    return (
        f"Dashed: the objects. In colour: detections of a score of at least {least:g}, with their "
        f"IoU; dotted and counted as elsewhere are those that lie on no object of their class with "
        f"an IoU of {_decimal(FOUND)}."
    )


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
    pictures = [_picture(example, [image, *objects], "there are", _classes(example), "")]
    again = tag("use", href=f"#{mark}")
    for number, (name, own) in enumerate(by_loss.items()):
        boxes = [*_outlines(own.objects, "object"), *_outlines(own.found, "found")]
        pictures.append(
            _picture(example, [again, *boxes], name, _ious(own.found), series_class(number))
        )
    return tag("div", *pictures, class_="example")


def _classes(example: Example) -> str:
    """What is there: bird ×2, horse."""
    counts = Counter(box.label for box in example.objects)
    named = (f"{label} ×{count}" if count > 1 else label for label, count in counts.items())
    return ", ".join(named) or "no objects"


def _picture(example: Example, parts: Sequence[str], name: str, caption: str, look: str) -> str:
    width, height = example.size
    drawing = tag("svg", *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=name)
    says = tag("figcaption", tag("b", escape(name)), " ", escape(caption))
    return tag("figure", drawing, says, class_=look)


def _outlines(boxes: Sequence[Box], kind: str) -> list[str]:
    """Rectangles, each on a dark one so that it is seen on any ground; dotted where on nothing."""
    drawn = []
    for box in boxes:
        x1, y1, x2, y2 = box.corners
        place = {"x": x1, "y": y1, "width": round(x2 - x1, 2), "height": round(y2 - y1, 2)}
        astray = "" if box.on_object else " astray"
        drawn += [tag("rect", class_=look + astray, **place) for look in ("shade", kind)]
    return drawn


def _names(example: Example) -> list[str]:
    """The class of each object above its box, or at its foot; none where there is no room."""
    size = 0.06 * max(example.size)
    drawn: dict[tuple[float, float, float], str] = {}
    for box in example.objects:
        left, top, _, bottom = box.corners
        width = LETTER * size * len(box.label)
        left = max(min(left, round(example.size[0] - width, 2)), 0)
        lines = (max(top - 0.25 * size, size), bottom - 0.25 * size)
        places = ((left, left + width, round(y, 2)) for y in lines)
        free = next((p for p in places if not any(_meet(p, o, size) for o in drawn)), None)
        if free is not None:
            look = {"class_": "name", "style": f"font-size: {size:.1f}px"}
            drawn[free] = tag("text", escape(box.label), x=left, y=free[2], **look)
    return list(drawn.values())


def _meet(one: tuple[float, float, float], other: tuple[float, float, float], size: float) -> bool:
    """Whether two texts, each from left to right on a line, would be one on the other."""
    return one[0] < other[1] and other[0] < one[1] and abs(one[2] - other[2]) < size


def _ious(found: Sequence[Box]) -> str:
    """The detections in words, the surest first."""
    sound = [box for box in found if box.on_object]
    named = [f"{box.label} {_decimal(box.iou)}" for box in sound[:MOST_NAMED]]
    if len(sound) > MOST_NAMED:
        named.append(f"{len(sound) - MOST_NAMED} more")
    if len(found) > len(sound):
        named.append(f"{len(found) - len(sound)} elsewhere")
    return ", ".join(named) or "nothing"


def _decimal(value: float) -> str:
    return f"{value:.2f}".lstrip("0") or "0"


def seen_runs(
    rows: Mapping[str, RowRuns], paths: Mapping[str, Path]
) -> dict[str, list[ComparedRun]]:
    """The runs of every cell whose findings are on the disk; nothing is computed for it.

    Args:
        rows: What ``grid_runs`` gives.
        paths: Where the records are, as ``record_paths`` gives them.
    """
    seen: dict[str, list[ComparedRun]] = {}
    for label, own in rows.items():
        for _, record in sorted(own.runs.items()):
            folder = run_folder(paths[record["name"]])
            if (folder / FINDINGS).is_file():
                run = ComparedRun(record, findings_of(folder), folder)
                seen.setdefault(label, []).append(run)
    return seen


def alike(seen: Mapping[str, Sequence[ComparedRun]], most: int) -> dict[str, ComparedRun]:
    """The first run of some rows that were looked at on the same images, to be shown together."""
    firsts = {label: runs[0] for label, runs in seen.items()}
    if not firsts:
        return {}
    images = _images(next(iter(firsts.values())).findings)
    same = [label for label, run in firsts.items() if _images(run.findings) == images]
    return {label: firsts[label] for label in same[:most]}


def _images(findings: Findings) -> tuple[object, ...]:
    return findings.split, *(example.picture for example in findings.examples)


def compared_pairs(
    rows: Mapping[str, RowRuns], paths: Mapping[str, Path]
) -> list[tuple[str, str, Path, Path]]:
    """The labels of every baseline and its cell, and the folders of their first shared seed."""
    pairs = []
    for label, own in rows.items():
        base = rows.get(own.row.baseline or "")
        seeds = sorted(own.runs.keys() & base.runs.keys()) if base else []
        if base and seeds:
            runs = (one.runs[seeds[0]]["name"] for one in (base, own))
            first, second = (run_folder(paths[name]) for name in runs)
            pairs.append((base.row.label, label, first, second))
    return pairs
