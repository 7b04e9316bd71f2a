"""Deltas, matching, sampling, pooling and box losses of Faster R-CNN, against torchvision's."""

import math
from functools import partial

import pytest
import torch
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler, BoxCoder, Matcher
from torchvision.ops import MultiScaleRoIAlign, box_iou, generalized_box_iou_loss

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.batch import Targets
from alphaiou.detectors.faster_rcnn.boxes import (
    ROI_WEIGHTS,
    RPN_WEIGHTS,
    decode,
    encode,
    iou_matrix,
)
from alphaiou.detectors.faster_rcnn.loss import RegressionLoss
from alphaiou.detectors.faster_rcnn.roi import pool_regions
from alphaiou.detectors.faster_rcnn.targets import Assignment, Truth, pad_targets


def random_boxes(*shape, seed=0, side=100.0):
    generator = torch.Generator().manual_seed(seed)
    corner, sides = torch.rand(2, *shape, 2, generator=generator, dtype=torch.float64)
    return torch.cat([corner * side, corner * side + sides * side / 2 + 0.5], dim=-1)


def everything_valid(boxes):
    return Truth(boxes, torch.zeros(boxes.shape[:2]).long(), torch.ones(boxes.shape[:2]).bool())


@pytest.mark.parametrize("weights", [RPN_WEIGHTS, ROI_WEIGHTS])
def test_deltas_are_torchvisions(weights):
    coder = BoxCoder((weights[0], weights[0], weights[1], weights[1]))
    boxes, references = random_boxes(50, seed=1), random_boxes(50, seed=2)
    deltas = torch.randn(50, 4, dtype=torch.float64) * 20  # some beyond the most growth
    torch.testing.assert_close(
        encode(boxes, references, weights), coder.encode_single(boxes, references)
    )
    torch.testing.assert_close(
        decode(deltas, references, weights), coder.decode_single(deltas, references)
    )
    back = decode(encode(boxes, references, weights), references, weights)
    torch.testing.assert_close(back, boxes)


def test_ious_are_torchvisions_and_0_for_empty_boxes():
    boxes, others = random_boxes(3, 20, seed=1), random_boxes(3, 30, seed=2)
    for got, one, other in zip(iou_matrix(boxes, others), boxes, others, strict=True):
        assert torch.equal(got, box_iou(one, other))
    point = torch.ones(1, 1, 4)
    assert iou_matrix(point, point).tolist() == [[[0.0]]]


@pytest.mark.parametrize("low_quality", [True, False])
@pytest.mark.parametrize(("high", "low"), [(0.7, 0.3), (0.5, 0.5), (0.95, 0.4)])
@pytest.mark.parametrize("count", [1, 4, 40])
def test_matches_are_torchvisions(count, high, low, low_quality):
    references, boxes = random_boxes(300, seed=3), random_boxes(2, count, seed=count)
    # Anchors of one shape that lie within a box all overlap it alike.
    references[:20, 2:] = references[:20, :2] + 1.0
    boxes[0, 0] = torch.tensor([-10.0, -10.0, 120.0, 120.0])
    truth = everything_valid(boxes)
    rules = Assignment(high, low, low_quality=low_quality, samples=9, positive_share=0.5)
    matches = rules.match(references[None], truth)
    matcher = Matcher(high, low, allow_low_quality_matches=low_quality)
    for image in (0, 1):
        expected = matcher(box_iou(boxes[image], references))
        assert torch.equal(matches.positive[image], expected >= 0)
        assert torch.equal(matches.negative[image], expected == Matcher.BELOW_LOW_THRESHOLD)
        found = matches.positive[image]
        assert torch.equal(matches.target[image][found], expected[found])


def test_boxes_that_are_not_there_match_nothing():
    references, boxes = random_boxes(100, seed=3), random_boxes(2, 6, seed=4)
    rules = Assignment(0.5, 0.3, low_quality=True, samples=9, positive_share=0.5)
    truth = everything_valid(boxes)
    truth.valid[0, 3:], truth.valid[1] = False, False
    matches = rules.match(references[None], truth)
    alone = rules.match(references[None], everything_valid(boxes[:1, :3]))
    for got, expected in zip(matches, alone, strict=True):
        assert torch.equal(got[:1], expected)
    assert matches.negative[1].all()
    assert not matches.positive[1].any()


def test_a_box_beside_all_references_does_not_make_them_positives():
    references = random_boxes(100, seed=3)
    truth = everything_valid(torch.tensor([[[500.0, 500.0, 510.0, 510.0]]]).double())
    rules = Assignment(0.7, 0.3, low_quality=True, samples=9, positive_share=0.5)
    assert rules.match(references[None], truth).negative.all()


@pytest.mark.parametrize(
    ("positives", "negatives"),
    [(0, 500), (3, 500), (200, 500), (200, 20), (5, 3), (0, 0), (64, 64)],
)
@pytest.mark.parametrize(("samples", "share"), [(128, 0.5), (64, 0.25), (10_000, 0.5)])
def test_as_many_are_drawn_as_by_torchvision(positives, negatives, samples, share):
    labels = torch.full((2, 800), -1)
    order = torch.randperm(800, generator=torch.Generator().manual_seed(0))
    labels[:, order[:positives]] = 1
    labels[:, order[positives : positives + negatives]] = 0
    rules = Assignment(0.7, 0.3, low_quality=True, samples=samples, positive_share=share)
    torch.manual_seed(0)
    sample = rules.sample(labels == 1, labels == 0, torch.rand(labels.shape))
    assert sample.rows.shape == (2, min(samples, 800))
    expected = BalancedPositiveNegativeSampler(samples, share)(list(labels))
    for image in (0, 1):
        chosen, is_positive = sample.valid[image], sample.positive[image]
        counts = (is_positive.sum().item(), (chosen & ~is_positive).sum().item())
        assert counts == tuple(masks[image].sum().item() for masks in expected)
        rows = sample.rows[image][chosen]
        assert len(rows.unique()) == len(rows)
        assert torch.equal(labels[image][rows] == 1, is_positive[chosen])
        assert (labels[image][rows] >= 0).all()
        assert not (is_positive & ~chosen).any()


def test_all_are_drawn_alike():
    torch.manual_seed(0)
    images, positive = 4000, torch.arange(100) < 20
    rules = Assignment(0.7, 0.3, low_quality=True, samples=20, positive_share=0.25)
    mask = positive.expand(images, -1)
    sample = rules.sample(mask, ~mask, torch.rand(mask.shape))
    times = torch.bincount(sample.rows.flatten(), minlength=100).double()
    for group, chosen in ((times[:20], 5), (times[20:], 15)):
        share = chosen / len(group)
        deviation = math.sqrt(images * share * (1 - share))
        assert group.sum() == images * chosen
        assert (group - images * share).abs().max() < 4.5 * deviation


def test_boxes_of_each_image_have_slots_of_their_own():
    generator = torch.Generator().manual_seed(0)
    images = torch.tensor([0, 0, 7, 0, 2, 2, 2, -5, 3])
    valid = torch.tensor([1, 1, 0, 1, 1, 1, 1, 0, 1]).bool()
    boxes = random_boxes(9, seed=5).float()
    labels = torch.randint(9, (9,), generator=generator)
    boxes[~valid] = math.nan
    boxes[4, 2] = boxes[4, 0]  # flat: left out
    truth = pad_targets(Targets(images, labels, boxes, valid), images=4, most=2)
    kept = [[0, 1], [], [5, 6], [8]]
    for image, rows in enumerate(kept):
        assert truth.valid[image].tolist() == [place < len(rows) for place in range(2)]
        assert torch.equal(truth.boxes[image, : len(rows)], boxes[rows])
        assert torch.equal(truth.labels[image, : len(rows)], labels[rows])
    assert truth.boxes.isfinite().all()


WIDTH, HEIGHT = 768, 512


def pyramid(batch=2, channels=3):
    return [
        torch.randn(batch, channels, HEIGHT // stride, WIDTH // stride, dtype=torch.float64)
        for stride in (4, 8, 16, 32)
    ]


def test_pooled_regions_are_torchvisions():
    torch.manual_seed(0)
    features = [level.requires_grad_() for level in pyramid()]
    whole = torch.tensor([WIDTH, HEIGHT, WIDTH, HEIGHT], dtype=torch.float64)
    corners = torch.rand(2, 100, 2, 2, dtype=torch.float64).sort(dim=2).values
    boxes = corners.flatten(2) * whole
    pool = MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2)
    named = {str(number): feature for number, feature in enumerate(features)}
    expected = pool(named, list(boxes), [(HEIGHT, WIDTH)] * 2)
    got = pool_regions(features, boxes)
    assert len(pool.map_levels(list(boxes)).unique()) == 4
    torch.testing.assert_close(got, expected)
    weight = torch.randn_like(got)
    for mine, theirs in zip(
        torch.autograd.grad((got * weight).sum(), features),
        torch.autograd.grad((expected * weight).sum(), features),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def hostile_boxes(dtype):
    """Regions thin, empty, huge, of the sizes at which the level changes, and at every border."""
    sides = [0.0, 0.1, 3.0, 17.0, 31.0, 60.0, 112.0, 224.0, 448.0, 900.0]
    sides += [
        float(torch.tensor(s).nextafter(torch.tensor(e))) for s in sides[6:9] for e in (0, 1e3)
    ]
    boxes = []
    for number, width in enumerate(sides):
        for height in (width, sides[(3 * number + 1) % len(sides)]):
            for x in (-70.0, -1.0, 0.0, 5.3, WIDTH - width, WIDTH - 0.1, WIDTH, WIDTH + 40.0):
                for y in (-70.0, -0.5, 0.0, 7.7, HEIGHT - height, HEIGHT - 3.0, HEIGHT + 2.0):
                    boxes.append((x, y, x + width, y + height))
    return torch.tensor(boxes, dtype=dtype).unflatten(0, (2, -1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_regions_at_the_border_are_torchvisions(dtype):
    """A sample more than a cell past the border is 0 there; regions are one cell wide or more."""
    torch.manual_seed(0)
    features = [level.to(dtype).requires_grad_() for level in pyramid()]
    boxes = hostile_boxes(dtype)
    pool = MultiScaleRoIAlign(["0", "1", "2", "3"], output_size=7, sampling_ratio=2)
    named = {str(number): feature for number, feature in enumerate(features)}
    expected = pool(named, list(boxes), [(HEIGHT, WIDTH)] * 2)
    got = pool_regions(features, boxes)
    assert len(pool.map_levels(list(boxes)).unique()) == 4
    torch.testing.assert_close(got, expected)
    weight = torch.randn_like(got)
    torch.testing.assert_close(
        torch.autograd.grad((got * weight).sum(), features),
        torch.autograd.grad((expected * weight).sum(), features),
        rtol=1e-4,
        atol=1e-4,
    )


def test_regions_that_are_no_boxes_pool_to_numbers():
    boxes = torch.tensor([[[0.0, 0, 0, 0], [9e9, 9e9, 9e9, 9e9], [5, 5, 1, 1], [-50, -9, -4, -2]]])
    assert pool_regions(pyramid(batch=1), boxes.double()).isfinite().all()


def pairs(count=40):
    torch.manual_seed(0)
    references, boxes = random_boxes(count, seed=6), random_boxes(count, seed=7)
    deltas = torch.randn(count, 4, dtype=torch.float64).requires_grad_()
    return deltas, references, boxes, torch.rand(count) < 0.4


@pytest.mark.parametrize("weight", [None, 2.5])
@pytest.mark.parametrize(
    ("box_loss", "usual"), [("l1", 1.0), ("smooth_l1", 1.0), (AlphaIoULoss("giou", 1.0), 10.0)]
)
def test_box_losses_of_positives(box_loss, usual, weight):
    deltas, references, boxes, positive = pairs()
    loss = RegressionLoss(box_loss, weight=weight, coder=ROI_WEIGHTS)
    got = loss(deltas, references, boxes, positive)
    coder = BoxCoder((10.0, 10.0, 5.0, 5.0))
    some, own, aims = deltas[positive], references[positive], boxes[positive]
    if box_loss == "l1":
        expected = (some - coder.encode_single(aims, own)).abs().sum()
    elif box_loss == "smooth_l1":
        distance = (some - coder.encode_single(aims, own)).abs()
        expected = torch.where(distance < 1 / 9, 4.5 * distance**2, distance - 1 / 18).sum()
    else:
        expected = generalized_box_iou_loss(coder.decode_single(some, own), aims).sum()
    expected = expected * (usual if weight is None else weight)
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, deltas), torch.autograd.grad(expected, deltas)
    )


@pytest.mark.parametrize("box_loss", ["l1", "smooth_l1", AlphaIoULoss("ciou"), alpha_iou_loss])
def test_slots_without_a_pair_do_not_matter(box_loss):
    box_loss = partial(box_loss, kind="diou") if box_loss is alpha_iou_loss else box_loss
    deltas, references, boxes, positive = pairs()
    loss = RegressionLoss(box_loss, weight=None, coder=ROI_WEIGHTS)
    results = []
    for junk in (math.nan, math.inf, 0.0):
        dirty = [part.where(positive[:, None], junk) for part in (deltas, references, boxes)]
        value = loss(*dirty, positive)
        results.append(torch.cat([value[None], torch.autograd.grad(value, deltas)[0].ravel()]))
    assert results[0].isfinite().all()
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_scheduled_alpha_is_the_callers():
    own = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    loss = RegressionLoss(own, weight=1.0, coder=ROI_WEIGHTS).double()
    before = loss(*pairs())
    own.set_progress(1.0)
    assert loss(*pairs()) > before


def test_minus_log_iou_and_bounded_iou_are_finite_far_away():
    deltas, references, boxes, positive = pairs()
    for kind, alpha in (("iou", 0.0), ("biou", 1.0)):
        loss = RegressionLoss(AlphaIoULoss(kind, alpha), weight=None, coder=ROI_WEIGHTS)
        value = loss(deltas * 1e3, references, boxes + 1e4, positive)
        assert value.isfinite()
        assert torch.autograd.grad(value, deltas)[0].isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"box_loss": "l2", "weight": None}, "box_loss must be one of l1, smooth_l1; got 'l2'"),
        ({"box_loss": "l1", "weight": -1.0}, "weight of the box loss must be a finite number"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        RegressionLoss(**arguments, coder=ROI_WEIGHTS)
