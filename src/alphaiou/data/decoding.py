"""All images of a data set decoded by several processes into memory that they share."""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING

import torch
from jaxtyping import UInt8
from torch import Tensor

from alphaiou.data.cached_image import CachedImage, load_image

if TYPE_CHECKING:
    from alphaiou.data.dataset import DetectionDataset

Slab = tuple[UInt8[Tensor, "images side side 3"], list[CachedImage]]
#: Memory that is shared at a time.
SLAB_BYTES = 512 << 20
#: Starting a process takes as long as decoding about so many images.
IMAGES_WORTH_A_PROCESS = 256
IMAGES_AT_ONCE = 16


def decode_slabs(
    dataset: DetectionDataset, side: int, processes: int | None = None
) -> Iterator[Slab]:
    """Decode the images in their order, some hundred megabytes at a time.

    Pixels are written where the caller reads them: nothing is sent from process to process, and
    the memory is not that of ``/dev/shm``, which is small in containers.

    Args:
        dataset: The images.
        side: The side of the squares.
        processes: How many decode: one a core unless given, none but this one for few images.

    Yields:
        The pixels of some images, valid until the next are asked for, and what loading said.
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
    """The images of one slab after another."""
    starts = range(0, count, slab)
    if processes < 2 or sys.platform != "linux":  # elsewhere memory is not inherited
        for start in starts:
            yield start, [load(row) for row in range(start, min(start + slab, count))]
        return
    load(0)  # imports decoders and lists archives, once for all of them
    with ProcessPoolExecutor(
        processes, mp_context=get_context("fork"), initializer=_begin, initargs=(load,)
    ) as pool:
        for start in starts:
            rows = range(start, min(start + slab, count))
            yield start, list(pool.map(_load, rows, chunksize=IMAGES_AT_ONCE))


#: How this process loads an image, once it is one of several.
_LOADERS: list[Callable[[int], CachedImage]] = []


def _begin(load: Callable[[int], CachedImage]) -> None:
    """Take over what the parent process had: a forked process inherits it, nothing is pickled."""
    _LOADERS.append(load)
    torch.set_num_threads(1)


def _load(row: int) -> CachedImage:
    return _LOADERS[-1](row)
