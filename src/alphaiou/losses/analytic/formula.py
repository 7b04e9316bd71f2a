"""The loss of a pair and its gradient: formats, lengths, terms, and the way back."""

from __future__ import annotations

from alphaiou.losses import dialect as tl
from alphaiou.losses.analytic.lengths import (
    FLOOR,
    NONE,
    Slope,
    added,
    corner_slopes,
    measure,
    reciprocal,
    rounded_product,
    similarity_loss,
)
from alphaiou.losses.analytic.penalties import (
    biou,
    ciou,
    diou,
    eiou,
    giou,
    iou_of,
    iou_slope,
    mpdiou,
    mpdiou_in_image,
    nwd,
    piou,
    shape_iou,
    siou,
)


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
        pull = slope * per_union
        slope_x, slope_y = iou_slope(y, iou, pull), iou_slope(x, iou, pull)
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
    else:
        nothing = Slope(NONE, NONE, NONE, NONE, NONE, NONE)
        return NONE, nothing, nothing


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


def coordinate_slopes(to_low, to_high, inverted, box_format):
    """From slopes along the corners to slopes along the two coordinates of the format."""
    half = 0.5 * (to_low + to_high)
    to_low, to_high = tl.where(inverted, half, to_low), tl.where(inverted, half, to_high)
    if box_format == "xyxy":
        return to_low, to_high
    elif box_format == "xywh":
        return to_low + to_high, to_high
    else:
        return to_low + to_high, 0.5 * (to_high - to_low)
