"""Match each detection to the target of its class with the highest IoU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.boxes import area
from alphaiou.metrics.inputs import COLUMNS_OF, ScoringData
from alphaiou.oriented import oriented_geometry

_PAIRS_AT_ONCE = 1 << 20  # bounds memory if an image has thousands of boxes of a class
_ORIENTED_AT_ONCE = 1 << 16  # their geometry takes a kilobyte per pair


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


def overlaps(
    data: ScoringData, iou: float, *, any_class: bool = False
) -> tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"], Float64[np.ndarray, " pairs"]]:
    """Return the pairs of a detection and a target of its image that reach an IoU.

    The IoU with a crowd is the share of the detection within it, as COCO defines it.

    Args:
        data: Detections and targets.
        iou: The minimum IoU.
        any_class: Whether targets of other classes count as well.

    Returns:
        The row of the detection, the row of the target, and their IoU.
    """
    found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    for detections, targets in _pairs(data, any_class=any_class):
        ious = _ious(data.boxes[detections], data.target_boxes[targets], data.crowd[targets])
        near = ious >= min(iou, 1 - 1e-10)
        found.append((detections[near], targets[near], ious[near]))
    rows, places, values = (np.concatenate(column) for column in zip(*found, strict=True))
    return rows, places, values


def _pairs(
    data: ScoringData, *, any_class: bool = False
) -> Iterator[tuple[Int64[np.ndarray, " pairs"], Int64[np.ndarray, " pairs"]]]:
    """Yield pairs of detections and targets of equal image and class, grouped by detection."""
    if any_class:
        groups, target_groups = data.images, data.target_images
    else:
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
    some: Float64[np.ndarray, "pairs coordinates"],
    others: Float64[np.ndarray, "pairs coordinates"],
    crowd: Bool[np.ndarray, " pairs"] | None = None,
) -> Float64[np.ndarray, " pairs"]:
    if some.shape[1] == COLUMNS_OF["cxcywhr"]:
        return _oriented_ious(some, others, crowd)
    start = np.maximum(some[:, :2], others[:, :2])
    end = np.minimum(some[:, :2] + some[:, 2:], others[:, :2] + others[:, 2:])
    overlap: np.ndarray = np.prod(np.maximum(end - start, 0.0), axis=1)
    union = np.prod(some[:, 2:], axis=1) + np.prod(others[:, 2:], axis=1) - overlap
    if crowd is not None:
        union[crowd] = np.prod(some[crowd, 2:], axis=1)
    ious = np.zeros_like(overlap)
    np.divide(overlap, union, out=ious, where=overlap > 0)
    return ious


def _oriented_ious(
    some: Float64[np.ndarray, "pairs 5"],
    others: Float64[np.ndarray, "pairs 5"],
    crowd: Bool[np.ndarray, " pairs"] | None = None,
) -> Float64[np.ndarray, " pairs"]:
    # Boxes whose circles do not meet have no overlap: most pairs of an aerial image.
    reach = 0.5 * (np.hypot(*some[:, 2:4].T) + np.hypot(*others[:, 2:4].T))
    near = np.flatnonzero(np.hypot(*(some - others)[:, :2].T) < reach)
    ious = np.zeros(len(some))
    for start in range(0, len(near), _ORIENTED_AT_ONCE):
        rows = near[start : start + _ORIENTED_AT_ONCE]
        pair = oriented_geometry(torch.from_numpy(some[rows]), torch.from_numpy(others[rows]))
        values = pair.iou
        if crowd is not None:
            within = pair.intersection / area(pair.pred)
            values = torch.where(torch.from_numpy(crowd[rows]), within, values)
        ious[rows] = values.numpy()
    return ious
