"""The IoU of each detection with the ground truth, and counts above thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.matching import best_matches
from alphaiou.metrics.voc import judge

#: The thresholds in the paper's figure of IoU distributions.
HISTOGRAM_THRESHOLDS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
#: Detections of at least this score count as confident.
SURE = 0.25


def detection_ious(
    data: ScoringData, *, min_score: float | None = None, once: bool = False
) -> Float64[np.ndarray, " kept"]:
    """Return the IoU of each detection with the best target of its class in its image.

    Apply non-maximum suppression before. Detections whose best target is a crowd or difficult are
    left out. Detections that overlap no target of their class have IoU 0.

    Args:
        data: Detections and targets.
        min_score: The minimum score of a detection.
        once: Count every object once: keep only the highest-scoring detection of each target, and
            leave out detections without overlap.

    Examples:
        >>> import numpy as np
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(1)
        >>> found = {"boxes": np.array([[0, 0, 10, 5.0], [0, 0, 10, 9]])}
        >>> found |= {"scores": np.array([0.9, 0.8]), "labels": np.array([0, 0])}
        >>> target = {"boxes": np.array([[0, 0, 10, 10.0]]), "labels": np.array([0])}
        >>> scores.update([found], [target])
        >>> detection_ious(scores.data()), detection_ious(scores.data(), once=True)
        (array([0.5, 0.9]), array([0.5]))
    """
    data = data.in_order()
    if min_score is not None:
        data = data.keep_detections(data.scores >= min_score)
    data = data.keep_detections(np.argsort(-data.scores, kind="stable"))
    matches = best_matches(data)
    right, counted = judge(matches, data.crowd | data.difficult, 0.0)
    ious: np.ndarray = matches.ious[right if once else counted]
    return ious


def counts_above(
    ious: Float64[np.ndarray, " detections"], thresholds: Sequence[float] = HISTOGRAM_THRESHOLDS
) -> dict[float, int]:
    """Count the IoUs that reach each threshold.

    Examples:
        >>> import numpy as np
        >>> counts_above(np.array([0.4, 0.5, 0.8]), (0.5, 0.75))
        {0.5: 2, 0.75: 1}
    """
    return {threshold: int((ious >= threshold).sum()) for threshold in thresholds}


def found_shares(data: ScoringData) -> dict[int, float]:
    """Return the share of objects that confident detections match at each IoU, keyed in percent.

    An object is matched by the highest-scoring detection whose best target it is, if the score is
    at least :data:`SURE`. Difficult objects and crowds are ignored. Without objects it is NaN.

    Examples:
        >>> import numpy as np
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(1)
        >>> box = np.array([[0, 0, 10, 10.0]])
        >>> found = {"boxes": box * [1, 1, 1, 0.8], "scores": np.ones(1), "labels": [0]}
        >>> target = {"boxes": np.concatenate([box, box + 50]), "labels": [0, 0]}
        >>> scores.update([found], [target])
        >>> found_shares(scores.data())[80], found_shares(scores.data())[85]
        (0.5, 0.0)
    """
    objects = int((~(data.crowd | data.difficult)).sum())
    counts = counts_above(detection_ious(data, min_score=SURE, once=True))
    return {
        round(100 * threshold): count / objects if objects else float("nan")
        for threshold, count in counts.items()
    }
