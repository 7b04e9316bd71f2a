"""The fused kernel for the CPU: ``analytic.pair_loss`` compiled by torch's own compiler."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from alphaiou.losses.analytic import pair_loss
from alphaiou.numerics import Alpha


def launch(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alphas: tuple[Alpha, Alpha],
    *,
    kind: str,
    parameter: float,
    box_cox: bool,
    box_format: str,
    scale: float,
    reduce: bool,
    want_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Loss (of the pairs, or its sum) and gradient, both already multiplied by ``scale``."""
    count = pred.numel() // 4
    if count == 0:
        return torch.zeros(() if reduce else pred.shape[:-1]), torch.zeros(pred.shape)
    loss, grad = _compiled()(
        _columns(pred, count),
        _columns(target, count),
        None if weight is None else weight.reshape(count),
        *(
            torch.as_tensor(alpha, dtype=torch.float32).expand(pred.shape[:-1]).reshape(count)
            for alpha in alphas
        ),
        torch.tensor(parameter),
        torch.tensor(scale),
        kind,
        box_cox,
        box_format,
        reduce,
    )
    shaped = grad.t().reshape(pred.shape).contiguous() if want_grad else torch.empty(0)
    return loss if reduce else loss.reshape(pred.shape[:-1]), shaped


def _columns(boxes: Tensor, count: int) -> Tensor:
    """One row a coordinate: the layout that a compiler can vectorise."""
    return boxes.reshape(count, 4).t().float().contiguous()


@cache
def _compiled() -> Any:  # noqa: ANN401
    return torch.compile(_loss_and_gradient, dynamic=True)


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
    reduce: bool,
) -> tuple[Tensor, Tensor]:
    factor = scale
    if weight is not None:
        factor = scale * weight
        # Pairs that count for nothing become identical boxes: loss and gradient are exactly 0.
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
    loss = loss * factor
    return loss.sum() if reduce else loss, torch.stack(grad) * factor
