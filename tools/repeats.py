"""Runs that were made twice: whether α does the same again, and what a seed does not fix.

A seed fixes the first weights and the order of the images, not the order in which a GPU adds: two
runs of the same recipe with the same seed drift apart, and how far is part of what a table means.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from alphaiou.inference.tables import cell, column_title, markdown
from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.study.comparable import plain_runs
from alphaiou.study.records import RowRuns, RunRecord, as_number
from alphaiou.study.tables import StudyTable, TableRow, markdown_lines, table_row
from benchmarks.record import Record
from tools.run_tables import NOTHING

#: The folder, beside the records that tables are made of, of earlier ones of the same runs.
EARLIER = "earlier"
#: The runs of a table by the label of their row.
Rows = Mapping[str, RowRuns]


@dataclass(frozen=True)
class Repeats:
    """The runs that were made twice.

    Attributes:
        first: Their earlier records.
        again: Those that the other tables are made of.
        both: Records with the means of their scores.
    """

    first: Rows
    again: Rows
    both: Rows

    def named(self) -> dict[str, Rows]:
        """What is said of each in a table."""
        return {"first": self.first, "again": self.again, "mean of both": self.both}


def repeats(record: Record, detector: str, epochs: int) -> Repeats | None:
    """The runs of a detector, so long and with clean boxes, that were made twice; None without.

    Args:
        record: A folder of runs, as ``read_record`` gives it.
        detector: Its name in recipes.
        epochs: How long it was trained.
    """
    earlier = record["folders"].get(EARLIER, {"runs": []})["runs"]
    first = {run["name"]: run for run in earlier}
    again = {run["name"]: run for run in record["runs"] if run["name"] in first}
    both = [_mean(first[name], run) for name, run in again.items()]
    tables = [
        plain_runs(runs, detector, epochs)
        for runs in ([first[name] for name in again], again.values(), both)
    ]
    rows = [table.rows for table in tables if table is not None]
    return Repeats(*rows) if rows else None


def repeats_table(record: Record, *, detector: str, epochs: int) -> str:
    """What each loss changes in the first runs, in the second and in both; and how runs scatter.

    Args:
        record: A folder of runs, as ``read_record`` gives it.
        detector: Its name in recipes.
        epochs: How long it was trained.
    """
    found = repeats(record, detector, epochs)
    if found is None:
        return NOTHING
    table = StudyTable("repeats", "", PAPER_COLUMNS, _changes(found), (), as_changes=True)
    head = ["standard deviation in points", *map(column_title, PAPER_COLUMNS)]
    scatters = {"the same seed again": seed_scatter, "another seed": other_seed_scatter}
    lines = [[name, *_cells(found, scatter)] for name, scatter in scatters.items()]
    return "\n\n".join([markdown_lines(table), markdown(head, lines, left=1)])


def seed_scatter(found: Repeats, column: str) -> float:
    """The standard deviation of a score between runs of the same recipe with the same seed."""
    pairs = zip(_scores(found.first, column), _scores(found.again, column), strict=True)
    return _scatter(two for rows in pairs for two in zip(*rows, strict=True))


def other_seed_scatter(found: Repeats, column: str) -> float:
    """The same between runs of the same recipe with different seeds; NaN where none has two."""
    return _scatter([*_scores(found.first, column), *_scores(found.again, column)])


def _scatter(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation within groups, those of one value left out."""
    variances = [variance(values) for values in groups if len(values) > 1]
    return math.sqrt(fmean(variances)) if variances else math.nan


def _scores(rows: Rows, column: str) -> list[list[float]]:
    """A list a row, in the order of the seeds."""
    return [[value for _, value in sorted(own.scores(column).items())] for own in rows.values()]


def _cells(found: Repeats, scatter: Callable[[Repeats, str], float]) -> list[str]:
    return [cell(scatter(found, column)) for column in PAPER_COLUMNS]


def _changes(found: Repeats) -> tuple[TableRow, ...]:
    """Of each loss that is compared with another: the first, the second and both together."""
    return tuple(
        replace(table_row(rows, label, PAPER_COLUMNS), label=f"{label}, {name}")
        for label, own in found.again.items()
        if own.row.baseline
        for name, rows in found.named().items()
    )


def _mean(*runs: RunRecord) -> RunRecord:
    """A record with the means of the scores that all have."""
    shared = set.intersection(*(set(run["scores"]) for run in runs))
    scores = {
        name: fmean(as_number(run["scores"][name]) for run in runs) for name in sorted(shared)
    }
    return {**runs[0], "scores": scores}
