"""The record of the training step's speed as a table."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.record import Record

HEAD = ("detector", "pixels", "batch", "images a second", "ms a step", "of what", "commit")


def training_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
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


def training_parts_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """Where the time of a step goes, each part as a graph of its own."""
    rows = [row for row in record["rows"] if "parts_ms" in row]
    names = list(rows[0]["parts_ms"])
    return ["detector, pixels", *names, "commit"], [
        [
            f"{row['detector']}, {row['image_size']}",
            *(f"{row['parts_ms'][name]:.2f} ms" for name in names),
            row["commit"],
        ]
        for row in rows
    ]


def training_times_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """What a training waits for beside its steps."""
    return ("what", "seconds, each time", "commit"), [
        [row["what"], ", ".join(f"{seconds:.1f}" for seconds in row["seconds"]), row["commit"]]
        for row in record["times"]
    ]


def training_profile_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """The kernels of a step and their time, of one version after another.

    Examples:
        >>> parts = {"copies": {"kernels": 10, "ms": 0.092}}
        >>> step = {"step": "now", "commit": "abc", "ms_per_step": 7.53, "parts": parts}
        >>> training_profile_lines({"profile": {"steps": [step]}})[1]
        [['copies', '0.09 ms (10)'], ['the step', '7.5 ms']]
    """
    steps = record["profile"]["steps"]
    lines = [
        [part, *(f"{s['parts'][part]['ms']:.2f} ms ({s['parts'][part]['kernels']})" for s in steps)]
        for part in steps[0]["parts"]
    ]
    lines.append(["the step", *(f"{step['ms_per_step']:.1f} ms" for step in steps)])
    return ["", *(f"{step['step']} ({step['commit']})" for step in steps)], lines


def norm_silu_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """Batch norm with SiLU, forward and backward, at the sizes of a network.

    Examples:
        >>> row = {"rows": 6400, "channels": 512, "megabytes": 6.6, "torch_ms": 0.04}
        >>> row |= {"ours_ms": 0.02, "ours_of_copy": 0.5, "torch_of_copy": 0.25}
        >>> norm_silu_lines({"rows": [row]})[1]
        [['6,400', '512', '6.6', '20 µs', '40 µs', '2.0×', '50 %', '25 %']]
    """
    head = ("pixels", "channels", "MB", "ours", "torch", "torch by ours", "of a copy’s speed")
    return (*head, "torch’s"), [
        [
            f"{row['rows']:,}",
            str(row["channels"]),
            f"{row['megabytes']:.1f}",
            f"{1e3 * row['ours_ms']:.0f} µs",
            f"{1e3 * row['torch_ms']:.0f} µs",
            f"{row['torch_ms'] / row['ours_ms']:.1f}×",
            f"{100 * row['ours_of_copy']:.0f} %",
            f"{100 * row['torch_of_copy']:.0f} %",
        ]
        for row in record["rows"]
    ]


def side_by_side_lines(record: Record) -> tuple[Sequence[str], list[list[str]]]:
    """Several trainings on one GPU at once, and whether under MPS where that was recorded.

    Examples:
        >>> row = {"trainings": 2, "images_per_second": [3000, 3100], "commit": "abc"}
        >>> side_by_side_lines({"side_by_side": [row, row | {"mps": False}]})[1]
        [['2', '–', '3,000, 3,100', '6,100', 'abc'], ['2', 'no', '3,000, 3,100', '6,100', 'abc']]
    """
    return ("trainings at once", "MPS", "images a second of each", "together", "commit"), [
        [
            str(row["trainings"]),
            {True: "yes", False: "no", None: "–"}[row.get("mps")],
            ", ".join(f"{speed:,.0f}" for speed in row["images_per_second"]),
            f"{sum(row['images_per_second']):,.0f}",
            row["commit"],
        ]
        for row in record["side_by_side"]
    ]
