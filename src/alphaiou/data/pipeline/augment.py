"""Augmentation of a whole batch with static shapes: mosaic, scale, translation, colours, flip."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._config import Config
from alphaiou._shapes import Bool, Float32, Int32, Int64, Shaped, UInt8
from alphaiou.batch import FILL, Batch, compact
from alphaiou.data.pipeline.cache import ImageCache

Plane = Float32[Tensor, "batch side side"]
#: A negative address; adding any valid address to it stays negative.
NOWHERE = -(2**60)


# --- settings and random numbers ------------------------------------------------------------------


class Augmentation(Config, frozen=True):
    """Augmentation settings; the defaults are those of YOLOv5 trained from scratch.

    Attributes:
        mosaic: The probability of a mosaic of four images.
        scale: The range of the random scale, 1 ± this.
        translate: The range of the random translation, ± this share of the side in x and y.
        hue: The range of the hue factor, 1 ± this.
        saturation: The range of the saturation factor, 1 ± this.
        value: The range of the factor of the value (the largest channel), 1 ± this.
        flip: The probability of a horizontal flip.
        fill: The grey value beside images.
        min_side: The minimum visible width and height of a box in pixels; smaller ones are dropped.
        min_area_share: The minimum visible share of the area of a box; others are dropped.
        max_aspect: The maximum visible aspect ratio of a box; others are dropped.

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
        """Return settings without augmentation: each image centred in its square."""
        return cls(mosaic=0, scale=0, translate=0, hue=0, saturation=0, value=0, flip=0)


class AugmentationSample(NamedTuple):
    """The random numbers of a batch.

    Attributes:
        mosaic: Whether a sample is a mosaic of four images.
        others: The cache rows of the other three images.
        centre: The point where the four images meet on a canvas of twice the side, x and y, from ½
            to 1½ sides.
        scale: The scale factor.
        shift: The position of the canvas centre in the output, x and y, in sides.
        gains: The factors of hue, saturation and value.
        flip: Whether to flip horizontally.
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
        batch_size: The number of samples.
        num_images: The number of images in the cache.
        image_size: The side of the images.
        settings: The augmentation settings.
        device: The device of the random numbers.
        generator: The random generator; by default that of the device, which compiled functions
            and CUDA graphs need.

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


# --- the batch ------------------------------------------------------------------------------------


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
        first: The cache row of the first image of each sample.
        sample: The random numbers.
        settings: The augmentation settings.
        slots: The maximum number of boxes in the batch; ``lost`` counts the boxes beyond it.

    Returns:
        The batch. Its images are uint8, rounded once at the end, which takes a quarter of the
        memory of floats. The detector divides by 255.

    Examples:
        >>> from alphaiou.data.pipeline.cache import build_cache
        >>> from alphaiou.data.shapes.dataset import shapes_dataset
        >>> cache = build_cache(shapes_dataset("val", size=64, length=3), 64)
        >>> sample = sample_augmentation(2, len(cache), 64, Augmentation(), "cpu")
        >>> batch = augment(cache, torch.tensor([0, 2]), sample, Augmentation(), slots=50)
        >>> batch.images.shape, batch.targets.boxes.shape
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
    targets, lost = compact(boxes, cache.labels[tiles.rows].flatten(1), kept, slots)
    return Batch(pack_images(colours), targets, lost)


def in_order(
    sample: AugmentationSample,
) -> tuple[Int64[Tensor, " batch"], AugmentationSample]:
    """Adapt a sample to a cache that holds the four images of each sample consecutively.

    ``stream_batches`` and ``ImageCache.gather`` make such caches.

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
    """Stack three planes into uint8 images, rounded.

    The bytes of a pixel are packed into a 32-bit integer, so that a compiler writes all three in
    one pass. Concatenating planes would make it compute each of them three times.
    """
    red, green, blue = ((plane + 0.5).to(torch.int32) for plane in channels)
    packed = red | (green << 8) | (blue << 16)
    return packed.view(torch.uint8).view(*packed.shape, 4)[..., :3].permute(0, 3, 1, 2)


# --- mosaic ---------------------------------------------------------------------------------------


class Tiles(NamedTuple):
    """The layout of the images of each canvas: upper left, upper right, lower left, lower right.

    Attributes:
        rows: The cache rows of the images.
        centre: The point where the images meet, x and y.
        corner: The position of the top left pixel of each image, possibly outside the canvas.
        low: The first pixel of each image on the canvas, x and y.
        high: One past the last pixel; equal to ``low`` for an image that is not shown.
    """

    rows: Int64[Tensor, "batch 4"]
    centre: Int32[Tensor, "batch 2"]
    corner: Int32[Tensor, "batch 4 2"]
    low: Int32[Tensor, "batch 4 2"]
    high: Int32[Tensor, "batch 4 2"]


def place_tiles(
    cache: ImageCache, first: Int64[Tensor, " batch"], sample: AugmentationSample
) -> Tiles:
    """Lay out the canvases: four images that meet at a point, or the first image centred.

    Args:
        cache: The images.
        first: The cache row of the first image of each canvas, which lies above left of the centre.
        sample: The random numbers.
    """
    side = cache.side
    rows = torch.cat([first[:, None], sample.others], dim=1)
    sizes = cache.sizes[rows]
    number = torch.arange(4, device=rows.device)
    after = torch.stack([number % 2, number // 2], dim=1) == 1
    meeting = sample.centre[:, None]
    alone = ~sample.mosaic[:, None, None]
    corner = torch.where(after, meeting, meeting - sizes)
    corner = torch.where(alone, side // 2 + (side - sizes) // 2, corner)
    low = corner.clamp(min=0)
    high = (corner + sizes).clamp(max=2 * side)
    hidden = alone & (number > 0)[:, None]
    return Tiles(
        rows=rows,
        centre=torch.where(alone[:, 0], 2 * side, sample.centre),
        corner=corner,
        low=low,
        high=torch.where(hidden, low, high),
    )


# --- pixels ---------------------------------------------------------------------------------------


def resample(
    pixels: UInt8[Tensor, "images side side 3"],
    tiles: Tiles,
    sample: AugmentationSample,
    fill: int,
) -> tuple[Plane, Plane, Plane]:
    """Sample the red, green and blue planes of the output, 0 to 255.

    Args:
        pixels: The cache.
        tiles: The canvases.
        sample: The random numbers.
        fill: The value beside the images.
    """
    side = pixels.shape[1]
    x, y = _canvas_points(side, sample)
    left, above = x.floor(), y.floor()
    right_share, below_share = (x - left)[:, None, :], (y - above)[:, :, None]
    addresses = _addresses(tiles, left.to(torch.int32), above.to(torch.int32), side)
    places = [addresses.of_pixels(dx, dy) for dy in (0, 1) for dx in (0, 1)]
    readable = [(place >= 0, place.clamp(min=0)) for place in places]
    flat = pixels.view(-1)

    def read(place: Int64[Tensor, "batch side side"]) -> Plane:
        # Equivalent to flat[place], and 16 times as fast on a CPU.
        return flat.index_select(0, place.flatten()).view_as(place).float()

    def interpolate(channel: int) -> Plane:
        a, b, c, d = (torch.where(shown, read(place + channel), fill) for shown, place in readable)
        upper, lower = a + (b - a) * right_share, c + (d - c) * right_share
        return upper + (lower - upper) * below_share

    return interpolate(0), interpolate(1), interpolate(2)


def _canvas_points(
    side: int, sample: AugmentationSample
) -> tuple[Float32[Tensor, "batch side"], Float32[Tensor, "batch side"]]:
    """Map the centres of output columns and rows to the canvas, in pixels from its centre."""
    points = torch.arange(side, device=sample.scale.device) + 0.5
    columns = torch.where(sample.flip[:, None], side - points, points)
    shift, scale = sample.shift * side, sample.scale[:, None]
    x = (columns - shift[:, :1]) / scale + (side - 0.5)
    y = (points - shift[:, 1:]) / scale + (side - 0.5)
    return computed_once(x), computed_once(y)


class _Addresses(NamedTuple):
    """Cache addresses of the canvas pixels of each output pixel, as a sum over column and row.

    Each output pixel interpolates between two canvas columns and two rows (the steps). Which image
    a column shows depends on whether the row is above or below the centre, so there are terms for
    both halves, and likewise for rows.

    Attributes:
        from_columns: The term of a column; ``NOWHERE`` if the image has no such column.
        from_rows: The term of a row.
        right: Whether a column is right of the centre.
        below: Whether a row is below the centre.
    """

    from_columns: Int64[Tensor, "batch halves=2 step=2 side"]
    from_rows: Int64[Tensor, "batch halves=2 step=2 side"]
    right: Bool[Tensor, "batch step=2 side"]
    below: Bool[Tensor, "batch step=2 side"]

    def of_pixels(self, dx: int, dy: int) -> Int64[Tensor, "batch side side"]:
        """Return the addresses of the red bytes; negative if the canvas shows no image."""
        above, below = self.from_columns[:, :, dx, None, :].unbind(1)
        left, right = self.from_rows[:, :, dy, :, None].unbind(1)
        column = torch.where(self.below[:, dy, :, None], below, above)
        row = torch.where(self.right[:, dx, None, :], right, left)
        return column + row


def _addresses(
    tiles: Tiles, x: Int32[Tensor, "batch side"], y: Int32[Tensor, "batch side"], side: int
) -> _Addresses:
    step = torch.arange(2, device=x.device, dtype=torch.int32)[:, None]
    columns, rows = x[:, None] + step, y[:, None] + step
    right = columns >= tiles.centre[:, :1, None]
    below = rows >= tiles.centre[:, 1:, None]
    left, top = tiles.corner.unbind(2)
    # The address of the first canvas pixel if it belonged to that image.
    start = tiles.rows * side**2 - (top * side + left)
    low, high = tiles.low.view(-1, 2, 2, 2), tiles.high.view(-1, 2, 2, 2)

    def choose(second: Tensor, table: Shaped[Tensor, "batch 2 2"]) -> Tensor:
        return torch.where(second[:, None], table[:, :, 1, None, None], table[:, :, 0, None, None])

    def shown(at: Tensor, second: Tensor, low: Tensor, high: Tensor) -> Tensor:
        return (at[:, None] >= choose(second, low)) & (at[:, None] < choose(second, high))

    in_columns = shown(columns, right, low[..., 0], high[..., 0])
    in_rows = shown(rows, below, low[..., 1].mT, high[..., 1].mT)
    from_columns = 3 * (choose(right, start.view(-1, 2, 2)) + columns[:, None])
    from_rows = 3 * (rows[:, None].long() * side)
    return _Addresses(
        from_columns=computed_once(torch.where(in_columns, from_columns, NOWHERE)),
        from_rows=computed_once(torch.where(in_rows, from_rows, NOWHERE)),
        right=computed_once(right),
        below=computed_once(below),
    )


def computed_once(table: Tensor) -> Tensor:
    """Return a small table unchanged, but materialised instead of recomputed for every pixel."""
    table = table.contiguous()
    return table.as_strided(table.shape, table.stride())


# --- boxes ----------------------------------------------------------------------------------------


def move_boxes(
    cache: ImageCache, tiles: Tiles, sample: AugmentationSample
) -> tuple[Float32[Tensor, "batch boxes 4"], Float32[Tensor, "batch boxes"]]:
    """Return the visible parts of the boxes and the areas of the whole boxes.

    Args:
        cache: The boxes.
        tiles: The canvases.
        sample: The random numbers.

    Returns:
        ``xyxy`` in output pixels, empty for boxes that are not visible; and areas in output pixels.
    """
    side = cache.side
    boxes = cache.boxes[tiles.rows]
    scale = sample.scale[:, None, None, None]
    shift = sample.shift[:, None, None] * side

    def shown(corners: Float32[Tensor, "batch 4 most 2"]) -> Float32[Tensor, "batch 4 most 2"]:
        on_canvas = corners + tiles.corner[:, :, None]
        on_canvas = on_canvas.clamp(tiles.low[:, :, None], tiles.high[:, :, None])
        return ((on_canvas - side) * scale + shift).clamp(0, side)

    low, high = shown(boxes[..., :2]), shown(boxes[..., 2:])
    areas = (boxes[..., 2:] - boxes[..., :2]).prod(-1) * scale[..., 0] ** 2
    flip = sample.flip[:, None, None]
    left = torch.where(flip, side - high[..., 0], low[..., 0])
    right = torch.where(flip, side - low[..., 0], high[..., 0])
    moved = torch.stack([left, low[..., 1], right, high[..., 1]], dim=-1)
    return moved.flatten(1, 2), areas.flatten(1, 2)


def worth_keeping(
    boxes: Float32[Tensor, "batch boxes 4"],
    areas: Float32[Tensor, "batch boxes"],
    *,
    min_side: float,
    min_area_share: float,
    max_aspect: float,
) -> Bool[Tensor, "batch boxes"]:
    """Return which boxes are visible enough to train on.

    Args:
        boxes: The visible parts.
        areas: The areas of the whole boxes.
        min_side: The minimum width and height.
        min_area_share: The minimum share of the whole area.
        max_aspect: The maximum aspect ratio.
    """
    width, height = (boxes[..., 2:] - boxes[..., :2]).unbind(-1)
    large = (width > 0) & (height > 0) & (width >= min_side) & (height >= min_side)
    large = large & (width * height >= min_area_share * areas)
    return large & (width <= max_aspect * height) & (height <= max_aspect * width)


# --- colours --------------------------------------------------------------------------------------


def change_colours(
    rgb: tuple[Plane, Plane, Plane], gains: Float32[Tensor, "batch 3"]
) -> tuple[Plane, Plane, Plane]:
    """Multiply hue (modulo the circle), saturation and value (clamped) by gains.

    With V = max(R, G, B) and C = V − min(R, G, B), S = C / V and the hue H in [0, 6) counts sixths
    of the circle from red. Back from H, S, V, channel n of (5, 3, 1) is

        V − V·S·clamp(min(k, 4 − k), 0, 1)   with   k = (n + H) mod 6.

    Args:
        rgb: The three channels, 0 to 255.
        gains: The factors of hue (at most 2), saturation and value of each image.

    Returns:
        The three channels, 0 to 255.

    Examples:
        >>> red, none = torch.full((1, 1, 1), 200.0), torch.zeros(1, 1, 1)
        >>> paler = change_colours((red, none, none), torch.tensor([[1, 0.5, 1]]))
        >>> [plane.item() for plane in paler]
        [200.0, 100.0, 100.0]
    """
    hue_gain, saturation_gain, value_gain = gains[:, :, None, None].unbind(1)
    hue, saturation, value = _to_hsv(*rgb)
    hue = _within_circle(hue * hue_gain)
    saturation = (saturation * saturation_gain).clamp(max=1)
    value = (value * value_gain).clamp(max=255)
    chroma = value * saturation
    red, green, blue = (value - chroma * _lack(_within_circle(hue + n)) for n in (5, 3, 1))
    return red, green, blue


def _to_hsv(red: Plane, green: Plane, blue: Plane) -> tuple[Plane, Plane, Plane]:
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # If the chroma is 0, any divisor works: the hue of grey is 0.
    divisor = torch.where(chroma > 0, chroma, 1)
    hue = torch.where(
        value == red,
        (green - blue) / divisor,
        torch.where(value == green, 2 + (blue - red) / divisor, 4 + (red - green) / divisor),
    )
    hue = torch.where(hue < 0, hue + 6, hue)
    return hue, chroma / torch.where(value > 0, value, 1), value


def _within_circle(hue: Plane) -> Plane:
    """Wrap a hue in [0, 12) to [0, 6)."""
    return torch.where(hue >= 6, hue - 6, hue)


def _lack(k: Plane) -> Plane:
    """Return the share of the chroma to subtract from a channel."""
    return torch.minimum(k, 4 - k).clamp(0, 1)
