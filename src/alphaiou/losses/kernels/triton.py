"""The fused kernel for CUDA: ``analytic.pair_loss`` compiled by Triton, one program per block.

The gradient is computed together with the loss, while everything it needs is in registers, and only
scaled in the backward pass: 48 bytes per pair forward and 32 backward, the least that two passes
can move.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from alphaiou.losses.formula import Exponent
from alphaiou.losses.kernels import analytic

#: Two pairs per thread: with more, registers run out before the memory pipes are busy.
_BLOCK, _WARPS = 128, 2
#: Up to this many pairs one program does everything, the reduction included.
_SINGLE_BLOCK = 2048


@triton.jit
def _reciprocal(value):
    return tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _log2(value):
    return tl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _exp2(value):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [value], dtype=tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _rounded_product(a, b):
    # Contracting a·b + c into one rounding would break the exact zeros at identical boxes.
    return tl.inline_asm_elementwise(
        "mul.rn.f32 $0, $1, $2;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1
    )


_MACHINE = {
    "reciprocal": _reciprocal,
    "log2": _log2,
    "exp2": _exp2,
    "rounded_product": _rounded_product,
}


def _translated(name: str) -> Any:  # noqa: ANN401
    """A function of ``analytic`` compiled by Triton: the same source, with Triton's own ``tl``."""
    scope: dict[str, Any] = {"__name__": __name__, "tl": tl}
    for key, value in vars(analytic).items():
        if isinstance(value, float):
            scope[key] = tl.constexpr(value)
        elif isinstance(value, FunctionType) and value.__module__ == analytic.__name__:
            scope[key] = triton.jit(FunctionType(value.__code__, scope, key))
        elif isinstance(value, type) and issubclass(value, tuple):
            scope[key] = value
    if not triton.knobs.runtime.interpret:
        scope.update(_MACHINE)
    return scope[name]


pair_loss = _translated("pair_loss")


@triton.jit
def _coordinates(boxes, BLOCK: tl.constexpr):
    """The four columns of a block of boxes."""
    pairs = tl.reshape(boxes, [BLOCK, 2, 2])
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit(do_not_specialize=["count"])
def _fused_loss_kernel(
    pred_ptr,
    target_ptr,
    weight_ptr,
    alpha_ptr,
    penalty_alpha_ptr,
    loss_ptr,
    grad_ptr,
    count,
    alpha,
    penalty_alpha,
    parameter,
    scale,
    ALPHA_STRIDE: tl.constexpr,
    PENALTY_ALPHA_STRIDE: tl.constexpr,
    KIND: tl.constexpr,
    BOX_COX: tl.constexpr,
    BOX_FORMAT: tl.constexpr,
    REDUCE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < count
    cells = rows[:, None] * 4 + tl.arange(0, 4)[None, :]
    counts = inside
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + rows, mask=inside, other=0.0).to(tl.float32)
        # Pairs that count for nothing become identical boxes: loss and gradient are exactly 0.
        counts = inside & (weight != 0)
    zeros = tl.zeros([BLOCK], tl.float32)
    if alpha_ptr is not None:
        alpha = tl.load(alpha_ptr + rows * ALPHA_STRIDE, mask=inside, other=1.0).to(tl.float32)
    else:
        alpha = zeros + alpha
    if penalty_alpha_ptr is not None:
        at = penalty_alpha_ptr + rows * PENALTY_ALPHA_STRIDE
        penalty_alpha = tl.load(at, mask=inside, other=1.0).to(tl.float32)
    else:
        penalty_alpha = zeros + penalty_alpha
    pred = tl.load(pred_ptr + cells, mask=counts[:, None], other=0.0).to(tl.float32)
    target = tl.load(target_ptr + cells, mask=counts[:, None], other=0.0).to(tl.float32)
    px, py, pw, ph = _coordinates(pred, BLOCK)
    tx, ty, tw, th = _coordinates(target, BLOCK)
    loss, grad_x, grad_y, grad_w, grad_h = pair_loss(
        px,
        py,
        pw,
        ph,
        tx,
        ty,
        tw,
        th,
        alpha,
        penalty_alpha,
        zeros + parameter,
        KIND,
        BOX_COX,
        BOX_FORMAT,
    )
    factor = scale
    if weight_ptr is not None:
        factor = weight * scale
    loss = loss * factor
    if REDUCE:
        tl.store(loss_ptr + tl.program_id(0), tl.sum(loss))
    else:
        tl.store(loss_ptr + rows, loss, mask=inside)
    if grad_ptr is not None:
        first, second = tl.join(grad_x, grad_w), tl.join(grad_y, grad_h)
        grad = tl.reshape(tl.join(first, second), [BLOCK, 4])
        if weight_ptr is not None:
            grad = grad * factor[:, None]
        else:
            grad = grad * scale
        tl.store(grad_ptr + cells, grad, mask=inside[:, None])


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
    single = reduce and count <= _SINGLE_BLOCK
    block = 1 << max(count - 1, 31).bit_length() if single else _BLOCK
    programs = -(-count // block)
    loss_shape = (() if single else (programs,)) if reduce else pred.shape[:-1]
    loss = torch.empty(loss_shape, dtype=torch.float32, device=pred.device)
    grad = torch.empty(pred.shape if want_grad else 0, dtype=torch.float32, device=pred.device)
    if count == 0:
        return loss.zero_(), grad
    (alpha_ptr, alpha), (penalty_ptr, penalty_alpha) = alphas
    tensors = (pred, target, weight, alpha_ptr, penalty_ptr, loss, grad if want_grad else None)
    numbers = (count, alpha, penalty_alpha, parameter, scale)
    constants = (_stride(alpha_ptr), _stride(penalty_ptr), kind, box_cox, box_format, reduce, block)
    with _on_device_of(pred):
        _run(programs, tensors, numbers, constants)
    return (loss.sum() if reduce and not single else loss), grad


#: The kernels compiled so far, by everything that Triton compiles a separate kernel for.
_COMPILED: dict[tuple[Any, ...], Any] = {}


def _run(
    programs: int,
    tensors: tuple[Tensor | None, ...],
    numbers: tuple[float, ...],
    constants: tuple[Any, ...],
) -> None:
    """Launch without Triton's lookup of the compiled kernel, which takes longer than the kernel."""
    pointers = [x if x is None else (x.dtype, x.data_ptr() % 16 == 0, x.device) for x in tensors]
    key = (*pointers, numbers[0] < 1 << 31, *constants)
    kernel = _COMPILED.get(key)
    if kernel is None:
        block = constants[-1]
        warps = _WARPS if block == _BLOCK else min(block // 32, 32)
        compile_and_run = _fused_loss_kernel[(programs,)]
        _COMPILED[key] = compile_and_run(*tensors, *numbers, *constants, num_warps=warps)
    else:
        kernel[programs, 1, 1](*tensors, *numbers, *constants)


def _on_device_of(boxes: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device; switching costs time, so only where it is needed."""
    if not boxes.is_cuda or boxes.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device_of(boxes)


@triton.jit
def _scaled_kernel(grad_ptr, slope_ptr, out_ptr, count, LIMIT: tl.constexpr, BLOCK: tl.constexpr):
    cells = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = cells < count
    grad = tl.load(grad_ptr + cells, mask=inside, other=0.0) * tl.load(slope_ptr)
    if LIMIT is not None:
        grad = tl.minimum(tl.maximum(grad, -LIMIT), LIMIT)
    tl.store(out_ptr + cells, grad, mask=inside)


def scaled(grad: Tensor, slope: Tensor, dtype: torch.dtype) -> Tensor:
    """The gradient times the incoming one, on the device, in the precision of the boxes."""
    count, block = grad.numel(), 2048
    out = torch.empty_like(grad, dtype=dtype)
    limit = torch.finfo(dtype).max if dtype == torch.float16 else None
    with _on_device_of(grad):
        _scaled_kernel[(triton.cdiv(count, block),)](grad, slope, out, count, limit, block)
    return out


def _stride(alpha: Tensor | None) -> int:
    """The stride from pair to pair: 0 where all pairs share one α."""
    return int(alpha is not None and alpha.numel() > 1)
