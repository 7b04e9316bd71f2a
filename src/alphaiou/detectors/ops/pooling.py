"""RoIAlign for CUDA: torchvision's, over features whose channels lie side by side.

torchvision's kernels go through one channel after the other in fp32, and their gradient was a third
of a training step of Faster R-CNN. Here the channels of a cell are read and added to together, in
the precision that the features have. What comes out is the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import roi_align

from alphaiou._shapes import Float
from alphaiou.detectors.ops.kernels import HAS_TRITON, side_by_side
from alphaiou.numerics import upcast

#: Cells of a pooled region each way, and points that are sampled in each of them each way.
POOLED, POINTS = 7, 2


def pool_cells(
    features: Float[Tensor, "batch channels rows columns"], places: Float[Tensor, "regions 5"]
) -> Float[Tensor, "regions channels 7 7"]:
    """The mean of four samples in each of 7 × 7 cells of regions.

    Args:
        features: Of a batch of images.
        places: The image of each region, and the region: ``xyxy`` in cells of the features.

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
