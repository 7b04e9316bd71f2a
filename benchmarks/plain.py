"""The default backend of the CPU beside torchvision, the reference and the compiled kernel.

    python -m benchmarks.plain

CIoU, forward and backward, in one process: fp32 and fp64, one thread and two. ``auto`` needs no
compiler. Then every kind in fp32 on one thread against the reference, and where torchvision has it,
against torchvision.
"""

from __future__ import annotations

import argparse
import os
from functools import partial

import torch

from alphaiou import alpha_iou_loss
from alphaiou.losses.kinds import kinds_of
from benchmarks.contenders import torchvision_loss
from benchmarks.losses import bound, realistic_pairs
from benchmarks.record import FOLDER, Record, Row, add_common_options, conditions, write_record
from benchmarks.timing import measure, no_garbage_collection

SIZES = (1_000, 100_000, 1_000_000)
DTYPES = {"fp32": torch.float32, "fp64": torch.float64}
BACKENDS = ("auto", "reference", "fused")


def rows_of(
    kind: str, dtype: str, pairs: int, backends: tuple[str, ...], options: argparse.Namespace
) -> list[Row]:
    """Time one configuration; all contenders have the same boxes."""
    pred, target = (b.to(DTYPES[dtype]) for b in realistic_pairs(pairs, seed=options.seed))
    ours = partial(alpha_iou_loss, kind=kind, alpha=3.0, reduction="mean")
    losses = {backend: partial(ours, backend=backend) for backend in backends}
    peer = torchvision_loss(kind)
    if peer is not None:
        losses["torchvision"] = partial(peer, reduction="mean")
    with no_garbage_collection(collect=True):
        measured = measure(
            {name: bound(loss, pred, target, backward=True) for name, loss in losses.items()},
            device=torch.device("cpu"),
            repeats=options.repeats,
            seconds=options.seconds,
            capturable=dict.fromkeys(losses, False),
        )
    cell = {"kind": kind, "dtype": dtype, "pairs": pairs, "threads": torch.get_num_threads()}
    auto = measured["auto"].wall_ms
    return [
        {
            **cell,
            "contender": name,
            "ms": result.wall_ms,
            "ms_fastest": result.wall_ms_fastest,
            "auto_is_faster": result.wall_ms and auto and result.wall_ms / auto,
            "error": result.error,
        }
        for name, result in measured.items()
    ]


def main() -> None:
    """Measure everything and write the record."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plain", description=__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="rounds over the contenders")
    parser.add_argument("--seconds", type=float, default=1.0, help="per contender of a row")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="pairs")
    parser.add_argument("--kinds", nargs="+", choices=kinds_of(), default=kinds_of())
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    add_common_options(parser)
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 2, 0.0
    sizes = [16, 64] if options.quick else options.sizes
    record: Record = {
        "record": "plain",
        **conditions(torch.device("cpu")),
        "load_average_at_start": os.getloadavg()[0],
        "rows": [],
    }
    path = options.out or FOLDER / "plain-cpu.json"
    # The record is written after each row, in case of an interruption.
    cells = [
        ("ciou", t, d, n, tuple(options.backends)) for n in sizes for t in (1, 2) for d in DTYPES
    ]
    cells += [(k, 1, "fp32", n, BACKENDS[:2]) for n in sizes for k in options.kinds if k != "ciou"]
    for place, (kind, threads, dtype, pairs, backends) in enumerate(cells, 1):
        torch.set_num_threads(threads)
        record["rows"] += rows_of(kind, dtype, pairs, backends, options)
        record["complete"] = place == len(cells)
        write_record(record, path)
        _show(record["rows"])


def _show(rows: list[Row]) -> None:
    last = [row for row in rows if _cell(row) == _cell(rows[-1])]
    print(*_cell(last[0]), {row["contender"]: row["ms"] for row in last}, flush=True)


def _cell(row: Row) -> tuple[object, ...]:
    return row["kind"], row["dtype"], row["pairs"], row["threads"]


if __name__ == "__main__":
    main()
