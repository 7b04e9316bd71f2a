"""The same small detector, data and seed under each loss: the study of ``alphaiou compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.shapes.dataset import SHAPES_WORD
from alphaiou.detectors.registry import detector_config
from alphaiou.detectors.yolov5.config import YOLOv5Config
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import columns_of
from alphaiou.study.grid import Grid, Row
from alphaiou.study.records import RunRecord, grid_runs, with_found_seeds
from alphaiou.training.recipe import AUTO, DataRecipe, Optimisation, Recipe, recipe_from
from alphaiou.training.recipes import from_scratch
from alphaiou.training.setup import resolve_splits

#: The drawn set that is learnt in a minute, and the share of it to train on.
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


@dataclass(frozen=True)
class CompareSettings:
    """The settings of a comparison, which all its losses share.

    Attributes:
        data: A data set of any layout, or a word for a drawn one.
        seed: Decides the initial weights, the order and the augmentation of every run.
        detector: One of ``DETECTORS``.
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
    )


def runs_on_same_data(grid: Grid, records: Mapping[str, RunRecord]) -> dict[str, RunRecord]:
    """The records of runs on the data and with the detector of a comparison.

    Args:
        grid: The comparison, of which at least one run is finished.
        records: The records of all runs in its folder.
    """
    base = grid.rows[0].recipe
    compared = [run for row in grid_runs(grid, records).values() for run in row.runs.values()]
    newest = max(compared, key=lambda run: run["made"]["date"] or "")
    shared = {}
    for name, record in records.items():
        recipe = recipe_from(record["recipe"])
        same_place = (recipe.data.path, recipe.detector) == (base.data.path, base.detector)
        if same_place and _annotations(record) == _annotations(newest):
            shared[name] = record
    return shared


def _annotations(record: RunRecord) -> str | None:
    """The digest of the annotations that a run was trained on."""
    data: Mapping[str, str] = record["data"] or {}
    return data.get("annotations")


def with_other_runs(grid: Grid, records: Mapping[str, RunRecord]) -> Grid:
    """The grid of a comparison with the other losses and seeds of finished runs.

    Runs belong to it if they share all settings with it; its rows stay the first ones, and its
    first row the baseline.

    Args:
        grid: The comparison.
        records: The records of ``runs_on_same_data``.
    """
    base, baseline = grid.rows[0].recipe, grid.rows[0].label
    rows = {row.label: row for row in grid.rows}
    for record in sorted(
        records.values(), key=lambda run: (run["made"]["date"] or "", run["name"])
    ):
        loss = recipe_from(record["recipe"]).loss
        row = Row(loss.display_name, replace(base, loss=loss), baseline)
        rows.setdefault(row.label, row)
    found = with_found_seeds(replace(grid, rows=tuple(rows.values())), records)
    runs, asked = grid_runs(found, records), {row.label for row in grid.rows}
    kept = (row for row in found.rows if row.label in asked or runs[row.label].runs)
    return replace(found, rows=tuple(kept))


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
    detector = detector_config(settings.detector)
    if not isinstance(detector, YOLOv5Config):
        recipe = from_scratch(detector)
        lr = recipe.optimisation.lr * settings.batch_size / recipe.batch_size
        short = replace(recipe.optimisation, lr=lr, schedule="cosine", drops=(), **SHORT)
        return replace(recipe, optimisation=short)
    return Recipe(
        detector=replace(
            detector,
            objectness_gain=0.45 * (640 / image_size) ** 2,
            class_gain=0.125 * 80 / classes,
        ),
        augmentation=Augmentation(mosaic=0.0, scale=0.3),
        optimisation=Optimisation(lr=0.02, warmup_epochs=0.0, warmup_bias_lr=0.0, **SHORT),
    )
