"""The fused kernel for the CPU: ``analytic.pair_loss`` compiled by torch's own compiler."""

from __future__ import annotations

from functools import cache, partial
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from alphaiou.losses.formula import Exponent
from alphaiou.losses.kernels.analytic import pair_loss

#: Pairs computed at a time: few enough that their intermediate results stay in the cache.
_CHUNK = 1 << 16
_CPU = torch.device("cpu")


def launch(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alphas: tuple[Exponent, Exponent],
    *,
    kind: str,
    parameter: float,
    box_cox: bool,
    box_format: str,
    scale: float,
    reduce: bool,
    want_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Loss (of each pair, or its sum) and gradient, both multiplied by ``scale``."""
    count = pred.numel() // 4
    loss = torch.empty(count)
    grad = torch.empty(count if want_grad else 0, 4)
    boxes, targets = pred.reshape(count, 4), target.reshape(count, 4)
    weights = None if weight is None else weight.reshape(count)
    powers = [_spread(alpha, pred.shape[:-1]) for alpha in alphas]
    numbers = torch.tensor(parameter), torch.tensor(scale)
    compute = _compiled(kind, box_cox, box_format)
    for start in range(0, count, _CHUNK):
        part = slice(start, start + _CHUNK)
        part_loss, part_grad = compute(
            _columns(boxes[part]),
            _columns(targets[part]),
            None if weights is None else weights[part],
            *(power[part] for power in powers),
            *numbers,
        )
        loss[part] = part_loss
        if want_grad:
            grad[part] = part_grad.t()
    shaped = grad.reshape(pred.shape) if want_grad else grad
    return loss.sum() if reduce else loss.reshape(pred.shape[:-1]), shaped


def _spread(alpha: Exponent, shape: torch.Size) -> Tensor:
    """One α per pair."""
    return alpha.on(_CPU).float().expand(shape).reshape(shape.numel())


def _columns(boxes: Tensor) -> Tensor:
    """One row per coordinate: the layout that a compiler can vectorise."""
    return boxes.t().float().contiguous()


@cache
def _compiled(kind: str, box_cox: bool, box_format: str) -> Any:  # noqa: ANN401
    # A separate code object for each: torch.compile gives up on one that it recompiles too often.
    code, scope = _loss_and_gradient.__code__.replace(), _loss_and_gradient.__globals__
    compiled: Any = torch.compile(FunctionType(code, scope, f"fused_{kind}"), dynamic=True)
    return partial(compiled, kind=kind, box_cox=box_cox, box_format=box_format)


def _loss_and_gradient(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha: Tensor,
    penalty_alpha: Tensor,
    parameter: Tensor,
    scale: Tensor,
    kind: str,
    box_cox: bool,
    box_format: str,
) -> tuple[Tensor, Tensor]:
    factor = scale
    if weight is not None:
        factor = scale * weight
        # Pairs of weight 0 become identical boxes: loss and gradient are exactly 0.
        pred, target = (torch.where(weight != 0, boxes, 0.0) for boxes in (pred, target))
    loss, *grad = pair_loss(
        *pred.unbind(0),
        *target.unbind(0),
        alpha,
        penalty_alpha,
        parameter,
        kind,
        box_cox,
        box_format,
    )  # type: ignore[call-arg]
    return loss * factor, torch.stack(grad) * factor
