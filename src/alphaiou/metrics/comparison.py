"""Relative improvement over a baseline, as the paper's tables print it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alphaiou.metrics.columns import PAPER_COLUMNS


@dataclass(frozen=True)
class ComparisonRow:
    """A row of a comparison.

    Attributes:
        name: What was scored.
        values: Its scores by column; by how much they are better, for an improvement.
        improvement: Whether this is the improvement of the row above over the baseline.
    """

    name: str
    values: dict[str, float]
    improvement: bool = False


def relative_improvement(score: float, baseline: float) -> float:
    """The improvement of a score as a share of the baseline; NaN for a baseline of 0.

    Examples:
        >>> f"{relative_improvement(34.46, 32.45):.2%}"
        '6.19%'
    """
    return (score - baseline) / baseline if baseline else float("nan")


def comparison_rows(
    scores: Mapping[str, Mapping[str, float]], columns: Sequence[str] = PAPER_COLUMNS
) -> list[ComparisonRow]:
    """The rows of a table: the first one given is the baseline of all others.

    Args:
        scores: Scores by name, as ``Scores.as_dict()`` gives them.
        columns: Which of them to show.

    Examples:
        >>> rows = comparison_rows({"IoU": {"map": 0.5}, "α-IoU": {"map": 0.6}}, ["map"])
        >>> [(row.name, round(row.values["map"], 3)) for row in rows]
        [('IoU', 0.5), ('α-IoU', 0.6), ('rela. improv.', 0.2)]
    """
    rows: list[ComparisonRow] = []
    for name, given in scores.items():
        own = {column: given[column] for column in columns}
        rows.append(ComparisonRow(name, own))
        if len(rows) > 1:
            better = {c: relative_improvement(own[c], rows[0].values[c]) for c in columns}
            rows.append(ComparisonRow("rela. improv.", better, improvement=True))
    return rows
