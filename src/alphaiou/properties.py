"""The closed-form properties of the α-IoU loss: how it reweights a pair of boxes by its IoU.

They compare ``1 − IoU^α`` with the plain loss ``1 − IoU`` (Alpha-IoU, section 3.2, appendix A).
The weights are the ratio (relative) or the difference (absolute) of the two losses, or of their
gradients with respect to the IoU. Each function accepts floats or tensors, which broadcast; it
returns a float if all arguments are floats. The limits IoU → 0, IoU → 1 and α → 1 are exact, and
gradients are accurate there.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import Protocol, overload, runtime_checkable

import torch
from torch import Tensor

from alphaiou._shapes import Float

__all__ = [
    "absolute_gradient_weight",
    "absolute_loss_weight",
    "relative_gradient_weight",
    "relative_loss_weight",
    "turning_point",
]


@runtime_checkable
class _Weight(Protocol):
    """A weight of (IoU, α): a float for floats, a tensor if either argument is a tensor."""

    @overload
    def __call__(self, iou: float, alpha: float) -> float: ...
    @overload
    def __call__(self, iou: Tensor, alpha: float | Tensor) -> Tensor: ...
    @overload
    def __call__(self, iou: float, alpha: Tensor) -> Tensor: ...


def _weight(
    formula: Callable[
        [Float[Tensor, "*#batch"], Float[Tensor, "*#batch"]], Float[Tensor, "*batch"]
    ],
) -> _Weight:
    """Extend a tensor formula to floats, which are checked."""

    @wraps(formula)
    def weight(iou: float | Tensor, alpha: float | Tensor) -> float | Tensor:
        _check_iou(iou)
        _check_alpha(alpha)
        if isinstance(iou, Tensor) or isinstance(alpha, Tensor):
            iou, alpha = _as_tensors(iou, alpha)
            return formula(iou, alpha)
        return formula(_as_tensor(iou), _as_tensor(alpha)).item()

    return weight  # type: ignore[return-value]  # the overloads say what the union cannot


@_weight
def relative_loss_weight(
    iou: Float[Tensor, "*#batch"], alpha: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*batch"]:
    """Return the ratio of the α-IoU loss to the IoU loss (property 2).

        w_Lr = (1 − IoU^α) / (1 − IoU) = 1 + (IoU − IoU^α) / (1 − IoU)

    It is 1 at IoU 0 and tends monotonically to α as the IoU tends to 1.

    Args:
        iou: Overlaps in [0, 1].
        alpha: Powers above 0.

    Returns:
        The weights, in the broadcast shape; a float if both arguments are floats.

    Raises:
        ValueError: If a float is out of range. Tensors are not checked, to avoid a host sync.

    Examples:
        >>> [relative_loss_weight(iou, 3.0) for iou in (0.0, 0.5, 1.0)]
        [1.0, 1.75, 3.0]
    """
    high = iou > 0.5
    # With u = log IoU the ratio is α·exprel(αu)/exprel(u), which has no 0/0 at u = 0.
    log_iou = torch.log(torch.where(high, iou, 1.0))
    near_one = alpha * _exprel(alpha * log_iou) / _exprel(log_iou)
    low = torch.where(high, 0.25, iou)
    return torch.where(high, near_one, (1 - low**alpha) / (1 - low))


@_weight
def relative_gradient_weight(
    iou: Float[Tensor, "*#batch"], alpha: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*batch"]:
    """Return the ratio of the α-IoU gradient to the IoU gradient (property 3).

        w_∇r = α · IoU^(α−1)

    It is the absolute gradient of ``1 − IoU^α`` by the IoU, as that of ``1 − IoU`` is 1. It passes
    1 at the turning point and ends at α. At IoU 0 it is 0 for α > 1 and infinite for α < 1.

    Args:
        iou: Overlaps in [0, 1].
        alpha: Powers above 0.

    Returns:
        The weights, in the broadcast shape; a float if both arguments are floats.

    Raises:
        ValueError: If a float is out of range. Tensors are not checked, to avoid a host sync.

    Examples:
        >>> [relative_gradient_weight(iou, 3.0) for iou in (0.0, 0.5, 1.0)]
        [0.0, 0.75, 3.0]
    """
    return alpha * iou ** (alpha - 1)


@_weight
def absolute_loss_weight(
    iou: Float[Tensor, "*#batch"], alpha: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*batch"]:
    """Return the α-IoU loss minus the IoU loss (property 4).

        w_La = IoU − IoU^α

    It is 0 at IoU 0 and 1, positive between them for α > 1, negative for α < 1, and farthest from
    0 at the turning point.

    Args:
        iou: Overlaps in [0, 1].
        alpha: Powers above 0.

    Returns:
        The weights, in the broadcast shape; a float if both arguments are floats.

    Raises:
        ValueError: If a float is out of range. Tensors are not checked, to avoid a host sync.

    Examples:
        >>> [absolute_loss_weight(iou, 2.0) for iou in (0.0, 0.5, 1.0)]
        [0.0, 0.25, 0.0]
    """
    positive, zero, growth = _power_minus_one(iou, alpha)
    # 0 − growth rather than −growth, so that IoU 1 gives 0 and not −0.
    return torch.where(positive, iou * (0 - growth), zero - zero**alpha)


@_weight
def absolute_gradient_weight(
    iou: Float[Tensor, "*#batch"], alpha: Float[Tensor, "*#batch"]
) -> Float[Tensor, "*batch"]:
    """Return the absolute α-IoU gradient minus that of the IoU loss (property 5).

        w_∇a = α · IoU^(α−1) − 1

    It changes sign at the turning point and ends at α − 1. At IoU 0 it is −1 for α > 1 and infinite
    for α < 1.

    Args:
        iou: Overlaps in [0, 1].
        alpha: Powers above 0.

    Returns:
        The weights, in the broadcast shape; a float if both arguments are floats.

    Raises:
        ValueError: If a float is out of range. Tensors are not checked, to avoid a host sync.

    Examples:
        >>> [absolute_gradient_weight(iou, 3.0) for iou in (0.0, 0.5, 1.0)]
        [-1.0, -0.25, 2.0]
    """
    positive, zero, growth = _power_minus_one(iou, alpha)
    return torch.where(positive, (alpha - 1) + alpha * growth, alpha * zero ** (alpha - 1) - 1)


@overload
def turning_point(alpha: float) -> float: ...
@overload
def turning_point(alpha: Float[Tensor, "*batch"]) -> Float[Tensor, "*batch"]: ...
def turning_point(alpha: float | Tensor) -> float | Tensor:
    """Return the IoU at which α neither raises nor lowers the gradient (properties 3 to 5).

        IoU* = α^(1/(1−α)),    1/e in the limit α → 1

    Above it an α > 1 gives larger gradients than the IoU loss, below it smaller ones; for α < 1 it
    is the other way round. It is where ``absolute_loss_weight`` is farthest from 0.

    Args:
        alpha: Powers above 0.

    Returns:
        The overlaps, in the shape of ``alpha``; a float for a float.

    Raises:
        ValueError: If a float is out of range. Tensors are not checked, to avoid a host sync.

    Examples:
        >>> [round(turning_point(alpha), 3) for alpha in (0.5, 1.0, 2.0, 3.0)]
        [0.25, 0.368, 0.5, 0.577]
    """
    _check_alpha(alpha)
    power = _as_tensor(alpha)
    # log α / (α − 1) with s = (α−1)/(α+1) is (1−s)·atanh(s)/s, whose series has no 0/0 at α = 1.
    ratio = (power - 1) / (power + 1)
    small = ratio.abs() < 0.2
    near_one = torch.where(small, ratio, 0.0)
    series = (1 - near_one) * _polynomial([1 / (2 * k + 1) for k in range(12)], near_one**2)
    far = torch.where(small, 2.0, power)
    point = torch.exp(-torch.where(small, series, torch.log(far) / (far - 1)))
    return point if isinstance(alpha, Tensor) else point.item()


def _power_minus_one(iou: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the IoU has a logarithm, the IoUs without one, and IoU^(α−1) − 1.

    The last is free of cancellation, and like the second it is 1 − 1 where it does not apply, so
    that no infinite slope of the branch not taken turns the gradient into 0 · ∞.
    """
    positive = iou > torch.finfo(iou.dtype).tiny
    growth = torch.expm1((alpha - 1) * torch.log(torch.where(positive, iou, 1.0)))
    return positive, torch.where(positive, 1.0, iou), growth


def _exprel(z: Tensor) -> Tensor:
    """Return (e^z − 1)/z, with its value 1 and its derivatives at z = 0."""
    small = z.abs() < 0.5
    series = _polynomial([1 / math.factorial(k + 1) for k in range(15)], torch.where(small, z, 0.0))
    far = torch.where(small, 1.0, z)
    return torch.where(small, series, torch.expm1(far) / far)


def _polynomial(coefficients: list[float], z: Tensor) -> Tensor:
    """Evaluate a polynomial, the constant coefficient first, by Horner's rule."""
    total = torch.full_like(z, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * z + coefficient
    return total


def _as_tensors(iou: float | Tensor, alpha: float | Tensor) -> tuple[Tensor, Tensor]:
    """Bring both arguments to one dtype and device, a float to those of the tensor."""
    reference = iou if isinstance(iou, Tensor) else alpha
    assert isinstance(reference, Tensor)
    dtype = reference.dtype if reference.is_floating_point() else torch.get_default_dtype()
    if isinstance(iou, Tensor) and isinstance(alpha, Tensor):
        dtype = torch.promote_types(dtype, alpha.dtype)
    return (
        torch.as_tensor(iou, dtype=dtype, device=reference.device),
        torch.as_tensor(alpha, dtype=dtype, device=reference.device),
    )


def _as_tensor(value: float | Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def _check_iou(iou: float | Tensor) -> None:
    if not isinstance(iou, Tensor) and not 0 <= iou <= 1:
        raise ValueError(f"iou must be in [0, 1], got {iou!r}")


def _check_alpha(alpha: float | Tensor) -> None:
    if not isinstance(alpha, Tensor) and not 0 < alpha < math.inf:
        raise ValueError(f"alpha must be positive and finite, in (0, inf), got {alpha!r}")
