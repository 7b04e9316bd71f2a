"""Box noise: uniform noise on annotations, and data sets written with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import shake_128
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from alphaiou._shapes import Float, Float64
from alphaiou.boxes import BoxFormat, check_box_format, convert_boxes
from alphaiou.data.derived import made_of, read_derived, source_of, write_once
from alphaiou.data.formats.registry import get_format
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError
from alphaiou.losses.similarity import box_iou

#: Mean IoU between noisy and clean boxes that the paper reports, by rate.
PAPER_IOU = {0.1: 0.833, 0.2: 0.710, 0.3: 0.613}
NOISE_RECORD = "noise.json"
CLEAN_FOLDER = "clean"
_BYTES_PER_BOX = 4 * 8


# --- noise on boxes -------------------------------------------------------------------------------


def perturb_boxes(
    boxes: Float[Tensor, "*batch 4"],
    rate: float,
    *,
    generator: torch.Generator,
    image_size: tuple[float, float],
    box_format: BoxFormat = "xyxy",
) -> Float[Tensor, "*batch 4"]:
    """Boxes with uniform noise of a share of their sides, inside the image.

    Args:
        boxes: Boxes of positive size, float32 or float64; they may pass the border of the image.
        rate: The share η, from 0 up to but without 1; at 0 the boxes come back as they are.
        generator: The source of random numbers; four numbers per box are drawn at every rate.
        image_size: (height, width) in the unit of the boxes; (1, 1) if they are normalised.
        box_format: The format of ``boxes`` and of the result.

    Returns:
        Boxes of the same shape, dtype and format, all of positive size and inside the image.

    Examples:
        >>> boxes = torch.tensor([[10.0, 20.0, 50.0, 40.0]])
        >>> generator = torch.Generator().manual_seed(0)
        >>> noisy = perturb_boxes(boxes, 0.2, generator=generator, image_size=(48, 64))
        >>> bool(((noisy - boxes).abs() <= 0.3 * torch.tensor([40, 20, 40, 20])).all())
        True
    """
    check_rate(rate)
    check_box_format(box_format)
    limits = _limits(image_size)
    _check_boxes(boxes, box_format)
    draws = torch.rand(
        boxes.shape, generator=generator, dtype=torch.float64, device=generator.device
    )
    if rate == 0:
        return boxes.clone()
    centred = convert_boxes(boxes.double(), box_format, "cxcywh")
    offsets = (2 * draws - 1).to(boxes.device)
    noisy = _displaced(centred, rate * offsets, limits.to(boxes.device))
    if box_format == "xyxy":
        return _corners_inside(noisy, limits.to(boxes.device), boxes.dtype)
    return convert_boxes(noisy, "cxcywh", box_format).to(boxes.dtype)


def perturb_index(index: DetectionIndex, rate: float, seed: int) -> DetectionIndex:
    """The index with noise on every box, crowds and difficult ones too.

    The noise of a box depends on the seed, the stem of the image's file and the position of the box
    among those of its image: not on the layout, the order of images, the other images, the number
    of workers or the release of a library. The direction of the noise does not depend on the rate.
    Areas grow and shrink with their boxes.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> clean = shapes_index("val", length=8)
        >>> noisy = perturb_index(clean, 0.3, seed=0)
        >>> bool((noisy.take([5]).boxes == perturb_index(clean.take([5]), 0.3, seed=0).boxes).all())
        True
    """
    check_rate(rate)
    if index.oriented is not None:
        raise DataError(
            f"{index.root}: the noise is for axis-aligned boxes, these are oriented; convert the "
            "data set to another layout, such as coco, for their extents"
        )
    if rate == 0:
        return index
    limits = torch.from_numpy(np.repeat(index.sizes, np.diff(index.offsets), axis=0)).double()
    clean = torch.from_numpy(index.boxes)
    centred = convert_boxes(clean, "xyxy", "cxcywh")
    noisy = _displaced(centred, rate * torch.from_numpy(_offsets(index, seed)), limits)
    boxes = _corners_inside(noisy, limits, torch.float64)
    growth = (noisy[:, 2:] / centred[:, 2:]).prod(dim=1)
    return replace(index, boxes=boxes.numpy(), areas=index.areas * growth.numpy())


def check_rate(rate: float) -> None:
    """Reject a rate that is not in [0, 1)."""
    if not 0 <= rate < 1:  # also refuses NaN
        raise ValueError(f"rate must be at least 0 and below 1, got {rate!r}")


def image_bytes(purpose: str, seed: int, name: str, count: int) -> bytes:
    """Random bytes of one image: SHAKE-128 of the purpose, the seed and the image's stem.

    The stem is the file's name without folders and suffix, so that an image has the same bytes in
    every layout, order, subset, process and release. Images of one data set that share their stem
    (``cam1/0001.jpg`` and ``cam2/0001.jpg``) share their bytes.

    Examples:
        >>> a = image_bytes("noise", 0, "JPEGImages/000005.jpg", 4)
        >>> a == image_bytes("noise", 0, "images/train/000005.webp", 8)[:4]
        True
    """
    stem = name.rpartition("/")[2].rsplit(".", 1)[0]
    key = f"{purpose}/{seed}/{stem}".encode("utf-8", "surrogateescape")
    return shake_128(key).digest(count)


def _offsets(index: DetectionIndex, seed: int) -> Float64[np.ndarray, "boxes 4"]:
    """Uniform numbers in [-1, 1) for every box: of image, of position, and of the seed."""
    counts = np.diff(index.offsets).tolist()
    drawn = b"".join(
        image_bytes("noise", seed, name, count * _BYTES_PER_BOX)
        for name, count in zip(index.files, counts, strict=True)
    )
    top_53_bits = np.frombuffer(drawn, dtype="<u8") >> 11
    return (top_53_bits.astype(np.float64) * 2.0**-52 - 1.0).reshape(-1, 4)


def _displaced(centred: Tensor, share: Tensor, limits: Tensor) -> Tensor:
    """Boxes ``cx cy w h`` moved by shares of their sides, then brought inside the image."""
    sides = centred[..., 2:]
    moved = centred + share * torch.cat((sides, sides), dim=-1)
    # The size first, then the centre: a box that hangs over the border is moved, not cut.
    size = torch.minimum(moved[..., 2:], limits)
    centre = torch.minimum(torch.maximum(moved[..., :2], size / 2), limits - size / 2)
    return torch.cat((centre, size), dim=-1)


def _corners_inside(centred: Tensor, limits: Tensor, dtype: torch.dtype) -> Tensor:
    """Corners of boxes ``cx cy w h``, inside the image and apart in spite of rounding."""
    corners, limits = convert_boxes(centred, "cxcywh", "xyxy").to(dtype), limits.to(dtype)
    below = torch.nextafter(limits, torch.zeros_like(limits))
    low = torch.minimum(corners[..., :2].clamp(min=0), below)
    high = torch.maximum(corners[..., 2:], torch.nextafter(low, limits.expand_as(low)))
    return torch.cat((low, torch.minimum(high, limits)), dim=-1)


def _limits(image_size: tuple[float, float]) -> Float[Tensor, 2]:
    height, width = image_size
    if not (0 < height < math.inf and 0 < width < math.inf):
        raise ValueError(f"image_size must be two finite numbers > 0, got {image_size!r}")
    return torch.tensor([width, height], dtype=torch.float64)


def _check_boxes(boxes: Tensor, box_format: BoxFormat) -> None:
    if boxes.ndim == 0 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes must have shape (*batch, 4), got {tuple(boxes.shape)}")
    if boxes.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"boxes must be float32 or float64, got {boxes.dtype}")
    sizes = boxes[..., 2:] - boxes[..., :2] if box_format == "xyxy" else boxes[..., 2:]
    wrong = ~(boxes.isfinite().all(dim=-1) & (sizes > 0).all(dim=-1)).reshape(-1)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"boxes must be finite and of positive size as {box_format}; "
            f"box {row} is {boxes.reshape(-1, 4)[row].tolist()}"
        )


# --- distance to the clean boxes ------------------------------------------------------------------


class CleanIoU(NamedTuple):
    """Mean IoU between noisy and clean boxes; NaN where there are no boxes."""

    by_image: float
    """Averaged within each image that has boxes, then over these images, as the paper does."""
    by_box: float
    """Averaged over all boxes."""


def clean_iou(noisy: DetectionIndex, clean: DetectionIndex) -> CleanIoU:
    """Mean IoU between the boxes of two indexes of the same images, by image and by box.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> index = shapes_index("val", length=8)
        >>> clean_iou(index, index)
        CleanIoU(by_image=1.0, by_box=1.0)
    """
    if not np.array_equal(noisy.offsets, clean.offsets):
        raise ValueError(
            "noisy and clean must hold the same images with the same numbers of boxes, got "
            f"{len(noisy):,} images, {noisy.num_boxes:,} boxes and "
            f"{len(clean):,} images, {clean.num_boxes:,} boxes"
        )
    if not clean.num_boxes:
        return CleanIoU(math.nan, math.nan)
    iou = box_iou(torch.from_numpy(noisy.boxes), torch.from_numpy(clean.boxes)).numpy()
    counts = np.diff(clean.offsets)
    sums = np.bincount(clean.image_of_box(), weights=iou, minlength=len(clean))
    filled = counts > 0
    return CleanIoU(float((sums[filled] / counts[filled]).mean()), float(iou.mean()))


# --- noisy data sets ------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisySet:
    """A noisy data set that was written."""

    splits: tuple[DetectionIndex, ...]
    """The splits with noise."""
    ious: tuple[CleanIoU, ...]
    """Mean IoU to the clean boxes, for each split."""
    written: bool
    """False if the same data set existed already."""


def write_noisy_set(
    splits: Sequence[DetectionIndex],
    rate: float,
    seed: int,
    out: Path,
    layout: str,
    *,
    images: Placing = "link",
) -> NoisySet:
    """Write splits with noise on every box, that of :func:`perturb_index`.

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
    format_ = get_format(layout)

    def write(folder: Path) -> None:
        for clean_split, noisy_split in zip(splits, noisy, strict=True):
            format_.write(noisy_split, folder, images=images)
            format_.write(clean_split, folder / CLEAN_FOLDER, images="none")

    made = {"rate": rate, "seed": seed, **made_of(splits, layout, images)}
    means = {
        index.split: {name: _or_null(value) for name, value in iou._asdict().items()}
        for index, iou in zip(splits, ious, strict=True)
    }
    about = {"source": source_of(splits), "mean_iou": means}
    return NoisySet(noisy, ious, write_once(out, NOISE_RECORD, made, about, write))


def refuse_noisy(source: Path) -> None:
    """Reject a data set that has noise already; its ``clean`` folder has none.

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
