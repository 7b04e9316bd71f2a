"""The paper's own numbers, to stand beside ours."""

from __future__ import annotations

from alphaiou.metrics.comparison import PAPER_COLUMNS

#: Table 1, PASCAL VOC: what each loss scored, in percent, by detector and loss.
TABLE_1_VOC: dict[str, dict[str, tuple[float, ...]]] = {
    "yolov5s": {
        "iou:1": (78.81, 58.04, 35.07, 2.34, 52.74, 32.45),
        "iou:3": (78.62, 58.78, 38.16, 3.64, 53.61, 34.46),
        "diou:1": (78.19, 57.77, 34.89, 2.36, 52.30, 32.17),
        "diou:3": (78.33, 59.24, 38.46, 3.50, 53.76, 34.66),
    },
}


def published_scores(detector: str, loss: str) -> dict[str, float] | None:
    """What the paper reports on PASCAL VOC, as fractions; ``None`` where it reports nothing.

    Example:
        >>> published_scores("yolov5s", "iou:3")["ap95"]
        0.0364
    """
    row = TABLE_1_VOC.get(detector, {}).get(loss)
    if row is None:
        return None
    return {name: round(value / 100, 6) for name, value in zip(PAPER_COLUMNS, row, strict=True)}
