"""Every Triton kernel, compiled for CUDA to machine code: that needs no GPU.

The interpreter runs a kernel as Python and accepts what Triton's compiler rejects, such as branches
that return tensors of different shapes.
"""

import os
from importlib import import_module
from importlib.util import find_spec

import pytest

from alphaiou.losses.kinds import kinds_of, resolve_kind
from tests.losses.catalogue import KINDS as CATALOGUE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.skipif(
        os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter compiles nothing"
    ),
    pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION"),
]
OPS = "alphaiou.detectors.ops.kernels"
LOSS_KERNELS = sorted({resolve_kind(twin.ours).kernel for twin in CATALOGUE.values()})
FORMATS = ("xyxy", "xywh", "cxcywh")


def machine_code(module, kernel, arguments):
    """A kernel of a module as code for Hopper; an argument is a type, or a constant's value."""
    import triton
    from triton.backends.compiler import GPUTarget

    function = getattr(import_module(module), kernel)
    assert set(arguments) == set(function.arg_names)
    types = {name: arguments[name] for name in function.arg_names}
    constants = {
        (place,): value
        for place, value in enumerate(types.values())
        if not (isinstance(value, str) and value.lstrip("*") in TYPES)
    }
    for (place,) in constants:
        types[function.arg_names[place]] = "constexpr"
    source = triton.compiler.ASTSource(fn=function, signature=types, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


TYPES = {"fp64", "fp32", "fp16", "bf16", "i64", "i32", "i8"}


def test_kernels_of_all_kinds_are_listed():
    assert len(LOSS_KERNELS) >= len(kinds_of())
    assert None not in LOSS_KERNELS


@pytest.mark.parametrize("number", range(len(LOSS_KERNELS)), ids=LOSS_KERNELS)
def test_loss(number):
    """All kinds; formats, precisions and what is optional take turns."""
    whole = number % 2 == 1  # with weights, tensors of α, and a sum
    arguments = {
        "pred_ptr": ("*fp32", "*fp16", "*bf16")[number % 3],
        "target_ptr": "*fp32",
        "weight_ptr": "*fp32" if whole else None,
        "alpha_ptr": "*fp32" if whole else None,
        "penalty_alpha_ptr": "*fp32" if whole else None,
        "loss_ptr": "*fp32",
        "grad_ptr": "*fp32" if number % 5 else None,
        "count": "i32",
        **dict.fromkeys(("alpha", "penalty_alpha", "parameter", "scale"), "fp32"),
        "ALPHA_STRIDE": int(whole),
        "PENALTY_ALPHA_STRIDE": 0,
        "KIND": LOSS_KERNELS[number],
        "BOX_COX": number % 4 > 1,
        "BOX_FORMAT": FORMATS[number % 3],
        "REDUCE": whole,
        "BLOCK": 128,
    }
    assert machine_code("alphaiou.losses.kernels.triton", "_fused_loss_kernel", arguments)


def test_backward_of_a_loss():
    arguments = {
        **dict.fromkeys(("grad_ptr", "slope_ptr"), "*fp32"),
        "out_ptr": "*fp16",
        "count": "i32",
        "LIMIT": 65504.0,
        "BLOCK": 2048,
    }
    assert machine_code("alphaiou.losses.kernels.triton", "_scaled_kernel", arguments)


def test_nms():
    arguments = {
        "boxes": "*fp32",
        "groups": "*i64",
        **dict.fromkeys(("valid", "keep"), "*i8"),
        "threshold": "*fp64",
        "count": "i32",
        "SLOTS": 128,
    }
    assert machine_code(f"{OPS}.nms", "_scan", arguments)


def test_assignment():
    arguments = {
        "cost_ptr": "*fp32",
        **dict.fromkeys(("counts_ptr", "found_ptr"), "*i64"),
        **dict.fromkeys(("rows", "width"), "i32"),
        "SLOTS": 128,
    }
    assert machine_code(f"{OPS}.assignment", "_solve", arguments)


@pytest.mark.parametrize("kernel", ["_pool", "_spread"])
def test_pooling(kernel):
    tensors = ("features", "pooled") if kernel == "_pool" else ("gradient", "into")
    arguments = {
        tensors[0]: "*bf16",
        "places": "*fp32",
        "bounds": "*i32",
        tensors[1]: "*bf16" if kernel == "_pool" else "*fp32",
        **dict.fromkeys(("channels", "rows", "columns"), "i32"),
        "BLOCK": 256,
    }
    assert machine_code(f"{OPS}.pooling", kernel, arguments)


@pytest.mark.parametrize("kernel", ["_moments", "_normalise", "_gradient_sums", "_gradients"])
def test_norm_silu(kernel):
    function = getattr(import_module(f"{OPS}.norm_silu"), kernel)
    half = ("gradient", "x", "plus", "out", "to_x")
    numbers = {"rows": "i32", "channels": "i32", "stride": "i32", "plus_stride": "i32"}
    constants = {"PARTS": 8, "BLOCK_R": 64, "BLOCK_C": 32, "STAGES": 2}
    known = {**dict.fromkeys(half, "*bf16"), **numbers, "eps": "fp32", **constants}
    arguments = {name: known.get(name, "*fp32") for name in function.arg_names}
    assert machine_code(f"{OPS}.norm_silu", kernel, arguments)
