"""Named recipes: functions that return a ``Recipe``, to be changed with ``replace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.detectors.registry import DELTA_LOSSES, DETR, FASTER_RCNN
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
        detector="yolov5n",
        data=replace(ANY_DATA, path="shapes-plain-96", test=None),
        image_size=96,
        batch_size=16,
        epochs=9,
        subset=0.5,
        objectness_gain=20.0,
        class_gain=4.0,
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
        detector=FASTER_RCNN,
        data=ANY_DATA,
        image_size=800,
        batch_size=16,
        epochs=12,
        box_gain=10.0,
        backbone_weights="imagenet",
        nms_threshold=0.5,
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
        detector=DETR,
        loss=LossSpec("giou", 3.0),
        data=ANY_DATA,
        image_size=800,
        batch_size=16,
        epochs=150,
        box_gain=2.0,
        backbone_weights="imagenet",
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
    return replace(_from_scratch(faster_rcnn(), epochs=12, drops=(8, 11)), norm="batch")


def voc320_detr() -> Recipe:
    """DETR from scratch at 320 pixels in 80 epochs, scored on test.

    Small data sets do not suffice to train the backbone as well: start from the backbone of a
    Faster R-CNN trained on the same images, as docs/training.md does. It learns faster without
    dropout.
    """
    recipe = _from_scratch(detr(), epochs=80, drops=(64,))
    how = replace(recipe.optimisation, lr=2e-4, warmup_steps=500, ema_decay=0.9998)
    return replace(recipe, batch_size=32, dropout=0.0, optimisation=how)


def _from_scratch(recipe: Recipe, *, epochs: int, drops: tuple[int, ...]) -> Recipe:
    """The recipe without ImageNet weights: longer warm-up, random scale and translation."""
    return replace(
        recipe,
        data=voc320().data,
        image_size=320,
        epochs=epochs,
        backbone_weights="none",
        augmentation=MOVED,
        optimisation=replace(recipe.optimisation, drops=drops, warmup_steps=1000),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    "paper": paper,
    "voc320": voc320,
    "quick": quick,
    "faster-rcnn": faster_rcnn,
    "detr": detr,
    "voc320-faster-rcnn": voc320_faster_rcnn,
    "voc320-detr": voc320_detr,
}


def default_box_gain(recipe: Recipe) -> float:
    """Return the default box gain of the detector of a recipe.

    Examples:
        >>> [default_box_gain(recipe()) for recipe in (paper, faster_rcnn, detr)]
        [0.05, 10.0, 2.0]
    """
    if recipe.loss.kind in DELTA_LOSSES:
        return 1.0  # losses of deltas are larger than losses of boxes
    own = {FASTER_RCNN: faster_rcnn, DETR: detr}.get(recipe.detector, paper)
    return own().box_gain


def at_default_gain(recipe: Recipe) -> Recipe:
    """Return the recipe with the constant default box gain of its detector."""
    return replace(recipe, box_gain=default_box_gain(recipe), final_box_gain=None)


def is_constant(recipe: Recipe) -> bool:
    """Return whether α and the box gain stay constant during the training."""
    return recipe.alpha_schedule is None and recipe.final_box_gain is None


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
        >>> gain_factor(replace(detr(), box_gain=1.0))
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
    return f"{start}→{gain_factor(replace(recipe, box_gain=recipe.final_box_gain)):g}"


def other_factors(recipe: Recipe, base: Recipe) -> list[str]:
    """Return the labels of the other gains and the learning rate that differ from a base recipe.

    Examples:
        >>> other_factors(replace(paper(), class_gain=1.0, objectness_gain=4.0), paper())
        ['class gain ×2', 'objectness gain ×4']
    """
    factors = {
        "class gain": recipe.class_gain / base.class_gain,
        "objectness gain": recipe.objectness_gain / base.objectness_gain,
        "learning rate": recipe.optimisation.lr / base.optimisation.lr,
    }
    return [f"{name} ×{by:g}" for name, by in factors.items() if round(by, 6) != 1]
