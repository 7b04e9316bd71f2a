import math
from decimal import Decimal, localcontext

import pytest
import torch

from alphaiou import alpha_iou_loss, properties
from alphaiou.properties import (
    absolute_gradient_weight,
    absolute_loss_weight,
    relative_gradient_weight,
    relative_loss_weight,
    turning_point,
)

ALPHAS = (0.1, 0.5, 0.999999, 1.0, 1.000001, 1.5, 2.0, 3.0, 10.0)
IOUS = (1e-30, 1e-6, 0.1, 0.4999, 0.5, 0.5001, 0.9, 1 - 1e-6, 1 - 2.0**-40)
WEIGHTS = (
    relative_loss_weight,
    relative_gradient_weight,
    absolute_loss_weight,
    absolute_gradient_weight,
)


def exact(name: str, iou: float, alpha: float) -> Decimal:
    """The formulas of the paper as they are printed, in 200 digits."""
    with localcontext() as context:
        context.prec = 200
        x, a, one = Decimal(iou), Decimal(alpha), Decimal(1)
        return {
            "relative_loss_weight": lambda: one + (x - x**a) / (one - x),
            "relative_gradient_weight": lambda: a * x ** (a - one),
            "absolute_loss_weight": lambda: x - x**a,
            "absolute_gradient_weight": lambda: a * x ** (a - one) - one,
        }[name]()


def exact_slope(name: str, iou: float, alpha: float) -> float:
    with localcontext() as context:
        context.prec = 200
        step = Decimal(10) ** -25 * Decimal(iou)
        low, high = (exact(name, Decimal(iou) + s, alpha) for s in (-step, step))
        return float((high - low) / (2 * step))


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_values_are_those_of_the_printed_formulas(weight, alpha):
    for iou in IOUS:
        expected = float(exact(weight.__name__, iou, alpha))
        # Where α·IoU^(α−1) − 1 passes 0, only its distance from 0 in units of α − 1 is meaningful.
        slack = 4e-16 * abs(alpha - 1) if weight is absolute_gradient_weight else 0
        assert weight(iou, alpha) == pytest.approx(expected, rel=4e-14, abs=slack)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("alpha", [0.5, 1.000001, 1.5, 3.0, 10.0])
def test_slopes_stay_accurate_up_to_the_limits(weight, alpha):
    iou = torch.tensor(IOUS[2:], dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(weight(iou, alpha).sum(), iou)
    expected = [exact_slope(weight.__name__, value, alpha) for value in IOUS[2:]]
    assert slopes.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("iou", [0.05, 0.3, 0.5, 0.75, 0.99])
def test_weights_compare_the_loss_with_the_iou_loss(iou, alpha):
    def loss_and_gradient(power: float) -> tuple[float, float]:
        edge = torch.tensor(iou, dtype=torch.float64, requires_grad=True)
        zero, one = torch.zeros_like(edge), torch.ones_like(edge)
        target = torch.stack((zero, zero, one, one))
        # A box of the same height inside the target: the IoU is its width.
        loss = alpha_iou_loss(torch.stack((zero, zero, edge, one)), target, alpha=power)
        (gradient,) = torch.autograd.grad(loss, edge)
        return loss.item(), abs(gradient.item())

    (loss, slope), (plain_loss, plain_slope) = loss_and_gradient(alpha), loss_and_gradient(1.0)
    assert relative_loss_weight(iou, alpha) == pytest.approx(loss / plain_loss, rel=1e-12)
    assert absolute_loss_weight(iou, alpha) == pytest.approx(loss - plain_loss, abs=1e-12)
    assert relative_gradient_weight(iou, alpha) == pytest.approx(slope / plain_slope, rel=1e-12)
    assert absolute_gradient_weight(iou, alpha) == pytest.approx(slope - plain_slope, abs=1e-12)


@pytest.mark.parametrize(
    ("alpha", "point"),
    [
        (0.5, 0.25),
        (1.0, 1 / math.e),
        (2.0, 0.5),
        (3.0, 3**-0.5),
        (4.0, 4 ** (-1 / 3)),
        (5.0, 5**-0.25),
        (10.0, 10 ** (-1 / 9)),
    ],
)
def test_turning_points_of_the_paper(alpha, point):
    assert turning_point(alpha) == pytest.approx(point, rel=1e-15)


def test_turning_points_to_three_digits():
    rounded = [round(turning_point(alpha), 3) for alpha in (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 10.0)]
    assert rounded == [0.25, 0.368, 0.5, 0.577, 0.63, 0.669, 0.774]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9, 1.1, 2.0, 3.0, 10.0])
def test_the_turning_point_is_where_the_gradients_agree_and_the_losses_differ_most(alpha):
    point = turning_point(alpha)
    assert relative_gradient_weight(point, alpha) == pytest.approx(1, rel=1e-14)
    assert absolute_gradient_weight(point, alpha) == pytest.approx(0, abs=1e-14)
    farthest = abs(absolute_loss_weight(point, alpha))
    assert all(farthest > abs(absolute_loss_weight(point + d, alpha)) for d in (-1e-4, 1e-4))


@pytest.mark.parametrize("distance", [0.0, 1e-15, 1e-9, 1e-4, 0.3, 0.4999, 0.5001])
def test_the_turning_point_and_its_slope_are_smooth_through_alpha_1(distance):
    alpha = torch.tensor([1 - distance, 1 + distance], dtype=torch.float64, requires_grad=True)
    points = turning_point(alpha)
    (slopes,) = torch.autograd.grad(points.sum(), alpha)
    for a, point, slope in zip(alpha.tolist(), points.tolist(), slopes.tolist(), strict=True):
        t = a - 1
        if abs(t) < 1e-3:  # Taylor: e⁻¹ (1 + t/2 − 5t²/24)
            expected = (1 + t / 2 - 5 * t**2 / 24) / math.e, (0.5 - 5 * t / 12) / math.e
        else:
            value = a ** (-1 / t)
            expected = value, value * (math.log(a) / t**2 - 1 / (a * t))
        assert (point, slope) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_limits_are_exact(alpha):
    assert relative_loss_weight(0.0, alpha) == 1
    assert relative_loss_weight(1.0, alpha) == alpha
    assert relative_gradient_weight(1.0, alpha) == alpha
    assert absolute_loss_weight(0.0, alpha) == 0
    assert absolute_loss_weight(1.0, alpha) == 0
    assert absolute_gradient_weight(1.0, alpha) == alpha - 1
    at_zero = 0.0 if alpha > 1 else (alpha if alpha == 1 else math.inf)
    assert relative_gradient_weight(0.0, alpha) == at_zero
    assert absolute_gradient_weight(0.0, alpha) == at_zero - 1


@pytest.mark.parametrize("iou", [0.0, 1e-300, 0.2, 0.7, 1.0])
def test_alpha_1_changes_nothing(iou):
    values = [weight(iou, 1.0) for weight in WEIGHTS]
    assert values == [1, 1, 0, 0]


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.5, 3.0])
def test_slopes_at_the_ends_are_their_limits(weight, dtype, alpha):
    ends = torch.tensor([0.0, 1.0], dtype=dtype, requires_grad=True)
    (slopes,) = torch.autograd.grad(weight(ends, alpha).sum(), ends)
    infinite = math.inf if alpha == 1.5 else 0.0
    expected = {
        "relative_loss_weight": (float(alpha > 1), alpha * (alpha - 1) / 2),
        "relative_gradient_weight": (infinite, alpha * (alpha - 1)),
        "absolute_loss_weight": (float(alpha > 1), 1 - alpha),
        "absolute_gradient_weight": (infinite, alpha * (alpha - 1)),
    }[weight.__name__]
    assert slopes.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_no_slope_is_nan_in_fp32_however_small_the_iou(weight):
    iou = torch.tensor([0.0, 1e-45, 1e-38, 1e-30, 1e-10, 1.0], requires_grad=True)
    for alpha in (0.01, 0.5, 1.0, 3.0):
        (slopes,) = torch.autograd.grad(weight(iou, alpha).sum(), iou)
        assert not slopes.isnan().any()


@pytest.mark.parametrize("weight", WEIGHTS)
def test_gradcheck_in_both_arguments(weight):
    iou = torch.tensor([[0.1], [0.45], [0.8]], dtype=torch.float64, requires_grad=True)
    alpha = torch.tensor([0.5, 1.2, 3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(weight, (iou, alpha))
    assert torch.autograd.gradgradcheck(weight, (iou, alpha))


def test_tensors_broadcast_and_keep_their_dtype():
    iou, alpha = torch.rand(4, 1), torch.tensor([1.0, 2.0, 3.0])
    for weight in WEIGHTS:
        both = weight(iou, alpha)
        assert both.shape == (4, 3)
        assert both.dtype == torch.float32
        assert weight(iou.double(), 2.0).dtype == torch.float64
        assert weight(0.25, alpha).shape == (3,)
        assert torch.equal(weight(iou, 2.0), both[:, 1:2])
        assert weight(torch.tensor([0, 1]), 2.0).dtype == torch.float32
        assert isinstance(weight(0.25, 2.0), float)
        assert isinstance(weight(1, 2), float)
    assert turning_point(alpha).shape == (3,)
    assert isinstance(turning_point(2.0), float)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("bad", [-0.1, 1.1, math.nan, math.inf])
def test_an_iou_outside_its_range_is_refused(weight, bad):
    with pytest.raises(ValueError, match=rf"iou must be in \[0, 1\], got {bad}"):
        weight(bad, 2.0)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf])
def test_an_alpha_outside_its_range_is_refused(bad):
    for call in (turning_point, *(lambda a, w=w: w(0.5, a) for w in WEIGHTS)):
        with pytest.raises(ValueError, match=rf"alpha must be .*\(0, inf\), got {bad}"):
            call(bad)


def test_every_public_name_has_a_runnable_example():
    import doctest

    finder = doctest.DocTestFinder(recurse=True)
    found = {
        test.name.rsplit(".", 1)[-1]: test for test in finder.find(properties) if test.examples
    }
    assert set(found) == set(properties.__all__)
    runner = doctest.DocTestRunner()
    assert all(runner.run(test).failed == 0 for test in found.values())
