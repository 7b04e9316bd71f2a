"""The confusion matrix of a detector, and precision and recall of each class at its best F1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import overlaps

#: The IoU from which on a detection matches an object.
MATCH_IOU = 0.5


@dataclass(frozen=True, eq=False)
class Assignments:
    """Detections by descending score, each with the object of its class that it matches.

    Attributes:
        data: The images in order, their detections by descending score.
        targets: The row of the object of each detection; -1 without one.
        ignored: Whether a detection matches a crowd or a difficult object, and so does not count.
    """

    data: ScoringData
    targets: Int64[np.ndarray, " detections"]
    ignored: Bool[np.ndarray, " detections"]

    @property
    def right(self) -> Bool[np.ndarray, " detections"]:
        """Whether a detection is a true positive."""
        right: np.ndarray = (self.targets >= 0) & ~self.ignored
        return right


def assign(data: ScoringData, iou: float = MATCH_IOU) -> Assignments:
    """Match detections to objects of their class as COCO does, at one IoU.

    Each detection, the highest score first, takes the free object of the highest IoU. Without one
    it may lie on a difficult object, which one detection may take, or on a crowd, which any number
    may; it then does not count. The matches of the detections above a score do not depend on the
    others.

    Args:
        data: Detections and objects.
        iou: The minimum IoU of a match.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(1)
        >>> found = {"boxes": np.array([[0, 0, 10, 5.0], [0, 0, 10, 9]])}
        >>> found |= {"scores": np.array([0.9, 0.8]), "labels": np.array([0, 0])}
        >>> target = {"boxes": np.array([[0, 0, 10, 10.0]]), "labels": np.array([0])}
        >>> scores.update([found], [target])
        >>> assign(scores.data()).right
        array([ True, False])
    """
    data = data.in_order()
    data = data.keep_detections(np.argsort(-data.scores, kind="stable"))
    detections, targets, ious = overlaps(data, iou)
    targets_of = np.full(len(data.scores), -1)
    skipped = (data.crowd | data.difficult)[targets]
    # As in COCO's evaluator, the last of equally good objects.
    order = np.lexsort((-targets, -ious, skipped, detections))
    rows = zip(detections[order].tolist(), targets[order].tolist(), strict=True)
    _take(rows, targets_of, data.crowd)
    matched = targets_of >= 0
    ignored = matched.copy()
    ignored[matched] = (data.crowd | data.difficult)[targets_of[matched]]
    return Assignments(data, targets_of, ignored)


def _take(
    pairs: Iterable[tuple[int, int]],
    targets_of: Int64[np.ndarray, " detections"],
    shared: Bool[np.ndarray, " targets"],
) -> None:
    """Give each detection the first object of its pairs that is free, or that is shared."""
    taken = set(targets_of[targets_of >= 0].tolist())
    for detection, target in pairs:
        if targets_of[detection] < 0 and (target not in taken or shared[target]):
            targets_of[detection] = target
            taken.add(target)


def confusion_matrix(
    assignments: Assignments, num_classes: int, *, min_score: float, iou: float = MATCH_IOU
) -> Int64[np.ndarray, "classes+1 classes+1"]:
    """Count objects by their class and by the class of the detection that matches them.

    Objects are first matched to detections of their own class, as for average precision. Those
    that remain are matched to the remaining detections of other classes, the highest score first.
    The last row counts detections without an object, the last column objects without a detection.
    Crowds, difficult objects and detections that match them do not count.

    Args:
        assignments: The matches within each class.
        num_classes: The number of classes.
        min_score: The minimum score of a detection.
        iou: The minimum IoU of a match.

    Returns:
        The counts: a row for the class of the object, a column for that of the detection.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(classes=("cat", "dog"))
        >>> boxes = np.array([[0, 0, 10, 10.0]])
        >>> found = {"boxes": boxes, "scores": np.array([0.9]), "labels": np.array([1])}
        >>> scores.update([found], [{"boxes": boxes, "labels": np.array([0])}])
        >>> confusion_matrix(assign(scores.data()), 2, min_score=0.5)
        array([[0, 1, 0],
               [0, 0, 0],
               [0, 0, 0]])
    """
    sure = assignments.data.scores >= min_score
    data = assignments.data.keep_detections(sure)
    targets_of = assignments.targets[sure].copy()
    counted = ~assignments.ignored[sure]
    objects = ~(data.crowd | data.difficult)
    detections, targets, ious = overlaps(data, iou, any_class=True)
    other = (data.labels[detections] != data.target_labels[targets]) & objects[targets]
    detections, targets, ious = detections[other], targets[other], ious[other]
    order = np.lexsort((targets, -ious, detections))
    rows = zip(detections[order].tolist(), targets[order].tolist(), strict=True)
    _take(rows, targets_of, np.zeros(len(objects), dtype=np.bool_))
    matched = counted & (targets_of >= 0)
    free = objects.copy()
    free[targets_of[matched]] = False
    matrix = np.zeros((num_classes + 1, num_classes + 1), dtype=np.int64)
    np.add.at(matrix, (data.target_labels[targets_of[matched]], data.labels[matched]), 1)
    np.add.at(matrix[num_classes], data.labels[counted & (targets_of < 0)], 1)
    np.add.at(matrix[:, num_classes], data.target_labels[free], 1)
    return matrix


@dataclass(frozen=True)
class OperatingPoint:
    """Precision and recall at the score at which their harmonic mean, F1, is highest.

    Undefined values are NaN: all but the recall without detections, and all without objects.

    Attributes:
        objects: The number of objects that count.
        score: The minimum score of a detection.
        precision: The share of detections that are right.
        recall: The share of objects that are found.
    """

    objects: int
    score: float
    precision: float
    recall: float


def best_points(assignments: Assignments, num_classes: int) -> list[OperatingPoint]:
    """Return the best operating point of each class; of equally good ones that of highest score.

    Args:
        assignments: The matches within each class.
        num_classes: The number of classes.
    """
    data = assignments.data
    objects = ~(data.crowd | data.difficult)
    counts = np.bincount(data.target_labels[objects], minlength=num_classes).tolist()
    return [
        _best_point(assignments, data.labels == label, count) for label, count in enumerate(counts)
    ]


def best_point(assignments: Assignments) -> OperatingPoint:
    """Return the best operating point of all classes together, with one score for all."""
    data = assignments.data
    objects = int((~(data.crowd | data.difficult)).sum())
    return _best_point(assignments, np.ones(len(data.scores), dtype=np.bool_), objects)


def _best_point(
    assignments: Assignments, rows: Bool[np.ndarray, " detections"], objects: int
) -> OperatingPoint:
    rows = rows & ~assignments.ignored
    scores, right = assignments.data.scores[rows], assignments.right[rows]
    if not objects or not len(scores):
        nan = float("nan")
        return OperatingPoint(objects, nan, nan, 0.0 if objects else nan)
    found: Float64[np.ndarray, " detections"] = np.cumsum(right).astype(np.float64)
    number = np.arange(1, len(scores) + 1)
    # Detections of one score come together.
    ends = np.flatnonzero(np.diff(scores, append=-np.inf))
    best = ends[(2 * found[ends] / (number[ends] + objects)).argmax()]
    return OperatingPoint(
        objects,
        float(scores[best]),
        float(found[best] / number[best]),
        float(found[best] / objects),
    )
