"""Tables of grids: means, changes with intervals, the paper's numbers; as text in three formats."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from alphaiou.inference.tables import cell, markdown
from alphaiou.metrics.columns import COLUMNS, PAPER_COLUMNS, column_title
from alphaiou.metrics.comparison import LEAST_BASELINE, relative_improvement
from alphaiou.study.grid import Grid
from alphaiou.study.records import RowRuns, RunRecord, comparable_rows, grid_runs
from alphaiou.study.selection import (
    Per,
    candidates_of,
    is_scored_where_selected,
    scored_on,
    select,
)
from alphaiou.study.statistics import Change, Interval, compare, fit_rows, seeds_word

#: Behind a change that is not significant, one with a single run, and one within the margin.
MARK, SINGLE, EQUIVALENT = "°", "†", "≈"
MARK_NOTE = (
    "Changes are relative to the baseline, as in the paper’s tables, or in points of a score (pt) "
    f"if the baseline is below {100 * LEAST_BASELINE:g} %. {MARK} marks changes that are not "
    "significant at 5 % (t-test, adjusted by Holm’s method for all changes of the column)."
)
INTERVAL_NOTE = (
    "In brackets is the 95 % interval of each change by itself (Student’s t; the variance is "
    "estimated from all comparable runs, also those of other tables). It covers what the seed "
    "varies, which is the initial weights, the order of the images and their augmentation, but not "
    "the choice of test images. It is missing where the variance cannot be estimated, or the "
    "baseline may be zero."
)
SINGLE_NOTE = (
    f"{SINGLE} marks changes of or against a single run, whose intervals rest on the variance of "
    "the other rows."
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
        scores: The scores by column and seed; means where a seed was run several times.
        changes: The changes against the baseline.
        published: The scores that the paper prints, as fractions.
        published_changes: The changes between the paper's own scores.
    """

    label: str
    baseline: str | None
    seeds: tuple[int, ...]
    scores: Mapping[str, Mapping[int, float]]
    changes: Mapping[str, Change] = field(default_factory=dict)
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
    runs = grid_runs(grid, records)
    return table_of(grid, runs, columns or _columns(grid), comparable_rows(runs, records))


def _columns(grid: Grid) -> Sequence[str]:
    published = {name for row in grid.rows for name in row.published}
    usual = [c.name for c in COLUMNS if c.name in published.union(PAPER_COLUMNS)]
    return grid.columns or grid.found_shares or usual


def selected_table(
    grid: Grid, records: Mapping[str, RunRecord], score: str, per: Per = "loss"
) -> StudyTable | None:
    """The table of the best row of each loss, chosen on ``val`` and scored on ``test``.

    Args:
        grid: Its rows and seeds.
        records: By the names of their runs, as ``load_records`` gives them.
        score: The score to choose by.
        per: ``loss`` chooses the box gain of each loss, ``kind`` also its α.

    Returns:
        The table; None if no row has scores on both splits.
    """
    groups = candidates_of(grid, records, per)
    best: dict[str, RowRuns] = {}  # the chosen row by the label of each candidate
    for group in groups:
        for row in select(group, score, by=lambda _: None).values():
            best |= {candidate.row.label: row for candidate in group}
    if not best:
        return None
    candidates = {row.row.label: row for group in groups for row in group}
    comparable = {
        label: scored_on(row, "test") for label, row in comparable_rows(candidates, records).items()
    }
    chosen = {row.row.label: _against_chosen(row, best) for row in best.values()}
    rows = table_rows(chosen, _columns(grid), comparable | chosen, grid.margins)
    kept = replace(grid, rows=tuple(row.row for row in chosen.values()))
    counts = sorted({len(group) for group in groups if group[0].row.label in best})
    among = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    note = (
        f"Each row is the best of {among} rows of its {per} by {column_title(score)} on val; the "
        "scores are on test. Intervals do not cover the choice."
    )
    notes = (note, *_notes(kept, chosen, rows, as_changes=False))
    return StudyTable(grid.name, f"{grid.title}, chosen on val", tuple(_columns(grid)), rows, notes)


def _against_chosen(row: RowRuns, best: Mapping[str, RowRuns]) -> RowRuns:
    """The chosen row, compared with what was chosen of the group of its baseline."""
    baseline = best.get(row.row.baseline or "")
    label = None if baseline is None or baseline.row.label == row.row.label else baseline.row.label
    return replace(row, row=replace(row.row, baseline=label))


def table_of(
    grid: Grid,
    runs: Mapping[str, RowRuns],
    columns: Sequence[str],
    comparable: Mapping[str, RowRuns],
    *,
    as_changes: bool = False,
) -> StudyTable:
    """The table of a grid whose runs are already looked up.

    Args:
        grid: The grid of the runs.
        runs: The runs of each row by its label.
        columns: The scores.
        comparable: The rows and all others comparable with them, as ``comparable_rows`` gives them.
        as_changes: Whether rows with a baseline print only their changes.
    """
    rows = table_rows(runs, columns, comparable, grid.margins)
    notes = _notes(grid, runs, rows, as_changes=as_changes)
    return StudyTable(grid.name, grid.title, tuple(columns), rows, notes, as_changes)


def table_rows(
    runs: Mapping[str, RowRuns],
    columns: Sequence[str],
    comparable: Mapping[str, RowRuns] | None = None,
    margins: Mapping[str, float] | None = None,
) -> tuple[TableRow, ...]:
    """The rows of a table in numbers, compared with their baselines if those are among the runs.

    Args:
        runs: The runs of each row by its label.
        columns: The scores.
        comparable: The rows that changes and their variance are estimated from; by default the
            rows of the table.
        margins: By column, the relative change within which rows count as equivalent.
    """
    baselines = {label: row.row.baseline for label, row in runs.items() if row.row.baseline}
    models = {column: fit_rows(comparable or runs, column) for column in columns}
    changes = {c: compare(models[c], baselines, (margins or {}).get(c)) for c in columns}
    return tuple(
        _table_row(
            runs, label, columns, {c: changes[c][label] for c in columns if label in changes[c]}
        )
        for label in runs
    )


def _table_row(
    runs: Mapping[str, RowRuns], label: str, columns: Sequence[str], changes: Mapping[str, Change]
) -> TableRow:
    row = runs[label]
    baseline = runs.get(row.row.baseline or "")
    before = {} if baseline is None else baseline.row.published
    published = {c: row.row.published[c] for c in columns if c in row.row.published}
    return TableRow(
        label=label,
        baseline=row.row.baseline,
        seeds=tuple(row.runs),
        scores={c: row.scores(c) for c in columns},
        changes=changes,
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
    """The seeds, the selection, the marks, the missing runs, the differences from the paper."""
    notes = [seeds_note(rows, "Shares of the objects" if grid.found_shares else AP)]
    if as_changes and any(row.changes for row in rows):
        notes[0] += " All rows but the first are changes against the first."
    notes[0] += repeats_note(runs) + selection_note(runs)
    notes += change_notes(rows, grid.margins)
    missing = [f"{label} (seed {seed})" for label, row in runs.items() for seed in row.missing]
    if missing:
        total = len(grid.rows) * len(grid.seeds)
        notes.append(f"{len(missing)} of {total} runs are missing: {_some(missing)}.")
    return (*notes, *grid.differs)


def change_notes(rows: Sequence[TableRow], margins: Mapping[str, float] | None = None) -> list[str]:
    """How changes are printed, and what their intervals and marks say."""
    changes = [change for row in rows for change in row.changes.values()]
    if not changes:
        return []
    notes, estimated = [MARK_NOTE], [change for change in changes if change.interval]
    if estimated:
        notes.append(INTERVAL_NOTE)
    if any(change.runs == 1 for change in estimated):
        notes.append(SINGLE_NOTE)
    if margins:
        within = ", ".join(f"{100 * m:g} % at {column_title(c)}" for c, m in margins.items())
        notes.append(
            f"{EQUIVALENT} marks changes within a margin that was set beforehand ({within}; two "
            "one-sided tests at 5 %, adjusted by Holm’s method)."
        )
    return notes


def repeats_note(runs: Mapping[str, RowRuns]) -> str:
    """How many runs repeat another one with the same seed."""
    count = sum(len(row.every()) - len(row.runs) for row in runs.values())
    if not count:
        return ""
    repeat = "run repeats" if count == 1 else "runs repeat"
    return f" {count} further {repeat} a seed of the same row and count like the others."


def selection_note(runs: Mapping[str, RowRuns]) -> str:
    """The rows whose runs or epochs were selected on the images that they are scored on."""
    names = [
        label
        for label, row in runs.items()
        if any(is_scored_where_selected(record) for _, record in row.every())
    ]
    if not names:
        return ""
    return (
        f" Weights or hyperparameters of {_some(names)} were selected on the images that the "
        "scores are of, which favours them."
    )


def seeds_note(rows: Sequence[TableRow], numbers: str = AP) -> str:
    """The numbers of a table, and the seeds that they are means of."""
    counts = sorted({len(row.seeds) for row in rows if row.seeds})
    if not counts:
        return "This table has no finished run yet."
    scored = f"{numbers} in percent"
    if counts == [1]:
        return f"{scored}; one seed per row, so there are no intervals."
    if len(counts) == 1:
        return f"{scored}, means over {seeds_word(counts[0])} per row."
    return (
        f"{scored}, means over {counts[0]} to {counts[-1]} seeds per row; changes are adjusted for "
        "seeds that a row lacks, and so may differ from those of the printed means."
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


def change_text(change: Change | None) -> str:
    """A relative change with its interval and marks; in points from a baseline near zero.

    Examples:
        >>> change_text(Change(2, 0.2, 0.23, 0.03, 0.15, p=0.2))
        '+15.00%°'
        >>> change_text(Change(2, 0.001, 0.004, 0.003, math.nan, Interval(0.001, 0.005), p=0.01))
        '+0.30 pt (+0.10 to +0.50)'
    """
    if change is None:
        return "–"
    marks = "" if change.significant else MARK
    marks += SINGLE if change.runs == 1 and change.interval else ""
    marks += EQUIVALENT if change.equivalent else ""
    if math.isnan(change.relative):
        return f"{100 * change.difference:+.2f} pt{marks}" + _between(change.interval, 2)
    number = cell(change.relative, improvement=True)
    return f"{number}{marks}" + _between(change.relative_interval)


def _between(interval: Interval | None, digits: int = 1) -> str:
    if interval is None:
        return ""
    return f" ({100 * interval.low:+.{digits}f} to {100 * interval.high:+.{digits}f})"


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
    *("grid", "row", "baseline", "score", "seeds", "mean", "lowest", "highest", "compared_seeds"),
    *("difference", "difference_low", "difference_high", "change", "change_low", "change_high"),
    *("p", "significant", "published", "published_change"),
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
    "γ": r"$\gamma$",
    "η": r"$\eta$",
    "ℓ": r"$\ell$",
    "₁": r"$_1$",
    "₂": r"$_2$",
    "→": r"$\to$",
    "×": r"$\times$",
    "°": r"$^\circ$",
    "†": r"$^\dagger$",
    "≈": r"$\approx$",
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
        return [column, len(values), *spread, 0, *[""] * 8, *published]
    compared = [
        change.difference,
        *_ends(change.interval),
        change.relative,
        *_ends(change.relative_interval),
        change.p,
        str(change.significant).lower(),
    ]
    return [column, len(values), *spread, change.runs, *compared, *published]


def _ends(interval: Interval | None) -> tuple[object, object]:
    return ("", "") if interval is None else (interval.low, interval.high)
