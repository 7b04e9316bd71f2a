"""The record of box losses in other people's trainings as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alphaiou.losses.spec import DISPLAY_NAMES

HEAD = (
    "framework",
    "device",
    "its own loss",
    "lines changed",
    "largest difference of a loss at α = 1, relative",
    "time of a step at α = 1",
    "at α = 3",
)


def integration_lines(record: Mapping[str, Any]) -> tuple[Sequence[str], list[list[str]]]:
    """The head and the lines of the table.

    Examples:
        >>> row = {"framework": "rfdetr", "version": "1.11", "own_kind": "giou", "lines_changed": 1}
        >>> row |= {"largest_relative_difference": 7e-7, "ratio_alpha_1": 0.981}
        >>> record = {"device": "NVIDIA H200", "rows": [row | {"ratio_alpha_3": 1.0}]}
        >>> integration_lines(record)[1]
        [['rfdetr 1.11', 'NVIDIA H200', 'GIoU', '1', '7e-07', '0.98×', '1.00×']]
    """
    return HEAD, [
        [
            f"{row['framework']} {row['version']}",
            record["device"],
            DISPLAY_NAMES[row["own_kind"]],
            str(row["lines_changed"]),
            f"{row['largest_relative_difference']:.0e}",
            f"{row['ratio_alpha_1']:.2f}×",
            f"{row['ratio_alpha_3']:.2f}×",
        ]
        for row in record["rows"]
    ]
