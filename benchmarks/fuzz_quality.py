"""Fuzz the quality losses with logits of any size: non-finite results, and errors of fp32.

    python -m benchmarks.fuzz_quality [--entries 1000000] [--device cpu]

A quarter of the logits has the spread of a detector's, the others any size up to the largest number
of the dtype; IoUs are 0, 1, tiny or uniform, and half of the entries are positives. *Ordinary*
logits lie within ±30. Errors are those of fp32 against float64, over ordinary logits.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou.losses import QUALITY_LOSSES, quality_loss
from benchmarks.fuzz import DTYPES
from benchmarks.record import (
    FOLDER,
    Record,
    Row,
    add_common_options,
    conditions,
    positive,
    settings_of,
    write_record,
)

QUICK_ENTRIES = 4000
ORDINARY = 30.0
ALPHAS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 10.0)
GAMMAS = (0.0, 0.5, 1.5, 2.0, 5.0)


class Entries(NamedTuple):
    """Logits, IoUs, which entries are positives, and which logits a detector can produce."""

    logits: Tensor
    iou: Tensor
    positive: Tensor
    ordinary: Tensor


def main(argv: Sequence[str] | None = None) -> int:
    """Test every quality loss; the record is written after each."""
    options = _options(argv)
    path = options.out or FOLDER / f"fuzz-quality-{options.device.type}.json"
    share = -(-options.entries // (len(DTYPES) * len(GAMMAS)))
    batteries = {name: adversarial_entries(share, name, options) for name in DTYPES}
    record: Record = {
        "record": "fuzz-quality",
        **conditions(options.device),
        "settings": settings_of(options),
        "complete": False,
        "rows": [],
    }
    for kind in QUALITY_LOSSES:
        for alpha in options.alphas:
            about = {"kind": kind, "alpha": alpha}
            rows = [
                about | {"dtype": dtype} | fuzzed(entries, kind, alpha)
                for dtype, entries in batteries.items()
            ]
            record["rows"] += rows
            total, values, gradients = (sum(row[key] for row in rows) for key in _TOTALS)
            print(f"{kind} α={alpha:g}: {total:,} entries, not finite: {values}, {gradients}")
        record["complete"] = kind == [*QUALITY_LOSSES][-1]
        write_record(record, path)
    print(f"wrote {path}")
    return 0


_COUNTS = ("nonfinite_values", "nonfinite_gradients")
_TOTALS = ("entries", *_COUNTS)


def fuzzed(entries: Entries, kind: str, alpha: float) -> Row:
    """One row: every γ on the entries of one dtype."""
    row: Row = {"entries": 0, "ordinary": 0, **dict.fromkeys(_COUNTS, 0)}
    row |= {"largest_gradient": 0.0, "value_error": None, "gradient_error": None}
    if entries.logits.dtype == torch.float32:
        row |= {"value_error": 0.0, "gradient_error": 0.0}
    for gamma in GAMMAS:
        value, gradient = value_and_gradient(entries, kind, alpha, gamma)
        ordinary = entries.ordinary
        row["entries"] += value.numel()
        row["ordinary"] += int(ordinary.sum())
        row["nonfinite_values"] += int((~value.isfinite()).sum())
        row["nonfinite_gradients"] += int((~gradient.isfinite()).sum())
        largest = gradient[ordinary].abs().max().item()
        row["largest_gradient"] = max(row["largest_gradient"], largest)
        if entries.logits.dtype == torch.float32:
            exact = entries._replace(logits=entries.logits.double(), iou=entries.iou.double())
            truth = value_and_gradient(exact, kind, alpha, gamma)
            for name, found, expected in zip(
                ("value_error", "gradient_error"), (value, gradient), truth, strict=True
            ):
                error = (found.double() - expected).abs() / expected.abs().clamp(min=1.0)
                row[name] = max(row[name], error[ordinary].max().item())
    return row


def value_and_gradient(
    entries: Entries, kind: str, alpha: float, gamma: float
) -> tuple[Tensor, Tensor]:
    """The loss of each entry and its slope."""
    leaf = entries.logits.clone().requires_grad_()
    loss = quality_loss(
        leaf, entries.iou, kind=kind, alpha=alpha, gamma=gamma, positive=entries.positive
    )
    (gradient,) = torch.autograd.grad(loss, leaf, torch.ones_like(loss))
    return loss.detach(), gradient


def adversarial_entries(count: int, dtype: str, options: argparse.Namespace) -> Entries:
    """Draw entries of one dtype; all logits are finite."""
    generator = torch.Generator().manual_seed(options.seed)

    def uniform() -> Tensor:
        return torch.rand(count, generator=generator, dtype=torch.float64)

    limits = torch.finfo(DTYPES[dtype])
    low = math.log10(limits.smallest_normal * limits.eps)
    size = 10.0 ** (low + (math.log10(limits.max) - low) * uniform())
    size = torch.where(uniform() < 0.4, 10.0 ** (4 * uniform() - 1), size)
    logits = size * (uniform() < 0.5).double().mul(2).sub(1)
    usual = 4.0 * torch.randn(count, generator=generator, dtype=torch.float64)
    logits = torch.where(uniform() < 0.25, usual, logits).clamp(-limits.max, limits.max)
    logits[:2] = torch.tensor([limits.max, -limits.max], dtype=torch.float64)
    choice, iou = uniform(), uniform()
    iou = torch.where(choice < 0.15, 0.0, torch.where(choice < 0.3, 1.0, iou))
    iou = torch.where(choice > 0.85, 10.0 ** (-40 * uniform()), iou)
    positive = uniform() < 0.5
    drawn = logits.to(DTYPES[dtype]), iou.to(DTYPES[dtype]), positive
    logits, iou, positive = (tensor.to(options.device) for tensor in drawn)
    return Entries(logits, iou, positive, logits.abs() <= ORDINARY)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz_quality", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--alphas", nargs="+", type=float, default=list(ALPHAS))
    parser.add_argument(
        "--entries",
        type=positive,
        default=1_000_000,
        help="number of entries per loss and power, divided equally among the dtypes and γ",
    )
    add_common_options(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.entries = QUICK_ENTRIES
    return options


if __name__ == "__main__":
    sys.exit(main())
