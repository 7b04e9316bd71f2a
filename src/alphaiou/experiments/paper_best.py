"""Each loss at the box gain that is best for it: the comparison that the paper does not make.

A power makes the gradient of boxes that overlap well larger, so that α acts as a larger gain too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.recipes import gain_factor
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.statistics import paired_change, verdict
from alphaiou.training.recipe import Recipe

#: The score that a gain is chosen by.
CHOSEN_BY = "map75_95"


def best_against_best(cells: Mapping[str, CellRuns], columns: Sequence[str]) -> list[str]:
    """Sentences on the losses of a grid, each at its best gain, against the first of them.

    Nothing is said of a grid that does not vary the gain. The gain is the one with the best mean
    of :data:`CHOSEN_BY` on the images that are scored, for every loss alike: this flatters all.
    """
    lines = _by_loss(cells)
    if len(lines) < 2 or max(map(len, lines)) < 2:
        return []
    first, *others = (max(line, key=level) for line in lines)
    tried = "; ".join(
        f"{_loss(best)} ×{gain_factor(best.cell.recipe):g} of {', '.join(_gains(line))}"
        for best, line in zip((first, *others), lines, strict=True)
    )
    chosen = f"gains chosen by {column_title(CHOSEN_BY)} on the scored images"
    how = f"Best against best, {chosen}: {tried}."
    return [how] + [
        verdict(
            paired_change(other.scores(column), first.scores(column)),
            f"{_loss(other)} at its best gain",
            f"{_loss(first)} at its own",
            column_title(column),
        )
        for column in columns
        for other in others
    ]


def _by_loss(cells: Mapping[str, CellRuns]) -> list[list[CellRuns]]:
    """The cells that differ in nothing but the gain."""
    lines: dict[Recipe, list[CellRuns]] = {}
    for own in cells.values():
        if own.runs:
            lines.setdefault(replace(own.cell.recipe, box_gain=Recipe.box_gain), []).append(own)
    return list(lines.values())


def level(own: CellRuns) -> float:
    """The mean over seeds of the score that a gain is chosen by."""
    values = list(own.scores(CHOSEN_BY).values())
    return sum(values) / len(values)


def _gains(line: Sequence[CellRuns]) -> list[str]:
    return [f"×{gain_factor(own.cell.recipe):g}" for own in line]


def _loss(own: CellRuns) -> str:
    return own.cell.recipe.loss_name
