"""What a choice gives at AP50 for what it gains at higher IoU, as points of a plane."""

from __future__ import annotations

from collections.abc import Mapping

from alphaiou.experiments.grid import Cell
from alphaiou.experiments.paper_best import CHOSEN_BY
from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_search import exchanges
from alphaiou.experiments.paper_series import Point, change_point
from alphaiou.experiments.recipes import gain_factor

#: The score that is given.
ACROSS = "ap50"
#: The points that are joined: plain IoU by its box gain.
JOINED = "IoU"
OTHER_GAINS = "IoU, other gains or rate"
GROUPS = (JOINED, "constant α", "rising α", "falling α", OTHER_GAINS)
#: What loses more of mAP75:95 than this part is left out: the others would be one heap.
FARTHEST = 0.1


def exchange_points(cells: Mapping[str, CellRuns], score: str) -> dict[str, list[Point]]:
    """Changes against plain IoU at its best gain in percent, over the seeds that both have.

    Args:
        cells: Of the grid ``beyond``.
        score: What is gained; what is given at :data:`ACROSS` is the place of a point.

    Returns:
        The points of each of :data:`GROUPS` that has any; nothing where there is no candidate.
    """
    found: dict[str, list[Point]] = {group: [] for group in GROUPS}
    changes = exchanges(cells)
    for label in sorted(changes, key=lambda label: gain_factor(cells[label].cell.recipe)):
        if changes[label][CHOSEN_BY].relative > -FARTHEST:
            group = _group(cells[label].cell)
            across = round(100 * changes[label][ACROSS].relative, 2)
            found[group].append(change_point(across, changes[label][score], label))
    return {group: points for group, points in found.items() if points}


def _group(cell: Cell) -> str:
    recipe, course = cell.recipe, cell.recipe.alpha_schedule
    if cell.to_beat:
        return JOINED
    if course is None:
        return OTHER_GAINS if recipe.loss.alpha == 1 else "constant α"
    return "rising α" if course.end > course.start else "falling α"
