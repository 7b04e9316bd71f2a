"""Batches of augmented images: from a cache on the device, or from memory of the host."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

from alphaiou.data.augment import AugmentationSample, augment, in_order, sample_augmentation
from alphaiou.data.batch import Batch
from alphaiou.data.cache import ImageCache
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe


def seed_of(*parts: object) -> int:
    """A seed of 63 bits made of anything that prints.

    Example:
        >>> seed_of("epoch", 0, 1) != seed_of("epoch", 1, 0)
        True
    """
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


class CachedBatches:
    """Batches out of an image cache.

    Every image of an epoch comes once, and the first ones again to fill the last batch. Randomness
    depends on the seed and the epoch alone, and is that of the whole batch in every process.

    Args:
        cache: The images.
        recipe: The run.
        slots: Boxes that a piece of a batch can hold.
        processes: Who computes a share of each batch.
        device: Where batches are made.
        compile: Whether torch.compile makes the kernels.
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
        """Draw the order of an epoch, and seed its augmentation."""
        generator = torch.Generator().manual_seed(seed_of("order", self.recipe.seed, epoch))
        order = torch.randperm(len(self.cache), generator=generator)
        self.order.copy_(order.repeat(-(-len(self.order) // len(order)))[: len(self.order)])
        torch.manual_seed(seed_of("augmentation", self.recipe.seed, epoch))

    def draw(self, place: Int[Tensor, ""]) -> list[Batch]:
        """The pieces of this process's share of the batch at a place of the epoch."""
        rows = torch.arange(self.recipe.batch_size, device=self.device)
        first = self.order[place * self.recipe.batch_size + rows]
        sample = sample_augmentation(
            len(first), len(self.cache), self.cache.side, self.recipe.augmentation, self.device
        )
        return [
            self._piece(first[rows], AugmentationSample(*(part[rows] for part in sample)))
            for rows in self.shares
        ]

    def _piece(self, first: Int[Tensor, " images"], sample: AugmentationSample) -> Batch:
        cache = self.cache
        if not self.capturable:
            rows = torch.cat([first[:, None], sample.others], dim=1).flatten()
            cache = cache.gather(rows.to(cache.pixels.device), self.device)
            first, sample = in_order(sample)
        return self.augment(cache, first, sample, self.recipe.augmentation, self.slots)
