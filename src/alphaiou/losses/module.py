"""The loss as a module, and schedules of α."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float, Num, Shaped
from alphaiou.boxes import PAIR_FORMATS, PairFormat, check_choice
from alphaiou.losses.functional import (
    BACKENDS,
    REDUCTIONS,
    Backend,
    Reduction,
    alpha_iou_loss,
    check_alphas,
    resolve_modifier,
)
from alphaiou.losses.kinds import TermsFunction, resolve_kind
from alphaiou.losses.modifiers import STATEFUL_MODIFIERS, Modifier, ScheduledInner
from alphaiou.numerics import check_number

ScheduleShape = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True)
class AlphaSchedule:
    """α from ``start`` to ``end`` by training progress.

    Examples:
        >>> schedule = AlphaSchedule(1.0, 3.0, "cosine")
        >>> schedule(0.0), schedule(0.5), schedule(1.0)
        (1.0, 2.0, 3.0)
    """

    start: float
    end: float
    shape: ScheduleShape = "linear"

    def __post_init__(self) -> None:
        check_choice("shape", self.shape, get_args(ScheduleShape))
        check_number("start", self.start, strict=False)
        check_number("end", self.end, strict=False)
        if self.shape == "constant" and self.start != self.end:
            raise ValueError(
                f"end must equal start in a constant schedule, got {self.start!r} and {self.end!r}"
            )

    def __call__(self, progress: float) -> float:
        """α at a progress between 0 (the start of training) and 1 (its end)."""
        check_progress(progress)
        if self.shape == "cosine":
            progress = 0.5 * (1.0 - math.cos(math.pi * progress))
        return self.start + (self.end - self.start) * progress


def check_progress(progress: float) -> None:
    """Reject a progress outside [0, 1]."""
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress must lie in [0, 1], got {progress!r}")


class AlphaIoULoss(nn.Module):
    """``alpha_iou_loss`` with its arguments kept, an α that may follow a schedule, and state.

    The arguments are those of ``alpha_iou_loss``; ``reduction`` defaults to ``mean``.
    ``modifiers`` also takes ``wise_v2`` and ``wise_v3``, whose running mean is saved with the rest.
    With an ``AlphaSchedule`` as ``alpha``, call ``set_progress`` as training goes on.

    Examples:
        >>> loss = AlphaIoULoss(kind="ciou", alpha=3.0)
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
        >>> loss(boxes, boxes)
        tensor(0.)
    """

    def __init__(
        self,
        kind: str | TermsFunction = "iou",
        alpha: float | AlphaSchedule = 3.0,
        *,
        penalty_alpha: float | None = None,
        box_cox: bool = False,
        box_format: PairFormat = "xyxy",
        modifiers: Sequence[str | Modifier] = (),
        reduction: Reduction = "mean",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_choice("box_format", box_format, PAIR_FORMATS)
        check_choice("reduction", reduction, REDUCTIONS)
        check_choice("backend", backend, BACKENDS)
        resolve_kind(kind)
        self.schedule = alpha if isinstance(alpha, AlphaSchedule) else None
        start = alpha.start if isinstance(alpha, AlphaSchedule) else alpha
        check_alphas(start, penalty_alpha)
        # A scheduled α is a tensor, so that a compiled or captured step sees it move.
        self.alpha: float | Tensor = start
        if self.schedule is not None:
            del self.alpha
            self.register_buffer("alpha", torch.tensor(start))
        self.penalty_alpha: float | Tensor | None = penalty_alpha
        self.kind, self.box_cox = kind, box_cox
        self.box_format: PairFormat = box_format
        self.reduction, self.backend = reduction, backend
        self.modifiers = tuple(_with_state(modifier) for modifier in modifiers)
        self.stateful = nn.ModuleList(m for m in self.modifiers if isinstance(m, nn.Module))

    def forward(
        self,
        pred: Num[Tensor, "*batch coordinates"],
        target: Num[Tensor, "*batch coordinates"],
        weight: Shaped[Tensor, "*pairs"] | None = None,
        avg_factor: float | Tensor | None = None,
    ) -> Float[Tensor, "*reduced"]:
        """The loss of aligned boxes."""
        return alpha_iou_loss(
            pred,
            target,
            kind=self.kind,
            alpha=self.alpha,
            penalty_alpha=self.penalty_alpha,
            box_cox=self.box_cox,
            box_format=self.box_format,
            modifiers=self.modifiers,
            weight=weight,
            reduction=self.reduction,
            avg_factor=avg_factor,
            backend=self.backend,
        )

    def set_progress(self, progress: float) -> None:
        """Set a scheduled α, and the ratio of a ``ScheduledInner``, to their values at a progress.

        The progress goes from 0 to 1; what has no schedule stays.
        """
        check_progress(progress)
        if self.schedule is not None and isinstance(self.alpha, Tensor):
            self.alpha.fill_(self.schedule(progress))
        for modifier in self.stateful:
            if isinstance(modifier, ScheduledInner):
                modifier.set_progress(progress)

    def extra_repr(self) -> str:
        """The settings, as printed."""
        alpha = self.schedule if self.schedule is not None else self.alpha
        text = f"kind={self.kind!r}, alpha={alpha}, penalty_alpha={self.penalty_alpha}"
        names = ", ".join(getattr(one, "__name__", repr(one)) for one in self.modifiers)
        return f"{text}, modifiers=({names})" if names else text


def check_stateless(name: str, loss: object) -> None:
    """Reject a loss with a running mean for a matching, which tries pairs that are not trained."""
    if isinstance(loss, AlphaIoULoss) and (means := [m for m in loss.stateful if _has_mean(m)]):
        raise ValueError(
            f"{name}: {means[0]} keeps a running mean of the pairs that learn, but a "
            "matching tries all pairs; take the modifier wise, which keeps none, or leave it out"
        )


def _has_mean(modifier: nn.Module) -> bool:
    """Whether a modifier keeps anything but a schedule; one of somebody else's may."""
    return not isinstance(modifier, ScheduledInner) and any(True for _ in modifier.buffers())


def _with_state(modifier: str | Modifier) -> Modifier:
    if isinstance(modifier, str) and modifier in STATEFUL_MODIFIERS:
        return STATEFUL_MODIFIERS[modifier]()
    return resolve_modifier(modifier)
