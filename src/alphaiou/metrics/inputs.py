"""Predictions and targets of detectors, checked and converted to arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch

from alphaiou._shapes import Bool, Float64, Int64


@dataclass(frozen=True, eq=False)
class ScoringData:
    """The detections and ground truth ("targets") of some images.

    Boxes are ``x y width height`` as in COCO files, so that the scores of such a file are equal to
    those of COCO's own evaluator to the last bit. Oriented boxes are ``cxcywhr``, all of them.

    Attributes:
        image_ids: The number of each image; ties in score are broken by this order.
        target_images: The image of each target, as an index into ``image_ids``.
        target_boxes: The boxes of the targets.
        target_labels: The labels of the targets.
        target_areas: The areas that define small, medium and large targets.
        crowd: Whether a target is a crowd (COCO).
        difficult: Whether a target is difficult (VOC).
        images: The image of each detection, as an index into ``image_ids``.
        boxes: The boxes of the detections.
        labels: The labels of the detections.
        scores: The scores of the detections.
    """

    image_ids: Int64[np.ndarray, " images"]
    target_images: Int64[np.ndarray, " targets"]
    target_boxes: Float64[np.ndarray, "targets coordinates"]
    target_labels: Int64[np.ndarray, " targets"]
    target_areas: Float64[np.ndarray, " targets"]
    crowd: Bool[np.ndarray, " targets"]
    difficult: Bool[np.ndarray, " targets"]
    images: Int64[np.ndarray, " detections"]
    boxes: Float64[np.ndarray, "detections coordinates"]
    labels: Int64[np.ndarray, " detections"]
    scores: Float64[np.ndarray, " detections"]

    @property
    def is_oriented(self) -> bool:
        """Whether the boxes have an angle."""
        return bool(self.target_boxes.shape[1] == COLUMNS_OF["cxcywhr"])

    @classmethod
    def empty(cls) -> ScoringData:
        """Return data without images."""
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
        """Concatenate the images of all parts."""
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
        """Return the data sorted by image number; the order within an image is unchanged."""
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
        """Return the targets selected by a mask or by rows."""
        names = ("images", "boxes", "labels", "areas")
        kept = {f"target_{name}": getattr(self, f"target_{name}")[rows] for name in names}
        return replace(self, **kept, crowd=self.crowd[rows], difficult=self.difficult[rows])

    def keep_detections(self, rows: np.ndarray) -> ScoringData:
        """Return the detections selected by a mask or by rows."""
        names = ("images", "boxes", "labels", "scores")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


Entries = Sequence[Mapping[str, Any]]
#: How the boxes of a batch may be written: axis-aligned, or oriented.
ScoredFormat = Literal["xyxy", "cxcywhr"]
COLUMNS_OF: dict[ScoredFormat, int] = {"xyxy": 4, "cxcywhr": 5}


def as_scoring_data(
    predictions: Entries,
    targets: Entries,
    num_classes: int,
    first_image: int = 0,
    box_format: ScoredFormat = "xyxy",
) -> tuple[ScoringData, bool]:
    """Convert a batch to arrays; also return whether its targets have ``image_id``.

    Args:
        predictions: ``boxes``, ``scores`` and ``labels`` of each image.
        targets: ``boxes``, ``labels`` and optionally ``iscrowd``, ``difficult``, ``area`` and
            ``image_id`` of each image.
        num_classes: The number of classes.
        first_image: The number of the first image if the targets have no ``image_id``.
        box_format: ``xyxy``, or ``cxcywhr`` for oriented boxes.

    Raises:
        ValueError: If the batch cannot be scored; the message names the image and the reason.
    """
    if len(predictions) != len(targets):
        raise ValueError(f"{len(predictions)} predictions, but {len(targets)} targets; one each")
    predicted = _Batch("predictions", predictions, box_format)
    truth = _Batch("targets", targets, box_format)
    image_ids = _image_ids(targets)
    target_boxes = truth.boxes()
    areas = truth.optional("area")
    data = ScoringData(
        image_ids=np.arange(first_image, first_image + len(targets))
        if image_ids is None
        else image_ids,
        target_images=truth.images,
        target_boxes=target_boxes,
        target_labels=truth.labels(num_classes),
        target_areas=target_boxes[:, 2:4].prod(axis=1) if areas is None else areas,
        crowd=truth.flags("iscrowd"),
        difficult=truth.flags("difficult"),
        images=predicted.images,
        boxes=predicted.boxes(),
        labels=predicted.labels(num_classes),
        scores=predicted.numbers("scores"),
    )
    return data, image_ids is not None


class _Batch:
    """The predictions or targets of a batch, and the number of boxes of each image."""

    def __init__(self, name: str, entries: Entries, box_format: ScoredFormat) -> None:
        self.name, self.entries, self.box_format = name, entries, box_format
        width = (COLUMNS_OF[box_format],)
        columns = self._columns("boxes", width)
        self.counts = [len(column) for column in columns]
        self.images = np.repeat(np.arange(len(entries)), self.counts)
        self._boxes = _stacked(columns, width)

    def boxes(self) -> Float64[np.ndarray, "boxes coordinates"]:
        """Return the boxes as x y width height; oriented ones as they are."""
        corners = self._boxes.astype(np.float64)
        self._refuse("boxes", ~np.isfinite(corners), "is not finite", corners)
        if self.box_format == "cxcywhr":
            self._refuse("boxes", corners[:, 2:4] < 0, "must have no negative side", corners)
            return corners
        sizes = corners[:, 2:] - corners[:, :2]
        self._refuse("boxes", sizes < 0, "must be x1 y1 x2 y2 with x1 ≤ x2, y1 ≤ y2", corners)
        return np.concatenate([corners[:, :2], sizes], axis=1)

    def labels(self, num_classes: int) -> Int64[np.ndarray, " boxes"]:
        labels = self._stack("labels")
        if len(labels) and not np.issubdtype(labels.dtype, np.integer):
            raise ValueError(f"{self.name}: labels must be integers, not {labels.dtype}")
        allowed = f"must be 0 to {num_classes - 1}"
        self._refuse("labels", (labels < 0) | (labels >= num_classes), allowed, labels)
        return labels.astype(np.int64)

    def numbers(self, key: str) -> Float64[np.ndarray, " boxes"]:
        values = self._stack(key).astype(np.float64)
        self._refuse(key, ~np.isfinite(values), "is not finite", values)
        return values

    def optional(self, key: str) -> Float64[np.ndarray, " boxes"] | None:
        """Return an optional field, which all images have or none."""
        return self.numbers(key) if _all_or_none(self.name, self.entries, key) else None

    def flags(self, key: str) -> Bool[np.ndarray, " boxes"]:
        values = self.optional(key)
        return np.zeros(len(self.images), np.bool_) if values is None else values != 0

    def _stack(self, key: str) -> np.ndarray:
        columns = self._columns(key, ())
        for image, (column, count) in enumerate(zip(columns, self.counts, strict=True)):
            if len(column) != count:
                raise ValueError(
                    f"{self.name}[{image}]: {count} boxes, but {len(column)} values of {key!r}"
                )
        return _stacked(columns, ())

    def _columns(self, key: str, width: tuple[int, ...]) -> list[torch.Tensor]:
        return [_column(self.name, i, entry, key, width) for i, entry in enumerate(self.entries)]

    def _refuse(self, key: str, wrong: np.ndarray, why: str, values: np.ndarray) -> None:
        if wrong.any():
            row = int(np.nonzero(wrong)[0][0])
            image = int(self.images[row])
            place = row - sum(self.counts[:image])
            raise ValueError(f"{self.name}[{image}][{key!r}][{place}] {why}: {values[row]}")


def _column(
    name: str, image: int, entry: Mapping[str, Any], key: str, width: tuple[int, ...]
) -> torch.Tensor:
    """Return a field of one image with the expected shape; empty fields may have any shape."""
    if key not in entry:
        raise ValueError(f"{name}[{image}] has no {key!r}; it has {', '.join(entry) or 'nothing'}")
    tensor = _tensor(f"{name}[{image}][{key!r}]", entry[key])
    if tensor.numel() == 0:
        return tensor.reshape(0, *width)
    if tensor.shape[1:] != width or not tensor.shape:
        wanted = f"(n, {width[0]})" if width else "(n,)"
        raise ValueError(f"{name}[{image}][{key!r}] must be {wanted}, not {tuple(tensor.shape)}")
    return tensor


def _tensor(place: str, value: object) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach()
    try:
        return torch.from_numpy(np.array(value))  # a copy: torch warns about read-only arrays
    except (TypeError, ValueError) as error:
        raise ValueError(f"{place} is not an array of numbers: {error}") from None


def _stacked(columns: Sequence[torch.Tensor], width: tuple[int, ...]) -> np.ndarray:
    """Return the columns of all images on the host, in one copy if they share a device."""
    full = [column for column in columns if len(column)]
    if not full:
        return np.empty((0, *width))
    if len({column.device for column in full}) > 1:
        full = [column.cpu() for column in full]
    together = torch.cat(full).cpu()
    array: np.ndarray = (together.double() if together.is_floating_point() else together).numpy()
    return array


def _image_ids(targets: Entries) -> Int64[np.ndarray, " images"] | None:
    if not _all_or_none("targets", targets, "image_id"):
        return None
    numbers = []
    for image, target in enumerate(targets):
        try:
            numbers.append(int(target["image_id"]))
        except (TypeError, ValueError, RuntimeError):
            given = target["image_id"]
            raise ValueError(
                f"targets[{image}]['image_id'] must be a single integer: {given!r}"
            ) from None
    return np.array(numbers, dtype=np.int64)


def _all_or_none(name: str, entries: Entries, key: str) -> bool:
    having = [key in entry for entry in entries]
    if any(having) and not all(having):
        raise ValueError(f"{name}[{having.index(False)}] has no {key!r}, but others have")
    return any(having)
