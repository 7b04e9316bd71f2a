"""The CUDA kernels of ``pool_cells``: one program per pooled cell, with all its channels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from alphaiou.detectors.ops import pooling
from alphaiou.detectors.ops.kernels import side_by_side

#: A kernel sees no other globals than these.
POOLED, POINTS = tl.constexpr(pooling.POOLED), tl.constexpr(pooling.POINTS)


@triton.jit
def _neighbours(position, size):
    """The two cells around a position along one axis, and what they count; nothing far outside."""
    inside = (position >= -1.0) & (position <= size)
    position = tl.maximum(position, 0.0)
    # The second limit is for places that are NaN: nothing is read outside the features.
    low = tl.maximum(tl.minimum(position.to(tl.int32), size - 1), 0)
    high = tl.maximum(tl.minimum(low + 1, size - 1), 0)
    share = tl.where(low < size - 1, position - low, 0.0)
    return low, high, tl.where(inside, 1.0 - share, 0.0), tl.where(inside, share, 0.0)


@triton.jit
def _cell(places):
    """The region's image, the upper left corner of this program's cell, and the cell's sides."""
    region, cell = tl.program_id(0) // (POOLED * POOLED), tl.program_id(0) % (POOLED * POOLED)
    place = places + region * 5
    image = tl.load(place).to(tl.int64)
    x, y = tl.load(place + 1), tl.load(place + 2)
    width = tl.maximum(tl.load(place + 3) - x, 1.0) / POOLED
    height = tl.maximum(tl.load(place + 4) - y, 1.0) / POOLED
    return image, x + (cell % POOLED) * width, y + (cell // POOLED) * height, width, height


@triton.jit
def _level(bounds):
    """The first row of the region's level, and the level's rows and columns."""
    bound = bounds + tl.program_id(0) // (POOLED * POOLED) * 3
    return tl.load(bound), tl.load(bound + 1), tl.load(bound + 2)


@triton.jit
def _around(y, x, level, width):
    """The four cells around a point, counted from the image's first one, and what they count."""
    top, rows, columns = level
    y_low, y_high, above, below = _neighbours(y, rows)
    x_low, x_high, before, after = _neighbours(x, columns)
    upper, lower = (top + y_low) * width, (top + y_high) * width
    cells = (upper + x_low, upper + x_high, lower + x_low, lower + x_high)
    return cells, (above * before, above * after, below * before, below * after)


@triton.jit
def _pool(features, places, bounds, pooled, channels, rows, columns, BLOCK: tl.constexpr):
    image, left, top, width, height = _cell(places)
    level = _level(bounds)
    channel = tl.arange(0, BLOCK)
    there = channel < channels
    own = features + image * rows * columns * channels + channel
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for down in tl.static_range(POINTS):
        y = top + (down + 0.5) * height / POINTS
        for along in tl.static_range(POINTS):
            x = left + (along + 0.5) * width / POINTS
            cells, shares = _around(y, x, level, columns)
            for number in tl.static_range(4):
                value = tl.load(own + cells[number] * channels, mask=there, other=0.0)
                total += shares[number] * value.to(tl.float32)
    out = pooled + tl.program_id(0).to(tl.int64) * channels + channel
    tl.store(out, total / (POINTS * POINTS), mask=there)


@triton.jit
def _spread(gradient, places, bounds, into, channels, rows, columns, BLOCK: tl.constexpr):
    image, left, top, width, height = _cell(places)
    level = _level(bounds)
    channel = tl.arange(0, BLOCK)
    there = channel < channels
    from_cell = gradient + tl.program_id(0).to(tl.int64) * channels + channel
    own = into + image * rows * columns * channels + channel
    value = tl.load(from_cell, mask=there, other=0.0).to(tl.float32) / (POINTS * POINTS)
    # Slots without a region all lie at one place, where they would wait for each other.
    if tl.max(tl.abs(value), axis=0) > 0.0:
        for down in tl.static_range(POINTS):
            y = top + (down + 0.5) * height / POINTS
            for along in tl.static_range(POINTS):
                x = left + (along + 0.5) * width / POINTS
                cells, shares = _around(y, x, level, columns)
                for number in tl.static_range(4):
                    into_cell = own + cells[number] * channels
                    tl.atomic_add(into_cell, shares[number] * value, mask=there, sem="relaxed")


def launch(features: Tensor, places: Tensor, bounds: Tensor) -> Tensor:
    """Pool; the arguments are those of ``pooling.stack``."""
    _, channels, rows, columns = features.shape
    features = features.contiguous(memory_format=torch.channels_last)
    pooled = side_by_side((len(places), channels, POOLED.value, POOLED.value), features)
    _run(_pool, features, (places, bounds), pooled, channels, rows, columns)
    return pooled


def launch_backward(
    gradient: Tensor, places: Tensor, bounds: Tensor, shape: Sequence[int]
) -> Tensor:
    """The gradient with regard to features of a shape, given that with regard to the cells."""
    batch, channels, rows, columns = shape
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    into = torch.zeros(batch, rows, columns, channels, device=gradient.device).permute(0, 3, 1, 2)
    _run(_spread, gradient, (places, bounds), into, channels, rows, columns)
    return into.to(gradient.dtype)


def _run(
    kernel: triton.JITFunction,
    source: Tensor,
    regions: tuple[Tensor, Tensor],
    target: Tensor,
    channels: int,
    rows: int,
    columns: int,
) -> None:
    places, bounds = regions[0].float().contiguous(), regions[1].contiguous()
    if cells := len(places) * POOLED.value**2:
        block = triton.next_power_of_2(channels)
        warps = max(1, min(8, block // 128))
        kernel[(cells,)](
            source, places, bounds, target, channels, rows, columns, BLOCK=block, num_warps=warps
        )
