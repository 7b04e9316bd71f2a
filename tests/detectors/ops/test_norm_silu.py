"""Batch norm with SiLU, against torch's in float64; the kernels in the interpreter."""

from copy import deepcopy

import pytest
import torch
from torch import nn

from alphaiou.detectors.ops import norm_silu as module
from alphaiou.detectors.ops.norm_silu import norm_silu
from alphaiou.detectors.yolov5.network import C3, Conv, fold_batch_norm
from tests.detectors.ops.kernels import DEVICE, check_in_the_interpreter, in_the_interpreter, kernel

pytestmark = pytest.mark.gpu

SHAPES = [(2, 8, 5, 7), (3, 80, 9, 11), (1, 33, 25, 31), (2, 1, 3, 3), (2, 16, 1, 1), (9, 3, 29, 1)]

#: Zeros are read past the last row, which a norm may make very small; a device says nothing.
past_the_rows = pytest.mark.filterwarnings("ignore:.*overflow encountered in exp2:RuntimeWarning")


def made_norm(channels, *, seed=0):
    """As YOLOv5 has it, and past its first steps."""
    generator = torch.Generator().manual_seed(seed)
    norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.03)
    with torch.no_grad():
        norm.weight.copy_(0.5 + torch.rand(channels, generator=generator))
        norm.bias.copy_(torch.randn(channels, generator=generator))
        norm.running_mean.copy_(torch.randn(channels, generator=generator))
        norm.running_var.copy_(0.5 + torch.rand(channels, generator=generator))
    return norm.to(DEVICE)


def numbers(*shape, seed=0, dtype=torch.float32):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)
    return made.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else made


def plainly(x, norm, plus=None):
    """What torch's own operators give, in float64, and the norm with its statistics moved."""
    exact = deepcopy(norm).double()
    y = nn.functional.silu(exact(x.double()))
    return (y if plus is None else y + plus.double()), exact


def check(x, norm, plus=None, *, gradient=None, tolerance=1e-5):
    """Values, gradients and running statistics against torch's in float64."""
    gradient = numbers(*x.shape, seed=3, dtype=x.dtype) if gradient is None else gradient
    leaves = [one.detach().requires_grad_() for one in (x, plus) if one is not None]
    exact_leaves = [one.detach().double().requires_grad_() for one in leaves]
    theirs, exact = plainly(exact_leaves[0], norm, *exact_leaves[1:])
    ours = norm_silu(leaves[0], norm, *leaves[1:])
    assert ours.dtype == x.dtype
    assert ours.is_contiguous(memory_format=torch.channels_last)
    wanted = [*exact_leaves, exact.weight, exact.bias]
    expected = torch.autograd.grad(theirs, wanted, gradient.double())
    found = torch.autograd.grad(ours, [*leaves, norm.weight, norm.bias], gradient)
    for mine, true in zip([ours, *found], [theirs, *expected], strict=True):
        assert mine.shape == true.shape
        # Half precision is rounded once, on its way out; the interpreter cuts off instead.
        own = tolerance if mine.dtype == torch.float32 else 1.01 * torch.finfo(mine.dtype).eps
        allowed = tolerance * max(1.0, true.abs().max().item())
        torch.testing.assert_close(mine.double(), true, rtol=own, atol=allowed)
    for name in ("running_mean", "running_var"):
        mine, true = getattr(norm, name).double(), getattr(exact, name)
        torch.testing.assert_close(mine, true, rtol=1e-6, atol=tolerance / 10)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_kernel_is_torchs(shape, dtype):
    kernel("norm_silu")
    x = 2.0 * numbers(*shape) + 3.0
    plus = numbers(*shape, seed=1, dtype=dtype) if shape[1] != 80 else None
    check(x.to(dtype), made_norm(shape[1]), plus)


@past_the_rows
def test_the_kernel_at_large_means():
    kernel("norm_silu")
    # The mean itself has an error of 3e-5 there: a number of fp32 near 1000 is no finer.
    check(1000.0 + numbers(2, 8, 24, 24), made_norm(8), tolerance=1e-4)


def test_the_kernel_with_parts_of_no_rows(monkeypatch):
    kernel("norm_silu")
    from alphaiou.detectors.ops.kernels import norm_silu as norm_silu_kernel

    monkeypatch.setattr(norm_silu_kernel, "FEWEST_ROWS", 1)
    assert norm_silu_kernel.layout(9, 3, processors=4).parts == 8
    check(numbers(1, 3, 1, 9), made_norm(3))


@past_the_rows
def test_the_kernel_where_nothing_varies():
    kernel("norm_silu")
    check(torch.full((2, 8, 3, 5), 7.0, device=DEVICE), made_norm(8))


def test_the_kernel_reads_slices_where_they_lie():
    kernel("norm_silu")
    from alphaiou.detectors.ops.kernels.norm_silu import _as_rows

    wide = numbers(2, 20, 6, 7)
    for part in (wide[:, :8], wide[:, 8:16], wide[:, 4:]):
        assert _as_rows(part)[0] is part
        assert _as_rows(part)[1] == 20
    for other in (
        wide.contiguous(),
        wide[:, :, ::2],
        wide[:, ::2],
        wide[:1, :1, :1, :1].expand(2, 8, 6, 7),
    ):
        rows, apart = _as_rows(other)
        assert apart == other.shape[1]
        torch.testing.assert_close(rows, other)
    check(wide[:, :8], made_norm(8), wide[:, 8:16], gradient=numbers(2, 24, 6, 7, seed=4)[:, 16:])
    check(wide[:, :8].contiguous(), made_norm(8), wide[:, 8:16], gradient=wide[:, :8].contiguous())


def test_the_kernel_gives_the_same_bits_each_time():
    kernel("norm_silu")
    x, norm = numbers(2, 40, 24, 24).requires_grad_(), made_norm(40)
    results = []
    for _ in range(2):
        y = norm_silu(x, norm)
        results.append([y, *torch.autograd.grad(y, [x, norm.weight, norm.bias], numbers(*x.shape))])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_kernel_adds_what_has_another_precision():
    kernel("norm_silu")
    x, norm, plus = numbers(2, 8, 5, 7), made_norm(8), numbers(2, 8, 5, 7, seed=1)
    found = norm_silu(x.bfloat16(), norm, plus)
    assert found.dtype == torch.float32
    expected, _ = plainly(x.bfloat16(), made_norm(8), plus)
    torch.testing.assert_close(found.double(), expected, rtol=2**-7, atol=2**-7)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which opcheck reads
def test_the_kernel_operators_are_sound():
    kernel("norm_silu")
    x, norm = numbers(2, 8, 5, 7).requires_grad_(), made_norm(8)
    inputs = (norm.weight, norm.bias, numbers(2, 8, 5, 7, seed=1).requires_grad_(), norm.eps)
    torch.library.opcheck(torch.ops.alphaiou.norm_silu, (x, *inputs))
    inputs = (x, numbers(2, 8).square(), norm.weight, norm.bias, norm.eps)
    backward = torch.ops.alphaiou.norm_silu_backward
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(backward, (numbers(2, 8, 5, 7), *inputs), test_utils=checks)


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated")  # torch's own call
@pytest.mark.parametrize(
    ("backend", "precision"), [("aot_eager", None), ("inductor", torch.bfloat16)]
)
def test_the_kernel_in_a_compiled_network(backend, precision):
    kernel("norm_silu")
    torch.manual_seed(0)
    network = nn.Sequential(Conv(3, 16, 3, 2), C3(16, 16, 2), C3(16, 8, 1, shortcut=False))
    network = network.to(DEVICE, memory_format=torch.channels_last)
    images, results = numbers(2, 3, 16, 16), []
    for compiled in (False, True):
        own = deepcopy(network)
        call = torch.compile(own, backend=backend, fullgraph=True) if compiled else own
        with torch.autocast(DEVICE, precision, enabled=precision is not None):
            y = call(images)
        y.float().square().sum().backward()
        results.append([y, *(p.grad for p in own.parameters()), *own.buffers()])
    tolerance = 1e-5 if precision is None else 0.05
    for mine, theirs in zip(*results, strict=True):
        most = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * most)


def test_the_kernel_serves_yolov5s_layers(monkeypatch):
    kernel("norm_silu")
    calls = []
    by_kernel = module._by_kernel
    monkeypatch.setattr(module, "_by_kernel", lambda *a: calls.append(a) or by_kernel(*a))
    layers = C3(8, 8, 2).to(DEVICE)
    layers(numbers(2, 8, 4, 4))
    assert len(calls) == 2 + 2 * 2
    assert sum(plus is not None for _, _, plus in calls) == 2
    fold_batch_norm(layers)(numbers(2, 8, 4, 4))
    layers.eval()(numbers(2, 8, 4, 4))
    assert len(calls) == 6


def test_the_kernel_is_left_out_where_the_norm_is_another(monkeypatch):
    kernel("norm_silu")
    monkeypatch.setattr(module, "_by_kernel", None)
    x = numbers(2, 4, 3, 3)
    own_forward = made_norm(4)
    own_forward.forward = lambda x: 2.0 * x
    assert torch.equal(norm_silu(x, own_forward), nn.functional.silu(2.0 * x))
    others = [
        made_norm(4).eval(),
        nn.BatchNorm2d(4, affine=False, device=DEVICE),
        nn.BatchNorm2d(4, track_running_stats=False, device=DEVICE),
        nn.BatchNorm2d(4, momentum=None, device=DEVICE),
    ]
    for norm in others:
        assert torch.equal(norm_silu(x, norm), nn.functional.silu(deepcopy(norm)(x)))
    for dtype in (torch.float64, torch.bfloat16):
        assert norm_silu(x.to(dtype), made_norm(4).to(dtype)).dtype == dtype
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        norm_silu(numbers(1, 4, 1, 1), made_norm(4))


@pytest.mark.parametrize("training", [True, False])
def test_elsewhere_it_is_torchs_to_the_bit(training):
    x, plus = torch.randn(2, 6, 5, 4), torch.randn(2, 6, 5, 4)
    mine = made_norm(6).cpu().train(training)
    theirs = deepcopy(mine)
    expected = plus + nn.functional.silu(theirs(x))
    if module._INTERPRETED:
        pytest.skip("then the CPU runs the kernels")
    assert torch.equal(norm_silu(x.clone(), mine, plus), expected)
    assert all(torch.equal(a, b) for a, b in zip(mine.buffers(), theirs.buffers(), strict=True))


@pytest.mark.parametrize("processors", [1, 40, 108, 132, 300])
def test_the_layout(processors):
    pytest.importorskip("triton")
    from alphaiou.detectors.ops.kernels.norm_silu import MOST_PARTS, TILE, layout

    for rows, channels in [
        *((1_638_400, 32), (409_600, 64), (409_600, 32), (102_400, 128), (102_400, 64)),
        *((25_600, 256), (25_600, 128), (6_400, 512), (6_400, 256), (6_553_600, 80)),
        *((2, 1), (77, 3), (129, 1280), (4_097, 16), (32_769, 8)),
    ]:
        block_rows, block_channels, parts = layout(rows, channels, processors)
        assert block_rows * block_channels == TILE
        assert parts == 1 << parts.bit_length() - 1
        assert parts <= MOST_PARTS
        assert parts == 1 or rows // parts >= 128
        blocks = -(-channels // block_channels)
        assert parts == 1 or parts * blocks <= 3 * processors
        if rows >= 6_400 and channels >= 32 and processors == 132 and channels % 32 == 0:
            assert parts * blocks == 256


@pytest.mark.slow
@in_the_interpreter
def test_kernels_in_the_interpreter():
    check_in_the_interpreter(__file__, "the_kernel", 29)
