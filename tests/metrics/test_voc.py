"""VOC's rules against an oracle in plain loops, written from the kit's description."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from alphaiou.metrics import DetectionScores, score
from tests.metrics.made_data import as_batches, make

CLASSES = ("cat", "dog", "cow")


def overlap(one, other):
    """IoU by counting whole pixels from the first to the last, as the kit does."""
    (x, y, w, h), (u, v, s, t) = one, other
    last = (min(x + w, u + s) - 1, min(y + h, v + t) - 1)
    across, down = last[0] - max(x, u) + 1, last[1] - max(y, v) + 1
    if across <= 0 or down <= 0:
        return 0.0
    return across * down / (w * h + s * t - across * down)


def oracle(data, label, threshold, *, eleven_points):
    """The average precision of one class; None where it has no targets that count."""
    images = np.argsort(np.argsort(data.image_ids)).tolist()
    rows = [row for row in range(len(data.scores)) if data.labels[row] == label]
    rows.sort(key=lambda row: (-data.scores[row], images[data.images[row]], row))
    own = [row for row in range(len(data.target_labels)) if data.target_labels[row] == label]
    ignored = {row for row in own if data.difficult[row] or data.crowd[row]}
    count = len(own) - len(ignored)
    if count == 0:
        return None
    taken, hits = set(), []
    for row in rows:
        best, best_iou = None, 0.0
        for target in own:
            if data.target_images[target] == data.images[row]:
                iou = overlap(data.boxes[row].tolist(), data.target_boxes[target].tolist())
                if iou > best_iou:
                    best, best_iou = target, iou
        if best is None or best_iou < threshold:
            hits.append(False)
        elif best not in ignored:
            hits.append(best not in taken)
            taken.add(best)
    recall = [Fraction(sum(hits[: i + 1]), count) for i in range(len(hits))]
    precision = [Fraction(sum(hits[: i + 1]), i + 1) for i in range(len(hits))]

    def best_from(limit):
        return max((p for p, r in zip(precision, recall, strict=True) if r >= limit), default=0)

    if eleven_points:
        return float(sum(best_from(Fraction(k, 10)) for k in range(11)) / 11)
    steps = sorted({Fraction(0), *recall})
    return float(sum((high - low) * best_from(high) for low, high in pairwise(steps)))


@pytest.mark.parametrize("rule", ["voc", "voc07"])
@pytest.mark.parametrize("kind", ["grid", "whole"])
@pytest.mark.parametrize("seed", range(6))
def test_against_the_oracle(seed, kind, rule):
    data = make(seed, kind=kind)
    found = score(data, CLASSES, rule=rule, iou_thresholds=(0.3, 0.5, 0.75))
    for row, threshold in enumerate(found.iou_thresholds):
        for label in range(3):
            expected = oracle(data, label, threshold, eleven_points=rule == "voc07")
            ap = found.class_ap[row, label]
            assert np.isnan(ap) if expected is None else ap == pytest.approx(expected, abs=1e-12)
    assert 0 < found.ap[30] <= 1


def one_class(boxes, scores, targets, **more):
    """The scores of one image of one class, by the rule that ``more`` says."""
    rule = more.pop("rule", "voc")
    found = DetectionScores(1, rule=rule, max_detections=more.pop("max_detections", None))
    labels = np.zeros(len(boxes), np.int64)
    prediction = {"boxes": np.array(boxes), "scores": np.array(scores), "labels": labels}
    target = {"boxes": np.array(targets), "labels": np.zeros(len(targets), np.int64)}
    found.update([prediction], [target | more])
    return found.compute()


BOX, FAR = [0.0, 0, 10, 10], [50.0, 50, 60, 60]


def test_a_second_detection_of_an_object_is_wrong_even_beside_a_free_one():
    """Here VOC and COCO differ: COCO gives it the next best object."""
    near = [0.0, 0, 10, 8]  # IoU .8 with BOX
    boxes, scores = [BOX, [0.0, 0, 10, 9.5]], [0.9, 0.8]
    assert one_class(boxes, scores, [BOX, near]).ap[50] == pytest.approx(0.5)
    assert one_class(boxes, scores, [BOX, near], rule="coco").ap[50] == pytest.approx(1.0)


def test_eleven_points_and_area():
    result = {
        rule: one_class([BOX, FAR], [0.9, 0.8], [BOX, [80.0, 80, 90, 90]], rule=rule).ap[50]
        for rule in ("voc", "voc07")
    }
    assert result == {"voc": pytest.approx(1 / 2), "voc07": pytest.approx(6 / 11)}


def test_recall_on_a_point_counts():
    """3 of 10 found: recall .3 is reached, so four of eleven points are."""
    targets = [[20.0 * i, 0, 20 * i + 10, 10] for i in range(10)]
    found = one_class(targets[:3], [0.9, 0.8, 0.7], targets, rule="voc07")
    assert found.ap[50] == pytest.approx(4 / 11)


def test_any_number_of_detections_on_a_difficult_box_is_left_out():
    boxes, scores = [BOX, BOX, FAR], [0.9, 0.8, 0.7]
    found = one_class(boxes, scores, [BOX, FAR], difficult=np.array([True, False]))
    assert found.ap[50] == 1.0


def test_the_threshold_itself_is_enough():
    assert one_class([[0.0, 0, 10, 5]], [0.9], [BOX]).ap[50] == 1.0
    assert one_class([[0.0, 0, 10, 4.99]], [0.9], [BOX]).ap[50] == 0.0


def test_limit_of_detections():
    boxes, scores = [FAR, BOX], [0.9, 0.8]
    assert one_class(boxes, scores, [BOX]).ap[50] == pytest.approx(0.5)
    assert one_class(boxes, scores, [BOX], max_detections=1).ap[50] == 0.0
    data = make(3, images=2, classes=2, detections=200)
    limited = score(data, CLASSES[:2], rule="voc", max_detections=7)
    kept = [
        row
        for image in range(2)
        for label in range(2)
        for row in sorted(
            np.flatnonzero((data.images == image) & (data.labels == label)),
            key=lambda row: -data.scores[row],
        )[:7]
    ]
    same = score(data.keep_detections(np.sort(kept)), CLASSES[:2], rule="voc")
    np.testing.assert_array_equal(limited.class_ap, same.class_ap)


def test_the_curve_is_the_one_that_the_area_is_of():
    data = make(5, images=20, classes=1, targets=200, detections=900, kind="sizes")
    found = score(data, CLASSES[:1], rule="voc")
    recall, precision = found.precision_recall(0.5, label=0)
    area = np.trapezoid(precision, recall)
    assert area == pytest.approx(found.ap[50], abs=0.01)
    assert (np.diff(precision) <= 0).all()


@pytest.mark.parametrize("rule", ["voc", "voc07"])
def test_nothing_to_find_and_nothing_found(rule):
    nothing = score(make(0, targets=0), CLASSES, rule=rule)
    assert np.isnan(nothing.map)
    assert score(make(0, detections=0), CLASSES, rule=rule).map == 0
    assert "ar100" not in nothing.as_dict()
    assert "map_small" not in nothing.as_dict()


def test_order_of_batches_does_not_matter():
    data = make(2, images=6)
    results = []
    for reverse in (False, True):
        scores = DetectionScores(3, rule="voc")
        for batch in list(as_batches(data))[:: -1 if reverse else 1]:
            scores.update(*batch)
        results.append(scores.compute().class_ap)
    np.testing.assert_array_equal(*results)
