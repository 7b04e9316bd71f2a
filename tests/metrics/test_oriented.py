"""Scores of oriented boxes against plain loops over the IoU of shapely."""

import math

import numpy as np
import pytest
from shapely import affinity, box

from alphaiou.metrics import DetectionScores, ScoringData, found_shares
from alphaiou.metrics.matching import overlaps
from alphaiou.metrics.scores import score

THRESHOLDS = (0.3, 0.5, 0.75, 0.9)


def boxes(random, count):
    sides = random.uniform(4, 90, (count, 2))
    return np.hstack([random.uniform(0, 150, (count, 2)), sides, random.uniform(-7, 7, (count, 1))])


def made(seed, *, images=4, classes=3, targets=40, detections=60):
    """Half of the detections are near a target, written in another way."""
    random = np.random.default_rng(seed)
    truth, found = boxes(random, targets), boxes(random, detections)
    columns = {
        "image_ids": np.arange(images),
        "target_images": np.sort(random.integers(0, images, targets)),
        "target_boxes": truth,
        "target_labels": random.integers(0, classes, targets),
        "target_areas": truth[:, 2] * truth[:, 3],
        "crowd": np.zeros(targets, bool),
        "difficult": random.random(targets) < 0.2,
        "images": random.integers(0, images, detections),
        "boxes": found,
        "labels": random.integers(0, classes, detections),
        "scores": random.random(detections),
    }
    near = random.integers(0, targets, detections // 2)
    noise = random.normal(0, 1, (len(near), 5)) * [1, 1, 1, 1, 0.05]
    found[: len(near)] = truth[near] + noise
    found[: len(near) : 2, 2:4] = found[: len(near) : 2, 3:1:-1]
    found[: len(near) : 2, 4] += math.pi / 2
    found[:, 2:4] = np.abs(found[:, 2:4])
    for name in ("images", "labels"):
        columns[name][: len(near)] = columns[f"target_{name}"][near]
    return ScoringData(**columns).in_order()


def polygon(row):
    cx, cy, w, h, angle = row
    flat = box(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
    return affinity.rotate(flat, angle, use_radians=True)


def iou(one, other):
    one, other = polygon(one), polygon(other)
    return one.intersection(other).area / one.union(other).area


def of_class(data, label):
    """The detections of a class in descending score, each with its image's targets and IoUs."""
    rows = [row for row in np.argsort(-data.scores) if data.labels[row] == label]
    for row in rows:
        same = (data.target_images == data.images[row]) & (data.target_labels == label)
        near = np.flatnonzero(same)
        yield row, near, [iou(data.boxes[row], data.target_boxes[target]) for target in near]


def voc_ap(data, label, threshold, *, eleven_points):
    """As DOTA's program: the target of the highest IoU; difficult ones are ignored."""
    taken, right = set(), []
    for _, near, ious in of_class(data, label):
        best = int(np.argmax(ious)) if ious else -1
        if best < 0 or ious[best] < threshold:
            right.append(0)
        elif not data.difficult[near[best]]:
            right.append(int(near[best] not in taken))
            taken.add(near[best])
    total = int(((data.target_labels == label) & ~data.difficult).sum())
    recall = np.cumsum(right) / total
    precision = np.cumsum(right) / np.arange(1, len(right) + 1)
    if eleven_points:
        points = [precision[recall >= r - 1e-12] for r in np.arange(11) / 10]
        return float(np.mean([p.max() if len(p) else 0.0 for p in points]))
    best = [precision[i:].max() for i in range(len(right))]
    return float(np.sum(np.array(best) * right) / total)


def coco_ap(data, label, threshold):
    """As COCO's program: the free target of the highest IoU, ignored ones last."""
    taken, judged = set(), []
    for _, near, ious in of_class(data, label):
        free = [(not data.difficult[t], v, t) for t, v in zip(near, ious, strict=True)]
        free = [one for one in free if one[1] >= threshold and one[2] not in taken]
        if not free:
            judged.append(0)
            continue
        counts, _, target = max(free)
        taken.add(target)
        if counts:
            judged.append(1)
    total = int(((data.target_labels == label) & ~data.difficult).sum())
    recall = np.cumsum(judged) / total
    precision = np.cumsum(judged) / np.arange(1, len(judged) + 1)
    points = [precision[recall >= r] for r in np.linspace(0, 1, 101)]
    return float(np.mean([p.max() if len(p) else 0.0 for p in points]))


CLASSES = ("plane", "ship", "harbor")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("rule", "eleven_points"), [("voc", False), ("voc07", True)])
def test_the_rules_of_voc_and_dota(seed, rule, eleven_points):
    data = made(seed)
    scores = score(data, CLASSES, rule=rule, iou_thresholds=THRESHOLDS)
    expected = [
        [voc_ap(data, label, threshold, eleven_points=eleven_points) for label in range(3)]
        for threshold in THRESHOLDS
    ]
    np.testing.assert_allclose(scores.class_ap, expected, rtol=1e-12)
    assert 0.1 < scores.ap[50] < 1


@pytest.mark.parametrize("seed", range(5))
def test_the_rule_of_coco_by_hotcoco(seed):
    data = made(seed)
    scores = score(data, CLASSES, rule="coco", iou_thresholds=THRESHOLDS)
    expected = [[coco_ap(data, label, t) for label in range(3)] for t in THRESHOLDS]
    np.testing.assert_allclose(scores.class_ap, expected, rtol=1e-9)
    assert 0.1 < scores.ap[50] < 1


@pytest.mark.parametrize(("rule", "margin"), [("coco", 1e-5), ("voc", 1e-9)])
def test_an_iou_on_the_threshold_far_from_the_origin(rule, margin):
    """Satellite coordinates, in which hotcoco loses some digits."""
    near = np.array([[0.0, 0, 5, 4, 0.3], [1, 0.5, 5, 4, 0.7]])
    value = iou(*near)
    far = near + np.array([1e5, 2e5, 0, 0, 0])
    target, found = {"boxes": far[:1], "labels": [0]}, {"boxes": far[1:], "labels": [0]}
    for limit, expected in ((value - margin, 1.0), (value + margin, 0.0)):
        collected = DetectionScores(1, box_format="cxcywhr", rule=rule, iou_thresholds=[limit])
        collected.update([found | {"scores": [0.9]}], [target])
        assert collected.compute().map == pytest.approx(expected)


def test_sizes_are_those_of_the_oriented_boxes():
    """A long thin box has a large enclosing box and a small area."""
    thin = np.array([[100.0, 100, 120, 5, math.pi / 4]])
    collected = DetectionScores(1, box_format="cxcywhr")
    found = {"boxes": thin, "labels": [0], "scores": [0.9]}
    collected.update([found], [{"boxes": thin, "labels": [0]}])
    sizes = collected.compute().size_ap
    assert sizes["small"] == pytest.approx(1)
    assert np.isnan([sizes["medium"], sizes["large"]]).all()


def test_batches_states_and_merging():
    data = made(0)
    parts = [DetectionScores(3, box_format="cxcywhr") for _ in range(2)]
    for image in range(4):
        own, true = data.images == image, data.target_images == image
        found = {name: getattr(data, name)[own] for name in ("boxes", "labels", "scores")}
        target = {name: getattr(data, f"target_{name}")[true] for name in ("boxes", "labels")}
        target |= {"difficult": data.difficult[true], "image_id": image}
        parts[image % 2].update([found], [target])
    merged = DetectionScores.from_state(parts[0].state())
    merged.merge(parts[1])
    expected = score(data, "abc")
    np.testing.assert_array_equal(merged.compute().class_ap, expected.class_ap)
    assert merged.compute().found == found_shares(data) == expected.found
    assert merged.box_format == "cxcywhr"
    with pytest.raises(ValueError, match="box_format is 'cxcywhr' here and 'xyxy' there"):
        merged.merge(DetectionScores(3))


@pytest.mark.parametrize("rule", ["coco", "voc07"])
def test_images_without_detections_or_targets(rule):
    none, thing = np.empty((0, 5)), np.array([[9.0, 9, 4, 2, 0.3]])
    for found, true, expected in ((none, thing, 0.0), (thing, none, np.nan), (none, none, np.nan)):
        collected = DetectionScores(1, box_format="cxcywhr", rule=rule)
        labels, scores = [0] * len(found), [0.5] * len(found)
        prediction = {"boxes": found, "labels": labels, "scores": scores}
        collected.update([prediction], [{"boxes": true, "labels": [0] * len(true)}])
        assert collected.compute().map == pytest.approx(expected, nan_ok=True)


def test_the_overlap_with_a_crowd_is_the_share_of_the_detection():
    data = made(1)
    crowd = np.arange(40) % 2 == 0
    data = ScoringData(**vars(data) | {"crowd": crowd})
    rows, targets, values = overlaps(data, 0.2)
    assert len(rows) > 20
    for row, target, value in zip(rows, targets, values, strict=True):
        one, other = polygon(data.boxes[row]), polygon(data.target_boxes[target])
        whole = one if crowd[target] else one.union(other)
        assert value == pytest.approx(one.intersection(other).area / whole.area, rel=1e-9)


def test_what_cannot_be_scored_is_refused():
    box = np.array([[0.0, 0, 4, 2, 0]])
    collected = DetectionScores(1, box_format="cxcywhr")
    target = {"boxes": box, "labels": [0]}
    found = target | {"scores": [0.5]}
    with pytest.raises(ValueError, match=r"must be \(n, 5\), not \(1, 4\)"):
        collected.update([found | {"boxes": box[:, :4]}], [target])
    with pytest.raises(ValueError, match="must have no negative side"):
        collected.update([found | {"boxes": -box}], [target])
    with pytest.raises(ValueError, match="box_format must be"):
        DetectionScores(1, box_format="xywh")
    collected.update([found], [target | {"iscrowd": [1]}])
    with pytest.raises(ValueError, match="mark them as difficult"):
        collected.compute()
    with pytest.raises(ValueError, match="take 'hotcoco'"):
        collected.compute(evaluator="pycocotools")
