"""A run made ready: its data sets in memory, its detector on the device, its step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float64

from alphaiou.data.cache import DecodedImages, ImageCache, decode_images, make_cache
from alphaiou.data.cache_memory import TooLargeError
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.derived import fingerprint
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import MISSING, left_out
from alphaiou.data.stream import StreamedImages
from alphaiou.detectors import Detector
from alphaiou.training.batches import CachedBatches, StreamedBatches, seed_of
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe
from alphaiou.training.sets import RunSets, check_whole, run_sets
from alphaiou.training.step import StepOptions, TrainingStep
from alphaiou.training.weights import fresh_detector

Images = ImageCache | StreamedImages
#: Decoded images by what decides them: folder, split, files, size, device.
DecodedSets = dict[tuple[object, ...], DecodedImages]


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed; none of it is part of the result.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: GPUs, or processes on the CPU; started by torchrun if more than one.
        nodes: Machines.
        workers: Processes that decode images.
        images: Where images are kept: ``memory``, of the device if they fit there; or ``stream``,
            decoded whenever they are needed; ``auto`` streams what fits in no memory.
        missing: The largest share of the images of a split that may be missing or unreadable; a
            run that lacks more is refused.
        checkpoint_seconds: The least time between checkpoints, which are written at the end of an
            epoch: what a run that is killed may have to compute again.
        step: Compiled, captured; by default both on CUDA, neither elsewhere.
        decoded: Where the pixels are kept for the next runs of this process that use the same
            images; ``None`` keeps none.
    """

    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int | None = None
    images: Literal["auto", "memory", "stream"] = "auto"
    missing: float = MISSING
    checkpoint_seconds: float = 30.0
    step: StepOptions | None = None
    decoded: DecodedSets | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.missing <= 1.0:
            raise ValueError(f"missing must be from 0 to 1, got {self.missing}")


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
    caches: dict[str, Images]
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
    missing = around.execution.missing
    sets = run_sets(recipe, missing)
    notes = list(sets.notes)
    for note in notes:
        around.report.note(note)
    caches: dict[str, Images] = {}
    for name in ("train", "val", "test"):
        dataset: DetectionDataset | None = getattr(sets, name)
        if dataset is not None:
            caches[name] = _images(dataset, recipe.image_size, around)
            check_whole(dataset.index, len(caches[name]), caches[name].problems, missing)
            if lost := left_out(caches[name].problems):
                notes.append(f"{dataset.index.split}: {lost}")
    torch.manual_seed(seed_of("weights", recipe.seed))
    detector = fresh_detector(recipe, len(sets.train.index.classes))
    sizes = torch.from_numpy(box_sizes(sets.train.index, recipe.image_size))
    detector.fit_boxes(sizes.float(), seed=recipe.seed)
    step = _step(recipe, detector.to(around.device), caches["train"], sets.train.index, around)
    return Run(recipe, folder, around, sets, caches, step, notes)


def _images(dataset: DetectionDataset, image_size: int, around: Surroundings) -> Images:
    """The images in memory, or as a stream where they do not fit."""
    wanted = around.execution.images
    if wanted != "stream":
        try:
            return _cache(dataset, image_size, around)
        except TooLargeError as error:
            if wanted == "memory":
                raise
            around.report.note(f"{dataset.index.split} is streamed: {error}")
    return StreamedImages(dataset, image_size, around.execution.workers)


def _cache(dataset: DetectionDataset, image_size: int, around: Surroundings) -> ImageCache:
    decoded_sets = {} if around.execution.decoded is None else around.execution.decoded
    index = dataset.index
    key = (str(index.root), index.split, tuple(index.files), image_size, str(around.device))
    if key not in decoded_sets:
        decoded_sets[key] = decode_images(
            dataset,
            image_size,
            device=around.device,
            workers=around.execution.workers,
            on_progress=lambda done: around.report.cached(done, len(dataset)),
        )
    decoded = decoded_sets[key]
    cache = make_cache(index, decoded.rows, decoded.pixels, decoded.images)
    for problem in cache.problems:
        around.report.note(str(problem))
    return cache


def _step(
    recipe: Recipe, detector: Detector, images: Images, index: DetectionIndex, around: Surroundings
) -> TrainingStep:
    processes, device = around.processes, around.device
    fast = device.type == "cuda" and processes.count == 1
    options = around.execution.step or StepOptions(compile=fast, capture=fast)
    processes.join(detector)
    slots = box_slots(index, recipe)
    settings: dict[str, Any] = {"slots": slots, "processes": processes, "device": device}
    batches: CachedBatches | StreamedBatches
    if isinstance(images, StreamedImages):
        batches = StreamedBatches(images.dataset, recipe, **settings, workers=images.workers)
    else:
        batches = CachedBatches(images, recipe, **settings, compile=options.compile)
    return TrainingStep(
        detector,
        batches,
        recipe,
        steps_per_epoch=batches.steps,
        processes=processes,
        options=options,
    )


def box_sizes(index: DetectionIndex, image_size: int) -> Float64[np.ndarray, "boxes 2"]:
    """Width and height of every box, in pixels at the size of training."""
    scale = image_size / index.sizes.max(1)[index.image_of_box()]
    return np.asarray((index.boxes[:, 2:] - index.boxes[:, :2]) * scale[:, None])


def box_slots(index: DetectionIndex, recipe: Recipe) -> int:
    """Boxes that a batch can hold: twice the mean of whole mosaics, of which crops keep a half."""
    images = recipe.batch_size // recipe.optimisation.accumulate
    most = images * 4 * int(np.diff(index.offsets).max(initial=1))
    mean = index.num_boxes / len(index)
    return max(1, min(most, max(512, int(8 * mean * images))))
