"""Modifiers, which apply to any kind: each is a function from terms to terms.

Parameters are keyword arguments with defaults; callers set them with ``functools.partial``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from alphaiou.boxes import PairGeometry, norm_squared
from alphaiou.losses.kinds import Terms
from alphaiou.numerics import check_number, power, safe_floor
from alphaiou.oriented import Geometry

Modifier = Callable[[Terms, Any], Terms]


def inner(terms: Terms, pair: Geometry, *, ratio: float = 0.7) -> Terms:
    """Inner-IoU: S is the IoU of both boxes scaled about their centres by ``ratio``."""
    check_number("ratio", ratio)
    return replace(terms, similarity=pair.scaled(ratio).iou)


class ScheduledInner(nn.Module):
    """``inner`` with a ratio that follows the training, as the boxes of Unified-IoU do.

    A large ratio early lets boxes that barely meet learn; a small one late sharpens those that fit.
    The ratio is a buffer, so it is saved with the loss and a compiled step sees it move. It changes
    with ``set_progress`` of the ``AlphaIoULoss``.

    Args:
        schedule: From the progress, 0 to 1, to the ratio: an ``AlphaSchedule`` such as
            ``AlphaSchedule(2.0, 0.5)``, the range of Unified-IoU, or a function.
    """

    ratio: Tensor

    def __init__(self, schedule: Callable[[float], float]) -> None:
        super().__init__()
        for progress in (0.0, 1.0):
            check_number("ratio", schedule(progress))
        self.schedule = schedule
        self.register_buffer("ratio", torch.tensor(float(schedule(0.0))))

    def forward(self, terms: Terms, pair: Geometry) -> Terms:
        """The terms with another similarity."""
        return replace(terms, similarity=pair.scaled(self.ratio).iou)

    def set_progress(self, progress: float) -> None:
        """Set the ratio to its value at this progress."""
        self.ratio.fill_(self.schedule(progress))

    def extra_repr(self) -> str:
        """The settings, as printed."""
        return f"schedule={self.schedule}"


def focaler(terms: Terms, pair: Geometry, *, lower: float = 0.0, upper: float = 0.95) -> Terms:
    """Focaler-IoU: ``S → clamp((S − lower)/(upper − lower), 0, 1)``; only that range is trained."""
    if not 0.0 <= lower < upper <= 1.0:
        raise ValueError(f"focaler needs 0 <= lower < upper <= 1, got {lower=}, {upper=}")
    stretched = (terms.similarity - lower) / (upper - lower)
    return replace(terms, similarity=stretched.clamp(0.0, 1.0))


def rectified(
    terms: Terms,
    pair: Geometry,
    *,
    powers: tuple[float, ...] = (1.0, 3.0),
    shares: tuple[float, ...] | None = None,
) -> Terms:
    """Rectified IoU, several powers in one loss: ``S → Σ shareₖ · S^powerₖ``."""
    if not powers or not all(0 < exponent < math.inf for exponent in powers):
        raise ValueError(f"powers must be one or more finite numbers > 0, got {powers!r}")
    parts = shares or tuple(1.0 / len(powers) for _ in powers)
    if len(parts) != len(powers) or min(parts) < 0 or abs(sum(parts) - 1.0) > 1e-6:
        raise ValueError(
            f"shares must be {len(powers)} numbers >= 0 with the sum 1, got {shares!r}"
        )
    mixed = sum(
        part * power(terms.similarity, float(exponent))
        for part, exponent in zip(parts, powers, strict=True)
    )
    # The shares' sum may round to more than 1.
    return replace(terms, similarity=torch.as_tensor(mixed).clamp(max=1.0))


def focal(terms: Terms, pair: Geometry, *, gamma: float = 0.5) -> Terms:
    """Focal-EIoU's weight ``IoU^γ``, held constant in the gradient."""
    check_number("gamma", gamma, strict=False)
    return _weighted(terms, pair.iou.detach().pow(gamma))


def wise(terms: Terms, pair: Geometry) -> Terms:
    """Wise-IoU v1's weight ``exp(ρ²/c²)``, c held constant in the gradient."""
    diagonal = norm_squared(pair.hull * pair.shape).detach()
    distance = norm_squared(pair.center * pair.shape)
    return _weighted(terms, torch.exp(distance / diagonal.clamp(min=safe_floor(distance.dtype))))


def angle(terms: Terms, pair: Geometry) -> Terms:
    """A penalty ``exp(−ln²(wᵍ/hᵍ)/9) · sin² 2Δθ`` for the angle of oriented boxes.

    It counts for targets that are nearly square, whose angle a Gaussian does not see. Axis-aligned
    boxes have no angle: there it adds nothing.
    """
    if isinstance(pair, PairGeometry):
        return terms
    width, height = pair.target.unbind(-1)
    squareness = torch.exp(-(width / height).log().square() / 9.0)
    penalty = squareness * (2.0 * pair.sine * pair.cosine).square()
    return replace(terms, penalties=(*terms.penalties, penalty))


class Wise(nn.Module):
    """Wise-IoU v2 and v3: v1 focused by how far ``1 − IoU`` lies from its running mean.

    v2 multiplies by ``(L/mean)^gamma``, v3 by ``b/(d·a^(b−d))``, ``b = L/mean``; both factors are
    held constant in the gradient. In training mode the mean moves with every call, by the pairs
    whose weight is not 0 and whose boxes are finite; it is a buffer, so it is saved, restored and
    moved with the module, and never leaves the device.

    The defaults are those of the paper. The authors' newer code has ``momentum=0.01``, ``a=1.7``
    and ``d=2.7``.
    """

    mean_loss: Tensor

    def __init__(
        self,
        version: int = 3,
        *,
        momentum: float = 1 - 0.5 ** (1 / 7000),
        gamma: float = 0.5,
        a: float = 1.9,
        d: float = 3.0,
    ) -> None:
        super().__init__()
        if version not in (2, 3):
            raise ValueError(f"version must be 2 or 3 (v1 is the modifier 'wise'), got {version!r}")
        if not 0.0 <= momentum <= 1.0:
            raise ValueError(f"momentum must lie in [0, 1], got {momentum!r}")
        self.version, self.momentum, self.gamma, self.a, self.d = version, momentum, gamma, a, d
        self.register_buffer("mean_loss", torch.ones(()))
        #: With several processes: the sum over them, so that all have the same mean.
        self.sum_over_processes: Callable[[Tensor], Tensor] = _own

    def forward(self, terms: Terms, pair: Geometry) -> Terms:
        """The terms, weighted."""
        loss = 1.0 - pair.iou.detach()
        if self.training:
            self._update(loss, pair.valid)
        outlier = loss / self.mean_loss.to(loss.dtype).clamp(min=1e-6)
        if self.version == 2:
            focus = outlier.pow(self.gamma)
        else:
            focus = outlier / (self.d * self.a ** (outlier - self.d).clamp(max=100.0))
        return _weighted(wise(terms, pair), focus)

    @torch.no_grad()
    def _update(self, loss: Tensor, valid: Tensor | None) -> None:
        # One box that is NaN would stay in the mean, and in saved weights, for ever.
        counts = loss.isfinite() if valid is None else loss.isfinite() & valid
        sums = torch.stack([loss.where(counts, 0.0).sum(), counts.sum().to(loss.dtype)])
        total, count = self.sum_over_processes(sums).unbind()
        # A batch in which no pair counts leaves the mean where it is.
        step = self.momentum * (count > 0)
        change = step * (total / count.clamp(min=1.0) - self.mean_loss)
        # In place: a captured step keeps the address.
        self.mean_loss.add_(change.to(self.mean_loss.dtype))

    def extra_repr(self) -> str:
        """The settings, as printed."""
        return f"version={self.version}, momentum={self.momentum:.3g}"


def _own(sums: Tensor) -> Tensor:
    """The sum over the processes of a single one."""
    return sums


def _weighted(terms: Terms, factor: Tensor) -> Terms:
    return replace(terms, weight=factor if terms.weight is None else terms.weight * factor)


MODIFIERS: dict[str, Modifier] = {
    "inner": inner,
    "focaler": focaler,
    "rectified": rectified,
    "focal": focal,
    "wise": wise,
    "angle": angle,
}

#: Modifiers that weight the loss, so that it is no longer one minus a similarity.
WEIGHING_MODIFIERS = ("focal", "wise", "wise_v2", "wise_v3")

#: Modifiers with a state: a module creates and keeps it, a function cannot.
STATEFUL_MODIFIERS: dict[str, Callable[[], Wise]] = {
    "wise_v2": partial(Wise, 2),
    "wise_v3": partial(Wise, 3),
}
