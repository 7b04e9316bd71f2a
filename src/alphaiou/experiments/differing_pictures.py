"""Images where two detectors find different things: the paper's examples and failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import chdir, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64

from alphaiou.boxes import pairwise_iou
from alphaiou.data.index import DetectionIndex
from alphaiou.detectors import Detections
from alphaiou.experiments.detection_pictures import (
    FOUND,
    MOST_OBJECTS,
    Example,
    Looked,
    draw_example,
    example_from,
    keep_json,
    look,
)
from alphaiou.experiments.grid_runner import DATA_LINKS
from alphaiou.training.weights import WEIGHTS

#: Images of each kind.
SHOWN = 3
#: The kinds, and what is said of them with the names of the first and the second loss.
KINDS = {
    "more": "{second} finds objects that {first} does not",
    "cleaner": "{second} has fewer boxes on nothing than {first}",
    "worse": "{second} does worse than {first}",
}

#: By kind, what the first and the second detector find in some images.
Differences = dict[str, list[tuple[Example, Example]]]


def differences_path(first: Path, second: Path) -> Path:
    """Where the differences of two runs are kept: in the folder of the second."""
    return second / f"differs-{first.name}.json"


def read_differences(first: Path, second: Path) -> Differences | None:
    """What was kept of two runs; None where nothing was."""
    path = differences_path(first, second)
    if not path.is_file():
        return None
    kept = json.loads(path.read_text(encoding="utf-8"))
    return {
        kind: [(example_from(a), example_from(b)) for a, b in pairs] for kind, pairs in kept.items()
    }


def keep_differences(first: Path, second: Path) -> Path | None:
    """Look for images where two detectors differ most, and keep them beside the second.

    Args:
        first: The folder of a finished run.
        second: That of another one on the same images.

    Returns:
        The file; None where one of them has no weights.

    Raises:
        DataError: The data set is gone.
        ValueError: The two were not scored on the same images.
    """
    first, second = first.absolute(), second.absolute()
    path = differences_path(first, second)
    if path.is_file():
        return path
    if not all((folder / WEIGHTS).is_file() for folder in (first, second)):
        return None
    links = second.parent / DATA_LINKS
    with chdir(links) if links.is_dir() else nullcontext():  # where recipes' names lead to data
        keep_json(compare_looks(look(first), look(second), second), path)
    return path


def compare_looks(
    first: Looked, second: Looked, folder: Path
) -> dict[str, list[list[dict[str, Any]]]]:
    """The images where two detectors differ most, by kind, as JSON; pictures go to a folder."""
    if len(first.index) != len(second.index):
        raise ValueError("two runs can be compared on the same images only")
    chosen = choose_differing(tallies(first), tallies(second), _suitable(second.index))
    return {
        kind: [
            [
                asdict(draw_example(one.index, row, one.found[row], folder))
                for one in (first, second)
            ]
            for row in rows
        ]
        for kind, rows in chosen.items()
    }


def tallies(looked: Looked) -> Int64[np.ndarray, "images 2"]:
    """How many objects were found in each image, and how many boxes lie on nothing."""
    counts = [tally(found, looked.index, row) for row, found in enumerate(looked.found)]
    return np.array(counts, dtype=np.int64).reshape(-1, 2)


def tally(found: Detections, index: DetectionIndex, row: int) -> tuple[int, int]:
    """The objects found in an image and the boxes on nothing, the surest detections first.

    What lies on a crowd or on a difficult object counts neither way.
    """
    rows = index.rows(row)
    labels = torch.as_tensor(index.labels[rows])
    ignored = index.crowd[rows] | index.difficult[rows]
    overlap = pairwise_iou(found["boxes"].double(), torch.as_tensor(index.boxes[rows]).double())
    overlap = overlap * (found["labels"][:, None] == labels)
    taken = np.zeros(len(labels), dtype=bool)
    for detection in found["scores"].argsort(descending=True).tolist():
        free = np.where(taken, 0.0, overlap[detection].numpy())
        if free.size and free.max() >= FOUND:
            taken[free.argmax()] = True
    return int((taken & ~ignored).sum()), len(found["scores"]) - int(taken.sum())


def choose_differing(
    first: Int64[np.ndarray, "images 2"],
    second: Int64[np.ndarray, "images 2"],
    suitable: Int64[np.ndarray, " some"],
) -> dict[str, list[int]]:
    """Images of each kind, those that differ most first; none is of two kinds.

    Objects that cost more boxes on nothing are no gain, and no loss either.
    """
    more, false = (second - first)[suitable].T
    of_kind = {
        "more": ((more > 0) & (false <= 0), -more),
        "cleaner": ((more == 0) & (false < 0), false),
        "worse": ((more < 0) | ((more == 0) & (false > 0)), more - false),
    }
    chosen = {}
    for kind, (belongs, order) in of_kind.items():
        ranked = np.argsort(order, kind="stable")
        chosen[kind] = suitable[ranked[belongs[ranked]]][:SHOWN].tolist()
    return chosen


def said_of(kind: str, names: Mapping[str, str]) -> str:
    """What a kind of images shows.

    Examples:
        >>> said_of("worse", {"first": "IoU", "second": "α-IoU"})
        'α-IoU does worse than IoU'
    """
    return KINDS[kind].format(**names)


def _suitable(index: DetectionIndex) -> Int64[np.ndarray, " some"]:
    """Images that are not too full to look at."""
    return np.flatnonzero(np.diff(index.offsets) <= MOST_OBJECTS)
