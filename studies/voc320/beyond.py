"""Whether anything beats IoU at its own best gain at every threshold, in sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from alphaiou.inference.tables import cell, column_title
from alphaiou.study.records import CellRuns
from alphaiou.study.statistics import PairedChange, seeds_word
from studies.voc320.best import CHOSEN_BY
from studies.voc320.luck import expected_best, seed_scatter
from studies.voc320.search import (
    THRESHOLDS,
    WANTED,
    Changes,
    all_else_alike,
    best_of,
    candidates_of,
    changes_against,
    rank,
    to_beat,
)


def beyond_sentences(cells: Mapping[str, CellRuns]) -> list[str]:
    """Which candidates beat plain IoU at its best gain, and where those with several seeds end.

    The gain of IoU is the one with the best mean of :data:`CHOSEN_BY` on the images that are
    scored, which flatters what is to be beaten.
    """
    plain, candidates = to_beat(cells), candidates_of(cells)
    best = best_of(plain)
    if best is None or not candidates:
        return []
    changes = {own.cell.label: changes_against(own, best) for own in candidates}
    ranked = sorted(changes, key=lambda label: rank(changes[label]))
    several = [label for label in ranked if _seeds(changes[label]) > 1]
    tried = "; ".join(own.cell.label for own in sorted(plain, key=_gain))
    return [
        f"To beat: {best.cell.label}, by {column_title(CHOSEN_BY)} on the scored images the best "
        f"of: {tried}.",
        _conclusion(changes),
        *(f"{label}: {_end(changes[label])}" for label in several),
        *_alone(changes, ranked),
        *_luck([*plain, *candidates], candidates, best),
        *(
            f"All else alike, {own.cell.label} against {control.cell.label}: "
            f"{_end(changes_against(own, control))}"
            for own, control in all_else_alike(candidates)
        ),
    ]


def _gain(own: CellRuns) -> float:
    return own.cell.recipe.box_gain


def _conclusion(changes: Mapping[str, Changes]) -> str:
    wanted = " and ".join(
        f"by {100 * share:g} % at {column_title(c)}" for c, share in WANTED.items()
    )
    asked = (
        f"Better at every threshold from {column_title(THRESHOLDS[0])} to "
        f"{column_title(THRESHOLDS[-1])}, {wanted}, all intervals clear of zero"
    )
    winners = [label for label, own in changes.items() if _has_won(own, _is_better)]
    nearly = [label for label, own in changes.items() if _has_won(own, _is_better_by_bootstrap)]
    nearly = [label for label in nearly if label not in winners]
    by_bootstrap = f"; by the bootstrap’s intervals alone: {'; '.join(nearly)}" if nearly else ""
    none = f"none of the {len(changes)} that were run"
    return f"{asked}: {'; '.join(winners) or none}{by_bootstrap}."


def _has_won(changes: Changes, is_better: Callable[[PairedChange], bool]) -> bool:
    return bool(changes) and (
        all(is_better(change) for change in changes.values())
        and all(changes[column].relative >= share for column, share in WANTED.items())
    )


def _is_better(change: PairedChange) -> bool:
    return change.decided and change.difference > 0


def _is_better_by_bootstrap(change: PairedChange) -> bool:
    return change.bootstrap is not None and change.bootstrap.low > 0


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


def _seeds(changes: Changes) -> int:
    return changes[THRESHOLDS[0]].seeds if changes else 0


def _alone(changes: Mapping[str, Changes], ranked: Sequence[str]) -> list[str]:
    """Which candidates of one seed are above everywhere; the table has the others."""
    above = [
        f"{label} ({_sizes(changes[label])})"
        for label in ranked
        if _seeds(changes[label]) == 1
        and all(changes[label][column].difference > 0 for column in THRESHOLDS)
    ]
    return [f"Above at every threshold, with one seed: {'; '.join(above)}."] if above else []


def _end(changes: Changes) -> str:
    """Where a comparison ends, in a sentence; one seed has sides too, but decides nothing."""
    if not changes:
        return "no seed in common."
    seeds = _seeds(changes)
    sides: dict[str, list[str]] = {}
    for side in ("above", "below") if seeds == 1 else ("better", "worse", "undecided"):
        sides[side] = [column_title(c) for c in THRESHOLDS if _side(changes[c]) == side]
    where = ", ".join(f"{side} at {_places(own)}" for side, own in sides.items() if own)
    return f"{where}; {_sizes(changes)}; {seeds_word(seeds)}."


def _side(change: PairedChange) -> str:
    if change.seeds == 1:
        return "above" if change.difference > 0 else "below"
    if not change.decided:
        return "undecided"
    return "better" if change.difference > 0 else "worse"


def _places(titles: Sequence[str]) -> str:
    return "all thresholds" if len(titles) == len(THRESHOLDS) else ", ".join(titles)


def _sizes(changes: Changes) -> str:
    return ", ".join(f"{column_title(c)} {_size(changes[c])}" for c in WANTED)


def _size(change: PairedChange) -> str:
    interval = change.relative_bootstrap
    ends = f" ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})" if interval else ""
    return f"{cell(change.relative, improvement=True)}{ends}"
