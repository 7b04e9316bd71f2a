"""A run made ready: its data sets in memory, its detector on the device, its step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from alphaiou.data.cache import ImageCache, build_cache
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.derived import fingerprint
from alphaiou.data.problems import left_out
from alphaiou.detectors import YOLOv5
from alphaiou.detectors.anchors import fit_anchors
from alphaiou.training.batches import CachedBatches, seed_of
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe
from alphaiou.training.sets import RunSets, run_sets
from alphaiou.training.step import StepOptions, TrainingStep
from alphaiou.training.weights import fresh_detector


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed; none of it is part of the result.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: GPUs, or processes on the CPU; started by torchrun if more than one.
        nodes: Machines.
        workers: Threads that decode images.
        checkpoint_seconds: The least time between checkpoints, which are written at the end of an
            epoch: what a run that is killed may have to compute again.
        step: Compiled, captured; by default both on CUDA, neither elsewhere.
    """

    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int | None = None
    checkpoint_seconds: float = 30.0
    step: StepOptions | None = None


@dataclass(frozen=True)
class Report:
    """Who is told what a run does; by default nobody."""

    note: Callable[[str], None] = lambda _: None
    cached: Callable[[int, int], None] = lambda _done, _all: None
    stepped: Callable[[int, int, int], None] = lambda _epoch, _step, _steps: None
    epoch_done: Callable[[dict[str, Any]], None] = lambda _: None


@dataclass(frozen=True)
class Surroundings:
    """Where a run is computed, who else computes it, and who is told."""

    execution: Execution
    report: Report
    processes: Processes
    device: torch.device


@dataclass
class Run:
    """What the functions of a run share.

    Attributes:
        recipe: What is run.
        folder: Where it is kept.
        around: Where and with whom it is computed.
        sets: Its data sets.
        caches: Their pixels: ``train``, and ``val`` and ``test`` if there are any.
        step: The state of the training.
        notes: What was left out or changed, in sentences.
        history: What came of every epoch so far.
        best: The epoch whose weights are kept, unless it is the last.
        saved_at: When the last checkpoint was written, by the monotonic clock.
    """

    recipe: Recipe
    folder: Path
    around: Surroundings
    sets: RunSets
    caches: dict[str, ImageCache]
    step: TrainingStep
    notes: list[str]
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    saved_at: float = field(default_factory=time.monotonic)

    def data_mark(self) -> str:
        """What changes when the images or boxes of the run do."""
        sets = (self.sets.train, self.sets.val, self.sets.test)
        readable = "+".join(str(len(cache)) for cache in self.caches.values())
        return f"{fingerprint([one.index for one in sets if one is not None])} {readable}"


def prepare(recipe: Recipe, folder: Path, around: Surroundings) -> Run:
    """Read the data and build the detector; both depend on the recipe alone."""
    sets = run_sets(recipe)
    notes = list(sets.notes)
    for note in notes:
        around.report.note(note)
    caches = {}
    for name in ("train", "val", "test"):
        dataset: DetectionDataset | None = getattr(sets, name)
        if dataset is not None:
            caches[name] = _cache(dataset, recipe.image_size, around)
            if lost := left_out(caches[name].problems):
                notes.append(f"{dataset.index.split}: {lost}")
    torch.manual_seed(seed_of("weights", recipe.seed))
    detector = fresh_detector(recipe, len(sets.train.index.classes))
    sizes = _box_sizes(caches["train"])
    detector.anchors.copy_(fit_anchors(sizes, detector.anchors, seed=recipe.seed))
    step = _step(recipe, detector.to(around.device), caches["train"], around)
    return Run(recipe, folder, around, sets, caches, step, notes)


def _cache(dataset: DetectionDataset, image_size: int, around: Surroundings) -> ImageCache:
    cache = build_cache(
        dataset,
        image_size,
        device=around.device,
        workers=around.execution.workers,
        on_progress=lambda done: around.report.cached(done, len(dataset)),
    )
    for problem in cache.problems:
        around.report.note(str(problem))
    return cache


def _step(
    recipe: Recipe, detector: YOLOv5, cache: ImageCache, around: Surroundings
) -> TrainingStep:
    processes, device = around.processes, around.device
    fast = device.type == "cuda" and processes.count == 1
    options = around.execution.step or StepOptions(compile=fast, capture=fast)
    processes.join(detector)
    batches = CachedBatches(
        cache,
        recipe,
        slots=_slots(cache, recipe),
        processes=processes,
        device=device,
        compile=options.compile,
    )
    return TrainingStep(
        detector,
        batches,
        recipe,
        steps_per_epoch=batches.steps,
        processes=processes,
        options=options,
    )


def _box_sizes(cache: ImageCache) -> Float[Tensor, "boxes 2"]:
    """Width and height of every box, in pixels at the size of training."""
    boxes = cache.boxes.cpu()
    there = torch.arange(boxes.shape[1]) < cache.counts.cpu()[:, None]
    return (boxes[..., 2:] - boxes[..., :2])[there]


def _slots(cache: ImageCache, recipe: Recipe) -> int:
    """Boxes that a batch can hold: twice the mean of whole mosaics, of which crops keep a half."""
    images = recipe.batch_size // recipe.optimisation.accumulate
    most = images * 4 * cache.boxes.shape[1]
    mean = cache.counts.double().mean().item()
    return max(1, min(most, max(512, int(8 * mean * images))))
