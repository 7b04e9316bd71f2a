"""Tables of data and scores: opening a large set, scoring, noisy boxes."""

from __future__ import annotations

from collections.abc import Iterable

from alphaiou.inference.tables import markdown
from benchmarks.record import Record, Row

#: What was measured, by its name in the record.
RUNS = {
    "cold": "read for the first time",
    "cached": "from the cache",
    "cold_in_a_process_with_torch": "read for the first time, torch loaded before",
}


def index_table(record: Record) -> str:
    """Seconds and memory to open a large set, cold and cached.

    Examples:
        >>> run = dict(images=2, boxes=3, open_s=1.5, imported_memory_mb=40.0, peak_memory_mb=60.0)
        >>> print(index_table({"cold": run}).splitlines()[-1])
        | read for the first time | 2 | 3 | 1.50 s | 60 MB | 20 MB |
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
    return markdown(head, lines, left=1)


def evaluation_table(record: Record) -> str:
    """Seconds to score a set, one line per rule: the record of ``benchmarks.evaluation``."""
    shown = ("seconds", "collect_seconds", "compute_seconds")
    lines = [
        [row["what"], *(f"{row[key]:.3g} s" if key in row else "–" for key in shown)]
        for row in record["rows"]
    ]
    return markdown(["what", "in all", "collecting", "computing"], lines, left=1)


def noise_table(record: Record) -> str:
    """Mean IoU to the clean boxes by rate: the paper's, and ours with the spread over seeds.

    The splits of the record together are VOC 2007 and 2012 trainval, which the paper trains on.
    """
    adopted = record["rows"][0]["reading"]
    rows = [row for row in record["rows"] if row["reading"] == adopted]
    head = ["rate η", "paper, by image", "2007 + 2012 trainval, by image"]
    head += ["2012 trainval, by image", "2012 trainval, by box"]
    lines = []
    for rate in dict.fromkeys(row["rate"] for row in rows):
        at_rate = [row for row in rows if row["rate"] == rate]
        train = [row for row in at_rate if row["split"] == "train"]
        cells = (
            _together(at_rate, record),
            [row["by_image"] for row in train],
            [row["by_box"] for row in train],
        )
        lines.append([f"{rate:g}", f"{train[0]['paper']:.3f}", *map(_spread, cells)])
    return markdown(head, lines, left=1)


def readings_table(record: Record) -> str:
    """Mean IoU by image on the train split, seed 0, for each reading of the boundary condition."""
    rows = [row for row in record["rows"] if row["split"] == "train" and row["seed"] == 0]
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    lines = [["*the paper*", *(f"{_paper(rows, rate):.3f}" for rate in rates)]]
    for reading in dict.fromkeys(row["reading"] for row in rows):
        found = {row["rate"]: row["by_image"] for row in rows if row["reading"] == reading}
        lines.append([reading, *(f"{found[rate]:.3f}" for rate in rates)])
    return markdown(["reading", *(f"η = {rate:g}" for rate in rates)], lines, left=1)


def _paper(rows: Iterable[Row], rate: float) -> float:
    return next(float(row["paper"]) for row in rows if row["rate"] == rate)


def _together(rows: Iterable[Row], record: Record) -> list[float]:
    """The mean over the images of all splits, for each seed; every image has a box."""
    images = {split: counts["images"] for split, counts in record["splits"].items()}
    sums: dict[int, float] = {}
    for row in rows:
        sums[row["seed"]] = sums.get(row["seed"], 0.0) + row["by_image"] * images[row["split"]]
    return [total / sum(images.values()) for total in sums.values()]


def _spread(values: list[float]) -> str:
    """The mean over seeds, and how far the seeds are from it."""
    mean = sum(values) / len(values)
    return f"{mean:.4f} ± {max(abs(value - mean) for value in values):.4f}"
