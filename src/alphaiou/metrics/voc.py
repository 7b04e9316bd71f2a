"""Average precision as the PASCAL VOC development kit computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import Matches, best_matches

RECALLS = np.linspace(0.0, 1.0, 101)


@dataclass(frozen=True, eq=False)
class VocTables:
    """Average precision and precision-recall curves; NaN if a class has no target.

    Attributes:
        ap: Average precision.
        precision: Interpolated precision at recall .00, .01, ... 1.00.
    """

    ap: Float64[np.ndarray, "thresholds classes"]
    precision: Float64[np.ndarray, "thresholds 101 classes"]


def voc_tables(
    data: ScoringData,
    num_classes: int,
    *,
    iou_thresholds: Sequence[float],
    max_detections: int | None = None,
    eleven_points: bool = False,
) -> VocTables:
    """Average precision by VOC's rules.

    A detection is assigned to the target of its class with the highest IoU. It is a true positive
    if the IoU reaches the threshold and no detection of a higher score is assigned to that target.
    It is ignored if the target is ignored (difficult or a crowd). Otherwise it is a false positive.
    The kit uses inclusive pixel coordinates; boxes here end after their last pixel, so the IoU is
    the same.

    Args:
        data: The detections and targets, sorted by image.
        num_classes: The number of classes.
        iou_thresholds: The minimum IoUs of a match; 0.5 in VOC.
        max_detections: The maximum number of detections per class and image; None is unlimited.
        eleven_points: Average the interpolated precision at recall 0, .1, ... 1 as in 2007, instead
            of taking the area under its curve.
    """
    if max_detections is not None:
        data = data.keep_detections(within_limit(data, max_detections))
    data = data.keep_detections(np.lexsort((-data.scores, data.labels)))
    matches, ignored = best_matches(data), data.crowd | data.difficult
    counts = np.bincount(data.target_labels[~ignored], minlength=num_classes)
    ends = np.searchsorted(data.labels, np.arange(num_classes + 1))
    ap = np.full((len(iou_thresholds), num_classes), np.nan)
    precision = np.full((len(iou_thresholds), len(RECALLS), num_classes), np.nan)
    for row, threshold in enumerate(iou_thresholds):
        right, counted = judge(matches, ignored, threshold)
        for label in np.flatnonzero(counts):
            own = slice(ends[label], ends[label + 1])
            curve = _Curve.of(right[own][counted[own]], int(counts[label]))
            ap[row, label] = curve.eleven_points() if eleven_points else curve.area()
            precision[row, :, label] = curve.at(RECALLS)
    return VocTables(ap, precision)


def judge(
    matches: Matches, ignored: Bool[np.ndarray, " targets"], threshold: float
) -> tuple[Bool[np.ndarray, " detections"], Bool[np.ndarray, " detections"]]:
    """Return which detections, in descending score, are true positives and which count at all."""
    found = (matches.ious >= threshold) & (matches.targets >= 0)
    on_ignored = found.copy()
    on_ignored[found] = ignored[matches.targets[found]]
    hits = np.flatnonzero(found & ~on_ignored)[::-1]
    first = np.full(len(ignored), -1)
    first[matches.targets[hits]] = hits  # the last assignment is that of the highest score
    right = np.zeros(len(found), dtype=np.bool_)
    right[first[first >= 0]] = True
    return right, ~on_ignored


@dataclass(frozen=True, eq=False)
class _Curve:
    """Cumulative true positives and interpolated precision, in descending score."""

    found: Int64[np.ndarray, " detections"]
    precision: Float64[np.ndarray, " detections"]
    targets: int

    @classmethod
    def of(cls, right: Bool[np.ndarray, " detections"], targets: int) -> _Curve:
        found = np.cumsum(right)
        precision = found / np.arange(1, len(found) + 1)
        return cls(found, np.maximum.accumulate(precision[::-1])[::-1], targets)

    def at(self, recalls: Float64[np.ndarray, " recalls"]) -> Float64[np.ndarray, " recalls"]:
        """Return the interpolated precision at each recall; 0 if the recall is not reached."""
        return self._from(np.searchsorted(self.found / self.targets, recalls))

    def eleven_points(self) -> float:
        # In integers: 3 of 10 is a recall of .3, but 3 / 10 >= 3 * .1 is false.
        starts = np.searchsorted(10 * self.found, np.arange(11) * self.targets)
        return float(self._from(starts).mean())

    def area(self) -> float:
        steps = np.flatnonzero(np.diff(self.found, prepend=0))
        return float(self.precision[steps].sum() / self.targets)

    def _from(self, starts: Int64[np.ndarray, " points"]) -> Float64[np.ndarray, " points"]:
        values: np.ndarray = np.append(self.precision, 0.0)[starts]
        return values


def within_limit(data: ScoringData, limit: int) -> Int64[np.ndarray, " kept"]:
    """Return the rows of the highest-scoring detections of each class and image."""
    order = np.lexsort((-data.scores, data.labels, data.images))
    images, labels = data.images[order], data.labels[order]
    new = np.flatnonzero((np.diff(images, prepend=-1) != 0) | (np.diff(labels, prepend=-1) != 0))
    rank = np.arange(len(order)) - np.repeat(new, np.diff(new, append=len(order)))
    return np.sort(order[rank < limit])
