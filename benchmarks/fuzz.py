"""Fuzz our losses and torchvision's with adversarial boxes: non-finite results and errors.

    python -m benchmarks.fuzz [--backends reference] [--pairs 1000000] [--device cpu]

Results are reported for two domains. ``all`` contains every pair of ``adversarial_pairs``,
including inverted corners and sizes of 1e±30. ``ordinary`` contains the pairs that a detector can
produce, which every implementation should accept: corners in order, no coordinate above 1e4, and a
hull of at least 1e-3 in width or height. Ordinary boxes may be flat, points, identical or touching.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor

from alphaiou.losses import alpha_iou_loss
from alphaiou.losses.kinds import kinds_of
from benchmarks.adversarial import adversarial_pairs
from benchmarks.agreement import PairLoss, agreement, value_and_gradient
from benchmarks.contenders import TORCHVISION_KINDS, torchvision_loss
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

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}
CHUNK = 250_000
QUICK_PAIRS = 560
ORDINARY_COORDINATE, ORDINARY_HULL = 1e4, 1e-3


@dataclass(frozen=True)
class Battery:
    """Pairs of one dtype with their domain and the units of their gradients."""

    pred: Tensor
    target: Tensor
    sides: Tensor  # of the hull, x y x y, float64: the units of the gradients
    ordinary: Tensor


def main(argv: Sequence[str] | None = None) -> int:
    """Test every loss; the record is written after each, in case the run is interrupted."""
    options = _options(argv)
    path = options.out or FOLDER / f"fuzz-{options.device.type}.json"
    batteries = {dtype: list(_batteries(dtype, options)) for dtype in options.dtypes}
    record: Record = {
        "record": "fuzz",
        **conditions(options.device),
        "settings": settings_of(options),
        "complete": False,
        "rows": [],
    }
    steps = list(_steps(options))
    for place, (name, kind, alpha, loss) in enumerate(steps, 1):
        about = {"contender": name, "kind": kind, "alpha": alpha}
        rows = [
            about | {"dtype": dtype} | row
            for dtype, chunks in batteries.items()
            for row in finite_rows(loss, chunks)
        ]
        if name != "torchvision" and "fp32" in batteries:
            pairs = [(chunk.pred, chunk.target) for chunk in batteries["fp32"]]
            exact = partial(alpha_iou_loss, kind=kind, alpha=alpha, backend="reference")
            rows.append(about | {"dtype": "fp32"} | agreement(loss, exact, pairs))
        record["rows"] += rows
        record["complete"] = place == len(steps)
        write_record(record, path)
        print(f"{place}/{len(steps)} {name} {kind} α={alpha:g}: {_summary(rows)}", flush=True)
    print(f"wrote {path}")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fuzz", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--kinds", nargs="+", choices=kinds_of(), default=list(kinds_of()))
    parser.add_argument("--alphas", nargs="+", type=float, default=[0.0, 0.5, 1.0, 2.0, 3.0, 10.0])
    parser.add_argument(
        "--pairs",
        type=positive,
        default=1_000_000,
        help="number of pairs per loss and power, divided equally among the dtypes",
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=list(DTYPES),
        default=list(DTYPES),
        help="dtypes to test; the fused backend has no fp64",
    )
    parser.add_argument(
        "--backends",
        nargs="+",
        choices=["auto", "reference", "fused"],
        help="our backends; by default fused on CUDA, auto and reference on the CPU",
    )
    add_common_options(parser)
    options = parser.parse_args(argv)
    if not options.backends:
        on_cuda = options.device.type == "cuda"
        options.backends = ["fused"] if on_cuda else ["auto", "reference"]
    if "fused" in options.backends:
        options.dtypes = [dtype for dtype in options.dtypes if dtype != "fp64"]
    if options.quick:
        options.pairs = QUICK_PAIRS
    return options


def _summary(rows: Sequence[Row]) -> str:
    """Summarise one step over all dtypes."""
    hard = [row for row in rows if row["test"] == "finite" and row["domain"] == "all"]
    pairs, values, gradients = (
        sum(row[key] for row in hard)
        for key in ("pairs", "nonfinite_values", "nonfinite_gradients")
    )
    text = f"{pairs:,} pairs, not finite: {values:,} values, {gradients:,} gradients"
    if rows[-1]["test"] == "agreement":
        text += f"; errors in fp32: {rows[-1]['value_error']:.0e}, {rows[-1]['gradient_error']:.0e}"
    return text


def finite_rows(loss: PairLoss, chunks: list[Battery]) -> list[Row]:
    """Count non-finite results, one row per domain.

    ``largest_gradient`` is the maximum of ``|∂L/∂x|`` times the side of the hull along the axis of
    x, over finite gradients. It is dimensionless and independent of the box size.
    """
    rows = []
    results = [value_and_gradient(loss, chunk.pred, chunk.target) for chunk in chunks]
    for domain in ("all", "ordinary"):
        row: Row = {"test": "finite", "domain": domain, "pairs": 0, "nonfinite_values": 0}
        row |= {"nonfinite_gradients": 0, "largest_gradient": 0.0}
        for chunk, (value, gradient) in zip(chunks, results, strict=True):
            inside = torch.ones_like(chunk.ordinary) if domain == "all" else chunk.ordinary
            good = gradient.isfinite().all(dim=-1)
            scaled = (gradient.double().abs() * chunk.sides).amax(dim=-1)
            row["pairs"] += int(inside.sum())
            row["nonfinite_values"] += int((inside & ~value.isfinite()).sum())
            row["nonfinite_gradients"] += int((inside & ~good).sum())
            largest = scaled.where(inside & good, 0.0).max().item()
            row["largest_gradient"] = max(row["largest_gradient"], largest)
        rows.append(row)
    return rows


def is_ordinary(pred: Tensor, target: Tensor) -> Tensor:
    """Return pairs that a detector can produce: ordered corners, moderate coordinates and hull."""
    boxes = torch.stack([pred, target], dim=-2)
    in_order = (boxes[..., 2:] >= boxes[..., :2]).all(dim=-1)
    near = (boxes.abs() <= ORDINARY_COORDINATE).all(dim=-1)
    return (in_order & near).all(dim=-1) & (hull_sides(pred, target).amax(dim=-1) >= ORDINARY_HULL)


def hull_sides(pred: Tensor, target: Tensor) -> Tensor:
    """Return width, height, width, height of the hull of each pair, in float64."""
    corners = torch.cat([pred, target], dim=-1).double().reshape(-1, 4, 2)
    sides = corners.amax(dim=-2) - corners.amin(dim=-2)
    return torch.cat([sides, sides], dim=-1)


def _batteries(dtype: str, options: argparse.Namespace) -> Iterator[Battery]:
    left = -(-options.pairs // len(options.dtypes))
    seed = options.seed
    while left > 0:
        boxes = adversarial_pairs(min(left, CHUNK), dtype=DTYPES[dtype], seed=seed)
        pred, target = (box.to(options.device) for box in boxes)
        yield Battery(pred, target, hull_sides(pred, target), is_ordinary(pred, target))
        left, seed = left - CHUNK, seed + 1


def _steps(options: argparse.Namespace) -> Iterator[tuple[str, str, float, PairLoss]]:
    for backend, kind, alpha in product(options.backends, options.kinds, options.alphas):
        loss = partial(alpha_iou_loss, kind=kind, alpha=alpha, backend=backend)
        yield backend, kind, alpha, loss
    for kind in TORCHVISION_KINDS:
        theirs = torchvision_loss(kind)
        if theirs is not None:
            yield "torchvision", kind, 1.0, theirs


if __name__ == "__main__":
    sys.exit(main())
