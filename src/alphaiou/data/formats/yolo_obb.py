"""YOLO's layout with oriented boxes, as Ultralytics reads it: a line is a class and four corners.

Everything else is as in :mod:`alphaiou.data.formats.yolo`. A data set is recognised as oriented if
most lines of its first label files have nine numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.data.formats.base import EXTRAS, Format
from alphaiou.data.formats.files import files_below, read_limited
from alphaiou.data.formats.yolo import (
    LARGEST_LABEL_FILE,
    Lines,
    find_config,
    find_yolo,
    is_yolo,
    label_path,
    locate,
    read_config,
    stray_yolo_labels,
    write_yolo,
    yolo_splits,
)
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError

#: How many label files are looked into to recognise the layout.
FILES_SNIFFED = 50
#: A class and four corners.
COLUMNS = 9


def _coordinates(values: list[float], size: tuple[int, int]) -> Sequence[float]:
    if len(values) != COLUMNS - 1:
        raise ValueError(f"it has {len(values) + 1} columns; an oriented box has {COLUMNS}")
    return [value * size[place % 2] for place, value in enumerate(values)]


def _numbers(index: DetectionIndex, image: int) -> Float64[np.ndarray, "n 8"]:
    numbers: np.ndarray = (index.corners(image) / index.sizes[image]).reshape(-1, COLUMNS - 1)
    return numbers


OBB_LINES = Lines(
    "yolo-obb",
    _coordinates,
    _numbers,
    "write class x1 y1 x2 y2 x3 y3 x4 y4, in fractions of the image",
    is_oriented=True,
)


def _recognise(path: Path) -> bool:
    """Whether most lines of some label files have nine columns."""
    if not is_yolo(path):
        return False
    try:
        config = read_config(find_config(path) or path)
        folders = {
            label_path(locate(config, split, entry) / "image.jpg").parent
            for split, entries in config.splits.items()
            for entry in entries
            if not entry.endswith(".txt")
        }
    except DataError:  # to be said when the data set is read
        return False
    files = (file for folder in sorted(folders) for file in sorted(files_below(folder, ".txt")))
    oriented = total = 0
    for file in islice((file for file in files if file.name != "classes.txt"), FILES_SNIFFED):
        try:
            texts = read_limited(file, LARGEST_LABEL_FILE).splitlines()
        except OSError:
            continue
        columns = [len(text.split()) for text in texts if text.strip()]
        oriented, total = oriented + columns.count(COLUMNS), total + len(columns)
    return 2 * oriented > total


FORMAT = Format(
    signs="as yolo, with a class and four corners in most lines",
    recognise=_recognise,
    splits=yolo_splits,
    find=partial(find_yolo, lines=OBB_LINES),
    write=partial(write_yolo, lines=OBB_LINES),
    stray_labels=stray_yolo_labels,
    lacks={name: words for name, words in EXTRAS.items() if name != "oriented"},
    broken_kind="yaml-broken",
)
