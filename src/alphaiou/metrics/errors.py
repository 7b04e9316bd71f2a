"""The types of errors of a detector, and the average precision that fixing each would bring.

The types are those of TIDE (Bolya et al., ECCV 2020, arXiv 2008.08115). A detection that is no
true positive has one type, the first that fits:

- localisation: an object of its class has an IoU from .1 to the threshold;
- classification: an object of another class has at least the IoU of the threshold;
- duplicate: the object of its class is taken by a detection of a higher score;
- background: no object has an IoU above .1;
- both: all others, with a wrong class and a wrong place.

An object is missed if no detection matches it and none would after its class or its place was
corrected. Fixing a classification or localisation error makes the detection a true positive, the
one of the highest score for each object, and removes the others; fixing an error of another type
removes the detection, and fixing a missed object removes the object.

hotcoco computes the types of a whole data set; it does not say which detection has which. This
module does, for counts by class, by size and by image.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.metrics.coco import SIZES, hotcoco_evaluation
from alphaiou.metrics.confusion import assign
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import overlaps
from alphaiou.metrics.rules import RuleName, find_rule
from alphaiou.metrics.voc import within_limit

#: The types of errors, and the names that hotcoco and TIDE give them.
ERROR_TYPES = {
    "classification": "Cls",
    "localisation": "Loc",
    "both": "Both",
    "duplicate": "Dupe",
    "background": "Bkg",
    "missed": "Miss",
}
CLASSIFICATION, LOCALISATION, BOTH, DUPLICATE, BACKGROUND, MISSED = range(len(ERROR_TYPES))
RIGHT = -1
#: The IoUs at which errors are counted.
ERROR_IOUS = (0.5, 0.75)
#: Below this IoU a detection is on the background.
BACKGROUND_IOU = 0.1
#: The largest areas of small and of medium boxes.
SIZE_AREAS = (32.0**2, 96.0**2)


def counted_data(
    data: ScoringData, rule: RuleName, iou: float, max_detections: int | None = None
) -> ScoringData:
    """Return the objects and the detections that count, with the images in order.

    Objects that a rule drops or ignores are left out, and so are detections beyond the limit of
    the rule and those that match an ignored object.

    Args:
        data: Detections and objects.
        rule: The evaluation rule.
        iou: The minimum IoU of a match.
        max_detections: The maximum number of detections per class and image; by default that of
            the rule.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> box = np.array([[0, 0, 10, 10.0]])
        >>> scores = DetectionScores(1)
        >>> found = {"boxes": box, "scores": np.array([0.9]), "labels": np.array([0])}
        >>> scores.update([found], [{"boxes": box, "labels": [0], "difficult": [1]}])
        >>> len(counted_data(scores.data(), "coco", 0.5).scores)
        0
        >>> len(counted_data(scores.data(), "paper", 0.5).scores)  # which drops difficult objects
        1
    """
    chosen = find_rule(rule)
    data = chosen.ground_truth(data).in_order()
    limit = max_detections or chosen.max_detections
    if limit is not None:
        data = data.keep_detections(within_limit(data, limit))
    ignored = data.crowd | data.difficult
    if not ignored.any():
        return data
    assignments = assign(data, iou)
    counted = assignments.data.keep_detections(~assignments.ignored)
    return counted.keep_targets(~ignored).in_order()


@dataclass(frozen=True, eq=False)
class DetectionErrors:
    """Detections by descending score, each right or with the type of its error.

    Attributes:
        data: The detections and the objects that count.
        iou: The minimum IoU of a match.
        types: The place of the type in ``ERROR_TYPES``; -1 for a true positive.
        targets: The object that a detection matches, or would match without its error, or that
            was taken before; -1 without one.
        missed: Whether an object is missed.
    """

    data: ScoringData
    iou: float
    types: Int64[np.ndarray, " detections"]
    targets: Int64[np.ndarray, " detections"]
    missed: Bool[np.ndarray, " targets"]

    def counts(
        self,
        groups: Int64[np.ndarray, " detections"] | None = None,
        target_groups: Int64[np.ndarray, " targets"] | None = None,
        number: int = 1,
    ) -> Int64[np.ndarray, "groups types"]:
        """Count the errors of each type in groups of detections and of objects.

        Args:
            groups: The group of each detection; one for all by default.
            target_groups: The group of each object, for those that are missed.
            number: The number of groups.
        """
        rows = np.zeros_like(self.types) if groups is None else groups
        places = np.zeros(len(self.missed), np.int64) if target_groups is None else target_groups
        counts = np.zeros((number, len(ERROR_TYPES)), dtype=np.int64)
        wrong = self.types != RIGHT
        np.add.at(counts, (rows[wrong], self.types[wrong]), 1)
        np.add.at(counts[:, MISSED], places[self.missed], 1)
        return counts

    def class_counts(self, classes: int) -> Int64[np.ndarray, "classes types"]:
        """Count errors by the class of the detection, and missed objects by their class."""
        return self.counts(self.data.labels, self.data.target_labels, classes)

    def image_counts(self) -> Int64[np.ndarray, "images types"]:
        """Count errors by image."""
        return self.counts(self.data.images, self.data.target_images, len(self.data.image_ids))

    def size_counts(self) -> Int64[np.ndarray, "3 types"]:
        """Count errors by size: small, medium, large; see :meth:`sizes`."""
        return self.counts(*self.sizes(), number=len(SIZES) - 1)

    def sizes(self) -> tuple[Int64[np.ndarray, " detections"], Int64[np.ndarray, " targets"]]:
        """The size of each detection and of each object: 0 small, 1 medium, 2 large.

        As in TIDE, the size of a classification or localisation error is that of the object, and
        that of other errors is the size of the detection.
        """
        targets = np.searchsorted(SIZE_AREAS, self.data.target_areas)
        detections = np.searchsorted(SIZE_AREAS, np.prod(self.data.boxes[:, 2:], axis=1))
        movable = (self.types == CLASSIFICATION) | (self.types == LOCALISATION)
        detections[movable] = targets[self.targets[movable]]
        return detections, targets

    def class_ap(
        self, classes: int, kind: int | None = None, size: int | None = None
    ) -> Float64[np.ndarray, " classes"]:
        """Average precision of each class, with errors as they are or those of a type fixed.

        Args:
            classes: The number of classes; it is NaN for those without objects.
            kind: The type to fix, a place in ``ERROR_TYPES``; none by default.
            size: Fix errors of one size only: 0 small, 1 medium, 2 large.
        """
        from hotcoco.metrics import average_precision

        data = self.data
        objects = np.bincount(data.target_labels, minlength=classes)
        has_objects = objects > 0
        labels, right, kept = (
            data.labels.copy(),
            self.types == RIGHT,
            np.ones(len(self.types), bool),
        )
        sizes, target_sizes = self.sizes()
        if kind == MISSED:
            fixed = self.missed & (True if size is None else target_sizes == size)
            objects = objects - np.bincount(data.target_labels[fixed], minlength=classes)
        elif kind is not None:
            fixed = (self.types == kind) & (True if size is None else sizes == size)
            corrected = fixed & self._corrected()
            kept, right = ~fixed | corrected, right | corrected
            labels[corrected] = data.target_labels[self.targets[corrected]]
        result = np.full(classes, np.nan)
        for label in np.flatnonzero(has_objects):
            rows = kept & (labels == label)
            number = int(objects[label])
            result[label] = average_precision(data.scores[rows], right[rows], number)
        return result

    def _corrected(self) -> Bool[np.ndarray, " detections"]:
        """Whether a detection becomes a true positive: as in TIDE, the first of each free object.

        A detection of one type is not corrected if one of the other type would match first.
        """
        movable = (self.types == CLASSIFICATION) | (self.types == LOCALISATION)
        rows = np.flatnonzero(movable)
        rows = rows[~self.taken()[self.targets[rows]]]
        _, first = np.unique(self.targets[rows], return_index=True)
        corrected = np.zeros(len(self.types), dtype=np.bool_)
        corrected[rows[first]] = True
        return corrected

    def taken(self) -> Bool[np.ndarray, " targets"]:
        """Whether a detection matches an object."""
        taken = np.zeros(len(self.missed), dtype=np.bool_)
        taken[self.targets[self.types == RIGHT]] = True
        return taken


def find_errors(data: ScoringData, iou: float) -> DetectionErrors:
    """Find the type of error of each detection, and the missed objects.

    Args:
        data: The detections and the objects that count, from :func:`counted_data`.
        iou: The minimum IoU of a match.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(classes=("cat", "dog"))
        >>> boxes = np.array([[0, 0, 10, 10.0], [0, 0, 10, 4], [50, 50, 60, 60]])
        >>> found = {"boxes": boxes, "scores": [0.9, 0.8, 0.7], "labels": [1, 1, 0]}
        >>> scores.update([found], [{"boxes": boxes[:1], "labels": [1]}])
        >>> errors = find_errors(counted_data(scores.data(), "coco", 0.5), 0.5)
        >>> [list(ERROR_TYPES)[kind] for kind in errors.types if kind != RIGHT]
        ['localisation', 'background']
    """
    assignments = assign(data, iou)
    data, targets = assignments.data, assignments.targets.copy()
    right = targets >= 0
    taken = np.zeros(len(data.target_labels), dtype=np.bool_)
    taken[targets[right]] = True
    rows, places, ious = overlaps(data, BACKGROUND_IOU, any_class=True)
    same = data.labels[rows] == data.target_labels[places]
    number = len(data.scores)
    own, own_target = _best(rows[same], places[same], ious[same], number)
    other, other_target = _best(rows[~same], places[~same], ious[~same], number)
    again = same & taken[places]
    double, double_target = _best(rows[again], places[again], ious[again], number)
    types = np.select(
        [
            right,
            (own >= BACKGROUND_IOU) & (own <= iou),
            other >= iou,
            double >= iou,
            np.maximum(own, other) <= BACKGROUND_IOU,
        ],
        [RIGHT, LOCALISATION, CLASSIFICATION, DUPLICATE, BACKGROUND],
        BOTH,
    )
    for kind, objects in (
        (LOCALISATION, own_target),
        (CLASSIFICATION, other_target),
        (DUPLICATE, double_target),
    ):
        targets[types == kind] = objects[types == kind]
    movable = (types == LOCALISATION) | (types == CLASSIFICATION)
    missed = ~taken
    missed[targets[movable]] = False
    return DetectionErrors(data, iou, types, targets, missed)


def _best(
    rows: Int64[np.ndarray, " pairs"],
    targets: Int64[np.ndarray, " pairs"],
    ious: Float64[np.ndarray, " pairs"],
    number: int,
) -> tuple[Float64[np.ndarray, " detections"], Int64[np.ndarray, " detections"]]:
    """Return the highest IoU of each detection, or 0, and the first object that has it, or -1."""
    best, chosen = np.zeros(number), np.full(number, -1)
    np.maximum.at(best, rows, ious)
    winners = np.flatnonzero(ious == best[rows])
    winners = winners[np.argsort(-targets[winners], kind="stable")]
    chosen[rows[winners]] = targets[winners]  # the last assignment is the first object
    return best, chosen


def tide_summary(data: ScoringData, classes: int, iou: float) -> dict[str, Any]:
    """Return what hotcoco reports of a whole data set: AP, counts and the AP of each fix.

    Args:
        data: The detections and the objects that count, from :func:`counted_data`.
        classes: The number of classes.
        iou: The minimum IoU of a match.
    """
    evaluation = hotcoco_evaluation(data, classes)
    evaluation.params.iouThrs = np.array([iou])
    evaluation.params.maxDets = [max(1, len(data.scores))]
    evaluation.evaluate()
    found = evaluation.tide_errors(pos_thr=iou, bg_thr=BACKGROUND_IOU)
    return {
        "ap": found["ap_base"],
        "counts": {name: found["counts"][key] for name, key in ERROR_TYPES.items()},
        "delta_ap": {name: found["delta_ap"][key] for name, key in ERROR_TYPES.items()},
    }
