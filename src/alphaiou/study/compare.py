"""The same small detector, data and seed under each loss: what ``alphaiou compare`` runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from alphaiou._environment import device_kind
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.losses.spec import LossSpec
from alphaiou.study.detections import Findings, findings_of
from alphaiou.study.runner import fit_side_by_side
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.recipe import AUTO, DataRecipe, Optimisation, Recipe, recipe_hash
from alphaiou.training.recipes import voc320_detr, voc320_faster_rcnn
from alphaiou.training.record import RECORD, finished_record
from alphaiou.training.setup import resolve_auto, resolve_splits

#: The drawn set that is learnt in a minute, and how much of it is trained on.
DRAWN, DRAWN_SHARE = "shapes-discs-64", 0.5
HELD_OUT = 0.2
SCORED_TIMES = 4
#: Rates of a training of a thousand steps.
SHORT: dict[str, Any] = {
    "final_lr": 0.05,
    "warmup_steps": 300,
    "ema_decay": 0.99,
    "ema_growth": 100.0,
}
#: Recipes of detectors that are trained otherwise than YOLOv5.
FROM_SCRATCH = {FASTER_RCNN: voc320_faster_rcnn, DETR: voc320_detr}


@dataclass(frozen=True)
class CompareSettings:
    """What may be chosen about a comparison; the loss is what differs within it.

    Attributes:
        data: A data set of any layout, or a word for a drawn one.
        seed: Decides the weights at the start, the order and the augmentation of every run.
        detector: A name that ``build_detector`` knows.
        image_size: The long side of the images, in pixels; by default 64 for drawn sets, else 320.
        batch_size: Images a step.
        epochs: Passes over the training images; by default 16 for drawn sets, else 50.
    """

    data: str = DRAWN
    seed: int = 0
    detector: str = "yolov5n"
    image_size: int | None = None
    batch_size: int = 16
    epochs: int | None = None


@dataclass(frozen=True)
class ComparedRun:
    """One loss of a comparison.

    Attributes:
        record: What its training left.
        findings: What the trained detector finds.
        folder: Where its files are.
    """

    record: dict[str, Any]
    findings: Findings
    folder: Path


def compare_recipes(losses: Sequence[LossSpec], settings: CompareSettings) -> list[Recipe]:
    """A recipe a loss, which differ in nothing else.

    Made for a thousand steps on a processor: an average of the weights over the last hundred, and
    whole images rather than mosaics. The warm-up is long for so few steps, since without it many
    runs stay blind: their boxes do not depend on the image. YOLOv5's gains are made for 80 classes
    at 640 pixels and nearly vanish for few classes in small images; here objectness and classes
    count the same at every size and number. No number was chosen by which loss wins.

    Raises:
        DataError: The data set is not there, or has no split to train on.
        ValueError: A setting is out of range.

    Examples:
        >>> losses = [LossSpec("iou"), LossSpec("iou", alpha=3.0)]
        >>> first, second = compare_recipes(losses, CompareSettings())
        >>> replace(first, loss=second.loss) == second
        True
    """
    drawn = SHAPES_WORD.fullmatch(settings.data) is not None
    size = settings.image_size or (64 if drawn else 320)
    epochs = settings.epochs or (16 if drawn else 50)
    data = compared_splits(settings.data)
    classes = len(load_dataset(data.path, data.train).index.classes)
    recipe = replace(
        _compared_detector(settings, size, classes),
        data=data,
        image_size=size,
        batch_size=settings.batch_size,
        epochs=epochs,
        seed=settings.seed,
        subset=DRAWN_SHARE if drawn else 1.0,
        precision="auto",
        evaluate_every=max(1, epochs // SCORED_TIMES),
        select="last",
    )
    return [replace(recipe, loss=loss) for loss in losses]


def _compared_detector(settings: CompareSettings, image_size: int, classes: int) -> Recipe:
    """A detector and its training, made for a thousand steps."""
    if settings.detector in FROM_SCRATCH:
        recipe = FROM_SCRATCH[settings.detector]()
        lr = recipe.optimisation.lr * settings.batch_size / recipe.batch_size
        how = replace(recipe.optimisation, lr=lr, schedule="cosine", drops=(), **SHORT)
        return replace(recipe, optimisation=how)
    return Recipe(
        detector=settings.detector,
        objectness_gain=0.45 * (640 / image_size) ** 2,
        class_gain=0.125 * 80 / classes,
        augmentation=Augmentation(mosaic=0.0, scale=0.3),
        optimisation=Optimisation(lr=0.02, warmup_epochs=0.0, warmup_bias_lr=0.0, **SHORT),
    )


def compared_splits(path: str) -> DataRecipe:
    """The splits to train on and to score on: of those that there are, or a share held out."""
    data = resolve_splits(DataRecipe(path, train=AUTO, val=AUTO), "best")
    if data.val is None and "test" in split_names(path):
        return replace(data, val="test")
    return data if data.val else replace(data, hold_out=HELD_OUT)


def unfinished(recipes: Sequence[Recipe], folder: Path, device: str = "cpu") -> list[Recipe]:
    """The recipes whose runs are still to be computed, or to be gone on with."""
    names = {recipe: recipe_hash(resolve_auto(recipe, device)) for recipe in recipes}
    return [recipe for recipe in recipes if finished_record(folder / names[recipe]) is None]


def run_comparison(
    recipes: Sequence[Recipe],
    folder: Path,
    *,
    execution: Execution = Execution(),
    report: Callable[[Recipe], Report] = lambda _: Report(),
    side_by_side: bool = False,
) -> list[ComparedRun]:
    """Train under each recipe, and look at what the detectors find.

    Stopped and called again it goes on where it was; what is finished is not computed again.

    Args:
        recipes: The runs.
        folder: Each is kept in its own folder under this one.
        execution: Where and how to compute.
        report: Who is told what a run does.
        side_by_side: Whether the runs are processes of their own on a processor's cores, at the
            same time, and not one after another in this one. A program that asks for it must keep
            its own start under ``if __name__ == "__main__"``.
    """
    cpu = device_kind(execution.device) == "cpu"
    apart = unfinished(recipes, folder) if side_by_side and cpu else []
    if len(apart) > 1:
        fit_side_by_side(apart, folder, execution=execution, report=report)
    else:
        apart = []
    runs = []
    for recipe in recipes:
        listener = Report() if recipe in apart else report(recipe)
        name = fit(recipe, folder, execution=execution, report=listener)["name"]
        # From the disk, so that a comparison is the same whether or not it was just computed.
        record = json.loads((folder / name / RECORD).read_text(encoding="utf-8"))
        runs.append(ComparedRun(record, findings_of(folder / name), folder / name))
    return runs
