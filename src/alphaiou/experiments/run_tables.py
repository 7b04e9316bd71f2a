"""Records of runs as tables: each loss, what it changes, and what the paper says it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from alphaiou.experiments.markdown import markdown
from alphaiou.experiments.published import published_scores
from alphaiou.experiments.score_tables import cell, column_title
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.comparison import PAPER_COLUMNS, relative_improvement
from alphaiou.training.recipe import Recipe

RunRecord = Mapping[str, Any]


def runs_table(record: Mapping[str, Any]) -> str:
    """The runs of one seed, every other one against the one with its kind, α = 1 and plain gain."""
    lines: list[list[str]] = []
    runs = in_order(record["runs"])
    for run in runs:
        lines.append([run_name(run), *(cell(run["scores"][c]) for c in PAPER_COLUMNS)])
        base = _baseline(run, runs)
        if base is not run:
            lines.append(["– change", *_changes(run["scores"], base["scores"])])
            theirs, before = (published_scores(*_setting(one)) for one in (run, base))
            if theirs and before and _is_plain(run):
                lines.append(["– change in the paper", *_changes(theirs, before)])
    return markdown(["loss", *map(column_title, PAPER_COLUMNS)], lines, left=1)


def in_order(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Runs by their losses, the paper's first."""
    return sorted(runs, key=_order)


def run_name(run: RunRecord) -> str:
    """The loss of a run, and its gain where that is unusual."""
    gain = "" if _is_plain(run) else f", box gain ×{_gain(run):g}"
    return f"{_loss(run).display_name}{gain}"


def _loss(run: RunRecord) -> LossSpec:
    return LossSpec(**run["recipe"]["loss"])


def _gain(run: RunRecord) -> float:
    return float(run["recipe"]["box_gain"] / Recipe.box_gain)


def _is_plain(run: RunRecord) -> bool:
    return _gain(run) == 1.0


def _order(run: RunRecord) -> tuple[int, float, float]:
    kinds = ("iou", "giou", "diou", "ciou")
    loss = _loss(run)
    place = kinds.index(loss.kind) if loss.kind in kinds else len(kinds)
    return place, loss.alpha, _gain(run)


def _baseline(run: RunRecord, runs: Sequence[RunRecord]) -> RunRecord:
    kind = _loss(run).kind
    return next(
        one for one in runs if (_loss(one).kind, _loss(one).alpha, _gain(one)) == (kind, 1.0, 1.0)
    )


def _setting(run: RunRecord) -> tuple[str, str]:
    loss = _loss(run)
    return run["recipe"]["detector"], f"{loss.kind}:{loss.alpha:g}"


def _changes(scores: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    return [
        cell(relative_improvement(scores[c], before[c]), improvement=True) for c in PAPER_COLUMNS
    ]
