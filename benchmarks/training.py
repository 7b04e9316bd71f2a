"""Where the time of a training step goes on CUDA, and how many images a second it does.

``PYTHONPATH=src python benchmarks/training.py --out benchmarks/training-cuda.json``

The images are noise of the size and number of voc320's: the time of a step does not depend on what
they show. Every variant is timed in one process, 100 steps at a time, three times over.
"""

import argparse
import json
import time
import traceback
from dataclasses import replace
from pathlib import Path

import torch

from alphaiou._environment import device_name, versions
from alphaiou.data.pipeline.cache import ImageCache
from alphaiou.detectors import build_detector
from alphaiou.losses import AlphaIoULoss
from alphaiou.training.batches import CachedBatches
from alphaiou.training.optimiser import StepRates
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe
from alphaiou.training.step import StepOptions, TrainingStep

IMAGES, MOST, CLASSES = 11_538, 42, 20


def made_cache(side, device, images=IMAGES):
    """As many images as voc320, about as many boxes in each."""
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


def milliseconds(call, *, calls=100, rounds=3):
    """The time of a call: the median round of some in a row."""
    found = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / calls * 1e3)
    return sorted(found)[rounds // 2]


def graphed(call):
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def parts_of(step):
    """The step's parts, each as a graph of its own."""
    batches = step.batches
    place = torch.zeros((), dtype=torch.int64, device="cuda")
    (batch,) = batches.draw(place)
    rates = step.rates[0].unbind()
    keep = torch.ones((), dtype=torch.bool, device="cuda")

    def update():
        lr, bias_lr, momentum, decay, _ = rates
        step.optimiser.step(step.gradient, StepRates(lr, bias_lr, momentum), keep=keep)
        step.average.step(decay)

    calls = {
        "augmentation": lambda: batches.draw(place),
        "forward, loss and backward": lambda: step._accumulate([batch]),
        "update and average": update,
    }
    return {name: milliseconds(graphed(call)) for name, call in calls.items()}


def kernels(call, count=20):
    """The kernels that take most of a call's time, in milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        call()
        torch.cuda.synchronize()
    rows = sorted(found.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows) / 1e3
    launched = sum(row.count for row in rows)
    top = [[row.key[:90], row.count, row.self_device_time_total / 1e3] for row in rows[:count]]
    return {"total_ms": total, "kernels": launched, "top": top}


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
        "detector": recipe.detector,
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
    parser.add_argument("--out", type=Path, default=Path("training-cuda.json"))
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing new after this")
    parser.add_argument("--quick", action="store_true", help="the first variant alone")
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
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
    record = {"record": "training", "device": device_name(torch.device("cuda"))}
    record |= {"versions": versions(), "rows": []}
    begun = time.perf_counter()
    for recipe, options, detail in todo[: 1 if arguments.quick else None]:
        if time.perf_counter() - begun > arguments.seconds:
            break
        try:
            row = measure(recipe, options, detail=detail)
        except RuntimeError:
            row = {"detector": recipe.detector, "error": traceback.format_exc()[-3000:]}
        record["rows"].append(row)
        print(json.dumps({k: v for k, v in row.items() if k != "profile"}), flush=True)
        for line in row.get("profile", {}).get("top", []):
            print(line, flush=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
