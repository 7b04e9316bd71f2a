"""Two detectors on the same images: differences with intervals from a paired bootstrap.

The images are drawn with replacement, the same for both detectors. Such an interval covers the
choice of the images; it says nothing about another seed of the training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alphaiou._shapes import Float64, Int64
from alphaiou.metrics.coco import hotcoco_evaluation
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.rules import IOU_THRESHOLDS

#: The number of times that the images are drawn.
SAMPLES = 1000
#: The part of the samples that an interval leaves out.
LEVEL = 0.05
_STRICT = tuple(threshold for threshold in IOU_THRESHOLDS if threshold > 0.74)


@dataclass(frozen=True)
class Difference:
    """A difference between two detectors, and its 95 % interval over images.

    Attributes:
        first: The value of the first.
        second: The value of the second.
        difference: The second minus the first.
        low: The lower end of the interval.
        high: The upper end.
    """

    first: float
    second: float
    difference: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes zero."""
        return not self.low <= 0.0 <= self.high


def ap_differences(
    first: ScoringData, second: ScoringData, classes: int, limit: int | None, *, seed: int = 0
) -> dict[str, Difference]:
    """Compare average precision by hotcoco's paired bootstrap: AP50, AP75, mAP and mAP75:95.

    Args:
        first: The detections of the baseline with the objects of the rule, the images in order.
        second: The detections of the other detector on the same images.
        classes: The number of classes.
        limit: The maximum number of detections per class and image.
        seed: The seed of the bootstrap.
    """
    import hotcoco

    found = {}
    wanted = {"ap50": "AP50", "ap75": "AP75", "map": "AP"}
    for ious, names in ((IOU_THRESHOLDS, wanted), (_STRICT, {"map75_95": "AP"})):
        one, other = (_evaluated(data, classes, limit, ious) for data in (first, second))
        result = hotcoco.compare(one, other, n_bootstrap=SAMPLES, seed=seed, confidence=1 - LEVEL)
        for name, key in names.items():
            interval = result["ci"][key]
            found[name] = Difference(
                result["metrics_a"][key],
                result["metrics_b"][key],
                result["deltas"][key],
                interval["lower"],
                interval["upper"],
            )
    return found


def _evaluated(data: ScoringData, classes: int, limit: int | None, ious: Sequence[float]) -> Any:  # noqa: ANN401
    evaluation = hotcoco_evaluation(data, classes)
    evaluation.params.iouThrs = np.asarray(ious)
    evaluation.params.maxDets = [limit or max(1, len(data.scores))]
    # Sizes would take three times as long.
    evaluation.params.areaRng, evaluation.params.areaRngLbl = [[0.0, 1e10]], ["all"]
    evaluation.evaluate()
    return evaluation


def count_differences(
    first: Int64[np.ndarray, "images columns"],
    second: Int64[np.ndarray, "images columns"],
    *,
    seed: int = 0,
) -> list[Difference]:
    """Compare the sums of counts over images; hotcoco has no bootstrap of error types.

    Args:
        first: Counts in each image, of the baseline.
        second: Those of the other detector in the same images.
        seed: The seed of the bootstrap.

    Examples:
        >>> counts = np.array([[3], [1], [0], [2]])
        >>> count_differences(counts, counts + 1)[0]
        Difference(first=6.0, second=10.0, difference=4.0, low=4.0, high=4.0)
    """
    images = len(first)
    random = np.random.default_rng(seed)
    drawn = random.multinomial(images, np.full(images, 1 / max(1, images)), size=SAMPLES)
    samples: Float64[np.ndarray, "samples columns"] = drawn @ (second - first).astype(np.float64)
    low, high = np.quantile(samples, (LEVEL / 2, 1 - LEVEL / 2), axis=0)
    return [
        Difference(*map(float, (a, b, b - a, lower, upper)))
        for a, b, lower, upper in zip(first.sum(0), second.sum(0), low, high, strict=True)
    ]
