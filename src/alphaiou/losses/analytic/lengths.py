"""Powers with their slopes, and the lengths of an axis with the way back to its corners."""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from alphaiou import numerics
from alphaiou.losses import dialect as tl

FLOOR = numerics.FLOOR
TINY = numerics.LOG_FLOOR
SLOPE_FLOOR = numerics.SLOPE_FLOOR
LOG2_SLOPE_FLOOR = math.log2(SLOPE_FLOOR)
SIDE_FLOOR = numerics.SIDE_FLOOR
PER_SIDE_FLOOR = 1.0 / SIDE_FLOOR
SMALL_ALPHA = numerics.SMALL_ALPHA
LOG2_TINY = math.log2(TINY)
LN2 = math.log(2.0)
#: No slope: adding −0.0 is the one addition that a compiler may leave out.
NONE = -0.0


class Axis(NamedTuple):
    """The lengths of a pair along one axis in hull units; ``shape`` makes axes comparable."""

    pred: Tensor
    target: Tensor
    overlap: Tensor
    gap: Tensor
    low: Tensor
    high: Tensor
    shape: Tensor


class Slope(NamedTuple):
    """The slope of the loss along each length of one axis that moves with the prediction."""

    pred: Tensor | float
    overlap: Tensor | float
    gap: Tensor | float
    hull: Tensor | float
    low: Tensor | float
    high: Tensor | float


# The next four are the machine's own on CUDA: approximations good to a unit in the last place, and
# a product that is rounded before it is added to anything (see ``triton_kernel.py``).


def reciprocal(value):
    return 1.0 / value


def log2(value):
    return tl.log2(value)


def exp2(value):
    return tl.exp2(value)


def rounded_product(a, b):
    """a·b, so rounded that equal products cancel exactly."""
    return a * b


def powered(base, alpha):
    """base^α and its slope, for base ≥ 0 and α > 0; the slope is capped where α < 1."""
    log = log2(base)
    knee = tl.maximum(log, tl.where(alpha < 1.0, LOG2_SLOPE_FLOOR, -1e30))
    return exp2(alpha * log), alpha * exp2((alpha - 1.0) * knee)


def minus_expm1(z):
    """1 − exp(z) for z ≤ 0, without cancellation near 0."""
    series = tl.fma(z, 1 / 40320, 1 / 5040)
    series = tl.fma(z, series, 1 / 720)
    series = tl.fma(z, series, 1 / 120)
    series = tl.fma(z, series, 1 / 24)
    series = tl.fma(z, series, 1 / 6)
    series = tl.fma(z, series, 0.5)
    series = -z * tl.fma(z, series, 1.0)
    return tl.where(z > -0.5, series, 1.0 - tl.exp(z))


def similarity_loss(similarity, alpha, box_cox):
    """1 − S^α, or its Box-Cox form, or −log S where α is 0; and the slope along S."""
    positive = tl.where(alpha > 0.0, alpha, 1.0)
    value, slope = powered(similarity, positive)
    loss = 1.0 - value
    log = LN2 * tl.maximum(log2(similarity), LOG2_TINY)
    if box_cox:
        slope = slope / positive
        small = minus_expm1(tl.where(alpha < SMALL_ALPHA, positive * log, -1.0))
        loss = tl.where(alpha < SMALL_ALPHA, small, loss) / positive
    loss = tl.where(alpha > 0.0, loss, -log)
    slope = tl.where(alpha > 0.0, slope, reciprocal(tl.maximum(similarity, SLOPE_FLOOR)))
    return loss, -slope


def side_ratio(numerator, side):
    """``numerator/side``, and 1/side as slopes see it: fading for a tiny side."""
    per_side = reciprocal(tl.maximum(side, FLOOR))
    return numerator * per_side, tl.minimum(side * PER_SIDE_FLOOR, 1.0) * per_side


def sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


def positive_part(value):
    return tl.maximum(value, 0.0)


def measure(low, high, target_low, target_high, per_longer):
    """The lengths; the hull itself is 1 in these units."""
    hull = tl.maximum(high, target_high) - tl.minimum(low, target_low)
    overlap = tl.minimum(high, target_high) - tl.maximum(low, target_low)
    # An axis along which both boxes are flat and in one place counts as one full unit.
    flat = tl.where(hull < FLOOR, 1.0, 0.0)
    scale = unit_scale(hull)
    return Axis(
        tl.fma(high - low, scale, flat),
        tl.fma(target_high - target_low, scale, flat),
        tl.fma(positive_part(overlap), scale, flat),
        positive_part(-overlap) * scale,
        # Rounded before they are added: the centres of concentric boxes are in one place exactly.
        rounded_product(low - target_low, scale),
        rounded_product(high - target_high, scale),
        hull * per_longer,
    )


def unit_scale(hull):
    """1/hull, 0 where it is flat."""
    return tl.where(hull < FLOOR, 0.0, reciprocal(tl.maximum(hull, FLOOR)))


def center(axis):
    return 0.5 * (axis.low + axis.high)


def growth(axis):
    """W − wᵍ, from whichever of edges and sides loses no digits."""
    return tl.where(axis.gap > 0, axis.pred - axis.target, axis.high - axis.low)


def of_smaller(a, b, slope, other):
    """``slope`` where a < b, ``other`` where a > b, their mean at a tie."""
    return tl.where(a < b, slope, tl.where(a > b, other, 0.5 * (slope + other)))


def corner_slopes(slope, low, high, target_low, target_high):
    """The slopes along the lengths, led back to the prediction's two corners."""
    overlap = tl.minimum(high, target_high) - tl.maximum(low, target_low)
    met = tl.where(overlap >= 0, slope.overlap, -slope.gap)
    scale = unit_scale(tl.maximum(high, target_high) - tl.minimum(low, target_low))
    to_high = of_smaller(high, target_high, met, slope.hull) + slope.pred + slope.high
    to_low = slope.low - of_smaller(target_low, low, met, slope.hull) - slope.pred
    # Rounded before they meet again: the slopes of an inverted box cancel exactly.
    return rounded_product(to_low, scale), rounded_product(to_high, scale)


def added(a, b):
    return Slope(
        a.pred + b.pred,
        a.overlap + b.overlap,
        a.gap + b.gap,
        a.hull + b.hull,
        a.low + b.low,
        a.high + b.high,
    )
