"""The rule of YOLOv5's test program against an oracle in plain loops, from its description."""

import numpy as np
import pytest

from alphaiou.metrics import IOU_THRESHOLDS, DetectionScores, score
from tests.metrics.made_data import as_batches, make

CLASSES = ("cat", "dog", "cow")


def overlap(one, other):
    (x, y, w, h), (u, v, s, t) = one, other
    across, down = min(x + w, u + s) - max(x, u), min(y + h, v + t) - max(y, v)
    shared = max(across, 0) * max(down, 0)
    return shared / (w * h + s * t - shared) if shared > 0 else 0.0


def matched(data, image, label):
    """The IoU of each detection of an image that keeps its target, by its row."""
    own = [r for r in range(len(data.scores)) if (data.images[r], data.labels[r]) == (image, label)]
    targets = [
        r
        for r in range(len(data.target_labels))
        if (data.target_images[r], data.target_labels[r]) == (image, label)
    ]
    pairs = []
    for row in own:
        ious = [overlap(data.boxes[row].tolist(), data.target_boxes[t].tolist()) for t in targets]
        if ious and max(ious) > 0:
            pairs.append((max(ious), row, targets[ious.index(max(ious))]))
    pairs.sort(key=lambda pair: (-pair[0], -data.scores[pair[1]], pair[1]))
    taken, kept = set(), {}
    for iou, row, target in pairs:
        if target not in taken:  # the others give up
            taken.add(target)
            kept[row] = iou
    return kept


def oracle(data, label, threshold):
    """The average precision of one class; None where it has no targets."""
    count = sum(1 for one in data.target_labels if one == label)
    if count == 0:
        return None
    kept = {}
    for image in range(len(data.image_ids)):
        kept |= matched(data, image, label)
    order = np.argsort(np.argsort(data.image_ids)).tolist()
    rows = [row for row in range(len(data.scores)) if data.labels[row] == label]
    rows.sort(key=lambda row: (-data.scores[row], order[data.images[row]], row))
    recall, precision, right = [0.0], [1.0], 0
    for number, row in enumerate(rows, 1):
        right += kept.get(row, 0.0) > threshold
        recall.append(right / count)
        precision.append(right / number)
    if not rows:
        return 0.0
    recall.append(1.0)
    precision.append(0.0)
    envelope = [max(precision[i:]) for i in range(len(precision))]
    points = np.interp(np.linspace(0, 1, 101), recall, envelope)
    return sum((points[i] + points[i + 1]) / 2 * 0.01 for i in range(100))


@pytest.mark.parametrize("kind", ["grid", "whole", "sizes"])
@pytest.mark.parametrize("seed", range(6))
def test_against_the_oracle(seed, kind):
    data = make(seed, kind=kind)
    found = score(data, CLASSES, rule="yolov5")
    # Difficult boxes are dropped with the labels, crowds count like all others.
    kept = data.keep_targets(~data.difficult)
    for row, threshold in enumerate(IOU_THRESHOLDS):
        for label in range(3):
            expected, ap = oracle(kept, label, threshold), found.class_ap[row, label]
            assert np.isnan(ap) if expected is None else ap == pytest.approx(expected, abs=1e-9)
    assert 0 < found.ap[50] <= 1
    assert found.num_targets == len(kept.target_labels)


BOX, FAR = [0.0, 0, 10, 10], [50.0, 50, 60, 60]


def one_class(boxes, scores, targets, rule="yolov5"):
    found = DetectionScores(1, rule=rule)
    labels = np.zeros(len(boxes), np.int64)
    prediction = {"boxes": np.array(boxes), "scores": np.array(scores), "labels": labels}
    target = {"boxes": np.array(targets), "labels": np.zeros(len(targets), np.int64)}
    found.update([prediction], [target])
    return found.compute()


def test_the_threshold_itself_is_not_enough():
    assert one_class([[0.0, 0, 10, 5]], [0.9], [BOX]).ap[50] == 0.0
    assert one_class([[0.0, 0, 10, 5]], [0.9], [BOX], rule="coco").ap[50] == pytest.approx(1.0)


def test_the_best_iou_wins_whatever_its_score():
    boxes, scores = [[0.0, 0, 10, 8], BOX], [0.9, 0.8]
    assert one_class(boxes, scores, [BOX]).ap[50] == pytest.approx(0.5, abs=0.01)
    assert one_class(boxes, scores, [BOX], rule="coco").ap[50] == pytest.approx(1.0)


def test_a_detection_that_lost_its_target_gives_up():
    near = [0.0, 0, 10, 8]  # IoU .8 with BOX
    boxes, scores = [BOX, [0.0, 0, 10, 9.5]], [0.9, 0.8]
    assert one_class(boxes, scores, [BOX, near], rule="coco").ap[50] == pytest.approx(1.0)
    # One of two found: precision 1 up to a recall of .5, then from .5 down to 0 at 1.
    expected = 0.5 + 0.5 * 0.25
    assert one_class(boxes, scores, [BOX, near]).ap[50] == pytest.approx(expected, abs=0.005)


def test_a_perfect_detector_scores_995():
    """The precision ends with 0 at a recall of 1, as users of YOLOv5 know."""
    found = one_class([BOX, FAR], [0.9, 0.8], [BOX, FAR])
    assert found.map == pytest.approx(0.995, abs=1e-12)


def test_nothing_to_find_and_nothing_found():
    assert np.isnan(score(make(0, targets=0), CLASSES, rule="yolov5").map)
    assert score(make(0, detections=0), CLASSES, rule="yolov5").map == 0


def test_order_of_batches_does_not_matter():
    data = make(2, images=6)
    results = []
    for reverse in (False, True):
        scores = DetectionScores(3, rule="yolov5")
        for batch in list(as_batches(data))[:: -1 if reverse else 1]:
            scores.update(*batch)
        results.append(scores.compute().class_ap)
    np.testing.assert_array_equal(*results)
