"""``alpha_iou_loss``: checks its arguments and hands them to a kernel or to the formula."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from alphaiou._shapes import Float, Num, Shaped
from alphaiou.boxes import PairFormat, check_choice, check_pairs
from alphaiou.losses.formula import Exponent, reference_loss
from alphaiou.losses.kernels import fused
from alphaiou.losses.kinds import TermsFunction, check_geometry, resolve_kind
from alphaiou.losses.modifiers import MODIFIERS, STATEFUL_MODIFIERS, Modifier
from alphaiou.numerics import (
    check_is_number,
    check_number,
    check_real,
    check_tensor,
    is_traced,
)

Reduction = Literal["none", "mean", "sum"]
Backend = Literal["auto", "reference", "fused"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
BACKENDS: tuple[str, ...] = get_args(Backend)


def alpha_iou_loss(
    pred: Num[Tensor, "*batch coordinates"],
    target: Num[Tensor, "*batch coordinates"],
    *,
    kind: str | TermsFunction = "iou",
    alpha: float | Tensor = 3.0,
    penalty_alpha: float | Tensor | None = None,
    box_cox: bool = False,
    box_format: PairFormat = "xyxy",
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
            pairs; 0 is −log S. Above 10 all values stay finite: a power of a penalty counts at
            most 2¹⁰⁰. The gradient grows with α and can overflow for tiny boxes.
        penalty_alpha: α₂, the power of the penalties; ``None`` is α₁ (1 where that is 0).
        box_cox: Divide the similarity term by α₁, the Box-Cox form.
        box_format: ``xyxy``, ``xywh`` or ``cxcywh``; ``cxcywhr`` for oriented boxes with an angle
            in radians, which some kinds serve.
        modifiers: ``inner focaler rectified focal wise angle``, or functions from terms to terms.
        weight: Weight of each pair, broadcasting; the boxes of a pair of weight 0 do not matter.
        reduction: ``none``, ``mean`` (over the pairs) or ``sum``.
        avg_factor: With ``mean``: divide the sum by this instead; 0 gives 0.
        backend: ``auto``, ``reference`` (plain autograd) or ``fused`` (a compiled kernel).

    Returns:
        The loss in fp32 (fp64 for fp64 boxes): one value per pair, or a scalar when reduced.

    Raises:
        ValueError: An argument has the wrong type, shape or value. Tensors of ``alpha``,
            ``penalty_alpha`` and ``avg_factor`` are checked on the CPU only. On other devices,
            under ``torch.compile`` and in transforms nothing is read: an α that is negative or NaN
            counts as 0, a ``penalty_alpha`` that is not above 0 as 1, and an ``avg_factor`` that is
            not above 0 gives 0.

    Examples:
        >>> pred = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
        >>> target = torch.tensor([[1.0, 0.0, 3.0, 2.0]])
        >>> alpha_iou_loss(pred, target, kind="diou", alpha=3.0)
        tensor([0.9634])
    """
    check_pairs(pred, target, box_format)
    check_choice("reduction", reduction, REDUCTIONS)
    check_choice("backend", backend, BACKENDS)
    resolved, modify = resolve_kind(kind), [resolve_modifier(modifier) for modifier in modifiers]
    check_geometry(resolved, box_format)
    alphas = check_alphas(alpha, penalty_alpha)
    if reduction == "mean" and avg_factor is None and is_traced():
        # The number of pairs as a tensor: torch.jit.trace records a number as a constant.
        avg_factor = torch.ones_like(pred[..., 0], dtype=torch.int64).sum()
    # Not Size.numel(), which makes a constant of it in torch.export.
    scale = check_scale(reduction, avg_factor, math.prod(pred.shape[:-1]))
    if weight is not None:
        weight = broadcast("weight", weight, pred.shape[:-1])
    for name, value in (("alpha", alpha), ("penalty_alpha", penalty_alpha)):
        if isinstance(value, Tensor):
            broadcast(name, value, pred.shape[:-1])
    reduce = reduction != "none"
    call = pred, target, resolved, box_format, modifiers, alphas, weight
    if (kernel := _kernel(backend, *call)) is not None:
        loss = kernel(
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


def _kernel(backend: Backend, pred: Tensor, *call: Any) -> Callable[..., Tensor] | None:  # noqa: ANN401
    """The kernel for a call: fused, or on the CPU in plain operations; ``None``: the reference."""
    if backend == "fused" or (backend == "auto" and pred.is_cuda):
        reason = fused.why_not_fused(pred, *call)
        if reason is None:
            return fused.fused_loss
        if backend == "fused":
            raise ValueError(f"backend='fused' cannot serve this call: {reason}; use 'auto'")
    return fused.plain_loss if backend == "auto" and fused.is_plain(pred, *call) else None


def check_scale(reduction: Reduction, avg_factor: float | Tensor | None, count: int) -> float:
    """The factor of the sum over the pairs: 1/N or 1/``avg_factor`` for a mean, else 1."""
    if avg_factor is not None and reduction != "mean":
        raise ValueError(
            f"avg_factor needs reduction='mean', got {avg_factor!r} with reduction={reduction!r}"
        )
    if avg_factor is None:
        return 1.0 / max(count, 1) if reduction == "mean" else 1.0
    if isinstance(avg_factor, Tensor):
        if avg_factor.numel() != 1:
            raise ValueError(f"avg_factor must be one number, got {avg_factor.numel()}")
        check_tensor("avg_factor", avg_factor, strict=False)
        return 1.0
    check_is_number("avg_factor", avg_factor, "a number or a tensor")
    check_number("avg_factor", avg_factor, strict=False)
    return 1.0 / avg_factor if avg_factor else 0.0


def reduced(loss: Tensor, reduction: Reduction, avg_factor: float | Tensor | None = None) -> Tensor:
    """The values as they are, their mean, their sum, or their sum over ``avg_factor``."""
    scale = check_scale(reduction, avg_factor, loss.numel())
    if reduction == "none":
        return loss
    if reduction == "mean" and avg_factor is None and is_traced():
        return loss.mean()  # torch.jit.trace would record the number as a constant
    return _divide(loss.sum() * scale, avg_factor)


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
    """Check α₁ and α₂ and fill in the default; tensors are checked on the CPU only."""
    if isinstance(alpha, Tensor):
        check_tensor("alpha", alpha, strict=False)
        first, second = Exponent(alpha), Exponent(torch.where(alpha > 0, alpha, 1.0))
    else:
        check_is_number("alpha", alpha, "a number or a tensor")
        alpha = float(alpha)
        check_number("alpha", alpha, strict=False)
        first, second = Exponent(None, alpha), Exponent(None, alpha or 1.0)
    if isinstance(penalty_alpha, Tensor):
        check_tensor("penalty_alpha", penalty_alpha)
        second = Exponent(torch.where(penalty_alpha > 0, penalty_alpha, 1.0))
    elif penalty_alpha is not None:
        check_is_number("penalty_alpha", penalty_alpha, "a number or a tensor")
        penalty_alpha = float(penalty_alpha)
        check_number("penalty_alpha", penalty_alpha)
        second = Exponent(None, penalty_alpha)
    return first, second


def broadcast(name: str, value: Tensor, shape: torch.Size) -> Tensor:
    """Broadcast a tensor over the pairs; the error names the argument."""
    if not isinstance(value, Tensor):
        raise ValueError(f"{name} must be a tensor that broadcasts over the pairs, got {value!r}")
    check_real(name, value)
    try:
        return torch.broadcast_to(value, shape)
    except RuntimeError:
        raise ValueError(
            f"{name} must broadcast over the pairs {tuple(shape)}, got shape {tuple(value.shape)}"
        ) from None
