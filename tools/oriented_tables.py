"""Tables of oriented boxes: the numeric contract, areas, speed, and the loss against the angle."""

from __future__ import annotations

from alphaiou.inference.tables import markdown
from alphaiou.losses.kinds import kind_title
from alphaiou.losses.spec import LossSpec
from benchmarks.record import Record, Row

CONTENDERS = {
    "alphaiou": "ours",
    "compiled": "ours, torch.compile",
    "shapely": "shapely (area of the intersection)",
    "ultralytics": "Ultralytics",
    "mmcv": "mmcv",
}
_COUNTS = ("nonfinite_values", "nonfinite_gradients", "out_of_range", "identical_nonzero")
_HEAD = ["pairs", "values not finite", "gradients not finite", "out of range"]
_HEAD += ["identical boxes, not 0", "depend on the writing"]


def contract_table(record: Record, domain: str = "all") -> str:
    """What broke the contract, one line per loss, over all dtypes and powers."""
    rows = _contract_rows(record, domain)
    lines = []
    for contender, kind in dict.fromkeys((row["contender"], row["kind"]) for row in rows):
        own = [row for row in rows if (row["contender"], row["kind"]) == (contender, kind)]
        lines.append([_name(contender, kind), *_counts(own)])
    return markdown(["loss", *_HEAD], lines, left=1)


def contract_total_table(record: Record, domain: str = "all") -> str:
    """The same: all of our losses together, then those of others.

    Examples:
        >>> row = {"test": "contract", "contender": "alphaiou", "kind": "iou", "alpha": 1.0}
        >>> row |= {"domain": "all", "pairs": 1200, "writing_dependent": 0}
        >>> row |= dict.fromkeys(_COUNTS, 0)
        >>> rows = [row, row | {"kind": "kld"}, row | {"contender": "mmcv", "out_of_range": 3}]
        >>> for line in contract_total_table({"rows": rows}).splitlines()[2:]:
        ...     print(line)
        | ours, 2 losses, α = 1 and 3 | 2,400 | 0 | 0 | 0 | 0 | 0 |
        | IoU, mmcv | 1,200 | 0 | 0 | 3 | 0 | 0 |
    """
    rows = _contract_rows(record, domain)
    ours = [row for row in rows if row["contender"] == "alphaiou"]
    kinds = {row["kind"] for row in ours}
    lines = [[f"ours, {len(kinds)} losses, α = 1 and 3", *_counts(ours)]]
    lines += [
        [_name(row["contender"], row["kind"]), *_counts([row])]
        for row in rows
        if row["contender"] != "alphaiou"
    ]
    return markdown(["loss", *_HEAD], lines, left=1)


def _contract_rows(record: Record, domain: str) -> list[Row]:
    return [r for r in record["rows"] if r["test"] == "contract" and r["domain"] == domain]


def _name(contender: str, kind: str) -> str:
    if contender == "alphaiou":
        return kind_title(kind)
    return f"{kind_title(kind)}, {CONTENDERS[contender]}"


def _counts(rows: list[Row]) -> list[str]:
    """The cells of a line; pairs count once for all powers."""
    plain = [row for row in rows if row["alpha"] == 1]
    broken = [_sum(rows, key) for key in _COUNTS]
    return [_sum(plain, "pairs"), *broken, _sum(plain, "writing_dependent")]


def areas_table(record: Record) -> str:
    """The largest error of the exact IoU against shapely."""
    places = {"near": "at the origin", "satellite": "at coordinates of 100,000"}
    lines = [
        [
            CONTENDERS[row["contender"]],
            f"{row['dtype']}, {places[row['place']]}",
            f"{row['pairs']:,}",
            f"{row['error']:.1e}",
        ]
        for row in record["rows"]
        if row["test"] == "area"
    ]
    return markdown(["IoU", "boxes of 1 to 6 px", "pairs", "largest error"], lines, left=2)


def speed_table(record: Record) -> str:
    """Milliseconds per call, one line per loss and implementation."""
    rows = [row for row in record["rows"] if row["test"] == "speed"]
    counts = sorted({row["pairs"] for row in rows})
    head = ["loss", "implementation"]
    head += [f"{count:,} pairs, {what}" for count in counts for what in ("value", "and gradient")]
    lines = []
    for kind, contender in dict.fromkeys((row["kind"], row["contender"]) for row in rows):
        times = {
            (row["pairs"], row["direction"]): row["milliseconds"]
            for row in rows
            if (row["kind"], row["contender"]) == (kind, contender)
        }
        cells = [times.get((count, way)) for count in counts for way in ("forward", "backward")]
        lines.append(
            [kind_title(kind), CONTENDERS[contender]]
            + ["–" if cell is None else f"{cell:,.3g} ms" for cell in cells]
        )
    lines.sort(key=lambda line: [kind_title(row["kind"]) for row in rows].index(line[0]))
    return markdown(head, lines, left=2)


def angle_table(record: Record) -> str:
    """The loss at some angles, one line per loss, for three shapes of boxes."""
    rows: list[Row] = [row for row in record["rows"] if row["alpha"] == "1"]
    places = dict.fromkeys((row["ratio"], row["degrees"]) for row in rows)
    shown = [place for place in places if place[1] in ("5", "45", "90")]
    head = ["loss, α = 1", *(f"{ratio}:1, {degrees}°" for ratio, degrees in shown)]
    lines = []
    for loss in dict.fromkeys(row["loss"] for row in rows):
        own = {(row["ratio"], row["degrees"]): row for row in rows if row["loss"] == loss}
        cells = [f"{float(own[place]['value']):.3f}" for place in shown]
        lines.append([LossSpec.parse(loss).display_name, *cells])
    return markdown(head, lines, left=1)


def _sum(rows: list[Row], key: str) -> str:
    numbers = [row[key] for row in rows if row.get(key) is not None]
    return f"{sum(numbers):,}" if numbers else "–"


#: Of the trainings of ``studies.oriented.study``: the order of rows, and their titles.
RUNS = {
    "own": "its own ProbIoU",
    "probiou:1": "ProbIoU",
    "probiou:3": "α-ProbIoU (α=3)",
    "iou:1@exact": "IoU, exact",
    "iou:3@exact": "α-IoU, exact (α=3)",
}


def oriented_runs_table(record: Record) -> str:
    """The scores of each loss, and the settings of the trainings."""
    runs = sorted(record["runs"], key=lambda run: list(RUNS).index(run["loss"]))
    columns = {"DOTA's AP": "dota", "AP50": "ap50", "AP60": "ap60", "AP70": "ap70", "mAP": "map"}
    lines = [
        [RUNS[run["loss"]], *(f"{100 * run['scores'][name]:.1f}" for name in columns.values())]
        for run in runs
    ]
    first, settings = runs[0], runs[0]["settings"]
    about = (
        f"ultralytics {first['version']}, {first['model']} from random weights on "
        f"{first['train_images']} images of {first['data']}: {settings['epochs']} epochs at "
        f"{settings['imgsz']} px, batch {settings['batch']}, {settings['optimizer']}, seed "
        f"{settings['seed']}. Scored on {first['scored_images']} other images over the exact IoU. "
        f"{first['device']}."
    )
    return f"{markdown(['box loss', *columns], lines, left=1)}\n\n{about}"
