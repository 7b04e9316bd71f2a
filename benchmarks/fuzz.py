"""Hard boxes thrown at the losses, ours and torchvision's: what is not finite, and how far off.

Two domains are counted: ``all``, the whole battery of ``adversarial``, inverted corners and 1e±30
included; and ``ordinary``, the pairs of it that a detector can meet, so that no peer is blamed for
input it does not claim to take: second corners not before first ones, no coordinate above 1e4, and
together at least 1e-3 wide or high, though boxes may be flat, points, identical or touching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from alphaiou.losses import alpha_iou_loss
from alphaiou.losses.functional import Backend
from benchmarks.adversarial import adversarial_pairs
from benchmarks.agreement import PairLoss, agreement, value_and_gradient
from benchmarks.contenders import TORCHVISION_KINDS, torchvision_loss
from benchmarks.record import (
    Record,
    Row,
    choose_device,
    default_path,
    surroundings,
    write_record,
)
from benchmarks.settings import KIND_NAMES, FuzzBench

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
    """Pairs of one dtype with what is needed to judge what comes back."""

    pred: Tensor
    target: Tensor
    sides: Tensor  # of the hull, x y x y, float64: gradients are judged in units of these
    ordinary: Tensor


def run_fuzz(
    settings: FuzzBench, on_step: Callable[[str, int, int], None] | None = None
) -> tuple[Record, Path]:
    """Try everything and write the record, as far as it got after every loss.

    Args:
        settings: What to try.
        on_step: Called before each step with its name, its place and the number of steps.

    Returns:
        The record and where it was written.
    """
    device = choose_device(settings.device)
    settings = _resolved(settings, device)
    path = settings.out or default_path("fuzz", device)
    batteries = {dtype: list(_batteries(dtype, settings, device)) for dtype in settings.dtypes}
    record: Record = {
        "record": "fuzz",
        **surroundings(device),
        "settings": asdict(replace(settings, out=None)),
        "complete": False,
        "rows": [],
    }
    steps = list(_steps(settings))
    for place, (name, kind, alpha, loss) in enumerate(steps):
        if on_step is not None:
            on_step(f"{name} {kind} α={alpha:g}", place, len(steps))
        about = {"contender": name, "kind": kind, "alpha": alpha}
        for dtype, chunks in batteries.items():
            record["rows"] += [about | {"dtype": dtype} | row for row in finite_rows(loss, chunks)]
        if name != "torchvision" and "fp32" in batteries:
            pairs = [(chunk.pred, chunk.target) for chunk in batteries["fp32"]]
            exact = partial(alpha_iou_loss, kind=kind, alpha=alpha, backend="reference")
            record["rows"].append(about | {"dtype": "fp32"} | agreement(loss, exact, pairs))
        record["complete"] = place + 1 == len(steps)
        write_record(record, path)
    return record, path


def finite_rows(loss: PairLoss, chunks: list[Battery]) -> list[Row]:
    """What a loss makes of the pairs, a row for each domain.

    ``largest_gradient`` is the largest ``|∂L/∂x|`` times the side of the hull along the axis of x,
    over what is finite: a number without a unit, the same for boxes of every size.
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
    """Pairs that a detector can meet: corners in order, coordinates up to 1e4, a hull of 1e-3."""
    boxes = torch.stack([pred, target], dim=-2)
    in_order = (boxes[..., 2:] >= boxes[..., :2]).all(dim=-1)
    near = (boxes.abs() <= ORDINARY_COORDINATE).all(dim=-1)
    return (in_order & near).all(dim=-1) & (hull_sides(pred, target).amax(dim=-1) >= ORDINARY_HULL)


def hull_sides(pred: Tensor, target: Tensor) -> Tensor:
    """Width, height, width, height of the smallest box around all corners, in float64."""
    corners = torch.cat([pred, target], dim=-1).double().reshape(-1, 4, 2)
    sides = corners.amax(dim=-2) - corners.amin(dim=-2)
    return torch.cat([sides, sides], dim=-1)


def _resolved(settings: FuzzBench, device: torch.device) -> FuzzBench:
    backend = settings.backend
    if backend == "auto":
        backend = "fused" if device.type == "cuda" else "reference"
    dtypes = tuple(d for d in settings.dtypes if backend == "reference" or d != "fp64")
    pairs = QUICK_PAIRS if settings.quick else settings.pairs
    kinds = settings.kinds or KIND_NAMES
    return replace(settings, kinds=kinds, backend=backend, dtypes=dtypes, pairs=pairs)


def _batteries(dtype: str, settings: FuzzBench, device: torch.device) -> Iterator[Battery]:
    left = -(-settings.pairs // len(settings.dtypes))
    seed = settings.seed
    while left > 0:
        boxes = adversarial_pairs(min(left, CHUNK), dtype=DTYPES[dtype], seed=seed)
        pred, target = (box.to(device) for box in boxes)
        yield Battery(pred, target, hull_sides(pred, target), is_ordinary(pred, target))
        left, seed = left - CHUNK, seed + 1


def _steps(settings: FuzzBench) -> Iterator[tuple[str, str, float, PairLoss]]:
    backend: Backend = settings.backend
    for kind in settings.kinds:
        for alpha in settings.alphas:
            yield (
                backend,
                kind,
                alpha,
                partial(alpha_iou_loss, kind=kind, alpha=alpha, backend=backend),
            )
    for kind in TORCHVISION_KINDS:
        theirs = torchvision_loss(kind)
        if theirs is not None:
            yield "torchvision", kind, 1.0, theirs
