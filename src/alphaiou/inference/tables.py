"""Tables of scores, in Markdown and for the terminal, with improvements over the first row."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from alphaiou.metrics import ComparisonRow, Scores
from alphaiou.metrics.columns import column_title

if TYPE_CHECKING:
    from rich.table import Table


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]], *, left: int) -> str:
    """A Markdown table; columns after the first ``left`` are aligned to the right."""
    rules = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rules, *lines))


def cell(value: float, *, improvement: bool = False) -> str:
    """Format a score in percent; an improvement with its sign, and without decimals from 100 %.

    Examples:
        >>> cell(0.5274), cell(0.0165, improvement=True), cell(9.5, improvement=True)
        ('52.74', '+1.65%', '+950%')
    """
    if math.isnan(value):
        return "–"
    if improvement:
        return f"{100 * value:+.{2 if round(abs(value), 4) < 1 else 0}f}%"
    return f"{100 * value:.2f}"


def comparison_markdown(rows: Sequence[ComparisonRow], *, first: str = "predictions") -> str:
    """A comparison as a Markdown table; ``first`` heads the names.

    Examples:
        >>> print(comparison_markdown([ComparisonRow("IoU", {"map": 0.5274})]))
        | predictions | mAP |
        | --- | ---: |
        | IoU | 52.74 |
    """
    head = [first, *map(column_title, rows[0].values)]
    return markdown(head, ([row.name, *_cells(row)] for row in rows), left=1)


def comparison_table(
    rows: Sequence[ComparisonRow], title: str, *, first: str = "predictions"
) -> Table:
    """A comparison for the terminal; ``first`` heads the names."""
    table = _table(title, first, [column_title(name) for name in rows[0].values])
    for row in rows:
        style = "dim italic" if row.improvement else None
        table.add_row(row.name, *_cells(row), style=style)
    return table


def number_table(scores: Mapping[str, Scores], title: str) -> Table:
    """Every number, a column for each set of predictions."""
    numbers = {
        name: {column_title(key): value for key, value in one.as_dict().items()}
        for name, one in scores.items()
    }
    return _columns_table(numbers, title, "score")


def class_table(scores: Mapping[str, Scores], title: str) -> Table:
    """Average precision class by class, a column for each set of predictions."""
    return _columns_table({name: one.per_class for name, one in scores.items()}, title, "class")


def _columns_table(columns: Mapping[str, Mapping[str, float]], title: str, first: str) -> Table:
    table = _table(title, first, list(columns))
    for key in next(iter(columns.values())):
        table.add_row(key, *(cell(column[key]) for column in columns.values()))
    return table


def _cells(row: ComparisonRow) -> list[str]:
    return [cell(value, improvement=row.improvement) for value in row.values.values()]


def _table(title: str, first: str, others: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column(first, overflow="fold", min_width=len("rela. improv."))
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
