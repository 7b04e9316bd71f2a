"""Loss and gradient of one box pair in closed form: the derivation behind the fused kernels.

The formulas of ``losses/kinds.py`` with the reverse pass written out by hand, in the few operations
that torch and Triton share: Triton compiles these functions for CUDA (``triton.py``), torch's own
compiler for the CPU (``cpu.py``). ``tl`` is ``triton_ops`` here and ``triton.language`` there;
hence no closures, and branches on the kind, the format and ``box_cox`` only.

``pair_loss``, at the end, is the entry. Along each axis the loss L depends on the prediction's
corners (lo, hi) only through six lengths in hull units (``Axis``: pred, overlap, gap, hull, low,
high). Every kind returns the slope of L along each of them (``Slope``), by the chain rule from its
equation, and ``corner_slopes`` leads back to the corners:

    pred    = hi − lo                               ∂hi = 1            ∂lo = −1
    overlap = max(min(hi, hiᵍ) − max(lo, loᵍ), 0)   ∂hi = [hi < hiᵍ]   ∂lo = −[lo > loᵍ]
    gap     = max(max(lo, loᵍ) − min(hi, hiᵍ), 0)   the same, with the other sign
    hull    = max(hi, hiᵍ) − min(lo, loᵍ)           ∂hi = [hi > hiᵍ]   ∂lo = −[lo < loᵍ]
    low, high = lo − loᵍ, hi − hiᵍ                  ∂hi = 1            ∂lo = 1

where [·] is ½ at a tie, as in torch's ``minimum`` and ``maximum``. The hull unit itself is held
constant (no loss depends on it). The caps are those of ``numerics.py``.

In the code, ``slope`` is the derivative of the value beside it, and ``grad`` is that derivative
times the factors that its components share. Adding −0.0 (``NO_GRAD``) is the one addition that a
compiler may leave out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from torch import Tensor

from alphaiou import numerics
from alphaiou.losses.kernels import triton_ops as tl
from alphaiou.losses.kinds import GAP_CEILING

# Triton sees the floats of this module, so those of others get a name here.
FLOOR = numerics.FLOOR
TINY = numerics.LOG_FLOOR
LOG2_TINY = math.log2(TINY)
SLOPE_FLOOR = numerics.SLOPE_FLOOR
LOG2_SLOPE_FLOOR = math.log2(SLOPE_FLOOR)
SIDE_FLOOR = numerics.SIDE_FLOOR
PER_SIDE_FLOOR = 1.0 / SIDE_FLOOR
SMALL_ALPHA = numerics.SMALL_ALPHA
PENALTY_CEILING = numerics.PENALTY_CEILING
LOG2_POWER_CEILING = numerics.LOG2_POWER_CEILING
#: The largest slope that can be led back through hull units.
SLOPE_CEILING = 1e37
LN2 = math.log(2.0)
HALF_PI = math.pi / 2
V_SCALE = 4.0 / math.pi**2
#: The slope along a length that a term does not depend on.
NO_GRAD = -0.0


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


# --- Operations with a CUDA instruction of their own: see triton.py -------------------------------


def reciprocal(value):
    return 1.0 / value


def log2(value):
    return tl.log2(value)


def exp2(value):
    return tl.exp2(value)


def rounded_product(a, b):
    """a·b, so rounded that equal products cancel exactly."""
    return a * b


# --- Functions of one number, most of them with their slope ---------------------------------------


def sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


def positive_part(value):
    return tl.maximum(value, 0.0)


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


def arc_tangent(rise, run):
    """The angle of a rise and a run, both ≥ 0, to 2e-7."""
    steep = rise > run
    ratio = tl.minimum(rise, run) * reciprocal(tl.maximum(tl.maximum(rise, run), TINY))
    square = ratio * ratio
    series = tl.fma(square, -0.004054425279, 0.02186243085)
    series = tl.fma(square, series, -0.0559115454)
    series = tl.fma(square, series, 0.09642138471)
    series = tl.fma(square, series, -0.1390860588)
    series = tl.fma(square, series, 0.1994656079)
    series = tl.fma(square, series, -0.3332986035)
    angle = ratio * tl.fma(square, series, 0.9999993355)
    return tl.where(steep, HALF_PI - angle, angle)


def powered(base, alpha):
    """base^α and its slope, for base ≥ 0 and α > 0; the slope is capped where α < 1."""
    log = log2(base)
    knee = tl.maximum(log, tl.where(alpha < 1.0, LOG2_SLOPE_FLOOR, -1e30))
    return exp2(alpha * log), alpha * exp2((alpha - 1.0) * knee)


def powered_penalty(penalty, alpha):
    """penalty^α and its slope, for penalties that may exceed 1: at most 2^LOG2_POWER_CEILING."""
    ceiling = exp2(reciprocal(alpha) * LOG2_POWER_CEILING)
    value, slope = powered(tl.minimum(penalty, ceiling), alpha)
    return value, tl.where(penalty > ceiling, 0.0, slope)


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


def huber(value, beta, alpha):
    """(Huber loss)^α and its slope."""
    small = value < beta
    steepness = tl.where(small, value * reciprocal(beta), 1.0)
    bent = tl.where(small, 0.5 * value * steepness, value - 0.5 * beta)
    powered_value, slope = powered(bent, alpha)
    return powered_value, slope * steepness


def saturated(slope):
    return tl.minimum(tl.maximum(slope, -SLOPE_CEILING), SLOPE_CEILING)


# --- Lengths: from coordinates to lengths, and slopes from lengths back to coordinates ------------


def relative_corners(first, second, target_first, target_second, box_format):
    """Low and high of both boxes along one axis, as in ``boxes.py``."""
    if box_format == "xyxy":
        low, high, target_low, target_high = first, second, target_first, target_second
    elif box_format == "xywh":
        low, target_low = first - target_first, target_first * 0.0
        high, target_high = low + second, target_second
    else:
        place = first - target_first
        low, high = place - 0.5 * second, place + 0.5 * second
        target_low, target_high = -0.5 * target_second, 0.5 * target_second
    return (
        middle_if_inverted(low, low, high),
        middle_if_inverted(high, low, high),
        middle_if_inverted(target_low, target_low, target_high),
        middle_if_inverted(target_high, target_low, target_high),
        high < low,
    )


def middle_if_inverted(corner, low, high):
    return tl.where(high < low, 0.5 * low + 0.5 * high, corner)


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


def corner_slopes(slope, low, high, target_low, target_high):
    """The slopes along the lengths, led back to the prediction's two corners."""
    overlap = tl.minimum(high, target_high) - tl.maximum(low, target_low)
    met = tl.where(overlap >= 0, slope.overlap, -slope.gap)
    scale = unit_scale(tl.maximum(high, target_high) - tl.minimum(low, target_low))
    to_high = of_smaller(high, target_high, met, slope.hull) + slope.pred + slope.high
    to_low = slope.low - of_smaller(target_low, low, met, slope.hull) - slope.pred
    # Rounded before they meet again: the slopes of an inverted box cancel exactly.
    return rounded_product(to_low, scale), rounded_product(to_high, scale)


def of_smaller(a, b, slope, other):
    """``slope`` where a < b, ``other`` where a > b, their mean at a tie."""
    return tl.where(a < b, slope, tl.where(a > b, other, 0.5 * (slope + other)))


def coordinate_slopes(to_low, to_high, inverted, box_format):
    """From slopes along the corners to slopes along the two coordinates of the format."""
    half = 0.5 * (to_low + to_high)
    to_low, to_high = tl.where(inverted, half, to_low), tl.where(inverted, half, to_high)
    if box_format == "xyxy":
        return to_low, to_high
    if box_format == "xywh":
        return to_low + to_high, to_high
    return to_low + to_high, 0.5 * (to_high - to_low)


def added(a, b):
    return Slope(
        a.pred + b.pred,
        a.overlap + b.overlap,
        a.gap + b.gap,
        a.hull + b.hull,
        a.low + b.low,
        a.high + b.high,
    )


def weighted(slope, weight):
    return Slope(
        # Rounded before they meet in the corners: those of identical boxes cancel exactly.
        rounded_product(slope.pred, weight),
        rounded_product(slope.overlap, weight),
        slope.gap * weight,
        slope.hull * weight,
        slope.low * weight,
        slope.high * weight,
    )


# --- IoU ------------------------------------------------------------------------------------------


def iou_of(x, y):
    """IoU and 1/union."""
    intersection = rounded_product(x.overlap, y.overlap)
    union = rounded_product(x.pred, y.pred) + rounded_product(x.target, y.target) - intersection
    per_union = unit_scale(union)
    # Identical boxes have a similarity of exactly 1, whatever the reciprocal rounds to.
    whole = tl.where(union < FLOOR, 0.0, 1.0)
    return tl.where(intersection >= union, whole, intersection * per_union), per_union


def iou_slopes(x, y, iou, grad):
    """``grad`` = ∂L/∂S / U; I grows with the overlap of the other axis, U with its side."""
    side, overlap = -grad * iou, grad * (1.0 + iou)
    return iou_slope(y, side, overlap), iou_slope(x, side, overlap)


def iou_slope(other, side, overlap):
    side, overlap = rounded_product(side, other.pred), rounded_product(overlap, other.overlap)
    return Slope(side, overlap, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD)


# --- Distances in units of the hull's diagonal: DIoU, MPDIoU, Shape-IoU ---------------------------


def per_diagonal(x, y):
    """1/c²."""
    return reciprocal(tl.maximum(tl.fma(x.shape, x.shape, y.shape * y.shape), FLOOR))


def distance(along, across, x, y):
    """|vector|² in units that both axes share."""
    along, across = along * x.shape, across * y.shape
    return tl.fma(along, along, across * across)


def distance_slope(vector, axis, grad, ratio):
    """``grad`` = 2·∂L/∂P / c²: slopes of |vector|²/c² along the vector's component and the hull."""
    grad = grad * axis.shape * axis.shape
    return grad * vector, -grad * ratio


def center_slope(offset, axis, grad, ratio):
    slope, hull = distance_slope(offset, axis, grad, ratio)
    slope = 0.5 * slope
    return Slope(NO_GRAD, NO_GRAD, NO_GRAD, hull, slope, slope)


# --- Differences of the sides: EIoU, SIoU, Shape-IoU, Bounded-IoU ---------------------------------


def side_gap(axis, alpha):
    """((w − wᵍ)/W)^2α."""
    gap = growth(axis)
    value, slope = powered(gap * gap, alpha)
    grad = 2.0 * slope * gap
    return value, Slope(grad, NO_GRAD, NO_GRAD, -grad * gap, NO_GRAD, NO_GRAD)


def side_difference(axis):
    """|w − wᵍ|/max(w, wᵍ) and its slope along w."""
    gap = growth(axis)
    value, per_side = side_ratio(tl.abs(gap), tl.maximum(axis.pred, axis.target))
    slope = tl.where(gap > 0, 1.0 - value, tl.where(gap < 0, -1.0, 0.0))
    return value, per_side * slope


def side_mismatch(axis, weight):
    """(1 − exp(−weight·|w − wᵍ|/max))⁴ and its slope along w."""
    difference, slope = side_difference(axis)
    rest = minus_expm1(-weight * difference)
    cube = rest * rest * rest
    return cube * rest, 4.0 * cube * (1.0 - rest) * weight * slope


# --- Penalties, each raised to α₂: the value, and the slopes along x and y ------------------------


def giou(x, y, alpha):
    pred_x, target_x = gap_parts(x)
    pred_y, target_y = gap_parts(y)
    beside_x, beside_y = target_y + y.gap, pred_y + y.gap
    empty = tl.fma(pred_x, beside_x, target_x * beside_y)
    empty = tl.fma(y.gap, x.overlap, empty + x.gap)
    value, grad = powered(empty, alpha)
    x_pred, x_low, x_high = gap_parts_slope(x, grad * beside_x, grad * beside_y)
    y_pred, y_low, y_high = gap_parts_slope(y, grad * target_x, grad * pred_x)
    return (
        value,
        Slope(x_pred, grad * y.gap, grad, -grad * empty, x_low, x_high),
        Slope(
            y_pred,
            NO_GRAD,
            grad * (pred_x + target_x + x.overlap),
            grad * (x.gap - empty),
            y_low,
            y_high,
        ),
    )


def gap_parts(axis):
    """How much of each box lies beyond the other along an axis."""
    apart = axis.gap > 0
    pred = positive_part(-axis.low) + positive_part(axis.high)
    target = positive_part(axis.low) + positive_part(-axis.high)
    return tl.where(apart, axis.pred, pred), tl.where(apart, axis.target, target)


def gap_parts_slope(axis, pred, target):
    """Slopes along both parts, led back to pred, low and high."""
    apart = axis.gap > 0
    low = tl.where(axis.low > 0, target, tl.where(axis.low < 0, -pred, 0.0))
    high = tl.where(axis.high > 0, pred, tl.where(axis.high < 0, -target, 0.0))
    return tl.where(apart, pred, 0.0), tl.where(apart, 0.0, low), tl.where(apart, 0.0, high)


def diou(x, y, alpha):
    per_c2 = per_diagonal(x, y)
    center_x, center_y = center(x), center(y)
    ratio = distance(center_x, center_y, x, y) * per_c2
    value, slope = powered(ratio, alpha)
    grad = 2.0 * slope * per_c2
    return (
        value,
        center_slope(center_x, x, grad, ratio),
        center_slope(center_y, y, grad, ratio),
    )


def ciou(x, y, iou, alpha):
    value, slope_x, slope_y = diou(x, y, alpha)
    wide, tall, longer, per_longer = at_unit_size(x.pred * x.shape, y.pred * y.shape)
    target = at_unit_size(x.target * x.shape, y.target * y.shape)
    # atan(wᵍ/hᵍ) − atan(w/h) as one angle, so that equal boxes give exactly 0.
    sine = rounded_product(target[0], tall) - rounded_product(target[1], wide)
    angle = arc_tangent(tl.abs(sine), tl.fma(target[1], tall, target[0] * wide))
    v = V_SCALE * angle * angle
    beta = v * reciprocal(tl.maximum(1.0 - iou + v, FLOOR))
    aspect, slope = powered(beta * v, alpha)
    # ∂v/∂(w, h) = −2·V_SCALE·angle · (h, −w)/(w² + h²), fading for a vanishing box.
    fade = tl.minimum(longer * PER_SIDE_FLOOR, 1.0)
    turn = -2.0 * V_SCALE * sign(sine) * slope * beta * angle * fade * fade * per_longer
    turn = turn * reciprocal(tl.fma(wide, wide, tall * tall))
    to_width = Slope(turn * tall * x.shape, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD)
    to_height = Slope(-turn * wide * y.shape, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD)
    return value + aspect, added(slope_x, to_width), added(slope_y, to_height)


def at_unit_size(width, height):
    """Sides divided by the longer one, so that no product vanishes; an empty box stands upright."""
    longer = tl.maximum(width, height)
    per_longer = reciprocal(tl.maximum(longer, FLOOR))
    return width * per_longer, tl.where(longer > 0, height * per_longer, 1.0), longer, per_longer


def eiou(x, y, alpha):
    value, slope_x, slope_y = diou(x, y, alpha)
    width, width_slope = side_gap(x, alpha)
    height, height_slope = side_gap(y, alpha)
    return value + width + height, added(slope_x, width_slope), added(slope_y, height_slope)


def siou(x, y, alpha):
    center_x, center_y = center(x), center(y)
    along, across = tl.abs(center_x) * x.shape, tl.abs(center_y) * y.shape
    square = tl.fma(along, along, across * across)
    per_square = reciprocal(tl.maximum(square, 1e-30))
    steepness = 2.0 * along * across * per_square
    gamma = 2.0 - steepness
    square_x, square_y = center_x * center_x, center_y * center_y
    rest_x, rest_y = minus_expm1(-gamma * square_x), minus_expm1(-gamma * square_y)
    width, width_slope = side_mismatch(x, 1.0)
    height, height_slope = side_mismatch(y, 1.0)
    value, slope = powered_penalty(0.5 * (rest_x + rest_y + width + height), alpha)
    slope = 0.5 * slope
    # Δ along γ = 2 − Λ and so along the angle; then along the offset and the hull.
    keep_x, keep_y = slope * (1.0 - rest_x), slope * (1.0 - rest_y)
    turn = -2.0 * tl.fma(keep_x, square_x, keep_y * square_y) * per_square
    bend = tl.where(square > 1e-30, steepness, 0.0)
    turn_x = turn * (across - bend * along) * sign(center_x) * x.shape
    turn_y = turn * (along - bend * across) * sign(center_y) * y.shape
    push_x, push_y = 2.0 * gamma * keep_x * center_x, 2.0 * gamma * keep_y * center_y
    move_x, move_y = 0.5 * (push_x + turn_x), 0.5 * (push_y + turn_y)
    return (
        value,
        Slope(slope * width_slope, NO_GRAD, NO_GRAD, -push_x * center_x, move_x, move_x),
        Slope(slope * height_slope, NO_GRAD, NO_GRAD, -push_y * center_y, move_y, move_y),
    )


def mpdiou(x, y, alpha):
    per_c2 = per_diagonal(x, y)
    first = distance(x.low, y.low, x, y) * per_c2
    second = distance(x.high, y.high, x, y) * per_c2
    value_low, slope_low = powered(first, alpha)
    value_high, slope_high = powered(second, alpha)
    grad_low, grad_high = 2.0 * slope_low * per_c2, 2.0 * slope_high * per_c2
    low_x, hull_x = distance_slope(x.low, x, grad_low, first)
    low_y, hull_y = distance_slope(y.low, y, grad_low, first)
    high_x, more_x = distance_slope(x.high, x, grad_high, second)
    high_y, more_y = distance_slope(y.high, y, grad_high, second)
    return (
        value_low + value_high,
        Slope(NO_GRAD, NO_GRAD, NO_GRAD, hull_x + more_x, low_x, high_x),
        Slope(NO_GRAD, NO_GRAD, NO_GRAD, hull_y + more_y, low_y, high_y),
    )


def mpdiou_in_image(x, y, unit_x, unit_y, alpha):
    """MPDIoU measured by the image's diagonal: ``unit`` is the hull's side as a share of it."""
    low_x, low_y = x.low * unit_x, y.low * unit_y
    high_x, high_y = x.high * unit_x, y.high * unit_y
    first, second = low_x * low_x + low_y * low_y, high_x * high_x + high_y * high_y
    value_low, slope_low = powered_penalty(tl.minimum(first, PENALTY_CEILING), alpha)
    value_high, slope_high = powered_penalty(tl.minimum(second, PENALTY_CEILING), alpha)
    grad_low = tl.where(first > PENALTY_CEILING, 0.0, 2.0 * slope_low)
    grad_high = tl.where(second > PENALTY_CEILING, 0.0, 2.0 * slope_high)
    return (
        value_low + value_high,
        Slope(
            NO_GRAD,
            NO_GRAD,
            NO_GRAD,
            NO_GRAD,
            saturated(grad_low * low_x * unit_x),
            saturated(grad_high * high_x * unit_x),
        ),
        Slope(
            NO_GRAD,
            NO_GRAD,
            NO_GRAD,
            NO_GRAD,
            saturated(grad_low * low_y * unit_y),
            saturated(grad_high * high_y * unit_y),
        ),
    )


def shape_iou(x, y, scale, alpha):
    width, height = x.target * x.shape, y.target * y.shape
    longer = tl.maximum(width, height)
    per_longer = reciprocal(tl.maximum(longer, FLOOR))
    # A point counts as a square, and a scale of 0 weighs both axes alike (0⁰ is 1).
    even = (longer <= 0) | (scale == 0)
    width = tl.where(even, 1.0, powered(width * per_longer, scale)[0])
    height = tl.where(even, 1.0, powered(height * per_longer, scale)[0])
    twice = 2.0 * reciprocal(width + height)
    weigh_x, weigh_y = height * twice, width * twice
    per_c2 = per_diagonal(x, y)
    along, across = center(x) * x.shape, center(y) * y.shape
    ratio = tl.fma(weigh_x * along, along, weigh_y * across * across) * per_c2
    value, slope = powered_penalty(ratio, alpha)
    grad = 2.0 * slope * per_c2
    move_x, hull_x = distance_slope(center(x), x, grad, ratio)
    move_y, hull_y = distance_slope(center(y), y, grad, ratio)
    move_x, move_y = 0.5 * weigh_x * move_x, 0.5 * weigh_y * move_y
    wide, wide_slope = side_mismatch(x, weigh_x)
    tall, tall_slope = side_mismatch(y, weigh_y)
    mismatch, mismatch_slope = powered(0.5 * (wide + tall), alpha)
    mismatch_slope = 0.5 * mismatch_slope
    return (
        value + mismatch,
        Slope(mismatch_slope * wide_slope, NO_GRAD, NO_GRAD, hull_x, move_x, move_x),
        Slope(mismatch_slope * tall_slope, NO_GRAD, NO_GRAD, hull_y, move_y, move_y),
    )


def piou(x, y, alpha):
    """Returns the mean gap too, which the weight of version 2 is made of."""
    gap_x, slope_x = edge_gap(x)
    gap_y, slope_y = edge_gap(y)
    mean_gap = 0.25 * (gap_x + gap_y)
    rest = minus_expm1(-mean_gap * mean_gap)
    value, slope = powered(rest, alpha)
    grad = 0.5 * slope * (1.0 - rest) * mean_gap
    grad_x, grad_y = grad * slope_x, grad * slope_y
    return (
        value,
        Slope(NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, grad_x * sign(x.low), grad_x * sign(x.high)),
        Slope(NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, grad_y * sign(y.low), grad_y * sign(y.high)),
        mean_gap,
    )


def edge_gap(axis):
    """(|Δlow| + |Δhigh|)/wᵍ, at most GAP_CEILING, and what its slope is multiplied by."""
    value, per_side = side_ratio(tl.abs(axis.low) + tl.abs(axis.high), axis.target)
    return tl.minimum(value, GAP_CEILING), tl.where(value > GAP_CEILING, 0.0, per_side)


def interpiou(x, y, keep, alpha):
    """``keep`` = 1 − c: what the interpolated box keeps of the prediction's offset."""
    x_extra, x_missed = interpolated(x, keep)
    y_extra, y_missed = interpolated(y, keep)
    x_both, y_both = x.target - x_missed, y.target - y_missed
    alone = tl.fma(x_extra, y_both + y_extra, x_both * y_extra)
    alone = alone + tl.fma(x_missed, y_both + y_missed, x_both * y_missed)
    union = tl.fma(x_both, y_both, alone)
    nothing = (x_both <= 0) | (y_both <= 0) | (union < FLOOR)
    per_union = reciprocal(tl.where(nothing, 1.0, union))
    misfit = tl.where(nothing, 1.0, alone * per_union)
    value, slope = powered(misfit, alpha)
    grad = tl.where(nothing, 0.0, slope * keep * per_union)
    iou = 1.0 - misfit
    return (
        value,
        interpolated_slope(
            x,
            grad * iou * (y_both + y_extra),
            grad * (y_both - iou * y_extra),
        ),
        interpolated_slope(
            y,
            grad * iou * (x_both + x_extra),
            grad * (x_both - iou * x_extra),
        ),
    )


def interpolated(axis, keep):
    """What the interpolated box has beyond the target, and what it misses of it."""
    low, high = keep * axis.low, keep * axis.high
    extra = positive_part(-low) + positive_part(high)
    return extra, positive_part(low) + positive_part(-high)


def interpolated_slope(axis, extra, missed):
    """Slopes along what is extra and what is missed, led back to low and high."""
    to_low = tl.where(axis.low > 0, missed, tl.where(axis.low < 0, -extra, 0.0))
    to_high = tl.where(axis.high > 0, extra, tl.where(axis.high < 0, -missed, 0.0))
    return Slope(NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, to_low, to_high)


# --- Kinds whose similarity is not the IoU --------------------------------------------------------


def nwd(x, y, per_constant, alpha, box_cox):
    """The whole loss: S = exp(−W₂·per_constant), W₂ in units of the hull's longer side."""
    along, across = center(x) * x.shape, center(y) * y.shape
    wide, tall = 0.5 * growth(x) * x.shape, 0.5 * growth(y) * y.shape
    # In units of the largest part: its square neither vanishes nor overflows, and the sum is ≥ 1.
    unit = tl.maximum(tl.abs(along), tl.abs(across))
    unit = tl.maximum(unit, tl.maximum(tl.abs(wide), tl.abs(tall)))
    per_unit = unit_scale(unit)
    along, across = along * per_unit, across * per_unit
    wide, tall = wide * per_unit, tall * per_unit
    square = along * along + across * across + (wide * wide + tall * tall)
    length, _ = powered(tl.maximum(square, 1.0), square * 0.0 + 0.5)
    similarity = tl.exp(-(unit * length) * per_constant)
    value, slope = similarity_loss(similarity, alpha, box_cox)
    grad = -slope * (similarity * per_constant) * (0.5 * reciprocal(length))
    move_x, move_y = grad * along * x.shape, grad * across * y.shape
    return (
        value,
        Slope(grad * wide * x.shape, NO_GRAD, NO_GRAD, NO_GRAD, move_x, move_x),
        Slope(grad * tall * y.shape, NO_GRAD, NO_GRAD, NO_GRAD, move_y, move_y),
    )


def biou(x, y, beta, alpha):
    value_x, slope_x = bounded(x, beta, alpha)
    value_y, slope_y = bounded(y, beta, alpha)
    return value_x + value_y, slope_x, slope_y


def bounded(axis, beta, alpha):
    """Bounded-IoU of one axis: place and side."""
    # o = |low + high| is twice the offset; ∂(2o/(wᵍ + o))/∂o = (2 − 2o/(wᵍ + o))/(wᵍ + o).
    offset = tl.abs(axis.low + axis.high)
    misplaced, per_side = side_ratio(2.0 * offset, axis.target + offset)
    place, place_slope = huber(tl.minimum(misplaced, 1.0), beta, alpha)
    move = place_slope * per_side * (2.0 - misplaced) * sign(axis.low + axis.high)
    move = tl.where(misplaced > 1.0, 0.0, move)
    difference, difference_slope = side_difference(axis)
    size, size_slope = huber(difference, beta, alpha)
    return place + size, Slope(size_slope * difference_slope, NO_GRAD, NO_GRAD, NO_GRAD, move, move)


# --- The loss of a pair ---------------------------------------------------------------------------


def pair_loss(
    px, py, pw, ph, tx, ty, tw, th, alpha, penalty_alpha, parameter, kind, box_cox, box_format
):
    """The loss of one pair and its gradient along the prediction's four coordinates."""
    left, right, target_left, target_right, flip_x = relative_corners(px, pw, tx, tw, box_format)
    top, bottom, target_top, target_bottom, flip_y = relative_corners(py, ph, ty, th, box_format)
    unit_x = tl.maximum(right, target_right) - tl.minimum(left, target_left)
    unit_y = tl.maximum(bottom, target_bottom) - tl.minimum(top, target_top)
    per_longer = reciprocal(tl.maximum(tl.maximum(unit_x, unit_y), FLOOR))
    x = measure(left, right, target_left, target_right, per_longer)
    y = measure(top, bottom, target_top, target_bottom, per_longer)
    loss, slope_x, slope_y = terms(
        kind, x, y, unit_x, unit_y, alpha, penalty_alpha, box_cox, parameter
    )
    to_left, to_right = corner_slopes(slope_x, left, right, target_left, target_right)
    to_top, to_bottom = corner_slopes(slope_y, top, bottom, target_top, target_bottom)
    grad_x, grad_w = coordinate_slopes(to_left, to_right, flip_x, box_format)
    grad_y, grad_h = coordinate_slopes(to_top, to_bottom, flip_y, box_format)
    return loss, grad_x, grad_y, grad_w, grad_h


def terms(kind, x, y, unit_x, unit_y, alpha, penalty_alpha, box_cox, parameter):
    """The loss of a pair and its slopes along the lengths of both axes."""
    if kind == "nwd":
        return nwd(x, y, tl.maximum(unit_x, unit_y) / parameter, alpha, box_cox)
    elif kind == "biou":
        return biou(x, y, parameter, penalty_alpha)
    else:
        iou, per_union = iou_of(x, y)
        loss, slope = similarity_loss(iou, alpha, box_cox)
        grad = slope * per_union
        slope_x, slope_y = iou_slopes(x, y, iou, grad)
        if kind == "piou" or kind == "piou_v2":  # noqa: PLR1714
            penalty, penalty_x, penalty_y, mean_gap = piou(x, y, penalty_alpha)
        else:
            penalty, penalty_x, penalty_y = penalties(
                kind, x, y, iou, unit_x, unit_y, penalty_alpha, parameter
            )
        loss = loss + penalty
        slope_x, slope_y = added(slope_x, penalty_x), added(slope_y, penalty_y)
        if kind == "piou_v2":
            u = 1.3 * tl.exp(-mean_gap)
            weight = 3.0 * u * tl.exp(-u * u)
            loss = loss * weight
            slope_x, slope_y = weighted(slope_x, weight), weighted(slope_y, weight)
        return loss, slope_x, slope_y


def penalties(kind, x, y, iou, unit_x, unit_y, alpha, parameter):
    """Σ Pᵢ^α₂ and its slopes."""
    if kind == "giou":
        return giou(x, y, alpha)
    elif kind == "diou":
        return diou(x, y, alpha)
    elif kind == "ciou":
        return ciou(x, y, iou, alpha)
    elif kind == "eiou":
        return eiou(x, y, alpha)
    elif kind == "siou":
        return siou(x, y, alpha)
    elif kind == "mpdiou":
        return mpdiou(x, y, alpha)
    elif kind == "mpdiou_in_image":
        return mpdiou_in_image(x, y, unit_x / parameter, unit_y / parameter, alpha)
    elif kind == "shape_iou":
        return shape_iou(x, y, parameter, alpha)
    elif kind == "interpiou":
        return interpiou(x, y, 1.0 - parameter, alpha)
    elif kind == "d_interpiou":
        return interpiou(x, y, tl.maximum(tl.minimum(iou, 0.4), 1.0 - parameter), alpha)
    else:
        nothing = Slope(NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD)
        return NO_GRAD, nothing, nothing
