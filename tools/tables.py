"""The tables of README.md and docs/ by name: each makes Markdown from a record."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from alphaiou.metrics.columns import column_title
from alphaiou.paper.scales import BUDGET
from benchmarks.record import Record
from tools.claims import claims_table
from tools.compare_tables import seeds_table
from tools.data_tables import evaluation_table, index_table, noise_table, readings_table
from tools.error_tables import error_changes
from tools.export_tables import export_table
from tools.export_tables import precision_table as export_precision_table
from tools.framework_tables import (
    formulas_table,
    frameworks_table,
    mmdetection_table,
    openmmlab_table,
    plain_kinds_table,
    plain_table,
    versions_table,
)
from tools.loss_tables import (
    agreement_table,
    figures,
    fuzz_table,
    fuzz_total_table,
    kinds_table,
    losses_table,
    memory_table,
    precision_table,
    quality_fuzz_table,
    simulation_table,
    simulation_variants_table,
)
from tools.oriented_tables import (
    angle_table,
    areas_table,
    contract_table,
    contract_total_table,
    oriented_runs_table,
    speed_table,
)
from tools.reliability_tables import (
    damage_table,
    faults_answer,
    faults_cost,
    faults_table,
    suite_line,
)
from tools.runs import headline_table, repeats_table, scatter_table
from tools.training_tables import (
    detector_parts_table,
    detector_table,
    framework_runs_table,
    integration_table,
    norm_silu_table,
    side_by_side_table,
    small_sets_table,
    training_parts_table,
    training_profile_table,
    training_table,
    training_times_table,
)

README_COLUMNS = ("ap50", "ap75", "ap95", "map", "map75_95")
#: The tables of docs/findings.md: their claims and their scores.
CLAIMS = {
    "paper": (("alpha3", "alpha3-diou", "gain2", "gain2-diou", "best"), README_COLUMNS),
    "gains": (
        ("gain0.5", "gain2", "gain3", "alpha3-gain0.5", "alpha3-gain2", "alpha3-gain3"),
        ("ap50", "map", "map75_95", "ap95"),
    ),
    "tuned": (("tuned", "tuned-alpha", "tuned-power"), ("ap50", "map", "map75_95", "ap95")),
}


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
    "losses-short-wall": partial(losses_table, kinds=("ciou",)),
    "losses-forward": partial(losses_table, mode="forward"),
    "kinds": kinds_table,
    "precision": precision_table,
    "memory": memory_table,
    "fuzz": fuzz_table,
    "fuzz-total": fuzz_total_table,
    "fuzz-quality": quality_fuzz_table,
    "export": export_table,
    "export-precision": export_precision_table,
    "agreement": agreement_table,
    "oriented-contract": contract_table,
    "oriented-ordinary": partial(contract_table, domain="ordinary"),
    "oriented-total": contract_total_table,
    "oriented-areas": areas_table,
    "oriented-speed": speed_table,
    "oriented-angle": angle_table,
    "oriented-runs": oriented_runs_table,
    "damage": damage_table,
    "faults": faults_table,
    "faults-answer": faults_answer,
    "faults-cost": faults_cost,
    "suite": suite_line,
    "simulation": simulation_table,
    "simulation-variants": simulation_variants_table,
    "evaluation": evaluation_table,
    "compare-seeds": seeds_table,
    "headline-short": headline_short,
    "repeats": partial(repeats_table, detector="yolov5s", epochs=BUDGET),
    "scatter": partial(scatter_table, detector="yolov5s", epochs=BUDGET),
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
    "frameworks": frameworks_table,
    "mmdetection": mmdetection_table,
    "mmyolo": partial(openmmlab_table, package="mmyolo"),
    "mmrotate": partial(openmmlab_table, package="mmrotate"),
    "mm-formulas": formulas_table,
    "versions": versions_table,
    "plain": plain_table,
    "plain-kinds": plain_kinds_table,
    "framework-runs": framework_runs_table,
    "small-sets": small_sets_table,
    "noise": noise_table,
    "errors-photographs": partial(error_changes, data="voc320-objects"),
    "errors-shapes": partial(error_changes, data="shapes-plain"),
    "noise-readings": readings_table,
    **{
        f"claims-{name}": partial(claims_table, names=names, columns=columns)
        for name, (names, columns) in CLAIMS.items()
    },
}
