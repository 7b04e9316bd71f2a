"""Tables of the losses: speed, hard boxes, errors in fp32, the simulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphaiou.inference.tables import markdown
from alphaiou.losses.kinds import kind_title
from alphaiou.losses.quality import QUALITY_LOSSES
from alphaiou.losses.spec import LossSpec
from benchmarks.record import Record, Row

CONTENDERS = {
    "fused": "ours, fused",
    "reference": "ours, reference",
    "eager": "textbook, eager",
    "compiled": "textbook, torch.compile",
    "torchvision": "torchvision",
}
BACKWARD = "forward+backward"
_OFF_EVERYWHERE = ("value_off_all", "gradient_off_all")


def losses_table(
    record: Record, *, clock: str = "wall", mode: str = BACKWARD, kinds: Sequence[str] = ()
) -> str:
    """Milliseconds of every contender, for the losses that others have too; fp32, α = 3.

    Args:
        record: What ``benchmarks.losses`` wrote.
        clock: ``wall``, from Python, or ``device``.
        mode: ``forward`` or ``forward+backward``.
        kinds: The losses to show; by default all.
    """
    shown = [
        rows
        for rows in _by_cell(record).values()
        if _is(rows, dtype="fp32", alpha=3.0, mode=mode)
        and any(not r["ours"] for r in rows)
        and (not kinds or rows[0]["kind"] in kinds)
    ]
    names = [n for n in CONTENDERS if any(_of(rows, n) for rows in shown)]
    head = ["loss", "pairs", *(CONTENDERS[n] for n in names), "× torchvision", "× best of others"]
    lines = []
    for rows in sorted(shown, key=lambda rows: rows[0]["pairs"]):
        ours = _ours(rows)
        lines.append(
            [
                LossSpec(rows[0]["kind"], rows[0]["alpha"]).display_name,
                f"{rows[0]['pairs']:,}",
                *(_milliseconds(_of(rows, name), clock) for name in names),
                times(ours[f"{clock}_vs_torchvision"]),
                times(ours[f"{clock}_vs_best_peer"]),
            ]
        )
    return markdown(head, lines, left=1)


def kinds_table(record: Record, *, mode: str = BACKWARD) -> str:
    """Every kind of ours at the smallest and the largest size: times, bandwidth and memory."""
    cells = [r for r in _by_cell(record).values() if _is(r, dtype="fp32", alpha=3.0, mode=mode)]
    sizes = sorted({rows[0]["pairs"] for rows in cells})
    accelerator = record["device_type"] != "cpu"
    head = ["loss", f"wall, {sizes[0]:,} pairs", f"wall, {sizes[-1]:,}"]
    head += [f"device, {sizes[-1]:,}"] * accelerator + ["of the copy bandwidth"]
    head += ["bytes a pair beyond the inputs"] * accelerator
    lines = []
    for kind in dict.fromkeys(rows[0]["kind"] for rows in cells):
        of_kind = {rows[0]["pairs"]: _ours(rows) for rows in cells if rows[0]["kind"] == kind}
        small, large = of_kind[sizes[0]], of_kind[sizes[-1]]
        line = [LossSpec(kind, 3.0).display_name, _milliseconds(small, "wall")]
        line += [_milliseconds(large, "wall")] + [_milliseconds(large, "device")] * accelerator
        line += [_share(large["share_of_copy"])] + [_memory(large)] * accelerator
        lines.append(line)
    return markdown(head, lines, left=1)


def precision_table(record: Record, *, mode: str = BACKWARD) -> str:
    """CIoU in every dtype and with α = 1 and 3, ours: what precision and the power cost."""
    lines = []
    for rows in _by_cell(record).values():
        if not _is(rows, kind="ciou", mode=mode):
            continue
        ours = _ours(rows)
        line = [f"{ours['pairs']:,}", ours["dtype"], f"{ours['alpha']:g}"]
        line += [_milliseconds(ours, clock) for clock in ("wall", "device")]
        lines.append([*line, _share(ours["share_of_copy"])])
    head = ["pairs", "dtype", "α", "wall", "device", "of the copy bandwidth"]
    return markdown(head, sorted(lines, key=lambda line: int(line[0].replace(",", ""))), left=0)


def memory_table(record: Record) -> str:
    """Bytes per pair beyond the inputs at the peak of forward and backward, fp32, largest size."""
    cells = [
        rows
        for rows in _by_cell(record).values()
        if _is(rows, dtype="fp32", alpha=3.0, mode=BACKWARD) and any(not r["ours"] for r in rows)
    ]
    largest = max(rows[0]["pairs"] for rows in cells)
    names = [n for n in CONTENDERS if any(_of(rows, n) for rows in cells)]
    lines = [
        [LossSpec(rows[0]["kind"], 3.0).display_name, *(_memory(_of(rows, n)) for n in names)]
        for rows in cells
        if rows[0]["pairs"] == largest
    ]
    return markdown(["loss", *(CONTENDERS[n] for n in names)], lines, left=1)


def _by_cell(record: Record) -> dict[tuple[object, ...], list[Row]]:
    """The rows that belong together, in the order of the record."""
    found: dict[tuple[object, ...], list[Row]] = {}
    for row in record["rows"]:
        key = tuple(row[name] for name in ("kind", "alpha", "dtype", "pairs", "mode"))
        found.setdefault(key, []).append(row)
    return found


@dataclass(frozen=True)
class FuzzLine:
    """Counts and errors of one loss, over all powers and dtypes.

    ``everywhere`` and ``ordinary`` hold the number of pairs, of values that are not finite, and of
    gradients that are not. The last four are errors against float64, None where it was not
    compared: at α = 0 the slope of a million multiplies every rounding, so it stands apart.
    """

    contender: str
    kind: str
    everywhere: tuple[int, int, int]
    ordinary: tuple[int, int, int]
    largest_gradient: float
    value_error: float | None
    gradient_error: float | None
    off: float | None
    log_gradient_error: float | None

    @property
    def title(self) -> str:
        """The loss, and whose it is if it is not our default."""
        suffix = {"torchvision": ", torchvision", "reference": ", autograd"}
        return kind_title(self.kind) + suffix.get(self.contender, "")


def fuzz_summary(record: Record) -> list[FuzzLine]:
    """The lines of a fuzz record, one per implementation and loss, ours first."""
    rows: list[Row] = record["rows"]
    lines = []
    for contender, kind in dict.fromkeys((row["contender"], row["kind"]) for row in rows):
        own = [row for row in rows if (row["contender"], row["kind"]) == (contender, kind)]
        finite = [row for row in own if row["test"] == "finite"]
        compared = [row for row in own if row["test"] == "agreement"]
        powers = [row for row in compared if row["alpha"] > 0]
        logs = [row for row in compared if row["alpha"] == 0]
        count = sum(row["comparable"] for row in powers)
        plain = [r for r in finite if r["alpha"] == 1 and r["domain"] == "ordinary"]
        lines.append(
            FuzzLine(
                contender,
                kind,
                _counts(finite, "all"),
                _counts(finite, "ordinary"),
                max((row["largest_gradient"] for row in plain), default=0.0),
                max((row["value_error"] for row in compared), default=None),
                max((row["gradient_error"] for row in powers), default=None),
                sum(row["gradient_off"] for row in powers) / count if count else None,
                max((row["gradient_error"] for row in logs), default=None),
            )
        )
    return lines


def fuzz_table(record: Record) -> str:
    """Pairs tried and what was not finite, one line per loss, ours and torchvision's."""
    head = ["loss", "hard pairs", "values not finite", "gradients not finite"]
    head += ["of them ordinary", "values not finite", "gradients not finite"]
    head += ["largest gradient, α = 1, ordinary"]
    lines = [
        [
            line.title,
            *(f"{count:,}" for count in (*line.everywhere, *line.ordinary)),
            _plain_number(line.largest_gradient),
        ]
        for line in fuzz_summary(record)
    ]
    return markdown(head, lines, left=1)


def fuzz_total_table(record: Record) -> str:
    """The totals: all of our losses together, then torchvision's."""
    lines, rows = fuzz_summary(record), []
    for contender in dict.fromkeys(line.contender for line in lines):
        own = [line for line in lines if line.contender == contender]
        if contender == "torchvision":
            rows += [[f"torchvision {kind_title(line.kind)}", *_total([line])] for line in own]
        else:
            name = "ours, autograd" if contender == "reference" else "ours"
            rows.append([f"{name}, {len(own)} losses, α from 0 to 10", *_total(own)])
    head = ["implementation", "hard pairs", "values not finite", "gradients not finite"]
    head += ["of them ordinary", "values not finite", "gradients not finite"]
    return markdown(head, rows, left=1)


def quality_fuzz_table(record: Record) -> str:
    """What the fuzz of the quality losses found, one line per loss."""
    lines = []
    for name, kind in QUALITY_LOSSES.items():
        own = [row for row in record["rows"] if row["kind"] == name]
        counts = ("entries", "nonfinite_values", "nonfinite_gradients")
        error = max(row["value_error"] or 0.0 for row in own)
        cells = [f"{sum(row[key] for row in own):,}" for key in counts]
        lines.append([kind.title, *cells, _small_number(error)])
    head = ["loss", "logits", "values not finite", "gradients not finite", "error of fp32"]
    return markdown(head, lines, left=1)


def agreement_table(record: Record) -> str:
    """How far fp32 is from float64, one line per loss of ours, over all powers."""
    lines = []
    for line in fuzz_summary(record):
        own = [
            row
            for row in record["rows"]
            if row["test"] == "agreement"
            and (row["contender"], row["kind"]) == (line.contender, line.kind)
        ]
        if not own:
            continue
        pairs = sum(r["pairs"] for r in own)
        part = sum(r["comparable"] for r in own) / pairs
        everywhere = [sum(r[key] for r in own) / pairs for key in _OFF_EVERYWHERE]
        errors = (line.value_error, line.gradient_error, line.off, line.log_gradient_error)
        lines.append(
            [line.title, f"{part:.0%}", *map(_small_number, errors)]
            + [f"{share:.1%}" for share in everywhere]
        )
    head = ["loss", "comparable pairs", "error of the value", "error of the gradient, α > 0"]
    head += ["share of gradients off by more than 1e-4", "error of the gradient, α = 0"]
    head += ["of all pairs: values off by more than 1e-4", "gradients off by more than 1e-4"]
    return markdown(head, lines, left=1)


def simulation_table(record: Record) -> str:
    """Final IoU and error under each loss: the ``summary.csv`` of ``alphaiou simulate``."""
    shares = [key for key in record["rows"][0] if key.startswith("share_iou_over_")]
    head = ["loss", "mean IoU", *(f"IoU > {key.rpartition('_')[2]}" for key in shares)]
    lines = [
        [
            LossSpec.parse(row["loss"]).display_name,
            f"{float(row['mean_iou']):.3f}",
            *(f"{float(row[key]):.1%}" for key in shares),
            f"{float(row['total_error']):,.0f}",
        ]
        for row in record["rows"]
    ]
    return markdown([*head, "total error"], lines, left=1)


def simulation_variants_table(record: Record) -> str:
    """The mean final IoU of each loss under several settings of the simulation."""
    settings = {
        "published": "as published",
        "equal-slope": "`--equal-slope`",
        "near": "`--radius 0.5`",
        "near-equal-slope": "`--radius 0.5 --equal-slope`",
    }
    means = {
        name: {row["loss"]: float(row["mean_iou"]) for row in record["tables"][name]}
        for name in settings
    }
    lines = [
        [LossSpec.parse(loss).display_name, *(f"{means[name][loss]:.3f}" for name in settings)]
        for loss in means["published"]
    ]
    return markdown(["loss", *settings.values()], lines, left=1)


def figures(value: float) -> str:
    """A positive number with three figures, without powers of ten."""
    decimals = next((d for d, limit in enumerate((100, 10, 1, 0.1, 0.01)) if value >= limit), 5)
    return f"{value:,.{decimals}f}"


def times(value: float | None) -> str:
    """A ratio, such as 8.7×."""
    if value is None:
        return "–"
    return f"{value:.{2 if value < 1 else 1 if value < 20 else 0}f}×"


def _share(value: float | None) -> str:
    """A share in percent."""
    return "–" if value is None else f"{value:.0%}"


def _small_number(value: float | None) -> str:
    """A number far below 1."""
    return "–" if value is None else f"{value:.0e}" if value else "0"


def _plain_number(value: float) -> str:
    """A positive number: with its digits up to a million, as a power of ten above."""
    return f"{value:.1e}" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _milliseconds(row: Row | None, clock: str) -> str:
    """A time with three figures; an asterisk marks a call that was queued, not captured."""
    value = None if row is None else row[f"{clock}_ms"]
    if row is None or value is None:
        return "–"
    queued = clock == "device" and row["device_how"] == "queue"
    return f"{figures(value)} ms" + "*" * queued


def _memory(row: Row | None) -> str:
    value = None if row is None else row["memory_bytes_per_pair"]
    return "–" if value is None else f"{value:,.0f}"


def _is(rows: Sequence[Row], **wanted: object) -> bool:
    return all(rows[0][key] == value for key, value in wanted.items())


def _of(rows: Sequence[Row], name: str) -> Row | None:
    return next((row for row in rows if row["contender"] == name), None)


def _ours(rows: Sequence[Row]) -> Row:
    return _of(rows, "fused") or _of(rows, "reference") or rows[0]


def _counts(rows: Sequence[Row], domain: str) -> tuple[int, int, int]:
    keys = ("pairs", "nonfinite_values", "nonfinite_gradients")
    pairs, values, gradients = (
        sum(row[key] for row in rows if row["domain"] == domain) for key in keys
    )
    return pairs, values, gradients


def _total(lines: Sequence[FuzzLine]) -> list[str]:
    counts = zip(*((*line.everywhere, *line.ordinary) for line in lines), strict=True)
    return [f"{sum(count):,}" for count in counts]
