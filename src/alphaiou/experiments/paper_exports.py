"""Tables of grids as Markdown, CSV and LaTeX: the same bytes from the same records."""

from __future__ import annotations

import csv
import io
from typing import Literal

from alphaiou.experiments.markdown import markdown
from alphaiou.experiments.paper_tables import Line, PaperTable, TableRow, table_lines
from alphaiou.experiments.score_tables import column_title
from alphaiou.experiments.statistics import Interval

TableFormat = Literal["md", "csv", "latex"]
_CSV_HEAD = (
    *("grid", "row", "baseline", "score", "seeds", "mean", "lowest", "highest", "paired_seeds"),
    *("difference", "difference_low", "difference_high", "student_low", "student_high"),
    *("change", "change_low", "change_high", "decided", "published", "published_change"),
)


def table_text(table: PaperTable, how: TableFormat = "md") -> str:
    """The table in a format, the same bytes each time."""
    return {"md": table_markdown, "csv": table_csv, "latex": table_latex}[how](table)


def table_markdown(table: PaperTable) -> str:
    """The table as Markdown, with its title, its sentences and its notes."""
    lists = ["\n".join(f"- {line}" for line in lines) for lines in (table.sentences, table.notes)]
    return "\n\n".join((f"### {table.title}", markdown_lines(table), *filter(None, lists))) + "\n"


def markdown_lines(table: PaperTable) -> str:
    """The bare table as Markdown."""
    lines = [[_name(line), *line.cells] for line in table_lines(table)]
    return markdown(["loss", *map(column_title, table.columns)], lines, left=1)


def table_csv(table: PaperTable) -> str:
    """Everything in numbers, a line for each row and score; scores and changes are fractions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_CSV_HEAD)
    for row in table.rows:
        for column in table.columns:
            writer.writerow([table.name, row.label, row.baseline, *_csv_numbers(row, column)])
    return text.getvalue()


def table_latex(table: PaperTable) -> str:
    """The table for a document that uses the package booktabs."""
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
