"""The page's arithmetic, run in a browser, against the Python losses in float64."""

import json
from functools import cache

import pytest
import torch

from alphaiou import alpha_iou_loss, properties
from alphaiou.boxes import convert_boxes
from alphaiou.explorer.page import ARITHMETIC, scripts
from alphaiou.losses.kinds import kinds_of
from alphaiou.simulate import MIN_SIDE, SimulationSettings, cases_at, descend

KINDS = kinds_of()
PAIRS = 1000
FORMATS = ("xyxy", "cxcywh")
POWERS = [(1.0, None), (3.0, None), (0.5, None), (0.0, None), (2.5, 0.7), (3.0, 1.0)]


@cache
def random_pairs(box_format="xyxy"):
    """Near, far, nested, touching, identical, flat and inverted boxes, of many sizes."""
    generator = torch.Generator().manual_seed(0)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    size = 10 ** (4 * uniform(PAIRS, 1) - 1)
    target = torch.cat((uniform(PAIRS, 2), 0.1 + uniform(PAIRS, 2)), -1)
    pred = target + 10 ** (3 * uniform(PAIRS, 1) - 2.5) * (uniform(PAIRS, 4) - 0.5)
    pred, target = (size * convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target))
    pred[:40] = target[:40]  # identical
    pred[40:80, 0] = target[40:80, 0]  # a shared edge
    pred[80:120, ::2] += (target[80:120, 2] - pred[80:120, 0])[:, None]  # touching from outside
    pred[120:150, 2] = pred[120:150, 0]  # flat
    target[150:180, 3] = target[150:180, 1]
    pred[180:200, 2:] = pred[180:200, :2]  # points
    target[190:200] = pred[190:200]
    pred[200:220, 0], pred[200:220, 2] = pred[200:220, 2].clone(), pred[200:220, 0].clone()
    target[220:240, 1], target[220:240, 3] = target[220:240, 3].clone(), target[220:240, 1].clone()
    pred[240:260] = target[240:260] + 1e4 * size[240:260]  # far away
    pred[260:280] = convert_boxes(  # vanishing
        convert_boxes(pred[260:280], "xyxy", "cxcywh") * torch.tensor([1, 1, 1e-5, 1e-5]),
        "cxcywh",
        "xyxy",
    )
    return tuple(convert_boxes(boxes, "xyxy", box_format) for boxes in (pred, target))


@pytest.fixture(scope="module")
def arithmetic(browser, tmp_path_factory):
    """A browser that has the page's functions, and the pairs."""
    path = tmp_path_factory.mktemp("arithmetic") / "page.html"
    path.write_text(
        f"<!doctype html><meta charset=utf-8><script>{scripts(*ARITHMETIC)}</script>", "utf-8"
    )
    browser.show(path)
    pairs = {name: [boxes.tolist() for boxes in random_pairs(name)] for name in FORMATS}
    browser.evaluate(f"globalThis.pairs = {json.dumps(pairs)}; 0")
    return browser


def test_the_kinds_are_those_of_the_package(arithmetic):
    assert arithmetic.evaluate("Object.keys(KINDS)") == list(KINDS)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients(arithmetic, kind, box_format):
    pred, target = random_pairs(box_format)
    for alpha, penalty_alpha in POWERS:
        powers = json.dumps({"alpha": alpha, "penaltyAlpha": penalty_alpha})
        answers = arithmetic.evaluate(
            f"pairs.{box_format}[0].map((pred, i) => {{ const loss = pairLoss({kind!r}, pred,"
            f"pairs.{box_format}[1][i], {powers}, {box_format!r});"
            "return [loss.value, ...loss.gradient]; })"
        )
        found = torch.tensor(answers, dtype=torch.float64)
        boxes = pred.clone().requires_grad_()
        loss = alpha_iou_loss(
            boxes,
            target,
            kind=kind,
            alpha=alpha,
            penalty_alpha=penalty_alpha,
            box_format=box_format,
            backend="reference",
        )
        (gradient,) = torch.autograd.grad(loss.sum(), boxes)
        torch.testing.assert_close(found[:, 0], loss.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(found[:, 1:], gradient, rtol=1e-6, atol=1e-6)


WEIGHTS = {
    "relativeLossWeight": properties.relative_loss_weight,
    "relativeGradientWeight": properties.relative_gradient_weight,
    "absoluteLossWeight": properties.absolute_loss_weight,
    "absoluteGradientWeight": properties.absolute_gradient_weight,
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(arithmetic, name):
    ious = [0.001, 0.2, 0.5, 0.50001, 0.9, 1 - 1e-9, 1.0]
    alphas = [0.5, 1.0, 1.0001, 2.0, 3.0, 10.0]
    found = arithmetic.evaluate(f"{ious}.map((iou) => {alphas}.map((a) => {name}(iou, a)))")
    expected = [[WEIGHTS[name](iou, alpha) for alpha in alphas] for iou in ious]
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-9, atol=1e-9)


def test_turning_points(arithmetic):
    alphas = [0.2, 0.5, 0.9999, 1.0, 1.0001, 2.0, 3.0, 10.0]
    found = arithmetic.evaluate(f"{alphas}.map(turningPoint)")
    assert found == pytest.approx([properties.turning_point(alpha) for alpha in alphas], rel=1e-9)


@pytest.mark.parametrize(("alpha", "gain"), [(3.0, 2.0), (2.0, 0.6), (0.5, 1.5), (3.0, 1.0)])
def test_a_gain_moves_the_turning_point(arithmetic, alpha, gain):
    point = arithmetic.evaluate(f"gainedTurningPoint({alpha}, {gain})")
    assert gain * properties.relative_gradient_weight(point, alpha) == pytest.approx(1.0)


@pytest.mark.parametrize(("alpha", "gain"), [(1, 2), (3, 0.2), (0.5, 2), (0.5, 3)])
def test_some_gains_leave_no_turning_point(arithmetic, alpha, gain):
    assert arithmetic.evaluate(f"gainedTurningPoint({alpha}, {gain})") is None


@pytest.mark.parametrize("kind", ["iou", "diou", "ciou", "nwd"])
def test_the_simulation_descends_as_the_package_does(arithmetic, kind):
    """Kinks amplify rounding, so the boxes are compared over a shorter run than the page's."""
    settings = SimulationSettings(points=2, iterations=40)
    points = torch.tensor([[11.0, 9.5], [8.2, 12.1]], dtype=torch.float64)
    anchors, targets = cases_at(points)

    def loss(pred, target):
        return alpha_iou_loss(pred, target, kind=kind, alpha=3.0, box_format="cxcywh")

    expected = descend(loss, anchors, targets, settings)
    found = arithmetic.evaluate(
        f"(() => {{ const cases = {points.tolist()}.flatMap(casesAt);"
        f"const descent = new Descent(cases, {kind!r}, {{alpha: 3, penaltyAlpha: null}}, 1, 40);"
        "while (!descent.finished) descent.step();"
        "return {start: cases.map(({box, target}) => [...box, ...target]),"
        "boxes: descent.boxes, curve: descent.curve}; })()"
    )
    start = torch.cat((anchors, targets), -1).flatten(0, 1)
    torch.testing.assert_close(torch.tensor(found["start"], dtype=torch.float64), start)
    boxes = torch.tensor(found["boxes"], dtype=torch.float64)
    torch.testing.assert_close(boxes, expected.boxes.flatten(0, 1), rtol=1e-6, atol=1e-6)
    ious = torch.tensor([point["iou"] for point in found["curve"]], dtype=torch.float64)
    torch.testing.assert_close(ious, expected.total_iou / len(start), rtol=1e-6, atol=1e-6)
    errors = torch.tensor([point["error"] for point in found["curve"]], dtype=torch.float64)
    torch.testing.assert_close(errors, expected.total_error / len(start), rtol=1e-6, atol=1e-6)


def test_the_steps_shrink_when_the_packages_do(arithmetic):
    settings = SimulationSettings(iterations=37)
    found = arithmetic.evaluate("Array.from({length: 37}, (_, i) => stepSize(i, 37))")
    assert found == pytest.approx([settings.step(i) for i in range(37)])


def test_points_lie_in_the_disc_and_depend_on_the_seed(arithmetic):
    found = arithmetic.evaluate(
        "[anchorPoints(500, 0), anchorPoints(500, 0), anchorPoints(500, 1)]"
    )
    assert found[0] == found[1] != found[2]
    radii = (torch.tensor(found[0]) - 10).norm(dim=-1)
    assert radii.max() <= 3
    assert (radii < 3 / 2**0.5).double().mean() == pytest.approx(0.5, abs=0.08)  # by area


def test_a_step_leaves_a_box_a_box(arithmetic):
    moved = arithmetic.evaluate(
        "descendOnce([1, 2, 0.01, 0.01], {iou: 0.5, gradient: [1, -1, 5, -1]}, 0.1)"
    )
    assert moved == pytest.approx([0.85, 2.15, MIN_SIDE, 0.16])
