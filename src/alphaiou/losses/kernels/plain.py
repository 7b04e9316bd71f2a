"""Loss and gradient on the CPU without a compiler: ``analytic`` run as plain torch operations.

The derivation is that of ``analytic``. Run operation by operation, its cost is the number of
operations (about 1 µs to start each, which is all that counts for 1,000 pairs) and the memory that
they move. So both axes are measured at once, pairs are computed in chunks that stay in the cache,
and the helpers below take fewer operations for the same result: reading a number costs nothing on
the CPU, and what no pair of a chunk needs is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache, partial
from importlib.util import module_from_spec
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alphaiou.losses.formula import Exponent
from alphaiou.losses.kernels import analytic
from alphaiou.losses.kernels.analytic import NO_GRAD, Axis, Slope
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
    loss = torch.empty(count, dtype=dtype, device="cpu")
    grad = torch.empty(count if want_grad else 0, 4, dtype=dtype, device="cpu")
    boxes, targets = pred.reshape(count, 4), target.reshape(count, 4)
    weights = None if weight is None else weight.reshape(count).to(dtype)
    powers = [_power(alpha, pred.shape[:-1], dtype) for alpha in alphas]
    functions = _functions(dtype)
    step = _CHUNK * torch.get_num_threads()
    # Operations start faster in inference mode than with gradients off. Its tensors cannot be saved
    # for a backward pass, so what is returned is allocated before and filled in.
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


def _loss_and_gradient(  # noqa: PLR0917
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
    corners, sides, inverted = _ordered(corners)
    pair = _measure(functions, corners, sides)
    x, y = pair.axes
    loss, slope_x, slope_y = functions.terms(
        kind, x, y, *pair.hull.unbind(0), alpha, penalty_alpha, box_cox, parameter
    )
    grad = _corner_slopes(functions, slope_x, slope_y, pair)
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
    #: low − lowᵍ and high − highᵍ.
    gaps: Tensor


def _ordered(corners: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The corners, with the middle twice in place of an inverted side; the sides; which if any."""
    low, high = corners.unbind(1)
    sides = high - low
    if float(sides.min()) >= 0:
        return corners, sides, None
    inverted = sides < 0
    middle = (0.5 * low).add_(high, alpha=0.5)
    corners = torch.where(inverted[:, None], middle[:, None], corners)
    return corners, torch.where(inverted, 0.0, sides), inverted


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
    half = _number(0.5, pair.scale.dtype)
    outside = -slope.gap if isinstance(slope.gap, Tensor) else functions.ZERO
    met = torch.where(pair.overlap >= functions.ZERO, slope.overlap, outside)
    # The share of the slope of what lies inside: 1 where the corner is the inner one, ½ at a tie.
    share = (pair.gaps * functions.inwards).sign_().mul_(half).add_(half)
    if isinstance(slope.hull, Tensor):
        inner = torch.lerp(slope.hull, met, share)
    else:
        inner = share.mul_(met)
    inner = inner.add_(slope.pred).mul_(functions.outwards)
    if isinstance(slope.low, Tensor):
        same = slope.low is slope.high
        high = _like(slope.high, slope.low)
        inner = inner.add_(slope.low if same else torch.stack((slope.low, high)))
    return inner.mul_(pair.scale)


def _stacked(x: Slope, y: Slope) -> Slope:
    """The slopes of both axes in the rows of one tensor; no slope stays a number."""
    # By identity: the slopes along low and high are often the same tensors.
    pairs = {
        (id(a), id(b)): (_like(a, b), _like(b, a))
        for a, b in zip(x, y, strict=True)
        if isinstance(a, Tensor) or isinstance(b, Tensor)
    }
    rows = torch.stack([row for pair in pairs.values() for row in pair])
    both = dict(zip(pairs, rows.view(len(pairs), 2, -1).unbind(0), strict=True))
    return Slope(*(both.get((id(a), id(b)), NO_GRAD) for a, b in zip(x, y, strict=True)))


def _like(value: Value, other: Any) -> Tensor:  # noqa: ANN401
    return value if isinstance(value, Tensor) else torch.full_like(other, value)


# --- The functions of analytic.py, with other operations and helpers ------------------------------


@cache
def _functions(dtype: torch.dtype) -> SimpleNamespace:
    """``analytic`` loaded once more, with the operations, numbers and helpers of this file.

    Its functions call one another through the globals of their module, so replacing some of these
    changes what all of them do. The module that the compiled kernels are made of stays as it is.
    """
    spec: Any = analytic.__spec__
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    scope = vars(module)
    numbers = {name: value for name, value in scope.items() if isinstance(value, float)}
    numbers |= {"FLOOR": safe_floor(dtype), "ZERO": 0.0}
    del numbers["NO_GRAD"]
    scope |= {name: _number(value, dtype) for name, value in numbers.items()}
    scope |= {"tl": _OPERATIONS} | _HELPERS
    scope |= {name: partial(helper, scope[name]) for name, helper in _SHORTCUTS.items()}
    # The sign of a move outwards, of the low corner and of the high one.
    outwards = torch.tensor([-1.0, 1.0], dtype=dtype, device="cpu").view(2, 1, 1)
    constants = {"floor": safe_floor(dtype), "outwards": outwards, "inwards": -outwards}
    return SimpleNamespace(**scope | constants)


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


@lru_cache(maxsize=64)
def _number(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor, which torch would otherwise make of it in every operation."""
    return torch.tensor(value, dtype=dtype, device="cpu")


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
    below = base if alpha == 2.0 else base.pow(alpha - 1.0)
    return below * base, below * _number(alpha, base.dtype)


def _gap_parts_slope(axis: Axis, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    apart = axis.gap.sign()
    near = _number(1.0, pred.dtype) - apart
    low, high = _along(axis.low, target, pred), _along(axis.high, pred, target)
    return pred * apart, low.mul_(near), high.mul_(near)


def _interpolated_slope(axis: Axis, extra: Tensor, missed: Tensor) -> Slope:
    low, high = _along(axis.low, missed, extra), _along(axis.high, extra, missed)
    return Slope(NO_GRAD, NO_GRAD, NO_GRAD, NO_GRAD, low, high)


def _along(length: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """``up`` where the length is positive, ``−down`` where it is negative, 0 where it is 0."""
    sign, half = length.sign(), _number(0.5, length.dtype)
    # Much faster than a selection, which torch does not vectorise.
    return torch.lerp(down, up, (sign * half).add_(half)).mul_(sign)


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
    "positive_part": torch.relu,
    "gap_parts_slope": _gap_parts_slope,
    "interpolated_slope": _interpolated_slope,
    # _ordered does this for both corners.
    "middle_if_inverted": lambda corner, low, high: corner,
}


def _similarity_loss(
    general: Callable[..., Any], similarity: Tensor, alpha: Alpha, box_cox: bool
) -> Any:  # noqa: ANN401
    if isinstance(alpha, Tensor) or alpha < SMALL_ALPHA:
        return general(similarity, alpha, box_cox)
    value, slope = _powered(similarity, alpha)
    loss = _number(1.0, value.dtype) - value
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
    return hull.reciprocal() if float(hull.min()) >= safe_floor(hull.dtype) else general(hull)


#: Shortcuts for what most calls need, with the function of analytic.py for the others.
_SHORTCUTS: dict[str, Callable[..., Any]] = {
    "unit_scale": _unit_scale,
    "iou_of": _iou_of,
    "at_unit_size": _at_unit_size,
    "similarity_loss": _similarity_loss,
    "powered_penalty": _powered_penalty,
}
