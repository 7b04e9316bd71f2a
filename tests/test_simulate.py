import doctest
import math
import sys
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from alphaiou import box_iou
from alphaiou.losses.spec import LossSpec
from alphaiou.simulate import (
    AREAS,
    ASPECT_RATIOS,
    CASES_PER_POINT,
    MIN_SIDE,
    SimulationResult,
    SimulationSettings,
    anchor_points,
    cases_at,
    descend,
    oriented_cases_at,
    simulate,
)

# By the name of the module: ``alphaiou.losses`` may one day export the function under it.
simulate_module = sys.modules["alphaiou.simulate"]
loss_spec_module = sys.modules["alphaiou.losses.spec"]
SMALL = SimulationSettings(points=3, iterations=10)


def same(a: SimulationResult, b: SimulationResult) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


# A scalar re-implementation: plain Python floats, gradients by central differences.


def corners(box):
    x, y, w, h = box
    return x - w / 2, y - h / 2, x + w / 2, y + h / 2


def scalar_loss(kind, alpha, box, target):
    a, b = corners(box), corners(target)
    inter = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(
        0.0, min(a[3], b[3]) - max(a[1], b[1])
    )
    union = box[2] * box[3] + target[2] * target[3] - inter
    hull = max(a[2], b[2]) - min(a[0], b[0]), max(a[3], b[3]) - min(a[1], b[1])
    penalty = {
        "iou": 0.0,
        "giou": 1 - union / (hull[0] * hull[1]),
        "diou": math.dist(box[:2], target[:2]) ** 2 / (hull[0] ** 2 + hull[1] ** 2),
    }[kind]
    return 1 - (inter / union) ** alpha + penalty**alpha


def scalar_descent(kind, alpha, box, target, iterations, learning_rate):
    box, trace = list(box), []
    for iteration in range(iterations + 1):
        iou = 1 - scalar_loss("iou", 1.0, box, target)
        trace.append((sum(abs(p - q) for p, q in zip(box, target, strict=True)), iou))
        rate = learning_rate
        if iteration >= 0.8 * iterations:
            rate = learning_rate / 10
        if iteration >= 0.9 * iterations:
            rate = learning_rate / 100
        gradient = []
        for i in range(4):
            up, down = list(box), list(box)
            up[i] += 1e-6
            down[i] -= 1e-6
            difference = scalar_loss(kind, alpha, up, target)
            gradient.append((difference - scalar_loss(kind, alpha, down, target)) / 2e-6)
        last = box
        box = [p - rate * (2 - iou) * g for p, g in zip(box, gradient, strict=True)]
        box[2:] = (max(side, MIN_SIDE) for side in box[2:])
    return last, np.array(trace)


@pytest.mark.parametrize("kind", ["iou", "giou", "diou"])
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_the_batched_descent_is_that_of_one_box_at_a_time(kind, alpha):
    settings = SimulationSettings(points=4, iterations=20, radius=1.5, seed=3)
    anchors, targets = cases_at(anchor_points(settings).double())
    chosen = torch.tensor([0, 50, 171, 260, 342])
    anchors, targets = anchors[:, chosen], targets[:, chosen]
    loss = LossSpec(kind, alpha).function("cxcywh")
    descent = descend(loss, anchors, targets, settings)
    totals = 0
    for box, target, end in zip(
        anchors.reshape(-1, 4).tolist(),
        targets.reshape(-1, 4).tolist(),
        descent.boxes.reshape(-1, 4).tolist(),
        strict=True,
    ):
        last, trace = scalar_descent(kind, alpha, box, target, 20, 0.1)
        assert end == pytest.approx(last, abs=2e-6)
        totals = totals + trace
    expected_error, expected_iou = totals.T
    assert descent.total_error.numpy() == pytest.approx(expected_error, abs=1e-5)
    assert descent.total_iou.numpy() == pytest.approx(expected_iou, abs=1e-5)


def test_the_published_size():
    settings = SimulationSettings()
    assert settings.cases == 5000 * 7 * 7 * 7 == 1_715_000
    assert CASES_PER_POINT == 343
    steps = [settings.step(iteration) for iteration in (0, 159, 160, 179, 180, 199)]
    assert steps == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_points_are_uniform_in_the_disc():
    points = anchor_points(SimulationSettings(points=20_000)) - 10
    squared = points.square().sum(-1) / 9
    assert squared.max() <= 1
    # For a uniform disc the squared radius is uniform, and no quadrant is preferred.
    quantiles = torch.quantile(squared, torch.tensor([0.25, 0.5, 0.75]))
    assert quantiles.tolist() == pytest.approx([0.25, 0.5, 0.75], abs=0.015)
    assert points.mean(0).tolist() == pytest.approx([0, 0], abs=0.05)


def test_every_anchor_shape_meets_every_target_shape():
    points = anchor_points(SMALL).double()
    anchors, targets = cases_at(points)
    assert anchors.shape == targets.shape == (3, 343, 4)
    assert torch.equal(anchors[..., :2], points[:, None].expand(3, 343, 2))
    assert torch.equal(targets[..., :2], torch.full((3, 343, 2), 10.0, dtype=torch.float64))

    def shape(box):
        return round((box[2] * box[3]).item(), 9), round((box[2] / box[3]).item(), 9)

    pairs = {(*shape(a), *shape(t)) for a, t in zip(anchors[1], targets[1], strict=True)}
    rounded = [round(ratio, 9) for ratio in ASPECT_RATIOS]
    assert pairs == {
        (area, ratio, 1.0, other) for area in AREAS for ratio in rounded for other in rounded
    }


def test_a_step_never_makes_a_side_shorter_than_the_floor():
    def shrink(pred, target):
        return 100 * pred[..., 2:].sum(-1)

    descent = descend(shrink, *cases_at(anchor_points(SMALL)), replace(SMALL, iterations=2))
    assert torch.equal(descent.boxes[..., 2:], torch.full((3, 343, 2), MIN_SIDE))


def test_the_step_is_scaled_by_2_minus_the_iou():
    def drift(pred, target):
        return pred[..., 0]

    settings = SimulationSettings(points=2, iterations=1, radius=0.3)
    anchors, targets = cases_at(anchor_points(settings))
    descent = descend(drift, anchors, targets, settings)
    iou = box_iou(anchors, targets, box_format="cxcywh")
    assert torch.allclose(anchors[..., 0] - descent.boxes[..., 0], 0.1 * (2 - iou), atol=1e-5)


def test_a_result_is_the_means_over_the_cases():
    loss = LossSpec("giou").function("cxcywh")
    result = simulate(loss, SMALL)
    descent = descend(loss, *cases_at(anchor_points(SMALL)), SMALL)
    assert result.error.shape == result.iou.shape == (11,)
    assert result.final_error.tolist() == pytest.approx(descent.errors.mean(-1).tolist())
    assert result.final_iou.tolist() == pytest.approx(descent.ious.mean(-1).tolist())
    assert result.error[-1].item() == pytest.approx(result.final_error.mean().item())
    assert result.iou[-1].item() == pytest.approx(result.final_iou.mean().item())
    shares = [(descent.ious > t).double().mean().item() for t in (0.5, 0.75, 0.95)]
    assert result.shares.tolist() == pytest.approx(shares)


def test_chunks_change_nothing_but_rounding():
    loss = LossSpec("ciou", 3.0).function("cxcywh")
    whole, pieces = simulate(loss, SMALL), simulate(loss, SMALL, points_per_chunk=1)
    for field in fields(whole):
        assert torch.allclose(getattr(whole, field.name), getattr(pieces, field.name), atol=1e-6)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others():
    loss = LossSpec("ciou").function("cxcywh")
    first = simulate(loss, SMALL)
    assert same(first, simulate(loss, SMALL))
    assert not same(first, simulate(loss, replace(SMALL, seed=1)))


def test_progress_counts_every_case_of_every_iteration():
    steps = []
    simulate(LossSpec("iou").function("cxcywh"), SMALL, points_per_chunk=2, on_step=steps.append)
    assert steps == [2 * 343] * 10 + [343] * 10


@pytest.mark.parametrize(
    "wrong",
    [{"points": 0}, {"iterations": 0}, {"learning_rate": 0.0}, {"radius": math.nan}],
)
def test_bad_settings_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"{name} must be .*, got {wrong[name]}"):
        SimulationSettings(**wrong)


def test_penalties_reach_targets_that_the_plain_iou_loss_cannot():
    """What the DIoU paper found: without overlap the IoU loss has no gradient."""
    settings = SimulationSettings(points=8, iterations=100)
    iou, giou, diou, ciou = (
        simulate(LossSpec(kind).function("cxcywh"), settings).iou[-1]
        for kind in ("iou", "giou", "diou", "ciou")
    )
    assert iou < 0.5 < min(giou, diou, ciou)


@pytest.mark.parametrize("module", [simulate_module, loss_spec_module])
def test_examples_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


# Oriented boxes


def test_oriented_cases_are_all_pairs_of_anchors_and_targets():
    settings = replace(SMALL, oriented=True)
    anchors, targets = oriented_cases_at(anchor_points(settings))
    assert anchors.shape == targets.shape == (3, settings.cases // 3, 5)
    areas = anchors[..., 2] * anchors[..., 3]
    assert sorted({round(area, 4) for area in areas.flatten().tolist()}) == [0.5, 1.0, 2.0]
    assert len(torch.cat((anchors[0], targets[0]), -1).unique(dim=0)) == settings.cases // 3
    assert (targets[..., 4] == 0).all()


@pytest.mark.parametrize("kind", ["ciou", "probiou"])
def test_turned_boxes_reach_their_targets(kind):
    settings = SimulationSettings(points=2, iterations=60, radius=0.3, oriented=True)
    result = simulate(LossSpec(kind).function(settings.box_format), settings)
    assert result.iou[-1] > 0.8 > 0.6 > result.iou[0]
    assert result.error[-1] < 0.5 * result.error[0]


def test_oriented_error_does_not_depend_on_the_writing():
    targets = torch.tensor([[10.0, 10.0, 2.0, 0.5, 0.0]])
    anchors = torch.tensor([[10.0, 10.0, 0.5, 2.0, math.pi / 2]])
    still = descend(lambda a, b: 0.0 * a.sum(-1), anchors, targets, SMALL)
    assert still.errors.item() == pytest.approx(0.0, abs=1e-6)
    assert still.ious.item() == pytest.approx(1.0, abs=1e-6)
