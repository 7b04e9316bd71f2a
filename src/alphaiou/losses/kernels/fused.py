"""The fused backend: loss and gradient in one kernel, as one operator that torch.compile knows.

On CUDA the kernel is compiled by Triton (``triton.py``), on the CPU by torch's own compiler
(``cpu.py``), both from the functions in ``analytic.py``. Second derivatives use the reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from shutil import which
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from alphaiou.losses.formula import Exponent, reference_loss
from alphaiou.losses.kinds import ResolvedKind, kind_from_numbers
from alphaiou.losses.modifiers import Modifier

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_HAS_TRITON = find_spec("triton") is not None
_HAS_COMPILER = any(map(which, (os.environ.get("CXX") or "g++", "g++", "clang++", "cl")))


def why_not_fused(
    pred: Tensor,
    target: Tensor,
    kind: ResolvedKind,
    modifiers: Sequence[str | Modifier],
    alphas: tuple[Exponent, Exponent],
    weight: Tensor | None,
) -> str | None:
    """The reason why the fused backend cannot serve this call; ``None`` if it can."""
    others = [x for x in (target, weight, *(a.tensor for a in alphas)) if x is not None]
    reason = None
    if pred.dtype not in _DTYPES:
        reason = "pred must be fp32, fp16 or bf16"
    elif target.dtype not in _DTYPES:
        reason = "target must be fp32, fp16 or bf16"
    elif not (pred.is_cuda or pred.is_cpu):
        reason = "there are kernels for cuda and cpu only"
    elif any(x.get_device() != pred.get_device() for x in others):
        reason = "all tensors must be on one device"
    elif any(x.requires_grad for x in others):
        reason = "only pred may require a gradient"
    elif modifiers:
        reason = "modifiers have no kernel"
    elif kind.kernel is None:
        reason = "a kind of your own has no kernel"
    elif torch._C._are_functorch_transforms_active():
        reason = "torch.func transforms have no kernel"
    elif forward_ad._current_level >= 0:
        reason = "forward-mode derivatives have no kernel"
    elif pred.is_cuda and not _HAS_TRITON:
        reason = "Triton is missing (pip install triton)"
    elif not pred.is_cuda and not _HAS_COMPILER:
        reason = "the CPU kernel needs a C++ compiler (g++, clang++ or cl; or name one in CXX)"
    return reason


def fused_loss(
    pred: Tensor,
    target: Tensor,
    *,
    kind: ResolvedKind,
    alphas: tuple[Exponent, Exponent],
    box_cox: bool,
    box_format: str,
    weight: Tensor | None,
    scale: float,
    reduce: bool,
) -> Tensor:
    """The loss of each pair, or its sum, times ``scale``."""
    inputs = (
        pred.contiguous(),
        target.contiguous(),
        None if weight is None else weight.contiguous(),
        *(_in_one_piece(alpha.tensor, pred) for alpha in alphas),
        *(alpha.number for alpha in alphas),
        kind.name,
        kind.parameter,
        box_cox,
        box_format,
        scale,
        reduce,
        pred.requires_grad and torch.is_grad_enabled(),
    )
    # Eager calls go past the operator, whose dispatch costs more than the kernel of a small batch.
    compiling = torch.compiler.is_compiling()
    loss: Tensor = _fused_loss(*inputs)[0] if compiling else _EagerFusedLoss.apply(pred, inputs)
    return loss


def _in_one_piece(alpha: Tensor | None, pred: Tensor) -> Tensor | None:
    """The tensor of an α as a kernel reads it: one number, or one per pair."""
    if alpha is None or alpha.numel() == 1:
        return alpha if alpha is None else alpha.reshape(())
    return torch.broadcast_to(alpha, pred.shape[:-1]).contiguous()


def _launch(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha_each: Tensor | None,
    penalty_alpha_each: Tensor | None,
    alpha: float,
    penalty_alpha: float,
    kind: str,
    parameter: Sequence[float],
    box_cox: bool,
    box_format: str,
    scale: float,
    reduce: bool,
    want_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, both times ``scale``; the gradient is empty unless wanted.

    An operator takes tensors and numbers only: hence the parts of each ``Exponent``, and a kind as
    its name and its parameter, if that was given.
    """
    resolved = kind_from_numbers(kind, parameter)
    return _launcher(pred)(
        pred,
        target,
        weight,
        (Exponent(alpha_each, alpha), Exponent(penalty_alpha_each, penalty_alpha)),
        kind=resolved.kernel,
        parameter=resolved.number,
        box_cox=box_cox,
        box_format=box_format,
        scale=scale,
        reduce=reduce,
        want_grad=want_grad,
    )


_fused_loss = torch.library.custom_op("alphaiou::fused_loss", _launch, mutates_args=())


@_fused_loss.register_fake
def _shapes(pred: Tensor, *others: Any) -> tuple[Tensor, Tensor]:  # noqa: ANN401
    reduce, want_grad = others[-2:]
    loss = pred.new_empty(() if reduce else pred.shape[:-1], dtype=torch.float32)
    return loss, pred.new_empty(pred.shape if want_grad else 0, dtype=torch.float32)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:  # noqa: ANN401
    ctx.save_for_backward(*inputs[:5], output[1])
    ctx.settings = inputs[5:]
    ctx.set_materialize_grads(False)


def _gradient(ctx: Any, slope: Tensor | None) -> Tensor | None:  # noqa: ANN401
    pred, *others, grad = ctx.saved_tensors
    if slope is None:
        return None
    if torch.is_grad_enabled():
        return _reference_gradient(slope, pred, others, ctx.settings)
    return _scaled(grad, slope, pred.dtype)


def _backward(ctx: Any, slope: Tensor | None, unused: Tensor | None) -> tuple[Tensor | None, ...]:  # noqa: ANN401
    return (_gradient(ctx, slope), *[None] * (4 + len(ctx.settings)))


_fused_loss.register_autograd(_backward, setup_context=_keep)


class _EagerFusedLoss(torch.autograd.Function):
    """The same without the operator; only ``pred`` may require a gradient."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, inputs: tuple[Any, ...]) -> Tensor:  # noqa: ANN401
        output = _launch(*inputs)
        _keep(ctx, (pred, *inputs[1:]), output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return _gradient(ctx, *slopes), None


#: From this many numbers in a gradient on, a separate kernel scales it faster.
_LARGE = 1 << 20


def _scaled(grad: Tensor, slope: Tensor, dtype: torch.dtype) -> Tensor:
    """The saved gradient times the incoming one, in the precision of the boxes."""
    if grad.is_cuda and slope.ndim == 0 and grad.numel() >= _LARGE:
        from alphaiou.losses.kernels.triton import scaled

        return scaled(grad, slope, dtype)
    return _narrowed(grad * (slope if slope.ndim == 0 else slope[..., None]), dtype)


def _narrowed(grad: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient in the precision of the boxes; fp16 saturates instead of overflowing."""
    if dtype == torch.float32:
        return grad
    if dtype == torch.float16:
        limit = torch.finfo(dtype).max
        grad = grad.clamp(-limit, limit)
    return grad.to(dtype)


def _reference_gradient(
    slope: Tensor, pred: Tensor, others: list[Tensor | None], settings: tuple[Any, ...]
) -> Tensor:
    """The gradient as a function that can be differentiated again."""
    target, weight, alpha_each, penalty_alpha_each = others
    alpha, penalty_alpha, kind, parameter, box_cox, box_format, scale, reduce, _ = settings
    loss = reference_loss(
        pred,
        target,  # type: ignore[arg-type]
        terms_of=kind_from_numbers(kind, parameter).terms,
        alphas=(Exponent(alpha_each, alpha), Exponent(penalty_alpha_each, penalty_alpha)),
        box_cox=box_cox,
        box_format=box_format,
        weight=weight,
        reduce=reduce,
    )
    (grad,) = torch.autograd.grad(loss * scale, pred, slope, create_graph=True)
    return grad


def _launcher(pred: Tensor) -> Callable[..., tuple[Tensor, Tensor]]:
    return _triton_launch() if pred.is_cuda or _interpreted() else _cpu_launch()


@cache
def _triton_launch() -> Callable[..., tuple[Tensor, Tensor]]:
    from alphaiou.losses.kernels.triton import launch

    return launch


@cache
def _cpu_launch() -> Callable[..., tuple[Tensor, Tensor]]:
    from alphaiou.losses.kernels.cpu import launch

    return launch


def _interpreted() -> bool:
    """Whether Triton's interpreter is on, in which kernels run on the CPU."""
    if not _HAS_TRITON:
        return False
    import triton

    return bool(triton.knobs.runtime.interpret)
