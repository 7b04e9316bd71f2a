"""The confusion matrix and the best operating points, against plain loops and COCO's recall."""

import math

import numpy as np
import pytest

from alphaiou.metrics import DetectionScores
from alphaiou.metrics.coco import coco_tables
from alphaiou.metrics.confusion import assign, best_point, best_points, confusion_matrix
from tests.metrics.made_data import make

CLASSES = 3


def iou_of(box, other, crowd=False):
    width = min(box[0] + box[2], other[0] + other[2]) - max(box[0], other[0])
    height = min(box[1] + box[3], other[1] + other[3]) - max(box[1], other[1])
    overlap = max(width, 0.0) * max(height, 0.0)
    union = box[2] * box[3] + (0.0 if crowd else other[2] * other[3] - overlap)
    return overlap / union if overlap else 0.0


def by_loops(data, iou, min_score):
    """The confusion matrix of some images, one detection and one object at a time."""
    data = data.in_order()
    matrix = np.zeros((CLASSES + 1, CLASSES + 1), dtype=int)
    ignored = data.crowd | data.difficult
    for image in range(len(data.image_ids)):
        objects = np.flatnonzero(data.target_images == image).tolist()
        sure = (data.images == image) & (data.scores >= min_score)
        left = sorted(np.flatnonzero(sure).tolist(), key=lambda row: -data.scores[row])
        free = set(objects)
        for own_class in (True, False):
            for row in list(left):
                best, chosen = (True, -1.0), None
                for target in objects:
                    same = data.labels[row] == data.target_labels[target]
                    if same != own_class or (not own_class and ignored[target]):
                        continue
                    if target not in free and not data.crowd[target]:
                        continue
                    value = iou_of(data.boxes[row], data.target_boxes[target], data.crowd[target])
                    rank = (ignored[target], value)
                    better = rank[0] < best[0] or (rank[0] == best[0] and rank[1] >= best[1])
                    # Of equal ones COCO takes the last of the class; otherwise it is the first.
                    if not own_class and rank == best:
                        better = False
                    if value >= min(iou, 1 - 1e-10) and better:
                        best, chosen = rank, target
                if chosen is None:
                    continue
                left.remove(row)
                free.discard(chosen)
                if not ignored[chosen]:
                    matrix[data.target_labels[chosen], data.labels[row]] += 1
        for row in left:
            matrix[CLASSES, data.labels[row]] += 1
        for target in free:
            matrix[data.target_labels[target], CLASSES] += not ignored[target]
    return matrix


@pytest.mark.parametrize("kind", ["grid", "whole", "sizes", "tenths"])
@pytest.mark.parametrize("seed", range(4))
def test_against_loops(seed, kind):
    data = make(seed, kind=kind, classes=CLASSES)
    for iou, score in ((0.5, 0.0), (0.5, 0.5), (0.75, 0.3)):
        found = confusion_matrix(assign(data, iou), CLASSES, min_score=score, iou=iou)
        np.testing.assert_array_equal(found, by_loops(data, iou, score))
    assert found[:CLASSES, :CLASSES].sum() > 0


@pytest.mark.parametrize("seed", range(6))
def test_true_positives_are_those_of_coco(seed):
    data = make(seed, kind="float32", classes=CLASSES, images=3)
    tables = coco_tables(data.in_order(), CLASSES, iou_thresholds=(0.5,), max_detections=1000)
    assignments = assign(data)
    counted = ~(data.crowd | data.difficult)
    for label in range(CLASSES):
        objects = int((data.target_labels[counted] == label).sum())
        right = int(assignments.right[assignments.data.labels == label].sum())
        assert right / objects == pytest.approx(tables.recall[0, label, 0, -1])


@pytest.mark.parametrize("seed", range(4))
def test_the_best_points_are_those_of_a_search_over_all_scores(seed):
    data = make(seed, kind="whole", classes=CLASSES)
    assignments = assign(data)
    counted = ~(data.crowd | data.difficult)
    for label, point in enumerate(best_points(assignments, CLASSES)):
        objects = int((data.target_labels[counted] == label).sum())
        tried = []
        for score in sorted(set(data.scores[data.labels == label].tolist()), reverse=True):
            matrix = by_loops(data, 0.5, score)
            right = matrix[label, label]
            # A detection that matches an object of another class is wrong as well.
            wrong = matrix[:, label].sum() - right
            tried.append((2 * right / (right + wrong + objects), score, right, right + wrong))
        f1, score, right, every = max(tried, key=lambda one: (one[0], one[1]))
        assert f1 > 0
        assert (point.objects, point.score) == (objects, score)
        assert point.precision == pytest.approx(right / every)
        assert point.recall == pytest.approx(right / objects)


def scored(detections, objects):
    """Boxes of 10 pixels at some places, each with a class, of one image."""
    scores = DetectionScores(classes=("cat", "dog", "cow"))
    boxes = [[x, 0.0, x + 10, 10] for x, *_ in detections]
    found = {
        "boxes": np.array(boxes).reshape(-1, 4),
        "labels": np.array([label for _, label, _ in detections], dtype=int),
        "scores": np.array([score for *_, score in detections]),
    }
    truth = {
        "boxes": np.array([[x, 0.0, x + 10, 10] for x, *_ in objects]).reshape(-1, 4),
        "labels": np.array([label for _, label, *_ in objects], dtype=int),
        "difficult": np.array([bool(rest) for *_, rest in objects]),
    }
    scores.update([found], [truth])
    return assign(scores.data())


def test_by_hand():
    found = scored(
        [
            (0, 0, 0.9),  # right
            (1, 0, 0.8),  # a second box on the same cat
            (50, 1, 0.7),  # a dog where a cat is
            (100, 1, 0.6),  # on nothing
            (150, 2, 0.5),  # on a difficult object: does not count
            (200, 1, 0.1),  # not sure enough
        ],
        [(0, 0, False), (50, 0, False), (150, 2, True), (200, 1, False)],
    )
    expected = np.zeros((4, 4), dtype=int)
    expected[0, 0], expected[3, 0] = 1, 1
    expected[0, 1], expected[3, 1] = 1, 1
    expected[1, 3] = 1
    np.testing.assert_array_equal(confusion_matrix(found, 3, min_score=0.3), expected)
    cat, dog, cow = best_points(found, 3)
    assert (cat.objects, cat.score, cat.precision, cat.recall) == (2, 0.9, 1.0, 0.5)
    assert (dog.objects, dog.score, dog.precision, dog.recall) == (1, 0.1, 1 / 3, 1.0)
    assert cow.objects == 0
    assert all(math.isnan(value) for value in (cow.score, cow.precision, cow.recall))
    assert best_point(found).score == 0.9


def test_an_object_goes_to_its_own_class_though_another_fits_better():
    """A rider on a horse: the boxes overlap, and each is found."""
    found = scored([(0, 0, 0.9), (2, 1, 0.8)], [(0, 1, False), (2, 0, False)])
    matrix = confusion_matrix(found, 3, min_score=0.5)
    assert matrix.trace() == matrix.sum() == 2


def test_without_detections_or_objects():
    missed = scored([], [(0, 1, False)])
    matrix = confusion_matrix(missed, 3, min_score=0.5)
    assert matrix[1, 3] == matrix.sum() == 1
    assert best_point(missed).recall == 0.0
    assert math.isnan(best_point(missed).score)
    alone = scored([(0, 1, 0.5)], [])
    matrix = confusion_matrix(alone, 3, min_score=0.5)
    assert matrix[3, 1] == matrix.sum() == 1
    assert math.isnan(best_point(alone).recall)
