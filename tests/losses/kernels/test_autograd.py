"""The kernel inside autograd and torch.compile: second derivatives, one graph, one operator."""

from functools import partial

import pytest
import torch

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.losses.kinds import resolve_kind
from tests.losses.catalogue import KINDS
from tests.losses.kernels.cases import ours, skip_without_kernel
from tests.strategies import generic_pairs

skip_without_kernel()
pytestmark = pytest.mark.gpu

COUNT = 24


@pytest.fixture
def pairs(device):
    return tuple(b.to(device) for b in generic_pairs(COUNT, seed=1, dtype=torch.float32))


@pytest.fixture
def weight(device):
    return (torch.arange(COUNT, device=device) % 3).float()


def second_derivative(pred, target, direction, **options):
    leaf = pred.clone().requires_grad_()
    loss = alpha_iou_loss(leaf, target, **options).sum()
    (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
    (curvature,) = torch.autograd.grad(slope, leaf, direction)
    return slope.detach(), curvature


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_the_references(kind, pairs, weight):
    pred, target = pairs
    direction = torch.sin(torch.arange(pred.numel(), device=pred.device)).view_as(pred)
    settings = (
        {"alpha": 2.0},
        {"alpha": weight + 1, "weight": weight, "reduction": "mean", "box_format": "cxcywh"},
        {"alpha": 0.5, "penalty_alpha": 3.0, "box_cox": True, "reduction": "sum"},
        {"alpha": 3.0, "reduction": "mean", "avg_factor": torch.tensor(5.0, device=pred.device)},
    )
    options = settings[list(KINDS).index(kind) % len(settings)]
    twice = partial(second_derivative, pred, target, direction, kind=ours(kind), **options)
    slope, curvature = twice(backend="fused")
    expected_slope, expected = twice(backend="reference")
    assert expected.abs().max() > 0
    torch.testing.assert_close(slope, expected_slope, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(curvature, expected, rtol=1e-5, atol=1e-5)


def test_a_gradient_penalty(pairs):
    """Through what came before and after the loss, as in training with a penalty on slopes."""
    pred, target = pairs
    results = []
    for backend in ("fused", "reference"):
        scale = torch.tensor(1.1, device=pred.device, requires_grad=True)
        leaf = pred.clone().requires_grad_()
        loss = alpha_iou_loss(leaf * scale, target, kind="diou", backend=backend).square().mean()
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        (loss + slope.square().sum()).backward()
        results.append(torch.stack([scale.grad, leaf.grad.sum(), leaf.grad.norm()]))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-5)


def test_backward_twice_over_one_graph(pairs):
    pred, target = pairs
    leaf = pred.clone().requires_grad_()
    loss = alpha_iou_loss(leaf, target, kind="ciou", reduction="mean", backend="fused")
    (first,) = torch.autograd.grad(loss, leaf, retain_graph=True)
    (second,) = torch.autograd.grad(loss, leaf)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaf)


def test_boxes_changed_before_the_backward_are_noticed(pairs):
    pred, target = pairs
    leaf = pred.clone().requires_grad_()
    moved = leaf + 0.0
    loss = alpha_iou_loss(moved, target, kind="ciou", reduction="mean", backend="fused")
    moved.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


# --- torch.compile --------------------------------------------------------------------------------


def compiled_and_eager(function, pred, target, *rest):
    whole = torch.compile(function, fullgraph=True, backend="aot_eager")
    results = []
    for call in (whole, function):
        leaf = pred.clone().requires_grad_()
        loss = call(leaf, target, *rest)
        loss.sum().backward()
        results.append((loss.detach(), leaf.grad))
    return results


def assert_same(results):
    for compiled, eager in zip(*results, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", ["iou", "ciou", "mpdiou_image", "piou_v2", "nwd_constant"])
def test_compiled_into_one_graph(kind, pairs):
    torch.compiler.reset()
    loss = partial(alpha_iou_loss, kind=ours(kind), reduction="mean", backend="fused")
    assert_same(compiled_and_eager(loss, *pairs))


def test_the_graph_holds_the_operator(pairs):
    torch.compiler.reset()
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    loss = partial(alpha_iou_loss, kind="ciou", reduction="mean", backend="fused")
    torch.compile(loss, fullgraph=True, backend=keep)(*pairs)
    (graph,) = graphs
    called = [str(node.target) for node in graph.graph.nodes]
    assert len([name for name in called if name.startswith("alphaiou.fused_loss")]) == 1


def test_compiled_with_tensors_for_everything(pairs, weight):
    torch.compiler.reset()

    def loss(pred, target, weight, alpha, avg_factor):
        return alpha_iou_loss(
            pred,
            target,
            kind="ciou",
            alpha=alpha,
            penalty_alpha=alpha[0] + 1,
            weight=weight,
            box_format="xywh",
            reduction="mean",
            avg_factor=avg_factor,
            backend="fused",
        )

    assert_same(compiled_and_eager(loss, *pairs, weight, weight + 0.5, weight.sum()))


def test_compiled_without_a_gradient(pairs):
    torch.compiler.reset()
    loss = partial(alpha_iou_loss, kind="giou", backend="fused")
    whole = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(whole(*pairs), loss(*pairs))
    assert not whole(*pairs).requires_grad


def test_compiled_for_any_number_of_pairs_and_any_power(pairs):
    torch.compiler.reset()
    pred, target = pairs
    loss = partial(alpha_iou_loss, kind="ciou", reduction="mean", backend="fused")
    whole = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for count, alpha in ((24, 3.0), (17, 3.0), (9, 2.0), (5, 0.5)):
        actual = whole(pred[:count], target[:count], alpha=alpha)
        torch.testing.assert_close(actual, loss(pred[:count], target[:count], alpha=alpha))


def test_compiled_module_sees_its_alpha_move(pairs):
    torch.compiler.reset()
    pred, target = pairs
    module = AlphaIoULoss("diou", AlphaSchedule(1.0, 3.0), backend="fused").to(pred.device)
    whole = torch.compile(module, fullgraph=True, backend="aot_eager")
    for progress, alpha in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        module.set_progress(progress)
        expected = alpha_iou_loss(pred, target, kind="diou", alpha=alpha, reduction="mean")
        torch.testing.assert_close(whole(pred, target), expected)


# --- the operator ---------------------------------------------------------------------------------


def arguments(pred, target, *, weight=None, alpha=None, reduce=False, want_grad=True, kind="ciou"):
    """Those of `alphaiou::fused_loss`, in the order of its schema."""
    resolved = resolve_kind(kind)
    settings = (3.0, 2.0, resolved.name, resolved.parameter, False, "xyxy", 0.5, reduce, want_grad)
    return (pred, target, weight, alpha, None, *settings)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")  # opcheck's own
@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("needs_grad", [False, True])
def test_operator_is_what_it_says(needs_grad, tensors, reduce, pairs, weight):
    pred, target = pairs[0].clone().requires_grad_(needs_grad), pairs[1]
    extra = {"weight": weight, "alpha": weight + 0.5} if tensors else {}
    torch.library.opcheck(
        torch.ops.alphaiou.fused_loss.default,
        arguments(pred, target, reduce=reduce, want_grad=needs_grad, **extra),
    )


@pytest.mark.parametrize("label", ["mpdiou_image", "piou_v2", "shape_iou_scale_1", "biou_beta"])
def test_operator_carries_the_parameter(label, pairs):
    """Its second derivative is the reference's to the bit."""
    pred, target = pairs
    results = []
    for backend in ("operator", "reference"):
        leaf = pred.clone().requires_grad_()
        if backend == "operator":
            loss, _ = torch.ops.alphaiou.fused_loss(*arguments(leaf, target, kind=ours(label)))
        else:
            options = {"kind": ours(label), "alpha": 3.0, "penalty_alpha": 2.0}
            loss = alpha_iou_loss(leaf, target, backend=backend, **options) * 0.5
        (slope,) = torch.autograd.grad(loss.sum(), leaf, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), leaf)
        results.append((loss.detach(), slope.detach(), curvature))
    (value, *slopes), (expected, *expected_slopes) = results
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
    assert all(map(torch.equal, slopes, expected_slopes))


def test_operator_on_other_shapes_and_dtypes(pairs):
    operator = torch.ops.alphaiou.fused_loss.default
    utilities = ("test_schema", "test_faketensor")
    for shape in ((2, 12, 4), (24, 1, 4)):
        for dtype in (torch.float16, torch.bfloat16):
            boxes = [b.view(shape).to(dtype) for b in pairs]
            torch.library.opcheck(operator, arguments(*boxes), test_utils=utilities)
    single = [b[0] for b in pairs]
    torch.library.opcheck(operator, arguments(*single), test_utils=utilities)
    none = [b[:0] for b in pairs]
    for want_grad in (False, True):
        for reduce in (False, True):
            empty = arguments(*none, reduce=reduce, want_grad=want_grad)
            torch.library.opcheck(operator, empty, test_utils=utilities)
