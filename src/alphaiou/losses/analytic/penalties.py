"""Each similarity and penalty: its value, then its slopes, by the chain rule from its equation."""

from __future__ import annotations

from alphaiou.losses import dialect as tl
from alphaiou.losses.analytic.lengths import (
    FLOOR,
    HALF_PI,
    PENALTY_CEILING,
    QUARTER_PI,
    SIDE_FLOOR,
    TINY,
    V_SCALE,
    Slope,
    added,
    center,
    is_positive,
    minus_expm1,
    positive_part,
    powered,
    ratio_slope,
    share,
    sign,
    similarity_loss,
)


def iou_of(x, y):
    """IoU and the union, in hull units."""
    intersection = x.overlap * y.overlap
    union = x.pred * y.pred + x.target * y.target - intersection
    union = tl.maximum(union, FLOOR)
    return tl.div_rn(intersection, union), union


def iou_slope(axis, other, iou, pull):
    """``pull`` = ∂L/∂S / union; ∂I = overlap of the other axis, ∂U = its side − ∂I."""
    zero = pull * 0.0
    overlap = pull * (1.0 + iou) * other.overlap
    return Slope(-pull * iou * other.pred, overlap, zero, zero, zero, zero)


def hull_diagonal(x, y):
    across, down = x.hull * x.shape, y.hull * y.shape
    return tl.maximum(across * across + down * down, FLOOR)


def distance(along, across, x, y, diagonal):
    """|vector|²/c²."""
    along, across = along * x.shape, across * y.shape
    return (along * along + across * across) / diagonal


def distance_slope(vector, axis, pull, ratio):
    """``pull`` = ∂L/∂P / c²: slopes along a vector's component and along the hull."""
    square = axis.shape * axis.shape
    return 2.0 * pull * vector * square, -2.0 * pull * ratio * axis.hull * square


def center_slope(axis, pull, ratio):
    """Slopes of ρ²/c²."""
    offset, hull = distance_slope(center(axis), axis, pull, ratio)
    zero = pull * 0.0
    return Slope(zero, zero, zero, hull, 0.5 * offset, 0.5 * offset)


def gap_parts(axis):
    """How much of each box lies beyond the other along an axis."""
    pred = positive_part(-axis.low) + positive_part(axis.high)
    target = positive_part(axis.low) + positive_part(-axis.high)
    apart = axis.gap > 0
    return tl.where(apart, axis.pred, pred), tl.where(apart, axis.target, target)


def gap_parts_slope(axis, pred, target):
    """Slopes along both parts, led back to pred, low and high."""
    apart = axis.gap > 0
    low = target * is_positive(axis.low) - pred * is_positive(-axis.low)
    high = pred * is_positive(axis.high) - target * is_positive(-axis.high)
    return tl.where(apart, pred, 0.0), tl.where(apart, 0.0, low), tl.where(apart, 0.0, high)


def giou(x, y, alpha):
    pred_x, target_x = gap_parts(x)
    pred_y, target_y = gap_parts(y)
    empty = pred_x * (target_y + y.gap) + target_x * (pred_y + y.gap)
    empty = empty + x.gap * y.hull + y.gap * x.overlap
    hull = tl.maximum(x.hull * y.hull, FLOOR)
    ratio = empty / hull
    value, slope = powered(ratio, alpha)
    pull = slope / hull
    x_pred, x_low, x_high = gap_parts_slope(x, pull * (target_y + y.gap), pull * (pred_y + y.gap))
    y_pred, y_low, y_high = gap_parts_slope(y, pull * target_x, pull * pred_x)
    zero = pull * 0.0
    x_hull, y_hull = -pull * ratio * y.hull, pull * (x.gap - ratio * x.hull)
    return (
        value,
        Slope(x_pred, pull * y.gap, pull * y.hull, x_hull, x_low, x_high),
        Slope(y_pred, zero, pull * (pred_x + target_x + x.overlap), y_hull, y_low, y_high),
    )


def diou(x, y, alpha):
    diagonal = hull_diagonal(x, y)
    ratio = distance(center(x), center(y), x, y, diagonal)
    value, slope = powered(ratio, alpha)
    pull = slope / diagonal
    return value, center_slope(x, pull, ratio), center_slope(y, pull, ratio)


def arc_tangent(ratio):
    """The angle whose tangent is a ratio ≥ 0, to 2e-7."""
    steep, middle = ratio > 2.414213562, ratio > 0.4142135624
    turned = tl.where(middle, (ratio - 1.0) / (ratio + 1.0), ratio)
    reduced = tl.where(steep, -1.0 / tl.maximum(ratio, 1.0), turned)
    start = tl.where(steep, HALF_PI, tl.where(middle, QUARTER_PI, 0.0))
    square = reduced * reduced
    series = (8.05374449538e-2 * square - 1.38776856032e-1) * square + 1.99777106478e-1
    series = (series * square - 3.33329491539e-1) * square * reduced + reduced
    return start + series


def ciou(x, y, iou, alpha):
    value, slope_x, slope_y = diou(x, y, alpha)
    width, height = x.pred * x.shape, y.pred * y.shape
    longer = tl.maximum(width, height)
    unit = 1.0 / tl.maximum(longer, FLOOR)
    wide, tall = width * unit, height * unit + tl.where(longer == 0, 1.0, 0.0)
    target_width, target_height = x.target * x.shape, y.target * y.shape
    target_longer = tl.maximum(target_width, target_height)
    target_unit = 1.0 / tl.maximum(target_longer, FLOOR)
    target_wide = target_width * target_unit
    target_tall = target_height * target_unit + tl.where(target_longer == 0, 1.0, 0.0)
    # atan(wᵍ/hᵍ) − atan(w/h) as one angle, so that equal shapes give exactly 0.
    sine = target_wide * tall - target_tall * wide
    cosine = target_tall * tall + target_wide * wide
    angle = sign(sine) * arc_tangent(tl.abs(sine) / tl.maximum(cosine, TINY))
    v = V_SCALE * angle * angle
    beta = v / tl.maximum(1.0 - iou + v, FLOOR)
    aspect, slope = powered(beta * v, alpha)
    # ∂v/∂(w, h) = −2·V_SCALE·angle · (h, −w)/(w² + h²), fading for a vanishing box.
    fade = tl.minimum(longer * (1 / SIDE_FLOOR), 1.0)
    turn = -2.0 * V_SCALE * slope * beta * angle * fade * fade
    turn = turn / (wide * wide + tall * tall) * unit
    zero = turn * 0.0
    to_width = Slope(turn * tall * x.shape, zero, zero, zero, zero, zero)
    to_height = Slope(-turn * wide * y.shape, zero, zero, zero, zero, zero)
    return value + aspect, added(slope_x, to_width), added(slope_y, to_height)


def side_gap(axis, alpha):
    """((w − wᵍ)/W)^2α."""
    ratio = (axis.pred - axis.target) / axis.hull
    value, slope = powered(ratio * ratio, alpha)
    pull = 2.0 * slope * ratio / axis.hull
    zero = pull * 0.0
    return value, Slope(pull, zero, zero, -pull * ratio, zero, zero)


def eiou(x, y, alpha):
    value, slope_x, slope_y = diou(x, y, alpha)
    width, width_slope = side_gap(x, alpha)
    height, height_slope = side_gap(y, alpha)
    return value + width + height, added(slope_x, width_slope), added(slope_y, height_slope)


def side_difference(axis):
    """|w − wᵍ|/max(w, wᵍ) and its slope along w."""
    gap = axis.pred - axis.target
    longer = tl.maximum(axis.pred, axis.target)
    value = tl.abs(gap) / tl.maximum(longer, FLOOR)
    return value, ratio_slope(longer) * (sign(gap) - value * share(gap))


def side_mismatch(axis, weight):
    """(1 − exp(−weight·|w − wᵍ|/max))⁴ and its slope along w."""
    difference, slope = side_difference(axis)
    rest = minus_expm1(-weight * difference)
    cube = rest * rest * rest
    return cube * rest, 4.0 * cube * (1.0 - rest) * weight * slope


def siou(x, y, alpha):
    center_x, center_y = center(x), center(y)
    along, across = tl.abs(center_x) * x.shape, tl.abs(center_y) * y.shape
    square = along * along + across * across
    steepness = 2.0 * along * across / tl.maximum(square, 1e-30)
    gamma = 2.0 - steepness
    ratio_x, ratio_y = center_x / x.hull, center_y / y.hull
    rest_x = minus_expm1(-gamma * ratio_x * ratio_x)
    rest_y = minus_expm1(-gamma * ratio_y * ratio_y)
    width, width_slope = side_mismatch(x, 1.0)
    height, height_slope = side_mismatch(y, 1.0)
    value, slope = powered(0.5 * (rest_x + rest_y + width + height), alpha)
    slope = 0.5 * slope
    # Δ: along γ = 2 − Λ, then along the offset and the hull.
    keep_x, keep_y = slope * (1.0 - rest_x), slope * (1.0 - rest_y)
    to_lambda = -(keep_x * ratio_x * ratio_x + keep_y * ratio_y * ratio_y)
    shrink = to_lambda / tl.maximum(square, 1e-30)
    bend = tl.where(square > 1e-30, 2.0 * steepness, 0.0)
    turn_x = shrink * (2.0 * across - bend * along) * sign(center_x) * x.shape
    turn_y = shrink * (2.0 * along - bend * across) * sign(center_y) * y.shape
    push_x, push_y = (
        2.0 * keep_x * gamma * ratio_x / x.hull,
        2.0 * keep_y * gamma * ratio_y / y.hull,
    )
    move_x, move_y = 0.5 * (push_x + turn_x), 0.5 * (push_y + turn_y)
    zero = slope * 0.0
    return (
        value,
        Slope(slope * width_slope, zero, zero, -push_x * ratio_x, move_x, move_x),
        Slope(slope * height_slope, zero, zero, -push_y * ratio_y, move_y, move_y),
    )


def mpdiou(x, y, alpha):
    diagonal = hull_diagonal(x, y)
    first = distance(x.low, y.low, x, y, diagonal)
    second = distance(x.high, y.high, x, y, diagonal)
    value_low, slope_low = powered(first, alpha)
    value_high, slope_high = powered(second, alpha)
    pull_low, pull_high = slope_low / diagonal, slope_high / diagonal
    low_x, hull_x = distance_slope(x.low, x, pull_low, first)
    low_y, hull_y = distance_slope(y.low, y, pull_low, first)
    high_x, more_x = distance_slope(x.high, x, pull_high, second)
    high_y, more_y = distance_slope(y.high, y, pull_high, second)
    zero = pull_low * 0.0
    return (
        value_low + value_high,
        Slope(zero, zero, zero, hull_x + more_x, low_x, high_x),
        Slope(zero, zero, zero, hull_y + more_y, low_y, high_y),
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
    zero = pull_low * 0.0
    return (
        value_low + value_high,
        Slope(zero, zero, zero, zero, pull_low * low_x * unit_x, pull_high * high_x * unit_x),
        Slope(zero, zero, zero, zero, pull_low * low_y * unit_y, pull_high * high_y * unit_y),
    )


def shape_iou(x, y, scale, alpha):
    width, height = x.target * x.shape, y.target * y.shape
    longer = tl.maximum(width, height)
    point = tl.where(longer == 0, 1.0, 0.0)
    width = powered(width / (longer + point) + point, scale)[0]
    height = powered(height / (longer + point) + point, scale)[0]
    # A scale of 0 weighs both axes alike, an empty side included (0⁰ is 1).
    width, height = tl.where(scale == 0, 1.0, width), tl.where(scale == 0, 1.0, height)
    weigh_y = 2.0 * width / (width + height)
    weigh_x = 2.0 * height / (width + height)
    diagonal = hull_diagonal(x, y)
    along, across = center(x) * x.shape, center(y) * y.shape
    ratio = (weigh_x * along * along + weigh_y * across * across) / diagonal
    value, slope = powered(ratio, alpha)
    pull = slope / diagonal
    move_x, hull_x = distance_slope(center(x), x, pull, ratio)
    move_y, hull_y = distance_slope(center(y), y, pull, ratio)
    move_x, move_y = 0.5 * weigh_x * move_x, 0.5 * weigh_y * move_y
    wide, wide_slope = side_mismatch(x, weigh_x)
    tall, tall_slope = side_mismatch(y, weigh_y)
    mismatch, mismatch_slope = powered(0.5 * (wide + tall), alpha)
    mismatch_slope = 0.5 * mismatch_slope
    zero = pull * 0.0
    return (
        value + mismatch,
        Slope(mismatch_slope * wide_slope, zero, zero, hull_x, move_x, move_x),
        Slope(mismatch_slope * tall_slope, zero, zero, hull_y, move_y, move_y),
    )


def edge_gap(axis):
    """(|Δlow| + |Δhigh|)/wᵍ, at most 100, and what its slope is multiplied by."""
    value = (tl.abs(axis.low) + tl.abs(axis.high)) / tl.maximum(axis.target, FLOOR)
    return tl.minimum(value, 100.0), tl.where(value > 100.0, 0.0, ratio_slope(axis.target))


def piou(x, y, alpha):
    """Returns the mean gap too, which the weight of version 2 is made of."""
    gap_x, slope_x = edge_gap(x)
    gap_y, slope_y = edge_gap(y)
    mean_gap = 0.25 * (gap_x + gap_y)
    rest = minus_expm1(-mean_gap * mean_gap)
    value, slope = powered(rest, alpha)
    pull = 0.5 * slope * (1.0 - rest) * mean_gap
    pull_x, pull_y = pull * slope_x, pull * slope_y
    zero = pull * 0.0
    return (
        value,
        Slope(zero, zero, zero, zero, pull_x * sign(x.low), pull_x * sign(x.high)),
        Slope(zero, zero, zero, zero, pull_y * sign(y.low), pull_y * sign(y.high)),
        mean_gap,
    )


def nwd(x, y, reach, alpha, box_cox):
    """The whole loss: S = exp(−W₂·reach), W₂ in units of the hull's longer side."""
    along, across = center(x) * x.shape, center(y) * y.shape
    wide, tall = 0.5 * (x.pred - x.target) * x.shape, 0.5 * (y.pred - y.target) * y.shape
    square = along * along + across * across + (wide * wide + tall * tall)
    length, length_slope = powered(square, square * 0.0 + 0.5)
    similarity = tl.exp(-length * reach)
    value, slope = similarity_loss(similarity, alpha, box_cox)
    pull = -slope * (similarity * reach) * length_slope
    zero = pull * 0.0
    move_x, move_y = pull * along * x.shape, pull * across * y.shape
    return (
        value,
        Slope(pull * wide * x.shape, zero, zero, zero, move_x, move_x),
        Slope(pull * tall * y.shape, zero, zero, zero, move_y, move_y),
    )


def huber(value, beta, alpha):
    """(Huber loss)^α and its slope."""
    small = value < beta
    bent = tl.where(small, value * value / (2.0 * beta), value - 0.5 * beta)
    powered_value, slope = powered(bent, alpha)
    return powered_value, slope * tl.where(small, value / beta, 1.0)


def bounded(axis, beta, alpha):
    """Bounded-IoU of one axis: place and side."""
    offset = 2.0 * tl.abs(center(axis))
    side = axis.target + offset
    misplaced = 2.0 * offset / tl.maximum(side, FLOOR)
    place, place_slope = huber(tl.minimum(misplaced, 1.0), beta, alpha)
    # ∂(2o/(wᵍ + o))/∂o = (2 − 2o/(wᵍ + o))/(wᵍ + o); o = |low + high|.
    move = place_slope * ratio_slope(side) * (2.0 - misplaced) * sign(axis.low + axis.high)
    move = tl.where(misplaced > 1.0, 0.0, move)
    difference, difference_slope = side_difference(axis)
    size, size_slope = huber(difference, beta, alpha)
    zero = place * 0.0
    return place + size, Slope(size_slope * difference_slope, zero, zero, zero, move, move)


def biou(x, y, beta, alpha):
    value_x, slope_x = bounded(x, beta, alpha)
    value_y, slope_y = bounded(y, beta, alpha)
    return value_x + value_y, slope_x, slope_y
