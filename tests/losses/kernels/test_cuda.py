"""What only a real GPU shows: graphs, streams, syncs, memory, and that `auto` takes the kernel."""

import warnings

import pytest
import torch

from alphaiou import alpha_iou_loss
from tests.losses.catalogue import NAMES
from tests.losses.kernels.cases import kernel_device, loss_and_gradient, skip_without_kernel
from tests.strategies import generic_pairs

skip_without_kernel()
if kernel_device() != "cuda":
    pytest.skip("needs a CUDA device, not Triton's interpreter", allow_module_level=True)
pytestmark = pytest.mark.gpu

# One program, several, and a gradient large enough for a kernel of its own.
COUNTS = (100, 10_000, 300_000)
MIB = 1 << 20


def boxes(count, *, seed=1, device="cuda", dtype=torch.float32):
    """Pairs on the device, as many as wanted, from a few thousand different ones."""
    pairs = generic_pairs(min(count, 5000), seed=seed, dtype=dtype)
    rows = torch.arange(count) % len(pairs[0])
    return tuple(b[rows].to(device) for b in pairs)


def reference(pred, target, **options):
    return loss_and_gradient(pred, target, backend="reference", **options)


def assert_near(results, expected):
    for ours, theirs in zip(results, expected, strict=True):
        # Two roundings to half precision may differ by one unit in the last place.
        loose = max(1e-3, 2 * torch.finfo(theirs.dtype).eps)
        torch.testing.assert_close(ours, theirs, rtol=loose, atol=1e-3 * theirs.abs().max().item())


def launched(call):
    """The names of the kernels that a call launches."""
    call()  # compiled before it is watched
    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the profiler's own
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        events = profile.events()
    return [e.name for e in events if e.device_type == torch.autograd.DeviceType.CUDA]


@pytest.mark.parametrize("kind", NAMES)
def test_auto_takes_the_kernel(kind):
    pred, target = boxes(100)
    leaf = pred.requires_grad_()
    names = launched(lambda: alpha_iou_loss(leaf, target, kind=kind, reduction="mean"))
    assert len([name for name in names if "_fused_loss_kernel" in name]) == 1
    assert len(names) == 1, names


def test_reference_takes_none():
    pred, target = boxes(100)
    names = launched(lambda: alpha_iou_loss(pred, target, kind="ciou", backend="reference"))
    assert names
    assert not [name for name in names if "_fused_loss_kernel" in name]


def test_auto_takes_the_reference_where_there_is_no_kernel():
    pred, target = boxes(100)
    target.requires_grad_()
    for options in ({}, {"modifiers": ("inner",)}):
        names = launched(lambda o=options: alpha_iou_loss(pred, target, kind="ciou", **o))
        assert names
        assert not [name for name in names if "_fused_loss_kernel" in name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", COUNTS)
def test_large_gradients(count, dtype):
    """From a million numbers on, the backward pass is a kernel too."""
    pred, target = boxes(count, dtype=dtype)
    slope = torch.tensor(-2.5, device="cuda")
    # The gradient of a mean over so many pairs is below what fp16 can hold.
    for reduction in ("sum", "mean") if dtype == torch.float32 else ("sum",):
        options = {"kind": "ciou", "reduction": reduction, "slope": slope}
        assert_near(
            loss_and_gradient(pred, target, backend="fused", **options),
            reference(pred, target, **options),
        )


def test_large_fp16_gradients_saturate():
    pred = torch.tensor([0.0, 0.0, 3e-6, 3e-6], dtype=torch.float16, device="cuda")
    pred, target = pred.repeat(300_000, 1), 2 * pred.repeat(300_000, 1)
    options = {"alpha": 1.0, "reduction": "sum", "backend": "fused"}
    _, gradient = loss_and_gradient(pred, target, **options)
    assert gradient[:, 2:].eq(-65504).all()


@pytest.mark.parametrize("count", COUNTS)
def test_captured_in_a_graph(count):
    """A captured step serves boxes, weights and α that came later."""
    pred, target = boxes(count)
    pred.requires_grad_()
    weight, alpha = torch.ones(count, device="cuda"), torch.tensor(3.0, device="cuda")
    factor = torch.tensor(7.0, device="cuda")

    def step():
        loss = alpha_iou_loss(
            pred,
            target,
            kind="ciou",
            alpha=alpha,
            weight=weight,
            reduction="mean",
            avg_factor=factor,
        )
        return loss, torch.autograd.grad(loss, pred)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, gradient = step()
    for seed, power in ((2, 3.0), (3, 1.5)):
        new_pred, new_target = boxes(count, seed=seed)
        with torch.no_grad():
            pred.copy_(new_pred)
        target.copy_(new_target)
        weight.copy_(torch.arange(count) % 3)
        alpha.fill_(power)
        factor.fill_(power + 2)
        graph.replay()
        options = {"weight": weight, "alpha": power, "avg_factor": power + 2}
        expected = reference(new_pred, target, kind="ciou", reduction="mean", **options)
        assert_near((loss.detach(), gradient), expected)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", ["ciou", "nwd"])
def test_the_host_never_waits(kind, count):
    pred, target = boxes(count)
    weight, alpha = torch.rand(count, device="cuda"), torch.tensor(2.0, device="cuda")
    factor = weight.sum()
    calls = (
        {"reduction": "mean"},
        {"reduction": "none"},
        {"reduction": "mean", "weight": weight, "avg_factor": factor, "alpha": alpha},
    )
    for options in calls:
        loss_and_gradient(pred, target, kind=kind, **options)  # compiled before it is watched
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for options in calls:
            loss_and_gradient(pred, target, kind=kind, **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_on_another_stream():
    pred, target = boxes(10_000)
    expected = reference(pred, target, kind="ciou", reduction="mean")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        # Late numbers: a kernel on any other stream would read them before they are there.
        torch.cuda._sleep(50_000_000)
        late_pred, late_target = pred * 1.0, target * 1.0
        results = loss_and_gradient(late_pred, late_target, kind="ciou", reduction="mean")
    torch.cuda.current_stream().wait_stream(side)
    assert_near(results, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_on_a_device_that_is_not_the_current_one():
    pred, target = boxes(10_000)
    expected = reference(pred, target, kind="ciou", reduction="mean")
    there = [b.to("cuda:1") for b in (pred, target)]
    loss, gradient = loss_and_gradient(*there, kind="ciou", reduction="mean", backend="fused")
    assert loss.device == gradient.device == torch.device("cuda:1")
    assert torch.cuda.current_device() == 0
    assert_near((loss.to("cuda:0"), gradient.to("cuda:0")), expected)
    with pytest.raises(ValueError, match="one device"):
        alpha_iou_loss(pred, there[1], backend="fused")


def test_boxes_of_two_devices_are_refused():
    pred, target = boxes(100)
    with pytest.raises(ValueError, match="all tensors must be on one device"):
        alpha_iou_loss(pred, target.cpu(), backend="fused")


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("kind", ["ciou", "siou"])
def test_memory_for_a_million_pairs(kind, reduction):
    """The gradient, one more of its size in the backward pass, and the loss itself."""
    count = 1 << 20  # whole mebibytes, as the allocator counts
    pred, target = boxes(count)
    slope = torch.ones(count if reduction == "none" else (), device="cuda")
    pred.requires_grad_()

    def step():
        loss = alpha_iou_loss(pred, target, kind=kind, reduction=reduction)
        return torch.autograd.grad(loss, pred, slope)

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    extra = torch.cuda.max_memory_allocated() - before
    size = pred.numel() * pred.element_size()
    losses = 4 * count if reduction == "none" else 0
    assert extra <= 2 * size + losses + MIB, extra / size
