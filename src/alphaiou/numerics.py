"""Numerically safe operations, whose values and gradients stay finite.

Everything else in the package is ordinary arithmetic. ``docs/mathematics.md`` states the caps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

#: A hull side below this is treated as 0 (fp32).
FLOOR = 2.0**-94
#: Below this, a power with α < 1 and the logarithm have the constant slope of this point.
SLOPE_FLOOR = 1e-6
#: Below this share of the hull, the gradient of a side used as a denominator is scaled down.
SIDE_FLOOR = 1e-3
#: The minimum argument of the logarithm (the smallest normal fp32 number).
LOG_FLOOR = 2.0**-126
#: The maximum value of a penalty, whose tenth power is finite in fp32.
PENALTY_CEILING = 1e3
#: The maximum power of a penalty, as log2; the ceiling above stays below it for every α up to 10.
LOG2_POWER_CEILING = 100.0
#: Below this α the Box-Cox form uses ``expm1``, because 1 − S^α would lose all precision.
SMALL_ALPHA = 0.1

Alpha = float | Tensor

#: The version of torch, such as (2, 9).
TORCH = tuple(map(int, torch.__version__.split(".")[:2]))
#: Whether torch.compile traces the call.
is_compiling: Callable[[], bool] = (
    torch.compiler.is_compiling
    if hasattr(torch.compiler, "is_compiling")
    else torch._utils.is_compiling  # until torch 2.2
)


def check_number(name: str, value: float, *, least: float = 0.0, strict: bool = True) -> None:
    """Check that a number is finite and above ``least``, or equal to it if not ``strict``."""
    check_is_number(name, value)
    # Comparisons only, which torch.compile can trace for a number that changes between calls.
    if not (least < value < math.inf) and (strict or value != least):
        sign = ">" if strict else ">="
        raise ValueError(f"{name} must be a finite number {sign} {least:g}, got {value!r}")


def check_is_number(name: str, value: object, allowed: str = "a number") -> None:
    """Reject texts, complex numbers and whatever else is no real number."""
    # The first test is all that torch.compile traces.
    if not isinstance(value, (float, int)) and not isinstance(value, Real):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")


def check_real(name: str, value: Tensor) -> None:
    """Reject a complex tensor."""
    if value.is_complex():
        raise ValueError(f"{name} must hold real numbers, got {value.dtype}")


def check_tensor(name: str, value: Tensor, *, least: float = 0.0, strict: bool = True) -> None:
    """Check the numbers of a tensor on the CPU as ``check_number`` does.

    On other devices reading them would be a synchronisation, and under torch.compile or in a
    transform it is impossible: there they are not checked.
    """
    check_real(name, value)
    if not is_readable(value):
        return
    wrong = ~((value > least if strict else value >= least) & value.isfinite())
    if wrong.any():
        check_number(name, value[wrong][0].item(), least=least, strict=strict)


def check_unit_interval(name: str, value: Tensor) -> None:
    """Check that the numbers of a tensor on the CPU lie in [0, 1], but for rounding."""
    check_real(name, value)
    if is_readable(value):
        wrong = ~((value >= -1e-3) & (value <= 1.001))
        if wrong.any():
            raise ValueError(f"{name} must lie in [0, 1], got {value[wrong][0].item():g}")


def is_traced() -> bool:
    """Whether ``torch.jit.trace`` records the call."""
    return bool(torch.jit.is_tracing())  # type: ignore[attr-defined, no-untyped-call]


def is_readable(value: Tensor) -> bool:
    """Whether reading the numbers of a tensor costs nothing: a plain one on the CPU."""
    return (
        value.is_cpu
        and not is_compiling()
        and not is_traced()
        and not torch._C._are_functorch_transforms_active()
        and torch._C._len_torch_dispatch_stack() == 0
        and type(value) in (Tensor, torch.nn.Parameter)
    )


def safe_floor(dtype: torch.dtype) -> float:
    """Return the minimum denominator; its reciprocal leaves ten orders of magnitude of headroom."""
    return FLOOR if dtype == torch.float32 else 2.0**-800


def upcast(boxes: Tensor) -> Tensor:
    """Convert boxes to the precision of the computation: fp64 is kept, all else becomes fp32."""
    if boxes.dtype in (torch.float32, torch.float64):
        return boxes
    if boxes.dtype == torch.float16 and boxes.requires_grad:
        widened: Tensor = _SaturatingUpcast.apply(boxes)
        return widened
    return boxes.float()


class _SaturatingUpcast(torch.autograd.Function):
    """Convert fp16 to fp32; in the backward pass, the gradient saturates instead of overflowing."""

    generate_vmap_rule = True

    @staticmethod
    def forward(boxes: Tensor) -> Tensor:
        return boxes.float()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ANN401
        pass

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # noqa: ANN401
        limit = torch.finfo(torch.float16).max
        return grad.clamp(-limit, limit).half()


def scale_gradient(value: Tensor, factor: Tensor) -> Tensor:
    """Return the value unchanged, with its gradient multiplied by a detached factor."""
    fixed = value.detach()
    return fixed + (value - fixed) * factor.detach()


def bounded_ratio(numerator: Tensor, side: Tensor) -> Tensor:
    """``numerator / side`` in hull units; the gradient fades under ``SIDE_FLOOR``."""
    quotient = numerator / side.clamp(min=safe_floor(side.dtype))
    return scale_gradient(quotient, (side / SIDE_FLOOR).clamp(max=1.0))


def bounded_angle(side: Tensor, other: Tensor) -> Tensor:
    """``atan(side / other)``, finite for empty boxes; the gradient of a vanishing box fades."""
    longer = torch.maximum(side, other).detach()
    # Unit size first: the derivative divides by side² + other², which would vanish in fp32.
    unit = longer.clamp(min=safe_floor(longer.dtype))
    angle = torch.atan2(side / unit, other / unit + (longer == 0))
    return scale_gradient(angle, (longer / SIDE_FLOOR).clamp(max=1.0).square())


def length(vector: Tensor) -> Tensor:
    """The length of vectors, exact at any scale; the gradient at the origin is 0."""
    # In units of the largest component: its square neither vanishes nor overflows.
    unit = vector.detach().abs().amax(-1)
    is_zero = unit < safe_floor(unit.dtype)
    unit = unit.masked_fill(is_zero, 1.0)
    square = (vector / unit[..., None]).square().sum(-1)
    return torch.where(is_zero, 0.0, unit * square.masked_fill(is_zero, 1.0).sqrt())


def power(base: Tensor, alpha: Alpha) -> Tensor:
    """``base^α`` for base ≥ 0 and α > 0, its slope capped where α < 1."""
    if isinstance(alpha, float):
        if alpha == 1.0:
            return base
        if alpha > 1.0:
            return base.pow(alpha)
        floor: Alpha = SLOPE_FLOOR
    else:
        floor = torch.where(alpha < 1.0, SLOPE_FLOOR, 0.0).to(base.dtype)
    slope = alpha * _floor_power(floor, alpha - 1.0)
    return _straight_below(floor, slope, lambda x: x.pow(alpha), base)


def penalty_power(penalty: Tensor, alpha: Alpha) -> Tensor:
    """``penalty^α``, at most 2¹⁰⁰ however large α is."""
    if isinstance(alpha, Tensor):
        penalty = torch.minimum(penalty, torch.exp2(LOG2_POWER_CEILING / alpha.detach()))
    elif alpha > 10.0:
        penalty = penalty.clamp(max=2.0 ** (LOG2_POWER_CEILING / alpha))
    return power(penalty, alpha)


def power_loss(similarity: Tensor, alpha: Alpha, *, box_cox: bool) -> Tensor:
    """``1 − S^α``, or ``(1 − S^α)/α`` in the Box-Cox form; ``−log S`` where α is 0."""
    if isinstance(alpha, float):
        if alpha == 0.0:
            return log_loss(similarity)
        return _box_cox(similarity, alpha) if box_cox else 1.0 - power(similarity, alpha)
    positive = torch.where(alpha > 0.0, alpha, 1.0)
    powered = _box_cox(similarity, positive) if box_cox else 1.0 - power(similarity, positive)
    return torch.where(alpha > 0.0, powered, log_loss(similarity))


def log_loss(similarity: Tensor) -> Tensor:
    """``−log S``, finite at S = 0."""
    return _straight_below(
        SLOPE_FLOOR, -1.0 / SLOPE_FLOOR, lambda x: -x.clamp(min=LOG_FLOOR).log(), similarity
    )


def _box_cox(similarity: Tensor, alpha: Alpha) -> Tensor:
    """``(1 − S^α)/α``, accurate however small α is."""
    if isinstance(alpha, float):
        if alpha >= SMALL_ALPHA:
            return (1.0 - power(similarity, alpha)) / alpha
        return _box_cox_of_small_alpha(similarity, alpha)
    small = alpha < SMALL_ALPHA
    return torch.where(
        small,
        _box_cox_of_small_alpha(similarity, torch.where(small, alpha, SMALL_ALPHA)),
        (1.0 - power(similarity, alpha)) / alpha,
    )


def _box_cox_of_small_alpha(similarity: Tensor, alpha: Alpha) -> Tensor:
    def transform(x: Tensor) -> Tensor:
        return -torch.expm1(alpha * x.clamp(min=LOG_FLOOR).log()) / alpha

    slope = -_floor_power(SLOPE_FLOOR, alpha - 1.0)
    return _straight_below(SLOPE_FLOOR, slope, transform, similarity)


def _straight_below(
    floor: Alpha, slope: Alpha, function: Callable[[Tensor], Tensor], x: Tensor
) -> Tensor:
    """``function(x)`` for every x, but with a constant slope below the floor."""
    fixed = x.detach()
    return torch.where(
        x < floor,
        function(fixed) + slope * (x - fixed),
        function(torch.where(x < floor, floor, x)),
    )


def _floor_power(floor: Alpha, exponent: Alpha) -> Alpha:
    if isinstance(floor, float) and isinstance(exponent, Tensor):
        return torch.pow(floor, exponent)
    return floor**exponent
