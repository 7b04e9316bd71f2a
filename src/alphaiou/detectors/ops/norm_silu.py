"""Batch norm and SiLU in training, for CUDA: two kernels forward, two backward.

Only the input is saved for the backward pass. Sums and normalisation are computed in fp32 for any
precision of the features, and rounded once.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float
from alphaiou.detectors.ops.kernels import HAS_TRITON, side_by_side

#: Triton's interpreter runs kernels on CPU tensors.
_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)

Features = Float[Tensor, "batch channels height width"]


def norm_silu(x: Features, norm: nn.Module, plus: Features | None = None) -> Features:
    """Return ``silu(norm(x))``, plus ``plus`` if given.

    Args:
        x: Features; overwritten if the norm returns them unchanged.
        norm: The batch norm; in training its running statistics are updated.
        plus: Features to add.

    Examples:
        >>> x = torch.tensor([-1.0, 1.0]).view(2, 1, 1, 1)
        >>> norm_silu(x, nn.BatchNorm2d(1), plus=torch.ones_like(x)).flatten()
        tensor([0.7311, 1.7311], grad_fn=<ViewBackward0>)
    """
    if isinstance(norm, nn.BatchNorm2d) and _has_kernel(x, norm, plus):
        return _by_kernel(x, norm, plus)
    activated = nn.functional.silu(norm(x), inplace=True)
    return activated if plus is None else plus + activated


def _has_kernel(x: Tensor, norm: nn.BatchNorm2d, plus: Tensor | None) -> bool:
    # Training in several processes replaces the forward pass of norms by a synchronised one.
    usual = type(norm) is nn.BatchNorm2d and "forward" not in vars(norm)
    tracked = norm.training and norm.running_mean is not None and norm.momentum is not None
    return (
        usual
        and tracked
        and ((x.is_cuda and HAS_TRITON) or _INTERPRETED)
        and x.dtype in _DTYPES
        and norm.weight is not None
        and norm.weight.dtype == torch.float32
        and x.numel() > x.shape[1]  # torch rejects one value per channel
        and (plus is None or (plus.dtype == x.dtype and plus.shape == x.shape))
    )


def _by_kernel(x: Tensor, norm: nn.BatchNorm2d, plus: Tensor | None) -> Tensor:
    activated: Tensor
    activated, moments = _norm_silu(x, norm.weight, norm.bias, plus, norm.eps)
    _track(norm, moments, x.numel() // x.shape[1])
    return activated


def _track(norm: nn.BatchNorm2d, moments: Tensor, values: int) -> None:
    """Update the running statistics, but not the batch count, which matters without momentum."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.momentum is not None
    mean, variance = moments.unbind()
    unbiased = variance * (values / (values - 1))
    # Together, so that the compiler fuses it into one kernel.
    running = [norm.running_mean, norm.running_var]
    torch._foreach_lerp_(running, [mean, unbiased], norm.momentum)


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    from alphaiou.detectors.ops.kernels.norm_silu import launch

    return launch(x, weight, bias, plus, eps)


def _backward(  # noqa: PLR0917 - an operator's schema is positional
    gradient: Tensor, x: Tensor, moments: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    from alphaiou.detectors.ops.kernels.norm_silu import launch_backward

    return launch_backward(gradient, x, moments, weight, bias, eps)


def _like_forward(
    x: Tensor, weight: Tensor, bias: Tensor, plus: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    return side_by_side(x.shape, x), weight.new_empty(2, len(weight))


def _like_backward(  # noqa: PLR0917
    gradient: Tensor, x: Tensor, moments: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    return side_by_side(x.shape, x), torch.empty_like(weight), torch.empty_like(bias)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    x, weight, bias, plus, ctx.eps = inputs
    moments = output[1]
    ctx.has_plus = plus is not None
    ctx.mark_non_differentiable(moments)
    ctx.save_for_backward(x, moments, weight, bias)


def _differentiate(
    ctx: Any,  # noqa: ANN401
    gradient: Tensor,
    _: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
    to_inputs = _norm_silu_backward(gradient, *ctx.saved_tensors, ctx.eps)
    return (*to_inputs, gradient if ctx.has_plus else None, None)


_norm_silu = torch.library.custom_op(
    "alphaiou::norm_silu",
    _forward,
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor bias, Tensor? plus, float eps) -> (Tensor, Tensor)",
)
_norm_silu_backward = torch.library.custom_op(
    "alphaiou::norm_silu_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor gradient, Tensor x, Tensor moments, Tensor weight, Tensor bias, float eps) -> "
    "(Tensor, Tensor, Tensor)",
)
_norm_silu.register_fake(_like_forward)
_norm_silu_backward.register_fake(_like_backward)
_norm_silu.register_autograd(_differentiate, setup_context=_keep)
