"""COCO's precision and recall, by the hotcoco evaluator or by pycocotools."""

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

#: The sizes of targets, in the order of the tables: all, and by area below 32², 96² and above.
SIZES = ("all", "small", "medium", "large")

# Outside every range of areas: a box of this area is ignored, found or not, in every table. COCO's
# files have no other way to say so but iscrowd, which also changes the IoU.
_IGNORED_AREA = -1.0


@dataclass(frozen=True, eq=False)
class CocoTables:
    """What COCO's numbers are means of; -1 where a class has no target of that size.

    Attributes:
        precision: Best precision at recall .00, .01, ... 1.00 or beyond.
        recall: The highest recall.
        limits: Detections of a class in an image, the last axis of both.
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

    Crowds are ignored as COCO defines it: any number of detections may lie on one. A difficult box
    is ignored as COCO ignores a box of another size: one detection may lie on it.

    Args:
        data: What to score, in the order of its images.
        num_classes: How many classes there are.
        iou_thresholds: The IoUs from which a detection finds a target.
        max_detections: How many detections of a class count in an image.
        evaluator: Who computes; pycocotools is the slow original, for comparison.
    """
    limits = tuple(sorted({min(limit, max_detections) for limit in (1, 10, max_detections)}))
    run = {"hotcoco": _hotcoco, "pycocotools": _pycocotools}[evaluator]
    evaluation = run(data, num_classes)
    evaluation.params.iouThrs = np.asarray(iou_thresholds, dtype=np.float64)
    evaluation.params.maxDets = list(limits)
    with redirect_stdout(io.StringIO()):  # pycocotools reports every step
        evaluation.evaluate()
        evaluation.accumulate()
    tables = evaluation.eval
    return CocoTables(np.asarray(tables["precision"]), np.asarray(tables["recall"]), limits)


def _areas(data: ScoringData) -> Float64[np.ndarray, " targets"]:
    return np.where(data.difficult & ~data.crowd, _IGNORED_AREA, data.target_areas)


def _numbered(count: int) -> list[dict[str, Any]]:
    """Images or categories: only their numbers are needed. They start at 1, as annotations must."""
    return [{"id": number, "name": str(number)} for number in range(1, count + 1)]


def _hotcoco(data: ScoringData, num_classes: int) -> Any:  # noqa: ANN401
    import hotcoco

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
    found = truth.load_res(np.column_stack(columns))
    return hotcoco.COCOeval(truth, found, "bbox")


def _pycocotools(data: ScoringData, num_classes: int) -> Any:  # noqa: ANN401
    from pycocotools.cocoeval import COCOeval  # type: ignore[import-untyped]

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
    truth, found = (
        _pycocotools_set(table, len(data.image_ids), num_classes)
        for table in (target_columns, columns)
    )
    with redirect_stdout(io.StringIO()):
        return COCOeval(truth, found, "bbox")


def _pycocotools_set(columns: dict[str, np.ndarray], images: int, classes: int) -> Any:  # noqa: ANN401
    from pycocotools.coco import COCO  # type: ignore[import-untyped]

    lists = zip(*(column.tolist() for column in columns.values()), strict=True)
    rows = (dict(zip(columns, values, strict=True)) for values in lists)
    annotations = [{"id": number, "iscrowd": 0} | row for number, row in enumerate(rows, 1)]
    made = COCO()
    made.dataset = {
        "images": _numbered(images),
        "categories": _numbered(classes),
        "annotations": annotations,
    }
    with redirect_stdout(io.StringIO()):
        made.createIndex()
    return made
