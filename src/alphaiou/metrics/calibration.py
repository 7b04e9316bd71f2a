"""Calibration: whether the score of a detection says how good its box is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.metrics.errors import find_errors
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import best_matches

#: Scores are collected in this many bins of equal width.
BINS = 10


@dataclass(frozen=True)
class ScoreBin:
    """The detections with scores in one range.

    Attributes:
        low: The lower end of the range.
        high: The upper end.
        detections: The number of detections.
        score: Their mean score; 0 without detections, as are all other means.
        iou: Their mean IoU with the best object of their class.
        precision: The share of true positives by the IoU that they need, in percent.
    """

    low: float
    high: float
    detections: int
    score: float
    iou: float
    precision: dict[int, float]


@dataclass(frozen=True)
class Calibration:
    """How scores relate to the IoU and to being right.

    Attributes:
        bins: The ranges of scores.
        iou_gap: The mean distance between score and IoU over the bins, weighted by detections.
        errors: The expected calibration error by the IoU of a true positive, in percent: the same
            distance between score and precision.
        correlation: Spearman's rank correlation of score and IoU, over the detections that overlap
            an object of their class by .1 or more; NaN for fewer than three.
    """

    bins: list[ScoreBin]
    iou_gap: float
    errors: dict[int, float]
    correlation: float


def calibration_of(data: dict[float, ScoringData]) -> Calibration:
    """Return the calibration of detections; the precision and its errors are hotcoco's.

    Args:
        data: By the IoU of a true positive, the objects and detections that count, from
            ``counted_data``; scores are in [0, 1].

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(1)
        >>> box = np.array([[0, 0, 10, 10.0]])
        >>> found = {"boxes": box * [1, 1, 1, 0.8], "scores": np.array([0.9]), "labels": [0]}
        >>> scores.update([found], [{"boxes": box, "labels": [0]}])
        >>> calibration = calibration_of({0.5: scores.data()})
        >>> round(calibration.iou_gap, 3), round(calibration.errors[50], 3)
        (0.1, 0.1)
    """
    from hotcoco.metrics import calibration_curve, calibration_error

    curves, errors = {}, {}
    for threshold, counted in data.items():
        found = find_errors(counted, threshold)
        right, percent = found.types < 0, round(100 * threshold)
        scores = found.data.scores.clip(0, 1)
        curves[percent] = calibration_curve(scores, right, BINS)
        errors[percent] = calibration_error(scores, right, BINS)[0]
    first = next(iter(data.values()))
    scores, ious = first.scores.clip(0, 1), best_matches(first).ious
    places = np.minimum((scores * BINS).astype(int), BINS - 1)
    bins = []
    for place in range(BINS):
        inside = places == place
        bins.append(
            ScoreBin(
                low=place / BINS,
                high=(place + 1) / BINS,
                detections=int(inside.sum()),
                score=_mean(scores[inside]),
                iou=_mean(ious[inside]),
                precision={key: curve[place]["avg_accuracy"] for key, curve in curves.items()},
            )
        )
    gap = sum(one.detections * abs(one.score - one.iou) for one in bins) / max(1, len(scores))
    return Calibration(bins, gap, errors, _correlation(scores[ious >= 0.1], ious[ious >= 0.1]))


def _mean(values: Float64[np.ndarray, " some"]) -> float:
    return float(values.mean()) if len(values) else 0.0


def _correlation(scores: Float64[np.ndarray, " some"], ious: Float64[np.ndarray, " some"]) -> float:
    from scipy.stats import spearmanr

    if len(scores) < 3 or scores.min() == scores.max() or ious.min() == ious.max():
        return float("nan")
    return float(spearmanr(scores, ious).statistic)
