"""Four images on a canvas of twice the side, cut back to one square: pixels and boxes.

Coordinates are continuous: pixel i covers i to i + 1. An output point u comes from the canvas point
(u − shift · side) / scale + side, where the canvas has its centre at ``side``. Nothing is drawn on
the way: every output pixel is interpolated straight from the cache, the same as if the canvas
had been drawn first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float32, Int32, Int64, UInt8
from torch import Tensor

from alphaiou.data.cache import ImageCache
from alphaiou.data.colour import Plane

if TYPE_CHECKING:
    from alphaiou.data.augment import AugmentationSample


class Tiles(NamedTuple):
    """Where the four images of each canvas lie: upper left, upper right, lower left, lower right.

    Attributes:
        rows: Their rows in the cache.
        centre: Where they meet, x and y.
        corner: Where the top left pixel of each lies, perhaps beyond the canvas.
        low: The first pixel of each that is on the canvas, x and y.
        high: One after the last; ``low`` for an image that is not shown.
    """

    rows: Int64[Tensor, "batch 4"]
    centre: Int32[Tensor, "batch 2"]
    corner: Int32[Tensor, "batch 4 2"]
    low: Int32[Tensor, "batch 4 2"]
    high: Int32[Tensor, "batch 4 2"]


def place_tiles(
    cache: ImageCache, first: Int64[Tensor, " batch"], sample: AugmentationSample
) -> Tiles:
    """Lay out the canvases: four images that meet at a centre, or the first one in the middle.

    Args:
        cache: The images.
        first: The row of the first image of each canvas, which lies left of and above the centre.
        sample: The other images, the centres, and whether there are four.
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


def resample(
    pixels: UInt8[Tensor, "images side side 3"],
    tiles: Tiles,
    sample: AugmentationSample,
    fill: int,
) -> tuple[Plane, Plane, Plane]:
    """The red, green and blue of the output squares, 0 to 255.

    Args:
        pixels: The cache.
        tiles: The canvases.
        sample: How they are moved.
        fill: The value beside the images.
    """
    side = pixels.shape[1]
    x, y = _canvas_points(side, sample)
    left, above = x.floor(), y.floor()
    right_share, below_share = (x - left)[:, None, :], (y - above)[:, :, None]
    look_up = _LookUp(pixels, tiles, fill)
    column, row = left.to(torch.int32)[:, None, :], above.to(torch.int32)[:, :, None]
    corners = [look_up(column + dx, row + dy) for dy in (0, 1) for dx in (0, 1)]

    def interpolate(channel: int) -> Plane:
        a, b, c, d = (corner[channel] for corner in corners)
        upper, lower = a + (b - a) * right_share, c + (d - c) * right_share
        return upper + (lower - upper) * below_share

    return interpolate(0), interpolate(1), interpolate(2)


def _canvas_points(
    side: int, sample: AugmentationSample
) -> tuple[Float32[Tensor, "batch side"], Float32[Tensor, "batch side"]]:
    """Where the centres of output columns and rows lie on the canvas, in pixels from a centre."""
    points = torch.arange(side, device=sample.scale.device) + 0.5
    columns = torch.where(sample.flip[:, None], side - points, points)
    shift, scale = sample.shift * side, sample.scale[:, None]
    x = (columns - shift[:, :1]) / scale + (side - 0.5)
    y = (points - shift[:, 1:]) / scale + (side - 0.5)
    return x, y


class _LookUp:
    """Canvas pixels by column and row, read from the cache."""

    def __init__(self, pixels: Tensor, tiles: Tiles, fill: int) -> None:
        self.side = pixels.shape[1]
        self.pixels, self.fill = pixels.view(-1), fill
        self.centre = tiles.centre[:, :, None, None].unbind(1)
        left, top = tiles.corner.unbind(2)
        place = tiles.rows * self.side**2 - (top * self.side + left)
        # Where the first canvas pixel would be in the cache if it were of that tile.
        self.start = _computed_once(3 * place)
        self.low = _computed_once(tiles.low).view(-1, 2)
        self.high = _computed_once(tiles.high).view(-1, 2)
        self.canvas = 4 * torch.arange(len(tiles.rows), device=pixels.device)[:, None, None]

    def __call__(self, x: Tensor, y: Tensor) -> list[Plane]:
        """Red, green and blue of the pixels (x, y) of each canvas."""
        tile = self.canvas + torch.where(x >= self.centre[0], 1, 0)
        tile = tile + torch.where(y >= self.centre[1], 2, 0)
        inside = (x >= self.low[tile, 0]) & (x < self.high[tile, 0])
        inside = inside & (y >= self.low[tile, 1]) & (y < self.high[tile, 1])
        offset = self.start.view(-1)[tile] + 3 * (y * self.side + x)
        offset = torch.where(inside, offset, 0)
        found = (self.pixels[offset + channel].float() for channel in range(3))
        return [torch.where(inside, value, self.fill) for value in found]


def _computed_once(table: Tensor) -> Tensor:
    """The same table, which a compiler then stores, and does not compute anew for every pixel."""
    table = table.contiguous()
    return table.as_strided(table.shape, table.stride())


def move_boxes(
    cache: ImageCache, tiles: Tiles, sample: AugmentationSample
) -> tuple[Float32[Tensor, "batch 4*most 4"], Float32[Tensor, "batch 4*most"]]:
    """The parts of the boxes that the output shows, and the area that the whole boxes would have.

    Args:
        cache: The boxes.
        tiles: The canvases.
        sample: How they are moved.

    Returns:
        ``xyxy`` in the output, of no size where nothing is shown; and areas in its pixels.
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
    """Whether enough of a box is shown to learn from.

    Args:
        boxes: The parts that are shown.
        areas: The areas that the whole boxes would have.
        min_side: The least width and height.
        min_area_share: The least share of the whole area.
        max_aspect: The most that one side may be of the other.
    """
    width, height = (boxes[..., 2:] - boxes[..., :2]).unbind(-1)
    large = (width > 0) & (height > 0) & (width >= min_side) & (height >= min_side)
    large = large & (width * height >= min_area_share * areas)
    return large & (width <= max_aspect * height) & (height <= max_aspect * width)
