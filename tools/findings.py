"""The grids of the study on voc320, from the committed runs: their tables and their figures.

``python -m tools.findings`` draws the figures of ``docs/findings.md`` into ``docs/images``.
``python -m tools.render`` writes the tables as CSV files into ``studies/voc320/tables``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from alphaiou._figures import save_figure
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.figures import change_chart, sweep_chart
from alphaiou.study.grid import Grid
from alphaiou.study.records import (
    RunRecord,
    by_name,
    comparable_rows,
    drawn_runs,
    grid_runs,
    with_found_seeds,
)
from alphaiou.study.series import change_sweeps, sweeps_of
from alphaiou.study.tables import markdown_lines, study_table
from benchmarks.record import Record, load_record
from studies.voc320 import search
from studies.voc320.exchange import exchange_figure
from tools.runs import runs_of

RECORDS = Path("studies/voc320/records")
#: The data set of the quick grids, by its name in recipes.
DATA = Path("voc320")
#: The grids that have a CSV file.
TABLES = (
    *("table1", "table3", "alpha", "penalty-alpha", "small", "distribution", "length"),
    *("gains", "gains-elsewhere", "objectness", "family", search.NAME),
)
#: The grids that have a figure.
DRAWN = ("table3", "alpha", "small", "gains", search.NAME)


def grids_with_runs(records: Mapping[str, RunRecord]) -> list[Grid]:
    """The paper's grids and our search, each with the rows and seeds that have runs.

    Args:
        records: By the names of their runs, as ``by_name`` gives them.
    """
    scale = quick_scale(DATA)
    grids = (*paper_grids(scale).values(), search.search_grid(scale))
    found = [_with_runs(grid, records) for grid in grids if grid.rows]
    return [grid for grid in found if grid.rows]


def grid_tables(record: Record) -> dict[str, str]:
    """The tables of the grids by name, as Markdown.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
    """
    records = by_name(runs_of(record))
    return {
        grid.name: markdown_lines(
            (search.search_table if grid.name == search.NAME else study_table)(grid, records)
        )
        for grid in grids_with_runs(records)
        if grid.name in TABLES
    }


def drawings(record: Record) -> dict[str, Callable[[], Figure]]:
    """The figures of the findings, by the names of their files."""
    records = by_name(runs_of(record))
    found: dict[str, Callable[[], Figure]] = {}
    for grid in grids_with_runs(records):
        if grid.name in DRAWN:
            found |= _drawings(grid, records)
    return found


def _drawings(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, Callable[[], Figure]]:
    """The figures of a grid; changes rather than levels where every row has a baseline."""
    name, rows = f"{DATA.name}_{grid.name}", drawn_runs(grid, records)
    comparable = comparable_rows(rows, records)
    if grid.name == search.NAME:
        draw = partial(exchange_figure, rows, comparable)
        return {name: draw} if search.exchanges(rows) else {}
    changing = change_sweeps(rows)
    return {
        f"{name}_{sweep.name}": change_chart(rows, sweep, comparable).draw
        if sweep in changing
        else sweep_chart(rows, sweep).draw
        for sweep in sweeps_of(rows)
    }


def _with_runs(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid with the rows and seeds that have runs."""
    grid = with_found_seeds(grid, records)
    runs = grid_runs(grid, records).values()
    return replace(grid, rows=tuple(own.row for own in runs if own.runs))


def main(root: Path | None = None) -> int:
    """Draw the figures whose runs are committed."""
    root = root or Path.cwd()
    for name, draw in drawings(load_record(root / RECORDS)).items():
        for path in save_figure(draw, root / "docs/images" / name, ("svg",)):
            sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
