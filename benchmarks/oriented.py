"""Oriented boxes: the numeric contract and areas against shapely; ours beside other libraries.

    python -m benchmarks.oriented [--pairs 1000000] [--mmcv-python PATH]

mmcv has compiled operators that need a torch of their own, so its rotated IoU runs in the Python
that ``--mmcv-python`` names (``benchmarks/mmcv_rotated.py``); without the option its rows are left
out. It computes in fp32, so pairs of other dtypes are rounded to that first; it has no gradient on
the CPU. ``--contenders`` measures some anew and keeps the rows of the others.

A rewritten box, such as ``(h, w, θ + π/2)``, is another rectangle by the rounding of its angle. A
loss counts as dependent on the writing where it differs by more than 64 ε and four times what
turning a box by that rounding changes. Angles whose rounding exceeds 1e-3 are not rewritten. The
domain ``ordinary`` holds what a detector can produce: no number beyond 1e4, and a box or a distance
of at least 1e-3.
"""

from __future__ import annotations

import argparse
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import shapely
import torch
from torch import Tensor

from alphaiou.losses import KINDS, alpha_iou_loss
from alphaiou.losses.kinds import kinds_of
from alphaiou.losses.similarity import box_iou
from alphaiou.oriented import OrientedGeometry, oriented_to_corners
from benchmarks.adversarial import oriented_pairs
from benchmarks.agreement import PairLoss, value_and_gradient
from benchmarks.record import (
    FOLDER,
    Record,
    Row,
    add_common_options,
    conditions,
    load_record,
    positive,
    settings_of,
    write_record,
)

ORIENTED_KINDS = kinds_of(OrientedGeometry)
DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
}
ALPHAS = (1.0, 3.0)
CHUNK = 125_000
QUICK_PAIRS = 520
AREA_PAIRS = 100_000
CONTENDERS = ("alphaiou", "ultralytics", "mmcv")
ORDINARY_NUMBER, ORDINARY_SIZE = 1e4, 1e-3
#: From here on a loss of identical boxes is no rounding.
IDENTICAL_FAR = 1e-3
Contender = tuple[str, str, float, PairLoss, float]


def main(argv: Sequence[str] | None = None) -> int:
    """Run all tests; the record is written after each, in case the run is interrupted."""
    options = _options(argv)
    path = options.out or FOLDER / f"oriented-{options.device.type}.json"
    settings = settings_of(options)
    del settings["mmcv_python"]
    record: Record = {
        "record": "oriented",
        **conditions(options.device, "ultralytics", "shapely"),
        "settings": settings,
        "complete": False,
    }
    if "mmcv" in options.contenders:
        record["versions"]["mmcv"] = mmcv_versions(options.mmcv_python)
    record = beside(load_record(path) if path.exists() else {"rows": []}, record)
    for rows in _all_rows(options):
        record["rows"] += rows
        write_record(record, path)
        for row in rows:
            print(*(f"{key}={value}" for key, value in row.items()), flush=True)
    record["complete"] = True
    write_record(record, path)
    print(f"wrote {path}")
    return 0


def beside(kept: Record, record: Record) -> Record:
    """The head of a new record with the rows of the contenders that are not measured anew.

    Their versions stay, ``dates`` has a date for each, and ``settings`` names all of them.
    """
    measured = record["settings"]["contenders"]
    rows = [row for row in kept["rows"] if row["contender"] not in measured]
    others = {row["contender"] for row in rows}
    dates = {name: kept.get("dates", {}).get(name, kept["date"]) for name in others}
    dates |= dict.fromkeys(measured, record["date"])
    names = [name for name in CONTENDERS if name in dates]
    # The machine, and the versions of what all of them need, such as torch, are those of our rows.
    main = record if "alphaiou" in measured or not others else kept
    versions = {**record["versions"], **main["versions"]}
    for source, group in ((kept, others), (record, measured)):
        given = source.get("versions", {})
        versions |= {name: given[name] for name in group if name in given}
    return record | {
        "device": main["device"],
        "threads": main["threads"],
        "versions": versions,
        "settings": record["settings"] | {"contenders": names},
        "dates": {name: dates[name] for name in names},
        "rows": rows,
    }


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.oriented", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--pairs",
        type=positive,
        default=1_000_000,
        help="number of pairs per kind, divided equally among the dtypes",
    )
    parser.add_argument("--mmcv-python", type=Path, help="a Python that can import mmcv.ops")
    parser.add_argument(
        "--contenders", nargs="+", choices=CONTENDERS, default=["alphaiou", "ultralytics"]
    )
    add_common_options(parser)
    options = parser.parse_args(argv)
    if "mmcv" in options.contenders and options.mmcv_python is None:
        parser.error("the contender mmcv needs --mmcv-python")
    options.area_pairs = AREA_PAIRS
    if options.quick:
        options.pairs, options.area_pairs = QUICK_PAIRS, 500
    return options


def _all_rows(options: argparse.Namespace) -> Iterator[list[Row]]:
    yield area_rows(options)
    for name, kind, alpha, loss, highest in contenders():
        if name in options.contenders:
            about = {"test": "contract", "contender": name, "kind": kind, "alpha": alpha}
            # The similarity does not depend on α, so one α shows what depends on the writing.
            rows = contract_rows(loss, highest, options, rewrite=alpha == 1.0)
            yield [about | row for row in rows]
    if "mmcv" in options.contenders:
        about = {"test": "contract", "contender": "mmcv", "kind": "iou", "alpha": 1.0}
        iou = partial(mmcv_iou, options.mmcv_python)
        rows = contract_rows(
            lambda a, b: 1.0 - iou(a, b)[0], 1.0, options, slopes=False, single=True
        )
        yield [about | row for row in rows]


def contenders() -> Iterator[Contender]:
    """The losses as name, kind, α, function and largest value."""
    for kind in ORIENTED_KINDS:
        for alpha in ALPHAS:
            loss = partial(alpha_iou_loss, kind=kind, alpha=alpha, box_format="cxcywhr")
            yield "alphaiou", kind, alpha, loss, 1.0 + len(KINDS[kind].penalties)
    yield "ultralytics", "probiou", 1.0, ultralytics_loss, 1.0


def ultralytics_loss(pred: Tensor, target: Tensor) -> Tensor:
    """Ultralytics' ProbIoU loss of each pair, as its trainer uses it."""
    from ultralytics.utils.metrics import probiou

    similarity: Tensor = probiou(pred, target)
    return 1.0 - similarity[:, 0]


def mmcv_iou(python: Path, pred: Tensor, target: Tensor) -> tuple[Tensor, float]:
    """mmcv's rotated IoU of each pair in fp32, and the milliseconds of one call."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "pairs.npz"), Path(folder, "iou.npz")
        np.savez(source, pred=pred.detach().float().numpy(), target=target.float().numpy())
        script = Path(__file__).with_name("mmcv_rotated.py")
        subprocess.run([python, script, source, result], check=True)
        with np.load(result) as data:
            return torch.from_numpy(data["iou"]), float(data["milliseconds"])


def mmcv_versions(python: Path) -> str:
    """mmcv's version, and that of the torch that it is compiled for."""
    code = "import mmcv, torch; print(mmcv.__version__, f'(torch {torch.__version__})')"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return re.sub(r"\+\w+", "", done.stdout.strip())


# The contract


def contract_rows(
    loss: PairLoss,
    highest: float,
    options: argparse.Namespace,
    *,
    slopes: bool = True,
    rewrite: bool = True,
    single: bool = False,
) -> list[Row]:
    """Count what breaks the contract among adversarial pairs of every dtype, one row per domain.

    Args:
        loss: One value per pair.
        highest: The largest value that is in range; the smallest is 0.
        options: The number of pairs and the seed.
        slopes: Whether the loss has a gradient.
        rewrite: Whether to write the boxes in other ways.
        single: Whether the loss computes in fp32 alone: the pairs are rounded to it.
    """
    rows: dict[str, Row] = {"all": {}, "ordinary": {}}
    for dtype, pred, target in _chunks(options):
        if single:
            dtype, pred, target = torch.float32, pred.float(), target.float()  # noqa: PLW2901
        counted = _tests(loss, highest, dtype, pred, target, slopes=slopes, rewrite=rewrite)
        for domain, inside in (("all", None), ("ordinary", is_ordinary(pred, target))):
            row = rows[domain]
            for name, flags in counted.items():
                count = int((flags if inside is None else flags & inside).sum())
                row[name] = row.get(name, 0) + count
    return [{"domain": domain} | row for domain, row in rows.items()]


def _tests(
    loss: PairLoss,
    highest: float,
    dtype: torch.dtype,
    pred: Tensor,
    target: Tensor,
    *,
    slopes: bool,
    rewrite: bool,
) -> dict[str, Tensor]:
    """What is true of each pair, by name."""
    if slopes:
        value, gradient = value_and_gradient(loss, pred, target)
    else:
        value, gradient = loss(pred, target), torch.zeros_like(pred)
    value, gradient = value.double(), gradient.double()
    margin = 8.0 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    is_finite = value.isfinite()
    same = (pred == target).all(-1)
    tests = {
        "pairs": torch.ones_like(same),
        "nonfinite_values": ~is_finite,
        "out_of_range": is_finite & ((value < -margin) | (value > highest + margin)),
        "identical": same,
        "identical_nonzero": same & ((value != 0) | (gradient != 0).any(-1)),
        "identical_far": same & (value.abs() > IDENTICAL_FAR),
    }
    if slopes:
        tests["nonfinite_gradients"] = ~gradient.isfinite().all(-1)
    if rewrite:
        tests["rewritten"], tests["writing_dependent"] = writing_dependence(loss, pred, target)
    return tests


def is_ordinary(pred: Tensor, target: Tensor) -> Tensor:
    """Which pairs a detector can produce."""
    boxes = torch.stack((pred, target), dim=-2).double()
    distance = (boxes[:, 0, :2] - boxes[:, 1, :2]).abs()
    lengths = torch.cat((boxes[..., 2:4].flatten(1), distance), dim=-1)
    near = (boxes.abs() <= ORDINARY_NUMBER).flatten(1).all(-1)
    return near & (lengths.amax(-1) >= ORDINARY_SIZE)


def writing_dependence(loss: PairLoss, pred: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Which pairs can be rewritten, and for which of them the loss depends on it."""
    wide = torch.promote_types(pred.dtype, torch.float32)
    pred, target = pred.to(wide), target.to(wide)
    eps = torch.finfo(wide).eps
    rounding = 2.0 * eps * (torch.maximum(pred[:, 4].abs(), target[:, 4].abs()) + math.pi)
    usable = rounding < 1e-3

    def changed(first: Tensor, second: Tensor) -> Tensor:
        return (loss(first, second).double() - plain).abs()

    with torch.no_grad():
        plain = loss(pred, target).double()
        change = torch.zeros_like(plain)
        for turn in (rounding, -rounding):
            change = torch.maximum(change, changed(_turned(pred, turn), target))
            change = torch.maximum(change, changed(pred, _turned(target, turn)))
        differs = torch.zeros_like(usable)
        limit = 4.0 * change + 64.0 * eps
        for other in writings(pred):
            differs |= changed(other, target) > limit
        for other in writings(target):
            differs |= changed(pred, other) > limit
    return usable, usable & differs


def writings(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """The same rectangles as (w, h, θ + π) and (h, w, θ + π/2)."""
    half = torch.full_like(boxes[:, 4], math.pi)
    return _turned(boxes, half), _turned(boxes[:, [0, 1, 3, 2, 4]], 0.5 * half)


def _turned(boxes: Tensor, angle: Tensor) -> Tensor:
    return torch.cat((boxes[:, :4], (boxes[:, 4] + angle)[:, None]), dim=-1)


def _chunks(options: argparse.Namespace) -> Iterator[tuple[torch.dtype, Tensor, Tensor]]:
    for dtype in DTYPES.values():
        left, seed = -(-options.pairs // len(DTYPES)), options.seed
        while left > 0:
            pred, target = oriented_pairs(min(left, CHUNK), dtype=dtype, seed=seed)
            yield dtype, pred.to(options.device), target.to(options.device)
            left, seed = left - CHUNK, seed + 1


# Areas


def area_rows(options: argparse.Namespace) -> list[Row]:
    """The error of the exact IoU against shapely: near the origin, and at satellite coordinates."""
    rows: list[Row] = []
    cases = (("fp64", "near", 0.0), ("fp32", "near", 0.0), ("fp32", "satellite", 1e5))
    for dtype, place, offset in cases:
        pred, target = ordinary_pairs(options.area_pairs, options.seed, offset, DTYPES[dtype])
        exact = shapely_iou(pred, target)
        found: dict[str, Tensor] = {"alphaiou": box_iou(pred, target, box_format="cxcywhr")}
        if "mmcv" in options.contenders and dtype == "fp32":
            found["mmcv"] = mmcv_iou(options.mmcv_python, pred, target)[0]
        for name, iou in found.items():
            if name not in options.contenders:
                continue
            about: Row = {"test": "area", "contender": name, "dtype": dtype, "place": place}
            about |= {"pairs": len(pred), "overlapping": int((exact > 0).sum())}
            rows.append(about | {"error": float((iou.double() - exact).abs().max())})
    return rows


def ordinary_pairs(
    count: int, seed: int, offset: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Boxes of about 5 px that mostly overlap, every tenth thin, every tenth nearly parallel."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.rand(2, count, 5, generator=generator, dtype=torch.float64)
    numbers = numbers * torch.tensor([5, 5, 5, 5, 2 * math.pi]) + torch.tensor([0, 0, 1, 1, 0])
    pred, target = numbers
    pred[::10, 2] *= 0.01
    tilt = 10.0 ** (-9.0 * torch.rand(len(pred[5::10]), generator=generator, dtype=torch.float64))
    pred[5::10, 4] = target[5::10, 4] + tilt
    pred[:, :2] += offset
    target[:, :2] += offset
    return pred.to(dtype), target.to(dtype)


def shapely_iou(pred: Tensor, target: Tensor) -> Tensor:
    """The IoU of each pair by shapely, in float64 relative to the target's centre."""
    pred, target = pred.double(), target.double()
    origin = torch.cat((target[:, :2], torch.zeros_like(target[:, 2:])), dim=-1)
    a, b = polygons_of(pred - origin), polygons_of(target - origin)
    overlap = shapely.area(shapely.intersection(a, b))
    return torch.from_numpy(overlap / (shapely.area(a) + shapely.area(b) - overlap))


def polygons_of(boxes: Tensor) -> np.ndarray:
    """The boxes as shapely's polygons."""
    polygons: np.ndarray = shapely.polygons(oriented_to_corners(boxes).numpy())
    return polygons


if __name__ == "__main__":
    sys.exit(main())
