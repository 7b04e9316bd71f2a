"""Boxes: their formats, and the geometry of pairs in which every loss of the family is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Num
from alphaiou.numerics import bounded_angle, check_real, safe_floor, upcast

BoxFormat = Literal["xyxy", "xywh", "cxcywh"]
Corners = tuple[Tensor, Tensor]
BOX_FORMATS: tuple[str, ...] = get_args(BoxFormat)
#: The formats of a loss: those of axis-aligned boxes, and oriented ones (``alphaiou.oriented``).
PairFormat = Literal["xyxy", "xywh", "cxcywh", "cxcywhr"]
PAIR_FORMATS: tuple[str, ...] = get_args(PairFormat)


@dataclass(eq=False)
class PairGeometry:
    """The lengths of aligned box pairs, each axis in units of the pair's enclosing box, the *hull*.

    Lengths are vectors ``(*batch, 2)`` of an x and a y. In these units the hull is the unit square,
    so nothing overflows or vanishes however large or small the boxes are; ``unit`` leads back to
    the units of the input, ``shape`` to isotropic lengths. The unit is held constant in the
    gradient: no loss depends on it, so every derivative is exact.
    """

    pred: Float[Tensor, "*batch 2"]
    """Sides of the prediction."""
    target: Float[Tensor, "*batch 2"]
    """Sides of the target."""
    overlap: Float[Tensor, "*batch 2"]
    """Sides of the intersection, 0 where there is none."""
    gap: Float[Tensor, "*batch 2"]
    """Empty space between the boxes, 0 where they overlap."""
    hull: Float[Tensor, "*batch 2"]
    """Sides of the enclosing box: 1, with its gradient."""
    low: Float[Tensor, "*batch 2"]
    """Left and top edge of the prediction, relative to the target's."""
    high: Float[Tensor, "*batch 2"]
    """Right and bottom edge of the prediction, relative to the target's."""
    iou: Float[Tensor, "*batch"]
    """``|B ∩ Bᵍ| / |B ∪ Bᵍ|``."""
    unit: Float[Tensor, "*batch 2"]
    """One unit in units of the input: the sides of the hull."""
    shape: Float[Tensor, "*batch 2"]
    """The hull's sides as shares of the longer one: multiply by it to compare x with y."""
    corners: tuple[Corners, Corners]
    """Lower and upper corners of prediction and target, as computed from the input."""
    valid: Bool[Tensor, "*batch"] | None = None
    """Which pairs count; the others hold stand-ins."""

    @property
    def growth(self) -> Float[Tensor, "*batch 2"]:
        """By how much the prediction's sides exceed the target's.

        Taken from the edges of boxes that meet, which are near, and from the sides of those apart:
        each way, no digits are lost.
        """
        return torch.where(self.gap > 0, self.pred - self.target, self.high - self.low)

    @property
    def center(self) -> Float[Tensor, "*batch 2"]:
        """From the target's centre to the prediction's."""
        return 0.5 * (self.low + self.high)

    def hull_gap(self) -> Float[Tensor, "*batch"]:
        """GIoU's penalty ``|C ∖ (B ∪ Bᵍ)| / |C|``.

        A sum of the empty rectangles rather than ``|C| − |B ∪ Bᵍ|``, whose rounding a power α < 1
        would blow up to 2e-4 where the exact penalty is 0.
        """
        apart = self.gap > 0
        pred = torch.where(apart, self.pred, (-self.low).relu() + self.high.relu())
        target = torch.where(apart, self.target, self.low.relu() + (-self.high).relu())
        (pred_x, pred_y), (target_x, target_y) = pred.unbind(-1), target.unbind(-1)
        gap_x, gap_y = self.gap.unbind(-1)
        empty = pred_x * (target_y + gap_y) + target_x * (pred_y + gap_y)
        empty = empty + gap_x * self.hull[..., 1] + gap_y * self.overlap[..., 0]
        return empty / area(self.hull).clamp(min=safe_floor(empty.dtype))

    def squared_distance(self, vector: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
        """``|vector|² / c²`` with c the diagonal of the hull."""
        length = norm_squared(vector * self.shape)
        diagonal = norm_squared(self.hull * self.shape)
        return length / diagonal.clamp(min=safe_floor(length.dtype))

    def aspect(self) -> Float[Tensor, "*batch"]:
        """CIoU's penalty ``βv``, ``v = 4/π² (atan wᵍ/hᵍ − atan w/h)²``, ``β = v/(1 − IoU + v)``.

        β is held constant in the gradient.
        """
        (pred_w, pred_h), (target_w, target_h) = (
            (sides * self.shape).unbind(-1) for sides in (self.pred, self.target)
        )
        difference = bounded_angle(target_w, target_h) - bounded_angle(pred_w, pred_h)
        v = (4 / math.pi**2) * difference.square()
        fixed = v.detach()
        beta = fixed / (1.0 - self.iou.detach() + fixed).clamp(min=safe_floor(v.dtype))
        return beta * v

    def scaled(self, ratio: float | Tensor) -> PairGeometry:
        """The geometry of the same pairs, every box scaled about its own centre."""
        pred, target = (_scaled(corners, ratio) for corners in self.corners)
        return _geometry(pred, target, self.valid)


def pair_geometry(
    pred: Num[Tensor, "*#batch 4"],
    target: Num[Tensor, "*#batch 4"],
    box_format: BoxFormat = "xyxy",
    valid: Bool[Tensor, "*batch"] | None = None,
) -> PairGeometry:
    """The geometry of aligned pairs; broadcasts, so ``(N, 1, 4)`` and ``(M, 4)`` give all pairs."""
    pred, target = _same_dtype(upcast(pred), upcast(target))
    return _geometry(*_relative_corners(pred, target, box_format), valid)


def convert_boxes(
    boxes: Num[Tensor, "*batch 4"], source: BoxFormat, target: BoxFormat
) -> Num[Tensor, "*batch 4"]:
    """Boxes of one format in another.

    Examples:
        >>> convert_boxes(torch.tensor([1.0, 2.0, 5.0, 4.0]), "xyxy", "cxcywh")
        tensor([3., 3., 4., 2.])
    """
    check_box_format(source, "source")
    check_box_format(target, "target")
    if source == target:
        return boxes
    first, second = boxes[..., :2], boxes[..., 2:]
    if source == "xywh":
        second = first + second
    elif source == "cxcywh":
        first, second = first - second / 2, first + second / 2
    if target == "xywh":
        second = second - first
    elif target == "cxcywh":
        first, second = (first + second) / 2, second - first
    return torch.cat((first, second), dim=-1)


def check_pairs(pred: Tensor, target: Tensor, box_format: PairFormat) -> None:
    """Check the format, and that both have the same shape ``(*batch, 4)``; 5 if oriented."""
    check_choice("box_format", box_format, PAIR_FORMATS)
    for name, boxes in (("pred", pred), ("target", target)):
        check_boxes(name, boxes, box_format)
    if pred.shape != target.shape:
        raise ValueError(
            "pred and target must have the same shape (aligned pairs), got "
            f"pred {tuple(pred.shape)} and target {tuple(target.shape)}"
        )


def check_boxes(name: str, boxes: Tensor, box_format: PairFormat, batch: str = "*batch") -> None:
    """Check that boxes are real numbers and have as many columns as their format."""
    check_real(name, boxes)
    columns = 5 if box_format == "cxcywhr" else 4
    if boxes.ndim == 0 or boxes.shape[-1] != columns or (batch != "*batch" and boxes.ndim != 2):
        raise ValueError(f"{name} must have shape ({batch}, {columns}), got {tuple(boxes.shape)}")


def check_box_format(box_format: str, name: str = "box_format") -> None:
    """Reject an unknown format."""
    check_choice(name, box_format, BOX_FORMATS)


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Reject a value that is not allowed; the message lists those that are."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")


def area(sides: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """Product of x and y."""
    x, y = sides.unbind(-1)
    return x * y


def norm_squared(vector: Float[Tensor, "*batch 2"]) -> Float[Tensor, "*batch"]:
    """Squared length, x² + y²."""
    x, y = vector.unbind(-1)
    return x.square() + y.square()


def _same_dtype(pred: Tensor, target: Tensor) -> Corners:
    dtype = torch.promote_types(pred.dtype, target.dtype)
    return pred.to(dtype), target.to(dtype)


def _relative_corners(pred: Tensor, target: Tensor, fmt: BoxFormat) -> tuple[Corners, Corners]:
    """Lower and upper corners of both boxes, from an origin that costs no digits.

    With centres or sizes given, corners are taken relative to the target's own place: far from the
    coordinate origin, ``cx + w/2 − (cx − w/2)`` would lose digits of w.
    """
    first, second = pred[..., :2], pred[..., 2:]
    target_first, target_second = target[..., :2], target[..., 2:]
    if fmt == "xyxy":
        return (first, second), (target_first, target_second)
    place = first - target_first
    if fmt == "xywh":
        origin = torch.zeros_like(target_second)
        return (place, place + second), (origin, target_second)
    half, target_half = 0.5 * second, 0.5 * target_second
    return (place - half, place + half), (-target_half, target_half)


def _geometry(pred: Corners, target: Corners, valid: Tensor | None) -> PairGeometry:
    (low, high), (target_low, target_high) = pred, target = _ordered(pred), _ordered(target)
    hull = torch.maximum(high, target_high) - torch.minimum(low, target_low)
    overlap = torch.minimum(high, target_high) - torch.maximum(low, target_low)
    unit = hull.detach()
    # Where both boxes are flat and in one place, the axis says nothing: it counts as one full unit.
    floor = safe_floor(unit.dtype)
    is_flat = unit < floor
    flat, span = is_flat.to(unit.dtype), unit.masked_fill(is_flat, math.inf)
    pred_sides, target_sides = (high - low) / span + flat, (target_high - target_low) / span + flat
    # Not clamp: torch releases disagree about its gradient at 0, where boxes touch or are empty.
    overlap_sides = torch.where(overlap >= 0, overlap, 0.0) / span + flat
    return PairGeometry(
        pred=pred_sides,
        target=target_sides,
        overlap=overlap_sides,
        gap=(-overlap).relu() / span,
        hull=hull / span + flat,
        low=(low - target_low) / span,
        high=(high - target_high) / span,
        iou=_iou(area(overlap_sides), area(pred_sides), area(target_sides)),
        unit=unit,
        shape=unit / torch.maximum(unit[..., :1], unit[..., 1:]).clamp(min=floor),
        corners=(pred, target),
        valid=valid,
    )


def _iou(intersection: Tensor, pred: Tensor, target: Tensor) -> Tensor:
    union = pred + target - intersection
    return intersection / union.masked_fill(union < safe_floor(union.dtype), math.inf)


def _ordered(corners: Corners) -> Corners:
    """Corners as they are, or their midpoint twice where the second lies before the first."""
    low, high = corners
    inverted = high < low
    middle = 0.5 * low + 0.5 * high
    return torch.where(inverted, middle, low), torch.where(inverted, middle, high)


def _scaled(corners: Corners, ratio: float | Tensor) -> Corners:
    low, high = corners
    middle, half = 0.5 * (low + high), 0.5 * ratio * (high - low)
    return middle - half, middle + half
