"""The error analysis of a detector, and of two on the same images, as plain numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from alphaiou._shapes import Int64
from alphaiou.metrics.bootstrap import Difference, ap_differences, count_differences
from alphaiou.metrics.calibration import Calibration, calibration_of
from alphaiou.metrics.coco import SIZES
from alphaiou.metrics.errors import (
    ERROR_IOUS,
    ERROR_TYPES,
    LOCALISATION,
    RIGHT,
    DetectionErrors,
    counted_data,
    find_errors,
    tide_summary,
)
from alphaiou.metrics.inputs import ScoringData
from alphaiou.metrics.iou_histogram import SURE
from alphaiou.metrics.localisation import PARTS, localisation_parts
from alphaiou.metrics.rules import RuleName, find_rule

#: What is counted in each image: true positives, then errors by type.
COUNTED = ("right", *ERROR_TYPES)


@dataclass(frozen=True)
class ErrorGroup:
    """The errors of a class or of a size.

    Attributes:
        counts: The number of errors by type.
        delta_ap: What fixing each type would add: to the AP of the class, or, for a size, to the
            mean AP by fixing the errors of this size; NaN for a class without objects.
        ap: The AP of the class; None for a size.
    """

    counts: dict[str, int]
    delta_ap: dict[str, float]
    ap: float | None = None


@dataclass(frozen=True)
class BoxParts:
    """The mean error of some boxes, 1 − IoU, and what the parts of a box contribute to it.

    Attributes:
        detections: The number of boxes.
        error: The mean of 1 − IoU; NaN without boxes.
        parts: The contributions of ``centre``, ``scale`` and ``aspect``, which add up to it.
    """

    detections: int
    error: float
    parts: dict[str, float]


@dataclass(frozen=True)
class ErrorTable:
    """The errors at one IoU.

    Attributes:
        iou: The minimum IoU of a match.
        ap: Average precision.
        counts: The number of errors by type.
        delta_ap: What fixing all errors of a type would add to AP.
        classes: The errors by class.
        sizes: The errors by size: small, medium, large.
        wrong_place: The boxes of the localisation errors.
        right: The boxes of the true positives.
    """

    iou: float
    ap: float
    counts: dict[str, int]
    delta_ap: dict[str, float]
    classes: dict[str, ErrorGroup]
    sizes: dict[str, ErrorGroup]
    wrong_place: BoxParts
    right: BoxParts


@dataclass(frozen=True)
class ErrorAnalysis:
    """The error analysis of a detector.

    Attributes:
        images: The number of images.
        objects: The number of objects that count.
        detections: The number of detections that count at the first IoU.
        tables: The errors at each IoU.
        calibration: How scores relate to the IoU and to being right.
    """

    images: int
    objects: int
    detections: int
    tables: list[ErrorTable]
    calibration: Calibration

    def as_dict(self) -> dict[str, Any]:
        """As JSON: undefined numbers are null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def analyse_errors(
    data: ScoringData,
    classes: Sequence[str],
    *,
    rule: RuleName = "coco",
    max_detections: int | None = None,
) -> ErrorAnalysis:
    """Analyse the errors of a detector at IoU .5 and .75.

    Objects and limits are those of the rule; detections match objects as COCO defines it, also by
    the rules of VOC and YOLOv5.

    Args:
        data: Detections and objects.
        classes: The name of each label.
        rule: The evaluation rule.
        max_detections: The maximum number of detections per class and image; by default that of
            the rule.

    Examples:
        >>> from alphaiou.metrics import DetectionScores
        >>> scores = DetectionScores(classes=("cat", "dog"))
        >>> boxes = np.array([[0, 0, 10, 10.0], [20, 20, 30, 30]])
        >>> found = {"boxes": boxes, "scores": np.array([0.9, 0.8]), "labels": np.array([0, 1])}
        >>> scores.update([found], [{"boxes": boxes, "labels": np.array([0, 0])}])
        >>> analysis = analyse_errors(scores.data(), scores.classes)
        >>> analysis.tables[0].counts["classification"], analysis.tables[0].counts["missed"]
        (1, 0)
        >>> round(analysis.tables[0].delta_ap["classification"], 2)
        0.5
    """
    counted = {iou: counted_data(data, rule, iou, max_detections) for iou in ERROR_IOUS}
    first = counted[ERROR_IOUS[0]]
    return ErrorAnalysis(
        images=len(first.image_ids),
        objects=len(first.target_labels),
        detections=len(first.scores),
        tables=[_table(one, classes, iou) for iou, one in counted.items()],
        calibration=calibration_of(counted),
    )


def _table(data: ScoringData, classes: Sequence[str], iou: float) -> ErrorTable:
    errors, number = find_errors(data, iou), len(classes)
    ap = errors.class_ap(number)
    fixed = np.stack([errors.class_ap(number, kind) for kind in range(len(ERROR_TYPES))])
    groups = {}
    for label, counts in enumerate(errors.class_counts(number)):
        if counts.any() or not math.isnan(ap[label]):
            delta = dict(zip(ERROR_TYPES, (fixed[:, label] - ap[label]).tolist(), strict=True))
            groups[classes[label]] = ErrorGroup(_named(counts), delta, float(ap[label]))
    sizes = {}
    for size, counts in enumerate(errors.size_counts()):
        gains = [_mean(errors.class_ap(number, k, size) - ap) for k in range(len(ERROR_TYPES))]
        delta = dict(zip(ERROR_TYPES, gains, strict=True))
        sizes[SIZES[size + 1]] = ErrorGroup(_named(counts), delta)
    return ErrorTable(
        iou=iou,
        **tide_summary(data, number, iou),
        classes=groups,
        sizes=sizes,
        wrong_place=_parts(errors, LOCALISATION),
        right=_parts(errors, RIGHT),
    )


def _named(counts: Int64[np.ndarray, " types"]) -> dict[str, int]:
    return dict(zip(ERROR_TYPES, counts.tolist(), strict=True))


def _mean(values: np.ndarray) -> float:
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else math.nan


def _parts(errors: DetectionErrors, kind: int) -> BoxParts:
    rows = np.flatnonzero(errors.types == kind)
    if not len(rows):
        return BoxParts(0, math.nan, dict.fromkeys(PARTS, math.nan))
    targets = errors.data.target_boxes[errors.targets[rows]]
    shares = localisation_parts(errors.data.boxes[rows], targets).mean(axis=0).tolist()
    return BoxParts(len(rows), float(sum(shares)), dict(zip(PARTS, shares, strict=True)))


# Two detectors on the same images


@dataclass(frozen=True)
class ErrorComparison:
    """Two detectors on the same images, with intervals from a paired bootstrap over images.

    Attributes:
        ap: The differences in ``ap50``, ``ap75``, ``map`` and ``map75_95``.
        counts: By IoU in percent, the differences in true positives (``right``) and in errors of
            each type.
        images: The images that differ most among confident detections, and the true positives and
            other detections of each detector in them.
    """

    ap: dict[str, Difference]
    counts: dict[int, dict[str, Difference]]
    images: list[ImageDifference]

    def as_dict(self) -> dict[str, Any]:
        """As JSON: undefined numbers are null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


@dataclass(frozen=True)
class ImageDifference:
    """An image in which two detectors differ.

    Attributes:
        image_id: The number of the image.
        objects: The number of objects.
        right: The true positives of the first and of the second detector at IoU .5.
        wrong: Their other detections.
    """

    image_id: int
    objects: int
    right: tuple[int, int]
    wrong: tuple[int, int]


#: The number of images listed.
MOST_IMAGES = 10


def compare_errors(
    first: ScoringData,
    second: ScoringData,
    classes: Sequence[str],
    *,
    rule: RuleName = "coco",
    max_detections: int | None = None,
) -> ErrorComparison:
    """Compare two detectors on the same images; arguments as :func:`analyse_errors`.

    Raises:
        ValueError: The two have different images or objects.
    """
    chosen = find_rule(rule)
    limit = max_detections or chosen.max_detections
    both = [chosen.ground_truth(data).in_order() for data in (first, second)]
    same = all(
        np.array_equal(getattr(both[0], name), getattr(both[1], name))
        for name in ("image_ids", "target_images", "target_labels", "target_boxes")
    )
    if not same:
        raise ValueError("two detectors can be compared on the same images and objects only")
    counts = {
        round(100 * iou): dict(
            zip(
                COUNTED,
                count_differences(
                    *(_image_counts(data, rule, iou, max_detections) for data in (first, second))
                ),
                strict=True,
            )
        )
        for iou in ERROR_IOUS
    }
    differences = ap_differences(both[0], both[1], len(classes), limit)
    return ErrorComparison(differences, counts, _images(first, second, rule))


def _image_counts(
    data: ScoringData, rule: RuleName, iou: float, limit: int | None
) -> Int64[np.ndarray, "images columns"]:
    """The true positives and the errors of each type in each image."""
    errors = find_errors(counted_data(data, rule, iou, limit), iou)
    images = errors.data.images[errors.types == RIGHT]
    right = np.bincount(images, minlength=len(errors.data.image_ids))
    return np.column_stack([right, errors.image_counts()])


def _images(first: ScoringData, second: ScoringData, rule: RuleName) -> list[ImageDifference]:
    """The images in which the confident detections of two detectors differ most."""
    tallies = []
    for data in (first, second):
        counts = _image_counts(data.keep_detections(data.scores >= SURE), rule, 0.5, None)
        tallies.append((counts[:, 0], counts[:, 1:-1].sum(axis=1)))  # all but missed objects
    (right, wrong), (other_right, other_wrong) = tallies
    apart = np.abs(other_right - right) + np.abs(other_wrong - wrong)
    data = counted_data(first, rule, 0.5)
    objects = np.bincount(data.target_images, minlength=len(data.image_ids))
    order = np.argsort(-apart, kind="stable")[:MOST_IMAGES]
    return [
        ImageDifference(
            int(data.image_ids[row]),
            int(objects[row]),
            (int(right[row]), int(other_right[row])),
            (int(wrong[row]), int(other_wrong[row])),
        )
        for row in order
        if apart[row]
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Values as JSON has them: keys are text, and undefined numbers are null."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value
