"""Recipes by name: functions that return dataclasses, to be changed with ``replace``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from alphaiou.data.augment import Augmentation
from alphaiou.training.recipe import AUTO, DataRecipe, Optimisation, Recipe

#: Splits as they are found.
ANY_DATA = DataRecipe(train=AUTO, val=AUTO, test=AUTO)


def paper() -> Recipe:
    """The paper's YOLOv5s from scratch: 640 pixels, batches of 64, 300 epochs.

    Example:
        >>> paper().image_size, paper().epochs, str(paper().loss)
        (640, 300, 'iou:3')
    """
    return Recipe(data=ANY_DATA, precision=AUTO)


def voc320() -> Recipe:
    """The paper's training at half the size and a third of the length, scored on test."""
    data = replace(ANY_DATA, val=None, test="test")
    return replace(paper(), data=data, image_size=320, epochs=100)


def quick() -> Recipe:
    """A small detector for drawn shapes, trained on a processor in a minute or two.

    YOLOv5's gains are made for 80 classes at 640 pixels and nearly vanish for four at 96: here
    objectness and classes count as much as they do there. Averages and warm-up are as short as
    the training.
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


RECIPES: dict[str, Callable[[], Recipe]] = {"paper": paper, "voc320": voc320, "quick": quick}
