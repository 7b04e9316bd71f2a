"""Each similarity and penalty: its value, then its slopes, by the chain rule from its equation.

Lengths are in hull units, so the hull's own sides W and H are 1 and appear in the slopes only:
∂(z/W)/∂W = −z. ``pull`` is always the slope of the loss along the quantity at hand.
"""

from __future__ import annotations

import math

from alphaiou import numerics
from alphaiou.losses import dialect as tl
from alphaiou.losses import terms
from alphaiou.losses.analytic.lengths import (
    FLOOR,
    NONE,
    PER_SIDE_FLOOR,
    TINY,
    Slope,
    added,
    center,
    growth,
    minus_expm1,
    positive_part,
    powered,
    reciprocal,
    rounded_product,
    side_ratio,
    sign,
    similarity_loss,
)

PENALTY_CEILING = numerics.PENALTY_CEILING
GAP_CEILING = terms.GAP_CEILING
#: What a slope may reach on its way back through hull units.
SLOPE_CEILING = 1e37
V_SCALE = 4.0 / math.pi**2
HALF_PI = math.pi / 2


def iou_of(x, y):
    """IoU and 1/union."""
    intersection = rounded_product(x.overlap, y.overlap)
    union = rounded_product(x.pred, y.pred) + rounded_product(x.target, y.target) - intersection
    empty = union < FLOOR
    per_union = tl.where(empty, 0.0, reciprocal(tl.maximum(union, FLOOR)))
    # Identical boxes have a similarity of exactly 1, whatever the reciprocal rounds to.
    whole = tl.where(empty, 0.0, 1.0)
    return tl.where(intersection >= union, whole, intersection * per_union), per_union


def iou_slope(other, iou, pull):
    """``pull`` = ∂L/∂S / U; I grows with the overlap of the other axis, U with its side."""
    side = rounded_product(-pull * iou, other.pred)
    overlap = rounded_product(pull * (1.0 + iou), other.overlap)
    return Slope(side, overlap, NONE, NONE, NONE, NONE)


def per_diagonal(x, y):
    """1/c²."""
    return reciprocal(tl.maximum(tl.fma(x.shape, x.shape, y.shape * y.shape), FLOOR))


def distance(along, across, x, y):
    """|vector|² in units that both axes share."""
    along, across = along * x.shape, across * y.shape
    return tl.fma(along, along, across * across)


def distance_slope(vector, axis, pull, ratio):
    """``pull`` = 2·∂L/∂P / c²: slopes of |vector|²/c² along the vector's component and the hull."""
    pull = pull * axis.shape * axis.shape
    return pull * vector, -pull * ratio


def center_slope(axis, pull, ratio):
    offset, hull = distance_slope(center(axis), axis, pull, ratio)
    return Slope(NONE, NONE, NONE, hull, 0.5 * offset, 0.5 * offset)


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


def giou(x, y, alpha):
    pred_x, target_x = gap_parts(x)
    pred_y, target_y = gap_parts(y)
    beside_x, beside_y = target_y + y.gap, pred_y + y.gap
    empty = tl.fma(pred_x, beside_x, target_x * beside_y)
    empty = tl.fma(y.gap, x.overlap, empty + x.gap)
    value, pull = powered(empty, alpha)
    x_pred, x_low, x_high = gap_parts_slope(x, pull * beside_x, pull * beside_y)
    y_pred, y_low, y_high = gap_parts_slope(y, pull * target_x, pull * pred_x)
    return (
        value,
        Slope(x_pred, pull * y.gap, pull, -pull * empty, x_low, x_high),
        Slope(
            y_pred,
            NONE,
            pull * (pred_x + target_x + x.overlap),
            pull * (x.gap - empty),
            y_low,
            y_high,
        ),
    )


def diou(x, y, alpha):
    per_c2 = per_diagonal(x, y)
    ratio = distance(center(x), center(y), x, y) * per_c2
    value, slope = powered(ratio, alpha)
    pull = 2.0 * slope * per_c2
    return value, center_slope(x, pull, ratio), center_slope(y, pull, ratio)


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


def at_unit_size(width, height):
    """Sides divided by the longer one, so that no product vanishes; an empty box stands upright."""
    longer = tl.maximum(width, height)
    per_longer = reciprocal(tl.maximum(longer, FLOOR))
    return width * per_longer, tl.where(longer > 0, height * per_longer, 1.0), longer, per_longer


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
    turn = slope * beta * angle * fade * fade * per_longer
    turn = turn * tl.where(sine > 0, -2.0 * V_SCALE, 2.0 * V_SCALE)
    turn = turn * reciprocal(tl.fma(wide, wide, tall * tall))
    to_width = Slope(turn * tall * x.shape, NONE, NONE, NONE, NONE, NONE)
    to_height = Slope(-turn * wide * y.shape, NONE, NONE, NONE, NONE, NONE)
    return value + aspect, added(slope_x, to_width), added(slope_y, to_height)


def side_gap(axis, alpha):
    """((w − wᵍ)/W)^2α."""
    gap = growth(axis)
    value, slope = powered(gap * gap, alpha)
    pull = 2.0 * slope * gap
    return value, Slope(pull, NONE, NONE, -pull * gap, NONE, NONE)


def eiou(x, y, alpha):
    value, slope_x, slope_y = diou(x, y, alpha)
    width, width_slope = side_gap(x, alpha)
    height, height_slope = side_gap(y, alpha)
    return value + width + height, added(slope_x, width_slope), added(slope_y, height_slope)


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
    value, slope = powered(0.5 * (rest_x + rest_y + width + height), alpha)
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
        Slope(slope * width_slope, NONE, NONE, -push_x * center_x, move_x, move_x),
        Slope(slope * height_slope, NONE, NONE, -push_y * center_y, move_y, move_y),
    )


def mpdiou(x, y, alpha):
    per_c2 = per_diagonal(x, y)
    first = distance(x.low, y.low, x, y) * per_c2
    second = distance(x.high, y.high, x, y) * per_c2
    value_low, slope_low = powered(first, alpha)
    value_high, slope_high = powered(second, alpha)
    pull_low, pull_high = 2.0 * slope_low * per_c2, 2.0 * slope_high * per_c2
    low_x, hull_x = distance_slope(x.low, x, pull_low, first)
    low_y, hull_y = distance_slope(y.low, y, pull_low, first)
    high_x, more_x = distance_slope(x.high, x, pull_high, second)
    high_y, more_y = distance_slope(y.high, y, pull_high, second)
    return (
        value_low + value_high,
        Slope(NONE, NONE, NONE, hull_x + more_x, low_x, high_x),
        Slope(NONE, NONE, NONE, hull_y + more_y, low_y, high_y),
    )


def mpdiou_in_image(x, y, unit_x, unit_y, alpha):
    """MPDIoU measured by the image's diagonal: ``unit`` is the hull's side as a share of it."""
    low_x, low_y = x.low * unit_x, y.low * unit_y
    high_x, high_y = x.high * unit_x, y.high * unit_y
    first, second = low_x * low_x + low_y * low_y, high_x * high_x + high_y * high_y
    value_low, slope_low = powered(tl.minimum(first, PENALTY_CEILING), alpha)
    value_high, slope_high = powered(tl.minimum(second, PENALTY_CEILING), alpha)
    pull_low = tl.where(first > PENALTY_CEILING, 0.0, 2.0 * slope_low)
    pull_high = tl.where(second > PENALTY_CEILING, 0.0, 2.0 * slope_high)
    return (
        value_low + value_high,
        Slope(
            NONE,
            NONE,
            NONE,
            NONE,
            saturated(pull_low * low_x * unit_x),
            saturated(pull_high * high_x * unit_x),
        ),
        Slope(
            NONE,
            NONE,
            NONE,
            NONE,
            saturated(pull_low * low_y * unit_y),
            saturated(pull_high * high_y * unit_y),
        ),
    )


def saturated(slope):
    return tl.minimum(tl.maximum(slope, -SLOPE_CEILING), SLOPE_CEILING)


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
    value, slope = powered(ratio, alpha)
    pull = 2.0 * slope * per_c2
    move_x, hull_x = distance_slope(center(x), x, pull, ratio)
    move_y, hull_y = distance_slope(center(y), y, pull, ratio)
    move_x, move_y = 0.5 * weigh_x * move_x, 0.5 * weigh_y * move_y
    wide, wide_slope = side_mismatch(x, weigh_x)
    tall, tall_slope = side_mismatch(y, weigh_y)
    mismatch, mismatch_slope = powered(0.5 * (wide + tall), alpha)
    mismatch_slope = 0.5 * mismatch_slope
    return (
        value + mismatch,
        Slope(mismatch_slope * wide_slope, NONE, NONE, hull_x, move_x, move_x),
        Slope(mismatch_slope * tall_slope, NONE, NONE, hull_y, move_y, move_y),
    )


def edge_gap(axis):
    """(|Δlow| + |Δhigh|)/wᵍ, at most GAP_CEILING, and what its slope is multiplied by."""
    value, per_side = side_ratio(tl.abs(axis.low) + tl.abs(axis.high), axis.target)
    return tl.minimum(value, GAP_CEILING), tl.where(value > GAP_CEILING, 0.0, per_side)


def piou(x, y, alpha):
    """Returns the mean gap too, which the weight of version 2 is made of."""
    gap_x, slope_x = edge_gap(x)
    gap_y, slope_y = edge_gap(y)
    mean_gap = 0.25 * (gap_x + gap_y)
    rest = minus_expm1(-mean_gap * mean_gap)
    value, slope = powered(rest, alpha)
    pull = 0.5 * slope * (1.0 - rest) * mean_gap
    pull_x, pull_y = pull * slope_x, pull * slope_y
    return (
        value,
        Slope(NONE, NONE, NONE, NONE, pull_x * sign(x.low), pull_x * sign(x.high)),
        Slope(NONE, NONE, NONE, NONE, pull_y * sign(y.low), pull_y * sign(y.high)),
        mean_gap,
    )


def nwd(x, y, reach, alpha, box_cox):
    """The whole loss: S = exp(−W₂·reach), W₂ in units of the hull's longer side."""
    along, across = center(x) * x.shape, center(y) * y.shape
    wide, tall = 0.5 * growth(x) * x.shape, 0.5 * growth(y) * y.shape
    square = along * along + across * across + (wide * wide + tall * tall)
    length, length_slope = powered(square, square * 0.0 + 0.5)
    similarity = tl.exp(-length * reach)
    value, slope = similarity_loss(similarity, alpha, box_cox)
    pull = -slope * (similarity * reach) * length_slope
    move_x, move_y = pull * along * x.shape, pull * across * y.shape
    return (
        value,
        Slope(pull * wide * x.shape, NONE, NONE, NONE, move_x, move_x),
        Slope(pull * tall * y.shape, NONE, NONE, NONE, move_y, move_y),
    )


def huber(value, beta, alpha):
    """(Huber loss)^α and its slope."""
    small = value < beta
    steepness = tl.where(small, value * reciprocal(beta), 1.0)
    bent = tl.where(small, 0.5 * value * steepness, value - 0.5 * beta)
    powered_value, slope = powered(bent, alpha)
    return powered_value, slope * steepness


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
    return place + size, Slope(size_slope * difference_slope, NONE, NONE, NONE, move, move)


def biou(x, y, beta, alpha):
    value_x, slope_x = bounded(x, beta, alpha)
    value_y, slope_y = bounded(y, beta, alpha)
    return value_x + value_y, slope_x, slope_y
