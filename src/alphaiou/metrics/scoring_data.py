"""Detections and the boxes that they are scored against, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float64, Int64


@dataclass(frozen=True, eq=False)
class ScoringData:
    """Some images, their detections and their true boxes ("targets").

    Boxes are ``x y width height``, the form of COCO's files: what was read from such a file is
    scored to the last bit as COCO's own evaluator scores it.

    Attributes:
        image_ids: The number of each image; scores that tie are taken in its order.
        target_images: The image of each target, as a position in ``image_ids``.
        target_boxes: The targets.
        target_labels: Their labels.
        target_areas: The areas that decide whether they are small, medium or large.
        crowd: Whether a target is a crowd (COCO).
        difficult: Whether a target is difficult (VOC).
        images: The image of each detection, as a position in ``image_ids``.
        boxes: The detections.
        labels: Their labels.
        scores: Their scores.
    """

    image_ids: Int64[np.ndarray, " images"]
    target_images: Int64[np.ndarray, " targets"]
    target_boxes: Float64[np.ndarray, "targets 4"]
    target_labels: Int64[np.ndarray, " targets"]
    target_areas: Float64[np.ndarray, " targets"]
    crowd: Bool[np.ndarray, " targets"]
    difficult: Bool[np.ndarray, " targets"]
    images: Int64[np.ndarray, " detections"]
    boxes: Float64[np.ndarray, "detections 4"]
    labels: Int64[np.ndarray, " detections"]
    scores: Float64[np.ndarray, " detections"]

    @classmethod
    def empty(cls) -> ScoringData:
        """No images."""
        integers, floats, flags = np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_)
        boxes = np.empty((0, 4))
        return cls(
            image_ids=integers,
            target_images=integers,
            target_boxes=boxes,
            target_labels=integers,
            target_areas=floats,
            crowd=flags,
            difficult=flags,
            images=integers,
            boxes=boxes,
            labels=integers,
            scores=floats,
        )

    @classmethod
    def concatenate(cls, parts: Sequence[ScoringData]) -> ScoringData:
        """The images of all parts, one part after the other."""
        if not parts:
            return cls.empty()
        starts = np.cumsum([0, *(len(part.image_ids) for part in parts[:-1])])
        moved = [
            replace(part, target_images=part.target_images + start, images=part.images + start)
            for part, start in zip(parts, starts, strict=True)
        ]
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(p, name) for p in moved]) for name in names})

    def in_order(self) -> ScoringData:
        """The same by image number; within an image nothing changes places."""
        order = np.argsort(self.image_ids, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        moved = replace(
            self,
            image_ids=self.image_ids[order],
            target_images=place[self.target_images],
            images=place[self.images],
        )
        moved = moved.keep_targets(np.argsort(moved.target_images, kind="stable"))
        return moved.keep_detections(np.argsort(moved.images, kind="stable"))

    def keep_targets(self, rows: np.ndarray) -> ScoringData:
        """Some of the targets: a mask, or their rows."""
        names = ("images", "boxes", "labels", "areas")
        kept = {f"target_{name}": getattr(self, f"target_{name}")[rows] for name in names}
        return replace(self, **kept, crowd=self.crowd[rows], difficult=self.difficult[rows])

    def keep_detections(self, rows: np.ndarray) -> ScoringData:
        """Some of the detections: a mask, or their rows."""
        names = ("images", "boxes", "labels", "scores")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})
