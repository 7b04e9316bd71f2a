"""The records of trainings as the explorer shows them: means over seeds, changes, intervals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from alphaiou.losses.spec import LossSpec
from alphaiou.study.comparable import ComparableRuns, comparable_runs
from alphaiou.study.grid import Row
from alphaiou.study.records import RunRecord
from alphaiou.study.statistics import PairedChange
from alphaiou.study.tables import TableRow, table_row

SCORES = (*(f"ap{threshold}" for threshold in range(50, 100, 5)), "map", "map75_95")


def summarise(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """Trainings that differ in loss and gain alone, as the tables of the page.

    What was not scored, or has nothing to be compared with, is left out.

    Returns:
        For each setting its ``title`` and its ``runs``. A run has its ``name`` and ``kind``, its
        ``alpha`` where that is all that sets it apart from its baseline (else None), the number
        of ``seeds``, its mean ``scores``, and its ``changes`` against the baseline, the same kind
        with α = 1 at the plain gain: ``mean``, and with several seeds ``low`` to ``high``.
    """
    tables = map(_table, comparable_runs(record for record in records if _is_scored(record)))
    return [table for table in tables if any(run["changes"] for run in table["runs"])]


def _is_scored(record: RunRecord) -> bool:
    return all(record["scores"].get(score) is not None for score in SCORES)


def _table(table: ComparableRuns) -> dict[str, Any]:
    lines = [
        _line(own.row, table_row(table.rows, label, SCORES)) for label, own in table.rows.items()
    ]
    return {"title": table.title, "runs": lines}


def _line(cell: Row, row: TableRow) -> dict[str, Any]:
    loss = cell.recipe.loss
    return {
        "name": row.label,
        "kind": loss.kind,
        "alpha": loss.alpha if row.label == LossSpec(loss.kind, loss.alpha).display_name else None,
        "seeds": len(row.seeds),
        "scores": {score: round(row.mean(score), 6) for score in SCORES},
        "changes": {score: _change(change) for score, change in row.changes.items()} or None,
    }


def _change(change: PairedChange) -> dict[str, float | None]:
    """Rounded to more digits than the page shows, so that it is the same on every machine."""
    ends = change.student
    return {
        "mean": round(change.difference, 6),
        "low": None if ends is None else round(ends.low, 6),
        "high": None if ends is None else round(ends.high, 6),
    }
