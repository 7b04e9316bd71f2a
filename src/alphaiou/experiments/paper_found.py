"""The paper's IoU distributions: what share of the objects is found with at least an IoU."""

from __future__ import annotations

from collections.abc import Mapping

from alphaiou.experiments.paper_records import CellRuns
from alphaiou.experiments.paper_series import Point, mean_point, paired_point
from alphaiou.metrics.iou_histogram import HISTOGRAM_THRESHOLDS

#: The scores of records that say it, and the IoU of each.
FOUND = {f"found{round(100 * threshold)}": threshold for threshold in HISTOGRAM_THRESHOLDS}
#: Rows that can be told apart in one picture.
MOST_ROWS = 6


def found_lines(cells: Mapping[str, CellRuns]) -> dict[str, list[Point]]:
    """The share of the objects by IoU, a line a cell, in percent.

    Records that were made before runs counted it have no share; nothing is returned where no cell
    has any, or too many have.
    """
    counted = _counted(cells)
    lines = {
        label: [mean_point(iou, list(own.scores(score).values())) for score, iou in FOUND.items()]
        for label, own in counted.items()
    }
    return lines if len(lines) <= MOST_ROWS else {}


def found_changes(cells: Mapping[str, CellRuns]) -> dict[str, list[Point]]:
    """By how many percent more objects a row finds than its baseline, by IoU."""
    counted = _counted(cells)
    pairs = {
        label: (own, counted[own.cell.baseline])
        for label, own in counted.items()
        if own.cell.baseline in counted
    }
    lines = {
        label: [paired_point(iou, *pair, score) for score, iou in FOUND.items()]
        for label, pair in pairs.items()
    }
    defined = {label: list(filter(None, points)) for label, points in lines.items()}
    return {label: points for label, points in defined.items() if points}


def _counted(cells: Mapping[str, CellRuns]) -> dict[str, CellRuns]:
    counted = (own.with_scores(FOUND) for own in cells.values())
    return {own.cell.label: own for own in counted if own.runs}
