"""The record of the training step's speed as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

HEAD = ("detector", "pixels", "batch", "images a second", "ms a step", "of what", "commit")


def training_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """The head and the lines of the table.

    Examples:
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


def training_times_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """What a training waits for beside its steps."""
    return ("what", "seconds, each time"), [
        [row["what"], ", ".join(f"{seconds:.1f}" for seconds in row["seconds"])]
        for row in record["times"]
    ]


def side_by_side_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """Several trainings on one GPU at once.

    Examples:
        >>> rows = [{"trainings": 2, "images_per_second": [3000, 3100]}]
        >>> side_by_side_lines({"side_by_side": rows})[1]
        [['2', '3,000, 3,100', '6,100']]
    """
    return ("trainings at once", "images a second of each", "together"), [
        [
            str(row["trainings"]),
            ", ".join(f"{speed:,.0f}" for speed in row["images_per_second"]),
            f"{sum(row['images_per_second']):,.0f}",
        ]
        for row in record["side_by_side"]
    ]
