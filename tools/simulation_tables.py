"""What ``alphaiou simulate`` writes, as tables."""

from __future__ import annotations

from alphaiou.inference.tables import markdown
from alphaiou.losses.spec import LossSpec
from benchmarks.record import Record


def simulation_table(record: Record) -> str:
    """What became of the boxes under each loss: the ``summary.csv`` of ``alphaiou simulate``."""
    shares = [key for key in record["rows"][0] if key.startswith("share_iou_over_")]
    head = ["loss", "mean IoU", *(f"IoU > {key.rpartition('_')[2]}" for key in shares)]
    lines = [
        [
            LossSpec.parse(row["loss"]).display_name,
            f"{float(row['mean_iou']):.3f}",
            *(f"{float(row[key]):.1%}" for key in shares),
            f"{float(row['total_error']):,.0f}",
        ]
        for row in record["rows"]
    ]
    return markdown([*head, "total error"], lines, left=1)


def simulation_variants_table(record: Record) -> str:
    """The mean final IoU of each loss under several settings of the simulation."""
    settings = {
        "published": "as published",
        "equal-slope": "`--equal-slope`",
        "near": "`--radius 0.5`",
        "near-equal-slope": "`--radius 0.5 --equal-slope`",
    }
    means = {
        name: {row["loss"]: float(row["mean_iou"]) for row in record["tables"][name]}
        for name in settings
    }
    lines = [
        [LossSpec.parse(loss).display_name, *(f"{means[name][loss]:.3f}" for name in settings)]
        for loss in means["published"]
    ]
    return markdown(["loss", *settings.values()], lines, left=1)
