"""Records as Markdown tables by name, so that no figure in the documents is typed by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.inference.tables import figures, markdown
from alphaiou.paper.scales import BUDGET
from alphaiou.study.report.comparison import seeds_table
from benchmarks.record import Record
from tools.detector_tables import detector_lines, detector_parts_lines
from tools.findings import findings
from tools.framework_runs import framework_runs_table
from tools.fuzz_tables import agreement_table, fuzz_table, fuzz_total_table
from tools.index_tables import index_lines
from tools.integration_tables import integration_lines
from tools.loss_tables import (
    kinds_table,
    losses_table,
    memory_table,
    precision_table,
)
from tools.noise_tables import noise_lines, reading_lines
from tools.repeats import repeats_table
from tools.run_tables import (
    detector_runs,
    headline_table,
    runs_table,
    speeds_table,
)
from tools.simulation_tables import simulation_table, simulation_variants_table
from tools.training_tables import (
    norm_silu_lines,
    side_by_side_lines,
    training_lines,
    training_parts_lines,
    training_profile_lines,
    training_times_lines,
)


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


def evaluation_table(record: Record) -> str:
    """Seconds to score a set, one line per rule: the record of ``benchmarks/evaluation.py``."""
    shown = ("seconds", "collect_seconds", "compute_seconds")
    lines = [
        [row["what"], *(f"{row[key]:.3g} s" if key in row else "–" for key in shown)]
        for row in record["rows"]
    ]
    return markdown(["what", "in all", "collecting", "computing"], lines, left=1)


TABLES: dict[str, Callable[[Record], str]] = {
    "setup": setup_line,
    "losses": losses_table,
    "losses-device": lambda record: losses_table(record, clock="device"),
    "losses-forward": lambda record: losses_table(record, mode="forward"),
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
    "repeats": partial(repeats_table, detector="yolov5s", epochs=BUDGET),
    "runs-faster-rcnn": partial(detector_runs, detector=FASTER_RCNN),
    "runs-detr": partial(detector_runs, detector=DETR),
    "speeds-yolov5x": partial(speeds_table, detector="yolov5x"),
    "findings": findings,
    "index": lambda record: markdown(*index_lines(record), left=1),
    "training": lambda record: markdown(*training_lines(record), left=1),
    "training-parts": lambda record: markdown(*training_parts_lines(record), left=1),
    "training-times": lambda record: markdown(*training_times_lines(record), left=1),
    "training-profile": lambda record: markdown(*training_profile_lines(record), left=1),
    "norm-silu": lambda record: markdown(*norm_silu_lines(record), left=0),
    "detectors": lambda record: markdown(*detector_lines(record), left=2),
    "detectors-parts": lambda record: markdown(*detector_parts_lines(record), left=1),
    "side-by-side": lambda record: markdown(*side_by_side_lines(record), left=0),
    "integrations": lambda record: markdown(*integration_lines(record), left=3),
    "framework-runs": framework_runs_table,
    "noise": lambda record: markdown(*noise_lines(record), left=1),
    "noise-readings": lambda record: markdown(*reading_lines(record), left=1),
}
