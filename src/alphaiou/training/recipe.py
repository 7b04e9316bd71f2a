"""The recipe of a run: every setting that affects its result, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from alphaiou.boxes import check_choice
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.detectors.base import Precision
from alphaiou.detectors.registry import DELTA_LOSSES, DETECTORS, FASTER_RCNN, settings_of
from alphaiou.losses import KINDS
from alphaiou.losses.functional import check_alphas
from alphaiou.losses.modifiers import WEIGHING_MODIFIERS
from alphaiou.losses.module import AlphaSchedule, check_stateless
from alphaiou.losses.spec import LossSpec, check_modifiers
from alphaiou.metrics.rules import RULES, RuleName
from alphaiou.numerics import check_number

__all__ = ["AUTO", "DataRecipe", "Optimisation", "Recipe", "recipe_from", "recipe_hash"]
#: Resolved from the data and the device when a run starts (:func:`training.setup.resolve_auto`).
AUTO: Literal["auto"] = "auto"
Selection = Literal["last", "best", "best-on-test"]
Objectness = Literal["iou", "similarity"]
Norm = Literal["auto", "frozen", "batch", "group"]
AnyRecipe = TypeVar("AnyRecipe")


@dataclass(frozen=True)
class DataRecipe:
    """The data set and its splits.

    Attributes:
        path: A data set in any supported layout, or shapes.
        train: The training split; auto is trainval or train.
        val: The split to evaluate during training; auto is val, if it exists.
        test: The split to evaluate at the end; auto is test, if it exists.
        hold_out: The share of training images to hold out as val if val is not set.
        difficult: drop excludes difficult boxes from training, as in the paper.
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
    """The optimiser, its schedules, and the moving average of the weights.

    Attributes:
        optimiser: sgd with momentum, or adamw with betas of 0.9 and 0.999.
        lr: The learning rate after warm-up.
        schedule: The learning-rate schedule: cosine decay to final_lr, or steps at drops.
        final_lr: The final learning rate of the cosine schedule, as a multiple of lr.
        drops: The epochs after which the learning rate is multiplied by drop_factor.
        drop_factor: The factor of each drop.
        momentum: The momentum of sgd after warm-up.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: The weight decay.
        decay_batch: The batch size that weight_decay refers to; weight_decay is scaled linearly
            with the batch size. none disables the scaling.
        decay: The parameters that decay: weights, or all including norms and biases.
        clip_norm: The maximum norm of the gradient; 0 disables clipping.
        warmup_epochs: The length of the warm-up in epochs.
        warmup_steps: The minimum length of the warm-up in steps.
        warmup_bias_lr: The initial learning rate of biases; that of other parameters is 0.
        warmup_momentum: The initial momentum.
        ema_decay: The final decay of the moving average; 0 disables it.
        ema_growth: The number of steps over which the decay grows to ema_decay.
        accumulate: The number of pieces in which a batch is computed, to save memory.
    """

    optimiser: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.01
    schedule: Literal["cosine", "steps"] = "cosine"
    final_lr: float = 0.2
    drops: tuple[int, ...] = ()
    drop_factor: float = 0.1
    momentum: float = 0.937
    nesterov: bool = True
    weight_decay: float = 5e-4
    decay_batch: int | None = 64
    decay: Literal["weights", "all"] = "weights"
    clip_norm: float = 0.0
    warmup_epochs: float = 3.0
    warmup_steps: int = 1000
    warmup_bias_lr: float = 0.1
    warmup_momentum: float = 0.8
    ema_decay: float = 0.9999
    ema_growth: float = 2000.0
    accumulate: int = 1

    def __post_init__(self) -> None:
        check_choice("optimisation.optimiser", self.optimiser, ("sgd", "adamw"))
        check_choice("optimisation.schedule", self.schedule, ("cosine", "steps"))
        check_choice("optimisation.decay", self.decay, ("weights", "all"))
        for name in _NUMBERS:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"optimisation.{name} must be at least 0, got {value}")
        for name in ("momentum", "warmup_momentum", "ema_decay"):
            if getattr(self, name) >= 1:
                raise ValueError(f"optimisation.{name} must be below 1, got {getattr(self, name)}")
        for name in ("accumulate", "ema_growth", "decay_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"optimisation.{name} must be at least 1, got {value}")
        if self.optimiser == "adamw" and self.warmup_bias_lr > self.lr:
            raise ValueError(
                "optimisation.warmup_bias_lr must be at most optimisation.lr with adamw, got "
                f"{self.warmup_bias_lr} and {self.lr}; set it to 0"
            )
        self._check_drops()

    def _check_drops(self) -> None:
        if self.drops and self.schedule != "steps":
            raise ValueError("optimisation.drops needs optimisation.schedule='steps'")
        if any(epoch < 1 for epoch in self.drops) or list(self.drops) != sorted(set(self.drops)):
            raise ValueError(
                f"optimisation.drops must be increasing epochs from 1, got {self.drops}"
            )

    def scaled_decay(self, batch_size: int) -> float:
        """Return the weight decay for a batch size.

        Examples:
            >>> Optimisation(weight_decay=0.5).scaled_decay(128)
            1.0
        """
        if self.decay_batch is None:
            return self.weight_decay
        return self.weight_decay * batch_size / self.decay_batch


_NUMBERS = (
    "lr",
    "final_lr",
    "drop_factor",
    "momentum",
    "weight_decay",
    "clip_norm",
    "warmup_epochs",
    "warmup_steps",
    "warmup_bias_lr",
    "warmup_momentum",
    "ema_decay",
    "ema_growth",
    "accumulate",
)


@dataclass(frozen=True)
class Recipe:
    """The settings of a run. The defaults are those of the paper's YOLOv5s.

    Attributes:
        detector: The name of a detector, as in build_detector.
        loss: The box loss; with Faster R-CNN also l1 or smooth_l1.
        alpha_schedule: A schedule of α over the training, which replaces the α of loss.
        data: The data set and its splits.
        image_size: The longer side of the resized images, in pixels.
        batch_size: Images per step, over all processes.
        epochs: Passes over the training images.
        seed: The seed of initial weights, image order, augmentation, noise and subset.
        box_gain: The weight of the box loss. The defaults of Faster R-CNN and DETR are 10 (1 for l1
            and smooth_l1) and 2.
        final_box_gain: The final box gain, if it changes linearly during the training.
        objectness_gain: The weight of the objectness loss of YOLOv5.
        class_gain: The weight of the class loss of YOLOv5.
        objectness: The objectness target of positives in YOLOv5: iou or similarity.
        rpn_loss: The box loss of the region proposal network of Faster R-CNN; default l1.
        match_loss: The box loss in the matching cost of DETR; default giou.
        backbone_weights: The weights of the ResNet of Faster R-CNN and DETR: none, imagenet, or a
            file.
        norm: The norms of the ResNet: frozen batch norms, trained batch norms, or group norms; auto
            is frozen with pretrained weights, else group.
        backbone_lr_scale: The learning-rate factor of the backbone of DETR; by default 0.1 with
            pretrained weights, else 1.
        dropout: The dropout rate of the transformer of DETR.
        noise: The noise rate of the training boxes.
        subset: The share of the training images to use.
        augmentation: The augmentation of the training images.
        optimisation: The optimiser and its schedules.
        precision: The precision of the network; auto is bf16 on a GPU, else fp32. Boxes and losses
            are always fp32.
        evaluate_every: The number of epochs between evaluations on val, or on test if there is no
            val and select is last; 0 evaluates at the end only.
        select: The weights to save: last, best on val, or best-on-test as in the paper.
        rule: The evaluation rule: coco, voc, voc07 or paper.
        nms_threshold: The IoU above which NMS removes a box (not in DETR).
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
    final_box_gain: float | None = None
    objectness_gain: float = 1.0
    class_gain: float = 0.5
    objectness: Objectness = "iou"
    rpn_loss: LossSpec | None = None
    match_loss: LossSpec | None = None
    backbone_weights: str = "none"
    norm: Norm = "auto"
    backbone_lr_scale: float | None = None
    dropout: float = 0.1
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
        _check_loss("loss", self.loss, self.detector)
        for name in ("rpn_loss", "match_loss"):
            if getattr(self, name) is not None:
                _check_loss(name, getattr(self, name), self.detector)
        for name in _POSITIVE:
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name))
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.image_size % 32:
            raise ValueError(f"image_size must be a multiple of 32, got {self.image_size}")
        for name in ("dropout", "noise"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")
        for name in ("subset", "nms_threshold"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be above 0 and up to 1, got {getattr(self, name)}")
        self._check_together()

    def _check_together(self) -> None:
        """Reject combinations of values that are not supported."""
        if self.batch_size % self.optimisation.accumulate:
            raise ValueError(
                f"batch_size must be a multiple of optimisation.accumulate, got {self.batch_size} "
                f"and {self.optimisation.accumulate}"
            )
        if self.select == "best" and self.data.val is None and not self.data.hold_out:
            raise ValueError("select='best' needs data.val or data.hold_out")
        if self.select == "best-on-test" and self.data.test is None:
            raise ValueError("select='best-on-test' needs data.test")
        if self.alpha_schedule is not None and self.loss.kind in DELTA_LOSSES:
            raise ValueError(f"alpha_schedule: loss.kind={self.loss.kind!r} has no α")
        weights = [name for name in self.loss.modifiers if name in WEIGHING_MODIFIERS]
        if self.objectness == "similarity" and weights:
            raise ValueError(
                f"objectness='similarity' is one minus the loss, which {weights[0]} in "
                "loss.modifiers weighs; take objectness='iou', or another modifier"
            )
        self._check_detector()

    @property
    def loss_name(self) -> str:
        """The name of the box loss in tables, including the schedule of α.

        Examples:
            >>> Recipe(alpha_schedule=AlphaSchedule(1.0, 3.0)).loss_name
            'α-IoU (α 1→3)'
        """
        course = self.alpha_schedule
        if course is None:
            return self.loss.display_name
        shape = "" if course.shape == "linear" else f" {course.shape}"
        return self.loss.named_with(f" {course.start:g}→{course.end:g}{shape}")

    def _check_detector(self) -> None:
        """Reject settings that the detector does not support."""
        for item in fields(self):
            setting = _SETTING_OF.get(item.name)
            if setting is None or setting in settings_of(self.detector):
                continue
            if getattr(self, item.name) != _default(item):
                has = ", ".join(name for name in DETECTORS if setting in settings_of(name))
                raise ValueError(
                    f"{item.name} is not supported by {self.detector}; it is a setting of {has}"
                )
        if self.backbone_weights == "none" and self.norm == "frozen":
            raise ValueError(
                "norm='frozen' needs backbone_weights: random norms must be trained; use auto, "
                "batch or group"
            )
        if self.backbone_weights == "imagenet" and self.norm == "group":
            raise ValueError(
                "norm='group' does not support backbone_weights='imagenet', which have batch "
                "norms; use auto, frozen or batch"
            )


_CHOICES: dict[str, tuple[str, ...]] = {
    "detector": DETECTORS,
    "precision": get_args(Precision),
    "select": get_args(Selection),
    "objectness": get_args(Objectness),
    "norm": get_args(Norm),
    "rule": tuple(RULES),
}
_POSITIVE = ("box_gain", "final_box_gain", "objectness_gain", "class_gain", "backbone_lr_scale")
_LEAST = {"image_size": 1, "batch_size": 1, "epochs": 1, "seed": 0, "evaluate_every": 0}
#: Fields that only some detectors support, and their names in ``build_detector``.
_SETTING_OF = {
    "objectness_gain": "objectness_gain",
    "class_gain": "class_gain",
    "objectness": "objectness",
    "rpn_loss": "rpn_loss",
    "match_loss": "match_loss",
    "backbone_weights": "backbone_weights",
    "norm": "norm",
    "backbone_lr_scale": "backbone_lr_scale",
    "dropout": "dropout",
    "nms_threshold": "postprocess",
}


def _check_loss(name: str, loss: LossSpec, detector: str) -> None:
    if loss.kind in DELTA_LOSSES and name != "match_loss":
        if detector != FASTER_RCNN:
            raise ValueError(
                f"{name}.kind={loss.kind!r} is supported by {FASTER_RCNN} only; with {detector} it "
                f"must be one of {', '.join(KINDS)}"
            )
        if (loss.alpha, loss.penalty_alpha) != (1.0, None):
            raise ValueError(f"{name}.kind={loss.kind!r} has no power; {name}.alpha must be 1")
        if loss.modifiers:
            raise ValueError(
                f"{name}.kind={loss.kind!r} does not support modifiers; {name}.modifiers must be "
                f"empty, got {' '.join(loss.modifiers)}"
            )
        return
    check_choice(f"{name}.kind", loss.kind, tuple(KINDS))
    check_modifiers(f"{name}.modifiers", loss.modifiers)
    try:
        check_alphas(loss.alpha, loss.penalty_alpha)
    except ValueError as error:
        raise ValueError(f"{name}.{error}") from None
    if name == "match_loss":
        check_stateless(f"{name}.modifiers", loss.module())


def recipe_hash(recipe: Recipe) -> str:
    """Return the name of a run: 12 hex digits that hash the settings that differ from the defaults.

    Adding a field in a later version does not change the names of earlier runs.

    Examples:
        >>> recipe_hash(Recipe()) == recipe_hash(Recipe(seed=0)) != recipe_hash(Recipe(seed=1))
        True
    """
    text = json.dumps(_changed(recipe), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _changed(part: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """Return the fields of a dataclass that differ from the defaults, recursively."""
    changed = {}
    for item in fields(part):
        value = getattr(part, item.name)
        if value != _default(item):
            changed[item.name] = _changed(value) if is_dataclass(value) else value
    return changed


def _default(item: Field[Any]) -> Any:  # noqa: ANN401
    """Return the default of a field, or ``MISSING`` if it has none."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def recipe_from(values: Mapping[str, Any], kind: type[AnyRecipe] = Recipe) -> AnyRecipe:  # type: ignore[assignment]
    """Rebuild a recipe from the dictionary in a record.

    Examples:
        >>> from dataclasses import asdict
        >>> recipe = Recipe(epochs=5)
        >>> recipe_from(asdict(recipe)) == recipe
        True
    """
    hints = get_type_hints(kind)
    known = {}
    for item in fields(kind):  # type: ignore[arg-type]
        if item.name not in values:
            continue
        value = values[item.name]
        hint = hints[item.name]
        inner = next((t for t in (hint, *get_args(hint)) if is_dataclass(t)), None)
        if isinstance(value, Mapping) and isinstance(inner, type):
            value = recipe_from(value, inner)
        known[item.name] = tuple(value) if isinstance(value, list) else value
    return kind(**known)
