"""Whether anything beats IoU at its own best gain at every threshold: what was tried, and its end.

IoU with a larger box gain has part of what a power brings; so the gain that is best for IoU is what
a candidate has to beat, and not the paper's. A candidate that moves more than its loss and the box
gain is also compared with IoU that has the same: else that would be taken for the power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from alphaiou.experiments.paper_best import CHOSEN_BY, level
from alphaiou.experiments.paper_luck import expected_best, seed_scatter
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.recipes import at_usual_gain
from alphaiou.experiments.score_tables import cell, column_title
from alphaiou.experiments.statistics import PairedChange, paired_change, seeds_word
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import Recipe

THRESHOLDS = tuple(f"ap{percent}" for percent in range(50, 100, 5))
#: By how much a candidate has to be better, as a part of what the best IoU scores.
WANTED = {"map75_95": 0.06, "ap95": 0.5}
#: The scores of the table.
SEARCHED = (*THRESHOLDS, CHOSEN_BY)

Changes = Mapping[str, PairedChange]


def against_best(cells: Mapping[str, CellRuns]) -> dict[str, CellRuns]:
    """The cells, compared with plain IoU at its best gain: that first, then the best of them."""
    best = _best(_to_beat(cells))
    if best is None:
        return dict(cells)
    label = best.cell.label
    ranks = {name: _rank(_changes(own, best)) for name, own in cells.items()}
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
    best = _best(_to_beat(cells))
    if best is None or not _candidates(cells):
        return {}
    changes = {label: _changes(own, best) for label, own in cells.items()}
    return {label: own for label, own in changes.items() if own}


def beyond_sentences(cells: Mapping[str, CellRuns]) -> list[str]:
    """Which candidates beat plain IoU at its best gain, and where those with several seeds end.

    The gain of IoU is the one with the best mean of :data:`CHOSEN_BY` on the images that are
    scored, which flatters what is to be beaten.
    """
    plain, candidates = _to_beat(cells), _candidates(cells)
    best = _best(plain)
    if best is None or not candidates:
        return []
    changes = {own.cell.label: _changes(own, best) for own in candidates}
    ranked = sorted(changes, key=lambda label: _rank(changes[label]))
    several = [label for label in ranked if _seeds(changes[label]) > 1]
    tried = "; ".join(own.cell.label for own in sorted(plain, key=_gain))
    return [
        f"To beat: {best.cell.label}, by {column_title(CHOSEN_BY)} on the scored images the best "
        f"of: {tried}.",
        _conclusion(changes),
        *(f"{label}: {_end(changes[label])}" for label in several),
        *_alone(changes, ranked),
        *_luck([*plain, *candidates], candidates, best),
        *_all_else_alike(candidates),
    ]


def _to_beat(cells: Mapping[str, CellRuns]) -> list[CellRuns]:
    return [own for own in cells.values() if own.runs and own.cell.to_beat]


def _gain(own: CellRuns) -> float:
    return own.cell.recipe.box_gain


def _candidates(cells: Mapping[str, CellRuns]) -> list[CellRuns]:
    return [own for own in cells.values() if own.runs and not own.cell.to_beat]


def _best(plain: Sequence[CellRuns]) -> CellRuns | None:
    """IoU at the gain that is best for it, of those with as many seeds as any others."""
    most = max((len(own.runs) for own in plain), default=0)
    return max((own for own in plain if len(own.runs) == most), key=level, default=None)


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


def _all_else_alike(candidates: Sequence[CellRuns]) -> list[str]:
    """What is left of a candidate against IoU at its best box gain with the same other settings."""
    alike: dict[Recipe, list[CellRuns]] = {}
    for own in candidates:
        alike.setdefault(_as_plain(own.cell.recipe), []).append(own)
    sentences = []
    for plain, rows in alike.items():
        controls = [own for own in rows if _is_at_a_gain(own.cell.recipe, plain)]
        control = _best(controls)
        if control is not None:
            sentences += [
                f"All else alike, {own.cell.label} against {control.cell.label}: "
                f"{_end(_changes(own, control))}"
                for own in rows
                if own not in controls
            ]
    return sentences


def _as_plain(recipe: Recipe) -> Recipe:
    """Plain IoU at the usual box gain, all else as it is."""
    return at_usual_gain(replace(recipe, loss=LossSpec("iou"), alpha_schedule=None))


def _is_at_a_gain(recipe: Recipe, plain: Recipe) -> bool:
    return replace(plain, box_gain=recipe.box_gain) == recipe


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
