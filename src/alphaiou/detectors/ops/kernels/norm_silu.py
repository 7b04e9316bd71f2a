"""The CUDA kernels of ``norm_silu``, over a matrix of rows (pixels) and columns (channels).

A program has some channels and a part of the rows. First every program writes sums over its part;
then each adds up those of all parts, and goes over its rows once more. The order in which numbers
are added never changes.

With r = 1 / √(variance + ε), d = x − mean, y = w r d + b, and g the gradient times SiLU'(y), over
R rows: ∂b = Σ g, ∂w = r Σ g d, ∂x = w r (g − Σ g / R − r² d Σ g d / R).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from alphaiou.detectors.ops.kernels import side_by_side

WARPS = 8
#: Numbers that a program reads at once, and such tiles on their way, those of half precision.
TILE, STAGES = 4096, 4
#: Of a program. With more, tiles have longer rows; but for as many programs there are more parts
#: then, and more sums to add up in each program.
MOST_CHANNELS = 32
#: A program holds the sums of all parts in registers.
MOST_PARTS = 256
FEWEST_ROWS = 128
PROGRAMS_A_PROCESSOR = 3


class Layout(NamedTuple):
    """Rows and channels of a tile, and the parts into which all rows are split."""

    block_rows: int
    block_channels: int
    parts: int


def layout(rows: int, channels: int, processors: int) -> Layout:
    """As many programs as keep the processors of a device busy, but no parts of a few rows.

    Examples:
        >>> layout(102_400, 64, processors=132)
        Layout(block_rows=128, block_channels=32, parts=128)
    """
    block_channels = min(MOST_CHANNELS, triton.next_power_of_2(channels))
    blocks = triton.cdiv(channels, block_channels)
    wanted = min(PROGRAMS_A_PROCESSOR * processors // blocks, rows // FEWEST_ROWS, MOST_PARTS)
    # A power of two, as Triton wants it of what is read at once.
    parts = 1 << max(wanted, 1).bit_length() - 1
    return Layout(TILE // block_channels, block_channels, parts)


@triton.jit
def _own(rows, BLOCK_C: tl.constexpr):
    """This program's channels, its first row, and the row after its last."""
    channel = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    each = tl.cdiv(rows, tl.num_programs(1))
    first = tl.program_id(1) * each
    return channel, first, tl.minimum(first + each, rows)


@triton.jit
def _places(start, stop, stride, channel, channels, BLOCK_R: tl.constexpr):
    """Where a tile begins, its places from there, and which of them there are."""
    row = tl.arange(0, BLOCK_R)
    there = (start + row < stop)[:, None] & (channel < channels)[None, :]
    return start.to(tl.int64) * stride, row[:, None] * stride + channel[None, :], there


@triton.jit
def _read(source, start, stop, stride, channel, channels, BLOCK_R: tl.constexpr):
    begin, place, there = _places(start, stop, stride, channel, channels, BLOCK_R)
    return tl.load(source + begin + place, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _write(target, value, start, stop, channel, channels, BLOCK_R: tl.constexpr):
    begin, place, there = _places(start, stop, channels, channel, channels, BLOCK_R)
    tl.store(target + begin + place, value, mask=there)


@triton.jit
def _read_pair(first, second, channel, channels):
    there = channel < channels
    return tl.load(first + channel, mask=there, other=0.0), tl.load(
        second + channel, mask=there, other=0.0
    )


@triton.jit
def _write_pair(first, second, value, other, channel, channels):
    there = channel < channels
    tl.store(first + channel, value, mask=there)
    tl.store(second + channel, other, mask=there)


@triton.jit
def _freed(vector, BLOCK_C: tl.constexpr):
    """The same, free of where the sums of parts lay: else all tiles would be brought there."""
    return tl.gather(vector, tl.arange(0, BLOCK_C), axis=0)


@triton.jit
def _sigmoid(y):
    """Half the instructions of a division, which would take care of numbers below the normal."""
    root = tl.rsqrt(1.0 + tl.exp2(-1.4426950408889634 * y))
    return root * root


@triton.jit
def _moments(
    x, partials, rows, channels, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr, STAGES: tl.constexpr
):
    """Write the mean of each channel in a part, and the sum of squares around it."""
    channel, first, stop = _own(rows, BLOCK_C)
    # Sums of differences to a number of the same channel do not cancel.
    near = x + tl.minimum(first, rows - 1).to(tl.int64) * channels + channel
    near = tl.load(near, mask=channel < channels, other=0.0).to(tl.float32)
    total = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
    squares = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
    for tile in tl.range(tl.cdiv(stop - first, BLOCK_R), num_stages=STAGES):
        start = first + tile * BLOCK_R
        value = _read(x, start, stop, channels, channel, channels, BLOCK_R)
        there = (start + tl.arange(0, BLOCK_R) < stop)[:, None]
        difference = tl.where(there, value - near[None, :], 0.0)
        total += difference
        squares += difference * difference
    count = tl.maximum(stop - first, 1).to(tl.float32)
    shift = tl.sum(total, axis=0) / count
    spread = tl.maximum(tl.sum(squares, axis=0) - count * shift * shift, 0.0)
    own = partials + tl.program_id(1) * 2 * channels
    _write_pair(own, own + channels, near + shift, spread, channel, channels)


@triton.jit
def _merged(partials, rows, channel, channels, PARTS: tl.constexpr, BLOCK_C: tl.constexpr):
    """Mean and variance of channels, from what the parts have written."""
    part = tl.arange(0, PARTS)[:, None]
    each = tl.cdiv(rows, PARTS)
    count = tl.minimum(tl.maximum(rows - part * each, 0), each).to(tl.float32)
    own = partials + part * 2 * channels
    means, spreads = _read_pair(own, own + channels, channel[None, :], channels)
    near = tl.load(partials + channel, mask=channel < channels, other=0.0)
    mean = near + tl.sum(count * (means - near[None, :]), axis=0) / rows
    apart = means - mean[None, :]
    variance = tl.sum(spreads + count * apart * apart, axis=0) / rows
    return _freed(mean, BLOCK_C), _freed(variance, BLOCK_C)


@triton.jit
def _normalise(
    x,
    weight,
    bias,
    plus,
    partials,
    out,
    moments,
    rows,
    channels,
    plus_stride,
    eps,
    PARTS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):
    channel, first, stop = _own(rows, BLOCK_C)
    mean, variance = _merged(partials, rows, channel, channels, PARTS, BLOCK_C)
    if tl.program_id(1) == 0:
        _write_pair(moments, moments + channels, mean, variance, channel, channels)
    scale, shift = _read_pair(weight, bias, channel, channels)
    scale *= tl.rsqrt(variance + eps)
    tiles = tl.cdiv(stop - first, BLOCK_R)
    for tile in tl.range(tiles, num_stages=STAGES):
        # Backwards: what was read last may still be in the cache.
        start = first + (tiles - 1 - tile) * BLOCK_R
        value = _read(x, start, stop, channels, channel, channels, BLOCK_R)
        y = (value - mean[None, :]) * scale[None, :] + shift[None, :]
        activated = y * _sigmoid(y)
        if plus is not None:
            activated += _read(plus, start, stop, plus_stride, channel, channels, BLOCK_R)
        _write(out, activated, start, stop, channel, channels, BLOCK_R)


@triton.jit
def _coefficients(moments, weight, bias, channel, channels, eps):
    """The mean, r, w r and b."""
    mean, variance = _read_pair(moments, moments + channels, channel, channels)
    scale, shift = _read_pair(weight, bias, channel, channels)
    over_deviation = tl.rsqrt(variance + eps)
    return mean, over_deviation, scale * over_deviation, shift


@triton.jit
def _through_silu(value, gradient, mean, scale, shift):
    """The difference d and the gradient g."""
    difference = value - mean[None, :]
    y = difference * scale[None, :] + shift[None, :]
    share = _sigmoid(y)
    return difference, gradient * (share + share * (y - y * share))


@triton.jit
def _gradient_sums(
    gradient,
    x,
    moments,
    weight,
    bias,
    partials,
    rows,
    channels,
    stride,
    eps,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Write Σ g and Σ g d of each channel in a part."""
    channel, first, stop = _own(rows, BLOCK_C)
    mean, _, scale, shift = _coefficients(moments, weight, bias, channel, channels, eps)
    total = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
    products = tl.zeros([BLOCK_R, BLOCK_C], dtype=tl.float32)
    for tile in tl.range(tl.cdiv(stop - first, BLOCK_R), num_stages=STAGES):
        start = first + tile * BLOCK_R
        value = _read(x, start, stop, channels, channel, channels, BLOCK_R)
        # Zeros past the last row, which add nothing.
        arrived = _read(gradient, start, stop, stride, channel, channels, BLOCK_R)
        difference, g = _through_silu(value, arrived, mean, scale, shift)
        total += g
        products += g * difference
    own = partials + tl.program_id(1) * 2 * channels
    sums = (tl.sum(total, axis=0), tl.sum(products, axis=0))
    _write_pair(own, own + channels, sums[0], sums[1], channel, channels)


@triton.jit
def _gradients(
    gradient,
    x,
    moments,
    weight,
    bias,
    partials,
    to_x,
    to_weight,
    to_bias,
    rows,
    channels,
    stride,
    eps,
    PARTS: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
    STAGES: tl.constexpr,
):
    channel, first, stop = _own(rows, BLOCK_C)
    mean, over_deviation, scale, shift = _coefficients(
        moments, weight, bias, channel, channels, eps
    )
    parts = partials + tl.arange(0, PARTS)[:, None] * 2 * channels
    totals, products = _read_pair(parts, parts + channels, channel[None, :], channels)
    total = _freed(tl.sum(totals, axis=0), BLOCK_C)
    product = _freed(tl.sum(products, axis=0), BLOCK_C) * over_deviation
    if tl.program_id(1) == 0:
        _write_pair(to_bias, to_weight, total, product, channel, channels)
    total, product = scale * total / rows, scale * over_deviation * product / rows
    tiles = tl.cdiv(stop - first, BLOCK_R)
    for tile in tl.range(tiles, num_stages=STAGES):
        start = first + (tiles - 1 - tile) * BLOCK_R  # backwards as well
        value = _read(x, start, stop, channels, channel, channels, BLOCK_R)
        arrived = _read(gradient, start, stop, stride, channel, channels, BLOCK_R)
        difference, g = _through_silu(value, arrived, mean, scale, shift)
        slope = scale[None, :] * g - (difference * product[None, :] + total[None, :])
        _write(to_x, slope, start, stop, channel, channels, BLOCK_R)


def launch(
    x: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The activations, and mean and variance of each channel."""
    x = x.contiguous(memory_format=torch.channels_last)
    plus, stride = (None, 0) if plus is None else _as_rows(plus)
    rows, channels, grid, options = _plan(x)
    out, moments = side_by_side(x.shape, x), weight.new_empty(2, channels)
    partials = weight.new_empty(grid[1], 2, channels)
    _moments[grid](x, partials, rows, channels, **options)
    tensors = (x, weight, bias, plus, partials, out, moments)
    _normalise[grid](*tensors, rows, channels, stride, eps, PARTS=grid[1], **options)
    return out, moments


def launch_backward(
    gradient: Tensor, x: Tensor, moments: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients with regard to the features, the weight and the bias."""
    x = x.contiguous(memory_format=torch.channels_last)
    gradient, stride = _as_rows(gradient)
    rows, channels, grid, options = _plan(x)
    found = side_by_side(x.shape, x), torch.empty_like(weight), torch.empty_like(bias)
    partials = weight.new_empty(grid[1], 2, channels)
    tensors, numbers = (gradient, x, moments, weight, bias, partials), (rows, channels, stride, eps)
    _gradient_sums[grid](*tensors, *numbers, **options)
    _gradients[grid](*tensors, *found, *numbers, PARTS=grid[1], **options)
    return found


def _as_rows(x: Tensor) -> tuple[Tensor, int]:
    """Features whose channels lie side by side, and how far it is from one pixel to the next.

    A slice of the channels of others, such as the gradient of what was joined, stays where it is.
    """
    _, channels, height, width = x.shape
    apart = x.stride(3)
    if x.stride() == (height * width * apart, 1, width * apart, apart):
        return x, apart
    return x.contiguous(memory_format=torch.channels_last), channels


def _plan(x: Tensor) -> tuple[int, int, tuple[int, int], dict[str, int]]:
    """Rows, channels, the grid of programs, and what all kernels take alike."""
    channels = x.shape[1]
    rows = x.numel() // channels
    block_rows, block_channels, parts = layout(rows, channels, _processors(x.device))
    options = {"BLOCK_R": block_rows, "BLOCK_C": block_channels, "num_warps": WARPS}
    # As many bytes on their way in every precision: shared memory is short on small devices.
    options["STAGES"] = max(1, 2 * STAGES // x.element_size())
    return rows, channels, (triton.cdiv(channels, block_channels), parts), options


def _processors(device: torch.device) -> int:
    if device.type != "cuda":
        return 4  # the interpreter's: a few parts
    return torch.cuda.get_device_properties(device).multi_processor_count
