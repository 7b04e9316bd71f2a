"""Precision and recall by COCO's rules, computed by hotcoco or pycocotools."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.metrics.inputs import ScoringData

Evaluator = Literal["hotcoco", "pycocotools"]

#: The size ranges of targets in table order: all, small (area below 32²), medium (96²), large.
SIZES = ("all", "small", "medium", "large")

# An area outside every range, so that a box is ignored in every table. The only other way to ignore
# a box in COCO's format is iscrowd, which also changes the IoU.
_IGNORED_AREA = -1.0


@dataclass(frozen=True, eq=False)
class CocoTables:
    """The precision and recall tables of COCO; -1 if a class has no target of that size.

    Attributes:
        precision: Interpolated precision at recall .00, .01, ... 1.00.
        recall: The maximum recall.
        limits: The limits of detections per class and image, the last axis of both tables.
    """

    precision: Float64[np.ndarray, "thresholds 101 classes 4 limits"]
    recall: Float64[np.ndarray, "thresholds classes 4 limits"]
    limits: tuple[int, ...]


def coco_tables(
    data: ScoringData,
    num_classes: int,
    *,
    iou_thresholds: Sequence[float],
    max_detections: int,
    evaluator: Evaluator = "hotcoco",
) -> CocoTables:
    """Precision and recall by COCO's rules.

    Crowds are ignored as COCO defines it: any number of detections may match a crowd. Difficult
    boxes are ignored as COCO ignores boxes of another size: one detection may match each.

    Args:
        data: The detections and targets, sorted by image.
        num_classes: The number of classes.
        iou_thresholds: The minimum IoUs of a match.
        max_detections: The maximum number of detections per class and image.
        evaluator: The library to use; pycocotools is slower.
    """
    limits = tuple(sorted({min(limit, max_detections) for limit in (1, 10, max_detections)}))
    run = {"hotcoco": hotcoco_evaluation, "pycocotools": _pycocotools}[evaluator]
    evaluation = run(data, num_classes)
    evaluation.params.iouThrs = np.asarray(iou_thresholds, dtype=np.float64)
    evaluation.params.maxDets = list(limits)
    with redirect_stdout(io.StringIO()):  # pycocotools prints every step
        evaluation.evaluate()
        evaluation.accumulate()
    tables = evaluation.eval
    return CocoTables(np.asarray(tables["precision"]), np.asarray(tables["recall"]), limits)


def _areas(data: ScoringData) -> Float64[np.ndarray, " targets"]:
    return np.where(data.difficult & ~data.crowd, _IGNORED_AREA, data.target_areas)


def _numbered(count: int) -> list[dict[str, Any]]:
    """Return images or categories with numbers only, from 1, as annotations must be numbered."""
    return [{"id": number, "name": str(number)} for number in range(1, count + 1)]


def hotcoco_evaluation(data: ScoringData, num_classes: int) -> Any:  # noqa: ANN401
    """Return hotcoco's evaluation of detections and targets, sorted by image, not yet run."""
    import hotcoco

    if data.is_oriented:
        return _hotcoco_oriented(data, num_classes)
    truth = hotcoco.COCO.from_arrays(
        _numbered(len(data.image_ids)),
        _numbered(num_classes),
        data.target_images + 1,
        data.target_labels + 1,
        data.target_boxes,
        area=_areas(data),
        iscrowd=data.crowd,
    )
    columns = (data.images + 1, data.boxes, data.scores, data.labels + 1)
    detections = truth.load_res(np.column_stack(columns))
    return hotcoco.COCOeval(truth, detections, "bbox")


def _hotcoco_oriented(data: ScoringData, num_classes: int) -> Any:  # noqa: ANN401
    import hotcoco

    if data.crowd.any():
        raise ValueError("crowds of oriented boxes have no definition: mark them as difficult")
    target_columns = {
        "image_id": data.target_images + 1,
        "category_id": data.target_labels + 1,
        "obb": data.target_boxes,
        "area": _areas(data),
    }
    columns = {
        "image_id": data.images + 1,
        "category_id": data.labels + 1,
        "obb": data.boxes,
        "area": data.boxes[:, 2] * data.boxes[:, 3],
        "score": data.scores,
    }
    truth = hotcoco.COCO(_document(target_columns, len(data.image_ids), num_classes))
    return hotcoco.COCOeval(truth, truth.load_res(_annotations(columns)), "obb")


def _annotations(columns: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return the rows of columns as the annotations of a COCO file."""
    lists = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = (dict(zip(columns, values, strict=True)) for values in lists)
    return [{"id": number, "iscrowd": 0} | row for number, row in enumerate(rows, 1)]


def _document(columns: dict[str, np.ndarray], images: int, classes: int) -> dict[str, Any]:
    """Return the content of a COCO file."""
    return {
        "images": _numbered(images),
        "categories": _numbered(classes),
        "annotations": _annotations(columns),
    }


def _pycocotools(data: ScoringData, num_classes: int) -> Any:  # noqa: ANN401
    from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

    if data.is_oriented:
        raise ValueError("evaluator='pycocotools' cannot score oriented boxes; take 'hotcoco'")

    target_columns = {
        "image_id": data.target_images + 1,
        "category_id": data.target_labels + 1,
        "bbox": data.target_boxes,
        "area": _areas(data),
        "iscrowd": data.crowd.astype(np.int64),
    }
    columns = {
        "image_id": data.images + 1,
        "category_id": data.labels + 1,
        "bbox": data.boxes,
        "area": data.boxes[:, 2] * data.boxes[:, 3],
        "score": data.scores,
    }
    truth, detections = (
        _pycocotools_set(table, len(data.image_ids), num_classes)
        for table in (target_columns, columns)
    )
    with redirect_stdout(io.StringIO()):
        return COCOeval(truth, detections, "bbox")


def _pycocotools_set(columns: dict[str, np.ndarray], images: int, classes: int) -> Any:  # noqa: ANN401
    from pycocotools.coco import COCO  # type: ignore[import-untyped]

    made = COCO()
    made.dataset = _document(columns, images, classes)
    with redirect_stdout(io.StringIO()):
        made.createIndex()
    return made
