"""Several seeds of a comparison as a table: results/compare/seeds.json."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import fmean
from typing import Any

from alphaiou.inference.tables import cell, markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import column_title
from alphaiou.study.statistics import compare, fit
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
    first, *others = by_loss
    rows = [(row["loss"], row["seed"], row["scores"]) for row in record["rows"]]
    changes = [
        compare(fit((*run, scores[c]) for *run, scores in rows), dict.fromkeys(others, first))
        for c in SCORES
    ]
    lines = []
    for loss, runs in by_loss.items():
        spread = [[scores[c] for scores in runs.values()] for c in SCORES]
        means = [f"{cell(fmean(values))} ({_range(values)})" for values in spread]
        lines.append([LossSpec.parse(loss).display_name, str(len(runs)), *means])
        if loss != first:
            lines.append(["– change", "", *(change_text(one.get(loss)) for one in changes)])
    return markdown(["loss", "seeds", *map(column_title, SCORES)], lines, left=1)


def _range(values: Collection[float]) -> str:
    return f"{cell(min(values))} to {cell(max(values))}"
