"""Speed and memory of the losses, ours and other people's, side by side in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.contenders import Contender, MeanLoss, contenders
from benchmarks.record import (
    Record,
    Row,
    choose_device,
    default_path,
    surroundings,
    write_record,
)
from benchmarks.settings import KIND_NAMES, LossBench
from benchmarks.timing import (
    Call,
    Measurement,
    copy_bandwidth,
    measure,
    no_garbage_collection,
)

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZES = {"cuda": (1_024, 65_536, 4_194_304), "cpu": (1_024, 100_000, 1_000_000)}
QUICK_SIZES = (16, 64)
PASSES = ("forward", "forward+backward")


@dataclass(frozen=True)
class Cell:
    """One line of the benchmark: all contenders do the same work."""

    kind: str
    alpha: float
    dtype: str
    pairs: int
    mode: str

    def __str__(self) -> str:
        """What is being measured, for people."""
        return f"{self.kind} α={self.alpha:g} {self.dtype} {self.pairs:,} {self.mode}"

    @property
    def least_bytes(self) -> int:
        """Bytes that must move: boxes in; for the backward pass the gradient out, in, and out.

        The fused forward pass leaves the gradient in fp32, the backward pass scales it.
        """
        size = DTYPES[self.dtype].itemsize
        return self.pairs * (8 * size if self.mode == "forward" else 8 * size + 32 + 4 * size)


def cells(settings: LossBench, sizes: tuple[int, ...]) -> list[Cell]:
    """CIoU in every size and dtype, also with α = 1; the others in fp32, smallest and largest."""
    ends = tuple(dict.fromkeys((sizes[0], sizes[-1])))
    found: list[Cell] = []
    for kind in settings.kinds:
        for dtype in settings.dtypes:
            if kind != "ciou" and dtype != "fp32":
                continue
            for alpha in (3.0, 1.0) if kind == "ciou" and dtype == "fp32" else (3.0,):
                for pairs in sizes if kind == "ciou" and alpha != 1 else ends:
                    found += [Cell(kind, alpha, dtype, pairs, mode) for mode in PASSES]
    return found


def run_losses(
    settings: LossBench, on_cell: Callable[[Cell, int, int], None] | None = None
) -> tuple[Record, Path]:
    """Measure everything and write the record, as far as it got after every cell.

    Args:
        settings: What to measure.
        on_cell: Called before each cell with the cell, its place and the number of cells.

    Returns:
        The record and where it was written.
    """
    device = choose_device(settings.device)
    if settings.quick:
        settings = replace(settings, sizes=settings.sizes or QUICK_SIZES, repeats=2, seconds=0.0)
    settings = replace(
        settings,
        kinds=settings.kinds or KIND_NAMES,
        sizes=tuple(sorted(settings.sizes or SIZES[device.type])),
    )
    path = settings.out or default_path("losses", device)
    megabytes = 1 if settings.quick else 512
    bandwidth = copy_bandwidth(device, megabytes=megabytes)
    record: Record = {
        "record": "losses",
        **surroundings(device),
        "settings": asdict(replace(settings, out=None)),
        "copy_gb_per_s": bandwidth / 1e9,
        "complete": False,
        "rows": [],
    }
    todo = cells(settings, settings.sizes)
    for place, cell in enumerate(todo):
        if on_cell is not None:
            on_cell(cell, place, len(todo))
        with no_garbage_collection(collect=place == 0):
            measured = measure_cell(cell, settings, device)
        record["rows"] += with_ratios(rows_of(cell, measured, bandwidth))
        record["complete"] = place + 1 == len(todo)
        write_record(record, path)
    return record, path


def measure_cell(
    cell: Cell, settings: LossBench, device: torch.device
) -> list[tuple[Contender, Measurement]]:
    """Time everybody on the same boxes."""
    pred, target = realistic_pairs(cell.pairs, seed=settings.seed)
    pred, target = (boxes.to(device, DTYPES[cell.dtype]) for boxes in (pred, target))
    found = contenders(cell.kind, cell.alpha, backends=settings.backends, compiled=settings.compile)
    backward = cell.mode == PASSES[1]
    measured = measure(
        {one.name: bound(one.loss, pred, target, backward=backward) for one in found},
        device=device,
        repeats=settings.repeats,
        seconds=settings.seconds,
        capturable={one.name: one.capturable for one in found},
    )
    return [(one, measured[one.name]) for one in found]


def bound(loss: MeanLoss, pred: Tensor, target: Tensor, *, backward: bool) -> Call:
    """One call of a loss on these boxes, with the gradient to ``pred`` if wanted."""
    if not backward:
        return lambda: loss(pred, target)
    leaf = pred.detach().requires_grad_()
    return lambda: torch.autograd.grad(loss(leaf, target), leaf)


def rows_of(
    cell: Cell, measured: Iterable[tuple[Contender, Measurement]], bandwidth: float
) -> list[Row]:
    """The rows of a cell, without ratios."""
    rows = []
    for one, result in measured:
        row = {**asdict(cell), "contender": one.name, "ours": one.ours, **asdict(result)}
        peak = row.pop("peak_bytes")
        row["memory_bytes_per_pair"] = None if peak is None else peak / cell.pairs
        rate = None if result.device_ms is None else cell.least_bytes / (result.device_ms / 1e3)
        row["gb_per_s"] = None if rate is None else rate / 1e9
        row["share_of_copy"] = None if rate is None else rate / bandwidth
        rows.append(row)
    return rows


def with_ratios(rows: list[Row]) -> list[Row]:
    """The rows of one cell, each with how many times faster it is than its peers.

    ``wall_vs_torchvision`` is the wall time of torchvision over this one's, ``wall_vs_best_peer``
    that of the fastest contender that is not ours; the same for ``device``. None without a peer.
    """
    rows = [dict(row) for row in rows]
    for clock in ("wall", "device"):
        key = f"{clock}_ms"
        peers = {r["contender"]: r[key] for r in rows if not r["ours"] and r[key] is not None}
        for row in rows:
            best = min(peers.values(), default=None)
            for name, peer in (("torchvision", peers.get("torchvision")), ("best_peer", best)):
                known = peer is not None and row[key] is not None
                row[f"{clock}_vs_{name}"] = peer / row[key] if known else None
    return rows


@lru_cache(maxsize=4)
def realistic_pairs(count: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Boxes of 16 to 320 pixels in a 640-pixel image, predictions off by about a tenth of a side.

    Examples:
        >>> pred, target = realistic_pairs(4)
        >>> pred.shape
        torch.Size([4, 4])
    """
    generator = torch.Generator().manual_seed(seed)
    side = 16 * 20 ** torch.rand(count, 2, generator=generator)
    centre = side / 2 + (640 - side) * torch.rand(count, 2, generator=generator)
    shift = 0.1 * side * torch.randn(count, 2, generator=generator)
    stretch = torch.exp(0.15 * torch.randn(count, 2, generator=generator))
    half = side / 2
    target = torch.cat([centre - half, centre + half], dim=-1)
    moved, half = centre + shift, half * stretch
    return torch.cat([moved - half, moved + half], dim=-1), target
