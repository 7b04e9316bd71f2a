"""The default backend of the CPU: the hand-derived gradient in plain operations, in chunks."""

from functools import partial

import pytest
import torch

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.losses.kernels import plain
from alphaiou.losses.kinds import kinds_of
from tests.losses.catalogue import KINDS
from tests.losses.kernels.cases import (
    check,
    decided_by_the_formula,
    exact,
    hard_pairs,
    loss_and_gradient,
)
from tests.strategies import FORMATS, generic_pairs

check = partial(check, backend="auto")
CPU = torch.device("cpu")


def is_plain(loss):
    """Whether the loss came from the autograd.Function of the kernels."""
    return "_EagerLoss" in type(loss.grad_fn).__name__


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_served_without_a_compiler(kind):
    pred, target = (boxes.requires_grad_(not i) for i, boxes in enumerate(generic_pairs(5, seed=1)))
    for dtype in (torch.float64, torch.float32, torch.float16):
        loss = alpha_iou_loss(pred.to(dtype), target.to(dtype), kind=KINDS[kind].ours)
        assert is_plain(loss)
    assert not is_plain(alpha_iou_loss(pred, target, kind=KINDS[kind].ours, backend="reference"))
    assert {twin.ours for twin in KINDS.values() if isinstance(twin.ours, str)} == set(kinds_of())


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_pairs_in_fp32(kind, box_format, alpha):
    pred, target = hard_pairs(60, box_format, CPU)
    keep = decided_by_the_formula(kind, pred, target, box_format)
    options = {"kind": KINDS[kind].ours, "alpha": alpha, "box_format": box_format}
    check(pred, target, keep=keep, rounding=1e-4, **options)


@pytest.mark.parametrize("kind", ["ciou", "siou", "nwd", "biou"])
def test_in_chunks_with_weights_and_powers_of_their_own(kind, monkeypatch):
    pred, target = generic_pairs(1000, seed=2)
    generator = torch.Generator().manual_seed(3)
    weight = torch.randint(3, (1000,), generator=generator).double()
    alpha = 4 * torch.rand(1000, generator=generator, dtype=torch.float64).round(decimals=1)
    holes = pred.masked_fill((weight == 0)[:, None], torch.nan)
    options = {"kind": kind, "alpha": alpha, "weight": weight, "reduction": "mean"}
    expected = exact(pred, target, **options)
    for size in (7, 1 << 14):
        monkeypatch.setattr(plain, "_CHUNK", size)
        found = loss_and_gradient(holes, target, **options)
        for ours, reference in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, reference, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_identical_boxes_and_no_boxes(kind, dtype):
    boxes = torch.cat(hard_pairs(40, "xyxy", CPU)).to(dtype)
    for count in (len(boxes), 0):
        same = boxes[:count]
        loss, gradient = loss_and_gradient(same, same.clone(), kind=KINDS[kind].ours, alpha=0.5)
        assert loss.shape == (count,)
        assert loss.count_nonzero() == gradient.count_nonzero() == 0


def test_boxes_of_two_precisions():
    pred, target = generic_pairs(20, seed=4)
    loss, gradient = loss_and_gradient(pred.float(), target, kind="ciou")
    assert (loss.dtype, gradient.dtype) == (torch.float64, torch.float32)
    expected = exact(pred.float(), target, kind="ciou")
    torch.testing.assert_close(loss, expected[0])
    torch.testing.assert_close(gradient.double(), expected[1], rtol=1e-5, atol=1e-6)


def test_second_derivatives_are_those_of_the_reference():
    pair = generic_pairs(6, seed=5)
    found = []
    for backend in ("auto", "reference"):
        leaf = pair[0].clone().requires_grad_()
        loss = alpha_iou_loss(leaf, pair[1], kind="diou", backend=backend, reduction="mean")
        (slope,) = torch.autograd.grad(loss, leaf, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), leaf)[0])
    assert found[0].abs().max() > 0
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_loss_and_gradient_can_be_saved_for_a_backward_pass(reduction):
    pred, target = generic_pairs(6, seed=8)
    found = []
    for backend in ("auto", "reference"):
        leaf, gain = pred.clone().requires_grad_(), torch.tensor(2.0, requires_grad=True)
        loss = alpha_iou_loss(leaf, target, kind="ciou", reduction=reduction, backend=backend)
        (loss * loss * gain).sum().backward()
        (leaf.grad.mul_(gain).sum() * gain).backward()
        found.append((loss.detach(), leaf.grad.detach(), gain.grad))
    for ours, reference in zip(*found, strict=True):
        assert ours.abs().max() > 0
        torch.testing.assert_close(ours, reference)


def test_another_default_device_does_not_matter():
    pred, target = generic_pairs(6, seed=9)
    expected = loss_and_gradient(pred, target, kind="ciou", backend="reference")
    for cached in (plain._functions, plain._number):
        cached.cache_clear()
    with torch.device("meta"):
        found = loss_and_gradient(pred, target, kind="ciou")
    for ours, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, reference)


def test_a_scheduled_alpha_moves():
    pred, target = generic_pairs(6, seed=6)
    module = AlphaIoULoss("giou", AlphaSchedule(1.0, 3.0), reduction="none")
    for progress, alpha in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        module.set_progress(progress)
        loss = module(pred.requires_grad_(), target)
        assert is_plain(loss)
        expected = alpha_iou_loss(pred, target, kind="giou", alpha=alpha, backend="reference")
        torch.testing.assert_close(loss, expected)
