"""RoIAlign for CUDA on channels-last features, equivalent to torchvision's.

torchvision's kernels process channels one by one in fp32, and their backward pass took a third of a
training step of Faster R-CNN. Here all channels of a cell are read and accumulated together, in the
precision of the features.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import roi_align

from alphaiou._shapes import Float
from alphaiou.detectors.ops.kernels import HAS_TRITON, side_by_side
from alphaiou.numerics import upcast

#: The number of cells per side of a pooled region, and of sampling points per side of a cell.
POOLED, POINTS = 7, 2


def pool_cells(
    features: Float[Tensor, "batch channels rows columns"], places: Float[Tensor, "regions 5"]
) -> Float[Tensor, "regions channels 7 7"]:
    """Pool regions to 7 × 7 cells, each the mean of four bilinear samples.

    Args:
        features: The features of a batch of images.
        places: The image index of each region and its box, ``xyxy`` in cells of the features.

    Examples:
        >>> features = torch.arange(64.0).view(1, 1, 8, 8)
        >>> pool_cells(features, torch.tensor([[0.0, 0.0, 0.0, 7.0, 7.0]]))[0, 0, :, 0]
        tensor([ 4.5000, 12.5000, 20.5000, 28.5000, 36.5000, 44.5000, 52.5000])
    """
    pooled: Tensor
    if features.is_cuda and HAS_TRITON:
        pooled = _pool(features, places.float())
    else:
        exact = upcast(features)
        pooled = roi_align(
            exact, places.to(exact.dtype), output_size=POOLED, sampling_ratio=POINTS
        ).to(features.dtype)
    return pooled


def _forward(features: Tensor, places: Tensor) -> Tensor:
    from alphaiou.detectors.ops.kernels.pooling import launch

    return launch(features, places)


def _backward(gradient: Tensor, places: Tensor, shape: list[int]) -> Tensor:
    from alphaiou.detectors.ops.kernels.pooling import launch_backward

    return launch_backward(gradient, places, shape)


def _like_pooled(features: Tensor, places: Tensor) -> Tensor:
    return side_by_side((len(places), features.shape[1], POOLED, POOLED), features)


def _like_features(gradient: Tensor, places: Tensor, shape: list[int]) -> Tensor:
    return side_by_side(shape, gradient)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ANN401
    features, places = inputs
    ctx.save_for_backward(places)
    ctx.shape = list(features.shape)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
    (places,) = ctx.saved_tensors
    return _pool_backward(gradient, places, ctx.shape), None


_pool = torch.library.custom_op(
    "alphaiou::pool_cells",
    _forward,
    mutates_args=(),
    schema="(Tensor features, Tensor places) -> Tensor",
)
_pool_backward = torch.library.custom_op(
    "alphaiou::pool_cells_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor gradient, Tensor places, SymInt[] shape) -> Tensor",
)
_pool.register_fake(_like_pooled)
_pool_backward.register_fake(_like_features)
_pool.register_autograd(_differentiate, setup_context=_keep)
