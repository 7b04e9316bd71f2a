"""Set up a run: resolve ``auto``, open the data sets, build the detector and the training step."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from alphaiou._shapes import Float64
from alphaiou.data.dataset import DetectionDataset, load_dataset, split_names
from alphaiou.data.derived import fingerprint, image_digests
from alphaiou.data.index import DetectionIndex
from alphaiou.data.noise import perturb_index
from alphaiou.data.pipeline.cache import (
    DecodedImages,
    ImageCache,
    TooLargeError,
    decode_images,
    make_cache,
)
from alphaiou.data.pipeline.stream import StreamedImages
from alphaiou.data.problems import MISSING, DataError, Problem, left_out
from alphaiou.data.subset import subset_index
from alphaiou.detectors import Detector
from alphaiou.inference.start_weights import read_start_weights, start_from
from alphaiou.inference.weights import Checkpoint
from alphaiou.training.batches import CachedBatches, StreamedBatches, seed_of
from alphaiou.training.callbacks import Callback
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe, Selection
from alphaiou.training.step import Batches, StepOptions, TrainingStep

Images = ImageCache | StreamedImages
#: Decoded images by folder, split, files, image size and device.
DecodedSets = dict[tuple[object, ...], DecodedImages]
#: Hashes of the annotations, and of the sizes and times of the image files, of all splits.
DataDigest = dict[str, str]
#: A change of the data that need not be one: copies have other times than their originals.
TOUCHED = "image files have other times, but the same sizes in bytes; their content is not compared"
#: The kind of problem of an image that is listed twice.
REPEATED = "image-duplicate"


# --- how a run is computed ------------------------------------------------------------------------


@dataclass(frozen=True)
class Execution:
    """Where and how to compute a run. None of these settings changes the result.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: The number of GPUs, or of processes on the CPU.
        nodes: The number of machines.
        workers: The number of processes that decode images.
        images: ``memory`` keeps all decoded images in memory, on the device if they fit.
            ``stream`` decodes them on demand. ``auto`` streams images that do not fit in memory.
        missing: The maximum share of the images of a split that may be missing or unreadable; a
            run with more is rejected.
        checkpoint_seconds: The minimum time between checkpoints, which are written at the end of
            an epoch. An interrupted run may lose this much work.
        step: Whether to compile and capture the step; by default both on CUDA, neither elsewhere.
        decoded: A cache of decoded images, shared by the runs of this process that use the same
            images; ``None`` disables it.
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
    """Callbacks for the progress of a run; by default they do nothing.

    ``prepared`` is called before the first step, with the batches and the names of the classes.
    """

    note: Callable[[str], None] = lambda _: None
    cached: Callable[[int, int], None] = lambda _done, _all: None
    stepped: Callable[[int, int, int], None] = lambda _epoch, _step, _steps: None
    epoch_done: Callable[[dict[str, Any]], None] = lambda _: None
    prepared: Callable[[Batches, tuple[str, ...]], None] = lambda _batches, _classes: None


@dataclass(frozen=True)
class RunContext:
    """Where and how a run is computed, and the callbacks for its progress."""

    execution: Execution
    report: Report
    processes: Processes
    device: torch.device


@dataclass
class Run:
    """The state of a run.

    Attributes:
        recipe: The recipe.
        folder: The folder of the run.
        context: Where and how it is computed.
        sets: The data sets.
        caches: The images: ``train``, and ``val`` and ``test`` if the run has them.
        step: The training step, which holds the state of the training.
        notes: Messages about images and boxes that were left out or changed.
        weights_from: The digest of the file of the weights that the training started from, if any.
        history: The losses, speed and scores of every epoch so far.
        best: The epoch of the saved weights if the recipe selects the best.
        saved_at: The time of the last checkpoint, by the monotonic clock.
        unsaved: The state after the last whole epoch, if it is not saved.
    """

    recipe: Recipe
    folder: Path
    context: RunContext
    sets: RunSets
    caches: dict[str, Images]
    step: TrainingStep
    notes: list[str]
    weights_from: str | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    saved_at: float = field(default_factory=time.monotonic)
    unsaved: Checkpoint | None = None
    callbacks: tuple[Callback, ...] = ()


# --- automatic settings ---------------------------------------------------------------------------


def resolve_auto(recipe: Recipe, device: str) -> Recipe:
    """Resolve every ``auto`` of a recipe: the precision from the device, the splits from the data.

    Args:
        recipe: The recipe.
        device: ``cpu`` or ``cuda``.

    Raises:
        DataError: If the training split is ambiguous.

    Examples:
        >>> resolve_auto(Recipe(precision="auto", data=DataRecipe(val="auto")), "cpu").data.val
        'val'
    """
    if recipe.precision == AUTO:
        recipe = replace(recipe, precision="bf16" if device == "cuda" else "fp32")
    return replace(recipe, data=resolve_splits(recipe.data, recipe.select))


def resolve_splits(data: DataRecipe, select: Selection = "last") -> DataRecipe:
    """Replace the splits that are ``auto`` by the splits of the data set with the usual names.

    ``trainval`` is preferred to ``train``; ``val`` is used with ``train`` only, since ``trainval``
    contains it. If the best weights are selected on ``val``, ``train`` is preferred.
    """
    if AUTO not in (data.train, data.val, data.test):
        return data
    names = split_names(data.path)
    train, val, test = data.train, data.val, data.test
    if train == AUTO:
        whole = ("train", "trainval") if select == "best" else ("trainval", "train")
        train = _named(names, whole) or _only(data.path, names)
    if val == AUTO:
        taken = data.hold_out or train.endswith("trainval")
        val = None if taken else _named(names, ("val",), but=train)
    if test == AUTO:
        test = _named(names, ("test",), but=train)
    return replace(data, train=train, val=val, test=test)


def _named(names: Sequence[str], wanted: Sequence[str], *, but: str = "") -> str | None:
    """Return the first of the wanted splits that exists, with or without a year in its name."""
    for name in wanted:
        matches = [split for split in names if re.fullmatch(re.escape(name) + r"(\d{4})?", split)]
        if name in matches:
            matches = [name]
        if len(matches) == 1 and matches[0] != but:
            return matches[0]
    return None


def _only(path: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise DataError(
        f"{path}: the training split is ambiguous; "
        f"set data.train to one of: {', '.join(names) or '(no splits)'}"
    )


# --- data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSets:
    """The data sets of a run.

    Attributes:
        train: The training images.
        val: The images to evaluate during training.
        test: The images to evaluate at the end.
        notes: Messages about images and boxes that were left out or changed.
    """

    train: DetectionDataset
    val: DetectionDataset | None
    test: DetectionDataset | None
    notes: tuple[str, ...]
    digest: DataDigest


def data_digest(data: DataRecipe) -> DataDigest:
    """Return the digest of the splits of a recipe as they are now.

    Raises:
        DataError: If the data set cannot be opened.
    """
    splits = [name for name in (data.train, data.val, data.test) if name]
    return _digest([load_dataset(data.path, split).index for split in splits])


def _digest(splits: Sequence[DetectionIndex]) -> DataDigest:
    images = [image_digests(index) for index in splits]
    return {
        "annotations": fingerprint(splits),
        "image_sizes": " ".join(sizes for sizes, _ in images),
        "image_times": " ".join(times for _, times in images),
    }


def changed_data(before: DataDigest, now: DataDigest) -> str | None:
    """Return what has changed between two digests, in words, or None.

    Examples:
        >>> changed_data({"annotations": "a"}, {"annotations": "b"})
        'the annotations have changed'
    """
    if before["annotations"] != now["annotations"]:
        return "the annotations have changed"
    if before["image_sizes"] != now["image_sizes"]:
        return "image files have changed in size"
    if before["image_times"] != now["image_times"]:
        return TOUCHED
    return None


def run_sets(recipe: Recipe, missing: float = 1.0) -> RunSets:
    """Open the data sets of a recipe.

    Args:
        recipe: The recipe.
        missing: The maximum share of the images of a split that may be missing or unreadable.

    Raises:
        DataError: If a data set does not exist, is empty or lacks too many images, or if its
            splits have different classes.
    """
    data, notes = recipe.data, []
    train = load_dataset(data.path, data.train).index
    notes += _opened(train)
    val = load_dataset(data.path, data.val).index if data.val else None
    test = load_dataset(data.path, data.test).index if data.test else None
    for index in (train, val, test):
        if index is not None:
            check_whole(index, len(index), index.problems, missing)
    digest = _digest([index for index in (train, val, test) if index is not None])
    for other in (val, test):
        if other is not None:
            notes += _opened(other)
            _check_classes(train, other)
    if val is None and data.hold_out:
        train, val = hold_out(train, data.hold_out, recipe.seed)
        notes.append(f"{len(val):,} training images held out for validation")
    train, more = training_index(train, recipe)
    sets = [None if index is None else DetectionDataset(index) for index in (val, test)]
    return RunSets(DetectionDataset(train), sets[0], sets[1], (*notes, *more), digest)


def training_index(index: DetectionIndex, recipe: Recipe) -> tuple[DetectionIndex, list[str]]:
    """Select the training boxes: drop crowds and difficult boxes, take the subset, add noise."""
    notes = []
    dropped = index.crowd.copy()
    if recipe.data.difficult == "drop":
        dropped |= index.difficult
    if dropped.any():
        notes.append(
            f"{dropped.sum():,} boxes not trained on ({(index.crowd).sum():,} crowds, "
            f"{(dropped & ~index.crowd).sum():,} difficult)"
        )
        index = index.drop_boxes(dropped)
    if recipe.subset < 1.0:
        index = subset_index(index, recipe.subset, recipe.seed)
        notes.append(f"a subset of {len(index):,} images ({recipe.subset:g}, seed {recipe.seed})")
    if recipe.noise:
        index = perturb_index(index, recipe.noise, recipe.seed)
        notes.append(f"boxes with noise of rate {recipe.noise:g} (seed {recipe.seed})")
    if not index.num_boxes:
        raise DataError(
            f"{index.root}: no boxes to train on in split {index.split!r}; "
            f"alphaiou data check {index.root} lists the problems"
        )
    return index, notes


def hold_out(
    index: DetectionIndex, share: float, seed: int
) -> tuple[DetectionIndex, DetectionIndex]:
    """Split the images into a training set and a random validation share."""
    held = subset_index(index, share, seed)
    names = set(held.files)
    rest = np.array([i for i, name in enumerate(index.files) if name not in names], dtype=np.int64)
    return index.take(rest), held


def check_whole(
    index: DetectionIndex, usable: int, problems: Sequence[Problem], missing: float
) -> None:
    """Reject a split with too many missing images, such as a half-extracted archive.

    Args:
        index: The split.
        usable: The number of usable images.
        problems: The problems of the split.
        missing: The maximum share of images that may be missing or unreadable.

    Raises:
        DataError: If more images are missing.
    """
    lost = [
        problem
        for problem in problems
        if problem.effect == "image left out" and problem.kind != REPEATED
    ]
    total = usable + len(lost)
    if len(lost) > missing * total:
        raise DataError(
            f"{index.root}: {len(lost):,} of the {total:,} images of split {index.split!r} cannot "
            f"be used, such as {lost[0].file}: {lost[0].detail}; alphaiou data check {index.root} "
            "lists them; complete the data set, or train without them: --missing 1 or "
            "Execution(missing=1)"
        )


def _opened(index: DetectionIndex) -> list[str]:
    problems = left_out(index.problems)
    return [str(index), *([f"{index.split}: {problems}"] if problems else [])]


def _check_classes(train: DetectionIndex, other: DetectionIndex) -> None:
    if train.classes != other.classes:
        strange = sorted({*train.classes} ^ {*other.classes})[:5]
        raise DataError(
            f"{other.root}: the classes of {other.split!r} differ from those of {train.split!r} "
            f"({', '.join(strange) or 'in their order only'}); "
            "give both splits the same list"
        )


# --- images, detector and step --------------------------------------------------------------------


def prepare(recipe: Recipe, folder: Path, context: RunContext) -> Run:
    """Open the data sets and build the detector; both depend on the recipe only."""
    missing = context.execution.missing
    # First, as images take longer.
    source = recipe.weights_source
    weights = None if source is None else read_start_weights(source)
    sets = run_sets(recipe, missing)
    notes = list(sets.notes)
    for note in notes:
        context.report.note(note)
    caches: dict[str, Images] = {}
    for name in ("train", "val", "test"):
        dataset: DetectionDataset | None = getattr(sets, name)
        if dataset is not None:
            caches[name] = _images(dataset, recipe.image_size, context)
            check_whole(dataset.index, len(caches[name]), caches[name].problems, missing)
            if lost := left_out(caches[name].problems):
                notes.append(f"{dataset.index.split}: {lost}")
    torch.manual_seed(seed_of("weights", recipe.seed))
    detector = recipe.detector.build(
        len(sets.train.index.classes),
        recipe.detector.box_loss(recipe.loss, recipe.alpha_schedule),
        image_size=recipe.image_size,
        pretrained=weights is None,
    )
    detector.freeze(recipe.freeze)
    if weights is not None:
        notes.append(start_from(detector, weights, recipe.detector.name, sets.train.index.classes))
        context.report.note(notes[-1])
    sizes = torch.from_numpy(box_sizes(sets.train.index, recipe.image_size))
    detector.fit_boxes(sizes.float(), seed=recipe.seed)
    step = _step(recipe, detector.to(context.device), caches["train"], sets.train.index, context)
    digest = None if weights is None else weights.digest
    return Run(recipe, folder, context, sets, caches, step, notes, digest)


def _images(dataset: DetectionDataset, image_size: int, context: RunContext) -> Images:
    """Load the images into memory, or stream them if they do not fit."""
    wanted = context.execution.images
    if wanted != "stream":
        try:
            return _cache(dataset, image_size, context)
        except TooLargeError as error:
            if wanted == "memory":
                raise
            context.report.note(f"{dataset.index.split} is streamed: {error}")
    return StreamedImages(dataset, image_size, context.execution.workers)


def _cache(dataset: DetectionDataset, image_size: int, context: RunContext) -> ImageCache:
    decoded_sets = {} if context.execution.decoded is None else context.execution.decoded
    index = dataset.index
    key = (str(index.root), index.split, tuple(index.files), image_size, str(context.device))
    if key not in decoded_sets:
        decoded_sets[key] = decode_images(
            dataset,
            image_size,
            device=context.device,
            workers=context.execution.workers,
            on_progress=lambda done: context.report.cached(done, len(dataset)),
        )
    decoded = decoded_sets[key]
    cache = make_cache(index, decoded.rows, decoded.pixels, decoded.images)
    for problem in cache.problems:
        context.report.note(str(problem))
    return cache


def _step(
    recipe: Recipe, detector: Detector, images: Images, index: DetectionIndex, context: RunContext
) -> TrainingStep:
    processes, device = context.processes, context.device
    fast = device.type == "cuda" and processes.count == 1
    options = context.execution.step or StepOptions(compile=fast, capture=fast)
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
    """Return width and height of every box, in pixels at the training image size."""
    scale = image_size / index.sizes.max(1)[index.image_of_box()]
    return np.asarray((index.boxes[:, 2:] - index.boxes[:, :2]) * scale[:, None])


def box_slots(index: DetectionIndex, recipe: Recipe) -> int:
    """Return the box slots of a batch: twice the mean of mosaics, of which crops keep half."""
    images = recipe.batch_size // recipe.optimisation.accumulate
    most = images * 4 * int(np.diff(index.offsets).max(initial=1))
    mean = index.num_boxes / len(index)
    return max(1, min(most, max(512, int(8 * mean * images))))
