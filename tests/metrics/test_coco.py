"""COCO's rules: the same numbers as pycocotools, on random and on adversarial sets."""

import contextlib
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from alphaiou.metrics import IOU_THRESHOLDS, DetectionScores
from alphaiou.metrics.coco import coco_tables
from tests.metrics.made_data import as_batches, make

KINDS = ("grid", "sizes", "tenths", "float32", "huge", "tiny")
CLASSES = ("cat", "dog", "cow")
BOX = (0.0, 0.0, 9.0, 9.0)


def assert_tables_agree(data, classes=3, **options):
    options = {"iou_thresholds": IOU_THRESHOLDS, "max_detections": 100} | options
    ours, theirs = (
        coco_tables(data.in_order(), classes, evaluator=name, **options)
        for name in ("hotcoco", "pycocotools")
    )
    assert ours.limits == theirs.limits
    for name in ("precision", "recall"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-12)
    return ours


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_random_sets(seed, kind):
    tables = assert_tables_agree(make(seed, kind=kind), max_detections=(100, 300, 5, 1)[seed % 4])
    assert (tables.precision >= 0).any()


@pytest.mark.parametrize(
    "data",
    {
        "no detections": make(1, detections=0),
        "no targets": make(2, targets=0),
        "nothing at all": make(3, targets=0, detections=0),
        "only crowds": make(4, crowd=np.ones(30, np.bool_)),
        "only difficult": make(5, difficult=np.ones(30, np.bool_)),
        "one score for all": make(6, scores=np.full(90, 0.5)),
        "scores of any size": make(7, scores=np.tile([0.0, -0.0, 1e-320, 1e300, -1e300], 18)),
        "scores that float32 cannot tell": make(8, scores=0.5 + 1e-9 * np.arange(90) % 7e-9),
        "areas on the borders": make(9, target_areas=np.tile([0.0, 32.0**2, 96.0**2], 10)),
        "one box everywhere": make(
            10, boxes=np.tile(BOX, (90, 1)), target_boxes=np.tile(BOX, (30, 1))
        ),
        "points": make(11, boxes=np.zeros((90, 4)), target_boxes=np.zeros((30, 4))),
        "more than the limit": make(12, images=1, classes=1, detections=400, targets=40),
        "classes without targets": make(13, target_labels=np.zeros(30, np.int64)),
        "labels without detections": make(14, labels=np.ones(90, np.int64)),
    }.items(),
    ids=lambda case: case[0],
)
def test_adversarial_sets(data):
    assert_tables_agree(data[1])


@pytest.mark.slow
def test_thousands_of_classes():
    tables = assert_tables_agree(make(0, images=9, classes=1500, targets=300), classes=1500)
    assert tables.precision.shape == (10, 101, 1500, 4, 3)


@pytest.mark.parametrize("thresholds", [(0.5,), (0.3, 0.75), (1.0,)])
def test_other_thresholds(thresholds):
    assert_tables_agree(make(3), iou_thresholds=thresholds)


def summary_of_pycocotools(data, classes):
    """The twelve numbers from COCO's own dictionaries, past all of our code."""
    rows = zip(
        data.image_ids[data.target_images].tolist(),
        data.target_labels.tolist(),
        data.target_boxes.tolist(),
        data.target_areas.tolist(),
        data.crowd.tolist(),
        strict=True,
    )
    keys = ("image_id", "category_id", "bbox", "area", "iscrowd")
    truth = COCO()
    truth.dataset = {
        "images": [{"id": number} for number in data.image_ids.tolist()],
        "categories": [{"id": label, "name": str(label)} for label in range(classes)],
        "annotations": [
            dict(zip(keys, row, strict=True)) | {"id": number} for number, row in enumerate(rows, 1)
        ],
    }
    columns = (data.image_ids[data.images], data.boxes, data.scores, data.labels)
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        found = truth.loadRes(np.column_stack(columns))
        evaluation = COCOeval(truth, found, "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return evaluation.stats


@pytest.mark.parametrize("kind", KINDS)
def test_the_twelve_numbers(kind):
    data = make(7, kind=kind, images=6, detections=200)
    data = replace(data, difficult=np.zeros_like(data.difficult))
    scores = DetectionScores(3)
    for predictions, targets in as_batches(data):
        scores.update(predictions, targets)
    found = scores.compute()
    ours = [found.map, found.ap[50], found.ap[75], *found.size_ap.values()]
    ours += [*found.ar.values(), *found.size_ar.values()]
    theirs = summary_of_pycocotools(data, 3)
    np.testing.assert_allclose(np.nan_to_num(ours, nan=-1), theirs, rtol=0, atol=1e-12)


def test_tables_become_scores():
    """By hand: one class, two targets, one of them found at IoU .6."""
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60.0]])
    scores = DetectionScores(classes=CLASSES)
    found = {"boxes": np.array([[0, 0, 10, 6.0]]), "labels": [1], "scores": [0.3]}
    scores.update([found], [{"boxes": boxes, "labels": [1, 1]}])
    found = scores.compute()
    expected = 51 / 101  # recalls 0, .01, ... .50
    assert found.ap[50] == pytest.approx(expected)
    assert found.ap[55] == pytest.approx(expected)
    assert found.ap[65] == 0
    assert found.map75_95 == 0
    assert found.per_class["dog"] == found.map
    assert math.isnan(found.per_class["cat"])
    assert math.isnan(found.size_ap["large"])
    assert found.size_ap["small"] == found.map
    assert (found.num_images, found.num_targets, found.num_detections) == (1, 2, 1)
    recall, precision = found.precision_recall(0.55, label=1)
    assert recall[precision > 0.5].max() == 0.5
    np.testing.assert_array_equal(found.precision_recall(0.55)[1], precision)
    keys = [*(f"ap{p}" for p in range(50, 100, 5)), "map", "map75_95"]
    assert [name for name in found.as_dict() if name in keys] == keys
    assert found.as_dict()["ar100"] == found.ar[100]
    assert found.recall == {
        **dict.fromkeys((50, 55, 60), 0.5),
        **dict.fromkeys(range(65, 96, 5), 0),
    }
    assert np.mean(list(found.recall.values())) == pytest.approx(found.ar[100])
    assert found.as_dict()["recall60"] == 0.5
    assert (found.as_dict()["found60"], found.as_dict()["found65"]) == (0.5, 0)
    with pytest.raises(ValueError, match=r"iou=0\.52 was not scored"):
        found.precision_recall(0.52)
    with pytest.raises(ValueError, match="label=3 must be 0 to 2"):
        found.precision_recall(label=3)


def one_image(found, scores, **target):
    prediction = {"boxes": np.array(found), "scores": np.array(scores)}
    return [prediction | {"labels": np.zeros(len(found), np.int64)}], [target]


def test_recall_is_that_of_the_highest_limit():
    boxes = np.array([[0, 0, 10, 10], [50, 50, 60, 60.0]])
    scores = DetectionScores(classes=CLASSES)
    found = {"boxes": boxes, "labels": [1, 1], "scores": [0.9, 0.3]}
    scores.update([found], [{"boxes": boxes, "labels": [1, 1]}])
    result = scores.compute()
    assert (result.ar[1], result.ar[100]) == (0.5, 1.0)
    assert set(result.recall.values()) == {1.0}


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("coco", 1.0), ("paper", 0.5), ("voc", 1.0), ("voc07", 1.0), ("yolov5", 0.5)],
)
def test_what_finding_a_difficult_box_does(rule, expected):
    """The rules of the paper and of YOLOv5 have nothing to find there; the others ignore it."""
    scores = DetectionScores(1, rule=rule)
    boxes = [[0, 0, 10, 10], [20, 20, 30, 30]]
    target = {"boxes": np.array(boxes), "labels": np.zeros(2, np.int64)}
    scores.update(*one_image(boxes, [0.9, 0.8], **target, difficult=np.array([True, False])))
    assert scores.compute().ap[50] == pytest.approx(expected, abs=0.003)
    assert scores.compute().num_targets == 1


def test_a_crowd_takes_many_and_a_difficult_box_one():
    def precision(**kind):
        scores = DetectionScores(1)
        boxes = [[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]]
        target = {"boxes": np.array(boxes)[[0, 2]], "labels": np.zeros(2, np.int64)}
        scores.update(*one_image(boxes, [0.9, 0.8, 0.7], **target, **kind))
        return scores.compute().ap[50]

    assert precision(iscrowd=np.array([1, 0])) == pytest.approx(1.0)
    assert precision(difficult=np.array([1, 0])) == pytest.approx(0.5)
    assert precision(iscrowd=np.array([1, 0]), difficult=np.array([1, 0])) == pytest.approx(1.0)
