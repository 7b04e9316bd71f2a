"""What scoring found: the numbers of tables, per class and per threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from alphaiou.metrics.coco import SIZES, CocoTables
from alphaiou.metrics.iou_histogram import found_shares
from alphaiou.metrics.rules import RuleName
from alphaiou.metrics.scoring_data import ScoringData
from alphaiou.metrics.voc import RECALLS, VocTables

_STRICT = (75, 80, 85, 90, 95)


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of some detections, as fractions of one.

    A number that nothing defines (a class without targets, no small targets, sizes and average
    recall by VOC's rules) is NaN, and means leave it out.

    Attributes:
        rule: The rule they were scored by.
        classes: The name of each label.
        iou_thresholds: The IoUs from which a detection found a target.
        class_ap: Average precision of each class at each threshold.
        precision: Best precision of each class at recall .00, .01, ... 1.00 or beyond.
        size_ap: Mean average precision of small, medium and large targets.
        ar: Average recall, by the limit of detections of a class in an image.
        size_ar: Average recall of small, medium and large targets under the highest limit.
        recall: Recall under the highest limit by the threshold in percent; average recall is the
            mean of these.
        found: The share of the targets that sure detections find with at least an IoU, by the IoU
            in percent: 50, 55, ... 90.
        num_images: Images.
        num_targets: Targets that count, so none that is ignored.
        num_detections: Detections.
    """

    rule: RuleName
    classes: tuple[str, ...]
    iou_thresholds: tuple[float, ...]
    class_ap: Float64[np.ndarray, "thresholds classes"]
    precision: Float64[np.ndarray, "thresholds 101 classes"]
    size_ap: dict[str, float]
    ar: dict[int, float]
    size_ar: dict[str, float]
    recall: dict[int, float]
    found: dict[int, float]
    num_images: int
    num_targets: int
    num_detections: int

    @property
    def ap(self) -> dict[int, float]:
        """Mean average precision by the threshold in percent: 50, 55, ... 95."""
        rows = zip(self.iou_thresholds, self.class_ap, strict=True)
        return {round(100 * threshold): defined_mean(row) for threshold, row in rows}

    @property
    def map(self) -> float:
        """Mean average precision over all thresholds."""
        return defined_mean(self.class_ap)

    @property
    def map75_95(self) -> float:
        """The mean of AP75, AP80, AP85, AP90 and AP95."""
        ap = self.ap
        return defined_mean(np.array([ap[t] for t in _STRICT])) if {*_STRICT} <= {*ap} else np.nan

    @property
    def per_class(self) -> dict[str, float]:
        """Average precision of each class over all thresholds."""
        columns = zip(self.classes, self.class_ap.T, strict=True)
        return {name: defined_mean(column) for name, column in columns}

    def precision_recall(
        self, iou: float = 0.5, label: int | None = None
    ) -> tuple[Float64[np.ndarray, " 101"], Float64[np.ndarray, " 101"]]:
        """Recalls, and the best precision at each or beyond.

        Args:
            iou: One of ``iou_thresholds``.
            label: A class; None is the mean over the classes that have targets.

        Raises:
            ValueError: The threshold was not scored, or there is no such class.
        """
        near = np.abs(np.array(self.iou_thresholds) - iou)
        if near.min() > 1e-6:
            raise ValueError(f"iou={iou} was not scored; there are {self.iou_thresholds}")
        curves = self.precision[int(near.argmin())]
        if label is None:
            return RECALLS.copy(), np.array([defined_mean(row) for row in curves])
        if not 0 <= label < len(self.classes):
            raise ValueError(f"label={label} must be 0 to {len(self.classes) - 1}")
        return RECALLS.copy(), curves[:, label].copy()

    def as_dict(self) -> dict[str, float]:
        """Every number by name: ``ap50``, ..., ``map75_95``, sizes, recall, objects found."""
        return (
            {f"ap{percent}": value for percent, value in self.ap.items()}
            | {"map": self.map, "map75_95": self.map75_95}
            | {f"map_{size}": value for size, value in self.size_ap.items()}
            | {f"ar{limit}": value for limit, value in self.ar.items()}
            | {f"ar_{size}": value for size, value in self.size_ar.items()}
            | {f"recall{percent}": value for percent, value in self.recall.items()}
            | {f"found{percent}": value for percent, value in self.found.items()}
        )


def scores_of_coco(
    tables: CocoTables,
    data: ScoringData,
    rule: RuleName,
    classes: tuple[str, ...],
    iou_thresholds: Sequence[float],
) -> Scores:
    """The numbers that COCO's tables are averaged to."""
    precision, recall = (np.where(t < 0, np.nan, t) for t in (tables.precision, tables.recall))
    whole = precision[:, :, :, 0, -1]
    sizes = range(1, len(SIZES))
    return Scores(
        rule=rule,
        classes=classes,
        iou_thresholds=tuple(iou_thresholds),
        class_ap=whole.mean(axis=1),
        precision=whole,
        size_ap={SIZES[i]: defined_mean(precision[:, :, :, i, -1]) for i in sizes},
        ar={limit: defined_mean(recall[:, :, 0, i]) for i, limit in enumerate(tables.limits)},
        size_ar={SIZES[i]: defined_mean(recall[:, :, i, -1]) for i in sizes},
        recall={
            round(100 * threshold): defined_mean(row)
            for threshold, row in zip(iou_thresholds, recall[:, :, 0, -1], strict=True)
        },
        found=found_shares(data),
        **_counts(data),
    )


def scores_of_voc(
    tables: VocTables,
    data: ScoringData,
    rule: RuleName,
    classes: tuple[str, ...],
    iou_thresholds: Sequence[float],
) -> Scores:
    """VOC's numbers; it knows no sizes and no average recall."""
    return Scores(
        rule=rule,
        classes=classes,
        iou_thresholds=tuple(iou_thresholds),
        class_ap=tables.ap,
        precision=tables.precision,
        size_ap={},
        ar={},
        size_ar={},
        recall={},
        found=found_shares(data),
        **_counts(data),
    )


def defined_mean(values: np.ndarray) -> float:
    """The mean of those that are not NaN; NaN if none is."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _counts(data: ScoringData) -> dict[str, int]:
    return {
        "num_images": len(data.image_ids),
        "num_targets": int((~(data.crowd | data.difficult)).sum()),
        "num_detections": len(data.scores),
    }
