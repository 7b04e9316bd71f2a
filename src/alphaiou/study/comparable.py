"""Records of runs that can be compared: all but the box loss, its gain and the seed is the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphaiou.detectors.registry import settings_of
from alphaiou.losses.spec import LossSpec
from alphaiou.paper.published import loss_key, published_scores
from alphaiou.study.grid import Cell
from alphaiou.study.records import CellRuns, RunRecord
from alphaiou.training.recipe import Recipe, recipe_from
from alphaiou.training.recipes import (
    at_default_gain,
    gain_factor,
    gain_name,
    is_constant,
    other_factors,
    without_power,
)

#: The order of the kinds in a table; others follow by name.
KINDS = ("l1", "smooth_l1", "iou", "giou", "diou", "ciou")


@dataclass(frozen=True)
class ComparableRuns:
    """Runs that belong in one table.

    Attributes:
        setting: What they have in common, with a loss and a gain that say nothing.
        rows: The runs of each loss by its label, with the row that it is compared with: the same
            kind with α = 1 at the usual gain, where that was run.
    """

    setting: Recipe
    rows: Mapping[str, CellRuns]

    @property
    def title(self) -> str:
        """What was trained on what, for how long."""
        recipe = self.setting
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
        return ", ".join([*parts, *_unusual(recipe)])

    @property
    def runs(self) -> list[RunRecord]:
        """All of them, row by row."""
        return [run for row in self.rows.values() for run in row.runs.values()]


def _unusual(recipe: Recipe) -> list[str]:
    """What counts more or less than it does in the paper's YOLOv5; other detectors have none."""
    return other_factors(recipe, Recipe()) if "class_gain" in settings_of(recipe.detector) else []


def comparable_runs(runs: Iterable[RunRecord]) -> list[ComparableRuns]:
    """The tables that some runs make, those with the most rows first."""
    settings: dict[Recipe, list[tuple[Recipe, RunRecord]]] = {}
    for run in runs:
        recipe: Recipe = recipe_from(run["recipe"])
        settings.setdefault(_setting(recipe), []).append((recipe, run))
    tables = [ComparableRuns(setting, _rows(own)) for setting, own in settings.items()]
    return sorted(tables, key=lambda table: (-len(table.rows), table.title))


def plain_runs(
    runs: Iterable[RunRecord], detector: str, epochs: int | None = None
) -> ComparableRuns | None:
    """The largest table of a detector with clean boxes, all images and all else as usual.

    Args:
        runs: Among which to look.
        detector: Its name in recipes.
        epochs: How long it was trained; any length unless given.
    """
    usual = Recipe.noise, Recipe.subset, Recipe.objectness
    for table in comparable_runs(runs):
        own = table.setting
        asked = own.detector == detector and epochs in (None, own.epochs)
        if asked and (own.noise, own.subset, own.objectness) == usual and not _unusual(own):
            return table
    return None


def run_label(recipe: Recipe) -> str:
    """The loss of a run, and its schedule and gain where these are unusual.

    Examples:
        >>> run_label(Recipe(box_gain=0.1))
        'α-IoU (α=3), box gain ×2'
    """
    gain = gain_name(recipe)
    return recipe.loss_name if gain == "×1" else f"{recipe.loss_name}, box gain {gain}"


def _setting(recipe: Recipe) -> Recipe:
    """The recipe without what may differ; where the data lie changes no result."""
    recipe = at_default_gain(replace(recipe, loss=LossSpec("iou"), alpha_schedule=None))
    data = replace(recipe.data, path=Path(recipe.data.path).name)
    return replace(recipe, data=data, seed=0, evaluate_every=0)


def _rows(runs: Sequence[tuple[Recipe, RunRecord]]) -> dict[str, CellRuns]:
    by_label: dict[str, dict[int, RunRecord]] = {}
    recipes: dict[str, Recipe] = {}
    for recipe, run in sorted(runs, key=lambda one: _order(one[0])):
        label = run_label(recipe)
        recipes.setdefault(label, recipe)
        by_label.setdefault(label, {}).setdefault(recipe.seed, run)
    return {
        label: CellRuns(_cell(label, recipe, recipes), by_label[label])
        for label, recipe in recipes.items()
    }


def _cell(label: str, recipe: Recipe, others: Mapping[str, Recipe]) -> Cell:
    baseline = run_label(at_default_gain(without_power(recipe)))
    known = baseline in others and baseline != label
    return Cell(label, recipe, baseline if known else None, _published(recipe))


def _published(recipe: Recipe) -> dict[str, float]:
    """What the paper prints for a run with clean boxes and all images."""
    usual = is_constant(recipe) and gain_factor(recipe) == 1
    if not usual or recipe.noise or recipe.subset < 1:
        return {}
    return published_scores(recipe.detector, loss_key(recipe.loss)) or {}


def _order(recipe: Recipe) -> tuple[object, ...]:
    loss = recipe.loss
    place = KINDS.index(loss.kind) if loss.kind in KINDS else len(KINDS)
    powers = loss.alpha, -1.0 if loss.penalty_alpha is None else loss.penalty_alpha
    schedule = str(recipe.alpha_schedule or "")
    gains = gain_factor(recipe), recipe.final_box_gain or 0.0
    return place, loss.kind, loss.modifiers, *powers, schedule, *gains, recipe.seed
