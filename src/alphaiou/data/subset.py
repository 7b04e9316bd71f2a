"""Seeded subsets of a data set, each contained in the larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alphaiou.data.derived import made_of, source_of, write_once
from alphaiou.data.formats.registry import get_format
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex
from alphaiou.data.noise import image_bytes

SUBSET_RECORD = "subset.json"


def subset_index(index: DetectionIndex, fraction: float, seed: int) -> DetectionIndex:
    """The index of a seeded share of the images, in their original order.

    Images are ranked by a hash of the seed and of their names, and the first ones are taken: the
    smaller part lies inside the larger one, and the order in which files are found plays no role.

    Args:
        index: All images.
        fraction: The share to take, above 0 and up to 1; ``fraction * images`` rounded, half up.
        seed: Another seed takes other images.

    Raises:
        ValueError: The fraction is out of range, or so small that no image would be left.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> index = shapes_index("val", length=10)
        >>> quarter, half = (set(subset_index(index, f, seed=0).files) for f in (0.25, 0.5))
        >>> len(quarter), len(half), quarter < half
        (3, 5, True)
    """
    if not 0 < fraction <= 1:
        raise ValueError(f"fraction must be above 0 and at most 1, got {fraction!r}")
    count = int(fraction * len(index) + 0.5)
    if count == 0 and len(index) > 0:
        raise ValueError(
            f"fraction {fraction:g} of {len(index)} images is not one image; "
            f"{1 / len(index):.3g} takes one"
        )
    names = list(index.files)
    # The full name decides between images with the same stem.
    rank = sorted(
        range(len(names)), key=lambda i: (image_bytes("subset", seed, names[i], 16), names[i])
    )
    return index.take(np.sort(np.array(rank[:count], dtype=np.int64)))


def write_subset(
    splits: Sequence[DetectionIndex],
    fraction: float,
    seed: int,
    out: Path,
    layout: str,
    *,
    images: Placing = "link",
) -> tuple[tuple[DetectionIndex, ...], bool]:
    """Write a seeded share of every split, and a ``subset.json`` that says of what it was made.

    Args:
        splits: All images.
        fraction: The share to take of each split.
        seed: Another seed takes other images.
        out: The folder to make.
        layout: The layout to write.
        images: Place the images by hard link, by copy, or not at all.

    Returns:
        The splits as written, and whether they were; False if the same was there already.

    Raises:
        DataError: The folder holds something else, or an image cannot be read.
    """
    parts = tuple(subset_index(index, fraction, seed) for index in splits)

    def write(folder: Path) -> None:
        for part in parts:
            get_format(layout).write(part, folder, images=images)

    made = {"fraction": fraction, "seed": seed, **made_of(splits, layout, images)}
    about = {"source": source_of(splits), "taken": {part.split: len(part) for part in parts}}
    return parts, write_once(out, SUBSET_RECORD, made, about, write)
