"""The fused backend: loss and gradient in one kernel, as one operator that torch.compile knows.

On CUDA the kernel is compiled by Triton (``triton.py``), on the CPU by torch's own compiler
(``cpu.py``), both from the functions in ``analytic.py``. Second derivatives use the reference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.util import find_spec
from inspect import signature
from shutil import which
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from alphaiou.losses import kinds
from alphaiou.losses.formula import reference_loss
from alphaiou.losses.kinds import KINDS, TermsFunction
from alphaiou.losses.modifiers import Modifier
from alphaiou.numerics import Alpha, check_number

_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
_HAS_TRITON = find_spec("triton") is not None
_HAS_COMPILER = any(map(which, (os.environ.get("CXX") or "g++", "g++", "clang++", "cl")))


def kernel_of(kind: str | TermsFunction) -> tuple[str, float] | None:
    """The name and the one parameter of a kind's kernel; ``None`` for a user-defined kind."""
    if isinstance(kind, str):
        return _KERNELS.get(kind)
    function: Any = kind
    options: dict[str, Any] = {}
    if isinstance(function, partial) and not function.args:
        function, options = function.func, function.keywords
    for name in _KERNELS:
        if function is getattr(kinds, name):
            return _with_parameter(name, options)
    return None


#: The kinds with a kernel in ``analytic``; a new kind has none until it is listed here.
_KERNEL_KINDS = (
    *("iou", "giou", "diou", "ciou", "eiou", "siou"),
    *("mpdiou", "shape_iou", "piou", "nwd", "biou"),
)
_DEFAULTS: dict[str, dict[str, Any]] = {
    name: {
        option.name: option.default
        for option in signature(getattr(kinds, name)).parameters.values()
        if option.kind is option.KEYWORD_ONLY
    }
    for name in _KERNEL_KINDS
}
#: Kinds with a number as their parameter, and whether it must be more than 0.
_NUMBERS = {"shape_iou": ("scale", False), "nwd": ("constant", True), "biou": ("beta", True)}


def _with_parameter(name: str, options: dict[str, Any]) -> tuple[str, float]:
    """The kernel for these options of a kind, which are checked as in the reference."""
    for option in options:
        if option not in _DEFAULTS[name]:
            raise TypeError(f"{name}() got an unexpected keyword argument {option!r}")
    settings = _DEFAULTS[name] | options
    if name == "mpdiou" and settings["image_size"] is not None:
        return "mpdiou_in_image", kinds.image_diagonal(settings["image_size"])
    if name == "piou":
        kinds.check_piou_version(settings["version"])
        return ("piou", "piou_v2")[settings["version"] - 1], 0.0
    if name not in _NUMBERS:
        return name, 0.0
    option, positive = _NUMBERS[name]
    check_number(option, settings[option], strict=positive)
    return name, float(settings[option])


_KERNELS = {name: _with_parameter(name, {}) for name in _KERNEL_KINDS}


def why_not_fused(
    pred: Tensor,
    target: Tensor,
    kind: str | TermsFunction,
    modifiers: Sequence[str | Modifier],
    alphas: tuple[Alpha, Alpha],
    weight: Tensor | None,
) -> str | None:
    """The reason why the fused backend cannot serve this call; ``None`` if it can."""
    others = [x for x in (target, weight, *alphas) if isinstance(x, Tensor)]
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
    elif kernel_of(kind) is None:
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
    kind: str | TermsFunction,
    alphas: tuple[Alpha, Alpha],
    box_cox: bool,
    box_format: str,
    weight: Tensor | None,
    scale: float,
    reduce: bool,
) -> Tensor:
    """The loss of each pair, or its sum, times ``scale``."""
    kernel = kernel_of(kind)
    if kernel is None:
        raise ValueError(f"kind {kind!r} has no fused kernel; use backend='reference'")
    alpha_each, alpha = _split(alphas[0], pred)
    penalty_each, penalty_alpha = _split(alphas[1], pred)
    inputs = (
        pred.contiguous(),
        target.contiguous(),
        None if weight is None else weight.contiguous(),
        alpha_each,
        penalty_each,
        alpha,
        penalty_alpha,
        kernel[0],
        kernel[1],
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


def _split(alpha: Alpha, pred: Tensor) -> tuple[Tensor | None, float]:
    """An α as a tensor (of one number, or of one per pair) or as a number."""
    if not isinstance(alpha, Tensor):
        return None, alpha
    if alpha.numel() == 1:
        return alpha.reshape(()), 0.0
    return torch.broadcast_to(alpha, pred.shape[:-1]).contiguous(), 0.0


def _launch(
    pred: Tensor,
    target: Tensor,
    weight: Tensor | None,
    alpha_each: Tensor | None,
    penalty_alpha_each: Tensor | None,
    alpha: float,
    penalty_alpha: float,
    kind: str,
    parameter: float,
    box_cox: bool,
    box_format: str,
    scale: float,
    reduce: bool,
    want_grad: bool,
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, both times ``scale``; the gradient is empty unless wanted."""
    return _launcher(pred)(
        pred,
        target,
        weight,
        (
            alpha if alpha_each is None else alpha_each,
            penalty_alpha if penalty_alpha_each is None else penalty_alpha_each,
        ),
        kind=kind,
        parameter=parameter,
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
    alpha, penalty_alpha, kernel, parameter, box_cox, box_format, scale, reduce, _ = settings
    loss = reference_loss(
        pred,
        target,  # type: ignore[arg-type]
        terms_of=_terms_of(kernel, parameter),
        alphas=(
            alpha if alpha_each is None else alpha_each,
            penalty_alpha if penalty_alpha_each is None else penalty_alpha_each,
        ),
        box_cox=box_cox,
        box_format=box_format,
        weight=weight,
        reduce=reduce,
    )
    (grad,) = torch.autograd.grad(loss * scale, pred, slope, create_graph=True)
    return grad


def _terms_of(kernel: str, parameter: float) -> TermsFunction:
    """The reference of a kernel."""
    with_parameter: dict[str, Callable[[], TermsFunction]] = {
        "mpdiou_in_image": lambda: partial(
            kinds.mpdiou, image_size=(parameter * 0.6, parameter * 0.8)
        ),
        "piou_v2": lambda: partial(kinds.piou, version=2),
        "shape_iou": lambda: partial(kinds.shape_iou, scale=parameter),
        "nwd": lambda: partial(kinds.nwd, constant=parameter),
        "biou": lambda: partial(kinds.biou, beta=parameter),
    }
    return with_parameter[kernel]() if kernel in with_parameter else KINDS[kernel]


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
