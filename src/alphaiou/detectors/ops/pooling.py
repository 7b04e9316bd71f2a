"""RoIAlign from the levels of a pyramid, equal to torchvision's ``MultiScaleRoIAlign``.

CUDA has a kernel for channels-last features. torchvision's kernels process channels one by one in
fp32, and their backward pass took a third of a training step of Faster R-CNN. Here all channels of
a cell are read and accumulated together, in the precision of the features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torchvision.ops import roi_align

from alphaiou._shapes import Float, Int
from alphaiou.detectors.ops.kernels import HAS_TRITON, side_by_side
from alphaiou.numerics import upcast

#: The number of cells per side of a pooled region, and of sampling points per side of a cell.
POOLED, POINTS = 7, 2


def pool_cells(
    levels: Sequence[Float[Tensor, "batch channels _rows _columns"]],
    places: Float[Tensor, "regions 5"],
    level: Int[Tensor, " regions"],
) -> Float[Tensor, "regions channels 7 7"]:
    """Pool regions to 7 × 7 cells, each the mean of four bilinear samples.

    A region is at least one cell of its level wide and high. A sample up to one cell outside the
    level has the value at the border; farther outside it is 0.

    On CUDA the kernel pools from all levels at once, without synchronisation. Elsewhere, or without
    Triton, torchvision pools from one level after the other. Shapes are static either way.

    Args:
        levels: The features of a batch of images, at one or several strides.
        places: The image index of each region and its box, ``xyxy`` in cells of its level.
        level: The level of each region.

    Examples:
        >>> features = torch.arange(64.0).view(1, 1, 8, 8)
        >>> place, level = torch.tensor([[0.0, 0.0, 0.0, 7.0, 7.0]]), torch.tensor([0])
        >>> pool_cells([features], place, level)[0, 0, :, 0]
        tensor([ 4.5000, 12.5000, 20.5000, 28.5000, 36.5000, 44.5000, 52.5000])
    """
    if torch.compiler.is_exporting():
        return _by_torchvision(levels, places, level)
    pooled: Tensor = _pool(*stack(levels, places, level))
    return pooled


def _by_torchvision(levels: Sequence[Tensor], places: Tensor, level: Tensor) -> Tensor:
    """Pool by torchvision's operator alone, which exported programs can be loaded with."""
    pooled = levels[0].new_zeros(places.shape[0], levels[0].shape[1], POOLED, POOLED)
    for number, features in enumerate(levels):
        rows = (level == number).nonzero()[:, 0]
        cells = roi_align(features, places[rows], POOLED, sampling_ratio=POINTS)
        pooled = pooled.index_copy(0, rows, cells)
    return pooled


def stack(
    levels: Sequence[Float[Tensor, "batch channels _rows _columns"]],
    places: Float[Tensor, "regions 5"],
    level: Int[Tensor, " regions"],
) -> tuple[
    Float[Tensor, "batch channels rows columns"],
    Float[Tensor, "regions 5"],
    Int[Tensor, "regions 3"],
]:
    """Return the arguments of the operator.

    These are the levels one above the other, the places, and of each region the first row of its
    level and the level's rows and columns.
    """
    rows, columns = zip(*(features.shape[-2:] for features in levels), strict=True)
    wide = [pad(features, (0, max(columns) - features.shape[-1])) for features in levels]
    tops = (0, *accumulate(rows[:-1]))
    bounds = [of_level(level, values) for values in (tops, rows, columns)]
    return torch.cat(wide, dim=2), places, torch.stack(bounds, dim=-1).int()


def of_level(level: Int[Tensor, "*regions"], values: Sequence[int]) -> Int[Tensor, "*regions"]:
    """Return the value of the level of each region."""
    # Not indexing, for which the values would have to be copied to the device.
    return torch.stack([value * (level == number) for number, value in enumerate(values)]).sum(0)


def _forward(features: Tensor, places: Tensor, bounds: Tensor) -> Tensor:
    if features.is_cuda and HAS_TRITON:
        from alphaiou.detectors.ops.kernels.pooling import launch

        return launch(features, places, bounds)
    pooled, exact = _like_pooled(features, places, bounds).zero_(), upcast(features)
    for rows, (top, high, wide) in _by_level(bounds):
        own = exact[:, :, top : top + high, :wide].contiguous()
        cells = roi_align(own, places[rows].to(own.dtype), POOLED, sampling_ratio=POINTS)
        pooled[rows] = cells.to(pooled.dtype)
    return pooled


def _backward(gradient: Tensor, places: Tensor, bounds: Tensor, shape: list[int]) -> Tensor:
    if gradient.is_cuda and HAS_TRITON:
        from alphaiou.detectors.ops.kernels.pooling import launch_backward

        return launch_backward(gradient, places, bounds, shape)
    into, exact = _like_features(gradient, places, bounds, shape).zero_(), upcast(gradient)
    for rows, (top, high, wide) in _by_level(bounds):
        own = exact[rows].contiguous()
        sizes = (POOLED, POOLED, *shape[:2], high, wide, POINTS, False)
        slopes = torch.ops.torchvision._roi_align_backward(
            own, places[rows].to(own.dtype), 1.0, *sizes
        )
        into[:, :, top : top + high, :wide] = slopes.to(into.dtype)
    return into


def _by_level(bounds: Tensor) -> Iterator[tuple[Tensor, tuple[int, ...]]]:
    """Yield the regions of each level that has some, and the bounds of the level."""
    for level in dict.fromkeys(map(tuple, bounds.tolist())):
        if level[1] > 0:
            yield (bounds == bounds.new_tensor(level)).all(dim=1).nonzero()[:, 0], level


def _like_pooled(features: Tensor, places: Tensor, bounds: Tensor) -> Tensor:
    return side_by_side((len(places), features.shape[1], POOLED, POOLED), features)


def _like_features(gradient: Tensor, places: Tensor, bounds: Tensor, shape: list[int]) -> Tensor:
    return side_by_side(shape, gradient)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ANN401
    features, places, bounds = inputs
    ctx.save_for_backward(places, bounds)
    ctx.shape = list(features.shape)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
    places, bounds = ctx.saved_tensors
    return _pool_backward(gradient, places, bounds, ctx.shape), None, None


_pool = torch.library.custom_op(
    "alphaiou::pool_cells",
    _forward,
    mutates_args=(),
    schema="(Tensor features, Tensor places, Tensor bounds) -> Tensor",
)
_pool_backward = torch.library.custom_op(
    "alphaiou::pool_cells_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor gradient, Tensor places, Tensor bounds, SymInt[] shape) -> Tensor",
)
_pool.register_fake(_like_pooled)
_pool_backward.register_fake(_like_features)
_pool.register_autograd(_differentiate, setup_context=_keep)
