"""Time breakdown and throughput of a training step on CUDA.

    python -m benchmarks.training [--quick] [--out PATH]

The images are noise with the size and number of those of voc320: the time of a step does not depend
on their content. All variants are timed in one process, in three rounds of 100 steps.
"""

import argparse
import json
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from alphaiou.data.pipeline.cache import ImageCache
from alphaiou.detectors import build_detector
from alphaiou.losses import AlphaIoULoss
from alphaiou.training.batches import CachedBatches
from alphaiou.training.optimiser import StepRates
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe
from alphaiou.training.step import StepOptions, TrainingStep
from benchmarks.record import FOLDER, conditions, write_record
from benchmarks.timing import graphed, kernels, milliseconds

IMAGES, MOST, CLASSES = 11_538, 42, 20


def made_cache(side, device, images=IMAGES):
    """Return as many images as voc320, with about as many boxes per image."""
    generator = torch.Generator().manual_seed(0)
    counts = torch.poisson(torch.full((images,), 1.4), generator=generator).long() + 1
    corner = 0.6 * side * torch.rand(images, MOST, 2, generator=generator)
    size = 4 + 0.4 * side * torch.rand(images, MOST, 2, generator=generator)
    boxes = torch.cat([corner, (corner + size).clamp(max=side)], dim=-1)
    sizes = torch.tensor([side, side * 3 // 4], dtype=torch.int32).repeat(images, 1)
    labels = torch.randint(20, (images, MOST), generator=generator)
    cache = ImageCache(
        torch.empty(0), sizes, torch.ones(images, 2), boxes, labels, counts, torch.arange(images)
    )
    pixels = torch.randint(0, 256, (images, side, side, 3), dtype=torch.uint8, device=device)
    return replace(cache.to(device), pixels=pixels)


def make_step(detector, recipe, cache, options):
    device = cache.pixels.device
    slots = max(64, int(8 * cache.counts.double().mean().item() * recipe.batch_size))
    batches = CachedBatches(
        cache, recipe, slots=slots, processes=Processes(), device=device, compile=options.compile
    )
    return TrainingStep(
        detector.to(device),
        batches,
        recipe,
        steps_per_epoch=batches.steps,
        processes=Processes(),
        options=options,
    )


def parts_of(step):
    """The parts of the step, each captured as a separate graph."""
    batches = step.batches
    place = torch.zeros((), dtype=torch.int64, device="cuda")
    (batch,) = batches.draw(place)
    rates = step.rates[0].unbind()
    keep = torch.ones((), dtype=torch.bool, device="cuda")

    def update():
        lr, bias_lr, momentum, decay, *_ = rates
        step.optimiser.step(step.gradient, StepRates(lr, bias_lr, momentum), keep=keep)
        step.average.step(decay)

    calls = {
        "augmentation": lambda: batches.draw(place),
        "forward, loss and backward": lambda: step._accumulate([batch]),
        "update and average": update,
    }
    return {name: milliseconds(graphed(call)) for name, call in calls.items()}


def measure(recipe, options, *, detail):
    device = torch.device("cuda")
    cache = made_cache(recipe.image_size, device)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start = time.perf_counter()
    torch.manual_seed(0)
    loss = AlphaIoULoss(recipe.loss.kind, recipe.loss.alpha)
    detector = build_detector(recipe.detector, CLASSES, box_loss=loss)
    step = make_step(detector, recipe, cache, options)
    step.begin_epoch(0)
    step.record()
    step()
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    step.begin_epoch(0)
    ms = milliseconds(step)
    row = {
        "detector": recipe.detector.name,
        "image_size": recipe.image_size,
        "batch_size": recipe.batch_size,
        "compile": options.compile,
        "graph": options.capture,
        "seconds_to_first_step": first,
        "ms_per_step": ms,
        "images_per_second": recipe.batch_size / ms * 1e3,
        "memory_gib": (torch.cuda.max_memory_allocated() - before) / 2**30,
        "failed_step": int(step.totals.failed_step),
        "lost_boxes": int(step.totals.lost_boxes),
    }
    if detail:
        row["parts_ms"] = parts_of(step)
        step.begin_epoch(0)  # the table of rates ends with the training
        row["profile"] = kernels(step)
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=FOLDER / "training-cuda.json")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="seconds after which no new variant is started"
    )
    parser.add_argument("--quick", action="store_true", help="only the first variant")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark, torch._dynamo.config.recompile_limit = True, 64  # as in a run
    both, launched, eager = (
        StepOptions(True, True),
        StepOptions(True, False),
        StepOptions(False, True),
    )
    s320 = Recipe(image_size=320)
    todo = [
        (s320, both, True),
        (s320, eager, False),
        (s320, launched, False),
        (replace(s320, batch_size=256), both, False),
        (Recipe(), both, True),
        (replace(s320, detector="yolov5x"), both, False),
    ]
    record = {"record": "training", **conditions(torch.device("cuda")), "rows": []}
    begun = time.perf_counter()
    for recipe, options, detail in todo[: 1 if arguments.quick else None]:
        if time.perf_counter() - begun > arguments.seconds:
            break
        try:
            row = measure(recipe, options, detail=detail)
        except RuntimeError:
            row = {"detector": recipe.detector.name, "error": traceback.format_exc()[-3000:]}
        record["rows"].append(row)
        print(json.dumps({k: v for k, v in row.items() if k != "profile"}), flush=True)
        for line in row.get("profile", {}).get("top", []):
            print(line, flush=True)
        write_record(record, arguments.out)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
