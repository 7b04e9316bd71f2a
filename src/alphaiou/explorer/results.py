"""The records of trainings as the explorer shows them: means over seeds, changes, intervals."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alphaiou.experiments.run_tables import in_order, run_name
from alphaiou.experiments.statistics import PairedChange, paired_change
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import Recipe, recipe_from, recipe_hash

RunRecord = Mapping[str, Any]

SCORES = (*(f"ap{threshold}" for threshold in range(50, 100, 5)), "map", "map75_95")


def summarise(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Trainings that differ in loss and gain alone, as the tables of the page.

    Returns:
        For each setting its ``title`` and its ``runs``. A run has its ``name`` and ``kind``, its
        ``alpha`` where that is all that sets it apart from its baseline (else None), the number
        of ``seeds``, its mean ``scores``, and its ``changes`` against the baseline, the same kind
        with α = 1 at the plain gain: ``mean``, and with several seeds ``low`` to ``high``.
    """
    settings: dict[str, list[RunRecord]] = {}
    for record in records:
        settings.setdefault(_setting(record), []).append(record)
    tables = [_table(runs) for runs in settings.values()]
    return sorted(tables, key=lambda table: (-len(table["runs"]), table["title"]))


def _setting(record: RunRecord) -> str:
    """What is the same in all runs of a table."""
    recipe: Recipe = recipe_from(record["recipe"])
    plain = replace(recipe, loss=LossSpec("iou"), alpha_schedule=None, box_gain=Recipe.box_gain)
    return recipe_hash(replace(plain, seed=0, evaluate_every=0))


def _table(runs: Sequence[RunRecord]) -> dict[str, Any]:
    by_name: dict[str, list[RunRecord]] = {}
    for run in in_order(runs):
        by_name.setdefault(_name(run), []).append(run)
    lines = [_line(name, own, by_name) for name, own in by_name.items()]
    return {"title": _title(recipe_from(runs[0]["recipe"])), "runs": lines}


def _name(run: RunRecord) -> str:
    return run_name(run) + (", α scheduled" if run["recipe"].get("alpha_schedule") else "")


def _line(
    name: str, runs: Sequence[RunRecord], by_name: Mapping[str, Sequence[RunRecord]]
) -> dict[str, Any]:
    loss = LossSpec(**runs[0]["recipe"]["loss"])
    plain = LossSpec(loss.kind).display_name
    base = [] if name == plain else by_name.get(plain, [])
    changes = {s: paired_change(_by_seed(runs, s), _by_seed(base, s)) for s in SCORES}
    return {
        "name": name,
        "kind": loss.kind,
        "alpha": loss.alpha if name == LossSpec(loss.kind, loss.alpha).display_name else None,
        "seeds": len(runs),
        "scores": {s: round(statistics.fmean(_by_seed(runs, s).values()), 6) for s in SCORES},
        "changes": {s: _change(c) for s, c in changes.items() if c is not None} or None,
    }


def _by_seed(runs: Sequence[RunRecord], score: str) -> dict[int, float]:
    return {run["recipe"]["seed"]: run["scores"][score] for run in runs}


def _change(change: PairedChange) -> dict[str, float | None]:
    """Rounded to more digits than the page shows, so that it is the same on every machine."""
    ends = change.student
    return {
        "mean": round(change.difference, 6),
        "low": None if ends is None else round(ends.low, 6),
        "high": None if ends is None else round(ends.high, 6),
    }


def _title(recipe: Recipe) -> str:
    parts = [
        f"{recipe.detector} on {recipe.data.path}",
        f"{recipe.image_size} px",
        f"{recipe.epochs} epochs",
    ]
    if recipe.noise:
        parts.append(f"noise {recipe.noise:g}")
    if recipe.subset < 1:
        parts.append(f"{recipe.subset:.0%} of the images")
    if recipe.objectness != Recipe.objectness:
        parts.append(f"objectness by {recipe.objectness}")
    return ", ".join(parts)
