"""The record of box noise as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.record import Record, Row


def noise_lines(record: Record) -> tuple[list[str], list[list[str]]]:
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
    return head, lines


def reading_lines(record: Record) -> tuple[list[str], list[list[str]]]:
    """Mean IoU by image on the train split, seed 0, for each reading of the boundary condition."""
    rows = [row for row in record["rows"] if row["split"] == "train" and row["seed"] == 0]
    rates = list(dict.fromkeys(row["rate"] for row in rows))
    lines = [["*the paper*", *(f"{_paper(rows, rate):.3f}" for rate in rates)]]
    for reading in dict.fromkeys(row["reading"] for row in rows):
        found = {row["rate"]: row["by_image"] for row in rows if row["reading"] == reading}
        lines.append([reading, *(f"{found[rate]:.3f}" for rate in rates)])
    return ["reading", *(f"η = {rate:g}" for rate in rates)], lines


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
