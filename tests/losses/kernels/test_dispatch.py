"""What the kernel does not serve: `fused` says why, `auto` goes to the reference."""

from functools import partial

import pytest
import torch
from torch.func import grad, jacrev, vmap

from alphaiou import KINDS, AlphaIoULoss, Terms, alpha_iou_loss
from alphaiou.losses import kinds
from tests.losses.kernels.cases import skip_without_kernel
from tests.strategies import generic_pairs

skip_without_kernel()
pytestmark = pytest.mark.gpu


@pytest.fixture
def pairs(device):
    return tuple(b.to(device) for b in generic_pairs(20, seed=1, dtype=torch.float32))


def own_kind(pair):
    return Terms(0.5 * pair.iou)


def half_giou(pair, *, share=0.5):
    return Terms(pair.iou, (share * pair.hull_gap(),))


CALLS = {
    "float64 boxes": (lambda p, t: ((p.double(), t.double()), {}), "pred must be fp32"),
    "float64 target": (lambda p, t: ((p, t.double()), {}), "target must be fp32"),
    "whole numbers": (lambda p, t: ((p.long(), t), {}), "pred must be fp32"),
    "whole target": (lambda p, t: ((p, t.long()), {}), "target must be fp32"),
    "modifiers": (lambda p, t: ((p, t), {"modifiers": ("inner",)}), "modifiers"),
    "a kind": (lambda p, t: ((p, t), {"kind": own_kind}), "kind of your own"),
    "a partial": (lambda p, t: ((p, t), {"kind": partial(half_giou, share=0.1)}), "kind of your"),
    "target with gradient": (
        lambda p, t: ((p, t.clone().requires_grad_()), {}),
        "only pred may require a gradient",
    ),
    "weight with gradient": (
        lambda p, t: ((p, t), {"weight": torch.ones_like(p[:, 0], requires_grad=True)}),
        "only pred may require a gradient",
    ),
    "alpha with gradient": (
        lambda p, t: ((p, t), {"alpha": p.new_tensor(2.0).requires_grad_()}),
        "only pred may require a gradient",
    ),
    "penalty_alpha with gradient": (
        lambda p, t: ((p, t), {"penalty_alpha": p.new_tensor(2.0).requires_grad_()}),
        "only pred may require a gradient",
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_refused_with_a_reason(case, pairs):
    make, reason = CALLS[case]
    boxes, options = make(*pairs)
    with pytest.raises(ValueError, match=f"backend='fused' cannot serve this call.*{reason}"):
        alpha_iou_loss(*boxes, backend="fused", **options)
    module = {name: value for name, value in options.items() if name != "weight"}
    if all(not isinstance(value, torch.Tensor) for value in module.values()):
        with pytest.raises(ValueError, match=reason):
            AlphaIoULoss(backend="fused", **module)(*boxes, weight=options.get("weight"))


@pytest.mark.parametrize("case", CALLS)
def test_auto_does_without_it(case, pairs):
    """It goes to the reference, or on the CPU to plain operations."""
    boxes, options = CALLS[case][0](*pairs)
    options = {"kind": "ciou"} | options
    if boxes[0].is_floating_point():
        boxes[0].requires_grad_()
    leaves = [x for x in (*boxes, *options.values()) if getattr(x, "requires_grad", False)]
    results = []
    for backend in ("auto", "reference"):
        loss = alpha_iou_loss(*boxes, backend=backend, **options)
        slopes = torch.autograd.grad(loss.sum(), leaves) if leaves else ()
        results.append([loss.detach(), *slopes])
    for ours, reference in zip(*results, strict=True):
        torch.testing.assert_close(ours, reference)


def test_transforms_of_torch_func(pairs):
    pred, target = pairs

    def loss(boxes, backend):
        return alpha_iou_loss(boxes, target, kind="ciou", reduction="sum", backend=backend)

    def each(boxes, other, backend):
        return alpha_iou_loss(boxes, other, kind="ciou", backend=backend)

    calls = (
        lambda backend: grad(partial(loss, backend=backend))(pred),
        lambda backend: jacrev(partial(loss, backend=backend))(pred),
        lambda backend: vmap(partial(each, backend=backend))(pred, target),
        lambda backend: vmap(grad(partial(each, backend=backend)))(pred, target),
    )
    for call in calls:
        with pytest.raises(ValueError, match=r"backend='fused'.*torch.func"):
            call("fused")
        assert torch.equal(call("auto"), call("reference"))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_forward_mode(pairs):
    """Dual numbers have no kernel either."""
    pred, target = pairs
    forward = torch.autograd.forward_ad
    slopes = []
    with forward.dual_level():
        dual = forward.make_dual(pred, torch.ones_like(pred))
        for backend in ("auto", "reference"):
            loss = alpha_iou_loss(dual, target, kind="giou", backend=backend)
            slopes.append(forward.unpack_dual(loss).tangent)
        assert torch.equal(*slopes)
        with pytest.raises(ValueError, match="backend='fused' cannot serve this call"):
            alpha_iou_loss(dual, target, kind="giou", backend="fused")


@pytest.mark.parametrize(
    "kind",
    [
        partial(kinds.piou, version=3),
        partial(kinds.shape_iou, scale=-1.0),
        partial(kinds.nwd, constant=0.0),
        partial(kinds.biou, beta=0.0),
        partial(kinds.mpdiou, image_size=(-1.0, 2.0)),
        partial(kinds.mpdiou, img_size=(1.0, 2.0)),
    ],
    ids=lambda kind: f"{kind.func.__name__}-{kind.keywords}",
)
def test_wrong_parameters_are_refused_as_by_the_reference(kind, pairs):
    with pytest.raises((ValueError, TypeError)) as reference:
        alpha_iou_loss(*pairs, kind=kind, backend="reference")
    for backend in ("fused", "auto"):
        with pytest.raises(type(reference.value)) as ours:
            alpha_iou_loss(*pairs, kind=kind, backend=backend)
        assert str(ours.value) == str(reference.value)


def test_a_kind_added_to_the_table_has_no_kernel(pairs):
    """By name or as a function, it must not be computed as some other kind."""
    KINDS["own_kind"] = own_kind
    try:
        for kind in ("own_kind", own_kind, partial(own_kind)):
            with pytest.raises(ValueError, match=r"backend='fused'.*kind of your own"):
                alpha_iou_loss(*pairs, kind=kind, backend="fused")
            loss, expected = (
                alpha_iou_loss(*pairs, kind=kind, backend=backend)
                for backend in ("auto", "reference")
            )
            assert torch.equal(loss, expected)
    finally:
        del KINDS["own_kind"]


def test_functions_and_partials_of_the_table_have_one(pairs):
    for kind, name in (
        (kinds.ciou, "ciou"),
        (partial(kinds.ciou), "ciou"),
        (partial(kinds.nwd, constant=12.8), "nwd"),
        (partial(kinds.piou, version=1), "piou"),
    ):
        loss, expected = (
            alpha_iou_loss(*pairs, kind=k, reduction="sum", backend="fused") for k in (kind, name)
        )
        assert torch.equal(loss, expected)
