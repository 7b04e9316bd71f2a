"""The types of errors against tidecv and hotcoco, on drawn sets and on photographs of COCO."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.data.dataset import load_dataset
from alphaiou.inference.detection_files import targets_of
from alphaiou.metrics import ScoringData, score
from alphaiou.metrics.bootstrap import ap_differences, count_differences
from alphaiou.metrics.calibration import calibration_of
from alphaiou.metrics.error_analysis import analyse_errors, compare_errors
from alphaiou.metrics.errors import (
    ERROR_IOUS,
    ERROR_TYPES,
    SIZE_AREAS,
    counted_data,
    find_errors,
    tide_summary,
)
from alphaiou.metrics.localisation import localisation_parts
from tests.metrics.tide_oracle import tide_counts, tide_gains, tide_run

COCO256 = Path(__file__).parents[3] / "shared/data/coco256"
CLASSES = ("cat", "dog", "cow")
#: Objects of each class: no recall of one of 37 is a hundredth, where tidecv rounds otherwise.
OBJECTS = 37


def detected(truth, classes, seed, *, noise=0.12):
    """Objects found up to three times, moved, some of another class, and boxes anywhere."""
    random = np.random.default_rng(seed)
    parts = []
    for share, spread in ((0.8, 1), (0.3, 2), (0.2, 3)):
        kept = random.random(len(truth.target_labels)) < share
        box = truth.target_boxes[kept]
        box = box + random.normal(0, noise * spread, box.shape) * np.tile(box[:, 2:], 2)
        labels = truth.target_labels[kept].copy()
        other = random.random(len(labels)) < 0.15
        labels[other] = random.integers(0, classes, other.sum())
        parts.append((truth.target_images[kept], np.maximum(box, 1), labels))
    count, images = 2 * len(truth.image_ids), len(truth.image_ids)
    boxes = np.concatenate([200 * random.random((count, 2)), 5 + 90 * random.random((count, 2))], 1)
    parts.append((random.integers(0, images, count), boxes, random.integers(0, classes, count)))
    places, boxes, labels = (np.concatenate(column) for column in zip(*parts, strict=True))
    scores = random.random(len(labels))
    return replace(truth, images=places, boxes=boxes, labels=labels, scores=scores)


def drawn(seed, *, images=25, ignored=0.0, **settings):
    """Objects of three classes and three sizes in some images, and their detections."""
    random = np.random.default_rng(seed)
    count = OBJECTS * len(CLASSES)
    size = random.choice([12, 60, 140], (count, 1)) * (0.7 + 0.6 * random.random((count, 2)))
    boxes = np.concatenate([200 * random.random((count, 2)), size], axis=1)
    truth = replace(
        ScoringData.empty(),
        image_ids=np.arange(1, images + 1),
        target_images=np.sort(random.integers(0, images, count)),
        target_boxes=boxes,
        target_labels=np.arange(count) % len(CLASSES),
        target_areas=np.prod(boxes[:, 2:], axis=1),
        crowd=random.random(count) < ignored,
        difficult=random.random(count) < ignored,
    )
    return detected(truth, len(CLASSES), seed, **settings)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("iou", ERROR_IOUS)
def test_counts_and_gains_equal_tidecv_and_hotcoco(seed, iou):
    data = counted_data(drawn(seed), "coco", iou)
    errors, run = find_errors(data, iou), tide_run(data, len(CLASSES), iou)
    summary = tide_summary(data, len(CLASSES), iou)
    counts = dict(zip(ERROR_TYPES, errors.counts()[0].tolist(), strict=True))
    assert counts == tide_counts(run) == summary["counts"]
    assert min(counts[kind] for kind in ("localisation", "background", "both", "missed")) > 0
    ap, gains = errors.class_ap(len(CLASSES)), tide_gains(run)
    assert summary["ap"] == pytest.approx(ap.mean()) == pytest.approx(run.ap / 100)
    for place, kind in enumerate(ERROR_TYPES):
        gain = (errors.class_ap(len(CLASSES), place) - ap).mean()
        assert gain == pytest.approx(summary["delta_ap"][kind], abs=1e-9)
        # Fixing misses changes the number of objects, which may then divide a hundred.
        assert gain == pytest.approx(gains[kind], abs=5e-3 if kind == "missed" else 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_errors_of_each_size_are_those_of_tidecv(seed):
    data = counted_data(drawn(seed), "coco", 0.5)
    errors, run = find_errors(data, 0.5), tide_run(data, len(CLASSES), 0.5)
    ap, bounds = errors.class_ap(len(CLASSES)), (-1.0, *SIZE_AREAS, math.inf)
    for size in range(3):

        def of_size(box, size=size):
            return bounds[size] < box["bbox"][2] * box["bbox"][3] <= bounds[size + 1]

        gains = tide_gains(run, of_size)
        for place, kind in enumerate(ERROR_TYPES):
            gain = (errors.class_ap(len(CLASSES), place, size) - ap).mean()
            assert max(gain, 0) == pytest.approx(gains[kind], abs=5e-3 if place == 5 else 1e-6)
    assert np.array_equal(errors.size_counts().sum(0), errors.counts()[0])
    assert (errors.size_counts()[:, 1] > 0).all()


@pytest.mark.skipif(not COCO256.exists(), reason="without the photographs of coco256")
@pytest.mark.parametrize("iou", ERROR_IOUS)
def test_counts_equal_tidecv_on_photographs(iou):
    index = load_dataset(str(COCO256), "val").index
    data = counted_data(detected(targets_of(index), 80, 0), "paper", iou)
    counts = find_errors(data, iou).counts()[0]
    expected = tide_counts(tide_run(data, 80, iou))
    assert dict(zip(ERROR_TYPES, counts.tolist(), strict=True)) == expected
    assert tide_summary(data, 80, iou)["counts"] == expected


def test_counts_of_groups_add_up():
    errors = find_errors(counted_data(drawn(3), "coco", 0.5), 0.5)
    total = errors.counts()[0]
    for groups in (errors.class_counts(3), errors.image_counts(), errors.size_counts()):
        assert np.array_equal(groups.sum(axis=0), total)


@pytest.mark.parametrize("rule", ["coco", "paper"])
def test_ap_is_that_of_the_rule_with_crowds_and_difficult_objects(rule):
    data = drawn(1, ignored=0.15)
    scores = score(data, CLASSES, rule=rule).as_dict()
    analysis = analyse_errors(data, CLASSES, rule=rule)
    for table, name in zip(analysis.tables, ("ap50", "ap75"), strict=True):
        assert table.ap == pytest.approx(scores[name], abs=1e-12)
    ignored = data.crowd | (data.difficult if rule == "coco" else False)
    dropped = data.difficult if rule == "paper" else np.zeros_like(ignored)
    assert analysis.objects == int((~(ignored | dropped)).sum())


def test_without_detections_every_object_is_missed():
    data = drawn(0).keep_detections(np.zeros(0, np.int64))
    analysis = analyse_errors(data, CLASSES)
    table = analysis.tables[0]
    assert table.counts == dict.fromkeys(ERROR_TYPES, 0) | {"missed": OBJECTS * len(CLASSES)}
    assert table.right.detections == 0
    json.dumps(analysis.as_dict(), allow_nan=False)


def test_without_objects_every_detection_is_on_the_background():
    data = drawn(0).keep_targets(np.zeros(0, np.int64))
    table = analyse_errors(data, CLASSES).tables[0]
    assert table.counts == dict.fromkeys(ERROR_TYPES, 0) | {"background": len(data.scores)}
    json.dumps(analyse_errors(data, CLASSES).as_dict(), allow_nan=False)


# The parts of a localisation error


def iou_of(box, other):
    start = np.maximum(box[:2], other[:2])
    end = np.minimum(box[:2] + box[2:], other[:2] + other[2:])
    overlap = np.prod(np.maximum(end - start, 0))
    return overlap / (np.prod(box[2:]) + np.prod(other[2:]) - overlap)


def test_parts_add_up_to_the_error():
    random = np.random.default_rng(0)
    boxes, targets = (
        np.concatenate([random.random((50, 2)), 0.2 + random.random((50, 2))], 1) for _ in range(2)
    )
    expected = [1 - iou_of(box, target) for box, target in zip(boxes, targets, strict=True)]
    np.testing.assert_allclose(localisation_parts(boxes, targets).sum(axis=1), expected)


@pytest.mark.parametrize(
    ("part", "box", "error"),
    [
        (0, [5, 0, 10, 10], 2 / 3),  # half of each box overlaps: 50 of 150
        (1, [0, 0, 10, 10], 0.75),  # a fourth of the target, in its middle
        (2, [-5, 2.5, 20, 5], 2 / 3),  # twice as wide, half as high: 50 of 150
    ],
)
def test_an_error_of_one_part_is_its_own(part, box, error):
    target = [-5, -5, 20, 20] if part == 1 else [0, 0, 10, 10]
    shares = localisation_parts(np.array([box], float), np.array([target], float))[0]
    expected = np.zeros(3)
    expected[part] = error
    np.testing.assert_allclose(shares, expected, atol=1e-12)


def test_a_box_without_area_has_parts():
    shares = localisation_parts(np.array([[5.0, 5, 0, 0]]), np.array([[0.0, 0, 10, 10]]))
    assert shares.sum() == pytest.approx(1)


# Calibration


def test_calibration_equals_a_plain_loop():
    data = counted_data(drawn(5), "coco", 0.5)
    found = calibration_of({0.5: data})
    errors = find_errors(data, 0.5)
    gap = total = 0.0
    for low in range(10):
        rows = [r for r, s in enumerate(errors.data.scores) if low <= 10 * s < low + 1]
        right = [errors.types[row] < 0 for row in rows]
        best = []
        for row in rows:
            targets = (errors.data.target_images == errors.data.images[row]) & (
                errors.data.target_labels == errors.data.labels[row]
            )
            boxes = errors.data.target_boxes[targets]
            best.append(max((iou_of(errors.data.boxes[row], one) for one in boxes), default=0.0))
        score_mean = np.mean(errors.data.scores[rows])
        assert found.bins[low].iou == pytest.approx(np.mean(best))
        assert found.bins[low].precision[50] == pytest.approx(np.mean(right))
        gap += len(rows) * abs(score_mean - np.mean(best))
        total += len(rows) * abs(score_mean - np.mean(right))
    assert found.iou_gap == pytest.approx(gap / len(data.scores))
    assert found.errors[50] == pytest.approx(total / len(data.scores))


def test_a_score_that_is_the_iou_is_calibrated():
    boxes = np.array([[0, 0, 10, height] for height in (2.0, 4, 6, 8, 10)])
    truth = replace(drawn(0), image_ids=np.arange(5))
    data = replace(
        truth,
        target_images=np.arange(5),
        target_boxes=np.tile([0.0, 0, 10, 10], (5, 1)),
        target_labels=np.zeros(5, int),
        target_areas=np.full(5, 100.0),
        crowd=np.zeros(5, bool),
        difficult=np.zeros(5, bool),
        images=np.arange(5),
        boxes=boxes,
        labels=np.zeros(5, int),
        scores=boxes[:, 3] / 10,
    )
    found = calibration_of({0.5: data})
    assert found.iou_gap == pytest.approx(0, abs=1e-12)
    assert found.correlation == pytest.approx(1)


# Two detectors


def test_a_detector_does_not_differ_from_itself():
    comparison = compare_errors(drawn(2), drawn(2), CLASSES)
    assert all(one.low == one.difference == one.high == 0 for one in comparison.ap.values())
    assert not comparison.images
    assert all(one.low == one.high == 0 for one in comparison.counts[50].values())


def test_a_better_detector_is_better():
    first = drawn(2)
    second = detected(first, len(CLASSES), 2, noise=0.04)
    comparison = compare_errors(first, second, CLASSES)
    scores = [score(data, CLASSES).as_dict() for data in (first, second)]
    for name, one in comparison.ap.items():
        assert [one.first, one.second] == pytest.approx([s[name] for s in scores])
        assert one.low < one.difference < one.high
        assert one.is_clear
    right = comparison.counts[75]["right"]
    assert right.low > 0
    assert comparison.images[0].right[0] < comparison.images[0].right[1]


def test_the_interval_of_a_sum_is_that_of_normal_theory():
    # For many images the bootstrap of a sum is normal with standard deviation √(n · variance).
    random = np.random.default_rng(0)
    first, second = random.integers(0, 4, (2, 2000, 1))
    one = count_differences(first, second)[0]
    spread = 1.96 * math.sqrt(2000 * (second - first).var())
    assert one.difference == (second - first).sum()
    assert (one.high - one.low) / 2 == pytest.approx(spread, rel=0.1)


def test_intervals_are_repeatable_and_paired():
    first, second = drawn(4), detected(drawn(4), len(CLASSES), 5)
    both = [ap_differences(first.in_order(), second.in_order(), 3, 100) for _ in range(2)]
    assert both[0] == both[1]


def test_detectors_on_other_images_are_rejected():
    with pytest.raises(ValueError, match="same images"):
        compare_errors(drawn(0), drawn(1), CLASSES)
