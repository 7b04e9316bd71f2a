"""Train Ultralytics' OBB model on drawn oriented boxes with its own loss and with ours.

    python -m studies.oriented.study --losses own probiou:1 probiou:3 iou:1@exact --seeds 0

All shapes are one class, written in the layout ``yolo-obb``. The models start from random weights,
and their detections on the images for validation are scored with ``alphaiou.metrics`` over the
exact IoU. Settings other than those below are Ultralytics' own. One record per run in ``records``.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from alphaiou._environment import device_name, versions
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.yolo_obb import FORMAT
from alphaiou.data.index import DetectionIndex
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.metrics import DetectionScores

RECORDS = Path(__file__).with_name("records")
OWN = "own"
#: Confidence below which detections are dropped, and the most of an image.
LEAST_CONFIDENCE, MOST_DETECTIONS = 0.001, 100


def data(split: str, images: int, size: int) -> DetectionIndex:
    """The drawn images, with all shapes as one class."""
    index = shapes_index(split, size=size, length=images, level="oriented")
    labels, numbers = np.zeros_like(index.labels), np.array([1])
    return replace(index, classes=("shape",), category_ids=numbers, labels=labels)


def write_data(options: argparse.Namespace, folder: Path) -> Path:
    """Write the data set for Ultralytics, which puts caches beside the labels."""
    for split, images in (("train", options.images), ("val", options.scored_images)):
        FORMAT.write(data(split, images, options.size), folder, images="copy")
    config = folder / "ultralytics.yaml"
    places = {"path": str(folder), "train": "images/train", "val": "images/val"}
    config.write_text(yaml.safe_dump(places | {"names": {0: "shape"}}))
    return config


def train(options: argparse.Namespace, loss: str, seed: int) -> dict[str, Any]:
    """Train with one loss and return the record."""
    from ultralytics import YOLO

    from alphaiou.integrations.ultralytics import use_box_loss

    name = run_name(loss, seed)
    spec, _, exact = loss.partition("@")
    settings: dict[str, Any] = {
        "imgsz": options.size,
        "batch": options.batch,
        "epochs": options.epochs,
        "nbs": options.batch,  # every batch is a step
        "seed": seed,
        "optimizer": "AdamW",
        "lr0": 1e-3,
        "warmup_epochs": 1.0,
        "mosaic": 0.0,
        "degrees": 180.0,
        "amp": False,
    }
    model = YOLO(options.model, task="obb", verbose=False)
    installed = nullcontext(OWN)
    if loss != OWN:
        installed = use_box_loss(spec, box_format="cxcywhr" if exact else None)
    start = time.perf_counter()
    with installed as handle:
        print(name, handle, flush=True)
        model.train(
            **settings,
            data=str(write_data(options, options.work / f"data-{name}")),
            project=str(options.work),
            name=name,
            exist_ok=True,
            device="cpu",
            workers=0,
            pretrained=False,
            val=False,
            plots=False,
            verbose=False,
        )
    seconds = time.perf_counter() - start
    found = score(YOLO(model.trainer.last), data("val", options.scored_images, options.size))
    return {
        "record": "oriented run",
        "framework": "ultralytics",
        "version": version("ultralytics"),
        "model": options.model,
        "data": "shapes-oriented, one class",
        "train_images": options.images,
        "scored_images": options.scored_images,
        "loss": loss,
        "settings": settings,
        "scores": found,
        "seconds": seconds,
        "device": device_name(torch.device("cpu")),
        "versions": versions(),
    }


def score(model: Any, index: DetectionIndex) -> dict[str, float | None]:
    """The scores of a model's detections by the rule of COCO, and DOTA's of VOC 2007."""
    dataset = DetectionDataset(index)
    rules = {
        rule: DetectionScores(1, rule=rule, box_format="cxcywhr") for rule in ("coco", "voc07")
    }
    side = int(index.sizes.max())
    for image, target in dataset:
        pixels = image.permute(1, 2, 0).flip(-1).contiguous().numpy()  # blue, green, red
        (result,) = model.predict(
            pixels, imgsz=side, conf=LEAST_CONFIDENCE, max_det=MOST_DETECTIONS, verbose=False
        )
        found = {
            "boxes": result.obb.xywhr,
            "scores": result.obb.conf,
            "labels": torch.zeros(len(result.obb), dtype=torch.int64),
        }
        truth = {"boxes": target["oriented"], "labels": target["labels"]}
        for collected in rules.values():
            collected.update([found], [truth])
    coco, dota = (collected.compute() for collected in rules.values())
    scores = coco.as_dict() | {"dota": dota.ap[50]}
    return {name: None if np.isnan(value) else value for name, value in scores.items()}


def run_name(loss: str, seed: int) -> str:
    """The name of a run's record and folder."""
    return f"{loss.replace(':', '-').replace('@', '-')}-{seed}"


def main() -> None:
    """Train what has no record yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--losses",
        nargs="+",
        default=[OWN, "probiou:1", "probiou:3", "iou:1@exact", "iou:3@exact"],
        help="own, kind:alpha, or kind:alpha@exact for kinds that axis-aligned boxes have too",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--scored-images", type=int, default=200)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=14)
    parser.add_argument("--model", default="yolo11n-obb.yaml")
    parser.add_argument("--out", type=Path, default=RECORDS)
    parser.add_argument("--work", type=Path, default=Path("oriented-runs"))
    options = parser.parse_args()
    options.work = options.work.resolve()
    os.environ |= {  # read when Ultralytics is imported
        "YOLO_CONFIG_DIR": str(options.work / "config"),
        "YOLO_OFFLINE": "true",
        "YOLO_AUTOINSTALL": "false",
    }
    options.out.mkdir(parents=True, exist_ok=True)
    for seed in options.seeds:
        for loss in options.losses:
            path = options.out / f"{run_name(loss, seed)}.json"
            if not path.exists():
                path.write_text(json.dumps(train(options, loss, seed), indent=1) + "\n")


if __name__ == "__main__":
    main()
