"""The record of the training step's speed as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("detector", "pixels", "batch", "images a second", "ms a step", "of what", "commit")


def training_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """The head and the lines of the table.

    Example:
        >>> row = {"detector": "yolov5s", "image_size": 320, "batch_size": 64, "commit": "abc"}
        >>> row |= {"images_per_second": 5000.4, "ms_per_step": 12.8, "data": "noise"}
        >>> training_lines({"rows": [row]})[1]
        [['yolov5s', '320', '64', '5,000', '12.8', 'noise', 'abc']]
    """
    return HEAD, [
        [
            row["detector"],
            str(row["image_size"]),
            str(row["batch_size"]),
            f"{row['images_per_second']:,.0f}",
            f"{row['ms_per_step']:.1f}",
            row["data"],
            row["commit"],
        ]
        for row in record["rows"]
    ]


def training_parts_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Where the time of a step goes, each part as a graph of its own."""
    rows = [row for row in record["rows"] if "parts_ms" in row]
    names = list(rows[0]["parts_ms"])
    return ["detector, pixels", *names], [
        [
            f"{row['detector']}, {row['image_size']}",
            *(f"{row['parts_ms'][name]:.2f} ms" for name in names),
        ]
        for row in rows
    ]
