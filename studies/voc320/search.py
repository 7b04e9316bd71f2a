"""A search: what is to be beaten, what was tried, and what that changes.

IoU with a larger box gain has part of what a power brings; so the gain that is best for IoU is what
a candidate has to beat, and not the paper's. A candidate that moves more than its loss and the box
gain is also compared with IoU that has the same: else that would be taken for the power.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from alphaiou.losses.spec import LossSpec
from alphaiou.study.records import CellRuns
from alphaiou.study.statistics import PairedChange, paired_change
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import at_default_gain
from studies.voc320.best import CHOSEN_BY, at_best_gain

THRESHOLDS = tuple(f"ap{percent}" for percent in range(50, 100, 5))
#: By how much a candidate has to be better, as a part of what the best IoU scores.
WANTED = {"map75_95": 0.06, "ap95": 0.5}
#: The scores of the table.
SEARCHED = (*THRESHOLDS, CHOSEN_BY)

Changes = Mapping[str, PairedChange]


def against_best(cells: Mapping[str, CellRuns]) -> dict[str, CellRuns]:
    """The cells, compared with plain IoU at its best gain: that first, then the best of them."""
    best = best_of(to_beat(cells))
    if best is None:
        return dict(cells)
    label = best.cell.label
    ranks = {name: rank(changes_against(own, best)) for name, own in cells.items()}
    return {
        name: replace(
            cells[name], cell=replace(cells[name].cell, baseline=None if name == label else label)
        )
        for name in sorted(cells, key=lambda name: (name != label, ranks[name]))
    }


def exchanges(cells: Mapping[str, CellRuns]) -> dict[str, Changes]:
    """What each row changes against plain IoU at its best gain; nothing where none is a candidate.

    IoU at its other gains is among them: what is given up for what without a power.
    """
    best = best_of(to_beat(cells))
    if best is None or not candidates_of(cells):
        return {}
    changes = {label: changes_against(own, best) for label, own in cells.items()}
    return {label: own for label, own in changes.items() if own}


def to_beat(cells: Mapping[str, CellRuns]) -> list[CellRuns]:
    """Plain IoU at the gains that were run."""
    return [own for own in cells.values() if own.runs and own.cell.to_beat]


def candidates_of(cells: Mapping[str, CellRuns]) -> list[CellRuns]:
    """All else that was run."""
    return [own for own in cells.values() if own.runs and not own.cell.to_beat]


def best_of(plain: Sequence[CellRuns]) -> CellRuns | None:
    """IoU at the gain that is best for it; None where it was not run."""
    return at_best_gain(plain) if plain else None


def changes_against(own: CellRuns, best: CellRuns) -> Changes:
    """What differs at each threshold and at what is wanted; nothing without a seed of both."""
    columns = dict.fromkeys((*THRESHOLDS, *WANTED))
    changes = {c: paired_change(own.scores(c), best.scores(c)) for c in columns}
    return {column: change for column, change in changes.items() if change is not None}


def rank(changes: Changes) -> tuple[int, float]:
    """Those that are above at the most thresholds come first, of these the highest."""
    above = sum(changes[c].difference > 0 for c in THRESHOLDS if c in changes)
    return -above, -changes[CHOSEN_BY].relative if changes else 0.0


def all_else_alike(candidates: Sequence[CellRuns]) -> list[tuple[CellRuns, CellRuns]]:
    """Candidates, each with IoU at its best box gain and the same other settings, if it was run."""
    alike: dict[Recipe, list[CellRuns]] = {}
    for own in candidates:
        alike.setdefault(_as_plain(own.cell.recipe), []).append(own)
    pairs = []
    for plain, rows in alike.items():
        controls = [own for own in rows if _is_at_a_gain(own.cell.recipe, plain)]
        control = best_of(controls)
        if control is not None:
            pairs += [(own, control) for own in rows if own not in controls]
    return pairs


def _as_plain(recipe: Recipe) -> Recipe:
    """Plain IoU at the usual box gain, all else as it is."""
    return at_default_gain(replace(recipe, loss=LossSpec("iou"), alpha_schedule=None))


def _is_at_a_gain(recipe: Recipe, plain: Recipe) -> bool:
    return replace(plain, box_gain=recipe.box_gain) == recipe
