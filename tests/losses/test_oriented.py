"""The kinds for oriented boxes: shapely, 50-digit formulas, axis-aligned boxes, the contract."""

import math
from functools import cache

import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alphaiou import AlphaIoULoss, alpha_iou_loss, box_iou, convert_boxes, pairwise_iou
from alphaiou.losses.kinds import kinds_of
from alphaiou.losses.pair_loss import PairLoss
from alphaiou.losses.spec import LossSpec
from alphaiou.oriented import OrientedGeometry
from benchmarks.adversarial import oriented_pairs
from tests.test_oriented import draw, shapely_iou, writings

KINDS = kinds_of(OrientedGeometry)
EXACT = ("iou", "giou", "diou", "ciou")
GAUSSIAN = ("probiou", "kld", "gwd", "kfiou")
ALPHAS = (0.0, 0.5, 1.0, 3.0, 10.0)


def loss_of(pred, target, kind, alpha=1.0, **options):
    return alpha_iou_loss(pred, target, kind=kind, alpha=alpha, box_format="cxcywhr", **options)


def with_gradient(pred, target, kind, alpha=1.0, **options):
    pred = pred.clone().requires_grad_()
    loss = loss_of(pred, target, kind, alpha, **options)
    return loss.detach(), torch.autograd.grad(loss.sum(), pred)[0]


# Values


def test_kinds_for_oriented_boxes():
    assert (*EXACT, *GAUSSIAN) == KINDS


@pytest.mark.parametrize("kind", EXACT)
def test_upright_boxes_have_the_loss_of_axis_aligned_ones(kind):
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 2e-6)):
        pred, target = (draw(2000, seed=seed, dtype=dtype) for seed in (0, 1))
        pred[:, 4] = target[:, 4] = 0.0
        options = {"kind": kind, "alpha": 1.0}
        expected = alpha_iou_loss(pred[:, :4], target[:, :4], box_format="cxcywh", **options)
        torch.testing.assert_close(
            loss_of(pred, target, kind), expected, rtol=tolerance, atol=tolerance
        )


@cache
def precise_similarity(kind, pred, target):
    """S of two boxes as Gaussians by the published formulas, with 50 digits."""
    with mpmath.workdps(50):
        means, sigmas = [], []
        for x, y, w, h, angle in (pred, target):
            c, s = mpmath.cos(mpmath.mpf(angle)), mpmath.sin(mpmath.mpf(angle))
            turn = mpmath.matrix([[c, -s], [s, c]])
            sides = mpmath.diag([mpmath.mpf(w) ** 2, mpmath.mpf(h) ** 2])
            sigmas.append(turn * sides * turn.T / (12 if kind == "probiou" else 4))
            means.append(mpmath.matrix([x, y]))
        delta, (p, t) = means[0] - means[1], sigmas
        det, trace = mpmath.det, lambda m: m[0, 0] + m[1, 1]
        if kind == "probiou":
            mean = (p + t) / 2
            b = (delta.T * mean**-1 * delta)[0] / 8
            b += mpmath.log(det(mean) / mpmath.sqrt(det(p) * det(t))) / 2
            return float(1 - mpmath.sqrt(1 - mpmath.exp(-b)))
        if kind == "kfiou":
            volume = mpmath.sqrt(det(p - p * (p + t) ** -1 * p))
            return float(3 * volume / (mpmath.sqrt(det(p)) + mpmath.sqrt(det(t)) - volume))
        if kind == "kld":
            d = (delta.T * p**-1 * delta)[0] + trace(p**-1 * t) + mpmath.log(det(p) / det(t))
            distance = mpmath.sqrt(d / 2 - 1)
        else:
            root = mpmath.sqrt(trace(p * t) + 2 * mpmath.sqrt(det(p) * det(t)))
            d = (delta.T * delta)[0] + trace(p) + trace(t) - 2 * root
            area = mpmath.mpf(pred[2]) * pred[3] * target[2] * target[3]
            distance = mpmath.sqrt(d / mpmath.sqrt(area))
        return float(1 / (1 + mpmath.log(1 + distance)))


@pytest.mark.parametrize("kind", GAUSSIAN)
def test_gaussians_are_those_of_fifty_digits(kind):
    pred, target = draw(120), draw(120, seed=1)
    pred[::3] = target[::3] + 1e-9 * (pred[::3] - target[::3])  # nearly identical
    pred[::5, 2] *= 1e-3
    target[1::5, 3] *= 1e-3
    expected = torch.tensor(
        [
            precise_similarity(kind, *map(tuple, rows))
            for rows in zip(pred.tolist(), target.tolist(), strict=True)
        ],
        dtype=torch.float64,
    )
    if kind == "kfiou":
        ours = 1.0 - loss_of(pred, target, kind) + loss_of(pred, target, "diou")
        ours = ours - (1.0 - box_iou(pred, target, box_format="cxcywhr"))
    else:
        ours = box_iou(pred, target, kind=kind, box_format="cxcywhr")
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-13)


def test_the_exact_kind_is_the_iou_of_shapely():
    pred, target = draw(500), draw(500, seed=1)
    expected = 1.0 - torch.from_numpy(shapely_iou(pred, target)) ** 3
    torch.testing.assert_close(loss_of(pred, target, "iou", 3.0), expected, rtol=0, atol=1e-12)
    every = pairwise_iou(pred[:20], target[:30], box_format="cxcywhr")
    torch.testing.assert_close(
        every.diagonal(), box_iou(pred[:20], target[:20], box_format="cxcywhr")
    )


def test_probiou_is_that_of_ultralytics():
    from ultralytics.utils.metrics import probiou

    pred, target = draw(1000), draw(1000, seed=1)
    ours = box_iou(pred, target, kind="probiou", box_format="cxcywhr")
    # Theirs has an ε of 1e-7 in denominators, logarithm and root.
    torch.testing.assert_close(ours, probiou(pred, target)[:, 0], rtol=0, atol=1e-4)


def test_angle_term_is_the_closed_form():
    pred, target = draw(100), draw(100, seed=1)
    ratio, turn = (target[:, 2] / target[:, 3]).log(), pred[:, 4] - target[:, 4]
    expected = (torch.exp(-ratio.square() / 9) * (2 * turn).sin().square()) ** 3
    added = loss_of(pred, target, "gwd", 3.0, modifiers=("angle",)) - loss_of(
        pred, target, "gwd", 3.0
    )
    torch.testing.assert_close(added, expected)
    square = torch.tensor([[0.0, 0.0, 2.0, 2.0, 0.0]])
    turned = torch.tensor([[0.0, 0.0, 2.0, 2.0, math.pi / 4]])
    for kind in GAUSSIAN:  # blind to the angle of a square without it
        assert loss_of(turned, square, kind).item() == pytest.approx(0.0, abs=1e-6)
        with_angle = loss_of(turned, square, kind, modifiers=("angle",))
        assert with_angle.item() == pytest.approx(1.0, abs=1e-6)


# Gradients


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"ciou"}))  # whose β is held constant
def test_gradients_are_those_of_differences(kind):
    pred, target = draw(25, seed=4).requires_grad_(), draw(25, seed=5).requires_grad_()
    for alpha in (1.0, 3.0):
        assert torch.autograd.gradcheck(
            lambda *pair, a=alpha: loss_of(*pair, kind, a), (pred, target)
        )


@pytest.mark.parametrize("modifier", ["inner", "focaler", "rectified", "focal", "wise", "angle"])
@pytest.mark.parametrize("kind", ["ciou", "probiou"])
def test_modifiers_apply(kind, modifier):
    pred, target = draw(200), draw(200, seed=1)
    loss, gradient = with_gradient(pred, target, kind, 3.0, modifiers=(modifier,))
    assert loss.isfinite().all()
    assert gradient.isfinite().all()
    assert not torch.equal(loss, loss_of(pred, target, kind, 3.0))
    identical, gradient = with_gradient(target, target, kind, 3.0, modifiers=(modifier,))
    assert (identical == 0.0).all()
    assert (gradient == 0.0).all()


# The contract


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_hard_pairs_stay_finite(kind, alpha):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        pred, target = oriented_pairs(1200, dtype=dtype, seed=7)
        loss, gradient = with_gradient(pred, target, kind, alpha)
        assert loss.isfinite().all()
        assert gradient.isfinite().all()
        assert (loss >= 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_identical_boxes_have_no_loss_and_no_gradient(kind, dtype):
    boxes = torch.cat(oriented_pairs(600, dtype=dtype, seed=3))
    for alpha in ALPHAS[1:]:
        loss, gradient = with_gradient(boxes, boxes, kind, alpha)
        assert (loss == 0.0).all()
        assert (gradient == 0.0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_the_writing_of_a_box_does_not_matter(kind):
    pred, target = draw(1000), draw(1000, seed=1)
    loss = loss_of(pred, target, kind)
    for other in writings(pred):
        torch.testing.assert_close(loss_of(other, target, kind), loss, rtol=0, atol=1e-13)
    for other in writings(target):
        torch.testing.assert_close(loss_of(pred, other, kind), loss, rtol=0, atol=1e-13)
    for other in writings(target):  # the same rectangle: rounding of π alone
        assert loss_of(other, target, kind).max() < 1e-13


NUMBER = st.floats(-5, 5, width=32)
SIDE = st.floats(0.0625, 10.0, width=32)
BOX = st.tuples(NUMBER, NUMBER, SIDE, SIDE, st.floats(-10, 10, width=32))


@settings(max_examples=60, deadline=None)
@given(BOX, BOX, st.floats(-3, 3), st.floats(-3, 3), st.floats(-60, 60))
def test_moving_turning_and_scaling_both_boxes_changes_nothing(pred, target, turn, shift, scale):
    pair = torch.tensor([pred, target], dtype=torch.float64)
    moved = pair.clone()
    c, s = math.cos(turn), math.sin(turn)
    moved[:, 0], moved[:, 1] = c * pair[:, 0] - s * pair[:, 1], s * pair[:, 0] + c * pair[:, 1]
    moved[:, :2] += shift
    moved[:, :4] *= 2.0**scale
    moved[:, 4] += turn
    for kind in KINDS:
        here, there = (loss_of(*boxes.split(1), kind) for boxes in (pair, moved))
        torch.testing.assert_close(there, here, rtol=0, atol=1e-10)


# The rest of the interface


def test_weights_reductions_and_specs():
    pred, target = draw(50), draw(50, seed=1)
    each = loss_of(pred, target, "probiou", 3.0)
    weight = (torch.arange(50) % 2).double()
    pred = pred.clone()
    pred[::2] = math.nan  # what a pair of weight 0 holds does not matter
    mean = loss_of(pred, target, "probiou", 3.0, weight=weight, reduction="mean", avg_factor=25)
    torch.testing.assert_close(mean, (each * weight).sum() / 25)
    module = LossSpec.parse("probiou:3").module(box_format="cxcywhr")
    torch.testing.assert_close(module(pred, target, weight, 25.0), mean)
    pair_loss = PairLoss("probiou:3", box_format="cxcywhr")
    torch.testing.assert_close(pair_loss(pred, target, weight > 0), each * weight)
    assert LossSpec.parse("kld+angle:3").display_name == "α-KLD + angle (α=3)"
    assert "probiou" in repr(AlphaIoULoss("probiou", box_format="cxcywhr"))


def test_what_does_not_fit_is_rejected():
    four, five = torch.rand(3, 4), torch.rand(3, 5)
    with pytest.raises(ValueError, match=r"'siou' is for axis-aligned boxes.*probiou, kld"):
        loss_of(five, five, "siou")
    with pytest.raises(ValueError, match=r"'kld' is for oriented boxes.*'xyxy' takes iou, giou"):
        alpha_iou_loss(four, four, kind="kld")
    with pytest.raises(ValueError, match=r"pred must have shape \(\*batch, 5\), got \(3, 4\)"):
        loss_of(four, five, "iou")
    with pytest.raises(ValueError, match="oriented boxes have no kernel"):
        loss_of(five, five, "iou", backend="fused")
    with pytest.raises(ValueError, match="source must be one of xyxy, xywh, cxcywh"):
        convert_boxes(five, "cxcywhr", "xyxy")


def check_compiled(kind, backend):
    torch._dynamo.reset()
    pred, target = draw(64, dtype=torch.float32), draw(64, seed=1, dtype=torch.float32)
    compiled = torch.compile(lambda a, b: loss_of(a, b, kind, 3.0), fullgraph=True, backend=backend)
    ours, theirs = (pred.clone().requires_grad_() for _ in range(2))
    loss, expected = compiled(ours, target), loss_of(theirs, target, kind, 3.0)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    loss.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ciou", *GAUSSIAN])
def test_every_loss_is_one_graph(kind):
    check_compiled(kind, "eager")


@pytest.mark.slow
def test_compiled_loss_is_the_loss():
    check_compiled("probiou", "inductor")
