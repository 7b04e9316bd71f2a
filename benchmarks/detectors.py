"""Training steps of Faster R-CNN and DETR, ours against torchvision's and transformers'.

    python -m benchmarks.detectors [--only detr] [--out PATH]

All are measured in one run with the same network (ResNet-50 from scratch, fully trained, with
trained batch norms in Faster R-CNN and frozen ones in DETR), the same precision, and 16 images of
320 pixels with the same boxes. Ours is the whole step of ``alphaiou train`` including augmentation.
Theirs is forward, backward and torch's optimiser on a batch that is already on the device.
"""

import argparse
import json
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.detectors.detr.network import detr as build_detr
from alphaiou.detectors.faster_rcnn.network import faster_rcnn
from alphaiou.losses import AlphaIoULoss
from alphaiou.training.recipes import voc320_detr, voc320_faster_rcnn
from alphaiou.training.step import StepOptions
from benchmarks.record import FOLDER, conditions, write_record
from benchmarks.timing import graphed, kernels, milliseconds, synchronise
from benchmarks.training import CLASSES, made_cache, make_step


def ours(detector, recipe, cache, *, fast, calls):
    device = cache.pixels.device
    reset_peak(device)
    start = time.perf_counter()
    options = StepOptions(compile=fast, capture=fast)
    step = make_step(detector, recipe, cache, options)
    step.begin_epoch(0)
    step.record()
    step()
    synchronise(device)
    row = {"seconds_to_first_step": time.perf_counter() - start}
    step.begin_epoch(0)
    row |= timed(step, recipe, device, calls)
    row |= {"failed_step": int(step.totals.failed_step), "lost_boxes": int(step.totals.lost_boxes)}
    if fast:
        row["parts_ms"] = parts_of(step)
        step.begin_epoch(0)
        row["profile"] = kernels(step)
    return row


def parts_of(step):
    """The parts of the step, each captured as a separate graph."""
    place = torch.zeros((), dtype=torch.int64, device="cuda")
    (batch,) = step.batches.draw(place)
    calls = {
        "augmentation": lambda: step.batches.draw(place),
        "forward, loss and backward": lambda: step._accumulate([batch]),
    }
    return {name: milliseconds(graphed(call)) for name, call in calls.items()}


def batch_of(recipe, cache):
    """Return images in [0, 1] and boxes of one batch, in torchvision's format."""
    rows = range(recipe.batch_size)
    images = [cache.pixels[row].permute(2, 0, 1).float() / 255 for row in rows]
    counts = cache.counts[: recipe.batch_size].tolist()
    boxes = [cache.boxes[row, : counts[row]] for row in rows]
    labels = [cache.labels[row, : counts[row]] for row in rows]
    return images, boxes, labels


def torchvision_step(recipe, cache, device):
    from torchvision.models.detection import fasterrcnn_resnet50_fpn

    side = recipe.image_size
    model = fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=CLASSES + 1,
        min_size=side,
        max_size=side,
        trainable_backbone_layers=5,
    )
    model = model.to(device, memory_format=torch.channels_last).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    images, boxes, labels = batch_of(recipe, cache)
    targets = [{"boxes": b, "labels": c + 1} for b, c in zip(boxes, labels, strict=True)]

    def step():
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = sum(model(images, targets).values())
        loss.backward()
        optimiser.step()

    return step


def transformers_step(recipe, cache, device):
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(out_features=["stage4"])
    config = DetrConfig(backbone_config=backbone, num_labels=CLASSES, auxiliary_loss=True)
    model = DetrForObjectDetection(config)
    # transformers freezes the backbone by default; here the same parts are trained as in ours.
    model = model.requires_grad_().to(device, memory_format=torch.channels_last).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=1e-4)
    images, boxes, labels = batch_of(recipe, cache)
    pixels = torch.stack(images).contiguous(memory_format=torch.channels_last)
    side = recipe.image_size
    wanted = []
    for box, label in zip(boxes, labels, strict=True):
        centre, sides = (box[:, :2] + box[:, 2:]) / 2, box[:, 2:] - box[:, :2]
        wanted.append({"class_labels": label, "boxes": torch.cat([centre, sides], 1) / side})

    def step():
        optimiser.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = model(pixel_values=pixels, labels=wanted).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimiser.step()

    return step


def reset_peak(device):
    """Reset the memory statistics before a step is built: capturing it allocates its memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()


def timed(step, recipe, device, calls):
    """Return the median of three rounds."""
    found = []
    for _ in range(3):
        synchronise(device)
        start = time.perf_counter()
        for _ in range(calls):
            step()
        synchronise(device)
        found.append((time.perf_counter() - start) / calls * 1e3)
    ms = sorted(found)[1]
    row = {"ms_per_step": ms, "rounds_ms": found, "images_per_second": recipe.batch_size / ms * 1e3}
    if device.type == "cuda":
        row["memory_gib"] = torch.cuda.max_memory_allocated() / 2**30
    return row


def theirs(make, recipe, cache, device, calls):
    reset_peak(device)
    step = make(recipe, cache, device)
    for _ in range(3):
        step()
    return timed(step, recipe, device, calls)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=FOLDER / "detectors-cuda.json")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--side", type=int, default=320)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--only", default="", help="only contenders whose name contains this")
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    fast, calls = device.type == "cuda", arguments.calls
    torch.backends.cudnn.benchmark, torch._dynamo.config.recompile_limit = True, 64  # as in a run
    precision = "bf16" if fast else "fp32"
    settings = {"image_size": arguments.side, "batch_size": arguments.batch}
    settings |= {"precision": precision, "data": replace(voc320_detr().data, train="train")}
    rcnn, detr = (replace(one(), **settings) for one in (voc320_faster_rcnn, voc320_detr))
    loss = AlphaIoULoss("giou", 3.0)
    cache = made_cache(arguments.side, device, images=2048 if fast else 8)
    contenders = {
        "fasterrcnn_r50_fpn, torchvision": lambda: theirs(
            torchvision_step, rcnn, cache, device, calls
        ),
        "fasterrcnn_r50_fpn, ours": lambda: ours(
            faster_rcnn(CLASSES, loss, norm="batch", image_size=arguments.side),
            rcnn,
            cache,
            fast=fast,
            calls=calls,
        ),
        "detr_r50, transformers": lambda: theirs(transformers_step, detr, cache, device, calls),
        "detr_r50, ours": lambda: ours(
            build_detr(CLASSES, loss, norm="frozen"), detr, cache, fast=fast, calls=calls
        ),
    }
    record = {"record": "detectors", **conditions(device, "transformers")}
    record |= {"image_size": arguments.side, "batch_size": arguments.batch, "rows": []}
    for name, measure in contenders.items():
        if arguments.only not in name:
            continue
        try:
            row = measure()
        except RuntimeError:
            row = {"error": traceback.format_exc()[-3000:]}
        record["rows"].append({"contender": name} | row)
        print(json.dumps({"contender": name} | {k: v for k, v in row.items() if k != "profile"}))
        for line in row.get("profile", {}).get("top", []):
            print(line, flush=True)
        write_record(record, arguments.out)
        if fast:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
