"""Several seeds of a comparison as a table: results/compare/seeds.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

from alphaiou.inference.tables import cell, markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import column_title
from alphaiou.study.statistics import paired_change
from alphaiou.study.tables import change_text

SCORES = ("ap50", "ap75", "map", "map75_95")


def seeds_table(record: Mapping[str, Any]) -> str:
    """The mean of each score over the seeds, with the lowest and the highest, as Markdown.

    Losses after the first also have their changes against it.

    Args:
        record: ``rows`` of ``loss``, ``seed`` and ``scores``.
    """
    by_loss: dict[str, dict[int, Mapping[str, float]]] = {}
    for row in record["rows"]:
        by_loss.setdefault(row["loss"], {})[row["seed"]] = row["scores"]
    first, *_ = by_loss.values()
    lines = []
    for loss, runs in by_loss.items():
        spread = [_by_seed(runs, score) for score in SCORES]
        means = [f"{cell(fmean(x.values()))} ({_range(x.values())})" for x in spread]
        lines.append([LossSpec.parse(loss).display_name, str(len(runs)), *means])
        if runs is not first:
            changes = [
                paired_change(_by_seed(runs, score), _by_seed(first, score)) for score in SCORES
            ]
            lines.append(["– change", "", *map(change_text, changes)])
    return markdown(["loss", "seeds", *map(column_title, SCORES)], lines, left=1)


def _by_seed(runs: Mapping[int, Mapping[str, float]], score: str) -> dict[int, float]:
    return {seed: scores[score] for seed, scores in runs.items()}


def _range(values: Collection[float]) -> str:
    return f"{cell(min(values))} to {cell(max(values))}"
