"""Relative improvement over a baseline, as the paper's tables print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alphaiou.metrics.columns import PAPER_COLUMNS

#: No improvement is relative to a score below this: it would be a large number without a meaning.
LEAST_BASELINE = 0.005


@dataclass(frozen=True)
class ComparisonRow:
    """A row of a comparison.

    Attributes:
        name: The label of the row.
        values: The scores by column, or the relative improvements.
        improvement: Whether this is the relative improvement of the row above over the baseline.
    """

    name: str
    values: dict[str, float]
    improvement: bool = False


def relative_improvement(score: float, baseline: float) -> float:
    """Return the improvement of a score relative to the baseline.

    It is NaN if the baseline is below :data:`LEAST_BASELINE`.

    Examples:
        >>> f"{relative_improvement(0.3446, 0.3245):.2%}"
        '6.19%'
    """
    return (score - baseline) / baseline if baseline >= LEAST_BASELINE else float("nan")


def comparison_rows(
    scores: Mapping[str, Mapping[str, float]], columns: Sequence[str] = PAPER_COLUMNS
) -> list[ComparisonRow]:
    """Return the rows of a comparison table; the first entry is the baseline.

    Args:
        scores: Scores by name, each as returned by ``Scores.as_dict()``.
        columns: The scores to show.

    Examples:
        >>> rows = comparison_rows({"IoU": {"map": 0.5}, "α-IoU": {"map": 0.6}}, ["map"])
        >>> [(row.name, round(row.values["map"], 3)) for row in rows]
        [('IoU', 0.5), ('α-IoU', 0.6), ('rela. improv.', 0.2)]
    """
    rows: list[ComparisonRow] = []
    for name, given in scores.items():
        values = {column: given[column] for column in columns}
        rows.append(ComparisonRow(name, values))
        if len(rows) > 1:
            better = {c: relative_improvement(values[c], rows[0].values[c]) for c in columns}
            rows.append(ComparisonRow("rela. improv.", better, improvement=True))
    return rows
