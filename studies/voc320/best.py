"""Each loss at the box gain that is best for it: the comparison that the paper does not make.

A power makes the gradient of boxes that overlap well larger, so that α acts as a larger gain too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from alphaiou.inference.tables import column_title
from alphaiou.study.records import CellRuns, at_shared_seeds
from alphaiou.study.statistics import paired_change, verdict
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import gain_factor, without_power

#: The score that a gain is chosen by.
CHOSEN_BY = "map75_95"


def best_against_best(cells: Mapping[str, CellRuns], columns: Sequence[str]) -> list[str]:
    """Sentences on the α versions in a grid, each at its best gain, against the loss at its own.

    Nothing is said of a grid that does not vary the gain. The gain is the one with the best mean
    of :data:`CHOSEN_BY` on the images that are scored, for every loss alike: this flatters all.
    """
    lines = by_loss(cells)
    pairs = [
        (line, lines[plain])
        for recipe, line in lines.items()
        if (plain := without_power(recipe)) != recipe and plain in lines
    ]
    compared = [pair for pair in pairs if max(map(len, pair)) > 1]
    if not compared:
        return []
    tried = "; ".join(_tried(line) for pair in compared for line in reversed(pair))
    chosen = f"gains chosen by {column_title(CHOSEN_BY)} on the scored images"
    how = f"Best against best, {chosen}: {tried}."
    return [how] + [_sentence(powered, plain, c) for c in columns for powered, plain in compared]


def _sentence(powered: Sequence[CellRuns], plain: Sequence[CellRuns], column: str) -> str:
    best, other = at_best_gain(powered), at_best_gain(plain)
    return verdict(
        paired_change(best.scores(column), other.scores(column)),
        f"{loss_title(best)} at its best gain",
        f"{loss_title(other)} at its own",
        column_title(column),
    )


def by_loss(cells: Mapping[str, CellRuns]) -> dict[Recipe, list[CellRuns]]:
    """The cells that differ in nothing but the gain, by what they have in common."""
    lines: dict[Recipe, list[CellRuns]] = {}
    for own in cells.values():
        if own.runs:
            # Of the seeds a cell's recipe has one; how often a run was scored changes nothing.
            alike = replace(own.cell.recipe, box_gain=Recipe.box_gain, seed=0, evaluate_every=0)
            lines.setdefault(alike, []).append(own)
    return lines


def at_best_gain(line: Sequence[CellRuns]) -> CellRuns:
    """The one of several gains that scores best over the seeds that all of them have.

    One seed decides nothing: where other gains have several, one that has not is left out.
    """
    several = [own for own in line if len(own.runs) > 1] or line
    levels = [fmean(own.scores(CHOSEN_BY).values()) for own in at_shared_seeds(several)]
    return several[levels.index(max(levels))]


def _tried(line: Sequence[CellRuns]) -> str:
    """The best gain of a loss, and those among which it is."""
    best = at_best_gain(line)
    gains = ", ".join(f"×{gain_factor(own.cell.recipe):g}" for own in line)
    return f"{loss_title(best)} ×{gain_factor(best.cell.recipe):g} of {gains}"


def loss_title(own: CellRuns) -> str:
    """The loss of a cell, and the noise that it was trained with."""
    recipe = own.cell.recipe
    return recipe.loss_name + (f", η={recipe.noise:g}," if recipe.noise else "")
