"""Tables of grids: means, changes with intervals, the paper's numbers; as text in three formats."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from alphaiou.inference.tables import cell, markdown
from alphaiou.metrics.columns import COLUMNS, PAPER_COLUMNS, column_title
from alphaiou.metrics.comparison import relative_improvement
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, grid_runs
from alphaiou.study.statistics import Interval, PairedChange, paired_change, seeds_word

#: Behind a change that is not significant.
MARK = "°"
MARK_NOTE = (
    f"Changes are relative to the baseline, as in the paper’s tables; {MARK} marks changes that "
    "are not significant: there is only one seed, or the bootstrap’s or Student’s 95 % interval "
    "of the difference includes zero."
)
INTERVAL_NOTE = (
    "Each change has its 95 % bootstrap interval, in percent; with three seeds this is their "
    "range, which covers the true change about three times in four."
)
#: The numbers of most tables.
AP = "Average precision"


@dataclass(frozen=True)
class TableRow:
    """A row of a table in numbers.

    Attributes:
        label: Its label.
        baseline: The label of its baseline, if it has one.
        seeds: The seeds that it was run with.
        scores: The scores by column and seed.
        changes: The changes against the baseline, over the seeds that both have.
        published: The scores that the paper prints, as fractions.
        published_changes: The changes between the paper's own scores.
    """

    label: str
    baseline: str | None
    seeds: tuple[int, ...]
    scores: Mapping[str, Mapping[int, float]]
    changes: Mapping[str, PairedChange] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    published_changes: Mapping[str, float] = field(default_factory=dict)

    def mean(self, column: str) -> float:
        """The mean over the seeds; NaN without any."""
        values = list(self.scores[column].values())
        return float(np.mean(values)) if values else float("nan")

    def relative_change(self, column: str) -> float:
        """The change as a fraction of the baseline; NaN without one."""
        change = self.changes.get(column)
        return float("nan") if change is None else change.relative


@dataclass(frozen=True)
class StudyTable:
    """A grid in numbers.

    Attributes:
        name: The grid's name.
        title: What it shows.
        columns: Its scores.
        rows: Its rows.
        notes: What a reader has to know about it, in sentences.
        as_changes: Whether rows with a baseline print only their changes.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]
    as_changes: bool = False


def study_table(
    grid: Grid, records: Mapping[str, RunRecord], columns: Sequence[str] = ()
) -> StudyTable:
    """The table of a grid.

    Args:
        grid: Its rows and seeds.
        records: By the names of their runs, as ``load_records`` gives them.
        columns: The scores; by default those of the grid.
    """
    published = {name for row in grid.rows for name in row.published}
    usual = [c.name for c in COLUMNS if c.name in published.union(PAPER_COLUMNS)]
    columns = columns or grid.columns or grid.found_shares or usual
    return table_of(grid, grid_runs(grid, records), columns)


def table_of(
    grid: Grid, runs: Mapping[str, RowRuns], columns: Sequence[str], *, as_changes: bool = False
) -> StudyTable:
    """The table of a grid whose runs are already looked up.

    Args:
        grid: The grid of the runs.
        runs: The runs of each row by its label.
        columns: The scores.
        as_changes: Whether rows with a baseline print only their changes.
    """
    rows = tuple(table_row(runs, label, columns, grid.least_baseline) for label in runs)
    notes = _notes(grid, runs, rows, as_changes=as_changes)
    return StudyTable(grid.name, grid.title, tuple(columns), rows, notes, as_changes)


def table_row(
    runs: Mapping[str, RowRuns],
    label: str,
    columns: Sequence[str],
    least_baseline: float = 0.0,
) -> TableRow:
    """One row of a table in numbers, compared with its baseline if that is among the runs.

    Args:
        runs: The runs of each row by its label.
        label: The row.
        columns: The scores.
        least_baseline: No change is given against a baseline score below this.
    """
    row = runs[label]
    baseline = runs.get(row.row.baseline or "")
    before = {} if baseline is None else baseline.row.published
    published = {c: row.row.published[c] for c in columns if c in row.row.published}
    scores = {c: row.scores(c) for c in columns}
    changes = {c: paired_change(scores[c], baseline.scores(c)) for c in columns} if baseline else {}
    return TableRow(
        label=label,
        baseline=row.row.baseline,
        seeds=tuple(row.runs),
        scores=scores,
        changes={
            c: change
            for c, change in changes.items()
            if change is not None and not change.baseline < least_baseline
        },
        published=published,
        published_changes={
            c: relative_improvement(value, before[c])
            for c, value in published.items()
            if c in before
        },
    )


# Notes


def _notes(
    grid: Grid,
    runs: Mapping[str, RowRuns],
    rows: Sequence[TableRow],
    *,
    as_changes: bool,
) -> tuple[str, ...]:
    """The number of seeds, the marks, the missing runs, the differences from the paper."""
    notes = [seeds_note(rows, "Shares of the objects" if grid.found_shares else AP)]
    if as_changes and any(row.changes for row in rows):
        notes[0] += " All rows but the first are changes against the first."
    if any(row.changes for row in rows):
        notes.append(MARK_NOTE)
    if any(row.changes and max(c.seeds for c in row.changes.values()) > 1 for row in rows):
        notes.append(INTERVAL_NOTE)
    missing = [f"{label} (seed {seed})" for label, row in runs.items() for seed in row.missing]
    if missing:
        total = len(grid.rows) * len(grid.seeds)
        notes.append(f"{len(missing)} of {total} runs are missing: {_some(missing)}.")
    return (*notes, *grid.differs)


def seeds_note(rows: Sequence[TableRow], numbers: str = AP) -> str:
    """The numbers of a table, and the seeds that they are means of."""
    counts = sorted({len(row.seeds) for row in rows if row.seeds})
    if not counts:
        return "This table has no finished run yet."
    scored = f"{numbers} in percent"
    if counts == [1]:
        return f"{scored}; one seed per row, so there are no intervals."
    if len(counts) == 1:
        return f"{scored}, means over {seeds_word(counts[0])} per row; changes are paired by seed."
    return (
        f"{scored}, means over {counts[0]} to {counts[-1]} seeds per row; a change is over the "
        "seeds that both rows have, and so may differ from the change of the printed means."
    )


def _some(names: Sequence[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# Printed lines


@dataclass(frozen=True)
class Line:
    """A printed line of a table.

    Attributes:
        kind: ``ours``, ``change``, ``published`` or ``published-change``; ``compared`` is a row
            whose change alone is printed.
        name: Its heading.
        cells: The text of each column.
    """

    kind: Literal["ours", "compared", "change", "published", "published-change"]
    name: str
    cells: tuple[str, ...]


def table_lines(table: StudyTable) -> list[Line]:
    """The printed lines: the means of each row, the change, and the paper's numbers for both.

    A row without runs and without published numbers has no line; the notes count it.
    """
    rows = (row for row in table.rows if row.seeds or row.published)
    return [line for row in rows for line in _lines(row, table.columns, table.as_changes)]


def change_text(change: PairedChange | None) -> str:
    """A relative change with its interval, marked if it is not significant.

    Examples:
        >>> change_text(PairedChange(1, 0.2, 0.23, 0.03, 0.15))
        '+15.00%°'
    """
    if change is None or math.isnan(change.relative):
        return "–"
    mark = "" if change.decided else MARK
    interval = change.relative_bootstrap
    return f"{cell(change.relative, improvement=True)}{mark}" + _between(interval)


def _between(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" ({100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def _lines(row: TableRow, columns: Sequence[str], as_change: bool) -> list[Line]:
    """The lines of a row; lines without any number are left out."""
    ours = Line("ours", row.label, tuple(cell(row.mean(c)) for c in columns))
    change = tuple(change_text(row.changes.get(c)) for c in columns)
    if as_change and row.changes:
        return [Line("compared", row.label, change)]
    nothing = float("nan")
    theirs = tuple(cell(row.published.get(c, nothing)) for c in columns)
    their_change = tuple(
        cell(row.published_changes.get(c, nothing), improvement=True) for c in columns
    )
    others = (
        Line("change", "change", change),
        Line("published", "in the paper", theirs),
        Line("published-change", "change in the paper", their_change),
    )
    return [ours, *(line for line in others if set(line.cells) != {"–"})]


# Formats

TableFormat = Literal["md", "csv", "latex"]
_CSV_HEAD = (
    *("grid", "row", "baseline", "score", "seeds", "mean", "lowest", "highest", "paired_seeds"),
    *("difference", "difference_low", "difference_high", "student_low", "student_high"),
    *("change", "change_low", "change_high", "decided", "published", "published_change"),
)


def table_text(table: StudyTable, how: TableFormat = "md") -> str:
    """The table in a format, the same bytes each time."""
    return {"md": table_markdown, "csv": table_csv, "latex": table_latex}[how](table)


def table_markdown(table: StudyTable) -> str:
    """The table as Markdown, with its title and its notes."""
    notes = "\n".join(f"- {note}" for note in table.notes)
    return "\n\n".join((f"### {table.title}", markdown_lines(table), notes)) + "\n"


def markdown_lines(table: StudyTable) -> str:
    """The bare table as Markdown."""
    lines = [[_name(line), *line.cells] for line in table_lines(table)]
    return markdown(["loss", *map(column_title, table.columns)], lines, left=1)


def table_csv(table: StudyTable) -> str:
    """All numbers, one line per row and score; scores and changes are fractions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for row in table.rows:
        for column in table.columns:
            writer.writerow([table.name, row.label, row.baseline, *_csv_numbers(row, column)])
    return text.getvalue()


def table_latex(table: StudyTable) -> str:
    """The table as LaTeX for the package booktabs."""
    head = ["loss", *map(column_title, table.columns)]
    lines = [[_name(line), *line.cells] for line in table_lines(table)]
    rows = [" & ".join(map(latex, line)) + r" \\" for line in (head, *lines)]
    return "\n".join(
        (
            *(f"% {note}" for note in (table.title, *table.notes)),
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            rows[0],
            r"\midrule",
            *rows[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        )
    )


_LATEX = {
    "\\": r"\textbackslash{}",
    **{letter: f"\\{letter}" for letter in "%&#_{}$"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "α": r"$\alpha$",
    "η": r"$\eta$",
    "ℓ": r"$\ell$",
    "₁": r"$_1$",
    "₂": r"$_2$",
    "→": r"$\to$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "–": "--",
    "−": "$-$",
    "’": "'",
    "≥": r"$\ge$",
}


def latex(text: str) -> str:
    r"""Text as LaTeX prints it.

    Examples:
        >>> print(latex("α-IoU, +11.61%°"))
        $\alpha$-IoU, +11.61\%$^\circ$
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def _name(line: Line) -> str:
    return line.name if line.kind in ("ours", "compared") else f"– {line.name}"


def _csv_numbers(row: TableRow, column: str) -> list[object]:
    values, change = list(row.scores[column].values()), row.changes.get(column)
    spread = [row.mean(column), min(values), max(values)] if values else ["", "", ""]
    published = [row.published.get(column, ""), row.published_changes.get(column, "")]
    if change is None:
        return [column, len(values), *spread, 0, *[""] * 9, *published]
    compared = [
        change.difference,
        *_ends(change.bootstrap),
        *_ends(change.student),
        change.relative,
        *_ends(change.relative_bootstrap),
        str(change.decided).lower(),
    ]
    return [column, len(values), *spread, change.seeds, *compared, *published]


def _ends(interval: Interval | None) -> tuple[object, object]:
    return ("", "") if interval is None else (interval.low, interval.high)
