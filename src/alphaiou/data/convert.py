"""Conversion between layouts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from alphaiou.data.derived import made_of, source_of, write_once
from alphaiou.data.formats.registry import get_format
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex

CONVERSION_RECORD = "conversion.json"


def convert_splits(
    splits: Sequence[DetectionIndex], to: str, out: Path, *, images: Placing = "link"
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
    new = get_format(to)

    def write(folder: Path) -> None:
        for index in splits:
            new.write(index, folder, images=images)

    lost = {index.split: new.lost(index) for index in splits}
    about = {"source": source_of(splits), "lost": lost}
    return write_once(out, CONVERSION_RECORD, made_of(splits, to, images), about, write)
