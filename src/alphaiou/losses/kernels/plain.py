"""Loss and gradient on the CPU without a compiler: ``analytic`` run as plain torch operations.

The derivation is that of ``analytic``. Run operation by operation, its cost is the number of
operations and the memory that they move. So both axes are measured at once, pairs are computed in
chunks that stay in the cache, and the helpers below take fewer operations for the same result:
reading a number costs nothing on the CPU, and what no pair of a chunk needs is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alphaiou.losses.formula import Exponent
from alphaiou.losses.kernels import analytic
from alphaiou.losses.kernels.analytic import Axis, Slope
from alphaiou.numerics import SLOPE_FLOOR, SMALL_ALPHA, Alpha, safe_floor

Value = Tensor | float

#: Pairs computed at a time by one thread: so few that their intermediate results stay in the cache.
_CHUNK = 1 << 14


def launch(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alphas: tuple[Exponent, Exponent],
    *,
    kind: str,
    parameter: float,
    box_cox: bool,
    box_format: str,
    scale: float,
    reduce: bool,
    want_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Loss (of each pair, or its sum) and gradient, both multiplied by ``scale``."""
    count = pred.numel() // 4
    double = torch.float64 in (pred.dtype, target.dtype)
    dtype = torch.float64 if double else torch.float32
    loss = torch.empty(count, dtype=dtype)
    grad = torch.empty(count if want_grad else 0, 4, dtype=dtype)
    boxes, targets = pred.reshape(count, 4), target.reshape(count, 4)
    weights = None if weight is None else weight.reshape(count).to(dtype)
    powers = [_power(alpha, pred.shape[:-1], dtype) for alpha in alphas]
    functions = _functions(dtype)
    step = _CHUNK * torch.get_num_threads()
    # Every operation is faster where autograd keeps no account of it. What is returned, and may be
    # saved for the backward pass, was allocated outside.
    with torch.inference_mode():
        for start in range(0, count, step):
            part = slice(start, start + step)
            corners = _columns(boxes[part], targets[part], dtype)
            factor: Value = scale
            if weights is not None:
                factor = scale * weights[part]
                # Pairs of weight 0 become identical boxes: loss and gradient are exactly 0.
                corners = torch.where(weights[part] != 0, corners, 0.0)
            alpha, penalty_alpha = (
                power if isinstance(power, float) else power[part] for power in powers
            )
            part_loss, part_grad = _loss_and_gradient(
                functions, corners, alpha, penalty_alpha, parameter, kind, box_cox, box_format
            )
            torch.mul(part_loss, factor, out=loss[part])
            if want_grad:
                each = factor[:, None] if isinstance(factor, Tensor) else factor
                torch.mul(part_grad.t(), each, out=grad[part])
    total = loss.sum() if reduce else loss.reshape(pred.shape[:-1])
    return total, grad.reshape(pred.shape) if want_grad else grad


def _power(alpha: Exponent, shape: torch.Size, dtype: torch.dtype) -> Alpha:
    """One number for all pairs, or one per pair."""
    if alpha.tensor is None:
        return alpha.number
    if alpha.tensor.numel() == 1:
        return float(alpha.tensor)
    return alpha.tensor.to(dtype).expand(shape).reshape(shape.numel())


def _columns(pred: Tensor, target: Tensor, dtype: torch.dtype) -> Tensor:
    """The coordinates as (prediction or target, first or second, axis, pair)."""
    columns = torch.stack((*pred.unbind(1), *target.unbind(1))).view(2, 2, 2, -1)
    return columns if columns.dtype == dtype else columns.to(dtype)


def _loss_and_gradient(
    functions: SimpleNamespace,
    corners: Tensor,
    alpha: Alpha,
    penalty_alpha: Alpha,
    parameter: float,
    kind: str,
    box_cox: bool,
    box_format: str,
) -> tuple[Tensor, Tensor]:
    """``analytic.pair_loss`` with the axes in the rows of one tensor, where they are alike."""
    if box_format != "xyxy":
        first, second, target_first, target_second = corners.flatten(0, 1).unbind(0)
        edges = functions.relative_corners(first, second, target_first, target_second, box_format)
        corners = torch.stack(edges[:4]).view_as(corners)
    low, high = corners.unbind(1)
    sides = high - low
    inverted = None
    if not float(sides.min()) >= 0:
        # The middle in place of both corners.
        inverted = sides < 0
        middle = low.mul(0.5).add_(high, alpha=0.5)
        corners = torch.where(inverted[:, None], middle[:, None], corners)
        sides = torch.where(inverted, 0.0, sides)
    pair = _measure(functions, corners, sides)
    x, y = pair.axes
    loss, *slopes = functions.terms(
        kind, x, y, *pair.hull.unbind(0), alpha, penalty_alpha, box_cox, parameter
    )
    grad = _corner_slopes(functions, *slopes, pair)
    if inverted is not None or box_format != "xyxy":
        flip = False if inverted is None else inverted[0]
        grad = torch.stack(functions.coordinate_slopes(*grad.unbind(0), flip, box_format))
    return loss, grad.flatten(0, 1)


# --- Lengths: as in analytic.py, both axes at once ------------------------------------------------


class _Lengths(NamedTuple):
    """The lengths along both axes, and what their slopes need again on the way back."""

    axes: tuple[Axis, ...]
    hull: Tensor
    scale: Tensor
    overlap: Tensor
    #: Of the corners.
    gaps: Tensor


def _measure(functions: SimpleNamespace, corners: Tensor, sides: Tensor) -> _Lengths:
    pred, target = corners.unbind(0)
    (low, high), (target_low, target_high) = pred.unbind(0), target.unbind(0)
    hull = torch.maximum(high, target_high).sub_(torch.minimum(low, target_low))
    overlap = torch.minimum(high, target_high).sub_(torch.maximum(low, target_low))
    longer = torch.maximum(*hull.unbind(0))
    gaps = pred - target
    if float(hull.min()) >= functions.floor:
        scale = hull.reciprocal()
        met = overlap * scale
        inside = met.relu()
        lengths = (
            *(sides * scale).unbind(0),
            inside,
            inside - met,
            *(gaps * scale).unbind(0),
            hull / longer,
        )
    else:
        scale = functions.unit_scale(hull)
        per_longer = longer.clamp_(min=functions.floor).reciprocal_()
        lengths = functions.measure(low, high, target_low, target_high, per_longer)
    axes = tuple(Axis(*rows) for rows in zip(*(both.unbind(0) for both in lengths), strict=True))
    return _Lengths(axes, hull, scale, overlap, gaps)


def _corner_slopes(functions: SimpleNamespace, x: Slope, y: Slope, pair: _Lengths) -> Tensor:
    slope = _stacked(x, y)
    outside = -slope.gap if isinstance(slope.gap, Tensor) else functions.zero
    met = torch.where(pair.overlap >= functions.zero, slope.overlap, outside)
    # The share of the slope of what lies inside: 1 where the corner is the inner one, ½ at a tie.
    share = (pair.gaps * functions.inwards).sign_().mul_(0.5).add_(0.5)
    if isinstance(slope.hull, Tensor):
        inner = torch.lerp(slope.hull, met, share)
    else:
        inner = share.mul_(met)
    inner = inner.add_(slope.pred).mul_(functions.outwards)
    if isinstance(slope.low, Tensor):
        both = slope.low is slope.high
        inner = inner.add_(slope.low if both else torch.stack((slope.low, slope.high)))
    return inner.mul_(pair.scale)


def _stacked(x: Slope, y: Slope) -> Slope:
    """The slopes of both axes in the rows of one tensor; a number stays one if both axes have it."""
    rows: list[Tensor] = []
    places: dict[tuple[int, int], int] = {}
    place_of = []
    for along, across in zip(x, y, strict=True):
        if not isinstance(along, Tensor):
            if not isinstance(across, Tensor):
                place_of.append(None)
                continue
            along = torch.full_like(across, along)
        elif not isinstance(across, Tensor):
            across = torch.full_like(along, across)
        key = id(along), id(across)
        if key not in places:
            places[key] = len(rows) // 2
            rows += along, across
        place_of.append(places[key])
    both = torch.stack(rows).view(len(rows) // 2, 2, -1).unbind(0)
    return Slope(*(-0.0 if place is None else both[place] for place in place_of))


# --- The functions of analytic.py, with other operations and helpers ------------------------------


@cache
def _functions(dtype: torch.dtype) -> SimpleNamespace:
    scope = vars(analytic) | {"tl": _OPERATIONS}
    # Numbers as tensors, which torch would otherwise make of them again in every operation.
    for name, value in (vars(analytic) | {"FLOOR": safe_floor(dtype)}).items():
        if isinstance(value, float) and name != "NO_GRAD":
            scope[name] = torch.tensor(value, dtype=dtype)
        elif isinstance(value, FunctionType) and value.__module__ == analytic.__name__:
            constants = (
                torch.tensor(constant, dtype=dtype) if isinstance(constant, float) else constant
                for constant in value.__code__.co_consts
            )
            code = value.__code__.replace(co_consts=tuple(constants))
            scope[name] = FunctionType(code, scope, name)
    scope |= _HELPERS
    for name, helper in _SHORTCUTS.items():
        scope[name] = partial(helper, scope[name])
    # Low corners move outwards to the left, high ones to the right.
    outwards = torch.tensor([-1.0, 1.0], dtype=dtype).view(2, 1, 1)
    return SimpleNamespace(
        **scope, floor=safe_floor(dtype), zero=torch.zeros((), dtype=dtype), outwards=outwards, inwards=outwards.neg()
    )


def _where(condition: Tensor | bool, a: Value, b: Value) -> Any:  # noqa: ANN401
    if isinstance(condition, bool) or condition.ndim == 0:
        return a if condition else b
    if _is_number(a) and _is_number(b) and not condition.any():
        return b
    return torch.where(condition, a, b)


def _is_number(value: Value) -> bool:
    return not isinstance(value, Tensor) or value.ndim == 0


def _maximum(a: Value, b: Value) -> Value:
    if isinstance(a, Tensor):
        return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)
    return b.clamp(min=a) if isinstance(b, Tensor) else max(a, b)


def _minimum(a: Value, b: Value) -> Value:
    if isinstance(a, Tensor):
        return torch.minimum(a, b) if isinstance(b, Tensor) else a.clamp(max=b)
    return b.clamp(max=a) if isinstance(b, Tensor) else min(a, b)


def _fma(a: Tensor, b: Value, c: Value) -> Tensor:
    if not isinstance(c, Tensor) or c.ndim == 0:
        return a * b + c if c else a * b
    return torch.addcmul(c, a, b) if isinstance(b, Tensor) else torch.add(c, a, alpha=b)


_OPERATIONS = SimpleNamespace(
    abs=torch.abs, exp=torch.exp, where=_where, maximum=_maximum, minimum=_minimum, fma=_fma
)


def _reciprocal(value: Value) -> Value:
    return value.reciprocal() if isinstance(value, Tensor) else 1.0 / value


def _exp2(value: Value) -> Value:
    return value.exp2() if isinstance(value, Tensor) else 2.0**value


def _minus_expm1(z: Tensor) -> Tensor:
    return torch.expm1(z).neg_()


def _powered(base: Tensor, alpha: Alpha) -> tuple[Tensor, Value]:
    if isinstance(alpha, Tensor):
        floor = torch.where(alpha < 1.0, SLOPE_FLOOR, 0.0).to(base.dtype)
        return base.pow(alpha), alpha * torch.maximum(base, floor).pow(alpha - 1.0)
    if alpha == 1.0:
        return base, 1.0
    if alpha < 1.0:
        return base.pow(alpha), alpha * base.clamp(min=SLOPE_FLOOR).pow(alpha - 1.0)
    below = base if alpha == 2.0 else base * base if alpha == 3.0 else base.pow(alpha - 1.0)
    return below * base, alpha * below


def _added(a: Slope, b: Slope) -> Slope:
    return Slope(*map(_sum, a, b))


def _sum(a: Value, b: Value) -> Value:
    """Numbers are ``NO_GRAD``."""
    if not isinstance(a, Tensor):
        return b
    return a + b if isinstance(b, Tensor) else a


_HELPERS: dict[str, Callable[..., Any]] = {
    "reciprocal": _reciprocal,
    "log2": torch.log2,
    "exp2": _exp2,
    "sign": torch.sign,
    "minus_expm1": _minus_expm1,
    "arc_tangent": torch.atan2,
    "powered": _powered,
    "added": _added,
    # Done by _ordered.
    "middle_if_inverted": lambda corner, low, high: corner,
}


def _similarity_loss(
    general: Callable[..., Any], similarity: Tensor, alpha: Alpha, box_cox: bool
) -> Any:  # noqa: ANN401
    if isinstance(alpha, Tensor) or alpha < SMALL_ALPHA:
        return general(similarity, alpha, box_cox)
    value, slope = _powered(similarity, alpha)
    loss = 1.0 - value
    return (loss / alpha, -slope / alpha) if box_cox else (loss, -slope)


def _powered_penalty(general: Callable[..., Any], penalty: Tensor, alpha: Alpha) -> Any:  # noqa: ANN401
    if isinstance(alpha, Tensor) or alpha > 10.0:
        return general(penalty, alpha)
    return _powered(penalty, alpha)


def _iou_of(general: Callable[..., Any], x: Axis, y: Axis) -> Any:  # noqa: ANN401
    intersection = x.overlap * y.overlap
    union = (x.pred * y.pred).add_(x.target * y.target).sub_(intersection)
    if not float(union.min()) >= safe_floor(union.dtype):
        return general(x, y)
    # Exactly 1 for identical boxes, and no more for any: each rounding keeps the order.
    return intersection / union, union.reciprocal()


def _at_unit_size(general: Callable[..., Any], width: Tensor, height: Tensor) -> Any:  # noqa: ANN401
    longer = torch.maximum(width, height)
    if not float(longer.min()) >= safe_floor(longer.dtype):
        return general(width, height)
    per_longer = longer.reciprocal()
    return width * per_longer, height * per_longer, longer, per_longer


def _unit_scale(general: Callable[..., Any], hull: Tensor) -> Any:  # noqa: ANN401
    return hull.reciprocal() if float(hull.amin()) >= safe_floor(hull.dtype) else general(hull)


#: Shortcuts for what most calls need, with the function of analytic.py for the others.
_SHORTCUTS: dict[str, Callable[..., Any]] = {
    "unit_scale": _unit_scale,
    "iou_of": _iou_of,
    "at_unit_size": _at_unit_size,
    "similarity_loss": _similarity_loss,
    "powered_penalty": _powered_penalty,
}
