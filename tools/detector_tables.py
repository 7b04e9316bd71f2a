"""The record of ``benchmarks/detectors.py``, steps of ours and of theirs, as tables."""

from __future__ import annotations

from collections.abc import Sequence

from alphaiou.inference.tables import times
from benchmarks.record import Record, Row

OURS = "ours"
HEAD = ("detector", "step of", "ms a step", "images a second", "ours by theirs", "GiB at the peak")


def detector_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """Steps of training side by side, a line a contender.

    Examples:
        >>> rows = [{"contender": "detr_r50, transformers", "ms_per_step": 90.0}]
        >>> rows += [{"contender": "detr_r50, ours", "ms_per_step": 30.0, "memory_gib": 4.25}]
        >>> for row in rows:
        ...     row["images_per_second"] = 16e3 / row["ms_per_step"]
        >>> for line in detector_lines({"rows": rows})[1]:
        ...     print(line)
        ['detr_r50', 'transformers', '90.0', '178', '–', '–']
        ['detr_r50', 'ours', '30.0', '533', '3.0×', '4.2']
    """
    return HEAD, [_line(row, record["rows"]) for row in record["rows"]]


def detector_parts_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """Where the time of our step goes, each part as a graph of its own, and what is left."""
    rows = [row for row in record["rows"] if "parts_ms" in row]
    names = list(dict.fromkeys(name for row in rows for name in row["parts_ms"]))
    return ["detector", *names, "the rest of the step"], [_parts(row, names) for row in rows]


def _line(row: Row, rows: Sequence[Row]) -> list[str]:
    detector, whose = _names(row)
    if "error" in row:
        return [detector, whose, "failed", "–", "–", "–"]
    memory = f"{row['memory_gib']:.1f}" if "memory_gib" in row else "–"
    numbers = [f"{row['ms_per_step']:.1f}", f"{row['images_per_second']:,.0f}"]
    return [detector, whose, *numbers, times(_ratio(row, rows)), memory]


def _ratio(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as many images a second as the fastest of the others; None for theirs."""
    detector, whose = _names(row)
    speeds = [
        other["images_per_second"]
        for other in rows
        if "error" not in other and _names(other)[0] == detector and _names(other)[1] != OURS
    ]
    return row["images_per_second"] / max(speeds) if whose == OURS and speeds else None


def _parts(row: Row, names: Sequence[str]) -> list[str]:
    parts: dict[str, float] = row["parts_ms"]
    rest = row["ms_per_step"] - sum(parts.values())
    return [_names(row)[0], *(f"{parts[name]:.2f} ms" for name in names), f"{rest:.2f} ms"]


def _names(row: Row) -> tuple[str, str]:
    detector, _, whose = row["contender"].partition(", ")
    return detector, whose
