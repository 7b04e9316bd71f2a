"""Oriented boxes: formats against Ultralytics and OpenCV, areas against shapely, and NMS."""

import math
from typing import get_args

import cv2
import numpy as np
import pytest
import shapely
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alphaiou.oriented import (
    AngleRange,
    corners_to_oriented,
    degrees_to_oriented,
    enclosing_boxes,
    oriented_geometry,
    oriented_nms,
    oriented_to_corners,
    oriented_to_degrees,
    set_angle_range,
)


def draw(count, *, seed=0, dtype=torch.float64, spread=4.0, size=3.0):
    """Boxes near one another, with sides from 0.05 and angles in [−3.5, 3.5]."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(count, 5, generator=generator, dtype=torch.float64)
    scale = torch.tensor([spread, spread, size, size, 7.0], dtype=torch.float64)
    offset = torch.tensor([0.0, 0.0, 0.05, 0.05, -3.5], dtype=torch.float64)
    return (numbers * scale + offset).to(dtype)


def shapely_iou(pred, target):
    """IoU by shapely in float64, relative to the target's centre."""
    pred, target = pred.double(), target.double()
    origin = torch.cat((target[..., :2], torch.zeros_like(target[..., 2:])), dim=-1)
    a, b = (
        shapely.polygons(oriented_to_corners(boxes - origin).numpy()) for boxes in (pred, target)
    )
    overlap = shapely.area(shapely.intersection(a, b))
    return overlap / (shapely.area(a) + shapely.area(b) - overlap)


def assert_same_rectangles(actual, expected, tolerance=1e-9):
    """Each corner of one is a corner of the other."""
    distance = torch.cdist(oriented_to_corners(actual), oriented_to_corners(expected))
    assert distance.amin(-1).max() < tolerance
    assert distance.amin(-2).max() < tolerance


def writings(boxes):
    """The same rectangles as (w, h, θ + π) and (h, w, θ + π/2)."""
    turn = torch.tensor([0, 0, 0, 0, math.pi], dtype=boxes.dtype)
    return boxes + turn, boxes[..., [0, 1, 3, 2, 4]] + 0.5 * turn


@pytest.mark.slow
def test_iou_is_that_of_shapely():
    pred, target = draw(100_000), draw(100_000, seed=1)
    pred[::3, 2] *= 0.01  # thin
    target[1::3, 3] *= 0.01
    pred[::5, 4] = target[::5, 4] + 1e-9 * pred[::5, 0]  # nearly parallel
    pred[::7, :2] = target[::7, :2]  # concentric
    iou = oriented_geometry(pred, target).iou
    assert (iou > 0).sum() > 30_000
    assert np.abs(iou.numpy() - shapely_iou(pred, target)).max() <= 1e-12


@pytest.mark.slow
def test_fp32_keeps_its_digits_at_satellite_coordinates():
    pred, target = (
        draw(100_000, seed=seed, spread=5.0, size=5.0, dtype=torch.float32) for seed in (0, 1)
    )
    pred[:, :2] += 1e5
    target[:, :2] += 1e5
    iou = oriented_geometry(pred, target).iou
    assert (iou > 0).sum() > 30_000
    assert np.abs(iou.double().numpy() - shapely_iou(pred, target)).max() <= 1e-5


def test_hull_is_the_bounding_rectangle_in_the_frame_of_the_target():
    pred, target = draw(1000), draw(1000, seed=1)
    pair = oriented_geometry(pred, target)
    corners = torch.cat((oriented_to_corners(pred), oriented_to_corners(target)), dim=-2)
    cosine, sine = target[:, 4].cos(), target[:, 4].sin()
    frame = torch.stack((cosine, -sine, sine, cosine), dim=-1).reshape(-1, 2, 2)
    places = corners @ frame
    expected = places.amax(-2) - places.amin(-2)
    torch.testing.assert_close(pair.hull * pair.unit, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_boxes_have_an_iou_of_one_and_no_slope(dtype):
    boxes = draw(500, dtype=dtype)
    boxes[::5, 2] = 0.0
    boxes[::7, 3] = 0.0
    pred = boxes.clone().requires_grad_()
    pair = oriented_geometry(pred, boxes)
    assert (pair.iou == 1.0).all()
    (gradient,) = torch.autograd.grad(pair.iou.sum(), pred)
    assert (gradient == 0.0).all()


def test_iou_has_the_gradient_of_its_differences():
    pairs = [draw(40, seed=seed).requires_grad_() for seed in (2, 3)]
    assert torch.autograd.gradcheck(lambda *boxes: oriented_geometry(*boxes).iou, pairs)


def test_pairwise_iou_broadcasts():
    first, second = draw(30), draw(20, seed=1)
    every = oriented_geometry(first[:, None], second).iou
    assert every.shape == (30, 20)
    torch.testing.assert_close(every[:, 3], oriented_geometry(first, second[3].expand(30, 5)).iou)


ANGLE = st.floats(-100.0, 100.0, width=32)
SIDE = st.floats(0.0625, 10.0, width=32)
BOX = st.tuples(st.floats(-5, 5, width=32), st.floats(-5, 5, width=32), SIDE, SIDE, ANGLE)


@settings(max_examples=200, deadline=None)
@given(BOX, BOX, st.floats(-3, 3), st.floats(1e-6, 1e6))
def test_iou_belongs_to_the_rectangles(pred, target, turn, scale):
    pred, target = (torch.tensor(box, dtype=torch.float64) for box in (pred, target))
    iou = oriented_geometry(pred, target).iou
    assert 0.0 <= iou <= 1.0
    others = [oriented_geometry(other, target).iou for other in writings(pred)]
    others += [oriented_geometry(pred, other).iou for other in writings(target)]
    others.append(oriented_geometry(target, pred).iou)
    moved = []
    for box in (pred, target):
        x, y, width, height, angle = box.tolist()
        x, y = (
            math.cos(turn) * x - math.sin(turn) * y,
            math.sin(turn) * x + math.cos(turn) * y,
        )
        numbers = [scale * x + 3, scale * y - 2, scale * width, scale * height, angle + turn]
        moved.append(torch.tensor(numbers, dtype=torch.float64))
    if scale > 1e-3:  # below, the offset costs digits
        others.append(oriented_geometry(*moved).iou)
    for other in others:
        assert abs(other - iou) < 1e-8


@pytest.mark.parametrize("angle_range", get_args(AngleRange))
def test_angle_ranges_hold_the_same_rectangles(angle_range):
    boxes = draw(1000)
    boxes[:9, 4] = torch.tensor([0, 1, -1, 2, 3, -3, 4, 1e-30, -1e-30]) * math.pi / 4
    boxes[9:18] = boxes[:9][:, [0, 1, 3, 2, 4]]
    written = set_angle_range(boxes, angle_range)
    assert_same_rectangles(written, boxes)
    angle = written[:, 4]
    start, end = {
        "ultralytics": (0, math.pi / 2),
        "le90": (-math.pi / 2, math.pi / 2),
        "le135": (-math.pi / 4, 3 * math.pi / 4),
        "oc": (-math.pi / 2, 0),
        "opencv": (0, math.pi / 2),
    }[angle_range]
    inside = (angle > start) & (angle <= end) if angle_range == "opencv" else angle >= start
    assert inside.all()
    assert ((angle < end) | (angle_range == "opencv")).all()
    if angle_range.startswith("le"):
        assert (written[:, 2] >= written[:, 3]).all()
    again = set_angle_range(written, angle_range)
    torch.testing.assert_close(again, written, rtol=0, atol=0)


def test_ultralytics_reads_and_writes_the_same_boxes():
    from ultralytics.utils import ops

    boxes = draw(200)
    assert_same_rectangles(corners_to_oriented(ops.xywhr2xyxyxyxy(boxes)), boxes)
    theirs = ops.regularize_rboxes(boxes.clone())
    torch.testing.assert_close(set_angle_range(boxes, "ultralytics"), theirs)
    corners = oriented_to_corners(boxes).float()
    back = torch.as_tensor(ops.xyxyxyxy2xywhr(corners.reshape(-1, 8)))
    assert_same_rectangles(back.double(), boxes, 1e-4)


def test_opencv_reads_and_writes_the_same_boxes():
    boxes = set_angle_range(draw(200), "opencv")
    for box in boxes.tolist():
        ours = torch.tensor(box, dtype=torch.float64)
        corners = cv2.boxPoints((box[:2], box[2:4], math.degrees(box[4])))
        theirs = torch.from_numpy(corners).double()
        assert torch.cdist(oriented_to_corners(ours), theirs).amin(-1).max() < 1e-5


def test_four_points_get_the_box_of_opencv():
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(300, 4, 2, generator=generator) * 10
    ours = corners_to_oriented(points)
    for box, four in zip(ours, points, strict=True):
        _, (width, height), _ = cv2.minAreaRect(four.numpy())
        assert abs(box[2] * box[3] - width * height) <= 1e-3 * max(width * height, 1.0)
        rectangle = shapely.Polygon(oriented_to_corners(box.double()).numpy()).buffer(1e-4)
        assert rectangle.covers(shapely.MultiPoint(four.double().numpy()))


def test_corners_round_trip():
    boxes = draw(500)
    back = corners_to_oriented(oriented_to_corners(boxes))
    torch.testing.assert_close(back[:, :4], boxes[:, :4], rtol=1e-12, atol=1e-12)
    turns = (back[:, 4] - boxes[:, 4]) / (2 * math.pi)
    torch.testing.assert_close(turns, turns.round(), rtol=0, atol=1e-12)
    point = torch.full((4, 2), 7.0)
    assert corners_to_oriented(point).tolist() == [7.0, 7.0, 0.0, 0.0, 0.0]


def test_degrees_round_trip_and_enclosing_boxes():
    boxes = draw(100)
    degrees = oriented_to_degrees(boxes)
    np.testing.assert_allclose(degrees[:, 4].numpy(), np.degrees(boxes[:, 4].numpy()))
    torch.testing.assert_close(degrees_to_oriented(degrees), boxes)
    corners = oriented_to_corners(boxes)
    expected = torch.cat((corners.amin(-2), corners.amax(-2)), dim=-1)
    torch.testing.assert_close(enclosing_boxes(boxes), expected)


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_nms_is_the_greedy_one(threshold):
    boxes, scores = draw(120, spread=5.0), torch.rand(120, dtype=torch.float64)
    groups = torch.arange(120) % 3
    expected = []
    for index in scores.argsort(descending=True).tolist():
        rivals = [other for other in expected if groups[other] == groups[index]]
        mine = boxes[index].expand(len(rivals), 5)
        if not rivals or (shapely_iou(mine, boxes[rivals]) <= threshold).all():
            expected.append(index)
    assert oriented_nms(boxes, scores, threshold, groups).tolist() == expected
    assert len(expected) < 120
    assert oriented_nms(boxes[:0], scores[:0], threshold).tolist() == []


def test_wrong_shapes_are_rejected():
    with pytest.raises(ValueError, match=r"\(\*batch, 5\), got \(3, 4\)"):
        oriented_to_corners(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"\(\*batch, 4, 2\), got \(3, 8\)"):
        corners_to_oriented(torch.zeros(3, 8))
    with pytest.raises(ValueError, match="angle_range must be one of ultralytics, le90"):
        set_angle_range(torch.zeros(1, 5), "le180")
