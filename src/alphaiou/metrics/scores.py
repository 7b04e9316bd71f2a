"""Detection scores: collected batch by batch, merged across processes, computed at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.boxes import check_choice
from alphaiou.metrics.coco import SIZES, CocoTables, Evaluator, coco_tables
from alphaiou.metrics.columns import named_scores
from alphaiou.metrics.inputs import COLUMNS_OF, ScoredFormat, ScoringData, as_scoring_data
from alphaiou.metrics.iou_histogram import found_shares
from alphaiou.metrics.rules import IOU_THRESHOLDS, RuleName, find_rule
from alphaiou.metrics.voc import RECALLS, VocTables, voc_tables
from alphaiou.metrics.yolov5 import yolov5_tables

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


_STRICT = (75, 80, 85, 90, 95)


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of some detections, in [0, 1].

    Undefined scores are NaN and are left out of means: classes and sizes without targets, and
    sizes and average recall by the rules of VOC and YOLOv5.

    Attributes:
        rule: The evaluation rule.
        classes: The name of each label.
        iou_thresholds: The minimum IoUs of a match.
        class_ap: Average precision of each class at each threshold.
        precision: Interpolated precision of each class at recall .00, .01, ... 1.00.
        size_ap: Mean average precision of small, medium and large targets.
        ar: Average recall, by the limit of detections per class and image.
        size_ar: Average recall of small, medium and large targets at the highest limit.
        recall: Recall at the highest limit, by the threshold in percent; average recall is their
            mean.
        found: The share of targets that confident detections match, by the IoU in percent: 50,
            55, ... 90.
        num_images: The number of images.
        num_targets: The number of targets that are not ignored.
        num_detections: The number of detections.
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
        """Return recalls and the interpolated precision at each.

        Args:
            iou: One of ``iou_thresholds``.
            label: A class; None averages over the classes that have targets.

        Raises:
            ValueError: If the threshold was not scored or the class does not exist.
        """
        near = np.abs(np.array(self.iou_thresholds) - iou)
        if near.min() > 1e-6:
            raise ValueError(f"iou={iou} was not scored; choose from {self.iou_thresholds}")
        curves = self.precision[int(near.argmin())]
        if label is None:
            return RECALLS.copy(), np.array([defined_mean(row) for row in curves])
        if not 0 <= label < len(self.classes):
            raise ValueError(f"label={label} must be 0 to {len(self.classes) - 1}")
        return RECALLS.copy(), curves[:, label].copy()

    def as_dict(self) -> dict[str, float]:
        """Return all scores by name: ``ap50``, ..., ``map75_95``, sizes, recall, objects found."""
        return named_scores(self)


class DetectionScores:
    """Collect predictions and targets batch by batch, then compute their scores.

    Memory grows with the number of boxes, not of images or classes. Tensors may be on any device;
    a batch is copied to the host in one transfer.

    Args:
        num_classes: The number of classes; alternatively give ``classes``.
        classes: The name of each label, 0 to ``len(classes) - 1``.
        rule: ``coco``: COCO's rules, difficult boxes ignored. ``paper``: COCO's rules, difficult
            boxes dropped and 300 detections, as in the Alpha-IoU paper. ``voc``, ``voc07``: the
            rules of PASCAL VOC since 2010 and in 2007. ``yolov5``: those of YOLOv5's test program.
        max_detections: The maximum number of detections per class and image; by default that of the
            rule: 100 for COCO, 300 for the paper and YOLOv5, no limit for VOC.
        iou_thresholds: The minimum IoUs of a match.
        box_format: ``xyxy``; ``cxcywhr`` for oriented boxes, whose IoU is exact. DOTA's score is
            ``ap[50]`` of the rule ``voc07``.

    Examples:
        >>> scores = DetectionScores(classes=("cat", "dog"))
        >>> boxes = torch.tensor([[10.0, 10.0, 50.0, 50.0]])
        >>> target = {"boxes": boxes, "labels": torch.tensor([1])}
        >>> prediction = target | {"scores": torch.tensor([0.9])}
        >>> scores.update([prediction], [target])
        >>> result = scores.compute()
        >>> print(f"{result.map:.3f} {result.ap[95]:.3f} {result.per_class['cat']}")
        1.000 1.000 nan
    """

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        classes: Sequence[str] | None = None,
        rule: RuleName = "coco",
        max_detections: int | None = None,
        iou_thresholds: Sequence[float] = IOU_THRESHOLDS,
        box_format: ScoredFormat = "xyxy",
    ) -> None:
        self.classes = _class_names(num_classes, classes)
        check_choice("box_format", box_format, tuple(COLUMNS_OF))
        self.box_format: ScoredFormat = box_format
        self.rule: RuleName = rule
        find_rule(rule)
        if max_detections is not None and max_detections < 1:
            raise ValueError(f"max_detections={max_detections} must be at least 1")
        self.max_detections = max_detections
        self.iou_thresholds = _thresholds(iou_thresholds)
        self._parts: list[ScoringData] = []
        self._seen: set[int] = set()
        self._own_ids: bool | None = None  # whether targets have image_id; None before the first

    def __len__(self) -> int:
        """Return the number of images added so far."""
        return len(self._seen)

    def update(
        self,
        predictions: Sequence[Mapping[str, Any]],
        targets: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add a batch of images.

        Args:
            predictions: ``boxes`` (n, 4) as absolute x1 y1 x2 y2, or (n, 5) as ``box_format`` says,
                ``scores`` (n) and ``labels`` (n) of each image, as tensors or arrays.
            targets: ``boxes`` and ``labels`` of each image, and optionally ``iscrowd``,
                ``difficult``, ``area`` (width times height by default) and ``image_id``.

        Raises:
            ValueError: If a value has the wrong shape, is not finite or is out of range, or if an
                image is repeated. The message names the image and the value; nothing is added.
        """
        part, own_ids = as_scoring_data(
            predictions, targets, len(self.classes), len(self), self.box_format
        )
        self._add(part, own_ids)

    def merge(self, other: DetectionScores) -> None:
        """Add the images of another collector, for example of another process.

        Raises:
            ValueError: If the settings differ, or both contain the same image.
        """
        for name in ("classes", "rule", "max_detections", "iou_thresholds", "box_format"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"cannot merge: {name} is {mine!r} here and {theirs!r} there")
        if len(other):
            self._add(other.data(), bool(other._own_ids))

    def gather(self, process_group: ProcessGroup | None = None) -> DetectionScores:
        """Merge the scores of all processes of a group; the result is the same in each.

        All processes must call it, each with different images. Repeated images, as from
        ``DistributedSampler``, raise an error.
        """
        from torch import distributed

        states: list[Any] = [None] * distributed.get_world_size(process_group)
        distributed.all_gather_object(states, self.state(), group=process_group)
        merged, *others = (DetectionScores.from_state(state) for state in states)
        for other in others:
            merged.merge(other)
        return merged

    def state(self) -> dict[str, np.ndarray]:
        """Return the state as arrays, for ``numpy.savez`` or another process."""
        settings = {
            "classes": np.array(self.classes, dtype=np.str_),
            "rule": np.array(self.rule),
            "max_detections": np.array(self.max_detections or 0),
            "iou_thresholds": np.array(self.iou_thresholds),
            "own_ids": np.array(bool(self._own_ids)),
            "box_format": np.array(self.box_format),
        }
        return settings | {f"data.{name}": array for name, array in vars(self.data()).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> DetectionScores:
        """Restore a collector from its ``state``."""
        made = cls(
            classes=state["classes"].tolist(),
            rule=state["rule"].item(),
            max_detections=int(state["max_detections"]) or None,
            iou_thresholds=state["iou_thresholds"].tolist(),
            box_format=state["box_format"].item(),
        )
        prefix = "data."
        arrays = {n.removeprefix(prefix): state[n] for n in state if n.startswith(prefix)}
        data = ScoringData(**arrays)
        if len(data.image_ids):
            made._add(data, bool(state["own_ids"]))
        return made

    def data(self) -> ScoringData:
        """Return all images added so far as arrays."""
        self._parts = [ScoringData.concatenate(self._parts)]
        return self._parts[0]

    def compute(self, *, evaluator: Evaluator = "hotcoco") -> Scores:
        """Compute the scores of all images added so far."""
        return score(
            self.data(),
            self.classes,
            rule=self.rule,
            max_detections=self.max_detections,
            iou_thresholds=self.iou_thresholds,
            evaluator=evaluator,
        )

    def _add(self, part: ScoringData, own_ids: bool) -> None:
        if self._own_ids is not None and own_ids != self._own_ids:
            raise ValueError("image_id: some targets have one and others do not; give all or none")
        if not own_ids:
            ids = np.arange(len(self), len(self) + len(part.image_ids))
            part = ScoringData(**vars(part) | {"image_ids": ids})
        numbers = part.image_ids.tolist()
        repeated = sorted(self._seen.intersection(numbers))
        if repeated or len(set(numbers)) < len(numbers):
            repeated = repeated or sorted({n for n in numbers if numbers.count(n) > 1})
            raise ValueError(
                f"image_id {repeated[0]} was given before; every image counts once. A "
                "DistributedSampler repeats images: give each process images of its own"
            )
        self._own_ids = own_ids
        self._seen.update(numbers)
        self._parts.append(part)


def _class_names(num_classes: int | None, classes: Sequence[str] | None) -> tuple[str, ...]:
    if (num_classes is None) == (classes is None):
        raise ValueError("give num_classes or classes, one of the two")
    names = tuple(map(str, range(num_classes or 0))) if classes is None else tuple(classes)
    if not names:
        raise ValueError("there must be at least one class")
    return names


def _thresholds(values: Sequence[float]) -> tuple[float, ...]:
    thresholds = tuple(float(value) for value in values)
    rising = all(low < high for low, high in pairwise(thresholds))
    if not thresholds or not rising or not 0 < thresholds[0] <= thresholds[-1] <= 1:
        raise ValueError(f"iou_thresholds={thresholds} must rise within (0, 1]")
    return thresholds


def score(
    data: ScoringData,
    classes: Sequence[str],
    *,
    rule: RuleName = "coco",
    max_detections: int | None = None,
    iou_thresholds: Sequence[float] = IOU_THRESHOLDS,
    evaluator: Evaluator = "hotcoco",
) -> Scores:
    """Score detections given as arrays.

    Args:
        data: The detections and the targets.
        classes: The name of each label.
        rule: ``coco``, ``paper``, ``voc``, ``voc07`` or ``yolov5``; see ``alphaiou.metrics.RULES``.
        max_detections: The maximum number of detections per class and image; by default that of the
            rule.
        iou_thresholds: The minimum IoUs of a match.
        evaluator: The library that computes COCO's tables; pycocotools is slower, with the same
            result.
    """
    chosen = find_rule(rule)
    data = chosen.ground_truth(data).in_order()
    limit = max_detections or chosen.max_detections
    if chosen.tables == "coco":
        if limit is None:
            raise ValueError(f"rule={rule!r} needs a limit of detections: set max_detections")
        coco = coco_tables(
            data,
            len(classes),
            iou_thresholds=iou_thresholds,
            max_detections=limit,
            evaluator=evaluator,
        )
        return scores_of_coco(coco, data, rule, tuple(classes), iou_thresholds)
    by_voc = partial(voc_tables, eleven_points=chosen.tables == "voc07")
    compute = yolov5_tables if chosen.tables == "yolov5" else by_voc
    voc = compute(data, len(classes), iou_thresholds=iou_thresholds, max_detections=limit)
    return scores_of_voc(voc, data, rule, tuple(classes), iou_thresholds)


def scores_of_coco(
    tables: CocoTables,
    data: ScoringData,
    rule: RuleName,
    classes: tuple[str, ...],
    iou_thresholds: Sequence[float],
) -> Scores:
    """Compute the scores by COCO's rules."""
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
    """Compute the scores by the rules of VOC or YOLOv5, without sizes and average recall."""
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
    """Return the mean of the values that are not NaN, or NaN if all are."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")


def _counts(data: ScoringData) -> dict[str, int]:
    return {
        "num_images": len(data.image_ids),
        "num_targets": int((~(data.crowd | data.difficult)).sum()),
        "num_detections": len(data.scores),
    }
