"""Augmentation of whole batches on the device: mosaic, scale, shift, flip and colour.

Two pure functions: :func:`sample_augmentation` draws every random number, :func:`augment` does the
rest. Neither waits for the device nor has a shape that depends on the data, so that both can be
part of a compiled training step and of a CUDA graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float32, Int32, Int64, UInt8
from torch import Tensor

from alphaiou.data.batch import Batch, compact
from alphaiou.data.cache import ImageCache
from alphaiou.data.cached_image import FILL
from alphaiou.data.colour import Plane, change_colours
from alphaiou.data.mosaic import computed_once, move_boxes, place_tiles, resample, worth_keeping


@dataclass(frozen=True)
class Augmentation:
    """What is changed, and how much; the defaults are those of YOLOv5's training from scratch.

    Attributes:
        mosaic: How probable it is that a sample is made of four images, and not of one.
        scale: The sample is scaled by 1 ± this.
        translate: It is shifted by ± this share of the side, in x and in y.
        hue: Hues are multiplied by 1 ± this, round the circle.
        saturation: Saturations are multiplied by 1 ± this.
        value: Values (the largest channel) are multiplied by 1 ± this.
        flip: How probable it is that left and right are exchanged.
        fill: The grey beside images.
        min_side: A box that is shown less wide or less high than this many pixels is dropped.
        min_area_share: So is one of which less than this share of its area is shown.
        max_aspect: So is one that is shown longer than this many times its width, or the reverse.

    Examples:
        >>> Augmentation(mosaic=2)
        Traceback (most recent call last):
        ...
        ValueError: mosaic must be from 0 to 1, got 2
    """

    mosaic: float = 1.0
    scale: float = 0.5
    translate: float = 0.1
    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    flip: float = 0.5
    fill: int = FILL
    min_side: float = 2.0
    min_area_share: float = 0.1
    max_aspect: float = 20.0

    def __post_init__(self) -> None:
        shares = "mosaic", "translate", "hue", "saturation", "value", "flip", "min_area_share"
        for name in shares:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)!r}")
        if not 0 <= self.scale < 1:
            raise ValueError(f"scale must be at least 0 and below 1, got {self.scale!r}")
        if self.fill not in range(256):
            raise ValueError(f"fill must be a whole number from 0 to 255, got {self.fill!r}")
        if not (self.min_side >= 0 and self.max_aspect >= 1):
            raise ValueError(
                "min_side must be at least 0 and max_aspect at least 1, "
                f"got {self.min_side!r} and {self.max_aspect!r}"
            )

    @classmethod
    def none(cls) -> Augmentation:
        """No change at all: every image by itself, in the middle of its square."""
        return cls(mosaic=0, scale=0, translate=0, hue=0, saturation=0, value=0, flip=0)


class AugmentationSample(NamedTuple):
    """Every random number that a batch needs.

    Attributes:
        mosaic: Whether a sample is made of four images.
        others: The rows in the cache of the three images beside the first.
        centre: Where the four meet on a canvas of twice the side, x and y, from ½ to 1½ sides.
        scale: The factor of the scale.
        shift: Where the centre of the canvas comes to lie in the output, in sides, x and y.
        gains: The factors of hue, saturation and value.
        flip: Whether left and right are exchanged.
    """

    mosaic: Bool[Tensor, " batch"]
    others: Int64[Tensor, "batch 3"]
    centre: Int32[Tensor, "batch 2"]
    scale: Float32[Tensor, " batch"]
    shift: Float32[Tensor, "batch 2"]
    gains: Float32[Tensor, "batch 3"]
    flip: Bool[Tensor, " batch"]


def sample_augmentation(
    batch_size: int,
    num_images: int,
    image_size: int,
    settings: Augmentation,
    device: torch.device | str,
    *,
    generator: torch.Generator | None = None,
) -> AugmentationSample:
    """Draw the random numbers of a batch.

    Args:
        batch_size: How many samples.
        num_images: How many images the cache has.
        image_size: Their side.
        settings: What is changed, and how much.
        device: Where to draw.
        generator: The source of the numbers; the device's own unless given, which is what a
            compiled function and a CUDA graph want.

    Examples:
        >>> source = torch.Generator().manual_seed(0)
        >>> sample = sample_augmentation(2, 10, 320, Augmentation(), "cpu", generator=source)
        >>> sample.others.shape, bool((sample.scale >= 0.5).all())
        (torch.Size([2, 3]), True)
    """
    uniform = torch.rand(batch_size, 10, device=device, generator=generator)
    others = torch.randint(num_images, (batch_size, 3), device=device, generator=generator)
    centred = 2 * uniform - 1
    hue, saturation, value = centred[:, 5:8].unbind(1)
    colour = [hue * settings.hue, saturation * settings.saturation, value * settings.value]
    sample = AugmentationSample(
        mosaic=uniform[:, 8] < settings.mosaic,
        others=others,
        centre=((0.5 + uniform[:, 0:2]) * image_size).to(torch.int32),
        scale=1 + centred[:, 2] * settings.scale,
        shift=0.5 + centred[:, 3:5] * settings.translate,
        gains=1 + torch.stack(colour, dim=1),
        flip=uniform[:, 9] < settings.flip,
    )
    return AugmentationSample(*map(computed_once, sample))


def augment(
    cache: ImageCache,
    first: Int64[Tensor, " batch"],
    sample: AugmentationSample,
    settings: Augmentation,
    slots: int,
) -> Batch:
    """Make a batch of training samples from images of the cache.

    Args:
        cache: Images and boxes, on the device.
        first: The row of the image that each sample is about.
        sample: The random numbers.
        settings: What is changed, and how much.
        slots: How many boxes the batch has place for; ``lost`` counts those that it has not.

    Returns:
        The batch. Its images are bytes, rounded once at the end: a quarter of the memory of
        floats, and what a detector divides by 255 itself.

    Examples:
        >>> from alphaiou.data.cache import build_cache
        >>> from alphaiou.data.shapes import shapes_dataset
        >>> cache = build_cache(shapes_dataset("val", size=64, length=3), 64)
        >>> sample = sample_augmentation(2, len(cache), 64, Augmentation(), "cpu")
        >>> batch = augment(cache, torch.tensor([0, 2]), sample, Augmentation(), slots=50)
        >>> batch.images.shape, batch.boxes.shape
        (torch.Size([2, 3, 64, 64]), torch.Size([50, 4]))
    """
    tiles = place_tiles(cache, first, sample)
    colours = change_colours(resample(cache.pixels, tiles, sample, settings.fill), sample.gains)
    boxes, areas = move_boxes(cache, tiles, sample)
    number = torch.arange(cache.labels.shape[1], device=first.device)
    there = (number < cache.counts[tiles.rows, None]).flatten(1)
    kept = there & worth_keeping(
        boxes,
        areas,
        min_side=settings.min_side,
        min_area_share=settings.min_area_share,
        max_aspect=settings.max_aspect,
    )
    found = compact(boxes, cache.labels[tiles.rows].flatten(1), kept, slots)
    return Batch(pack_images(colours), **found._asdict())


def in_order(
    sample: AugmentationSample,
) -> tuple[Int64[Tensor, " batch"], AugmentationSample]:
    """The sample for a cache that holds the four images of each sample one after another.

    ``stream_batches`` and ``ImageCache.gather`` make such caches: what the images are was drawn
    before them.

    Returns:
        The rows of the first images, and the sample with the rows of the others.

    Examples:
        >>> first, sample = in_order(sample_augmentation(2, 9, 64, Augmentation(), "cpu"))
        >>> first, sample.others
        (tensor([0, 4]), tensor([[1, 2, 3],
                [5, 6, 7]]))
    """
    rows = torch.arange(4 * len(sample.others), device=sample.others.device).view(-1, 4)
    return rows[:, 0], sample._replace(others=rows[:, 1:])


def pack_images(channels: tuple[Plane, Plane, Plane]) -> UInt8[Tensor, "batch 3 side side"]:
    """Three planes as images of bytes, rounded.

    The bytes of a pixel are put together as one number of 32 bits: a compiler then writes all
    three in one pass, where a concatenation of planes makes it compute each of them three times.
    """
    red, green, blue = ((plane + 0.5).to(torch.int32) for plane in channels)
    packed = red | (green << 8) | (blue << 16)
    return packed.view(torch.uint8).view(*packed.shape, 4)[..., :3].permute(0, 3, 1, 2)
