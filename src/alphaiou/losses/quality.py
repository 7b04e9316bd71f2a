"""Classification losses that teach scores the IoU of their boxes, with a power of that IoU.

A detector learns ``q = IoU^α`` at the class of a matched object (a positive) and 0 elsewhere. What
differs between the losses is how a positive is weighed; every other entry costs a share of
``p^γ · BCE(p, 0)``. To add a loss, write its positive and give it a row in ``QUALITY_LOSSES``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from alphaiou._shapes import Bool, Float, Num, Shaped
from alphaiou.boxes import check_choice
from alphaiou.losses.functional import REDUCTIONS, Reduction, broadcast, reduced
from alphaiou.losses.module import AlphaSchedule, check_progress
from alphaiou.numerics import (
    check_is_number,
    check_number,
    check_real,
    check_tensor,
    check_unit_interval,
    power,
    upcast,
)

#: Beyond this logit σ is 0 or 1, and its slope 0, to the last bit that matters.
LOGIT_CEILING = 100.0
#: IA-BCE: the power of p in its target, and the least value of that; those of RF-DETR.
SHARE_OF_P, LEAST_TARGET = 0.25, 0.01

#: From logits, targets q and γ to the loss of a positive.
Positive = Callable[[Tensor, Tensor, float], Tensor]


def vfl(logits: Tensor, q: Tensor, gamma: float) -> Tensor:
    """Varifocal: ``q·BCE(p, q)``; well placed objects count most."""
    return q * binary_cross_entropy_with_logits(logits, q, reduction="none")


def qfl(logits: Tensor, q: Tensor, gamma: float) -> Tensor:
    """Quality focal: ``|q − p|^γ·BCE(p, q)``; scores that are right already count little."""
    distance = (q - _bounded(logits).sigmoid()).abs()
    loss = binary_cross_entropy_with_logits(logits, q, reduction="none")
    return power(distance, float(gamma)) * loss if gamma else loss


def mal(logits: Tensor, q: Tensor, gamma: float) -> Tensor:
    """Matchability-aware: ``BCE(p, q)``; badly placed objects count as much as the others."""
    return binary_cross_entropy_with_logits(logits, q, reduction="none")


def ia_bce(logits: Tensor, q: Tensor, gamma: float) -> Tensor:
    """IoU-aware BCE: ``BCE(p, t)``, ``t = max(p^¼·q^¾, 0.01)`` held constant in the gradient."""
    p = logits.detach().sigmoid()
    target = (p.pow(SHARE_OF_P) * q.pow(1.0 - SHARE_OF_P)).clamp(min=LEAST_TARGET)
    return binary_cross_entropy_with_logits(logits, target, reduction="none")


@dataclass(frozen=True)
class QualityKind:
    """A quality loss; ``dataclasses.replace`` changes its settings.

    Attributes:
        name: The name in calls and texts.
        title: The name in tables.
        positive: The loss of a positive.
        alpha: The power of the IoU in the loss as published.
        gamma: The power of the modulating factor, likewise.
        negative_weight: The factor of ``p^γ·BCE(p, 0)``.
        hold_weight: Whether ``p^γ`` is held constant in the gradient.
    """

    name: str
    title: str = field(repr=False)
    positive: Positive = field(repr=False)
    alpha: float = 1.0
    gamma: float = 2.0
    negative_weight: float = 1.0
    hold_weight: bool = False


#: All quality losses by name.
QUALITY_LOSSES: dict[str, QualityKind] = {
    kind.name: kind
    for kind in (
        QualityKind("vfl", "VFL", vfl, negative_weight=0.75, hold_weight=True),
        QualityKind("qfl", "QFL", qfl),
        QualityKind("mal", "MAL", mal, alpha=1.5, gamma=1.5, hold_weight=True),
        QualityKind("ia_bce", "IA-BCE", ia_bce),
    )
}


def quality_loss(
    logits: Float[Tensor, "*entries"],
    iou: Num[Tensor, "*entries"],
    *,
    kind: str | QualityKind = "vfl",
    alpha: float | Tensor | None = None,
    gamma: float | None = None,
    positive: Bool[Tensor, "*entries"] | None = None,
    weight: Shaped[Tensor, "*weights"] | None = None,
    reduction: Reduction = "none",
    avg_factor: float | Tensor | None = None,
) -> Float[Tensor, "*reduced"]:
    """The loss of class scores that shall tell the IoU of their boxes.

    Args:
        logits: The score of each class of each prediction, before the sigmoid.
        iou: Of the same shape: the IoU of a prediction with the object that it is matched with, at
            the class of that; 0 elsewhere. It is held constant in the gradient.
        kind: A name in ``QUALITY_LOSSES``, or a ``QualityKind``.
        alpha: The power of the IoU in the target: a number from 0, or a tensor that broadcasts over
            the entries; 0 teaches the label alone. ``None`` is that of the loss as published.
        gamma: The power of the modulating factor, from 0; ``None`` likewise.
        positive: Which entries are the class of a matched object; ``None``: where ``iou`` is above
            0. Elsewhere ``iou`` does not matter.
        weight: Weight of each entry, broadcasting; entries of weight 0 do not matter.
        reduction: ``none``, ``mean`` (over the entries) or ``sum``.
        avg_factor: With ``mean``: divide the sum by this instead, such as the number of objects; 0
            gives 0.

    Returns:
        The loss in fp32 (fp64 for fp64 logits): one value per entry, or a scalar when reduced.
        Values and gradients are finite for all finite logits.

    Raises:
        ValueError: An argument has the wrong type, shape or value. Tensors are checked on the CPU
            only; on other devices an IoU outside [0, 1] counts as the nearer end.

    Examples:
        >>> logits = torch.tensor([[2.0, -1.0], [0.0, -3.0]])
        >>> iou = torch.tensor([[0.9, 0.0], [0.0, 0.0]])
        >>> quality_loss(logits, iou, kind="mal", alpha=2.0, reduction="sum", gamma=2.0)
        tensor(0.7030)
    """
    kind = resolve_quality(kind)
    check_real("logits", logits)
    if not logits.is_floating_point():
        raise ValueError(f"logits must be floating-point numbers, got {logits.dtype}")
    for name, tensor in (("iou", iou), ("positive", positive)):
        if tensor is not None and tensor.shape != logits.shape:
            raise ValueError(
                f"{name} must have the shape of logits {tuple(logits.shape)}, got "
                f"{tuple(tensor.shape)}"
            )
    check_choice("reduction", reduction, REDUCTIONS)
    alpha = kind.alpha if alpha is None else alpha
    _check_alpha(alpha)
    gamma = kind.gamma if gamma is None else gamma
    check_number("gamma", gamma, strict=False)
    quality = iou.detach()
    if positive is not None:
        quality = quality.where(positive, 0)
    if weight is not None:
        weight = broadcast("weight", weight, logits.shape)
        logits, quality = (entries.where(weight != 0, 0) for entries in (logits, quality))
    check_unit_interval("iou", quality)
    if isinstance(alpha, Tensor):
        broadcast("alpha", alpha, logits.shape)
        alpha = alpha.detach().to(logits.device, torch.promote_types(logits.dtype, torch.float32))
    positive = quality > 0 if positive is None else positive
    logits = upcast(logits)
    quality = quality.to(logits.dtype).clamp(0.0, 1.0)
    target = quality.pow(alpha).where(positive, 0.0)
    loss = torch.where(
        positive, kind.positive(logits, target, gamma), _negative(logits, kind, gamma)
    )
    if weight is not None:
        loss = loss * weight.to(loss.dtype)
    return reduced(loss, reduction, avg_factor)


def _negative(logits: Tensor, kind: QualityKind, gamma: float) -> Tensor:
    """``negative_weight · p^γ · BCE(p, 0)``, by way of logarithms: p^γ has a slope where p is 0."""
    factor = torch.exp(gamma * logsigmoid(_bounded(logits)))
    factor = kind.negative_weight * (factor.detach() if kind.hold_weight else factor)
    return factor * -logsigmoid(-logits)


def _bounded(logits: Tensor) -> Tensor:
    """Logits at which σ may be differentiated beside a loss of any size: its slope is not NaN."""
    return logits.clamp(-LOGIT_CEILING, LOGIT_CEILING)


def resolve_quality(kind: str | QualityKind) -> QualityKind:
    """Look up a quality loss by its name."""
    if isinstance(kind, QualityKind):
        return kind
    check_choice("kind", kind, tuple(QUALITY_LOSSES))
    return QUALITY_LOSSES[kind]


def _check_alpha(alpha: float | Tensor) -> None:
    if isinstance(alpha, Tensor):
        check_tensor("alpha", alpha, strict=False)
    else:
        check_is_number("alpha", alpha, "a number or a tensor")
        check_number("alpha", alpha, strict=False)


class QualityLoss(nn.Module):
    """``quality_loss`` with its arguments kept, and an α that may follow a schedule.

    The arguments are those of ``quality_loss``; ``reduction`` defaults to ``mean``. With an
    ``AlphaSchedule`` as ``alpha``, call ``set_progress`` as training goes on.

    Examples:
        >>> loss = QualityLoss("mal", alpha=2.0)
        >>> loss(torch.tensor([[20.0, -20.0]]), torch.tensor([[1.0, 0.0]])) < 1e-8
        tensor(True)
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self,
        kind: str | QualityKind = "vfl",
        alpha: float | AlphaSchedule | None = None,
        *,
        gamma: float | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        self.kind = resolve_quality(kind)
        check_choice("reduction", reduction, REDUCTIONS)
        self.gamma = self.kind.gamma if gamma is None else gamma
        check_number("gamma", self.gamma, strict=False)
        self.schedule = alpha if isinstance(alpha, AlphaSchedule) else None
        # A scheduled α is a tensor, so that a compiled or captured step sees it move.
        self.alpha: float | Tensor
        if isinstance(alpha, AlphaSchedule):
            self.register_buffer("alpha", torch.tensor(alpha.start))
        else:
            self.alpha = self.kind.alpha if alpha is None else alpha
            _check_alpha(self.alpha)
        self.reduction = reduction

    @classmethod
    def parse(cls, text: str) -> QualityLoss:
        """Read a name, or a name and α after a colon; without a number it is as published.

        Examples:
            >>> QualityLoss.parse("vfl:2"), QualityLoss.parse("mal")
            (QualityLoss(kind='vfl', alpha=2.0, gamma=2.0), \
QualityLoss(kind='mal', alpha=1.5, gamma=1.5))
        """
        name, colon, number = text.partition(":")
        try:
            return cls(name, float(number) if colon else None)
        except ValueError as error:
            raise ValueError(
                f"quality loss {text!r}: write {', '.join(QUALITY_LOSSES)}, or one of them with α "
                f"as in vfl:2 ({error})"
            ) from None

    def forward(
        self,
        logits: Float[Tensor, "*entries"],
        iou: Num[Tensor, "*entries"],
        positive: Bool[Tensor, "*entries"] | None = None,
        weight: Shaped[Tensor, "*weights"] | None = None,
        avg_factor: float | Tensor | None = None,
    ) -> Float[Tensor, "*reduced"]:
        """The loss of class scores."""
        return quality_loss(
            logits,
            iou,
            kind=self.kind,
            alpha=self.alpha,
            gamma=self.gamma,
            positive=positive,
            weight=weight,
            reduction=self.reduction,
            avg_factor=avg_factor,
        )

    def set_progress(self, progress: float) -> None:
        """Set a scheduled α to its value at this progress, from 0 to 1; a fixed α stays."""
        check_progress(progress)
        if self.schedule is not None and isinstance(self.alpha, Tensor):
            self.alpha.fill_(self.schedule(progress))

    def extra_repr(self) -> str:
        """The settings, as printed."""
        alpha = self.schedule if self.schedule is not None else self.alpha
        return f"kind={self.kind.name!r}, alpha={alpha}, gamma={self.gamma}"
