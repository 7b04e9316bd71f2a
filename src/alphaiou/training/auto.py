"""The recipe of a user's own data: what the named recipes fix follows from images and boxes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from alphaiou._environment import device_kind
from alphaiou.data.dataset import load_dataset
from alphaiou.data.index import DetectionIndex
from alphaiou.detectors.base import DetectorConfig
from alphaiou.detectors.registry import detector_config
from alphaiou.detectors.yolov5.config import YOLOv5Config
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import AUTO, DataRecipe, Recipe
from alphaiou.training.recipes import from_scratch, with_settings
from alphaiou.training.setup import resolve_auto, resolve_splits

#: Epochs by the number of training images: (images up to, epochs).
EPOCHS = ((200, 200), (1_000, 100), (10_000, 60), (50_000, 40))
MOST_IMAGES_EPOCHS = 30
#: Small images are quick to train on, and say less each: (side up to, images up to, epochs). On 300
#: drawn images of 96 pixels, AP50 on held-out ones is 71 % after 100 epochs and 84 % after 200.
SMALL_SIDE, SMALL_SET, SMALL_EPOCHS = 160, 500, 200
#: The longest side of images by device; larger images are resized.
SIDES = {"cpu": 320, "cuda": 640}
DETECTORS = {"cpu": "yolov5n", "cuda": "yolov5s"}
#: Batch sizes: for small data sets and CPUs, and for GPUs with at least so many images.
SMALL_BATCH, LARGE_BATCH, MANY_IMAGES = 16, 64, 4_000
#: The share of training images that is held out if the data set has no other split.
HELD_OUT = 0.2
#: The largest gain of the objectness loss. On 300 drawn images of 96 pixels, 20 ends at an AP50 of
#: 71 % after 100 epochs, and 44, which the area alone would ask for, at 61 %.
LARGEST_OBJECTNESS_GAIN = 20.0
WARM_UP_SHARE, AVERAGED_SHARE = 0.1, 0.2
#: With fewer steps, α = 1 has the higher AP50.
MANY_STEPS = 10_000
#: A training of fewer steps ends close to its random initial weights.
FEWEST_STEPS = 500


@dataclass(frozen=True)
class AutoRecipe:
    """A recipe that was chosen from the data.

    Attributes:
        recipe: The recipe.
        reasons: What was chosen and why, one sentence each.
        steps: The number of optimisation steps.
    """

    recipe: Recipe
    reasons: tuple[str, ...]
    steps: int


def auto_recipe(
    data: DataRecipe,
    device: str = "auto",
    *,
    detector: str | None = None,
    loss: LossSpec | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    image_size: int | None = None,
    subset: float = 1.0,
) -> AutoRecipe:
    """Choose a recipe for a data set.

    Args:
        data: The data set; splits may be ``auto``.
        device: ``auto``, ``cpu`` or ``cuda``.
        detector: The name of the detector; by default YOLOv5n on a CPU, YOLOv5s on a GPU.
        loss: The box loss; by default CIoU with α = 1 in short trainings, with α = 3 in long ones.
        epochs: Passes over the training images; by default from their number.
        batch_size: Images per step; by default from their number and the device.
        image_size: The longer side of the images; by default that of the median image, up to 320
            pixels on a CPU and 640 on a GPU.
        subset: The share of the training images to use.

    Raises:
        DataError: If the data set cannot be opened, or its training split is ambiguous.

    Examples:
        >>> chosen = auto_recipe(DataRecipe("shapes-plain-96", val=AUTO), "cpu")
        >>> chosen.recipe.image_size, chosen.recipe.detector.name, chosen.recipe.data.val
        (96, 'yolov5n', 'val')
    """
    for name, value in {"epochs": epochs, "batch_size": batch_size}.items():
        if value is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if not 0.0 < subset <= 1.0:
        raise ValueError(f"subset must be above 0 and up to 1, got {subset}")
    kind = device_kind(device)
    reasons = []
    data, why = _splits(data)
    reasons += why
    index = load_dataset(data.path, data.train).index
    images = max(1, round(len(index) * (1 - data.hold_out) * subset))
    if image_size is None:
        side = int(np.median(index.sizes.max(axis=1)))
        image_size = min(SIDES[kind], max(64, -(-side // 32) * 32))
        reasons.append(
            f"image size {image_size}: the median image has a longer side of {side} pixels; "
            f"at most {SIDES[kind]} on {'a CPU' if kind == 'cpu' else 'a GPU'}"
        )
    if batch_size is None:
        large = kind == "cuda" and images >= MANY_IMAGES
        batch_size = min(LARGE_BATCH if large else SMALL_BATCH, max(1, images))
        reasons.append(f"batch size {batch_size}: {images:,} training images")
    if epochs is None:
        epochs, why_epochs = _epochs(images, image_size)
        reasons.append(why_epochs)
    config = detector_config(detector or DETECTORS[kind])
    if detector is None:
        reasons.append(f"{config.name}: the usual one on {'a CPU' if kind == 'cpu' else 'a GPU'}")
    steps = epochs * max(1, -(-images // batch_size))
    recipe = _base(config, index, image_size, batch_size)
    if loss is None:
        long = steps >= MANY_STEPS
        loss = LossSpec("ciou", 3.0 if long else 1.0)
        reasons.append(
            f"loss {loss}: α = 3 tightens boxes in a long training"
            if long
            else f"loss {loss}: α = 1 learns faster in a short training; --loss ciou:3 has α = 3"
        )
    warm_up, growth = _warm_up(steps), _growth(steps)
    reasons.append(
        f"{steps:,} steps: {warm_up:,} of them warm up, and the moving average grows over "
        f"{growth:,.0f}"
    )
    how = replace(
        recipe.optimisation,
        warmup_epochs=0.0,
        warmup_steps=warm_up,
        ema_decay=recipe.optimisation.ema_decay or 0.9999,
        ema_growth=growth,
    )
    recipe = replace(
        recipe,
        loss=loss,
        data=data,
        image_size=image_size,
        batch_size=batch_size,
        epochs=epochs,
        subset=subset,
        optimisation=how,
        precision=AUTO,
        evaluate_every=max(1, epochs // 10),
        select="best" if data.val or data.hold_out else "last",
    )
    return AutoRecipe(resolve_auto(recipe, kind), tuple(reasons), steps)


def _splits(data: DataRecipe) -> tuple[DataRecipe, list[str]]:
    """Choose the splits, and hold out a share if there is nothing to score on."""
    chosen = resolve_splits(replace(data, train=data.train or AUTO), "best")
    if chosen.val or chosen.test or chosen.hold_out:
        return chosen, []
    return replace(chosen, hold_out=HELD_OUT), [
        f"{HELD_OUT:.0%} of {chosen.train!r} held out to score on: there is no other split"
    ]


def _epochs(images: int, side: int) -> tuple[int, str]:
    """Return the number of epochs, and why."""
    if side <= SMALL_SIDE and images <= SMALL_SET:
        return SMALL_EPOCHS, f"{SMALL_EPOCHS} epochs: {images:,} training images, which are small"
    epochs = next((count for most, count in EPOCHS if images <= most), MOST_IMAGES_EPOCHS)
    return epochs, f"{epochs} epochs: {images:,} training images"


def _base(
    config: DetectorConfig, index: DetectionIndex, image_size: int, batch_size: int
) -> Recipe:
    """Return the recipe of a detector, before what follows from the number of steps."""
    if not isinstance(config, YOLOv5Config):
        recipe = from_scratch(config)
        lr = recipe.optimisation.lr * batch_size / recipe.batch_size
        how = replace(recipe.optimisation, lr=lr, schedule="cosine", drops=())
        return replace(recipe, optimisation=how)
    # The gains are made for 640 pixels and 80 classes: the losses of objectness and classes are
    # scaled with the area and with the number of classes, and would vanish here.
    return with_settings(
        Recipe(),
        detector=config,
        objectness_gain=min(LARGEST_OBJECTNESS_GAIN, (640 / image_size) ** 2),
        class_gain=max(0.5, 0.125 * 80 / len(index.classes)),
    )


def _warm_up(steps: int) -> int:
    return min(1000, max(1, round(WARM_UP_SHARE * steps)))


def _growth(steps: int) -> float:
    return float(min(2000, max(20, round(AVERAGED_SHARE * steps))))


def too_short(steps: int, recipe: Recipe) -> str | None:
    """Return a warning if a training from random weights is too short to learn, or None."""
    if steps >= FEWEST_STEPS:
        return None
    epochs = math.ceil(recipe.epochs * FEWEST_STEPS / steps)
    return (
        f"this training has {steps} steps, which are too few to learn from random weights: expect "
        f"scores near 0; --epochs {epochs} has {FEWEST_STEPS}"
    )
