"""At α = 1, GIoU, DIoU and CIoU are torchvision's, value and gradient."""

from functools import partial

import pytest
import torch

from alphaiou import alpha_iou_loss
from tests.strategies import adversarial_pairs, generic_pairs

tv = pytest.importorskip("torchvision.ops")

REFERENCES = {
    "giou": tv.generalized_box_iou_loss,
    "diou": tv.distance_box_iou_loss,
    "ciou": tv.complete_box_iou_loss,
}
PIXELS = 640.0
# The epsilon of CIoU's β is relative to 1: in float64 it has to go. (It goes no further than β.)
EXACT = REFERENCES | {"ciou": partial(tv.complete_box_iou_loss, eps=0.0)}
# torchvision adds 1e-7 to areas: relative to the area of boxes this large it is below 1e-15.
ENORMOUS = 1e6


def value_and_gradient(loss, pred, target):
    pred = pred.clone().requires_grad_()
    value = loss(pred, target)
    (gradient,) = torch.autograd.grad(value.sum(), pred)
    return value.detach(), gradient


def ours(kind):
    return lambda pred, target: alpha_iou_loss(pred, target, kind=kind, alpha=1.0)


@pytest.mark.parametrize("kind", REFERENCES)
def test_float32_on_pixels(kind):
    pred, target = generic_pairs(2000, seed=1, dtype=torch.float32, size=PIXELS)
    value, gradient = value_and_gradient(ours(kind), pred, target)
    # Their float64 on the same boxes: their float32 is itself only good to 1e-6.
    expected, slope = value_and_gradient(REFERENCES[kind], pred.double(), target.double())
    assert value.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
    # A gradient is per pixel: in units of the image it is of order one.
    torch.testing.assert_close(PIXELS * gradient.double(), PIXELS * slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", REFERENCES)
def test_float64(kind):
    pred, target = generic_pairs(2000, seed=2, size=ENORMOUS)
    value, gradient = value_and_gradient(ours(kind), pred, target)
    expected, slope = value_and_gradient(EXACT[kind], pred, target)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(ENORMOUS * gradient, ENORMOUS * slope, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", REFERENCES)
def test_half_precision_boxes(kind, dtype):
    """Both compute halves in fp32, so the rounding of the boxes themselves is the same."""
    pred, target = (boxes.to(dtype) for boxes in generic_pairs(500, seed=3, size=PIXELS))
    expected = REFERENCES[kind](pred.double(), target.double())
    torch.testing.assert_close(ours(kind)(pred, target).double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", REFERENCES)
def test_hard_pairs_wherever_torchvision_is_finite(kind):
    """Touching, nested, flat or wild pairs, where torchvision's epsilon is negligible."""
    pred, target = adversarial_pairs(20_000, dtype=torch.float64, seed=4)
    sides = torch.cat([pred[:, 2:] - pred[:, :2], target[:, 2:] - target[:, :2]], dim=1)
    large = ((sides >= 0).all(dim=1)) & (sides[:, 2:].prod(dim=1) > 1e7)
    large &= (sides < 1e20).all(dim=1) & (pred.abs().amax(dim=1) < 1e20)
    pred, target = pred[large], target[large]
    expected, actual = EXACT[kind](pred, target), ours(kind)(pred, target)
    finite = expected.isfinite()
    assert finite.sum() > 1000
    assert actual.isfinite().all()
    torch.testing.assert_close(actual[finite], expected[finite], rtol=1e-10, atol=1e-10)


def test_reductions_agree():
    pred, target = generic_pairs(50, seed=5, size=ENORMOUS)
    for reduction in ("mean", "sum"):
        actual = alpha_iou_loss(pred, target, kind="giou", alpha=1.0, reduction=reduction)
        torch.testing.assert_close(
            actual, tv.generalized_box_iou_loss(pred, target, reduction=reduction)
        )


@pytest.mark.parametrize(
    "pred",
    [[10.0, 10.0, 50.0, 10.0], [10.0, 10.0, 10.0, 10.0]],
    ids=["zero height", "point"],
)
def test_ciou_where_torchvision_is_nan(pred):
    pred = torch.tensor([pred])
    target = torch.tensor([[10.0, 10.0, 50.0, 40.0]])
    _, theirs = value_and_gradient(tv.complete_box_iou_loss, pred, target)
    assert not theirs.isfinite().all()
    value, gradient = value_and_gradient(ours("ciou"), pred, target)
    assert value.isfinite().all()
    assert gradient.isfinite().all()
    assert gradient.abs().max() < 1e4 / 30
