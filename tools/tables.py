"""The tables of README.md and docs/ by name: each makes Markdown from a record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.metrics.columns import column_title
from alphaiou.paper.scales import BUDGET
from benchmarks.record import Record
from tools.compare_tables import seeds_table
from tools.data_tables import evaluation_table, index_table, noise_table, readings_table
from tools.findings import findings
from tools.loss_tables import (
    agreement_table,
    figures,
    fuzz_table,
    fuzz_total_table,
    kinds_table,
    losses_table,
    memory_table,
    precision_table,
    simulation_table,
    simulation_variants_table,
)
from tools.runs import (
    detector_runs,
    headline_table,
    repeats_table,
    runs_table,
    speeds_table,
)
from tools.training_tables import (
    detector_parts_table,
    detector_table,
    framework_runs_table,
    integration_table,
    norm_silu_table,
    side_by_side_table,
    training_parts_table,
    training_profile_table,
    training_table,
    training_times_table,
)

README_COLUMNS = ("ap50", "ap75", "ap95", "map", "map75_95")


def setup_line(record: Record) -> str:
    """Where and with what a record was taken, in one line."""
    versions = ", ".join(f"{name} {value}" for name, value in record["versions"].items() if value)
    place = record["device"]
    if record.get("device_type") == "cpu":
        place += f", {record['threads']} thread{'s' * (record['threads'] != 1)}"
    if "copy_gb_per_s" in record:
        place += f" (a copy in memory: {figures(record['copy_gb_per_s'])} GB/s)"
    unfinished = "" if record.get("complete", True) else " The run was stopped before its end."
    day = [record["date"][:10]] if "date" in record else []
    return f"{'; '.join([place, versions, *day])}.{unfinished}"


def headline_short(record: Record) -> str:
    """The first losses and the main columns of ``headline``, for the README."""
    lines = headline_table(record, detector="yolov5s", epochs=BUDGET).splitlines()
    cells = [line.strip("| ").split(" | ") for line in lines if line.startswith("|")]
    columns = [cells[0].index(title) for title in ("loss", *map(column_title, README_COLUMNS))]
    end = next((row for row, (name, *_) in enumerate(cells) if name == "DIoU"), len(cells))
    return "\n".join(f"| {' | '.join(line[c] for c in columns)} |" for line in cells[:end])


TABLES: dict[str, Callable[[Record], str]] = {
    "setup": setup_line,
    "losses": losses_table,
    "losses-device": partial(losses_table, clock="device"),
    "losses-short": partial(losses_table, clock="device", kinds=("ciou",)),
    "losses-forward": partial(losses_table, mode="forward"),
    "kinds": kinds_table,
    "precision": precision_table,
    "memory": memory_table,
    "fuzz": fuzz_table,
    "fuzz-total": fuzz_total_table,
    "agreement": agreement_table,
    "simulation": simulation_table,
    "simulation-variants": simulation_variants_table,
    "evaluation": evaluation_table,
    "compare-seeds": seeds_table,
    "runs": partial(runs_table, detector="yolov5s", epochs=100),
    "headline": partial(headline_table, detector="yolov5s", epochs=BUDGET),
    "headline-short": headline_short,
    "repeats": partial(repeats_table, detector="yolov5s", epochs=BUDGET),
    "runs-faster-rcnn": partial(detector_runs, detector=FASTER_RCNN),
    "runs-detr": partial(detector_runs, detector=DETR),
    "speeds-yolov5x": partial(speeds_table, detector="yolov5x"),
    "findings": findings,
    "index": index_table,
    "training": training_table,
    "training-parts": training_parts_table,
    "training-times": training_times_table,
    "training-profile": training_profile_table,
    "norm-silu": norm_silu_table,
    "detectors": detector_table,
    "detectors-parts": detector_parts_table,
    "side-by-side": side_by_side_table,
    "integrations": integration_table,
    "framework-runs": framework_runs_table,
    "noise": noise_table,
    "noise-readings": readings_table,
}
