"""Quality losses against the formulas of their papers, one number at a time in plain Python."""

import math
from dataclasses import replace
from itertools import product

import pytest
import torch

from alphaiou import AlphaSchedule, QualityLoss, quality_loss
from alphaiou.losses.quality import QUALITY_LOSSES, QualityKind
from tests.strategies import DTYPES

KINDS = tuple(QUALITY_LOSSES)
LOGITS = (-30.0, -4.0, -0.5, 0.0, 0.3, 2.0, 25.0)
IOUS = (0.0, 1e-4, 0.3, 0.75, 1.0)
LARGEST = tuple(
    sign * number
    for number in (0.0, 1e-30, 1.0, 16.0, 60.0, 99.0, 101.0, 1e4, 1e20, 3e38)
    for sign in (1, -1)
)


def cross_entropy(x, target):
    """−target·log p − (1 − target)·log(1 − p), p = σ(x)."""
    small = math.log1p(math.exp(-abs(x)))
    return target * (small + max(-x, 0.0)) + (1 - target) * (small + max(x, 0.0))


def oracle(x, iou, positive, *, kind, alpha, gamma, held=None):
    """The loss of an entry; `held` is the logit of what is held constant in the gradient."""
    p = 1 / (1 + math.exp(-x))
    held_p = p if held is None else 1 / (1 + math.exp(-held))
    if not positive:
        share = {"vfl": 0.75}.get(kind, 1.0)
        factor = held_p if kind in {"vfl", "mal"} else p
        return share * factor**gamma * cross_entropy(x, 0.0)
    q = iou**alpha
    if kind == "vfl":
        return q * cross_entropy(x, q)
    if kind == "qfl":
        return abs(q - p) ** gamma * cross_entropy(x, q)
    if kind == "mal":
        return cross_entropy(x, q)
    return cross_entropy(x, max(held_p**0.25 * q**0.75, 0.01))


def every_entry():
    cells = list(product(LOGITS, IOUS, (True, False)))
    logits, iou, positive = zip(*cells, strict=True)
    numbers = (torch.tensor(column, dtype=torch.float64) for column in (logits, iou))
    return cells, *numbers, torch.tensor(positive)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.5, 2.0])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients(kind, alpha, gamma):
    cells, logits, iou, positive = every_entry()
    options = {"kind": kind, "alpha": alpha, "gamma": gamma}
    logits.requires_grad_()
    loss = quality_loss(logits, iou, positive=positive, **options)
    expected = [oracle(*cell, **options) for cell in cells]
    torch.testing.assert_close(loss.tolist(), expected, rtol=1e-7, atol=1e-12)
    (gradient,) = torch.autograd.grad(loss.sum(), logits)
    step = 1e-4
    for (x, q, is_positive), slope in zip(cells, gradient.tolist(), strict=True):
        if kind == "qfl" and gamma == 0.5 and abs(x) > 20:
            continue  # there the power of |q − p| has its slope capped
        ends = [oracle(x + e, q, is_positive, held=x, **options) for e in (step, -step)]
        assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_number_it_is_the_published_loss(kind):
    _, logits, iou, positive = every_entry()
    published = {"mal": 1.5}.get(kind, 1.0), {"mal": 1.5}.get(kind, 2.0)
    named = quality_loss(logits, iou, kind=kind, positive=positive)
    told = quality_loss(
        logits, iou, kind=kind, positive=positive, alpha=published[0], gamma=published[1]
    )
    assert torch.equal(named, told)
    assert torch.equal(named, QualityLoss(kind, reduction="none")(logits, iou, positive))
    parsed = QualityLoss.parse(kind)(logits, iou, positive)
    torch.testing.assert_close(parsed, named.mean())


def test_a_power_of_0_teaches_the_label_and_a_power_above_1_the_better_boxes():
    logits, iou = torch.zeros(3, dtype=torch.float64), torch.tensor([0.2, 0.8, 1.0]).double()
    label = quality_loss(logits, iou, kind="mal", alpha=0.0)
    torch.testing.assert_close(label, torch.full_like(label, math.log(2)))
    leaf = logits.clone().requires_grad_()
    (slope,) = torch.autograd.grad(quality_loss(leaf, iou, kind="mal", alpha=3.0).sum(), leaf)
    torch.testing.assert_close(slope, 0.5 - iou**3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_finite_logit_gives_finite_values_and_gradients(kind, dtype):
    limit = torch.finfo(dtype).max
    logits = torch.tensor(LARGEST, dtype=torch.float64).clamp(-limit, limit).to(dtype)
    for gamma, iou, positive in product((0.0, 0.5, 2.0, 100.0), (0.0, 0.5, 1.0), (True, False)):
        leaf = logits.clone().requires_grad_()
        loss = quality_loss(
            leaf,
            torch.full_like(logits, iou),
            kind=kind,
            gamma=gamma,
            positive=torch.full(logits.shape, positive),
        )
        (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss))
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert gradient.dtype == dtype
        assert loss.isfinite().all()
        assert gradient.isfinite().all()
        assert (loss >= 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_is_that_of_float64_once_rounded(kind, dtype):
    logits = torch.randn(500, generator=torch.Generator().manual_seed(0)).mul(4).to(dtype)
    iou = torch.rand(500, generator=torch.Generator().manual_seed(1)).to(dtype)
    iou[::2] = 0.0
    exact = quality_loss(logits.double(), iou.double(), kind=kind, alpha=2.0)
    loss = quality_loss(logits, iou, kind=kind, alpha=2.0)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_entries_of_weight_0_do_not_matter(kind):
    logits, iou = torch.randn(4, 3), torch.rand(4, 3)
    weight = torch.tensor([[1.0], [0.0], [2.0], [0.0]])
    for rubbish in (math.nan, math.inf):
        bad, bad_iou = logits.clone(), iou.clone()
        bad[1], bad_iou[3] = rubbish, rubbish
        bad.requires_grad_()
        loss = quality_loss(bad, bad_iou, kind=kind, weight=weight)
        torch.testing.assert_close(loss.detach(), weight * quality_loss(logits, iou, kind=kind))
        (gradient,) = torch.autograd.grad(loss.sum(), bad)
        assert loss[1::2].count_nonzero() == gradient[1::2].count_nonzero() == 0
    nothing = quality_loss(bad, bad_iou, kind=kind, weight=torch.zeros(()), reduction="mean")
    assert nothing == 0
    assert torch.autograd.grad(nothing, bad)[0].count_nonzero() == 0


def test_reductions_are_those_of_the_box_losses():
    logits, iou = torch.randn(6, 5), torch.rand(6, 5)
    each = quality_loss(logits, iou)
    assert each.shape == (6, 5)
    for reduction, factor, expected in (
        ("sum", None, each.sum()),
        ("mean", None, each.mean()),
        ("mean", 4.0, each.sum() / 4),
        ("mean", torch.tensor(4.0), each.sum() / 4),
        ("mean", 0.0, torch.tensor(0.0)),
        ("mean", torch.tensor(0.0), torch.tensor(0.0)),
    ):
        found = quality_loss(logits, iou, reduction=reduction, avg_factor=factor)
        torch.testing.assert_close(found, expected)
    assert quality_loss(torch.zeros(0, 5), torch.zeros(0, 5), reduction="mean") == 0


def test_the_iou_has_no_gradient_and_elsewhere_it_does_not_matter():
    logits, iou = torch.zeros(3, requires_grad=True), torch.tensor([0.5, 0.7, math.nan])
    positive = torch.tensor([True, False, False])
    iou.requires_grad_()
    loss = quality_loss(logits, iou, positive=positive)
    alone = quality_loss(logits, torch.tensor([0.5, 0.0, 0.0]), positive=positive)
    assert torch.equal(loss, alone)
    assert torch.autograd.grad(loss.sum(), iou, allow_unused=True) == (None,)


def test_settings_of_a_kind_are_replaced():
    """The paper's VFL differentiates p^γ, and Generalised Focal Loss has no share."""
    logits = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    free = replace(QUALITY_LOSSES["vfl"], hold_weight=False, negative_weight=0.5)
    loss = quality_loss(logits, torch.zeros(1), kind=free, gamma=1.0)
    p, cost = 1 / (1 + math.exp(-1.0)), cross_entropy(1.0, 0.0)
    assert loss.item() == pytest.approx(0.5 * p * cost)
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    assert slope.item() == pytest.approx(0.5 * (p * (1 - p) * cost + p * p))


def test_a_kind_of_ones_own():
    halved = QualityKind("halved", "½", lambda logits, q, gamma: 0.5 * (logits - q).square())
    loss = QualityLoss(halved, alpha=2.0, reduction="none")
    assert loss(torch.tensor([1.0]), torch.tensor([0.5])).item() == pytest.approx(0.5 * 0.75**2)


def test_a_schedule_moves_the_power():
    loss = QualityLoss("mal", AlphaSchedule(1.0, 3.0), reduction="none")
    logits, iou = torch.randn(5), torch.rand(5)
    for progress, alpha in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        loss.set_progress(progress)
        torch.testing.assert_close(
            loss(logits, iou), quality_loss(logits, iou, kind="mal", alpha=alpha, gamma=1.5)
        )
    assert [*loss.state_dict()] == ["alpha"]
    assert "start=1.0" in repr(loss)
    each = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0])
    told = [quality_loss(x, q, alpha=a.item()) for x, q, a in zip(logits, iou, each, strict=True)]
    torch.testing.assert_close(quality_loss(logits, iou, alpha=each), torch.stack(told))


@pytest.mark.slow
def test_compiled_without_breaks():
    logits, iou = torch.randn(6, 4, requires_grad=True), torch.rand(6, 4)
    loss = QualityLoss("vfl", 2.0)
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    gradients = [torch.autograd.grad(f(logits, iou), logits)[0] for f in (loss, compiled)]
    torch.testing.assert_close(*gradients)


GOOD = torch.zeros(2, 3), torch.full((2, 3), 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "vfll"}, "kind must be one of vfl, qfl, mal, ia_bce; got 'vfll'"),
        ({"alpha": -1.0}, "alpha must be a finite number >= 0, got -1.0"),
        ({"alpha": "2"}, "alpha must be a number or a tensor, got '2'"),
        ({"alpha": torch.ones(7)}, r"alpha must broadcast.*\(2, 3\)"),
        ({"gamma": -1.0}, "gamma"),
        ({"iou": torch.full((2, 3), 1.2)}, r"iou must lie in \[0, 1\], got 1.2"),
        ({"iou": torch.full((2, 3), -0.5)}, r"iou must lie in \[0, 1\], got -0.5"),
        ({"iou": torch.full((2, 3), math.nan)}, r"iou must lie in \[0, 1\], got nan"),
        ({"iou": torch.zeros(2)}, r"iou must have the shape of logits \(2, 3\), got \(2,\)"),
        ({"positive": torch.ones(2, dtype=torch.bool)}, "positive must have the shape of logits"),
        ({"logits": torch.zeros(2, 3, dtype=torch.int64)}, "logits must be floating-point"),
        ({"weight": torch.ones(2)}, "weight must broadcast"),
        ({"reduction": "men"}, "reduction must be one of none, mean, sum; got 'men'"),
        ({"avg_factor": 2.0}, "avg_factor needs reduction='mean'"),
    ],
)
def test_bad_arguments_are_named(change, message):
    arguments = dict(zip(("logits", "iou"), GOOD, strict=True)) | change
    with pytest.raises(ValueError, match=message):
        quality_loss(**arguments)


@pytest.mark.parametrize("text", ["vfll", "vfl:", "vfl:x", "vfl:-1", "vfl:1:2", ""])
def test_a_text_that_is_none_is_refused_with_what_to_write(text):
    with pytest.raises(ValueError, match=r"write vfl, qfl, mal, ia_bce, or one .* as in vfl:2"):
        QualityLoss.parse(text)


def test_rounding_above_1_is_1():
    over = torch.full((2, 3), 1.0 + 1e-6)
    assert torch.equal(quality_loss(GOOD[0], over), quality_loss(GOOD[0], torch.ones(2, 3)))
