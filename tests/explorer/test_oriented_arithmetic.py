"""The page's arithmetic of oriented boxes against the Python losses in float64."""

import json
import math
from functools import cache

import pytest
import torch

from alphaiou import alpha_iou_loss, box_iou
from alphaiou.explorer.page import ARITHMETIC, scripts
from alphaiou.losses.kinds import kinds_of
from alphaiou.oriented import OrientedGeometry

KINDS = kinds_of(OrientedGeometry)
PAIRS = 600
POWERS = [(1.0, None), (3.0, None), (0.5, None), (0.0, None), (2.5, 0.7), (3.0, 1.0)]
QUARTER = math.pi / 2


@cache
def random_pairs():
    """Near, far, nested, touching, identical, turned by quarters, elongated and square boxes."""
    generator = torch.Generator().manual_seed(0)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def quarters(count):
        return QUARTER * torch.randint(-2, 3, (count,), generator=generator)

    size = 10 ** (4 * uniform(PAIRS, 1) - 1)
    near = 10 ** (3 * uniform(PAIRS, 1) - 2.5)
    target = torch.cat((uniform(PAIRS, 2), 0.1 + uniform(PAIRS, 2), 7 * uniform(PAIRS, 1) - 3.5), 1)
    pred = target + near * (uniform(PAIRS, 5) - 0.5)
    pred[:, 2:4] = pred[:, 2:4].abs() + 1e-3
    pred[:20] = target[:20]  # identical
    pred[20:60, :2] = target[20:60, :2]  # nested
    pred[20:40, 2:4] = 0.4 * target[20:40, 2:4]
    pred[60:100] = target[60:100]  # the same box, turned by quarters
    pred[60:100, 4] += quarters(40)
    pred[100:140, 4] = target[100:140, 4] + quarters(40)  # parallel sides
    pred[140:160, 2:4] = pred[140:160, 2:3]  # squares
    target[160:180, 2:4] = target[160:180, 2:3]
    pred[180:200, 2:4], target[180:200, 2:4] = 1.0, 1.0
    target[200:240, 3] *= 0.02  # elongated
    pred[200:220, 3] *= 0.02
    shift = torch.stack((target[240:260, 4].cos(), target[240:260, 4].sin()), -1)
    pred[240:260] = target[240:260]  # touching from outside, up to rounding
    pred[240:260, :2] += target[240:260, 2:3] * shift
    target[260:280, 4], pred[260:280, 4] = 0.0, 0.0  # touching along the axes
    pred[260:280, 0] = target[260:280, 0] + 0.5 * (pred[260:280, 2] + target[260:280, 2])
    pred[280:300, :2] += 1e3  # far away
    pred[300:310, 2], target[310:320, 3] = 0.0, -1.0  # flat and inverted
    scale = torch.cat((size.expand(PAIRS, 4), torch.ones(PAIRS, 1, dtype=torch.float64)), 1)
    return scale * pred, scale * target


@pytest.fixture(scope="module")
def arithmetic(browser, tmp_path_factory):
    """A browser that has the page's functions, and the pairs."""
    path = tmp_path_factory.mktemp("oriented") / "page.html"
    path.write_text(
        f"<!doctype html><meta charset=utf-8><script>{scripts(*ARITHMETIC)}</script>", "utf-8"
    )
    browser.show(path)
    give_pairs(browser, *random_pairs())
    return browser


def give_pairs(browser, pred, target):
    browser.evaluate(f"globalThis.pairs = {json.dumps([pred.tolist(), target.tolist()])}; 0")


def page_losses(browser, kind, alpha, penalty_alpha=None):
    """Value and gradient of all pairs, by the page."""
    powers = json.dumps({"alpha": alpha, "penaltyAlpha": penalty_alpha})
    answers = browser.evaluate(
        f"pairs[0].map((pred, i) => {{ const loss = pairLoss({kind!r}, pred, pairs[1][i],"
        f"{powers}, 'cxcywhr'); return [loss.value, ...loss.gradient]; }})"
    )
    return torch.tensor(answers, dtype=torch.float64)


def package_losses(pred, target, kind, alpha, penalty_alpha=None):
    """Value and gradient of all pairs, by the package."""
    boxes = pred.clone().requires_grad_()
    loss = alpha_iou_loss(
        boxes, target, kind=kind, alpha=alpha, penalty_alpha=penalty_alpha, box_format="cxcywhr"
    )
    (gradient,) = torch.autograd.grad(loss.sum(), boxes)
    return torch.cat((loss.detach()[:, None], gradient), -1)


def test_the_oriented_kinds_are_those_of_the_package(arithmetic):
    assert arithmetic.evaluate("Object.keys(ORIENTED_KINDS)") == list(KINDS)


def test_the_pairs_are_of_all_sorts():
    iou = box_iou(*random_pairs(), box_format="cxcywhr")
    assert (iou > 1 - 1e-9).sum() >= 20
    assert ((iou > 0.01) & (iou < 0.99)).sum() > 200
    assert (iou == 0).sum() > 50


@pytest.mark.parametrize("kind", KINDS)
def test_oriented_losses_and_gradients(arithmetic, kind):
    pred, target = random_pairs()
    for alpha, penalty_alpha in POWERS:
        actual = page_losses(arithmetic, kind, alpha, penalty_alpha)
        expected = package_losses(pred, target, kind, alpha, penalty_alpha)
        if alpha < 1:
            # Roots and logarithms show what rounding leaves of a penalty or an area that is 0.
            keep = [*range(60), *range(100, 300), *range(320, PAIRS)]
            actual, expected = actual[keep], expected[keep]
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_three_writings_of_a_rectangle_have_one_loss(arithmetic, kind):
    # The first pairs have losses that are made of the rounding of their angle.
    pred, target = (boxes[320:] for boxes in random_pairs())
    turned, exchanged = pred.clone(), pred[:, [0, 1, 3, 2, 4]]
    turned[:, 4] += 2 * QUARTER
    exchanged[:, 4] += QUARTER
    give_pairs(arithmetic, torch.cat((pred, turned, exchanged)), target.repeat(3, 1))
    try:
        once, same, other = page_losses(arithmetic, kind, 3.0, 2.0).chunk(3)
    finally:
        give_pairs(arithmetic, *random_pairs())
    torch.testing.assert_close(same, once, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(other[:, [0, 1, 2, 4, 3, 5]], once, rtol=1e-9, atol=1e-9)
    assert once[:, 0].std() > 0.05


@pytest.mark.parametrize("kind", ["iou", "giou", "diou", "ciou"])
def test_boxes_that_are_not_turned_have_the_axis_aligned_loss(arithmetic, kind):
    found = arithmetic.evaluate(
        "pairs[0].slice(320).map((pred, i) => { const target = pairs[1][320 + i];"
        f"const loss = (...rest) => pairLoss({kind!r}, ...rest);"
        "const powers = {alpha: 3, penaltyAlpha: 1};"
        "const boxes = [pred, target].map((box) => box.slice(0, 4));"
        "const [one, other] = [loss(...boxes, powers, 'cxcywh'),"
        "loss(...boxes.map((box) => [...box, 0]), powers, 'cxcywhr')];"
        "return [[one.value, ...one.gradient], [other.value, ...other.gradient.slice(0, 4)]]; })"
    )
    plain, oriented = torch.tensor(found, dtype=torch.float64).unbind(1)
    torch.testing.assert_close(oriented, plain, rtol=1e-9, atol=1e-9)
