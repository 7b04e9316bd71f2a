"""Similarities of oriented boxes as Gaussians: mean the centre, ``Σ = R diag(w², h²) Rᵀ / k``.

The published formulas subtract determinants, traces and logarithms that are nearly equal for boxes
that nearly agree, and their roots of the rounding error are far from 0. Here every distance is a
sum of squares of differences, one for each way to match the sides of one box with those of the
other, weighted by cos² and sin² of the angle between them. It is 0, with slope 0, for equal boxes,
and exchanging w and h while θ turns by π/2 exchanges the two summands.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou.oriented import OrientedGeometry

#: Below this |v|, ``eᵛ − 1 − v`` is a series: subtracting would lose its digits.
_SERIES = 0.5
_SERIES_TERMS = 14


def hellinger(pair: OrientedGeometry) -> Tensor:
    """ProbIoU's ``1 − √(1 − e^(−B))``, k = 12, with the Bhattacharyya distance B.

    ``B = ⅛ΔᵀΣ̄⁻¹Δ + ½ ln(det Σ̄ / √(det Σ det Σᵍ))``, Σ̄ the mean of both.
    """
    pred, target, total = _areas(pair)
    mismatch = _mismatch(pair, total)
    ways = (pair.pred.flip(-1) * pair.center_of_pred, pair.target.flip(-1) * pair.center)
    apart = sum((way / total[..., None]).square().sum(-1) for way in ways)
    z = (pred - target) / total
    # ½ ln((1 + mismatch)/(1 − z²)); where the areas differ much, 1 − z² = 4|B||Bᵍ|/(|B| + |Bᵍ|)².
    near = z.abs() < 0.5
    sizes = torch.where(
        near,
        torch.log1p(-torch.where(near, z, 0.0).square()),
        torch.log(4.0 * (pred / total) * (target / total)),
    )
    distance = 3.0 * apart / (1.0 + mismatch) + 0.5 * (torch.log1p(mismatch) - sizes)
    return 1.0 - _root(-torch.expm1(-distance))


def kullback_leibler(pair: OrientedGeometry) -> Tensor:
    """``√D``, k = 4: ``D = ½(ΔᵀΣ⁻¹Δ + tr(Σ⁻¹Σᵍ) + ln(det Σ/det Σᵍ)) − 1``, Σ the prediction's."""
    along, across = (
        _exp_minus_line(2.0 * (target / pair.pred).log()).sum(-1)
        for target in (pair.target, pair.target.flip(-1))
    )
    shapes = pair.cosine.square() * along + pair.sine.square() * across
    apart = (pair.center_of_pred / pair.pred).square().sum(-1)
    return _root(2.0 * apart + 0.5 * shapes)


def wasserstein(pair: OrientedGeometry) -> Tensor:
    """``√(D / √|B||Bᵍ|)``, k = 4: ``D = |Δ|² + tr Σ + tr Σᵍ − 2 tr (Σ^½ Σᵍ Σ^½)^½``."""
    ways = (
        (pair.cosine.square(), pair.target),
        (pair.sine.square(), pair.target.flip(-1)),
    )
    pred, target, _ = _areas(pair)
    sizes = pair.pred.square().sum(-1) + pair.target.square().sum(-1)
    product = sum(share * (pair.pred * sides).sum(-1).square() for share, sides in ways)
    shapes = sum(
        share * (pair.pred - sides).square().sum(-1) * (pair.pred + sides).square().sum(-1)
        for share, sides in ways
    )
    shapes = shapes / (sizes + 2.0 * _root(torch.as_tensor(product)))
    distance = pair.center.square().sum(-1) + 0.25 * shapes
    return _root(distance) / _root(_root(pred * target))


def kalman_overlap(pair: OrientedGeometry) -> Tensor:
    """``3V/(Vp + Vt − V)``, V the root of the determinant of ``Σp − Σp(Σp + Σt)⁻¹Σp``."""
    pred, target, total = _areas(pair)
    sizes = 1.0 - ((pred - target) / total).square()
    ratio = sizes / (1.0 + _mismatch(pair, total)).sqrt()
    return 3.0 * ratio / (4.0 - ratio)


def of_distance(distance: Tensor) -> Tensor:
    """``1/(1 + ln(1 + distance))``, the similarity of a distance without a limit."""
    return 1.0 / (1.0 + torch.log1p(distance))


def _areas(pair: OrientedGeometry) -> tuple[Tensor, Tensor, Tensor]:
    pred, target = pair.pred.prod(-1), pair.target.prod(-1)
    return pred, target, pred + target


def _mismatch(pair: OrientedGeometry, total: Tensor) -> Tensor:
    """``(cos²(whᵍ − hwᵍ)² + sin²(wwᵍ − hhᵍ)²) / (|B| + |Bᵍ|)²``.

    With z the difference of the areas over their sum, ``det Σ̄ / √(det Σ det Σᵍ)`` is
    ``(1 + mismatch)/(1 − z²)``.
    """
    (w, h), (wt, ht) = pair.pred.unbind(-1), pair.target.unbind(-1)
    along, across = (w * ht - h * wt) / total, (w * wt - h * ht) / total
    return (pair.cosine * along).square() + (pair.sine * across).square()


def _exp_minus_line(v: Tensor) -> Tensor:
    """``eᵛ − 1 − v``, 0 or more, with all its digits."""
    near = v.abs() < _SERIES
    small = torch.where(near, v, 0.0)
    series = torch.ones_like(v)
    for term in range(_SERIES_TERMS, 2, -1):
        series = 1.0 + small / term * series
    large = torch.where(near, 1.0, v)
    return torch.where(near, 0.5 * small.square() * series, torch.expm1(large) - large)


def _root(square: Tensor) -> Tensor:
    """The square root, with gradient 0 at 0."""
    is_zero = square <= 0
    return torch.where(is_zero, 0.0, torch.where(is_zero, 1.0, square).sqrt())
