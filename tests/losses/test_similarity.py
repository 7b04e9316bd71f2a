"""The similarity of aligned and of all pairs, with torchvision as the reference."""

import pytest
import torch

from alphaiou import alpha_iou_loss, box_iou, pairwise_iou
from alphaiou.losses.kinds import kinds_of
from tests.strategies import DTYPES, FORMATS, adversarial_pairs, encode, generic_pairs

KINDS = kinds_of()
#: The names of torchvision's functions, which is not needed for the other tests.
SIMILARITIES = {
    "iou": "box_iou",
    "giou": "generalized_box_iou",
    "diou": "distance_box_iou",
    "ciou": "complete_box_iou",
}
ENORMOUS = 1e6  # torchvision's 1e-7 on areas and squared lengths is below float64's rounding here


def torchvisions(kind):
    return getattr(pytest.importorskip("torchvision.ops"), SIMILARITIES[kind])


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_pairwise_is_torchvisions(kind):
    boxes1, boxes2 = generic_pairs(60, seed=4, size=ENORMOUS)
    boxes2 = boxes2[:45]
    # The epsilon of CIoU's β is relative to 1: in float64 it has to go.
    expected = torchvisions(kind)(boxes1, boxes2, **({"eps": 0.0} if kind == "ciou" else {}))
    actual = pairwise_iou(boxes1, boxes2, kind=kind)
    assert actual.shape == (60, 45)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_pairwise_in_float32(kind):
    boxes1, boxes2 = generic_pairs(60, seed=5, dtype=torch.float32, size=640.0)
    expected = torchvisions(kind)(boxes1.double(), boxes2.double())
    actual = pairwise_iou(boxes1, boxes2, kind=kind)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_aligned_is_the_diagonal_and_one_minus_the_loss(kind, box_format):
    pred, target = (encode(b, box_format) for b in generic_pairs(20, seed=6))
    aligned = box_iou(pred, target, kind=kind, box_format=box_format)
    every = pairwise_iou(pred, target, kind=kind, box_format=box_format)
    loss = alpha_iou_loss(pred, target, kind=kind, alpha=1.0, box_format=box_format)
    torch.testing.assert_close(aligned, every.diagonal(), rtol=0, atol=1e-14)
    torch.testing.assert_close(aligned, 1 - loss, rtol=0, atol=1e-14)


def test_aligned_keeps_the_batch_and_defaults_to_iou():
    pred, target = (boxes.view(2, 3, 4) for boxes in generic_pairs(6, seed=7))
    assert box_iou(pred, target).shape == (2, 3)
    every = pairwise_iou(pred.view(-1, 4), target.view(-1, 4))
    torch.testing.assert_close(box_iou(pred, target).flatten(), every.diagonal())
    assert torch.equal(
        pairwise_iou(pred[0], target[0]), pairwise_iou(pred[0], target[0], kind="iou")
    )


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_differentiable(kind):
    pred, target = generic_pairs(4, seed=8)
    pred.requires_grad_()
    box_iou(pred, target, kind=kind).sum().backward()
    aligned = pred.grad.clone()
    pred.grad = None
    pairwise_iou(pred, target, kind=kind).diagonal().sum().backward()
    torch.testing.assert_close(pred.grad, aligned)
    if kind != "ciou":  # its β is held constant
        target.requires_grad_()
        assert torch.autograd.gradcheck(lambda p, t: pairwise_iou(p, t, kind=kind), (pred, target))


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_empty_sets(kind):
    none, some = torch.zeros(0, 4, requires_grad=True), torch.rand(3, 4)
    assert pairwise_iou(none, some, kind=kind).shape == (0, 3)
    assert pairwise_iou(some, none, kind=kind).shape == (3, 0)
    assert pairwise_iou(none, none, kind=kind).shape == (0, 0)
    aligned = box_iou(none, none.detach(), kind=kind)
    assert aligned.shape == (0,)
    aligned.sum().backward()
    assert none.grad.shape == (0, 4)


@pytest.mark.parametrize("kind", SIMILARITIES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_and_bounded_for_hard_pairs(kind, dtype):
    pred, target = adversarial_pairs(7000, dtype=dtype, seed=9)
    pred.requires_grad_()
    similarity = box_iou(pred, target, kind=kind)
    similarity.sum().backward()
    assert similarity.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    assert similarity.isfinite().all()
    assert pred.grad.isfinite().all()
    assert (similarity <= 1).all()
    assert (similarity >= {"iou": 0, "giou": -1, "diou": -1, "ciou": -2}[kind] - 1e-6).all()
    assert (box_iou(target, target, kind=kind) == 1).all()


def test_integers_are_computed_in_float32():
    boxes = torch.tensor([[0, 0, 2, 2], [1, 1, 3, 3]])
    similarity = pairwise_iou(boxes, boxes)
    assert similarity.dtype == torch.float32
    torch.testing.assert_close(similarity, torch.tensor([[1, 1 / 7], [1 / 7, 1]]))
    assert box_iou(boxes, boxes).tolist() == [1, 1]


@pytest.mark.parametrize("function", [box_iou, pairwise_iou])
def test_similarity_refuses_what_it_does_not_know(function):
    boxes = torch.rand(2, 4)
    with pytest.raises(ValueError, match="kind") as error:
        function(boxes, boxes, kind="jou")
    assert "jou" in str(error.value)
    assert all(kind in str(error.value) for kind in KINDS)
    with pytest.raises(ValueError, match="box_format") as error:
        function(boxes, boxes, box_format="yxyx")
    assert "yxyx" in str(error.value)
    assert all(box_format in str(error.value) for box_format in FORMATS)
    with pytest.raises(ValueError, match=r"\(2, 3\)"):
        function(boxes[:, :3], boxes)


def test_aligned_refuses_different_shapes():
    with pytest.raises(ValueError, match=r"\(2, 4\).*\(3, 4\)"):
        box_iou(torch.rand(2, 4), torch.rand(3, 4))
