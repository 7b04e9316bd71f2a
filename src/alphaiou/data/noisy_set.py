"""Data sets with box noise, written with their clean boxes and a record beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from alphaiou.data.derived import (
    WritableLayout,
    made_of,
    read_derived,
    source_of,
    write_index,
    write_once,
)
from alphaiou.data.index import DetectionIndex
from alphaiou.data.noise import CleanIoU, clean_iou, perturb_index
from alphaiou.data.problems import DataError
from alphaiou.data.safe_write import Placing

NOISE_RECORD = "noise.json"
CLEAN_FOLDER = "clean"


@dataclass(frozen=True)
class NoisySet:
    """What came of writing a noisy data set."""

    splits: tuple[DetectionIndex, ...]
    """The splits with noise."""
    ious: tuple[CleanIoU, ...]
    """Mean IoU to the clean boxes, for each split."""
    written: bool
    """False if the same was there already."""


def write_noisy_set(
    splits: Sequence[DetectionIndex],
    rate: float,
    seed: int,
    out: Path,
    layout: WritableLayout,
    *,
    images: Placing = "link",
) -> NoisySet:
    """Write splits with noise on every box, as :func:`perturb_index` puts it there.

    The folder gets the noisy splits, the clean annotations under ``clean/``, in the same layout and
    without images, and ``noise.json``: rate, seed, source and the mean IoU to the clean boxes.

    Args:
        splits: The clean splits.
        rate: The rate η of the noise.
        seed: Its seed.
        out: The folder to make.
        layout: The layout to write.
        images: Place the images by hard link, by copy, or not at all.

    Raises:
        DataError: The folder holds something else, or an image cannot be read.
    """
    noisy = tuple(perturb_index(index, rate, seed) for index in splits)
    ious = tuple(map(clean_iou, noisy, splits))

    def write(folder: Path) -> None:
        for clean_split, noisy_split in zip(splits, noisy, strict=True):
            write_index(noisy_split, folder, layout, images=images)
            write_index(clean_split, folder / CLEAN_FOLDER, layout, images="none")

    made = {"rate": rate, "seed": seed, **made_of(splits, layout, images)}
    means = {
        index.split: {name: _or_null(value) for name, value in iou._asdict().items()}
        for index, iou in zip(splits, ious, strict=True)
    }
    about = {"source": source_of(splits), "mean_iou": means}
    return NoisySet(noisy, ious, write_once(out, NOISE_RECORD, made, about, write))


def refuse_noisy(source: Path) -> None:
    """Refuse a data set that has noise already; its ``clean`` folder has none.

    Raises:
        DataError: The folder, or one of the two above it, has a ``noise.json`` of ours.
    """
    start = source.resolve()
    for folder in (start, *start.parents[:2]):
        record = read_derived(folder, NOISE_RECORD)
        if record is not None:
            raise DataError(
                f"{source}: has noise already (rate {record.get('rate')}, seed "
                f"{record.get('seed')}, says {folder / NOISE_RECORD}); take its source "
                f"{record.get('source')}, or --force to add noise to noise"
            )
        if folder.name == CLEAN_FOLDER:
            return


def _or_null(value: float) -> float | None:
    return None if math.isnan(value) else value
