"""Trainings of another framework as a table: its own box loss, and what another one changes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from alphaiou.inference.tables import comparison_markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.comparison import comparison_rows


def framework_runs_table(record: Mapping[str, Any]) -> str:
    """The scores of each loss, those of the framework's own first, and how they came about."""
    runs = sorted(record["runs"], key=lambda run: not run["loss"]["own"])
    rows = comparison_rows({_loss_name(run): run["scores"] for run in runs})
    return f"{comparison_markdown(rows, first='loss')}\n\n{_circumstances(runs[0])}"


def _loss_name(run: Mapping[str, Any]) -> str:
    loss = dict(run["loss"])
    is_own = loss.pop("own")
    name = LossSpec(**loss).display_name
    return f"{name}, its own" if is_own else name


def _circumstances(run: Mapping[str, Any]) -> str:
    settings, versions = run["settings"], run["versions"]
    seconds = statistics.median(epoch["seconds"] for epoch in run["history"])
    return (
        f"{run['framework']} {run['version']}, {run['model']} from random weights on "
        f"{run['train_images']:,} images of {run['data']}: {settings['epochs']} epochs at "
        f"{settings['imgsz']} px, batch {settings['batch']}, {settings['optimizer']}, box gain "
        f"{settings['box']:g}, seed {settings['seed']}. Scored on {run['test_images']:,} test "
        f"images by its own validator. {run['device']}, torch {versions['torch']}, "
        f"{run['side_by_side']} trainings side by side, {seconds:.1f} s an epoch."
    )
