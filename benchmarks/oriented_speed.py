"""Speed of the losses for oriented boxes: eager and compiled, beside shapely, Ultralytics and mmcv.

    python -m benchmarks.oriented_speed [--mmcv-python PATH]

``forward`` is the value alone, ``backward`` the value and its gradient. shapely computes the areas
of the intersections, of polygons that are made beforehand. mmcv's operator has no gradient on the
CPU.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import shapely
import torch
from torch import Tensor

from alphaiou.losses import KINDS, alpha_iou_loss
from benchmarks.agreement import PairLoss
from benchmarks.oriented import (
    ORIENTED_KINDS,
    mmcv_iou,
    mmcv_versions,
    ordinary_pairs,
    polygons_of,
    ultralytics_loss,
)
from benchmarks.record import (
    FOLDER,
    Record,
    Row,
    add_common_options,
    conditions,
    settings_of,
    write_record,
)
from benchmarks.timing import measure


def main(argv: Sequence[str] | None = None) -> int:
    """Time everything and write the record."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.oriented_speed", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--counts", nargs="+", type=int, default=[1_000, 100_000])
    parser.add_argument("--mmcv-python", type=Path, help="a Python that can import mmcv.ops")
    parser.add_argument("--seconds", type=float, default=3.0, help="time per timed call")
    parser.add_argument(
        "--compile", action=argparse.BooleanOptionalAction, default=True, help="time torch.compile"
    )
    add_common_options(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.counts, options.seconds = [100], 0.05
    torch.set_num_threads(1)
    settings = settings_of(options)
    del settings["mmcv_python"]
    record: Record = {
        "record": "oriented_speed",
        **conditions(options.device, "ultralytics", "shapely"),
        "settings": settings,
        "rows": speed_rows(options),
    }
    if options.mmcv_python is not None:
        record["versions"]["mmcv"] = mmcv_versions(options.mmcv_python)
    path = options.out or FOLDER / f"oriented_speed-{options.device.type}.json"
    print(f"wrote {write_record(record, path)}")
    return 0


def speed_rows(options: argparse.Namespace) -> list[Row]:
    """Milliseconds of the exact IoU and of the Gaussian kinds, eager and compiled."""
    rows: list[Row] = []
    for count in options.counts:
        torch._dynamo.reset()
        pred, target = ordinary_pairs(count, options.seed, 0.0, torch.float32)
        polygons = polygons_of(pred.double()), polygons_of(target.double())
        calls: dict[tuple[str, str, str], Callable[[], object]] = {
            ("shapely", "iou", "forward"): partial(_shapely_areas, *polygons),
        }
        for kind in ORIENTED_KINDS:
            loss = partial(
                alpha_iou_loss, kind=kind, alpha=3.0, box_format="cxcywhr", reduction="mean"
            )
            calls["alphaiou", kind, "forward"] = partial(_forward, loss, pred, target)
            calls["alphaiou", kind, "backward"] = partial(_backward, loss, pred, target)
            if options.compile and (kind == "iou" or len(KINDS[kind].geometries) == 1):
                calls["compiled", kind, "backward"] = partial(
                    _backward, torch.compile(loss), pred, target
                )
        for direction, call in (("forward", _forward), ("backward", _backward)):
            theirs = partial(call, _ultralytics_mean, pred, target)
            calls["ultralytics", "probiou", direction] = theirs
        results = measure(
            {" ".join(name): call for name, call in calls.items()},
            device=options.device,
            repeats=5,
            seconds=options.seconds,
            capturable={" ".join(name): False for name in calls},
        )
        about = {"test": "speed", "pairs": count}
        for contender, kind, direction in calls:
            time = results[f"{contender} {kind} {direction}"]
            row = about | {"contender": contender, "kind": kind, "direction": direction}
            rows.append(row | {"milliseconds": time.wall_ms, "error": time.error})
        if options.mmcv_python is not None:
            row = about | {"contender": "mmcv", "kind": "iou", "direction": "forward"}
            milliseconds = mmcv_iou(options.mmcv_python, pred, target)[1]
            rows.append(row | {"milliseconds": milliseconds, "error": None})
    return rows


def _shapely_areas(first: np.ndarray, second: np.ndarray) -> None:
    shapely.area(shapely.intersection(first, second))


def _ultralytics_mean(pred: Tensor, target: Tensor) -> Tensor:
    return ultralytics_loss(pred, target).mean()


def _forward(loss: PairLoss, pred: Tensor, target: Tensor) -> None:
    with torch.no_grad():
        loss(pred, target)


def _backward(loss: PairLoss, pred: Tensor, target: Tensor) -> None:
    pred = pred.detach().requires_grad_()
    loss(pred, target).backward()


if __name__ == "__main__":
    sys.exit(main())
