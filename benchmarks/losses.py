"""Speed and memory of our losses and other implementations, measured in one process.

    python -m benchmarks.losses [--kinds ciou] [--no-compile] [--device cpu]

Times our two backends, the textbook formula eagerly and under torch.compile, and torchvision's
losses: forward, and forward with backward, as wall time from Python and as time on the device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache

import torch
from torch import Tensor

from alphaiou.losses.kinds import kinds_of
from benchmarks.contenders import Contender, MeanLoss, contenders
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
from benchmarks.timing import Call, Measurement, copy_bandwidth, measure, no_garbage_collection

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SIZES = {"cuda": (1_024, 65_536, 4_194_304), "cpu": (1_024, 100_000, 1_000_000)}
QUICK_SIZES = (16, 64)
PASSES = ("forward", "forward+backward")


@dataclass(frozen=True)
class Cell:
    """One configuration of the benchmark; all contenders do the same work."""

    kind: str
    alpha: float
    dtype: str
    pairs: int
    mode: str

    def __str__(self) -> str:
        """Return a readable label."""
        return f"{self.kind} α={self.alpha:g} {self.dtype} {self.pairs:,} {self.mode}"

    @property
    def least_bytes(self) -> int:
        """Return the memory traffic in bytes: boxes in; for backward the gradient out, in, and out.

        The fused forward pass writes the gradient in fp32, and the backward pass scales it.
        """
        size = DTYPES[self.dtype].itemsize
        return self.pairs * (8 * size if self.mode == "forward" else 8 * size + 32 + 4 * size)


def cells(kinds: Iterable[str], dtypes: Iterable[str], sizes: Sequence[int]) -> list[Cell]:
    """Return all configurations: CIoU in every size and dtype; other kinds in fp32, two sizes."""
    ends = tuple(dict.fromkeys((sizes[0], sizes[-1])))
    found: list[Cell] = []
    for kind in kinds:
        for dtype in dtypes:
            if kind != "ciou" and dtype != "fp32":
                continue
            for alpha in (3.0, 1.0) if kind == "ciou" and dtype == "fp32" else (3.0,):
                for pairs in sizes if kind == "ciou" and alpha != 1 else ends:
                    found += [Cell(kind, alpha, dtype, pairs, mode) for mode in PASSES]
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Measure everything; the record is written after every cell, in case of an interruption."""
    options = _options(argv)
    path = options.out or FOLDER / f"losses-{options.device.type}.json"
    bandwidth = copy_bandwidth(options.device, megabytes=1 if options.quick else 512)
    record: Record = {
        "record": "losses",
        **conditions(options.device),
        "settings": settings_of(options),
        "copy_gb_per_s": bandwidth / 1e9,
        "complete": False,
        "rows": [],
    }
    todo = cells(options.kinds, options.dtypes, options.sizes)
    for place, cell in enumerate(todo, 1):
        with no_garbage_collection(collect=place == 1):
            measured = measure_cell(cell, options)
        record["rows"] += with_ratios(rows_of(cell, measured, bandwidth))
        record["complete"] = place == len(todo)
        write_record(record, path)
        print(f"{place}/{len(todo)} {cell}: {_summary(measured)}", flush=True)
    print(f"wrote {path}")
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.losses", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--kinds", nargs="+", choices=kinds_of(), default=list(kinds_of()))
    parser.add_argument(
        "--sizes",
        nargs="+",
        type=positive,
        help="numbers of pairs; by default 1,024 to 4,194,304 on CUDA, up to 1,000,000 on the CPU",
    )
    parser.add_argument(
        "--dtypes",
        nargs="+",
        choices=list(DTYPES),
        default=list(DTYPES),
        help="dtypes; those other than fp32 for CIoU only",
    )
    backends = ["fused", "reference"]
    parser.add_argument("--backends", nargs="+", choices=backends, default=backends)
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also time the textbook formula under torch.compile, which takes minutes to compile",
    )
    parser.add_argument(
        "--repeats",
        type=positive,
        default=10,
        help="rounds over the contenders; the median is reported",
    )
    parser.add_argument(
        "--seconds", type=float, default=0.3, help="time spent on each contender of a row"
    )
    add_common_options(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.repeats, options.seconds = 2, 0.0
    default = QUICK_SIZES if options.quick else SIZES[options.device.type]
    options.sizes = sorted(options.sizes or default)
    return options


def measure_cell(cell: Cell, options: argparse.Namespace) -> list[tuple[Contender, Measurement]]:
    """Time every contender on the same boxes."""
    pred, target = realistic_pairs(cell.pairs, seed=options.seed)
    pred, target = (boxes.to(options.device, DTYPES[cell.dtype]) for boxes in (pred, target))
    found = contenders(cell.kind, cell.alpha, backends=options.backends, compiled=options.compile)
    backward = cell.mode == PASSES[1]
    measured = measure(
        {one.name: bound(one.loss, pred, target, backward=backward) for one in found},
        device=options.device,
        repeats=options.repeats,
        seconds=options.seconds,
        capturable={one.name: one.capturable for one in found},
    )
    return [(one, measured[one.name]) for one in found]


def _summary(measured: Iterable[tuple[Contender, Measurement]]) -> str:
    """Summarise the wall and device time of every contender, or the error."""
    parts = []
    for contender, result in measured:
        text = result.error or f"{result.wall_ms:.3g} ms"
        if result.device_how in ("graph", "queue"):
            text += f" ({result.device_ms:.3g} on the device)"
        parts.append(f"{contender.name} {text}")
    return ", ".join(parts)


def bound(loss: MeanLoss, pred: Tensor, target: Tensor, *, backward: bool) -> Call:
    """Return one call of a loss on these boxes, optionally with the gradient of ``pred``."""
    if not backward:
        return lambda: loss(pred, target)
    leaf = pred.detach().requires_grad_()
    return lambda: torch.autograd.grad(loss(leaf, target), leaf)


def rows_of(
    cell: Cell, measured: Iterable[tuple[Contender, Measurement]], bandwidth: float
) -> list[Row]:
    """Return the rows of a cell, without ratios."""
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
    """Add the speed relative to other implementations to the rows of a cell.

    ``wall_vs_torchvision`` is the wall time of torchvision divided by that of the row;
    ``wall_vs_best_peer`` uses the fastest contender that is not ours. The same holds for
    ``device``. Without a peer it is None.
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
    """Return boxes of 16 to 320 pixels in a 640-pixel image; predictions deviate by about 10 %.

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


if __name__ == "__main__":
    sys.exit(main())
