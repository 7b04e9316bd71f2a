"""What the documents claim about our runs on voc320: each change with its interval and p-value.

``python -m tools.render`` writes the claims to ``studies/voc320/claims.csv``. The tables of
``docs/findings.md`` and the numbers in sentences are taken from that file.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alphaiou.inference.tables import markdown
from alphaiou.metrics.columns import column_title
from alphaiou.metrics.comparison import relative_improvement
from alphaiou.paper.grids import SIMILARITY
from alphaiou.study.records import RowRuns, RunRecord, by_name, comparable_rows, grid_runs
from alphaiou.study.statistics import Change, Interval, Model, fit_rows, holm
from alphaiou.study.tables import change_text
from benchmarks.record import Record
from studies.voc320.search import at_best_gain
from tools.findings import grids_with_runs
from tools.runs import runs_of

COLUMNS = ("ap50", "ap75", "ap90", "ap95", "map", "map75_95")
FIELDS = (
    *("claim", "row", "baseline", "score", "value", "low", "high"),
    *("p", "runs", "baseline_runs", "paper"),
)
#: The kinds that have their α version among the runs, beside IoU and DIoU.
KINDS = {"giou": "GIoU", "ciou": "CIoU", "eiou": "EIoU", "siou": "SIoU", "wiou": "WIoU v3"}
#: IoU and α-IoU with the gain that is best for each.
BEST, BEST_ALPHA = "best IoU", "best α-IoU"
_TUNED = "class gain ×2, objectness gain ×4"


@dataclass(frozen=True)
class Claim:
    """A comparison of two rows of the grids, by their labels.

    Attributes:
        name: Its name in tokens.
        row: The label of the row.
        baseline: That of its baseline.
        whole: For a share: the row whose change against the baseline ``row`` explains.
        grid: The grid whose table it belongs to.
    """

    name: str
    row: str
    baseline: str
    whole: str = ""
    grid: str = "table1"

    @property
    def labels(self) -> list[str]:
        """The labels of its rows."""
        return [name for name in (self.row, self.baseline, self.whole) if name]


def _powered(kind: str, where: str = "") -> tuple[str, str]:
    """A loss with α = 3, and without the power."""
    return f"α-{kind} (α=3){where}", f"{kind}{where}"


CLAIMS: tuple[Claim, ...] = (
    Claim("alpha3", *_powered("IoU")),
    Claim("alpha3-diou", *_powered("DIoU")),
    # A larger box gain
    *(Claim(f"gain{gain:g}", f"IoU, box gain ×{gain:g}", "IoU") for gain in (0.5, 2, 3)),
    Claim("gain2-diou", "DIoU, box gain ×2", "DIoU"),
    *(Claim(f"alpha3-gain{n:g}", f"α-IoU (α=3), box gain ×{n:g}", "IoU") for n in (0.5, 2, 3)),
    Claim("share", "IoU, box gain ×2", "IoU", whole="α-IoU (α=3)"),
    Claim("best", BEST_ALPHA, BEST),
    # Other powers, other kinds, objectness
    *(Claim(f"alpha{power:g}", f"α-IoU (α={power:g})", "IoU") for power in (0.5, 2, 4, 5, 10)),
    *(Claim(name, kind, "IoU") for name, kind in {"diou": "DIoU", **KINDS}.items()),
    *(Claim(f"alpha3-{name}", *_powered(kind)) for name, kind in KINDS.items()),
    *(
        Claim(f"similarity-{kind.lower()}", f"α-{kind} (α=3), {SIMILARITY}", f"α-{kind} (α=3)")
        for kind in ("IoU", "DIoU")
    ),
    # Other trainings
    *(
        Claim(f"noise{rate:g}-{kind.lower()}", *_powered(kind, f", η={rate:g}"), grid="table3")
        for rate in (0.1, 0.2, 0.3)
        for kind in ("IoU", "DIoU")
    ),
    Claim("noise0.3-gain2", "IoU, η=0.3, box gain ×2", "IoU, η=0.3", grid="table3"),
    Claim("noise0.3-alpha3-gain2", "α-IoU (α=3), η=0.3, box gain ×2", "IoU, η=0.3", grid="table3"),
    *(
        Claim(f"small{share}-{kind.lower()}", *_powered(kind, f", {share}%"), grid="small")
        for share in (50, 25)
        for kind in ("IoU", "DIoU", "GIoU")
    ),
    Claim("length30", *_powered("IoU", ", 30 epochs"), grid="length"),
    # The search for better gains
    Claim("tuned", f"IoU, box gain ×4, {_TUNED}", BEST),
    Claim("tuned-alpha", f"α-DIoU (α 1→5), box gain ×2, {_TUNED}", BEST),
    Claim("tuned-power", f"α-DIoU (α 1→5), box gain ×2, {_TUNED}", f"IoU, box gain ×4, {_TUNED}"),
    Claim("rate2", "IoU, box gain ×2, learning rate ×2", BEST),
)


def claims_csv(record: Record, claims: Sequence[Claim] = CLAIMS) -> str:
    """Every claim and score as a line of CSV; changes are fractions.

    A claim is estimated as in the table of its grid, from all runs comparable with that grid. Its
    p-value is its own, not adjusted for other claims. Scores whose baseline is too low for a
    relative change are left out.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        claims: The claims; those without runs are left out.
    """
    records = by_name(runs_of(record))
    rows, grids = _rows(records)
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    known = [claim for claim in claims if all(label in rows for label in claim.labels)]
    models = {}
    for grid in dict.fromkeys(claim.grid for claim in known):
        named = [rows[label] for claim in known if claim.grid == grid for label in claim.labels]
        # One label for each set of runs: the gains have names of their own for rows of Table 1.
        own = {row.row.label: row for row in (*named, *grids.get(grid, ()))}
        comparable = comparable_rows(own, records)
        models[grid] = {column: fit_rows(comparable, column) for column in COLUMNS}
    for claim in known:
        labels = [rows[label].row.label for label in claim.labels]
        first, second = (rows[label] for label in (claim.row, claim.baseline))
        for column in COLUMNS:
            found = _estimate(models[claim.grid][column], labels)
            if found is None:
                continue
            value, interval, p = found
            published = [own.row.published.get(column, math.nan) for own in (first, second)]
            numbers = {
                "value": value,
                "low": interval.low,
                "high": interval.high,
                "p": p,
                "paper": relative_improvement(*published),
            }
            row = ", as a share of ".join((labels[0], *labels[2:]))
            line = {"claim": claim.name, "row": row, "baseline": labels[1], "score": column}
            line["runs"], line["baseline_runs"] = (str(len(x.every())) for x in (first, second))
            line |= {name: "" if math.isnan(x) else f"{x:.4f}" for name, x in numbers.items()}
            writer.writerow(line)
    return text.getvalue()


def claims_table(record: Record, names: Iterable[str], columns: Sequence[str]) -> str:
    """Claims as a Markdown table of changes, with those of the paper below.

    Significance is adjusted by Holm's method for all changes of a column.

    Args:
        record: The file of claims, as ``load_record`` gives it.
        names: The claims.
        columns: The scores.
    """
    rows = {name: [row for row in record["rows"] if row["claim"] == name] for name in names}
    cells: dict[tuple[str, str], str] = {}
    for column in columns:
        own = {name: row for name, every in rows.items() for row in every if row["score"] == column}
        p = holm([float(row["p"]) for row in own.values()])
        for (name, row), adjusted in zip(own.items(), p, strict=True):
            cells[name, column] = change_text(_change(row, adjusted))
            cells[f"{name} paper", column] = f"{float(row['paper']):+.2%}" if row["paper"] else "–"
    lines = []
    for name, (first, *_) in rows.items():
        lines.append([f"{first['row']} against {first['baseline']}", name])
        if first["paper"]:
            lines.append(["– in the paper", f"{name} paper"])
    lines = [[text, *(cells.get((key, c), "–") for c in columns)] for text, key in lines]
    return markdown(["change", *map(column_title, columns)], lines, left=1)


def _rows(
    records: Mapping[str, RunRecord],
) -> tuple[dict[str, RowRuns], dict[str, list[RowRuns]]]:
    """The rows of all grids by label, with IoU and α-IoU at their best gains; and by grid.

    Rows with the same runs are one row, with the label that comes first.
    """
    rows: dict[str, RowRuns] = {}
    first: dict[frozenset[str], RowRuns] = {}
    by_grid: dict[str, list[RowRuns]] = {}
    for grid in grids_with_runs(records):
        if grid.found_shares:  # of which earlier runs have no count
            continue
        found = grid_runs(grid, records)
        if grid.name == "gains":
            for name, kind in ((BEST, "IoU"), (BEST_ALPHA, "α-IoU (α=3)")):
                line = [own for label, own in found.items() if label.startswith(f"{kind}, box")]
                found[name] = at_best_gain(line)
        for label, own in found.items():
            runs = frozenset(record["name"] for _, record in own.every())
            rows.setdefault(label, first.setdefault(runs, own))
        by_grid[grid.name] = [rows[label] for label in found]
    return rows, by_grid


def _estimate(model: Model, labels: Sequence[str]) -> tuple[float, Interval, float] | None:
    """A relative change or a share with its interval, and the p-value of the change."""
    row, baseline, *whole = labels
    if whole:
        share, interval = model.share(row, whole[0], baseline)
        return None if interval is None else (share, interval, math.nan)
    change = model.change(row, baseline)
    if change is None or change.relative_interval is None:
        return None
    return change.relative, change.relative_interval, change.p


def _change(row: Mapping[str, str], p: float) -> Change:
    interval = Interval(float(row["low"]), float(row["high"]))
    runs = min(int(row["runs"]), int(row["baseline_runs"]))
    nan = math.nan
    return Change(runs, nan, nan, nan, float(row["value"]), interval, interval, p)
