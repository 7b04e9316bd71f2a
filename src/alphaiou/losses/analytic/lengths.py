"""Powers with their slopes, and the six lengths of an axis with the way back to its corners."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from alphaiou import numerics
from alphaiou.losses import dialect as tl

FLOOR = 2.0**-100
TINY = numerics.LOG_FLOOR
SLOPE_FLOOR = numerics.SLOPE_FLOOR
LOG2_SLOPE_FLOOR = math.log2(SLOPE_FLOOR)
SIDE_FLOOR = numerics.SIDE_FLOOR
SMALL_ALPHA = numerics.SMALL_ALPHA
PENALTY_CEILING = numerics.PENALTY_CEILING
LN2 = math.log(2.0)
V_SCALE = 4.0 / math.pi**2
HALF_PI = math.pi / 2
QUARTER_PI = math.pi / 4


class Axis(NamedTuple):
    """The lengths of a pair along one axis in hull units; ``shape`` makes axes comparable."""

    pred: Tensor
    target: Tensor
    overlap: Tensor
    gap: Tensor
    hull: Tensor
    low: Tensor
    high: Tensor
    shape: Tensor


class Slope(NamedTuple):
    """The slope of the loss along each length of one axis that moves with the prediction."""

    pred: Tensor
    overlap: Tensor
    gap: Tensor
    hull: Tensor
    low: Tensor
    high: Tensor


def powered(base, alpha):
    """base^α and its slope, capped below SLOPE_FLOOR where α < 1."""
    log2 = tl.log2(tl.maximum(base, TINY))
    value = tl.where(base > 0, tl.exp2(alpha * log2), 0.0)
    value = tl.where(alpha == 1.0, base, value)
    knee = tl.where(alpha < 1.0, tl.maximum(log2, LOG2_SLOPE_FLOOR), log2)
    slope = alpha * tl.exp2((alpha - 1.0) * knee)
    return value, tl.where((base <= 0) & (alpha > 1.0), 0.0, slope)


def minus_expm1(z):
    """1 − exp(z) for z ≤ 0, without cancellation near 0."""
    series = 1.0 + z * (1 / 7) * (1.0 + z * (1 / 8))
    series = 1.0 + z * (1 / 5) * (1.0 + z * (1 / 6) * series)
    series = 1.0 + z * (1 / 3) * (1.0 + z * (1 / 4) * series)
    series = -z * (1.0 + z * (1 / 2) * series)
    return tl.where(z > -0.5, series, 1.0 - tl.exp(z))


def similarity_loss(similarity, alpha, box_cox):
    """1 − S^α, or its Box-Cox form, or −log S where α is 0; and the slope along S."""
    positive = tl.where(alpha > 0.0, alpha, 1.0)
    value, slope = powered(similarity, positive)
    loss = 1.0 - value
    log = LN2 * tl.log2(tl.maximum(similarity, TINY))
    if box_cox:
        slope = slope / positive
        small = minus_expm1(tl.where(alpha < SMALL_ALPHA, positive * log, -1.0))
        loss = tl.where(alpha < SMALL_ALPHA, small, loss) / positive
    loss = tl.where(alpha > 0.0, loss, -log)
    slope = tl.where(alpha > 0.0, slope, 1.0 / tl.maximum(similarity, SLOPE_FLOOR))
    return loss, -slope


def ratio_slope(side):
    """What a slope through 1/side is multiplied by: 1/side, fading under SIDE_FLOOR."""
    return tl.minimum(side * (1 / SIDE_FLOOR), 1.0) / tl.maximum(side, FLOOR)


def sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


def share(value):
    """[value > 0], ½ at a tie."""
    return tl.where(value > 0, 1.0, tl.where(value == 0, 0.5, 0.0))


def positive_part(value):
    return tl.maximum(value, 0.0)


def is_positive(value):
    return tl.where(value > 0, 1.0, 0.0)


def middle_if_inverted(corner, low, high):
    return tl.where(high < low, 0.5 * low + 0.5 * high, corner)


def unit_scale(hull):
    """1/hull; 0 for an axis along which both boxes are flat and in one place."""
    return tl.where(hull < FLOOR, 0.0, 1.0 / tl.maximum(hull, FLOOR))


def measure(low, high, target_low, target_high, other_hull):
    hull = tl.maximum(high, target_high) - tl.minimum(low, target_low)
    overlap = tl.minimum(high, target_high) - tl.maximum(low, target_low)
    flat = tl.where(hull < FLOOR, 1.0, 0.0)
    scale = unit_scale(hull)
    return Axis(
        (high - low) * scale + flat,
        (target_high - target_low) * scale + flat,
        positive_part(overlap) * scale + flat,
        positive_part(-overlap) * scale,
        hull * scale + flat,
        (low - target_low) * scale,
        (high - target_high) * scale,
        tl.div_rn(hull, tl.maximum(tl.maximum(hull, other_hull), FLOOR)),
    )


def center(axis):
    return 0.5 * (axis.low + axis.high)


def corner_slopes(slope, low, high, target_low, target_high):
    """The slopes along the six lengths, led back to the prediction's two corners."""
    inside_high = share(target_high - high)
    inside_low = share(low - target_low)
    overlap = tl.minimum(high, target_high) - tl.maximum(low, target_low)
    met = tl.where(overlap >= 0, slope.overlap, -slope.gap)
    scale = unit_scale(tl.maximum(high, target_high) - tl.minimum(low, target_low))
    to_high = slope.pred + met * inside_high + slope.hull * (1.0 - inside_high) + slope.high
    to_low = slope.low - slope.pred - met * inside_low - slope.hull * (1.0 - inside_low)
    return to_low * scale, to_high * scale


def added(a, b):
    return Slope(
        a.pred + b.pred,
        a.overlap + b.overlap,
        a.gap + b.gap,
        a.hull + b.hull,
        a.low + b.low,
        a.high + b.high,
    )
