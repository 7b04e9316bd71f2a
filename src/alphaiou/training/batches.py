"""Batches of augmented images, from a cache in memory or decoded as needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from copy import copy

import torch
from torch import Tensor

from alphaiou._shapes import Int
from alphaiou.batch import Batch
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.pipeline.augment import (
    AugmentationSample,
    augment,
    in_order,
    sample_augmentation,
)
from alphaiou.data.pipeline.cache import ImageCache
from alphaiou.data.pipeline.stream import stream_batches
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe
from alphaiou.training.step import Batches


def seed_of(*parts: object) -> int:
    """Return a 63-bit seed derived from the string forms of the parts.

    Examples:
        >>> seed_of("epoch", 0, 1) != seed_of("epoch", 1, 0)
        True
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def epoch_order(images: int, length: int, seed: int, epoch: int) -> Int[Tensor, " length"]:
    """Return the image order of an epoch: every image once, then the first ones again."""
    generator = torch.Generator().manual_seed(seed_of("order", seed, epoch))
    order = torch.randperm(images, generator=generator)
    return order.repeat(-(-length // images))[:length]


class CachedBatches:
    """Batches from an image cache.

    An epoch visits every image once and repeats the first ones to fill the last batch. The random
    numbers depend only on the seed and the epoch. Every process draws them for the whole batch.

    Args:
        cache: The training images.
        recipe: The recipe of the run.
        slots: The maximum number of boxes in a piece of a batch.
        processes: The processes that share each batch.
        device: The device of the batches.
        compile: Whether to compile the augmentation with ``torch.compile``.
    """

    def __init__(
        self,
        cache: ImageCache,
        recipe: Recipe,
        *,
        slots: int,
        processes: Processes,
        device: torch.device,
        compile: bool = False,  # noqa: A002
    ) -> None:
        self.cache, self.recipe, self.slots, self.device = cache, recipe, slots, device
        self.capturable = cache.pixels.device == device
        self.shares = processes.shares(recipe.batch_size, recipe.optimisation.accumulate)
        self.steps = -(-len(cache) // recipe.batch_size)
        self.order = torch.zeros(self.steps * recipe.batch_size, dtype=torch.int64, device=device)
        self.augment: Callable[..., Batch] = augment
        if compile:
            self.augment = torch.compile(augment, fullgraph=True, dynamic=False)

    def begin_epoch(self, epoch: int) -> None:
        """Draw the image order of an epoch and seed its augmentation."""
        seed = self.recipe.seed
        self.order.copy_(epoch_order(len(self.cache), len(self.order), seed, epoch))
        torch.manual_seed(seed_of("augmentation", seed, epoch))

    def draw(self, place: Int[Tensor, ""]) -> list[Batch]:
        """Return the pieces of this process's share of the batch at a position in the epoch."""
        rows = torch.arange(self.recipe.batch_size, device=self.device)
        first = self.order[place * self.recipe.batch_size + rows]
        sample = sample_augmentation(
            len(first), len(self.cache), self.cache.side, self.recipe.augmentation, self.device
        )
        return [self._piece(first[rows], rows_of(sample, rows)) for rows in self.shares]

    def _piece(self, first: Int[Tensor, " images"], sample: AugmentationSample) -> Batch:
        cache = self.cache
        if not self.capturable:
            rows = torch.cat([first[:, None], sample.others], dim=1).flatten()
            cache = cache.gather(rows.to(cache.pixels.device), self.device)
            first, sample = in_order(sample)
        return self.augment(cache, first, sample, self.recipe.augmentation, self.slots)


class StreamedBatches:
    """Batches decoded by worker processes on demand, for images that do not fit in memory.

    The samples have the same distribution as those of ``CachedBatches`` but are not identical,
    because the images of a mosaic are drawn on the host.

    Args:
        dataset: The training images.
        recipe: The recipe of the run.
        slots: The maximum number of boxes in a piece of a batch.
        processes: The processes that share each batch.
        device: The device of the batches.
        workers: The number of decoding processes; one per core by default.
    """

    capturable = False

    def __init__(
        self,
        dataset: DetectionDataset,
        recipe: Recipe,
        *,
        slots: int,
        processes: Processes,
        device: torch.device,
        workers: int | None = None,
    ) -> None:
        self.dataset, self.recipe, self.slots, self.device = dataset, recipe, slots, device
        self.shares = processes.shares(recipe.batch_size, recipe.optimisation.accumulate)
        self.steps = -(-len(dataset) // recipe.batch_size)
        self.workers = workers
        self.parts: Iterator[ImageCache] = iter(())

    def begin_epoch(self, epoch: int) -> None:
        """Start the workers on the images of an epoch and seed its augmentation."""
        recipe = self.recipe
        length = self.steps * recipe.batch_size
        order = epoch_order(len(self.dataset), length, recipe.seed, epoch)
        batches = order.view(self.steps, recipe.batch_size)
        share = torch.cat([batches[:, rows] for rows in self.shares], dim=1)
        self.parts = stream_batches(
            self.dataset,
            share.flatten(),
            recipe.image_size,
            batch_size=share.shape[1] // len(self.shares),
            device=self.device,
            workers=self.workers,
            generator=torch.Generator().manual_seed(seed_of("tiles", recipe.seed, epoch)),
        )
        torch.manual_seed(seed_of("augmentation", recipe.seed, epoch))

    def draw(self, place: Int[Tensor, ""]) -> list[Batch]:
        """Return the pieces of this process's share of the next batch."""
        recipe, images = self.recipe, len(self.dataset)
        sample = sample_augmentation(
            recipe.batch_size, images, recipe.image_size, recipe.augmentation, self.device
        )
        return [
            augment(
                next(self.parts),
                *in_order(rows_of(sample, rows)),
                settings=recipe.augmentation,
                slots=self.slots,
            )
            for rows in self.shares
        ]


def first_batch(batches: Batches) -> Batch:
    """Return the first piece of the first batch of a training, without any effect on the training.

    It is the piece that this process computes first in the first step; a batch that is neither
    shared by processes nor accumulated has no other piece.
    """
    batches = copy(batches)
    if isinstance(batches, StreamedBatches):
        batches.workers = 0  # for one batch, processes would take longer to start
    elif isinstance(batches, CachedBatches):
        batches.order = batches.order.clone()
    devices = [batches.device] if batches.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        batches.begin_epoch(0)
        return batches.draw(torch.zeros((), dtype=torch.int64, device=batches.device))[0]


def rows_of(sample: AugmentationSample, rows: slice) -> AugmentationSample:
    """Return the random numbers of a slice of the batch."""
    return AugmentationSample(*(part[rows] for part in sample))
