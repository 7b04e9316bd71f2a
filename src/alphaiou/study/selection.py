"""Choosing the best row of each loss on one split, and reporting its scores on another.

A loss whose gain or α is chosen on the images that its scores are of looks better than it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from statistics import fmean
from typing import Literal

from alphaiou.losses.spec import LossSpec
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, at_shared_seeds, grid_runs
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.recipes import at_default_gain

#: In place of an epoch: that of the saved weights.
SAVED = -1
#: What a group of candidates shares: the loss and its α, or the kind of loss alone.
Per = Literal["loss", "kind"]


def select(
    rows: Iterable[RowRuns],
    column: str,
    *,
    by: Callable[[RowRuns], Hashable],
    on: str = "val",
    report: str = "test",
    epochs: bool = False,
) -> dict[Hashable, RowRuns]:
    """Choose the best row of each group on one split, and report its scores on another.

    Rows are compared by their means over the seeds that all rows of a group have. Rows with one
    seed are left out where others have several: the best of many single runs is mostly luck.

    Args:
        rows: The candidates, such as one loss at several box gains.
        column: The score to choose by.
        by: The group of a row.
        on: The split to choose on, ``val`` or ``test``.
        report: The split whose scores are reported; where it is ``on``, tables say so.
        epochs: Whether the epoch is chosen too, of those with scores on both splits; otherwise the
            scores are those of the saved weights.

    Returns:
        The chosen row of each group; its records hold the scores on ``report`` and, as
        ``selected``, the epoch and the split. A group without scores on both splits is left out.
    """
    groups: dict[Hashable, list[RowRuns]] = {}
    for row in rows:
        if row.runs:
            groups.setdefault(by(row), []).append(row)
    chosen = {}
    for group, members in groups.items():
        several = [row for row in members if len(row.runs) > 1] or members
        candidates = [
            (fmean(_scored(shared, on, epoch).scores(column).values()), row, epoch)
            for row, shared in zip(several, at_shared_seeds(several), strict=True)
            for epoch in (_epochs(row, on, report) if epochs else [SAVED])
            if all(epoch in split_scores(run, s) for _, run in row.every() for s in (on, report))
        ]
        candidates = [one for one in candidates if math.isfinite(one[0])]
        if candidates:
            _, row, epoch = max(candidates, key=lambda one: one[0])
            chosen[group] = _scored(row, report, epoch, on)
    return chosen


def split_scores(run: RunRecord, split: str) -> dict[int, Mapping[str, float]]:
    """The scores of a run on ``val`` or ``test`` by epoch; those of the saved weights at SAVED."""
    scores = {entry["epoch"]: entry[split] for entry in run["history"] if split in entry}
    saved = _saved_epoch(run)
    if scored_split(run) == split:
        scores[saved] = run["scores"]
    return scores | ({SAVED: scores[saved]} if saved in scores else {})


def scored_on(row: RowRuns, split: str) -> RowRuns:
    """The row with the scores of its saved weights on a split; runs without them are left out."""
    return _scored(row.where(lambda _, run: SAVED in split_scores(run, split)), split, SAVED)


def scored_split(run: RunRecord) -> str:
    """Whether the scores of a record are of its ``test`` or of its ``val`` split."""
    return "test" if run["scored_on"] == run["recipe"]["data"]["test"] else "val"


def is_scored_where_selected(run: RunRecord) -> bool:
    """Whether weights or hyperparameters were selected on the images that the scores are of."""
    selected = run.get("selected")
    return isinstance(selected, Mapping) and selected["on"] == scored_split(run)


def _saved_epoch(run: RunRecord) -> int:
    selected = run.get("selected")
    return int(selected["epoch"] if isinstance(selected, Mapping) else run["recipe"]["epochs"])


def _epochs(row: RowRuns, on: str, report: str) -> list[int]:
    """The epochs at which any run of a row has scores on both splits."""
    both = (split_scores(run, on).keys() & split_scores(run, report) for _, run in row.every())
    return sorted(set().union(*both) - {SAVED})


def _scored(row: RowRuns, split: str, epoch: int, selected_on: str = "") -> RowRuns:
    """The row with the scores of one split and epoch, and what these were selected on."""

    def scored(run: RunRecord) -> RunRecord:
        name = run["scored_on"] if scored_split(run) == split else run["recipe"]["data"][split]
        at = _saved_epoch(run) if epoch == SAVED else epoch
        found = {**run, "scores": split_scores(run, split)[epoch], "scored_on": name}
        kept = epoch == SAVED and is_scored_where_selected(found)  # a bias that stays
        if selected_on and not kept:
            found["selected"] = {"epoch": at, "on": selected_on}
        return found

    return row.each(scored)


# Rows of a grid


def candidates_of(grid: Grid, records: Mapping[str, RunRecord], per: Per) -> list[list[RowRuns]]:
    """The rows of a grid in groups that differ in their box gains, and in α if chosen per kind.

    Args:
        grid: The grid.
        records: By the names of their runs.
        per: What a group shares.
    """
    groups: dict[str, list[RowRuns]] = {}
    for row in grid_runs(grid, records).values():
        groups.setdefault(_group(row.row.recipe, per), []).append(row)
    return list(groups.values())


def _group(recipe: Recipe, per: Per) -> str:
    recipe = at_default_gain(recipe)
    if per == "kind":
        loss = LossSpec(recipe.loss.kind, modifiers=recipe.loss.modifiers)
        recipe = replace(recipe, loss=loss, alpha_schedule=None)
    return recipe_hash(recipe)
