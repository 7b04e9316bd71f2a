"""Named recipes: functions that return a ``Recipe``, to be changed with ``replace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.detectors.base import DetectorConfig
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.faster_rcnn.config import FasterRCNNConfig
from alphaiou.detectors.registry import DELTA_LOSSES
from alphaiou.detectors.yolov5.config import YOLOv5Config, YOLOv5nConfig, YOLOv5sConfig
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import AUTO, DataRecipe, Optimisation, Recipe

#: Splits to be resolved from the data set.
ANY_DATA = DataRecipe(train=AUTO, val=AUTO, test=AUTO)


def paper() -> Recipe:
    """The paper's YOLOv5s from scratch: 640 pixels, batches of 64, 300 epochs.

    Examples:
        >>> paper().image_size, paper().epochs, str(paper().loss)
        (640, 300, 'iou:3')
    """
    return Recipe(data=ANY_DATA, precision=AUTO)


def paper_code() -> Recipe:
    """The paper's YOLOv5s as its published code trained and scored it.

    Objectness learns the powered, penalised IoU, NMS removes boxes above an IoU of 0.5, and the
    weights are those that scored best on the test set, whose scores are optimistic.

    Examples:
        >>> recipe = paper_code()
        >>> recipe.detector.objectness, recipe.detector.nms_threshold, recipe.select, recipe.rule
        ('similarity', 0.5, 'best-on-test', 'yolov5')
    """
    return replace(
        paper(),
        detector=YOLOv5sConfig(objectness="similarity", nms_threshold=0.5),
        data=replace(ANY_DATA, val=None, test="test"),
        evaluate_every=1,
        select="best-on-test",
        rule="yolov5",
    )


def voc320() -> Recipe:
    """The paper's training at half the image size and a third of the epochs, scored on test."""
    data = replace(ANY_DATA, val=None, test="test")
    return replace(paper(), data=data, image_size=320, epochs=100)


def quick() -> Recipe:
    """A small detector for drawn shapes, trained on a CPU in a minute or two.

    The gains of YOLOv5 are tuned for 80 classes at 640 pixels and nearly vanish for 4 classes at
    96. Here objectness and classes are scaled back up. The moving average and the warm-up are as
    short as the training.
    """
    return Recipe(
        detector=YOLOv5nConfig(objectness_gain=20.0, class_gain=4.0),
        data=replace(ANY_DATA, path="shapes-plain-96", test=None),
        image_size=96,
        batch_size=16,
        epochs=9,
        subset=0.5,
        augmentation=Augmentation(mosaic=0.0, scale=0.3),
        optimisation=Optimisation(
            lr=0.02,
            final_lr=0.05,
            warmup_epochs=0.0,
            warmup_steps=30,
            ema_decay=0.99,
            ema_growth=100.0,
        ),
        precision=AUTO,
        evaluate_every=3,
    )


#: Horizontal flip only.
MIRRORED = replace(Augmentation.none(), flip=0.5)
#: Flip, scale and translation.
MOVED = replace(MIRRORED, scale=0.3, translate=0.125)


def faster_rcnn() -> Recipe:
    """Faster R-CNN R50-FPN as MMDetection trains it in 12 epochs, from ImageNet weights.

    Images are squares of 800 pixels; the original resizes the shorter side to 800.

    Examples:
        >>> faster_rcnn().optimisation.drops, faster_rcnn().box_gain
        ((8, 11), 10.0)
    """
    return Recipe(
        detector=FasterRCNNConfig(backbone_weights="imagenet"),
        data=ANY_DATA,
        image_size=800,
        batch_size=16,
        epochs=12,
        augmentation=MIRRORED,
        optimisation=Optimisation(
            lr=0.02,
            schedule="steps",
            drops=(8, 11),
            momentum=0.9,
            nesterov=False,
            weight_decay=1e-4,
            decay_batch=None,
            decay="all",
            warmup_epochs=0.0,
            warmup_steps=500,
            warmup_bias_lr=0.0,
            warmup_momentum=0.9,
            ema_decay=0.0,
        ),
        precision=AUTO,
    )


def detr() -> Recipe:
    """DETR R50 as the paper trains it in 150 epochs, from ImageNet weights.

    Examples:
        >>> detr().optimisation.clip_norm, str(detr().loss)
        (0.1, 'giou:3')
    """
    return Recipe(
        detector=DETRConfig(backbone_weights="imagenet"),
        loss=LossSpec("giou", 3.0),
        data=ANY_DATA,
        image_size=800,
        batch_size=16,
        epochs=150,
        augmentation=MOVED,
        optimisation=Optimisation(
            optimiser="adamw",
            lr=1e-4,
            schedule="steps",
            drops=(100,),
            weight_decay=1e-4,
            decay_batch=None,
            decay="all",
            clip_norm=0.1,
            warmup_epochs=0.0,
            warmup_steps=0,
            warmup_bias_lr=0.0,
            ema_decay=0.0,
        ),
        precision=AUTO,
    )


def voc320_faster_rcnn() -> Recipe:
    """Faster R-CNN from scratch at 320 pixels in the base 12 epochs, scored on test."""
    recipe = _from_scratch(faster_rcnn(), epochs=12, drops=(8, 11))
    return replace(recipe, detector=FasterRCNNConfig(norm="batch"))


def voc320_detr() -> Recipe:
    """DETR from scratch at 320 pixels in 80 epochs, scored on test.

    Small data sets do not suffice to train the backbone as well: start from the backbone of a
    Faster R-CNN trained on the same images, as docs/training.md does. It learns faster without
    dropout.
    """
    recipe = _from_scratch(detr(), epochs=80, drops=(64,))
    how = replace(recipe.optimisation, lr=2e-4, warmup_steps=500, ema_decay=0.9998)
    return replace(recipe, detector=DETRConfig(dropout=0.0), batch_size=32, optimisation=how)


def _from_scratch(recipe: Recipe, *, epochs: int, drops: tuple[int, ...]) -> Recipe:
    """The recipe without ImageNet weights: longer warm-up, random scale and translation."""
    return replace(
        recipe,
        data=voc320().data,
        image_size=320,
        epochs=epochs,
        augmentation=MOVED,
        optimisation=replace(recipe.optimisation, drops=drops, warmup_steps=1000),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "paper": paper,
    "paper-code": paper_code,
    "voc320": voc320,
    "quick": quick,
    "faster-rcnn": faster_rcnn,
    "detr": detr,
    "voc320-faster-rcnn": voc320_faster_rcnn,
    "voc320-detr": voc320_detr,
}


def from_scratch(detector: DetectorConfig) -> Recipe:
    """Return the last named recipe of a detector, which needs no pretrained weights.

    Examples:
        >>> from_scratch(DETRConfig()).detector.dropout
        0.0
    """
    named = [recipe() for recipe in RECIPES.values()]
    return [recipe for recipe in named if type(recipe.detector) is type(detector)][-1]


def default_box_gain(recipe: Recipe) -> float:
    """Return the default box gain of the detector of a recipe.

    Examples:
        >>> [default_box_gain(recipe()) for recipe in (paper, faster_rcnn, detr)]
        [0.05, 10.0, 2.0]
    """
    if recipe.loss.kind in DELTA_LOSSES:
        return 1.0  # losses of deltas are larger than losses of boxes
    return type(recipe.detector)().box_gain


def at_default_gain(recipe: Recipe) -> Recipe:
    """Return the recipe with the constant default box gain of its detector."""
    return with_box_gain(recipe, default_box_gain(recipe), None)


def with_settings(recipe: Recipe, **settings: Any) -> Recipe:  # noqa: ANN401
    """Return the recipe with other settings of its detector.

    Examples:
        >>> with_settings(detr(), dropout=0.0).detector.dropout
        0.0
    """
    return replace(recipe, **settings)


def with_box_gain(recipe: Recipe, gain: float, final: float | None = None) -> Recipe:
    """Return the recipe with another box gain.

    Examples:
        >>> with_box_gain(paper(), 0.1).detector.box_gain
        0.1
    """
    return replace(recipe, detector=replace(recipe.detector, box_gain=gain), final_box_gain=final)


def is_constant(recipe: Recipe) -> bool:
    """Return whether α and the box gain stay constant during the training."""
    return recipe.alpha_schedule is None and recipe.final_box_gain is None


def learns_similarity(recipe: Recipe) -> bool:
    """Return whether objectness learns the powered, penalised IoU, as in the paper's code."""
    return getattr(recipe.detector, "objectness", "iou") == "similarity"


def objectness_alpha(recipe: Recipe) -> float:
    """Return the power of the objectness target, 1 for detectors without one.

    Examples:
        >>> objectness_alpha(with_settings(paper(), objectness_alpha=2.0)), objectness_alpha(detr())
        (2.0, 1.0)
    """
    return getattr(recipe.detector, "objectness_alpha", 1.0)


def without_power(recipe: Recipe) -> Recipe:
    """Return the recipe with its loss as first published, α = 1.

    Examples:
        >>> str(without_power(replace(paper(), loss=LossSpec("ciou", 3.0, 1.0))).loss)
        'ciou'
    """
    loss = replace(recipe.loss, alpha=1.0, penalty_alpha=None)
    return replace(recipe, loss=loss, alpha_schedule=None)


def gain_factor(recipe: Recipe) -> float:
    """Return the box gain as a multiple of the default.

    Examples:
        >>> gain_factor(with_box_gain(detr(), 1.0))
        0.5
    """
    return round(recipe.box_gain / default_box_gain(recipe), 6)


def gain_name(recipe: Recipe) -> str:
    """Return the label of the box gain in tables, as a multiple of the default.

    Examples:
        >>> gain_name(paper()), gain_name(replace(paper(), final_box_gain=0.1))
        ('×1', '×1→2')
    """
    start = f"×{gain_factor(recipe):g}"
    if recipe.final_box_gain is None:
        return start
    return f"{start}→{gain_factor(with_box_gain(recipe, recipe.final_box_gain)):g}"


def other_factors(recipe: Recipe, base: Recipe) -> list[str]:
    """Return the labels of the other gains and the learning rate that differ from a base recipe.

    Examples:
        >>> detector = replace(paper().detector, class_gain=1.0, objectness_gain=4.0)
        >>> other_factors(replace(paper(), detector=detector), paper())
        ['class gain ×2', 'objectness gain ×4']
    """
    factors = {"learning rate": recipe.optimisation.lr / base.optimisation.lr}
    if isinstance(recipe.detector, YOLOv5Config) and isinstance(base.detector, YOLOv5Config):
        factors = {
            "class gain": recipe.detector.class_gain / base.detector.class_gain,
            "objectness gain": recipe.detector.objectness_gain / base.detector.objectness_gain,
            **factors,
        }
    return [f"{name} ×{by:g}" for name, by in factors.items() if round(by, 6) != 1]
