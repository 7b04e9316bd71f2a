"""Whether anything beats IoU at its own best gain at every threshold: what was tried, and its end.

IoU with a larger box gain has part of what a power brings; so the gain that is best for IoU is what
a candidate has to beat, and not the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from alphaiou.experiments.paper_best import CHOSEN_BY, level
from alphaiou.experiments.paper_luck import expected_best, seed_scatter
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.recipes import is_steady
from alphaiou.experiments.score_tables import cell, column_title
from alphaiou.experiments.statistics import PairedChange, paired_change, seeds_word
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import Recipe

THRESHOLDS = tuple(f"ap{percent}" for percent in range(50, 100, 5))
#: By how much a candidate has to be better, as a part of what the best IoU scores.
WANTED = {"map75_95": 0.06, "ap95": 0.5}

Changes = Mapping[str, PairedChange]


def against_best(cells: Mapping[str, CellRuns]) -> dict[str, CellRuns]:
    """The cells, compared with plain IoU at its best gain instead of the usual one."""
    best = _best([own for own in cells.values() if own.runs])
    if best is None:
        return dict(cells)
    label = best.cell.label
    return {
        name: replace(own, cell=replace(own.cell, baseline=None if name == label else label))
        for name, own in cells.items()
    }


def exchanges(cells: Mapping[str, CellRuns]) -> dict[str, Changes]:
    """What each row changes against plain IoU at its best gain; nothing where none is a candidate.

    IoU at its other gains is among them: what is given up for what without a power.
    """
    found = {label: own for label, own in cells.items() if own.runs}
    best = _best(list(found.values()))
    if best is None or all(is_plain(own.cell.recipe) for own in found.values()):
        return {}
    changes = {label: _changes(own, best) for label, own in found.items()}
    return {label: own for label, own in changes.items() if own}


def beyond_sentences(cells: Mapping[str, CellRuns]) -> list[str]:
    """Which candidates beat plain IoU at its best gain, and where each of them ends.

    The gain of IoU is the one with the best mean of :data:`CHOSEN_BY` on the images that are
    scored, which flatters what is to be beaten.
    """
    found = [own for own in cells.values() if own.runs]
    best = _best(found)
    candidates = [own for own in found if not is_plain(own.cell.recipe)]
    if best is None or not candidates:
        return []
    changes = {own.cell.label: _changes(own, best) for own in candidates}
    tried = "; ".join(own.cell.label for own in found if is_plain(own.cell.recipe))
    return [
        f"To beat: {best.cell.label}, by {column_title(CHOSEN_BY)} on the scored images the best "
        f"of: {tried}.",
        _conclusion(changes),
        *_luck(found, candidates, best),
        *(
            _end(label, changes[label])
            for label in sorted(changes, key=lambda c: _rank(changes[c]))
        ),
    ]


def _best(found: Sequence[CellRuns]) -> CellRuns | None:
    """Plain IoU at the gains that are best for it, of those with as many seeds as any others."""
    plain = [own for own in found if is_plain(own.cell.recipe)]
    most = max((len(own.runs) for own in plain), default=0)
    return max((own for own in plain if len(own.runs) == most), key=level, default=None)


def is_plain(recipe: Recipe) -> bool:
    """Whether it is IoU without a power, at whatever gains that stay."""
    return recipe.loss == LossSpec("iou") and is_steady(recipe)


def _changes(own: CellRuns, best: CellRuns) -> Changes:
    """What differs at each threshold and at what is wanted; nothing without a seed of both."""
    columns = dict.fromkeys((*THRESHOLDS, *WANTED))
    changes = {c: paired_change(own.scores(c), best.scores(c)) for c in columns}
    return {column: change for column, change in changes.items() if change is not None}


def _conclusion(changes: Mapping[str, Changes]) -> str:
    wanted = " and ".join(
        f"by {100 * share:g} % at {column_title(c)}" for c, share in WANTED.items()
    )
    asked = (
        f"Better at every threshold from {column_title(THRESHOLDS[0])} to "
        f"{column_title(THRESHOLDS[-1])}, {wanted}, all intervals clear of zero"
    )
    winners = [label for label, own in changes.items() if _has_won(own)]
    return f"{asked}: {'; '.join(winners) or f'none of the {len(changes)} that were run'}."


def _has_won(changes: Changes) -> bool:
    return bool(changes) and (
        all(_is_better(change) for change in changes.values())
        and all(changes[column].relative >= share for column, share in WANTED.items())
    )


def _is_better(change: PairedChange) -> bool:
    return change.decided and change.difference > 0


def _luck(found: Sequence[CellRuns], candidates: Sequence[CellRuns], best: CellRuns) -> list[str]:
    """What the scatter between seeds is, and what it makes of the best of many single seeds."""
    scatter = {column: seed_scatter(found, best, column) for column in WANTED}
    alone = sum(len(own.runs.keys() & best.runs.keys()) == 1 for own in candidates)
    if alone < 2 or not all(map(math.isfinite, scatter.values())):
        return []
    by_luck = expected_best(alone)
    said, ahead = (
        " and ".join(f"{100 * times * scatter[c]:.1f} % at {column_title(c)}" for c in WANTED)
        for times in (1.0, by_luck)
    )
    return [
        f"Luck: between seeds a difference to {best.cell.label} varies by {said} (standard "
        f"deviation). Were all {alone} that have one seed equal to it, the best of them would "
        f"still be ahead by {ahead}."
    ]


def _rank(changes: Changes) -> tuple[int, float]:
    """Those that are above at the most thresholds come first, of these the highest."""
    above = sum(changes[c].difference > 0 for c in THRESHOLDS if c in changes)
    return -above, -changes[CHOSEN_BY].relative if changes else 0.0


def _end(label: str, changes: Changes) -> str:
    """Where a candidate ends, in a sentence; one seed has sides too, but decides nothing."""
    if not changes:
        return f"{label}: no seed in common with it."
    seeds = changes[THRESHOLDS[0]].seeds
    sides: dict[str, list[str]] = {}
    for side in ("above", "below") if seeds == 1 else ("better", "worse", "undecided"):
        sides[side] = [column_title(c) for c in THRESHOLDS if _side(changes[c]) == side]
    where = ", ".join(f"{side} at {_places(own)}" for side, own in sides.items() if own)
    sizes = ", ".join(f"{column_title(c)} {_size(changes[c])}" for c in WANTED)
    return f"{label}: {where}; {sizes}; {seeds_word(seeds)}."


def _side(change: PairedChange) -> str:
    if change.seeds == 1:
        return "above" if change.difference > 0 else "below"
    if not change.decided:
        return "undecided"
    return "better" if change.difference > 0 else "worse"


def _places(titles: Sequence[str]) -> str:
    return "all thresholds" if len(titles) == len(THRESHOLDS) else ", ".join(titles)


def _size(change: PairedChange) -> str:
    interval = change.relative_bootstrap
    ends = f" ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})" if interval else ""
    return f"{cell(change.relative, improvement=True)}{ends}"
