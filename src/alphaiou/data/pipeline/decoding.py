"""Decode and resize images, in several processes if there are many."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from alphaiou._shapes import UInt8
from alphaiou.batch import FILL
from alphaiou.data.images import ImageError
from alphaiou.data.problems import DataError, Problem

if TYPE_CHECKING:
    from alphaiou.data.dataset import DetectionDataset


class CachedImage(NamedTuple):
    """A loaded image.

    Attributes:
        row: The position of the image in the data set.
        pixels: The padded square; None if the image is unreadable or the pixels were copied.
        size: Width and height within the square; 0 if the image is unreadable.
        scale: The factors from the original size in x and y.
        problem: The problem with the image, if any.
    """

    row: int
    pixels: UInt8[Tensor, "side side 3"] | None
    size: tuple[int, int] = (0, 0)
    scale: tuple[float, float] = (1.0, 1.0)
    problem: Problem | None = None

    @property
    def readable(self) -> bool:
        """Whether the image could be read."""
        return self.size != (0, 0)


def load_image(dataset: DetectionDataset, row: int, side: int) -> CachedImage:
    """Decode one image, resize its longer side to ``side`` and pad it to a square.

    Unreadable images are returned with a problem, not raised.
    """
    try:
        image, _ = dataset[row]
    except DataError as error:
        return CachedImage(row, None, problem=_unreadable(dataset, row, error))
    original = (image.shape[2], image.shape[1])
    return fit_image(image, side, row)._replace(problem=_size_problem(dataset, row, original))


def fit_image(image: UInt8[Tensor, "3 height width"], side: int, row: int = 0) -> CachedImage:
    """Resize the longer side of an image to ``side`` and pad it to a square.

    Examples:
        >>> fit_image(torch.zeros(3, 30, 60, dtype=torch.uint8), 20).size
        (20, 10)
    """
    original = (image.shape[2], image.shape[1])
    size = fitted_size(original, side)
    # numpy, because the threads of torch would wait for each other longer than this takes.
    square = np.full((side, side, 3), FILL, dtype=np.uint8)
    square[: size[1], : size[0]] = resize(image, size).permute(1, 2, 0).numpy()
    scale = (size[0] / original[0], size[1] / original[1])
    return CachedImage(row, torch.from_numpy(square), size, scale)


def fitted_size(size: tuple[int, int], side: int) -> tuple[int, int]:
    """Return width and height scaled so that the longer one is ``side``.

    Examples:
        >>> fitted_size((500, 375), 320), fitted_size((10, 4000), 320)
        ((320, 240), (1, 320))
    """
    scale = side / max(size)
    return max(round(size[0] * scale), 1), max(round(size[1] * scale), 1)


def resize(
    image: UInt8[Tensor, "3 height width"], size: tuple[int, int]
) -> UInt8[Tensor, "3 new_height new_width"]:
    """Resize bilinearly with antialiasing.

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


Slab = tuple[UInt8[Tensor, "images side side 3"], list[CachedImage]]
#: The size of a slab of shared memory.
SLAB_BYTES = 512 << 20
#: Starting a process takes about as long as decoding this many images.
IMAGES_WORTH_A_PROCESS = 256
IMAGES_AT_ONCE = 16


def decode_slabs(
    dataset: DetectionDataset, side: int, processes: int | None = None
) -> Iterator[Slab]:
    """Decode images in order, a few hundred megabytes at a time.

    Workers write pixels to memory shared with the caller, so nothing is sent between processes. It
    is not ``/dev/shm``, which is small in containers.

    Args:
        dataset: The images.
        side: The side of the squares.
        processes: The number of processes; by default one per core, or this one for few images.

    Yields:
        The pixels of some images, valid until the next iteration, and their loading results.
    """
    if processes is None:
        processes = min(os.cpu_count() or 1, len(dataset) // IMAGES_WORTH_A_PROCESS)
    each = side * side * 3
    slab = max(1, min(len(dataset), SLAB_BYTES // each))
    shared = torch.frombuffer(mmap.mmap(-1, slab * each), dtype=torch.uint8)
    pixels = shared.view(slab, side, side, 3)

    def load(row: int) -> CachedImage:
        image = load_image(dataset, row, side)
        if image.pixels is not None:
            pixels[row % slab].copy_(image.pixels)
        return image._replace(pixels=None)

    for start, images in _in_turn(load, len(dataset), slab, processes):
        yield pixels[: min(slab, len(dataset) - start)], images


def _in_turn(
    load: Callable[[int], CachedImage], count: int, slab: int, processes: int
) -> Iterator[tuple[int, list[CachedImage]]]:
    """Yield the images slab by slab."""
    starts = range(0, count, slab)
    if processes < 2 or sys.platform != "linux":  # other start methods do not inherit memory
        for start in starts:
            yield start, [load(row) for row in range(start, min(start + slab, count))]
        return
    load(0)  # import decoders and list archives once, before forking
    with ProcessPoolExecutor(
        processes, mp_context=get_context("fork"), initializer=_begin, initargs=(load,)
    ) as pool:
        for start in starts:
            rows = range(start, min(start + slab, count))
            yield start, list(pool.map(_load, rows, chunksize=IMAGES_AT_ONCE))


#: The loading function of a worker process.
_LOADERS: list[Callable[[int], CachedImage]] = []


def _begin(load: Callable[[int], CachedImage]) -> None:
    """Set up a worker; a forked process inherits the arguments without pickling."""
    _LOADERS.append(load)
    torch.set_num_threads(1)


def _load(row: int) -> CachedImage:
    return _LOADERS[-1](row)
