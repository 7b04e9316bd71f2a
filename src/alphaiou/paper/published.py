"""The paper's own numbers, to be printed beside ours.

All of its tables, in percent as printed. Beyond rounding, the print contradicts itself in three
places: relative improvements at mAP75:95 come from numbers with more digits (α-IoU under
noise of .3: 20.99 %, where the printed 3.54 and 4.29 give 21.19 %); the mAP75:95 of α-GIoU and
α-DIoU in Table 2 are .02 off the mean of their parts; and YOLOv5s with α-DIoU on VOC scores 53.76
in Table 1, 53.70 in the table of α₂. The paper does not mention more than one run for any row.
"""

from __future__ import annotations

from alphaiou.detectors.registry import DELTA_LOSSES
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS, columns_of

Numbers = tuple[float | None, ...]

#: The columns of the tables that print every threshold.
ALL_COLUMNS = (*columns_of("threshold"), "map", "map75_95")
#: The columns of Table 2.
SIZE_COLUMNS = ("ap50", *ALL_COLUMNS[5:], *columns_of("size"))

# A row of the paper is a line here.
# fmt: off
# ruff: noqa: E501
#: Table 1, PASCAL VOC, by detector and loss.
TABLE_1_VOC: dict[str, dict[str, Numbers]] = {
    "yolov5s": {
        "iou:1": (78.81, 58.04, 35.07, 2.34, 52.74, 32.45),
        "iou:3": (78.62, 58.78, 38.16, 3.64, 53.61, 34.46),
        "diou:1": (78.19, 57.77, 34.89, 2.36, 52.30, 32.17),
        "diou:3": (78.33, 59.24, 38.46, 3.50, 53.76, 34.66),
    },
    "yolov5x": {
        "iou:1": (85.24, 70.08, 53.08, 10.88, 63.95, 46.78),
        "iou:3": (84.83, 70.20, 53.75, 13.74, 64.25, 48.06),
        "diou:1": (85.04, 71.05, 53.71, 11.11, 64.21, 47.30),
        "diou:3": (84.90, 71.34, 54.23, 13.85, 64.49, 48.40),
    },
    "detr_r50": {
        "iou:1": (76.50, 53.85, 29.54, 1.62, 49.78, 28.82),
        "iou:3": (76.22, 55.03, 32.30, 2.28, 51.12, 31.08),
        "diou:1": (76.26, 54.09, 29.23, 1.56, 49.91, 28.68),
        "diou:3": (76.44, 54.89, 31.48, 2.44, 50.96, 30.60),
    },
}
#: Table 1, MS COCO, by detector and loss.
TABLE_1_COCO: dict[str, dict[str, Numbers]] = {
    "yolov5s": {
        "iou:1": (55.51, 38.59, 23.58, 2.07, 36.29, 21.82),
        "iou:3": (55.25, 39.69, 25.85, 3.35, 37.01, 23.66),
        "diou:1": (55.67, 39.01, 23.56, 2.03, 36.36, 21.95),
        "diou:3": (55.84, 39.49, 25.49, 3.30, 36.74, 23.34),
    },
    "yolov5x": {
        "iou:1": (67.36, 52.15, 38.22, 9.31, 48.42, 34.42),
        "iou:3": (67.72, 52.61, 38.62, 9.76, 48.67, 34.72),
        "diou:1": (67.54, 52.03, 38.02, 8.58, 48.38, 34.16),
        "diou:3": (67.42, 52.65, 39.28, 10.29, 48.81, 35.42),
    },
    "detr_r50": {
        "iou:1": (59.38, 41.67, 26.13, 3.52, 39.23, 24.37),
        "iou:3": (59.61, 42.65, 28.57, 5.09, 40.18, 26.44),
        "diou:1": (59.28, 41.62, 26.09, 3.54, 39.25, 24.48),
        "diou:3": (59.38, 42.34, 28.23, 5.36, 39.94, 26.05),
    },
}
#: Table 2, Faster R-CNN on MS COCO (``SIZE_COLUMNS``), by loss: what the authors ran.
TABLE_2: dict[str, Numbers] = {
    "l1": (58.13, 40.45, 33.56, 23.39, 11.09, 1.24, 37.37, 21.95, 21.20, 40.96, 48.13),
    "iou:1": (58.12, 41.23, 34.03, 24.43, 12.42, 1.61, 37.88, 22.74, 21.61, 41.63, 49.11),
    "giou:1": (58.18, 41.00, 33.52, 24.13, 11.97, 1.51, 37.62, 22.43, 21.49, 41.07, 48.90),
    "biou:1": (58.05, 40.57, 33.54, 23.85, 11.10, 1.19, 37.43, 22.05, 21.57, 41.00, 48.17),
    "iou:3": (58.81, 41.94, 34.81, 25.36, 13.27, 1.81, 38.96, 23.44, 22.14, 42.11, 50.36),
    "giou:3": (59.01, 42.00, 35.13, 25.14, 13.09, 2.03, 39.18, 23.46, 22.05, 42.19, 50.08),
    "diou:3": (59.27, 42.18, 35.25, 25.47, 13.32, 1.95, 39.43, 23.65, 22.10, 42.10, 50.43),
    "ciou:3": (59.09, 41.92, 35.01, 25.08, 13.04, 1.98, 39.25, 23.41, 21.94, 41.88, 50.01),
}
#: The same table: what it takes from other papers.
TABLE_2_REPORTED: dict[str, Numbers] = {
    "iou:1": (None, 40.79, None, None, None, None, 37.93, None, 21.58, 40.82, 50.14),
    "giou:1": (None, 41.11, None, None, None, None, 38.02, None, 21.45, 41.06, 50.21),
    "diou:1": (None, 41.11, None, None, None, None, 38.09, None, 21.66, 41.18, 50.32),
    "ciou:1": (None, 41.96, None, None, None, None, 38.65, None, 21.32, 41.83, 51.51),
    "eiou+focal:1": (59.10, 42.40, None, None, None, None, 38.90, None, 21.20, 41.10, 50.20),
    "autoloss": (58.60, 41.80, None, None, None, None, 38.50, None, 22.00, 42.20, 50.20),
}
#: Table 3, YOLOv5s on PASCAL VOC with noise (``ALL_COLUMNS``), by rate and loss.
TABLE_3: dict[float, dict[str, Numbers]] = {
    0.1: {
        "iou:1": (74.48, 71.57, 68.08, 63.29, 56.55, 47.12, 33.06, 17.53, 4.16, 0.26, 43.61, 20.43),
        "iou:3": (74.67, 71.94, 68.73, 64.27, 57.75, 48.50, 36.88, 21.25, 6.30, 0.28, 45.06, 22.64),
        "diou:1": (74.09, 71.46, 67.88, 63.09, 56.18, 46.71, 32.67, 17.50, 4.43, 0.23, 43.42, 20.31),
        "diou:3": (74.38, 71.95, 68.10, 63.52, 57.18, 48.47, 35.90, 20.89, 6.37, 0.33, 44.71, 22.39),
    },
    0.2: {
        "iou:1": (67.82, 63.93, 58.22, 50.11, 39.31, 26.33, 13.51, 4.55, 0.66, 0.05, 32.45, 9.02),
        "iou:3": (68.20, 64.21, 58.77, 51.59, 40.66, 29.20, 16.11, 6.06, 1.31, 0.10, 33.62, 10.56),
        "diou:1": (67.39, 62.94, 57.29, 49.25, 39.40, 27.13, 13.78, 4.52, 0.68, 0.02, 32.24, 9.23),
        "diou:3": (68.26, 64.49, 59.59, 51.99, 41.19, 29.12, 15.77, 5.84, 1.25, 0.21, 33.77, 10.44),
    },
    0.3: {
        "iou:1": (56.54, 49.69, 40.67, 30.80, 19.99, 11.13, 4.81, 1.43, 0.31, 0.04, 21.54, 3.54),
        "iou:3": (58.59, 51.58, 43.23, 32.93, 22.27, 12.52, 5.91, 2.16, 0.73, 0.12, 23.00, 4.29),
        "diou:1": (56.84, 49.82, 41.50, 32.06, 20.80, 11.22, 4.84, 1.51, 0.46, 0.07, 21.91, 3.62),
        "diou:3": (58.45, 51.94, 43.90, 33.78, 22.57, 12.89, 6.34, 2.42, 0.65, 0.16, 23.31, 4.49),
    },
}
#: The table of α₂, YOLOv5s on PASCAL VOC (``ALL_COLUMNS``), by loss and both powers.
PENALTY_POWERS: dict[str, Numbers] = {
    "giou:3:0.5": (78.44, 76.19, 73.49, 70.03, 65.38, 59.31, 50.74, 38.54, 21.45, 3.93, 53.75, 34.79),
    "giou:3:1": (77.94, 75.83, 73.19, 69.80, 65.21, 58.25, 49.84, 37.68, 21.54, 3.68, 53.29, 34.20),
    "giou:3:3": (78.19, 76.25, 73.50, 69.91, 64.90, 58.55, 49.47, 38.29, 21.79, 3.59, 53.44, 34.34),
    "diou:3:0.5": (77.33, 75.68, 73.21, 69.57, 65.27, 58.42, 49.75, 38.42, 21.23, 3.74, 53.26, 34.31),
    "diou:3:1": (77.74, 75.62, 73.19, 69.52, 65.04, 58.57, 50.27, 37.71, 21.92, 3.50, 53.31, 34.39),
    "diou:3:3": (78.42, 76.13, 73.57, 70.16, 65.83, 59.14, 50.20, 38.31, 21.71, 3.50, 53.70, 34.57),
    "ciou:3:0.5": (77.78, 75.70, 72.97, 69.55, 65.02, 58.41, 49.87, 38.51, 21.51, 3.52, 53.28, 34.36),
    "ciou:3:1": (78.02, 75.85, 73.18, 69.78, 65.28, 58.34, 50.11, 37.85, 21.68, 3.66, 53.37, 34.33),
    "ciou:3:3": (78.03, 76.04, 73.66, 70.10, 65.18, 58.71, 49.55, 37.71, 21.70, 3.76, 53.44, 34.29),
}
#: The table of small sets, YOLOv5s on shares of PASCAL VOC, by share and loss.
SMALL_SETS: dict[float, dict[str, Numbers]] = {
    0.5: {
        "iou:1": (71.14, 46.61, 22.63, 0.89, 43.58, 23.13),
        "iou:3": (71.01, 47.88, 27.48, 1.24, 44.81, 25.62),
        "diou:1": (71.29, 46.95, 23.79, 0.90, 44.02, 23.52),
        "diou:3": (70.93, 48.09, 27.41, 1.56, 44.83, 25.76),
        "giou:1": (70.93, 47.14, 24.57, 0.80, 43.89, 23.95),
        "giou:3": (71.19, 48.37, 26.92, 1.67, 45.10, 25.82),
    },
    0.25: {
        "iou:1": (60.17, 35.03, 14.45, 0.38, 34.38, 16.13),
        "iou:3": (59.96, 36.02, 17.02, 0.60, 34.93, 17.57),
        "diou:1": (59.92, 34.54, 14.06, 0.25, 33.95, 15.71),
        "diou:3": (59.68, 35.90, 16.72, 0.51, 34.69, 17.42),
        "giou:1": (59.75, 33.88, 13.90, 0.38, 33.80, 15.56),
        "giou:3": (59.58, 35.74, 16.96, 0.59, 34.88, 17.23),
    },
}
# fmt: on


def loss_key(loss: LossSpec) -> str:
    """The key of a loss in these tables.

    Examples:
        >>> loss_key(LossSpec("iou")), loss_key(LossSpec("giou", 3.0, 0.5))
        ('iou:1', 'giou:3:0.5')
        >>> loss_key(LossSpec("eiou", modifiers=("focal",)))
        'eiou+focal:1'
    """
    if loss.kind in DELTA_LOSSES:
        return loss.kind
    powers = (loss.alpha,) if loss.penalty_alpha is None else (loss.alpha, loss.penalty_alpha)
    name = "+".join((loss.kind, *loss.modifiers))
    return ":".join((name, *(f"{power:g}" for power in powers)))


def as_fractions(row: Numbers | None, columns: tuple[str, ...] = PAPER_COLUMNS) -> dict[str, float]:
    """The printed scores of a row as fractions of one.

    Examples:
        >>> as_fractions((78.81, None), ("ap50", "ap75"))
        {'ap50': 0.7881}
    """
    if row is None:
        return {}
    named = zip(columns, row, strict=True)
    return {name: round(value / 100, 6) for name, value in named if value is not None}


def published_scores(detector: str, loss: str) -> dict[str, float] | None:
    """The scores on PASCAL VOC that the paper reports, as fractions; None if it has none.

    Examples:
        >>> published_scores("yolov5s", "iou:3")["ap95"]
        0.0364
    """
    return as_fractions(TABLE_1_VOC.get(detector, {}).get(loss)) or None
