"""Match each detection to the target of its class with the highest IoU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from alphaiou._shapes import Float64, Int64
from alphaiou.metrics.inputs import ScoringData

_PAIRS_AT_ONCE = 1 << 20  # bounds memory if an image has thousands of boxes of a class


@dataclass(frozen=True, eq=False)
class Matches:
    """The best target of each detection.

    Attributes:
        targets: The row of the target, the first of equal ones; -1 if none of the class overlaps.
        ious: The IoU with that target, or 0.
    """

    targets: Int64[np.ndarray, " detections"]
    ious: Float64[np.ndarray, " detections"]


def best_matches(data: ScoringData) -> Matches:
    """Find the best target of each detection within its image and class."""
    matches = Matches(np.full(len(data.scores), -1), np.zeros(len(data.scores)))
    for detections, targets in _pairs(data):
        ious = _ious(data.boxes[detections], data.target_boxes[targets])
        np.maximum.at(matches.ious, detections, ious)
        best = np.flatnonzero((ious == matches.ious[detections]) & (ious > 0))[::-1]
        matches.targets[detections[best]] = targets[best]  # the last assignment is the first pair
    return matches


def _pairs(
    data: ScoringData,
) -> Iterator[tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"]]]:
    """Yield pairs of detections and targets of equal image and class, grouped by detection."""
    classes = 1 + max(data.labels.max(initial=0), data.target_labels.max(initial=0))
    target_groups = data.target_images * classes + data.target_labels
    groups = data.images * classes + data.labels
    order = np.argsort(target_groups, kind="stable")
    starts, ends = (np.searchsorted(target_groups[order], groups, s) for s in ("left", "right"))
    counts = ends - starts
    chunk_of = np.cumsum(counts) // _PAIRS_AT_ONCE
    for chunk in np.unique(chunk_of[counts > 0]):
        rows = np.flatnonzero((chunk_of == chunk) & (counts > 0))
        firsts = np.cumsum(counts[rows]) - counts[rows]
        within = np.arange(counts[rows].sum()) - np.repeat(firsts, counts[rows])
        yield np.repeat(rows, counts[rows]), order[np.repeat(starts[rows], counts[rows]) + within]


def _ious(
    some: Float64[np.ndarray, "pairs 4"], others: Float64[np.ndarray, "pairs 4"]
) -> Float64[np.ndarray, " pairs"]:
    start = np.maximum(some[:, :2], others[:, :2])
    end = np.minimum(some[:, :2] + some[:, 2:], others[:, :2] + others[:, 2:])
    overlap: np.ndarray = np.prod(np.maximum(end - start, 0.0), axis=1)
    union = np.prod(some[:, 2:], axis=1) + np.prod(others[:, 2:], axis=1) - overlap
    ious = np.zeros_like(overlap)
    np.divide(overlap, union, out=ious, where=overlap > 0)
    return ious
