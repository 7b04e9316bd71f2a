"""``python -m tools.explorer [--check]``: the summary of committed runs that the explorer shows.

The package ships no records. The summary lies among the parts of the page as ``results.json`` and
stays below 11 kB. ``--check`` fails if it is out of date.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS
from alphaiou.study.grid import Grid
from alphaiou.study.records import RunRecord, by_name, comparable_rows, load_records
from alphaiou.study.statistics import Change
from alphaiou.study.tables import table_rows
from alphaiou.training.recipes import gain_factor, is_constant
from tools.runs import grids_of, is_in_corner, rows_of

RECORDS = Path("studies/voc320/records")
RESULTS = Path("src/alphaiou/explorer/parts/results.json")
#: A setting with fewer comparisons is left out.
LEAST_COMPARISONS = 2


def summarise(records: Iterable[RunRecord]) -> list[dict[str, Any]]:
    """One table per setting in which losses can be compared.

    A table holds the kinds of the family at a constant α, and plain losses at other box gains; the
    docs have the other runs. Numbers are percent and points of AP.

    Returns:
        For each setting its ``title`` and its ``runs``. A run has its ``name`` and ``kind``, its
        ``alpha`` if that alone sets it apart from its baseline (else None), the number of
        ``seeds``, its mean ``scores``, and its ``changes`` against the baseline, each as
        ``[mean, low, high]``, or ``[mean]`` if no row has several seeds.
    """
    scored = [record for record in records if _is_scored(record)]
    tables = (_table(grid, scored) for grid in grids_of(scored))
    return [table for table in tables if sum(map(bool, _changes(table))) >= LEAST_COMPARISONS]


def _changes(table: dict[str, Any]) -> list[Any]:
    return [run["changes"] for run in table["runs"]]


def _is_scored(record: RunRecord) -> bool:
    return all(record["scores"].get(score) is not None for score in PAPER_COLUMNS)


def _table(grid: Grid, records: Sequence[RunRecord]) -> dict[str, Any]:
    runs = {label: own for label, own in rows_of(grid, records).items() if own.runs}
    shown = []
    comparable = comparable_rows(runs, by_name(records))
    for row in table_rows(runs, PAPER_COLUMNS, comparable):
        label, own = row.label, runs[row.label]
        recipe, loss = own.row.recipe, own.row.recipe.loss
        is_plain = loss.penalty_alpha is None and not loss.modifiers and is_constant(recipe)
        has_default_gain = gain_factor(recipe) == 1
        if not is_plain or not (has_default_gain or loss.alpha == 1):
            continue
        shown.append(
            {
                "name": label,
                "kind": loss.kind,
                "alpha": loss.alpha if label == _name(loss) else None,
                "seeds": len(row.seeds),
                "scores": [_percent(row.mean(score)) for score in PAPER_COLUMNS],
                "changes": [_change(row.changes[score]) for score in PAPER_COLUMNS]
                if row.changes
                else None,
            }
        )
    return {"title": grid.title, "runs": shown}


def _name(loss: LossSpec) -> str:
    return LossSpec(loss.kind, loss.alpha).display_name


def _change(change: Change) -> list[float]:
    ends = [] if change.interval is None else [change.interval.low, change.interval.high]
    return [_percent(value) for value in (change.difference, *ends)]


def _percent(share: float) -> float:
    return round(100 * share, 2)


def built(root: Path) -> str:
    """The text of the file: one line per run."""
    records = load_records([root / RECORDS]).values()
    tables = summarise(record for record in records if not is_in_corner(record))
    lines = [
        f'{{"title":{_compact(table["title"])},"runs":[\n'
        + ",\n".join(map(_compact, table["runs"]))
        + "]}"
        for table in tables
    ]
    return "[" + ",\n".join(lines) + "]\n"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main(argv: Sequence[str] | None = None, root: Path | None = None) -> int:
    """Bring the file up to date, or with ``--check`` report whether it is."""
    arguments, root = list(sys.argv[1:] if argv is None else argv), root or Path.cwd()
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m tools.explorer [--check]\n")
        return 2
    path, text = root / RESULTS, built(root)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    if arguments:
        sys.stderr.write(f"{path} is out of date: python -m tools.explorer\n")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
