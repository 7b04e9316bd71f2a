"""Oriented boxes: how they are written, the geometry of their pairs, and their NMS.

An oriented box is ``cxcywhr``: centre, width, height, and the angle of its width in radians, from
the x axis towards the y axis (clockwise on the screen). The same rectangle can be written as
``(w, h, θ)``, ``(w, h, θ + π)`` and ``(h, w, θ + π/2)``; nothing here depends on which is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int64, Num
from alphaiou.boxes import (
    PairFormat,
    PairGeometry,
    area,
    check_boxes,
    check_choice,
    norm_squared,
    pair_geometry,
)
from alphaiou.numerics import bounded_angle, check_number, check_real, safe_floor, upcast

__all__ = [
    "OrientedGeometry",
    "corners_to_oriented",
    "degrees_to_oriented",
    "enclosing_boxes",
    "oriented_geometry",
    "oriented_nms",
    "oriented_to_corners",
    "oriented_to_degrees",
    "set_angle_range",
]

#: The range of angles that a framework expects: ``ultralytics`` [0, π/2), mmrotate's ``le90``
#: [−π/2, π/2) and ``le135`` [−π/4, 3π/4), both with the longer side as width, its ``oc``
#: [−π/2, 0), and ``opencv`` (0, π/2], the angle of ``cv2.minAreaRect`` since OpenCV 4.5.1.
AngleRange = Literal["ultralytics", "le90", "le135", "oc", "opencv"]

#: The start of each range, and whether the width is the longer side.
_RANGES: dict[str, tuple[float, bool]] = {
    "ultralytics": (0.0, False),
    "le90": (-math.pi / 2, True),
    "le135": (-math.pi / 4, True),
    "oc": (-math.pi / 2, False),
    "opencv": (0.0, False),
}
#: An edge that spans less than this along an axis, in units of the pair, is parallel to the other.
_PARALLEL = 2.0**-60
#: Angles beyond this are clamped, so that the difference of two is finite.
_LARGEST_ANGLE = 1e30
#: Pairs whose IoU ``oriented_nms`` computes at once.
_NMS_CHUNK = 1 << 18


@dataclass(eq=False)
class OrientedGeometry:
    """The lengths of aligned pairs of oriented boxes, in the frame of the target.

    Lengths are in units of the pair, its longest side or distance, so nothing overflows or vanishes
    however large, small or far from the origin the boxes are. The unit is held constant in the
    gradient: no loss depends on it, so every derivative is exact. A side shorter than 8 ε of the
    unit (ε the precision of the dtype) counts as that long: a rectangle without area has no IoU.

    The attributes that axis-aligned boxes share have the names that ``PairGeometry`` gives them, so
    a kind that uses those alone serves both.
    """

    pred: Float[Tensor, "*batch 2"]
    """Sides of the prediction: width and height."""
    target: Float[Tensor, "*batch 2"]
    """Sides of the target."""
    center: Float[Tensor, "*batch 2"]
    """From the target's centre to the prediction's, along the target's width and height."""
    cosine: Float[Tensor, "*batch"]
    """Cosine of the angle from the target to the prediction."""
    sine: Float[Tensor, "*batch"]
    """Sine of the angle from the target to the prediction."""
    unit: Float[Tensor, "*batch 1"]
    """One unit in units of the input."""
    valid: Bool[Tensor, "*batch"] | None = None
    """Which pairs count; the others hold stand-ins."""

    # Computed once, when first read; torch.compile cannot trace functools.cached_property.
    _intersection: Tensor | None = field(default=None, init=False, repr=False)

    @property
    def intersection(self) -> Float[Tensor, "*batch"]:
        """``|B ∩ Bᵍ|``."""
        if self._intersection is None:
            self._intersection = _intersection(self)
        return self._intersection

    @property
    def union(self) -> Float[Tensor, "*batch"]:
        """``|B ∪ Bᵍ|``."""
        return area(self.pred) + area(self.target) - self.intersection

    @property
    def iou(self) -> Float[Tensor, "*batch"]:
        """``|B ∩ Bᵍ| / |B ∪ Bᵍ|``, exact."""
        overlap, union = self.intersection, self.union
        # By way of what the boxes do not share, the slope of equal boxes is 0 to the last bit.
        rest = ((area(self.pred) - overlap) + (area(self.target) - overlap)) / union
        iou = torch.where(2.0 * overlap > union, 1.0 - rest, overlap / union)
        # Rounding may give more than 1; the gradient stays.
        return iou - (iou - 1.0).relu().detach()

    @property
    def hull(self) -> Float[Tensor, "*batch 2"]:
        """Sides of the smallest rectangle with the target's orientation that holds both boxes.

        It turns with the boxes, unlike an axis-aligned hull, and at θ = 0 it is the enclosing box
        of the axis-aligned losses, unlike the convex hull.
        """
        turn = torch.stack((self.cosine, self.sine), dim=-1).abs()
        along, across = (self.pred * turn).sum(-1), (self.pred * turn.flip(-1)).sum(-1)
        reach, half = 0.5 * torch.stack((along, across), dim=-1), 0.5 * self.target
        # maximum and minimum share the gradient of a tie, which makes it 0 at identity.
        high = torch.maximum(self.center + reach, half)
        return high - torch.minimum(self.center - reach, -half)

    @property
    def shape(self) -> Float[Tensor, "*batch 2"]:
        """What makes x and y comparable in ``PairGeometry``: here they are, so ones."""
        return torch.ones_like(self.center)

    @property
    def center_of_pred(self) -> Float[Tensor, "*batch 2"]:
        """``center``, along the prediction's width and height."""
        (x, y), cosine, sine = self.center.unbind(-1), self.cosine, self.sine
        return torch.stack((cosine * x + sine * y, cosine * y - sine * x), dim=-1)

    def hull_gap(self) -> Float[Tensor, "*batch"]:
        """GIoU's penalty ``|C ∖ (B ∪ Bᵍ)| / |C|``, C being ``hull``."""
        whole = area(self.hull)
        gap = (whole - self.union) / whole
        # What rounding leaves where the boxes fill the hull; a power α < 1 would blow it up.
        return torch.where(gap < 8.0 * torch.finfo(gap.dtype).eps, 0.0, gap)

    def squared_distance(self, vector: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
        """``|vector|² / c²`` with c the diagonal of the hull."""
        return norm_squared(vector) / norm_squared(self.hull)

    def aspect(self) -> Float[Tensor, "*batch"]:
        """CIoU's penalty ``βv`` with an angle, ``v = 4/π² |b − bᵍ|²``, ``β = v/(1 − IoU + v)``.

        b is ``atan w/h − π/4`` along the direction 2θ: how far the box is from a square, and which
        way it points. Both change sign when w and h are exchanged and θ turns by π/2, so b belongs
        to the rectangle. At θ = 0 this is CIoU's v. β is held constant in the gradient.
        """
        pred, target = (
            0.5 * (bounded_angle(w, h) - bounded_angle(h, w))
            for w, h in (self.pred.unbind(-1), self.target.unbind(-1))
        )
        along, across = self.cosine.square(), self.sine.square()
        difference = along * (pred - target).square() + across * (pred + target).square()
        v = (4 / math.pi**2) * difference
        fixed = v.detach()
        beta = fixed / (1.0 - self.iou.detach() + fixed).clamp(min=safe_floor(v.dtype))
        return beta * v

    def scaled(self, ratio: float | Tensor) -> OrientedGeometry:
        """The geometry of the same pairs, every box scaled about its own centre."""
        return replace(self, pred=ratio * self.pred, target=ratio * self.target)


def oriented_geometry(
    pred: Num[Tensor, "*#batch 5"],
    target: Num[Tensor, "*#batch 5"],
    valid: Bool[Tensor, "*batch"] | None = None,
) -> OrientedGeometry:
    """The geometry of aligned pairs; broadcasts, so ``(N, 1, 5)`` and ``(M, 5)`` give all pairs.

    Examples:
        >>> square = torch.tensor([0.0, 0.0, 2.0, 2.0, 0.0])
        >>> turned = torch.tensor([0.0, 0.0, 2.0, 2.0, math.pi / 4])
        >>> oriented_geometry(turned, square).iou
        tensor(0.7071)
    """
    pred, target = upcast(pred), upcast(target)
    dtype = torch.promote_types(pred.dtype, target.dtype)
    pred, target = pred.to(dtype), target.to(dtype)
    # Relative to the target's centre: far from the origin, corners would lose the digits of w.
    center = pred[..., :2] - target[..., :2]
    pred_sides, target_sides = (
        torch.where(sides >= 0, sides, 0.0) for sides in (pred[..., 2:4], target[..., 2:4])
    )
    longest = torch.maximum(torch.maximum(pred_sides, target_sides), center.abs())
    unit = longest.detach().amax(-1, keepdim=True)
    # Both are points in one place: all lengths count as 0.
    is_zero = unit < safe_floor(dtype)
    span = unit.masked_fill(is_zero, math.inf)
    pred_angle, target_angle = (
        boxes[..., 4].clamp(-_LARGEST_ANGLE, _LARGEST_ANGLE) for boxes in (pred, target)
    )
    turn = pred_angle - target_angle
    (x, y), cosine, sine = (center / span).unbind(-1), target_angle.cos(), target_angle.sin()
    return OrientedGeometry(
        pred=_floored(pred_sides / span),
        target=_floored(target_sides / span),
        center=torch.stack((cosine * x + sine * y, cosine * y - sine * x), dim=-1),
        cosine=turn.cos(),
        sine=turn.sin(),
        unit=unit,
        valid=valid,
    )


#: The geometry of pairs of either kind of boxes.
Geometry = PairGeometry | OrientedGeometry


def geometry_type(box_format: PairFormat) -> type[Geometry]:
    """The class of the geometry of boxes in this format."""
    return OrientedGeometry if box_format == "cxcywhr" else PairGeometry


def geometry_of(
    pred: Num[Tensor, "*#batch coordinates"],
    target: Num[Tensor, "*#batch coordinates"],
    box_format: PairFormat,
    valid: Bool[Tensor, "*batch"] | None = None,
) -> Geometry:
    """The geometry of aligned pairs in any format."""
    if box_format == "cxcywhr":
        return oriented_geometry(pred, target, valid)
    return pair_geometry(pred, target, box_format, valid)


def oriented_to_corners(boxes: Num[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 4 2"]:
    """The corners of oriented boxes, around the box, from the one at (−w/2, −h/2).

    Examples:
        >>> oriented_to_corners(torch.tensor([3.0, 3.0, 4.0, 2.0, 0.0])).tolist()
        [[1.0, 2.0], [5.0, 2.0], [5.0, 4.0], [1.0, 4.0]]
    """
    boxes = _checked(boxes)
    cosine, sine = boxes[..., 4:].cos(), boxes[..., 4:].sin()
    along = 0.5 * boxes[..., 2:3] * torch.cat((cosine, sine), dim=-1)
    across = 0.5 * boxes[..., 3:4] * torch.cat((-sine, cosine), dim=-1)
    offsets = (-along - across, along - across, along + across, across - along)
    return boxes[..., None, :2] + torch.stack(offsets, dim=-2)


def corners_to_oriented(corners: Num[Tensor, "*batch 4 2"]) -> Float[Tensor, "*batch 5"]:
    """The smallest oriented box around four points, which is the box itself for its corners.

    The width lies along the first side of a rectangle. Labels of four corners that are no exact
    rectangle, such as those of DOTA, get the box that ``cv2.minAreaRect`` gives them.

    Examples:
        >>> corners = torch.tensor([[1.0, 2.0], [5.0, 2.0], [5.0, 4.0], [1.0, 4.0]])
        >>> corners_to_oriented(corners)
        tensor([3., 3., 4., 2., 0.])
    """
    check_real("corners", corners)
    if corners.ndim < 2 or corners.shape[-2:] != (4, 2):
        raise ValueError(f"corners must have shape (*batch, 4, 2), got {tuple(corners.shape)}")
    corners = corners if corners.is_floating_point() else corners.float()
    middle = corners.mean(-2)
    points = corners - middle[..., None, :]
    # A smallest rectangle has a side along the convex hull, which is made of sides and diagonals.
    first, second = torch.tensor([[0, 1, 2, 3, 0, 1], [1, 2, 3, 0, 2, 3]], device=points.device)
    edges = points[..., second, :] - points[..., first, :]
    angles = torch.atan2(edges[..., 1], edges[..., 0])
    along = torch.stack((angles.cos(), angles.sin()), dim=-1)
    across = torch.stack((-angles.sin(), angles.cos()), dim=-1)
    frame = torch.stack((along, across), dim=-2)  # (*batch, 6, 2, 2)
    places = (frame[..., None, :, :] * points[..., None, :, None, :]).sum(-1)
    low, high = places.amin(-2), places.amax(-2)
    areas = area(high - low)
    least = areas.amin(-1, keepdim=True) * (1.0 + 1024.0 * torch.finfo(areas.dtype).eps)
    # The first of those that differ by rounding alone.
    best = (areas <= least).to(torch.uint8).argmax(-1, keepdim=True)
    angle = angles.gather(-1, best)
    low, high = (
        ends.gather(-2, best[..., None].expand(*best.shape, 2))[..., 0, :] for ends in (low, high)
    )
    (x, y), cosine, sine = (0.5 * (low + high)).unbind(-1), angle.cos(), angle.sin()
    offset = torch.cat(
        (cosine * x[..., None] - sine * y[..., None], sine * x[..., None] + cosine * y[..., None]),
        dim=-1,
    )
    return torch.cat((middle + offset, high - low, angle), dim=-1)


def oriented_to_degrees(boxes: Num[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
    """The same boxes with their angle in degrees, as CVAT and Label Studio write them."""
    boxes = _checked(boxes)
    return torch.cat((boxes[..., :4], torch.rad2deg(boxes[..., 4:])), dim=-1)


def degrees_to_oriented(boxes: Num[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 5"]:
    """Boxes with an angle in degrees, from the x axis towards the y axis, as ``cxcywhr``.

    Examples:
        >>> degrees_to_oriented(torch.tensor([0.0, 0.0, 2.0, 1.0, 180.0]))
        tensor([0.0000, 0.0000, 2.0000, 1.0000, 3.1416])
    """
    boxes = _checked(boxes)
    return torch.cat((boxes[..., :4], torch.deg2rad(boxes[..., 4:])), dim=-1)


def set_angle_range(
    boxes: Num[Tensor, "*batch 5"], angle_range: AngleRange
) -> Float[Tensor, "*batch 5"]:
    """The same boxes, written with the range of angles that a framework expects.

    Args:
        boxes: Oriented boxes with any angle.
        angle_range: ``ultralytics``, ``le90``, ``le135``, ``oc`` or ``opencv``.

    Examples:
        >>> set_angle_range(torch.tensor([0.0, 0.0, 1.0, 2.0, 0.0]), "le90")
        tensor([ 0.0000,  0.0000,  2.0000,  1.0000, -1.5708])
    """
    check_choice("angle_range", angle_range, get_args(AngleRange))
    boxes = _checked(boxes)
    start, longer_first = _RANGES[angle_range]
    center, (width, height, angle) = boxes[..., :2], boxes[..., 2:].unbind(-1)
    quarter = math.pi / 2
    if longer_first:
        swap = width < height
        angle = torch.where(swap, angle + quarter, angle)
        turns = _periods(angle, start, math.pi)
        angle = _wrapped(angle - math.pi * turns, start, math.pi)[0]
    else:
        turns = _periods(angle, start, quarter)
        if angle_range == "opencv":  # its end belongs to the range, not its start
            turns = torch.ceil((angle - start) / quarter) - 1.0
            angle = angle - quarter * turns
            below = angle <= start
            angle, turns = torch.where(below, start + quarter, angle), turns - below.to(turns)
        else:
            angle, moved = _wrapped(angle - quarter * turns, start, quarter)
            turns = turns + moved
        swap = turns.remainder(2.0) == 1.0
    sides = (torch.where(swap, height, width), torch.where(swap, width, height))
    return torch.cat((center, torch.stack((*sides, angle), dim=-1)), dim=-1)


def enclosing_boxes(boxes: Num[Tensor, "*batch 5"]) -> Float[Tensor, "*batch 4"]:
    """The smallest axis-aligned box around each oriented box, as ``xyxy``.

    Examples:
        >>> enclosing_boxes(torch.tensor([3.0, 3.0, 4.0, 2.0, 0.0]))
        tensor([1., 2., 5., 4.])
    """
    boxes = _checked(boxes)
    cosine, sine = boxes[..., 4:].cos().abs(), boxes[..., 4:].sin().abs()
    half = 0.5 * boxes[..., 2:4]
    reach = half * cosine + half.flip(-1) * sine
    return torch.cat((boxes[..., :2] - reach, boxes[..., :2] + reach), dim=-1)


@torch.no_grad()
def oriented_nms(
    boxes: Num[Tensor, "n 5"],
    scores: Num[Tensor, " n"],
    iou_threshold: float,
    groups: Num[Tensor, " n"] | None = None,
) -> Int64[Tensor, " kept"]:
    """The indices of the boxes that non-maximum suppression keeps, the highest score first.

    Args:
        boxes: ``cxcywhr``.
        scores: One score per box.
        iou_threshold: The exact IoU above which the lower-scored of two boxes is removed.
        groups: Boxes of different groups, such as classes, do not suppress each other.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0, 4, 2, 0.0], [0.0, 0, 4, 2, 0.1], [0.0, 0, 4, 2, 1.5]])
        >>> oriented_nms(boxes, torch.tensor([0.7, 0.9, 0.8]), 0.5)
        tensor([1, 2])
    """
    check_number("iou_threshold", iou_threshold, strict=False)
    order = scores.argsort(descending=True, stable=True)
    ranked = upcast(_checked(boxes)[order])
    count = len(ranked)
    suppresses = torch.zeros(count, count, dtype=torch.bool, device=boxes.device)
    # Only boxes whose enclosing boxes meet can overlap.
    around = enclosing_boxes(ranked)
    low, high = around[:, :2], around[:, 2:]
    meets = (low[:, None] <= high[None]).all(-1)
    meets = (meets & meets.T).triu(diagonal=1)
    if groups is not None:
        label = groups[order]
        meets &= label[:, None] == label[None]
    pairs = meets.nonzero()
    for start in range(0, len(pairs), _NMS_CHUNK):
        rows, columns = pairs[start : start + _NMS_CHUNK].T
        iou = oriented_geometry(ranked[columns], ranked[rows]).iou
        suppresses[rows, columns] = iou > iou_threshold
    suppresses = suppresses.cpu()
    kept = torch.ones(count, dtype=torch.bool)
    for rank in suppresses.any(1).nonzero().flatten().tolist():
        if kept[rank]:
            kept &= ~suppresses[rank]
    return order[kept.to(order.device)]


def _checked(boxes: Tensor) -> Tensor:
    check_boxes("boxes", boxes, "cxcywhr")
    return boxes if boxes.is_floating_point() else boxes.float()


def _floored(sides: Tensor) -> Tensor:
    """Sides of at least 8 ε, with the gradient of the sides."""
    return sides + (8.0 * torch.finfo(sides.dtype).eps - sides).relu().detach()


def _periods(angle: Tensor, start: float, period: float) -> Tensor:
    return torch.floor((angle - start) / period)


def _wrapped(angle: Tensor, start: float, period: float) -> tuple[Tensor, Tensor]:
    """An angle that rounding may have put outside its range, and by how many periods it moved."""
    over, under = angle >= start + period, angle < start
    moved = over.to(angle.dtype) - under.to(angle.dtype)
    inside = torch.where(over | under, angle - period * moved, angle)
    # Half a unit in the last place outside the range: the start itself.
    return torch.where((inside < start) | (inside >= start + period), start, inside), moved


def _intersection(pair: OrientedGeometry) -> Tensor:
    """The area of the intersection, by Green's theorem: ``∮ clamp(x, −a, a) dy`` around B.

    In the frame of the target, whose half sides are a and b, it is the integral over those parts of
    the prediction's four edges that lie in ``|y| ≤ b``. No vertex is searched or sorted, so the
    result is continuous: nearly parallel edges, whose crossing is ill-determined, enclose an area
    that hardly depends on it.
    """
    a, b = (0.5 * pair.target)[..., None].unbind(-2)
    half_w, half_h = (0.5 * pair.pred).unbind(-1)
    center_x, center_y = pair.center[..., None].unbind(-2)
    along_x, along_y = half_w * pair.cosine, half_w * pair.sine
    across_x, across_y = -half_h * pair.sine, half_h * pair.cosine
    x0 = center_x + _around(along_x, across_x)
    y0 = center_y + _around(along_y, across_y)
    x1, y1 = x0.roll(-1, dims=-1), y0.roll(-1, dims=-1)

    start, end = _between(y0, b), _between(y1, b)
    rise = y1 - y0
    is_flat = rise.abs() < _PARALLEL
    slope = torch.where(is_flat, 1.0, rise)
    from_x = x0 + torch.where(is_flat, 0.0, (start - y0) / slope) * (x1 - x0)
    to_x = x0 + torch.where(is_flat, 1.0, (end - y0) / slope) * (x1 - x0)

    # The mean of clamp(x) along the edge: that of its ends, and what the kinks at ±a add.
    mean = 0.5 * (_between(from_x, a) + _between(to_x, a))
    run = to_x - from_x
    is_upright = run.abs() < _PARALLEL
    run = torch.where(is_upright, math.inf, run)
    right = (torch.minimum(from_x, a) - from_x) - (torch.minimum(to_x, a) - to_x)
    left = (torch.maximum(from_x, -a) - from_x) - (torch.maximum(to_x, -a) - to_x)
    mean = mean + right / run * (a - mean) - left / run * (a + mean)
    total = ((end - start) * mean).sum(-1)
    return torch.where(total > 0, total, 0.0)


def _around(along: Tensor, across: Tensor) -> Tensor:
    """One coordinate of the four corners relative to the centre."""
    return torch.stack((-along - across, along - across, along + across, across - along), dim=-1)


def _between(value: Tensor, limit: Tensor) -> Tensor:
    """The value clamped to ±limit; not clamp, whose gradient at the limits is not shared."""
    return torch.maximum(torch.minimum(value, limit), -limit)
