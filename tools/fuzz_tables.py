"""The records of ``alphaiou bench fuzz`` as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alphaiou.inference.tables import markdown, plain_number, small_number
from alphaiou.losses.spec import DISPLAY_NAMES
from benchmarks.record import Record, Row

_OFF_EVERYWHERE = ("value_off_all", "gradient_off_all")


@dataclass(frozen=True)
class FuzzLine:
    """What one loss made of the battery, over all powers and dtypes.

    ``everywhere`` and ``ordinary``: pairs, those of them with a value that is not finite, and with
    a gradient that is not. The last four: against float64, None where that was not compared, the
    gradient with α > 0 and at α = 0, where a slope of a million multiplies every rounding.
    """

    ours: bool
    kind: str
    everywhere: tuple[int, int, int]
    ordinary: tuple[int, int, int]
    largest_gradient: float
    value_error: float | None
    gradient_error: float | None
    off: float | None
    log_gradient_error: float | None


def fuzz_summary(record: Record) -> list[FuzzLine]:
    """The lines of a fuzz record: a loss each, ours first."""
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
                contender != "torchvision",
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
    """Pairs tried and what was not finite, a line a loss, ours and torchvision's."""
    head = ["loss", "hard pairs", "values not finite", "gradients not finite"]
    head += ["of them ordinary", "values not finite", "gradients not finite"]
    head += ["largest gradient, α = 1, ordinary"]
    lines = [
        [
            DISPLAY_NAMES[line.kind] + ("" if line.ours else ", torchvision"),
            *(f"{count:,}" for count in (*line.everywhere, *line.ordinary)),
            plain_number(line.largest_gradient),
        ]
        for line in fuzz_summary(record)
    ]
    return markdown(head, lines, left=1)


def fuzz_total_table(record: Record) -> str:
    """The same in a few lines: all of ours together, then torchvision's."""
    lines = fuzz_summary(record)
    ours = [line for line in lines if line.ours]
    rows = [[f"ours, {len(ours)} losses, every α", *_total(ours)]]
    rows += [
        [f"torchvision {DISPLAY_NAMES[line.kind]}", *_total([line])]
        for line in lines
        if not line.ours
    ]
    head = ["implementation", "hard pairs", "values not finite", "gradients not finite"]
    head += ["of them ordinary", "values not finite", "gradients not finite"]
    return markdown(head, rows, left=1)


def agreement_table(record: Record) -> str:
    """How far fp32 is from float64, a line a loss of ours, over all powers."""
    lines = []
    for line in fuzz_summary(record):
        own = [r for r in record["rows"] if r["test"] == "agreement" and r["kind"] == line.kind]
        if not (line.ours and own):
            continue
        pairs = sum(r["pairs"] for r in own)
        part = sum(r["comparable"] for r in own) / pairs
        everywhere = [sum(r[key] for r in own) / pairs for key in _OFF_EVERYWHERE]
        errors = (line.value_error, line.gradient_error, line.off, line.log_gradient_error)
        lines.append(
            [DISPLAY_NAMES[line.kind], f"{part:.0%}", *map(small_number, errors)]
            + [f"{share:.1%}" for share in everywhere]
        )
    head = ["loss", "comparable pairs", "error of the value", "error of the gradient, α > 0"]
    head += ["share of gradients off by more than 1e-4", "error of the gradient, α = 0"]
    head += ["of all pairs: values off by more than 1e-4", "gradients off by more than 1e-4"]
    return markdown(head, lines, left=1)


def _counts(rows: Sequence[Row], domain: str) -> tuple[int, int, int]:
    keys = ("pairs", "nonfinite_values", "nonfinite_gradients")
    pairs, values, gradients = (
        sum(row[key] for row in rows if row["domain"] == domain) for key in keys
    )
    return pairs, values, gradients


def _total(lines: Sequence[FuzzLine]) -> list[str]:
    counts = zip(*((*line.everywhere, *line.ordinary) for line in lines), strict=True)
    return [f"{sum(count):,}" for count in counts]
