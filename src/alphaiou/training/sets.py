"""The data sets of a run, as its recipe wants them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.layouts import load_dataset
from alphaiou.data.noise import perturb_index
from alphaiou.data.problems import DataError, Problem, left_out
from alphaiou.data.subset import subset_index
from alphaiou.training.recipe import Recipe

#: The kind of finding that leaves an image out because it is there already.
REPEATED = "image-duplicate"


@dataclass(frozen=True)
class RunSets:
    """What a run trains on and is scored on, and what was done to it.

    Attributes:
        train: The training images.
        val: Scored during training.
        test: Scored at the end.
        notes: What was left out or changed, in sentences.
    """

    train: DetectionDataset
    val: DetectionDataset | None
    test: DetectionDataset | None
    notes: tuple[str, ...]


def run_sets(recipe: Recipe, missing: float = 1.0) -> RunSets:
    """Open the data sets of a recipe.

    Args:
        recipe: Whose.
        missing: The largest share of the images of a split that may be missing or unreadable.

    Raises:
        DataError: A set is not there, is empty, lacks too many images, or its splits have different
            classes.
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
    """Refuse a split that lacks too many of its images: half of an archive trains, and misleads.

    Args:
        index: The split.
        usable: How many of its images can be used.
        problems: What was found, among it why others cannot.
        missing: The largest share that may be missing or unreadable.

    Raises:
        DataError: More are.
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
