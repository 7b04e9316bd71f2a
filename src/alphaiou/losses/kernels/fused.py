"""The fused backend: loss and gradient in one kernel, as one operator that torch.compile knows.

On CUDA the kernel is compiled by Triton (``triton.py``), on the CPU by torch's own compiler
(``cpu.py``), both from the functions in ``analytic.py``. ``plain.py`` runs these without
a compiler, for ``backend="auto"`` on the CPU. Second derivatives use the reference.
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
from alphaiou.losses.kernels import plain
from alphaiou.losses.kinds import ResolvedKind, kind_from_numbers
from alphaiou.losses.modifiers import Modifier
from alphaiou.numerics import TORCH, is_compiling, is_readable, is_traced

Launcher = Callable[..., tuple[Tensor, Tensor]]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
#: Older versions have no operators in Python, or cannot read their types from text.
_HAS_OPERATORS = TORCH >= (2, 5)
_HAS_TRITON = find_spec("triton") is not None
_HAS_COMPILER = any(map(which, (os.environ.get("CXX") or "g++", "g++", "clang++", "cl")))


def why_not_fused(
    pred: Tensor,
    target: Tensor,
    kind: ResolvedKind,
    box_format: str,
    modifiers: Sequence[str | Modifier],
    alphas: tuple[Exponent, Exponent],
    weight: Tensor | None,
) -> str | None:
    """The reason why the fused backend cannot serve this call; ``None`` if it can."""
    if pred.dtype not in _DTYPES:
        return "pred must be fp32, fp16 or bf16"
    if target.dtype not in _DTYPES:
        return "target must be fp32, fp16 or bf16"
    if not (pred.is_cuda or pred.is_cpu):
        return "there are kernels for cuda and cpu only"
    reason = _why_not_analytic(pred, target, kind, box_format, modifiers, alphas, weight)
    return reason or _what_is_missing(pred.is_cuda)


def is_plain(
    pred: Tensor,
    target: Tensor,
    kind: ResolvedKind,
    box_format: str,
    modifiers: Sequence[str | Modifier],
    alphas: tuple[Exponent, Exponent],
    weight: Tensor | None,
) -> bool:
    """Whether ``plain_loss`` serves this call: a training step on the CPU, outside a compiler."""
    return (
        pred.requires_grad
        and torch.is_grad_enabled()
        and is_readable(pred)
        and {pred.dtype, target.dtype} <= {*_DTYPES, torch.float64}
        and _why_not_analytic(pred, target, kind, box_format, modifiers, alphas, weight) is None
    )


def _why_not_analytic(
    pred: Tensor,
    target: Tensor,
    kind: ResolvedKind,
    box_format: str,
    modifiers: Sequence[str | Modifier],
    alphas: tuple[Exponent, Exponent],
    weight: Tensor | None,
) -> str | None:
    """Why ``analytic`` does not have the loss or the gradient of a call."""
    first, second = alphas
    others = [x for x in (target, weight, first.tensor, second.tensor) if x is not None]
    reason = None
    if any(x.get_device() != pred.get_device() for x in others):
        reason = "all tensors must be on one device"
    elif any(x.requires_grad for x in others):
        reason = "only pred may require a gradient"
    elif modifiers:
        reason = "modifiers have no kernel"
    elif box_format == "cxcywhr":
        reason = "oriented boxes have no kernel"
    elif kind.kernel is None:
        reason = "a kind of your own has no kernel"
    elif is_traced():
        reason = "torch.jit.trace cannot record a kernel"
    elif torch._C._are_functorch_transforms_active():
        reason = "torch.func transforms have no kernel"
    elif forward_ad._current_level >= 0:
        reason = "forward-mode derivatives have no kernel"
    return reason


def _what_is_missing(cuda: bool) -> str | None:
    """What the machine lacks for the kernel; ``None`` if nothing."""
    if not _HAS_OPERATORS:
        return f"the kernels need torch 2.5 or newer, this is {torch.__version__}"
    if cuda and not _HAS_TRITON:
        return "Triton is missing (pip install triton)"
    if not cuda and not _HAS_COMPILER:
        return "the CPU kernel needs a C++ compiler (g++, clang++ or cl; or name one in CXX)"
    return None


def fused_loss(pred: Tensor, target: Tensor, **options: Any) -> Tensor:  # noqa: ANN401
    """The loss of each pair, or its sum, times ``scale``."""
    inputs = _inputs(pred, target, **options)
    # Eager calls go past the operator, whose dispatch costs more than the kernel of a small batch.
    if is_compiling():
        loss: Tensor = _fused_loss(*inputs)[0]
        return loss
    return _EagerLoss.apply(pred, _launcher(pred), inputs)  # type: ignore[no-any-return]


def plain_loss(pred: Tensor, target: Tensor, **options: Any) -> Tensor:  # noqa: ANN401
    """The same in plain operations."""
    inputs = _inputs(pred, target, **options)
    return _EagerLoss.apply(pred, plain.launch, inputs)  # type: ignore[no-any-return]


def _inputs(
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
) -> tuple[Any, ...]:
    (alpha_each, alpha), (penalty_alpha_each, penalty_alpha) = alphas
    return (
        pred.contiguous(),
        target.contiguous(),
        None if weight is None else weight.contiguous(),
        None if alpha_each is None else _in_one_piece(alpha_each, pred),
        None if penalty_alpha_each is None else _in_one_piece(penalty_alpha_each, pred),
        alpha,
        penalty_alpha,
        kind.name,
        kind.parameter,
        box_cox,
        box_format,
        scale,
        reduce,
        pred.requires_grad and torch.is_grad_enabled(),
    )


def _in_one_piece(alpha: Tensor, pred: Tensor) -> Tensor:
    """The tensor of an α as a kernel reads it: one number, or one per pair."""
    if alpha.numel() == 1:
        return alpha.reshape(())
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
    return _run(
        _launcher(pred),
        pred,
        target,
        weight,
        alpha_each,
        penalty_alpha_each,
        alpha,
        penalty_alpha,
        kind,
        parameter,
        box_cox,
        box_format,
        scale,
        reduce,
        want_grad,
    )


def _run(
    launcher: Launcher,
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
    resolved = kind_from_numbers(kind, parameter)
    return launcher(
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


if _HAS_OPERATORS:
    _fused_loss = torch.library.custom_op("alphaiou::fused_loss", _launch, mutates_args=())
    _fused_loss.register_fake(_shapes)
    _fused_loss.register_autograd(_backward, setup_context=_keep)


class _EagerLoss(torch.autograd.Function):
    """The same without the operator, by any launcher; only ``pred`` may require a gradient."""

    @staticmethod
    def forward(ctx: Any, pred: Tensor, launcher: Launcher, inputs: tuple[Any, ...]) -> Tensor:  # noqa: ANN401
        output = _run(launcher, *inputs)
        _keep(ctx, (pred, *inputs[1:]), output)
        return output[0]

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        return _gradient(ctx, *slopes), None, None


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


def _launcher(pred: Tensor) -> Launcher:
    return _triton_launch() if pred.is_cuda or _interpreted() else _cpu_launch()


@cache
def _triton_launch() -> Launcher:
    from alphaiou.losses.kernels.triton import launch

    return launch


@cache
def _cpu_launch() -> Launcher:
    from alphaiou.losses.kernels.cpu import launch

    return launch


def _interpreted() -> bool:
    """Whether Triton's interpreter is on, in which kernels run on the CPU."""
    if not _HAS_TRITON:
        return False
    import triton

    if not hasattr(triton, "knobs"):  # until Triton 3.3
        return os.environ.get("TRITON_INTERPRET", "0") == "1"
    return bool(triton.knobs.runtime.interpret)
