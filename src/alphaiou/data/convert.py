"""Conversion between layouts, and what each layout cannot represent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alphaiou.data.derived import WritableLayout, made_of, source_of, write_index, write_once
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex

CONVERSION_RECORD = "conversion.json"
_CROWDS = {"voc": "crowds, marked difficult instead", "yolo": "crowd marks"}


def convert_splits(
    splits: Sequence[DetectionIndex], to: WritableLayout, out: Path, *, images: Placing = "link"
) -> bool:
    """Write the splits of a data set in another layout.

    Args:
        splits: What to write.
        to: The layout.
        out: The folder to make; it gets a ``conversion.json`` that says of what it was made.
        images: Place the images by hard link, by copy, or not at all.

    Returns:
        Whether it was written; False if the same conversion was there already.

    Raises:
        DataError: The folder holds something else, or an image cannot be read.
    """

    def write(folder: Path) -> None:
        for index in splits:
            write_index(index, folder, to, images=images)

    lost = {index.split: lost_in(index, to) for index in splits}
    about = {"source": source_of(splits), "lost": lost}
    return write_once(out, CONVERSION_RECORD, made_of(splits, to, images), about, write)


def lost_in(index: DetectionIndex, layout: WritableLayout) -> dict[str, int]:
    """What a layout cannot hold of an index: how much of each thing, nothing where all fits.

    Boxes are never lost, only their flags: a crowd becomes an ordinary box in YOLO, and a
    difficult one in VOC, where those are ignored in the same way.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> index = shapes_index("val", length=3)
        >>> lost_in(index, "coco"), list(lost_in(index, "voc"))
        ({}, [])
    """
    if layout == "coco":
        return {}
    sides = index.boxes[:, 2:] - index.boxes[:, :2]
    other_areas = ~np.isclose(index.areas, sides.prod(axis=1), rtol=1e-6)
    lost = {
        _CROWDS[layout]: int(index.crowd.sum()),
        "areas that are not width × height": int(other_areas.sum()),
        "category numbers": _numbers_lost(index.category_ids),
        "image numbers": _numbers_lost(index.image_ids),
        "box numbers": _numbers_lost(index.box_ids),
    }
    if layout == "yolo":
        lost["difficult marks"] = int(index.difficult.sum())
        lost["truncated marks"] = int(index.truncated.sum())
    return {what: count for what, count in lost.items() if count}


def _numbers_lost(numbers: np.ndarray) -> int:
    """How many differ from what a reader counts where a layout has no numbers: 1, 2, ..."""
    return int((numbers != np.arange(1, len(numbers) + 1)).sum())
