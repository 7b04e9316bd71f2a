"""A run as data: everything that decides its result, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from alphaiou.boxes import check_choice
from alphaiou.data.augment import Augmentation
from alphaiou.detectors.build import DETECTORS
from alphaiou.losses import KINDS
from alphaiou.losses.formula import check_alphas
from alphaiou.losses.schedule import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.rules import RULES, RuleName
from alphaiou.numerics import check_number

#: What is decided when a run starts, by the data and the device (:mod:`alphaiou.training.settle`).
AUTO: Literal["auto"] = "auto"
Precision = Literal["auto", "bf16", "fp16", "fp32"]
Selection = Literal["last", "best", "best-on-test"]
Objectness = Literal["iou", "similarity"]
AnyRecipe = TypeVar("AnyRecipe")


@dataclass(frozen=True)
class DataRecipe:
    """Which images are trained on, and which are scored.

    Attributes:
        path: A data set of any layout, or shapes.
        train: The split to train on; auto is trainval or train.
        val: The split to score during training; auto is val, if there is one.
        test: The split to score at the end; auto is test, if there is one.
        hold_out: The share of the training images kept for val where there is none.
        difficult: drop leaves difficult boxes out of training, as the paper does.
    """

    path: str = "shapes"
    train: str = "train"
    val: str | None = None
    test: str | None = None
    hold_out: float = 0.0
    difficult: Literal["drop", "keep"] = "drop"

    def __post_init__(self) -> None:
        check_choice("data.difficult", self.difficult, ("drop", "keep"))
        if not 0.0 <= self.hold_out < 1.0:
            raise ValueError(f"data.hold_out must be from 0 to below 1, got {self.hold_out}")


@dataclass(frozen=True)
class Optimisation:
    """SGD with Nesterov momentum, warm-up, a cosine, and a moving average of the weights.

    Attributes:
        lr: The learning rate after warm-up.
        final_lr: What the cosine ends at, as a share of lr.
        momentum: The momentum after warm-up.
        weight_decay: For convolution weights, at a batch of 64; scaled with the batch.
        warmup_epochs: The length of warm-up, but at least warmup_steps.
        warmup_steps: The least number of steps of warm-up.
        warmup_bias_lr: Where the learning rate of biases starts; that of the others starts at 0.
        warmup_momentum: Where the momentum starts.
        ema_decay: The decay of the moving average, once it has grown.
        ema_growth: The number of steps in which it grows.
        accumulate: Pieces that a batch is computed in, to save memory.
    """

    lr: float = 0.01
    final_lr: float = 0.2
    momentum: float = 0.937
    weight_decay: float = 5e-4
    warmup_epochs: float = 3.0
    warmup_steps: int = 1000
    warmup_bias_lr: float = 0.1
    warmup_momentum: float = 0.8
    ema_decay: float = 0.9999
    ema_growth: float = 2000.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"optimisation.{one.name} must be at least 0, got {value}")
        for name in ("momentum", "warmup_momentum", "ema_decay"):
            if getattr(self, name) >= 1:
                raise ValueError(f"optimisation.{name} must be below 1, got {getattr(self, name)}")
        for name in ("accumulate", "ema_growth"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"optimisation.{name} must be at least 1, got {getattr(self, name)}"
                )


@dataclass(frozen=True)
class Recipe:
    """One run. The defaults are the paper's YOLOv5s.

    Attributes:
        detector: A name that build_detector knows.
        loss: The box loss.
        alpha_schedule: α over the training, in place of the one of loss.
        data: What is trained on and scored.
        image_size: The long side of the images, in pixels.
        batch_size: Images a step, over all processes.
        epochs: Passes over the training images.
        seed: Decides the weights at the start, the order, the augmentation, noise and subset.
        box_gain: How much the box loss counts.
        objectness_gain: How much the objectness loss counts.
        class_gain: How much the class loss counts.
        objectness: What the objectness of a positive learns: iou or similarity.
        noise: The rate of noise on the training boxes.
        subset: The share of the training images that is used.
        augmentation: How images are changed.
        optimisation: How weights are changed.
        precision: The arithmetic of the network; auto is bf16 on a GPU, fp32 elsewhere. Boxes
            and losses are always fp32.
        evaluate_every: Epochs between scores on val, or on test where there is no val and nothing
            is selected; 0 is at the end only.
        select: The weights that are kept: last, best on val, or best-on-test, the
            paper's way.
        rule: How detections are scored: coco, voc, voc07 or paper.
        nms_threshold: The IoU above which NMS removes a box.
    """

    detector: str = "yolov5s"
    loss: LossSpec = field(default_factory=lambda: LossSpec("iou", 3.0))
    alpha_schedule: AlphaSchedule | None = None
    data: DataRecipe = field(default_factory=DataRecipe)
    image_size: int = 640
    batch_size: int = 64
    epochs: int = 300
    seed: int = 0
    box_gain: float = 0.05
    objectness_gain: float = 1.0
    class_gain: float = 0.5
    objectness: Objectness = "iou"
    noise: float = 0.0
    subset: float = 1.0
    augmentation: Augmentation = field(default_factory=Augmentation)
    optimisation: Optimisation = field(default_factory=Optimisation)
    precision: Precision = "bf16"
    evaluate_every: int = 0
    select: Selection = "last"
    rule: RuleName = "paper"
    nms_threshold: float = 0.6

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        _check_loss(self.loss)
        for name in ("box_gain", "objectness_gain", "class_gain"):
            check_number(name, getattr(self, name))
        for name, least in (("image_size", 1), ("batch_size", 1), ("epochs", 1), ("seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.image_size % 32:
            raise ValueError(f"image_size must be a multiple of 32, got {self.image_size}")
        if self.evaluate_every < 0:
            raise ValueError(f"evaluate_every must be at least 0, got {self.evaluate_every}")
        if not 0.0 <= self.noise < 1.0:
            raise ValueError(f"noise must be from 0 to below 1, got {self.noise}")
        for name in ("subset", "nms_threshold"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be above 0 and up to 1, got {getattr(self, name)}")
        self._check_together()

    def _check_together(self) -> None:
        """Refuse values that do not go together."""
        if self.batch_size % self.optimisation.accumulate:
            raise ValueError(
                f"batch_size must be a multiple of optimisation.accumulate, got {self.batch_size} "
                f"and {self.optimisation.accumulate}"
            )
        if self.select == "best" and self.data.val is None and not self.data.hold_out:
            raise ValueError("select='best' needs data.val or data.hold_out to choose on")
        if self.select == "best-on-test" and self.data.test is None:
            raise ValueError("select='best-on-test' needs data.test")


_CHOICES: dict[str, tuple[str, ...]] = {
    "detector": DETECTORS,
    "precision": get_args(Precision),
    "select": get_args(Selection),
    "objectness": get_args(Objectness),
    "rule": tuple(RULES),
}


def _check_loss(loss: LossSpec) -> None:
    check_choice("loss.kind", loss.kind, tuple(KINDS))
    try:
        check_alphas(loss.alpha, loss.penalty_alpha)
    except ValueError as error:
        raise ValueError(f"loss.{error}") from None


def recipe_hash(recipe: Recipe) -> str:
    """The name of a run: twelve hexadecimal digits of everything in its recipe.

    Example:
        >>> recipe_hash(Recipe()) == recipe_hash(Recipe(seed=0)) != recipe_hash(Recipe(seed=1))
        True
    """
    text = json.dumps(asdict(recipe), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def recipe_from(values: Mapping[str, Any], kind: type[AnyRecipe] = Recipe) -> AnyRecipe:  # type: ignore[assignment]
    """A recipe back from the dictionary in a record.

    Example:
        >>> recipe = Recipe(epochs=5)
        >>> recipe_from(asdict(recipe)) == recipe
        True
    """
    hints = get_type_hints(kind)
    known = {}
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in values:
            continue
        value = values[one.name]
        hint = hints[one.name]
        inner = next((t for t in (hint, *get_args(hint)) if is_dataclass(t)), None)
        if isinstance(value, Mapping) and isinstance(inner, type):
            value = recipe_from(value, inner)
        known[one.name] = tuple(value) if isinstance(value, list) else value
    return kind(**known)
