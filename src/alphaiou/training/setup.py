"""Prepare a run: resolve ``auto``, open its data sets, build its detector and its step."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from alphaiou._shapes import Float64
from alphaiou.data.dataset import DetectionDataset, load_dataset, split_names
from alphaiou.data.derived import fingerprint
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
from alphaiou.detectors.registry import detector_from
from alphaiou.training.batches import CachedBatches, StreamedBatches, seed_of
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe, Selection
from alphaiou.training.step import StepOptions, TrainingStep

Images = ImageCache | StreamedImages
#: Decoded images by what decides them: folder, split, files, size, device.
DecodedSets = dict[tuple[object, ...], DecodedImages]
#: The kind of problem that leaves an image out because it is listed twice.
REPEATED = "image-duplicate"


# --- how a run is computed ------------------------------------------------------------------------


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
    """Callbacks for the progress of a run; by default they do nothing."""

    note: Callable[[str], None] = lambda _: None
    cached: Callable[[int, int], None] = lambda _done, _all: None
    stepped: Callable[[int, int, int], None] = lambda _epoch, _step, _steps: None
    epoch_done: Callable[[dict[str, Any]], None] = lambda _: None


@dataclass(frozen=True)
class RunContext:
    """Where and how a run is computed, and who is told of its progress."""

    execution: Execution
    report: Report
    processes: Processes
    device: torch.device


@dataclass
class Run:
    """The state of a run.

    Attributes:
        recipe: Its recipe.
        folder: Its folder.
        context: Where and how it is computed.
        sets: Its data sets.
        caches: Their images: ``train``, and ``val`` and ``test`` if the run has them.
        step: The state of the training.
        notes: The images and boxes that were left out or changed, in sentences.
        history: The losses, speed and scores of every epoch so far.
        best: The epoch whose weights are kept, unless it is the last.
        saved_at: When the last checkpoint was written, by the monotonic clock.
    """

    recipe: Recipe
    folder: Path
    context: RunContext
    sets: RunSets
    caches: dict[str, Images]
    step: TrainingStep
    notes: list[str]
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None
    saved_at: float = field(default_factory=time.monotonic)

    def data_mark(self) -> str:
        """A fingerprint of the images and boxes of the run."""
        sets = (self.sets.train, self.sets.val, self.sets.test)
        readable = "+".join(str(len(cache)) for cache in self.caches.values())
        return f"{fingerprint([one.index for one in sets if one is not None])} {readable}"


# --- settings that are auto -----------------------------------------------------------------------


def resolve_auto(recipe: Recipe, device: str) -> Recipe:
    """Replace every ``auto`` of a recipe: the precision by the device, the splits by the data set.

    Args:
        recipe: The run.
        device: ``cpu`` or ``cuda``.

    Raises:
        DataError: The data set has no split that is clearly the one to train on.

    Examples:
        >>> resolve_auto(Recipe(precision="auto", data=DataRecipe(val="auto")), "cpu").data.val
        'val'
    """
    if recipe.precision == AUTO:
        recipe = replace(recipe, precision="bf16" if device == "cuda" else "fp32")
    return replace(recipe, data=resolve_splits(recipe.data, recipe.select))


def resolve_splits(data: DataRecipe, select: Selection = "last") -> DataRecipe:
    """The splits of a data set by their usual names, where they are ``auto``.

    ``trainval`` is taken before ``train``, and ``val`` with the latter only, which it is no part
    of; but where the best weights are to be chosen on ``val``, it stays out of the training.
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
        val = None if taken else _named(names, ("val", "valid", "validation"), but=train)
    if test == AUTO:
        test = _named(names, ("test",), but=train)
    return replace(data, train=train, val=val, test=test)


def _named(names: Sequence[str], wanted: Sequence[str], *, but: str = "") -> str | None:
    """The first of the wanted splits that there is, with or without a year behind its name."""
    for name in wanted:
        found = [one for one in names if re.fullmatch(re.escape(name) + r"(\d{4})?", one)]
        if name in found:
            found = [name]
        if len(found) == 1 and found[0] != but:
            return found[0]
    return None


def _only(path: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    raise DataError(
        f"{path}: no split is plainly the one to train on; "
        f"choose with data.train: {', '.join(names) or 'there is none'}"
    )


# --- data sets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RunSets:
    """The data sets of a run, and how they were changed.

    Attributes:
        train: The training images.
        val: Scored during training.
        test: Scored at the end.
        notes: The images and boxes that were left out or changed, in sentences.
    """

    train: DetectionDataset
    val: DetectionDataset | None
    test: DetectionDataset | None
    notes: tuple[str, ...]


def run_sets(recipe: Recipe, missing: float = 1.0) -> RunSets:
    """Open the data sets of a recipe.

    Args:
        recipe: The recipe.
        missing: The largest share of the images of a split that may be missing or unreadable.

    Raises:
        DataError: A data set does not exist, is empty, lacks too many images, or its splits have
            different classes.
    """
    data, notes = recipe.data, []
    train = load_dataset(data.path, data.train).index
    notes += _opened(train)
    val = load_dataset(data.path, data.val).index if data.val else None
    test = load_dataset(data.path, data.test).index if data.test else None
    for index in (train, val, test):
        if index is not None:
            check_whole(index, len(index), index.problems, missing)
    for other in (val, test):
        if other is not None:
            notes += _opened(other)
            _check_classes(train, other)
    if val is None and data.hold_out:
        train, val = hold_out(train, data.hold_out, recipe.seed)
        notes.append(f"{len(val):,} training images held out for validation")
    train, more = training_index(train, recipe)
    sets = [None if index is None else DetectionDataset(index) for index in (val, test)]
    return RunSets(DetectionDataset(train), sets[0], sets[1], (*notes, *more))


def training_index(index: DetectionIndex, recipe: Recipe) -> tuple[DetectionIndex, list[str]]:
    """The boxes to train on: without crowds and difficult ones, a subset, with noise."""
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
            f"alphaiou data check {index.root} says what is wrong with it"
        )
    return index, notes


def hold_out(
    index: DetectionIndex, share: float, seed: int
) -> tuple[DetectionIndex, DetectionIndex]:
    """The images in two parts: those to train on, and a seeded share to validate on."""
    held = subset_index(index, share, seed)
    names = set(held.files)
    rest = np.array([i for i, name in enumerate(index.files) if name not in names], dtype=np.int64)
    return index.take(rest), held


def check_whole(
    index: DetectionIndex, usable: int, problems: Sequence[Problem], missing: float
) -> None:
    """Reject a split that lacks too many of its images: half an archive would train, and mislead.

    Args:
        index: The split.
        usable: How many of its images can be used.
        problems: The problems of the split, among them why other images cannot be used.
        missing: The largest share that may be missing or unreadable.

    Raises:
        DataError: More images are missing.
    """
    lost = [one for one in problems if one.effect == "image left out" and one.kind != REPEATED]
    total = usable + len(lost)
    if len(lost) > missing * total:
        raise DataError(
            f"{index.root}: {len(lost):,} of the {total:,} images of split {index.split!r} cannot "
            f"be used, such as {lost[0].file}: {lost[0].detail}; alphaiou data check {index.root} "
            "lists them; complete the set, or train without: --missing 1, Execution(missing=1)"
        )


def _opened(index: DetectionIndex) -> list[str]:
    problems = left_out(index.problems)
    return [str(index), *([f"{index.split}: {problems}"] if problems else [])]


def _check_classes(train: DetectionIndex, other: DetectionIndex) -> None:
    if train.classes != other.classes:
        strange = sorted({*train.classes} ^ {*other.classes})[:5]
        raise DataError(
            f"{other.root}: the classes of {other.split!r} are not those of {train.split!r} "
            f"(one has, the other has not: {', '.join(strange) or 'only the order differs'}); "
            "give both splits the same list"
        )


# --- images, detector and step --------------------------------------------------------------------


def prepare(recipe: Recipe, folder: Path, context: RunContext) -> Run:
    """Open the data and build the detector; both depend on the recipe alone."""
    missing = context.execution.missing
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
    detector = detector_from(asdict(recipe), len(sets.train.index.classes))
    sizes = torch.from_numpy(box_sizes(sets.train.index, recipe.image_size))
    detector.fit_boxes(sizes.float(), seed=recipe.seed)
    step = _step(recipe, detector.to(context.device), caches["train"], sets.train.index, context)
    return Run(recipe, folder, context, sets, caches, step, notes)


def _images(dataset: DetectionDataset, image_size: int, context: RunContext) -> Images:
    """The images in memory, or as a stream where they do not fit."""
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
    """Width and height of every box, in pixels at the size of training."""
    scale = image_size / index.sizes.max(1)[index.image_of_box()]
    return np.asarray((index.boxes[:, 2:] - index.boxes[:, :2]) * scale[:, None])


def box_slots(index: DetectionIndex, recipe: Recipe) -> int:
    """Boxes that a batch can hold: twice the mean of whole mosaics, of which crops keep a half."""
    images = recipe.batch_size // recipe.optimisation.accumulate
    most = images * 4 * int(np.diff(index.offsets).max(initial=1))
    mean = index.num_boxes / len(index)
    return max(1, min(most, max(512, int(8 * mean * images))))
