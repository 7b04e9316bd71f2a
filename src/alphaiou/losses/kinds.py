"""The kinds: each a similarity S and penalties Pᵢ of one box pair, a few lines under its equation.

To add a loss, write one function from a ``PairGeometry`` to ``Terms`` and give it a row in
``KINDS`` (or pass the function itself as ``kind``). Lengths come in units of the pair's hull, per
axis; keep every penalty a ratio, take no powers (the formula does), and divide by one box's side
with ``bounded_ratio`` only. Parameters are keyword arguments with defaults; callers set them with
``functools.partial``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from alphaiou._shapes import Float
from alphaiou.boxes import PairGeometry, norm_squared
from alphaiou.numerics import PENALTY_CEILING, bounded_ratio, check_number, power

#: PIoU's exponential is 0 long before an edge lies this many target sides away.
GAP_CEILING = 1e3


@dataclass(frozen=True)
class Terms:
    """The terms of the formula ``weight · (1 − S^α₁ + Σᵢ Pᵢ^α₂)``."""

    similarity: Float[Tensor, "*batch"]
    penalties: tuple[Float[Tensor, "*batch"], ...] = ()
    weight: Float[Tensor, "*batch"] | None = None


TermsFunction = Callable[[PairGeometry], Terms]


def iou(pair: PairGeometry) -> Terms:
    """IoU: no penalty."""
    return Terms(pair.iou)


def giou(pair: PairGeometry) -> Terms:
    """GIoU: ``|C ∖ (B ∪ Bᵍ)| / |C|``, the empty share of the hull."""
    return Terms(pair.iou, (pair.hull_gap(),))


def diou(pair: PairGeometry) -> Terms:
    """DIoU: ``ρ²/c²``, the distance of the centres."""
    return Terms(pair.iou, (pair.squared_distance(pair.center),))


def ciou(pair: PairGeometry) -> Terms:
    """CIoU: DIoU and ``βv``, the difference of the aspect ratios."""
    return Terms(pair.iou, (*diou(pair).penalties, pair.aspect()))


def eiou(pair: PairGeometry) -> Terms:
    """EIoU: DIoU, ``((w − wᵍ)/W)²`` and ``((h − hᵍ)/H)²``."""
    width, height = (pair.growth / pair.hull).square().unbind(-1)
    return Terms(pair.iou, (*diou(pair).penalties, width, height))


def siou(pair: PairGeometry) -> Terms:
    """SIoU: ``(Δ + Ω)/2``, the distance sharpened by its angle, and the difference of the sides.

    ``Δ = Σ 1 − exp(−γ(δ/W)²)``, ``γ = 2 − Λ``, ``Λ = sin 2θ = 2|δx||δy|/ρ²``.
    """
    x, y = (pair.center * pair.shape).abs().unbind(-1)
    # Centres that coincide have no angle; there Δ is 0 whatever γ is, and its slope with it.
    gamma = 2.0 - 2.0 * x * y / (x.square() + y.square()).clamp(min=1e-30)
    distance = -torch.expm1(-gamma[..., None] * (pair.center / pair.hull).square()).sum(-1)
    return Terms(pair.iou, (0.5 * (distance + _side_mismatch(pair, torch.ones_like(pair.pred))),))


def mpdiou(pair: PairGeometry, *, image_size: tuple[float, float] | None = None) -> Terms:
    """MPDIoU: ``d₁²/D²`` and ``d₂²/D²``, how far the corners are apart.

    ``image_size`` is (height, width) in the boxes' units; without it D is the diagonal of the hull.
    """
    if image_size is None:
        return Terms(pair.iou, tuple(map(pair.squared_distance, (pair.low, pair.high))))
    diagonal = image_diagonal(image_size)
    # From the corners as they came: by way of hull units the slope of a distant box would overflow.
    gaps = ((a - b) / diagonal for a, b in zip(*pair.corners, strict=True))
    return Terms(pair.iou, tuple(norm_squared(gap).clamp(max=PENALTY_CEILING) for gap in gaps))


def image_diagonal(image_size: tuple[float, float]) -> float:
    """The diagonal of an image given as (height, width)."""
    height, width = image_size
    if not (0 < height < math.inf and 0 < width < math.inf):
        raise ValueError(f"image_size must be two finite numbers > 0, got {image_size!r}")
    return math.hypot(height, width)


def shape_iou(pair: PairGeometry, *, scale: float = 1.0) -> Terms:
    """Shape-IoU: distance and side mismatch, each axis weighted by the other side of the target.

    ``ww = 2wᵍˢ/(wᵍˢ + hᵍˢ)`` weighs y, ``hh`` weighs x; both are held constant in the gradient.
    """
    check_number("scale", scale, strict=False)
    sides = (pair.target * pair.shape).detach()
    longer = sides.amax(-1, keepdim=True)
    # Relative to the longer side, a point counting as a square: the shares never become 0/0.
    sides = (sides / longer.masked_fill(longer == 0, 1.0) + (longer == 0)).pow(scale)
    across = (2.0 * sides / sides.sum(-1, keepdim=True)).flip(-1)
    distance = pair.squared_distance(pair.center * across.sqrt())
    return Terms(pair.iou, (distance, 0.5 * _side_mismatch(pair, across)))


def piou(pair: PairGeometry, *, version: int = 1) -> Terms:
    """Powerful-IoU: ``1 − exp(−P²)``, P the mean edge gap as a share of the target's side.

    ``version=2`` adds the non-monotonic weight ``3u·exp(−u²)``, ``u = 1.3·exp(−P)``.
    """
    check_piou_version(version)
    shift = pair.low.abs() + pair.high.abs()
    far = shift > GAP_CEILING * pair.target
    gaps = bounded_ratio(shift.masked_fill(far, GAP_CEILING), pair.target.masked_fill(far, 1.0))
    mean_gap = 0.25 * gaps.sum(-1)
    u = 1.3 * torch.exp(-mean_gap.detach())
    weight = 3.0 * u * torch.exp(-u.square()) if version == 2 else None
    return Terms(pair.iou, (-torch.expm1(-mean_gap.square()),), weight)


def check_piou_version(version: int) -> None:
    """Reject a version that was never published."""
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2, got {version!r}")


def nwd(pair: PairGeometry, *, constant: float = 12.8) -> Terms:
    """NWD: ``S = exp(−W₂/constant)``, W₂ the distance of the boxes as Gaussians, in pixels.

    ``W₂² = ρ² + ¼(w − wᵍ)² + ¼(h − hᵍ)²``.
    """
    check_number("constant", constant)
    spread = norm_squared(0.5 * pair.growth * pair.shape)
    distance = power(norm_squared(pair.center * pair.shape) + spread, 0.5)
    return Terms(torch.exp(-distance * (pair.unit.amax(-1) / constant)))


def biou(pair: PairGeometry, *, beta: float = 0.2) -> Terms:
    """Bounded-IoU: the Huber loss of ``1 − bound`` for x, y, w, h; S plays no part.

    A bound is the best IoU of its coordinate: ``(wᵍ − 2|δx|)/(wᵍ + 2|δx|)``, ``min(w/wᵍ, wᵍ/w)``.
    """
    check_number("beta", beta)
    offset = 2.0 * pair.center.abs()
    place = bounded_ratio(2.0 * offset, pair.target + offset)
    misfits = torch.cat((torch.where(place > 1.0, 1.0, place), _side_difference(pair)), dim=-1)
    bent = torch.where(misfits < beta, misfits.square() / (2 * beta), misfits - 0.5 * beta)
    return Terms(torch.ones_like(pair.iou), bent.unbind(-1))


def _side_difference(pair: PairGeometry) -> Tensor:
    """``|w − wᵍ| / max(w, wᵍ)`` per axis."""
    return bounded_ratio(pair.growth.abs(), torch.maximum(pair.pred, pair.target))


def _side_mismatch(pair: PairGeometry, weight: Tensor) -> Tensor:
    """``Ω = Σ (1 − exp(−weight·|w − wᵍ|/max(w, wᵍ)))⁴``."""
    return (-torch.expm1(-weight * _side_difference(pair))).pow(4).sum(-1)


KINDS: dict[str, TermsFunction] = {
    "iou": iou,
    "giou": giou,
    "diou": diou,
    "ciou": ciou,
    "eiou": eiou,
    "siou": siou,
    "mpdiou": mpdiou,
    "shape_iou": shape_iou,
    "piou": piou,
    "nwd": nwd,
    "biou": biou,
}
