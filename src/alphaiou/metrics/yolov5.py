"""Average precision as YOLOv5's test program computes it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alphaiou._shapes import Bool, Float64
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import Matches, best_matches
from alphaiou.metrics.voc import RECALLS, VocTables, within_limit


def yolov5_tables(
    data: ScoringData,
    num_classes: int,
    *,
    iou_thresholds: Sequence[float],
    max_detections: int | None = None,
) -> VocTables:
    """Average precision by the rules of YOLOv5's test program.

    A detection is assigned to the target of its class with the highest IoU. Of the detections of a
    target the one with the highest IoU is kept, whatever its score; the others are false positives
    and are not given another target. It is a true positive where its IoU is above the threshold.
    The precision is interpolated linearly between the recalls, starts with 1 at recall 0 and ends
    with 0 at recall 1. All targets count: there are no crowds or difficult boxes.

    Args:
        data: The detections and targets, sorted by image.
        num_classes: The number of classes.
        iou_thresholds: The IoUs that a true positive exceeds.
        max_detections: The maximum number of detections per class and image; None is unlimited.
    """
    if max_detections is not None:
        data = data.keep_detections(within_limit(data, max_detections))
    data = data.keep_detections(np.lexsort((-data.scores, data.labels)))
    matches = best_matches(data)
    kept = _keep_best(matches, len(data.target_labels))
    counts = np.bincount(data.target_labels, minlength=num_classes)
    ends = np.searchsorted(data.labels, np.arange(num_classes + 1))
    precision = np.full((len(iou_thresholds), len(RECALLS), num_classes), np.nan)
    for row, threshold in enumerate(iou_thresholds):
        right = kept & (matches.ious > threshold)
        for label in np.flatnonzero(counts):
            own = slice(ends[label], ends[label + 1])
            precision[row, :, label] = _precision(right[own], int(counts[label]))
    ap = np.trapezoid(precision, RECALLS, axis=1)
    return VocTables(ap, precision)


def _keep_best(matches: Matches, targets: int) -> Bool[np.ndarray, " detections"]:
    """Return which detections have the highest IoU of all that are assigned to their target."""
    rising = np.argsort(matches.ious[::-1], kind="stable")
    order = (len(rising) - 1 - rising)[matches.targets[::-1][rising] >= 0]
    best = np.full(targets, -1)
    best[matches.targets[order]] = order  # the last assignment is the highest IoU, then score
    kept = np.zeros(len(matches.ious), dtype=np.bool_)
    kept[best[best >= 0]] = True
    return kept


def _precision(right: Bool[np.ndarray, " detections"], targets: int) -> Float64[np.ndarray, " 101"]:
    """Return the precision at each of ``RECALLS``."""
    if not len(right):
        return np.zeros_like(RECALLS)
    found = np.cumsum(right)
    recall = np.concatenate([[0.0], found / targets, [1.0]])
    precision = np.concatenate([[1.0], found / np.arange(1, len(found) + 1), [0.0]])
    envelope = np.maximum.accumulate(precision[::-1])[::-1]
    values: np.ndarray = np.interp(RECALLS, recall, envelope)
    return values
