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
    for start in range(0, count, step):
        part = slice(start, start + step)
        inputs = [_columns(boxes[part], dtype), _columns(targets[part], dtype)]
        factor: Value = scale
        if weights is not None:
            factor = scale * weights[part]
            # Pairs of weight 0 become identical boxes: loss and gradient are exactly 0.
            counts = weights[part] != 0
            inputs = [torch.where(counts, columns, 0.0) for columns in inputs]
        alpha, penalty_alpha = (
            power if isinstance(power, float) else power[part] for power in powers
        )
        part_loss, part_grad = _loss_and_gradient(
            functions,
            inputs[0],
            inputs[1],
            alpha,
            penalty_alpha,
            parameter,
            kind,
            box_cox,
            box_format,
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


def _columns(boxes: Tensor, dtype: torch.dtype) -> Tensor:
    """One row per coordinate."""
    columns = torch.stack(boxes.unbind(1))
    return columns if columns.dtype == dtype else columns.to(dtype)


def _loss_and_gradient(  # noqa: PLR0917
    functions: SimpleNamespace,
    pred: Tensor,
    target: Tensor,
    alpha: Alpha,
    penalty_alpha: Alpha,
    parameter: float,
    kind: str,
    box_cox: bool,
    box_format: str,
) -> tuple[Tensor, Tensor]:
    """``analytic.pair_loss`` with the axes in the rows of one tensor, where they are alike."""
    *edges, inverted = functions.relative_corners(
        pred[:2], pred[2:], target[:2], target[2:], box_format
    )
    low, high, flipped = _ordered(*edges[:2])
    target_low, target_high, _ = _ordered(*edges[2:])
    pair = _measure(functions, low, high, target_low, target_high)
    x, y = (Axis(*lengths) for lengths in zip(*(both.unbind(0) for both in pair.axes), strict=True))
    loss, slope_x, slope_y = functions.terms(
        kind, x, y, *pair.hull.unbind(0), alpha, penalty_alpha, box_cox, parameter
    )
    slopes = _corner_slopes(slope_x, slope_y, pair)
    if flipped or box_format != "xyxy":
        slopes = functions.coordinate_slopes(*slopes, inverted if flipped else False, box_format)
    return loss, torch.cat(slopes)


# --- Lengths: as in analytic.py, both axes at once ------------------------------------------------


class _Lengths(NamedTuple):
    """The lengths of both axes, and what their slopes need again on the way back."""

    axes: Axis
    hull: Tensor
    scale: Tensor
    overlap: Tensor
    #: The signs of low − lowᵍ and high − highᵍ.
    low: Tensor
    high: Tensor


def _ordered(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor, bool]:
    """The corners, with the middle twice in place of an inverted side, and if there is any."""
    if float((high - low).amin()) >= 0:
        return low, high, False
    middle: Callable[..., Tensor] = analytic.middle_if_inverted
    return middle(low, low, high), middle(high, low, high), True


def _measure(
    functions: SimpleNamespace, low: Tensor, high: Tensor, target_low: Tensor, target_high: Tensor
) -> _Lengths:
    hull = torch.maximum(high, target_high).sub_(torch.minimum(low, target_low))
    overlap = torch.minimum(high, target_high).sub_(torch.maximum(low, target_low))
    per_longer = torch.maximum(hull[0], hull[1]).clamp_(min=functions.floor).reciprocal_()
    low_gap, high_gap = low - target_low, high - target_high
    if float(hull.amin()) >= functions.floor:
        scale = hull.reciprocal()
        met = overlap * scale
        inside = met.relu()
        axes = Axis(
            (high - low).mul_(scale),
            (target_high - target_low).mul_(scale),
            inside,
            inside - met,
            low_gap * scale,
            high_gap * scale,
            hull * per_longer,
        )
    else:
        scale = functions.unit_scale(hull)
        axes = functions.measure(low, high, target_low, target_high, per_longer)
    return _Lengths(axes, hull, scale, overlap, low_gap.sign_(), high_gap.sign_())


def _corner_slopes(x: Slope, y: Slope, pair: _Lengths) -> tuple[Tensor, Tensor]:
    slope = Slope(*map(_rows, x, y))
    met = _where(pair.overlap >= 0, slope.overlap, -slope.gap)
    # The share of the slope of what lies inside: 1 where the corner is the inner one, ½ at a tie.
    to_low = _mixed(met, slope.hull, pair.low.mul_(0.5).add_(0.5))
    to_high = _mixed(met, slope.hull, pair.high.mul_(-0.5).add_(0.5))
    low = (slope.low - to_low - slope.pred) * pair.scale
    return low, (to_high + slope.pred + slope.high) * pair.scale


def _mixed(inside: Tensor, outside: Value, share: Tensor) -> Tensor:
    """Exactly one of the two, or their mean."""
    return torch.lerp(outside, inside, share) if isinstance(outside, Tensor) else inside * share


def _rows(x: Value, y: Value) -> Value:
    """The slopes of both axes in one tensor; one number if neither axis has any."""
    if isinstance(x, Tensor):
        return torch.stack((x, y if isinstance(y, Tensor) else torch.full_like(x, y)))
    return torch.stack((torch.full_like(y, x), y)) if isinstance(y, Tensor) else x


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
    return SimpleNamespace(**scope, floor=safe_floor(dtype))


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
    below = base if alpha == 2.0 else base.pow(alpha - 1.0)
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


def _unit_scale(general: Callable[..., Any], hull: Tensor) -> Any:  # noqa: ANN401
    return hull.reciprocal() if float(hull.amin()) >= safe_floor(hull.dtype) else general(hull)


#: Shortcuts for what most calls need, with the function of analytic.py for the others.
_SHORTCUTS: dict[str, Callable[..., Any]] = {
    "unit_scale": _unit_scale,
    "similarity_loss": _similarity_loss,
    "powered_penalty": _powered_penalty,
}
