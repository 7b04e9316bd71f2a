"""The same small detector, data and seed under each loss: the study of ``alphaiou compare``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.detectors.registry import DETR, FASTER_RCNN
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import columns_of
from alphaiou.study.grid import Grid, Row
from alphaiou.training.recipe import AUTO, DataRecipe, Optimisation, Recipe
from alphaiou.training.recipes import voc320_detr, voc320_faster_rcnn
from alphaiou.training.setup import resolve_splits

#: The drawn set that is learnt in a minute, and the share of it to train on.
DRAWN, DRAWN_SHARE = "shapes-discs-64", 0.5
HELD_OUT = 0.2
SCORED_TIMES = 4
#: A change from almost nothing would be a large number without a meaning.
LEAST_BASELINE = 0.005
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
    """The settings of a comparison, which all its losses share.

    Attributes:
        data: A data set of any layout, or a word for a drawn one.
        seed: Decides the initial weights, the order and the augmentation of every run.
        detector: A name that ``build_detector`` knows.
        image_size: The long side of the images, in pixels; by default 64 for drawn sets, else 320.
        batch_size: Images per step.
        epochs: Passes over the training images; by default 16 for drawn sets, else 50.
    """

    data: str = DRAWN
    seed: int = 0
    detector: str = "yolov5n"
    image_size: int | None = None
    batch_size: int = 16
    epochs: int | None = None


def compare_grid(losses: Sequence[LossSpec], settings: CompareSettings) -> Grid:
    """A grid with a row per loss; the first is the baseline of the others.

    Raises:
        DataError: The data set does not exist, or has no split to train on.
        ValueError: A setting is out of range.

    Examples:
        >>> grid = compare_grid([LossSpec("iou"), LossSpec("iou", 3.0)], CompareSettings())
        >>> [(row.label, row.baseline) for row in grid.rows]
        [('IoU', None), ('α-IoU (α=3)', 'IoU')]
    """
    baseline = losses[0].display_name
    rows = tuple(
        Row(
            recipe.loss.display_name,
            recipe,
            None if recipe.loss.display_name == baseline else baseline,
        )
        for recipe in compare_recipes(losses, settings)
    )
    return Grid(
        "compare",
        "Scores",
        rows,
        (settings.seed,),
        pictures=True,
        columns=columns_of("threshold", "mean"),
        least_baseline=LEAST_BASELINE,
    )


def compare_recipes(losses: Sequence[LossSpec], settings: CompareSettings) -> list[Recipe]:
    """One recipe per loss; they differ in nothing else.

    Made for a thousand steps on a CPU: the weights are averaged over the last hundred steps, and
    images are whole rather than mosaics. The warm-up is long for so few steps, since without it
    the boxes of many runs never come to depend on the image. YOLOv5's gains are made for 80
    classes at 640 pixels and nearly vanish for few classes in small images; here objectness and
    classes weigh the same at every size and number. No number was chosen by which loss wins.

    Raises:
        DataError: The data set does not exist, or has no split to train on.
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
        _detector_recipe(settings, size, classes),
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


def compared_splits(path: str) -> DataRecipe:
    """The splits to train and to score on; without a second split, a share is held out."""
    data = resolve_splits(DataRecipe(path, train=AUTO, val=AUTO), "best")
    if data.val is None and "test" in split_names(path):
        return replace(data, val="test")
    return data if data.val else replace(data, hold_out=HELD_OUT)


def _detector_recipe(settings: CompareSettings, image_size: int, classes: int) -> Recipe:
    """A detector and its training, made for a thousand steps."""
    if settings.detector in FROM_SCRATCH:
        recipe = FROM_SCRATCH[settings.detector]()
        lr = recipe.optimisation.lr * settings.batch_size / recipe.batch_size
        short = replace(recipe.optimisation, lr=lr, schedule="cosine", drops=(), **SHORT)
        return replace(recipe, optimisation=short)
    return Recipe(
        detector=settings.detector,
        objectness_gain=0.45 * (640 / image_size) ** 2,
        class_gain=0.125 * 80 / classes,
        augmentation=Augmentation(mosaic=0.0, scale=0.3),
        optimisation=Optimisation(lr=0.02, warmup_epochs=0.0, warmup_bias_lr=0.0, **SHORT),
    )
