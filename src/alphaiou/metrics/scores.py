"""Scores of detections: collected image by image, merged across processes, computed at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from alphaiou.metrics.coco import Evaluator, coco_tables
from alphaiou.metrics.inputs import as_scoring_data
from alphaiou.metrics.result import Scores, scores_of_coco, scores_of_voc
from alphaiou.metrics.rules import IOU_THRESHOLDS, RuleName, find_rule
from alphaiou.metrics.scoring_data import ScoringData
from alphaiou.metrics.voc import voc_tables

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def score(
    data: ScoringData,
    classes: Sequence[str],
    *,
    rule: RuleName = "coco",
    max_detections: int | None = None,
    iou_thresholds: Sequence[float] = IOU_THRESHOLDS,
    evaluator: Evaluator = "hotcoco",
) -> Scores:
    """Score detections that are at hand as arrays.

    Args:
        data: The detections and the targets.
        classes: The name of each label.
        rule: ``coco``, ``paper``, ``voc`` or ``voc07``; see ``alphaiou.metrics.RULES``.
        max_detections: How many detections of a class count in an image, best first; by default
            what the rule says.
        iou_thresholds: The IoUs from which a detection finds a target.
        evaluator: Who computes COCO's tables; pycocotools is slow, and says the same.
    """
    chosen = find_rule(rule)
    data = chosen.ground_truth(data).in_order()
    limit = max_detections or chosen.max_detections
    if chosen.precision_at == "101 recalls":
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
    voc = voc_tables(
        data,
        len(classes),
        iou_thresholds=iou_thresholds,
        max_detections=limit,
        eleven_points=chosen.precision_at == "11 recalls",
    )
    return scores_of_voc(voc, data, rule, tuple(classes), iou_thresholds)


class DetectionScores:
    """Collect predictions and targets batch by batch, then compute their scores.

    Memory grows with the boxes, not with the images or classes. Tensors may be on any device; a
    batch is copied to the host at once.

    Args:
        num_classes: How many classes there are; or give their names.
        classes: The name of each label, 0 to ``len(classes) - 1``.
        rule: ``coco``: COCO's rules, difficult boxes ignored. ``paper``: COCO's rules, difficult
            boxes dropped and 300 detections, as in the Alpha-IoU paper. ``voc``, ``voc07``: the
            rules of PASCAL VOC since 2010 and in 2007.
        max_detections: How many detections of a class count in an image, best first; by default
            what the rule says: 100 for COCO, 300 for the paper, no limit for VOC.
        iou_thresholds: The IoUs from which a detection finds a target.

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
    ) -> None:
        self.classes = _class_names(num_classes, classes)
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
        """The number of images so far."""
        return len(self._seen)

    def update(
        self,
        predictions: Sequence[Mapping[str, Any]],
        targets: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add a batch of images.

        Args:
            predictions: For each image ``boxes`` (n, 4) as absolute x1 y1 x2 y2, ``scores`` (n) and
                ``labels`` (n), as tensors or arrays.
            targets: For each image ``boxes`` and ``labels``, and where there are any ``iscrowd``,
                ``difficult``, ``area`` (width times height by default) and ``image_id``.

        Raises:
            ValueError: Something has the wrong shape, is not finite, or is out of range, or an
                image comes twice; the message names the image and the value. Nothing was added.
        """
        part, own_ids = as_scoring_data(predictions, targets, len(self.classes), len(self))
        self._add(part, own_ids)

    def merge(self, other: DetectionScores) -> None:
        """Add the images of another collector, one of another process for instance.

        Raises:
            ValueError: The two differ in their settings, or have an image in common.
        """
        for name in ("classes", "rule", "max_detections", "iou_thresholds"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                raise ValueError(f"cannot merge: {name} is {mine!r} here and {theirs!r} there")
        if len(other):
            self._add(other.data(), bool(other._own_ids))

    def gather(self, process_group: ProcessGroup | None = None) -> DetectionScores:
        """The merged scores of all processes of a group, the same in each.

        Every process must call it, with images of its own: a sampler that repeats images to give
        each process as many (``DistributedSampler``) has them counted twice, which is refused.
        """
        from torch import distributed

        states: list[Any] = [None] * distributed.get_world_size(process_group)
        distributed.all_gather_object(states, self.state(), group=process_group)
        merged, *others = (DetectionScores.from_state(state) for state in states)
        for other in others:
            merged.merge(other)
        return merged

    def state(self) -> dict[str, np.ndarray]:
        """Everything as arrays, for ``numpy.savez`` or another process."""
        settings = {
            "classes": np.array(self.classes, dtype=np.str_),
            "rule": np.array(self.rule),
            "max_detections": np.array(self.max_detections or 0),
            "iou_thresholds": np.array(self.iou_thresholds),
            "own_ids": np.array(bool(self._own_ids)),
        }
        return settings | {f"data.{name}": array for name, array in vars(self.data()).items()}

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> DetectionScores:
        """The collector that ``state`` was taken of."""
        made = cls(
            classes=state["classes"].tolist(),
            rule=state["rule"].item(),
            max_detections=int(state["max_detections"]) or None,
            iou_thresholds=state["iou_thresholds"].tolist(),
        )
        prefix = "data."
        arrays = {n.removeprefix(prefix): state[n] for n in state if n.startswith(prefix)}
        data = ScoringData(**arrays)
        if len(data.image_ids):
            made._add(data, bool(state["own_ids"]))
        return made

    def data(self) -> ScoringData:
        """All that was added, as arrays."""
        self._parts = [ScoringData.concatenate(self._parts)]
        return self._parts[0]

    def compute(self, *, evaluator: Evaluator = "hotcoco") -> Scores:
        """The scores of everything added so far."""
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
            raise ValueError("image_id: some targets have one and some do not; give all or none")
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
