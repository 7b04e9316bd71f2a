"""Tables of exported detectors."""

from __future__ import annotations

from alphaiou.inference.tables import markdown
from benchmarks.record import Record, Row

#: The columns with counts.
COUNTS = ("images", "detections", "differing", "reordered")


def export_table(record: Record) -> str:
    """Differences, size and latency by detector, format, batch and NMS.

    Examples:
        >>> row = {"detector": "yolov5n", "format": "onnx", "batch": 1, "nms": True}
        >>> row |= {"bytes": 7_500_000, "images": 50, "detections": 120, "differing": 0}
        >>> row |= {"reordered": 2, "box_px": 3.1e-5, "score": 2e-7, "latency_ms": 12.25}
        >>> print(export_table({"rows": [row]}).splitlines()[-1])
        | yolov5n | onnx | 1 | inside | 50 | 120 | 0 | 2 | 3.1e-05 | 2.0e-07 | 7.2 | 12.2 |
    """
    head = (
        "detector",
        "format",
        "batch",
        "NMS",
        "images",
        "detections",
        "of them different",
        "reordered",
        "box, px",
        "score",
        "MiB",
        "ms",
    )
    rows = [row for row in record["rows"] if "map" not in row]
    return markdown(head, [_cells(row) for row in rows], left=4)


def _cells(row: Row) -> list[str]:
    nms = "–" if "nms" not in row else "inside" if row["nms"] else "outside"
    return [
        row["detector"],
        row["format"],
        str(row.get("batch", "any")),
        nms,
        *(_count(row, name) for name in COUNTS),
        *(f"{row[name]:.1e}" if name in row else "–" for name in ("box_px", "score")),
        _mebibytes(row),
        f"{row['latency_ms']:.1f}",
    ]


def _count(row: Row, name: str) -> str:
    return f"{row[name]:,}" if name in row else "–"


def _mebibytes(row: Row) -> str:
    return f"{row['bytes'] / 2**20:.1f}" if "bytes" in row else "–"


def precision_table(record: Record) -> str:
    """Size, mAP and latency of each precision of the weights.

    Examples:
        >>> row = {"precision": "fp32", "bytes": 7_500_000, "map": 0.5, "latency_ms": 2.25}
        >>> row |= {"scored_images": 200}
        >>> print(precision_table({"rows": [row]}).splitlines()[-1])
        | fp32 | 7.2 | 50.00 | +0.00 | 2.2 |
    """
    rows = [row for row in record["rows"] if "map" in row]
    head = ("weights", "MiB", "mAP, %", "difference", "ms")
    first = rows[0]["map"]
    lines = [
        [
            row["precision"],
            _mebibytes(row),
            f"{100 * row['map']:.2f}",
            f"{100 * (row['map'] - first):+.2f}",
            f"{row['latency_ms']:.1f}",
        ]
        for row in rows
    ]
    return markdown(head, lines, left=1)
