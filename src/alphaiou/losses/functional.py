"""``alpha_iou_loss``: checks its arguments and hands them to a kernel or to the formula."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from alphaiou._shapes import Float, Num, Shaped
from alphaiou.boxes import BoxFormat, check_box_format, check_choice, check_pairs
from alphaiou.losses.formula import Exponent, reference_loss
from alphaiou.losses.kernels import fused
from alphaiou.losses.kinds import TermsFunction, resolve_kind
from alphaiou.losses.modifiers import MODIFIERS, STATEFUL_MODIFIERS, Modifier
from alphaiou.numerics import check_number

Reduction = Literal["none", "mean", "sum"]
Backend = Literal["auto", "reference", "fused"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
BACKENDS: tuple[str, ...] = get_args(Backend)


def alpha_iou_loss(
    pred: Num[Tensor, "*batch 4"],
    target: Num[Tensor, "*batch 4"],
    *,
    kind: str | TermsFunction = "iou",
    alpha: float | Tensor = 3.0,
    penalty_alpha: float | Tensor | None = None,
    box_cox: bool = False,
    box_format: BoxFormat = "xyxy",
    modifiers: Sequence[str | Modifier] = (),
    weight: Shaped[Tensor, "*pairs"] | None = None,
    reduction: Reduction = "none",
    avg_factor: float | Tensor | None = None,
    backend: Backend = "auto",
) -> Float[Tensor, "*reduced"]:
    """The power family of IoU losses, ``weight · (1 − S^α₁ + Σᵢ Pᵢ^α₂)``, for aligned boxes.

    Args:
        pred: Predicted boxes.
        target: Target boxes, of the same shape.
        kind: A name in ``KINDS``, such as ``ciou``, or a function of a ``PairGeometry`` that
            returns ``Terms`` (``functools.partial`` sets parameters).
        alpha: α₁, the power of the similarity: a number, or a tensor that broadcasts over the
            pairs; 0 is −log S.
        penalty_alpha: α₂, the power of the penalties; ``None`` is α₁ (1 where that is 0).
        box_cox: Divide the similarity term by α₁, the Box-Cox form.
        box_format: ``xyxy``, ``xywh`` or ``cxcywh``.
        modifiers: ``inner focaler rectified focal wise``, or functions from terms to terms.
        weight: Weight of each pair, broadcasting; the boxes of a pair of weight 0 do not matter.
        reduction: ``none``, ``mean`` (over the pairs) or ``sum``.
        avg_factor: With ``mean``: divide the sum by this instead; 0 gives 0.
        backend: ``auto``, ``reference`` or ``fused``.

    Returns:
        The loss in fp32 (fp64 for fp64 boxes): one value per pair, or a scalar when reduced.

    Examples:
        >>> pred = torch.tensor([[0.0, 0.0, 2.0, 2.0]], requires_grad=True)
        >>> target = torch.tensor([[1.0, 0.0, 3.0, 2.0]])
        >>> alpha_iou_loss(pred, target, kind="diou", alpha=3.0)
        tensor([0.9634], grad_fn=<AddBackward0>)
    """
    check_pairs(pred, target)
    check_box_format(box_format)
    check_choice("reduction", reduction, REDUCTIONS)
    check_choice("backend", backend, BACKENDS)
    resolved, modify = resolve_kind(kind), [resolve_modifier(modifier) for modifier in modifiers]
    alphas = check_alphas(alpha, penalty_alpha)
    scale = check_scale(reduction, avg_factor, pred.shape[:-1].numel())
    if weight is not None:
        weight = broadcast("weight", weight, pred.shape[:-1])
    for name, value in zip(("alpha", "penalty_alpha"), alphas, strict=True):
        if value.tensor is not None:
            broadcast(name, value.tensor, pred.shape[:-1])
    reduce = reduction != "none"
    if backend != "reference" and (backend == "fused" or pred.is_cuda):
        reason = fused.why_not_fused(pred, target, resolved, modifiers, alphas, weight)
        if reason is None:
            loss = fused.fused_loss(
                pred,
                target,
                kind=resolved,
                alphas=alphas,
                box_cox=box_cox,
                box_format=box_format,
                weight=weight,
                scale=scale,
                reduce=reduce,
            )
            return _divide(loss, avg_factor)
        if backend == "fused":
            raise ValueError(f"backend='fused' cannot serve this call: {reason}; use 'auto'")
    loss = reference_loss(
        pred,
        target,
        terms_of=resolved.terms,
        modifiers=modify,
        alphas=alphas,
        box_cox=box_cox,
        box_format=box_format,
        weight=weight,
        reduce=reduce,
    )
    return _divide(loss * scale, avg_factor) if reduce else loss


def check_scale(reduction: Reduction, avg_factor: float | Tensor | None, count: int) -> float:
    """The factor of the sum over the pairs: 1/N or 1/``avg_factor`` for a mean, else 1."""
    if avg_factor is not None and reduction != "mean":
        raise ValueError(
            f"avg_factor needs reduction='mean', got {avg_factor!r} with reduction={reduction!r}"
        )
    if avg_factor is None:
        return 1.0 / max(count, 1) if reduction == "mean" else 1.0
    if isinstance(avg_factor, Tensor):
        return 1.0
    check_number("avg_factor", avg_factor, strict=False)
    return 1.0 / avg_factor if avg_factor else 0.0


def _divide(total: Tensor, avg_factor: float | Tensor | None) -> Tensor:
    """Divide by an ``avg_factor`` on the device, 0 giving 0; ``check_scale`` covers numbers."""
    if not isinstance(avg_factor, Tensor):
        return total
    positive = avg_factor > 0
    return total * torch.where(positive, 1.0 / torch.where(positive, avg_factor, 1.0), 0.0)


def resolve_modifier(modifier: str | Modifier) -> Modifier:
    """Look up a modifier by its name; a function is returned as it is."""
    if callable(modifier):
        return modifier
    if modifier in STATEFUL_MODIFIERS:
        raise ValueError(
            f"modifiers: {modifier!r} keeps a running mean; use "
            f"AlphaIoULoss(modifiers=({modifier!r},)), or pass a Wise(...) of your own"
        )
    check_choice("modifiers", modifier, (*MODIFIERS, *STATEFUL_MODIFIERS))
    return MODIFIERS[modifier]


def check_alphas(
    alpha: float | Tensor, penalty_alpha: float | Tensor | None
) -> tuple[Exponent, Exponent]:
    """Check α₁ and α₂ and fill in the default; tensors are not checked (it would be a sync)."""
    if isinstance(alpha, Tensor):
        first, second = Exponent(alpha), Exponent(torch.where(alpha > 0, alpha, 1.0))
    else:
        alpha = float(alpha)
        check_number("alpha", alpha, strict=False)
        first, second = Exponent(number=alpha), Exponent(number=alpha or 1.0)
    if isinstance(penalty_alpha, Tensor):
        second = Exponent(penalty_alpha)
    elif penalty_alpha is not None:
        penalty_alpha = float(penalty_alpha)
        check_number("penalty_alpha", penalty_alpha)
        second = Exponent(number=penalty_alpha)
    return first, second


def broadcast(name: str, value: Tensor, shape: torch.Size) -> Tensor:
    """Broadcast a tensor over the pairs; the error names the argument."""
    try:
        return torch.broadcast_to(value, shape)
    except RuntimeError:
        raise ValueError(
            f"{name} must broadcast over the pairs {tuple(shape)}, got shape {tuple(value.shape)}"
        ) from None
