"""Images decoded on demand by worker processes, for data sets that do not fit in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from alphaiou._shapes import Int64
from alphaiou.batch import FILL
from alphaiou.data.pipeline.cache import ImageCache, check_side, make_cache
from alphaiou.data.pipeline.decoding import load_image
from alphaiou.data.problems import Problem

if TYPE_CHECKING:
    from alphaiou.data.dataset import DetectionDataset


def draw_tiles(
    first: Int64[Tensor, " samples"],
    num_images: int,
    *,
    images_per_sample: int = 4,
    generator: torch.Generator | None = None,
) -> Int64[Tensor, " samples*images"]:
    """Draw the images of each sample: the first image, followed by random others.

    Args:
        first: The first image of each sample.
        num_images: The number of images to draw from.
        images_per_sample: Four for a mosaic, one for evaluation.
        generator: The random generator.

    Examples:
        >>> draw_tiles(torch.tensor([7, 8]), 10).view(2, 4)[:, 0]
        tensor([7, 8])
    """
    shape = (len(first), images_per_sample - 1)
    others = torch.randint(num_images, shape, generator=generator)
    return torch.cat([first[:, None], others], dim=1).flatten()


def stream_batches(
    dataset: DetectionDataset,
    order: Sequence[int] | Int64[Tensor, " samples"],
    image_size: int,
    *,
    batch_size: int,
    images_per_sample: int = 4,
    device: torch.device | str = "cpu",
    workers: int | None = None,
    generator: torch.Generator | None = None,
) -> Iterator[ImageCache]:
    """Decode images batch by batch, each batch as a small cache on the device.

    With the rows of ``in_order``, ``augment`` makes the same batches from it as from a full cache.
    An unreadable image becomes an empty square without boxes, so that shapes are static, and is
    listed in the ``problems`` of its cache.

    Args:
        dataset: The images and boxes.
        order: The first image of each sample.
        image_size: The side of the squares, an even number.
        batch_size: The number of samples per batch; the last batch may be smaller.
        images_per_sample: Four for a mosaic, one for evaluation.
        device: The device of the caches.
        workers: The number of decoding processes; one per core by default, 0 for this process.
        generator: The random generator for the other images of a sample.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_dataset
        >>> shapes = shapes_dataset("val", size=64, length=3)
        >>> caches = stream_batches(shapes, [2, 0], 64, batch_size=1, workers=0)
        >>> [len(cache) for cache in caches]
        [4, 4]
    """
    check_side(image_size)
    rows = draw_tiles(
        torch.as_tensor(order, dtype=torch.int64),
        len(dataset),
        images_per_sample=images_per_sample,
        generator=generator,
    )
    parts = _Parts(dataset, torch.split(rows, batch_size * images_per_sample), image_size)
    loader = torch.utils.data.DataLoader(
        parts,
        batch_size=None,
        num_workers=(os.cpu_count() or 1) if workers is None else workers,
        pin_memory=torch.device(device).type == "cuda",
    )
    for part in loader:
        yield part.to(device)


@dataclass(frozen=True)
class StreamedImages:
    """Images decoded on demand, as a replacement for ``ImageCache``.

    Attributes:
        dataset: The images.
        side: The side of the squares.
        workers: The number of decoding processes; one per core by default.
    """

    dataset: DetectionDataset
    side: int
    workers: int | None = None
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def image_ids(self) -> Int64[Tensor, " images"]:
        """The number of each image in the data set."""
        return torch.tensor(self.dataset.index.image_ids)

    def parts(
        self, rows: Int64[Tensor, " some"], batch_size: int, device: torch.device | str
    ) -> Iterator[ImageCache]:
        """Yield some images on a device in batches."""
        return stream_batches(
            self.dataset,
            rows,
            self.side,
            batch_size=batch_size,
            images_per_sample=1,
            device=device,
            workers=self.workers,
        )


class _Parts(torch.utils.data.Dataset[ImageCache]):
    """Yield the caches of consecutive parts of a list of images."""

    def __init__(self, dataset: DetectionDataset, parts: Sequence[Tensor], side: int) -> None:
        self.dataset, self.parts, self.side = dataset, parts, side
        self.most = int(torch.as_tensor(dataset.index.offsets).diff().max())

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, part: int) -> ImageCache:
        rows = self.parts[part].tolist()
        pixels = torch.full((len(rows), self.side, self.side, 3), FILL, dtype=torch.uint8)
        images = [load_image(self.dataset, row, self.side) for row in rows]
        for place, image in enumerate(images):
            if image.pixels is not None:
                pixels[place] = image.pixels
        return make_cache(self.dataset.index, rows, pixels, images, most=self.most)
