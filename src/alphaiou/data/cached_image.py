"""One image of a data set as the cache keeps it: resized, in the corner of a square."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from alphaiou.data.images import ImageError
from alphaiou.data.problems import DataError, Problem

if TYPE_CHECKING:
    from alphaiou.data.dataset import DetectionDataset

#: The grey beside images, and between those of a mosaic.
FILL = 114


class CachedImage(NamedTuple):
    """What loading an image gives.

    Attributes:
        row: Its position in the data set.
        pixels: The square; None where the image cannot be read, or once they are copied.
        size: Width and height within the square; 0 where the image cannot be read.
        scale: The factors from the original in x and y.
        problem: What is wrong with it, if anything.
    """

    row: int
    pixels: UInt8[Tensor, "side side 3"] | None
    size: tuple[int, int] = (0, 0)
    scale: tuple[float, float] = (1.0, 1.0)
    problem: Problem | None = None

    @property
    def readable(self) -> bool:
        """Whether there are pixels."""
        return self.size != (0, 0)


def load_image(dataset: DetectionDataset, row: int, side: int) -> CachedImage:
    """Decode one image, resize its longer side to ``side`` and pad it to a square.

    An image that cannot be read is a problem, not an error.
    """
    try:
        image, _ = dataset[row]
    except DataError as error:
        return CachedImage(row, None, problem=_unreadable(dataset, row, error))
    original = (image.shape[2], image.shape[1])
    size = fitted_size(original, side)
    # numpy, not torch: whose threads would wait for each other longer than this takes.
    square = np.full((side, side, 3), FILL, dtype=np.uint8)
    square[: size[1], : size[0]] = resize(image, size).permute(1, 2, 0).numpy()
    scale = (size[0] / original[0], size[1] / original[1])
    return CachedImage(
        row, torch.from_numpy(square), size, scale, _size_problem(dataset, row, original)
    )


def fitted_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Width and height with the longer one made ``side`` and the shape kept.

    Examples:
        >>> fitted_size((500, 375), 320), fitted_size((10, 4000), 320)
        ((320, 240), (1, 320))
    """
    scale = side / max(size)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def resize(
    image: UInt8[Tensor, "3 height width"], size: tuple[int, int]
) -> UInt8[Tensor, "3 new_height new_width"]:
    """Resize bilinearly, averaging over the area of a new pixel where the image shrinks.

    Args:
        image: The image.
        size: The new width and height.
    """
    if (image.shape[2], image.shape[1]) == size:
        return image
    return torch.nn.functional.interpolate(
        image[None], (size[1], size[0]), mode="bilinear", antialias=True
    )[0]


def _unreadable(dataset: DetectionDataset, row: int, error: DataError) -> Problem:
    index = dataset.index
    kind, why = "image-unreadable", str(error)
    if isinstance(error, ImageError):
        kind, why = error.kind, error.why
    remedy = "replace the image, or remove it from the data set"
    return Problem(index.images.where(index.files[row]), "", kind, why, remedy, "image left out")


def _size_problem(dataset: DetectionDataset, row: int, size: tuple[int, int]) -> Problem | None:
    index = dataset.index
    annotated = tuple(index.sizes[row].tolist())
    if annotated == size:
        return None
    detail = "the image is {} x {}, its annotation says {} x {}".format(*size, *annotated)
    remedy = "correct the size, and check that the boxes are in pixels of this image"
    return Problem(index.images.where(index.files[row]), "", "image-size", detail, remedy)
