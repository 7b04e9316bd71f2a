"""Tables of the record that ``benchmarks/index.py`` makes: how long a large set takes to open."""

from __future__ import annotations

from benchmarks.record import Record

#: What was measured, by its name in the record.
RUNS = {
    "cold": "read for the first time",
    "cached": "from the cache",
    "cold_in_a_process_with_torch": "read for the first time, torch loaded before",
}


def index_lines(record: Record) -> tuple[list[str], list[list[str]]]:
    """Head and lines of a table: seconds and memory to open the set, a line a way.

    Examples:
        >>> run = dict(images=2, boxes=3, open_s=1.5, imported_memory_mb=40.0, peak_memory_mb=60.0)
        >>> index_lines({"cold": run})[1]
        [['read for the first time', '2', '3', '1.50 s', '60 MB', '20 MB']]
    """
    head = ["a COCO file", "images", "boxes", "time", "memory at the peak", "of it for the set"]
    lines = []
    for name, what in RUNS.items():
        if name in record:
            run = record[name]
            own = run["peak_memory_mb"] - run["imported_memory_mb"]
            counts = [f"{run[key]:,}" for key in ("images", "boxes")]
            memory = [f"{megabytes:,.0f} MB" for megabytes in (run["peak_memory_mb"], own)]
            lines.append([what, *counts, f"{run['open_s']:.2f} s", *memory])
    return head, lines
