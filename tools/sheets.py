"""Wide tables as CSV files beside their records, for readers with a spreadsheet."""

from __future__ import annotations

import csv
import io
from functools import cache
from pathlib import Path

from benchmarks.record import load_record
from tools.claims import claims_csv
from tools.findings import grid_tables
from tools.tables import TABLES

#: The file of each table, and the record and the name of the table that it is made from.
SHEETS = {
    "benchmarks/losses-cuda-device.csv": ("benchmarks/losses-cuda.json", "losses-device"),
    "benchmarks/losses-cuda-wall.csv": ("benchmarks/losses-cuda.json", "losses"),
    "benchmarks/losses-cuda-forward.csv": ("benchmarks/losses-cuda.json", "losses-forward"),
    "benchmarks/losses-cuda-precision.csv": ("benchmarks/losses-cuda.json", "precision"),
    "benchmarks/losses-cuda-memory.csv": ("benchmarks/losses-cuda.json", "memory"),
    "benchmarks/losses-cpu-wall.csv": ("benchmarks/losses-cpu.json", "losses"),
    "benchmarks/losses-cuda-kinds.csv": ("benchmarks/losses-cuda.json", "kinds"),
    "benchmarks/losses-cpu-kinds.csv": ("benchmarks/losses-cpu.json", "kinds"),
    "benchmarks/fuzz-cpu-kinds.csv": ("benchmarks/fuzz-cpu.json", "fuzz"),
    "benchmarks/fuzz-cuda-kinds.csv": ("benchmarks/fuzz-cuda.json", "fuzz"),
    "benchmarks/fuzz-cpu-agreement.csv": ("benchmarks/fuzz-cpu.json", "agreement"),
    "benchmarks/fuzz-cuda-agreement.csv": ("benchmarks/fuzz-cuda.json", "agreement"),
    "benchmarks/training-cuda-parts.csv": ("benchmarks/training-cuda.json", "training-parts"),
    "benchmarks/training-cuda-profile.csv": ("benchmarks/training-cuda.json", "training-profile"),
    "benchmarks/training-cuda-times.csv": ("benchmarks/training-cuda.json", "training-times"),
    "benchmarks/training-cuda-together.csv": ("benchmarks/training-cuda.json", "side-by-side"),
    "benchmarks/detectors-cuda-parts.csv": ("benchmarks/detectors-cuda.json", "detectors-parts"),
    "benchmarks/norm_silu-cuda.csv": ("benchmarks/norm_silu-cuda.json", "norm-silu"),
    "benchmarks/ultralytics_voc320.csv": ("benchmarks/ultralytics_voc320", "framework-runs"),
    "studies/voc320/tables/repeats.csv": ("studies/voc320/records", "repeats"),
    "studies/voc320/tables/scatter.csv": ("studies/voc320/records", "scatter"),
}
#: The folder of the runs on voc320, which the tables and the claims beside it are made from.
STUDY, RUNS = Path("studies/voc320"), "records"


def sheets(root: Path) -> dict[Path, str]:
    """The CSV files of the records that a repository has, and their text."""
    load = cache(load_record)
    found = {
        root / path: as_csv(TABLES[table](load(root / record)))
        for path, (record, table) in SHEETS.items()
        if (root / record).exists()
    }
    if (root / STUDY / RUNS).exists():
        record = load(root / STUDY / RUNS)
        tables = grid_tables(record).items()
        found |= {root / STUDY / "tables" / f"{name}.csv": as_csv(text) for name, text in tables}
        found[root / STUDY / "claims.csv"] = claims_csv(record)
    return found


def as_csv(table: str) -> str:
    r"""A Markdown table as CSV; the text around it is left out.

    Examples:
        >>> as_csv("| loss | pairs |\n| --- | ---: |\n| α-IoU | 1,024 |")
        'loss,pairs\nα-IoU,"1,024"\n'
    """
    lines = [line for line in table.splitlines() if line.startswith("|")]
    head, _, *rows = (line.strip("|").split("|") for line in lines)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([cell.strip() for cell in row] for row in (head, *rows))
    return text.getvalue()
