"""The hand-derived gradient, run on float64 tensors, against autograd through the reference."""

from functools import cache

import pytest
import torch

import alphaiou
from alphaiou import alpha_iou_loss
from alphaiou.losses.kernels.analytic import pair_loss
from alphaiou.losses.kinds import resolve_kind
from tests.losses.catalogue import KINDS
from tests.losses.kernels.cases import hull_sides
from tests.strategies import FAMILIES, FORMATS, encode, generic_pairs

ALPHAS = (0.0, 0.5, 1.0, 2.0, 3.0, 10.0)
# "wild" goes below 2^-94 of the hull, where the derivation keeps fp32's floors and the reference,
# in float64, its own; the kernels' fuzz covers it.
HARD = tuple(family for family in FAMILIES if family != "wild")


@cache
def hard_pairs(count=200):
    generator = torch.Generator().manual_seed(1)
    drawn = [FAMILIES[family](generator, count) for family in HARD]
    return tuple(torch.cat(boxes) for boxes in zip(*drawn, strict=True))


def by_hand(pred, target, *, kind, alpha, penalty_alpha=None, box_cox=False, box_format="xyxy"):
    resolved = resolve_kind(kind)
    penalty_alpha = penalty_alpha or alpha or 1.0
    numbers = [torch.full_like(pred[..., 0], n) for n in (alpha, penalty_alpha, resolved.number)]
    loss, *slopes = pair_loss(
        *pred.unbind(-1), *target.unbind(-1), *numbers, resolved.kernel, box_cox, box_format
    )
    return loss, torch.stack(slopes, dim=-1)


def by_autograd(pred, target, **options):
    leaf = pred.clone().requires_grad_()
    loss = alpha_iou_loss(leaf, target, backend="reference", **options)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return loss.detach(), gradient


def check(pred, target, *, rounding=0.0, **options):
    """Values to 1e-6; slopes to 1e-5 of a pair's largest, and `rounding` of one hull unit."""
    loss, gradient = by_hand(pred, target, **options)
    expected, expected_gradient = by_autograd(pred, target, **options)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
    allowed = 1e-5 * expected_gradient.abs().amax(dim=-1, keepdim=True) + 1e-30
    if rounding:
        allowed = allowed + rounding / hull_sides(pred, target, options.get("box_format", "xyxy"))
    wrong = ~((gradient - expected_gradient).abs() <= allowed).all(dim=-1)
    if wrong.any():
        row = wrong.nonzero()[0, 0]
        shown = (pred, target, gradient, expected_gradient)
        pytest.fail(f"{wrong.sum()} pairs, first: {[tensor[row].tolist() for tensor in shown]}")


def test_every_kernel_is_covered():
    """The tests below compare each with autograd: a name that is no kernel would compute IoU."""
    named = {name for kind in alphaiou.KINDS.values() for name in (kind.kernel, kind.variant)}
    assert {resolve_kind(twin.ours).kernel for twin in KINDS.values()} == named - {None}


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_generic_pairs(kind, box_format, alpha):
    pred, target = (encode(boxes, box_format) for boxes in generic_pairs(300, seed=2))
    check(pred, target, kind=KINDS[kind].ours, alpha=alpha, box_format=box_format)


@pytest.mark.parametrize("size", [1e-3, 640.0, 1e4])
@pytest.mark.parametrize("kind", KINDS)
def test_generic_pairs_of_any_size(kind, size):
    check(*generic_pairs(300, seed=3, size=size), kind=KINDS[kind].ours, alpha=3.0)


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.0999, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_box_cox_form(kind, alpha):
    for pairs, rounding in ((generic_pairs(300, seed=4), 0.0), (hard_pairs(), 1e-10)):
        options = {"alpha": alpha, "penalty_alpha": 2.0, "box_cox": True}
        check(*pairs, kind=KINDS[kind].ours, rounding=rounding, **options)


@pytest.mark.parametrize("penalty_alpha", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_power_of_its_own_for_the_penalties(kind, penalty_alpha):
    options = {"alpha": 2.0, "penalty_alpha": penalty_alpha}
    check(*generic_pairs(300, seed=5), kind=KINDS[kind].ours, **options)


@pytest.mark.parametrize("alpha", [12.0, 150.0, 5000.0])
@pytest.mark.parametrize("kind", ["siou", "shape_iou", "shape_iou_scale_1", "mpdiou_image"])
def test_penalties_above_1_with_alpha_above_10(kind, alpha):
    for size in (1.0, 50.0):  # the image of mpdiou has a diagonal of 2.5
        pred, target = generic_pairs(300, seed=6, size=size)
        check(pred, target, kind=KINDS[kind].ours, alpha=alpha)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("offset", [0.1, 0.01, 1e-3, 1e-6])
def test_nwd_near_the_target(offset, box_format, alpha):
    _, target = generic_pairs(300, seed=7, size=100.0)
    moves = torch.randn(300, 4, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    pred, target = (encode(b, box_format) for b in (target + offset * moves, target))
    check(pred, target, kind="nwd", alpha=alpha, box_format=box_format)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_pairs(kind, box_format, alpha):
    """Ties too: where edges, sides or centres agree, the same subgradient as the reference's."""
    pred, target = (encode(boxes, box_format) for boxes in hard_pairs())
    options = {"kind": KINDS[kind].ours, "alpha": alpha, "box_format": box_format}
    check(pred, target, rounding=1e-10, **options)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_identical_boxes_are_exactly_zero(kind, box_format, alpha):
    boxes = torch.cat([encode(b, box_format) for b in hard_pairs()])
    for dtype in (torch.float64, torch.float32):
        same = boxes.to(dtype)
        loss, gradient = by_hand(
            same, same, kind=KINDS[kind].ours, alpha=alpha, box_format=box_format
        )
        assert loss.count_nonzero() == 0
        assert gradient.count_nonzero() == 0
