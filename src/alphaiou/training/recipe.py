"""The recipe of a run: every setting that its result depends on, and the hash that names it."""

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
#: Resolved by the data and the device when a run starts (:func:`training.setup.resolve_auto`).
AUTO: Literal["auto"] = "auto"
Selection = Literal["last", "best", "best-on-test"]
Objectness = Literal["iou", "similarity"]
Norm = Literal["auto", "frozen", "batch", "group"]
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
    """The optimiser, its rates over the training, and a moving average of the weights.

    Attributes:
        optimiser: sgd with momentum, or adamw with betas of 0.9 and 0.999.
        lr: The learning rate after warm-up.
        schedule: How it falls: along a cosine to final_lr, or in steps at drops.
        final_lr: What the cosine ends at, as a share of lr.
        drops: The epochs after which the learning rate drops.
        drop_factor: What it is multiplied with then.
        momentum: The momentum of sgd after warm-up.
        nesterov: Whether it is Nesterov's.
        weight_decay: How much weights decay.
        decay_batch: The batch that weight_decay is meant for, which it is scaled with; none leaves
            it as it is.
        decay: What decays: weights, or all parameters with norms and biases.
        clip_norm: The largest norm of the gradient over all parameters; 0 is any.
        warmup_epochs: The length of warm-up, but at least warmup_steps.
        warmup_steps: The least number of steps of warm-up.
        warmup_bias_lr: Where the learning rate of biases starts; that of the others starts at 0.
        warmup_momentum: Where the momentum starts.
        ema_decay: The decay of the moving average, once it has grown; 0 is no average.
        ema_growth: The number of steps in which it grows.
        accumulate: Pieces that a batch is computed in, to save memory.
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
                f"{self.warmup_bias_lr} and {self.lr}; take 0"
            )
        self._check_drops()

    def _check_drops(self) -> None:
        if self.drops and self.schedule != "steps":
            raise ValueError("optimisation.drops needs optimisation.schedule='steps'")
        if any(epoch < 1 for epoch in self.drops) or list(self.drops) != sorted(set(self.drops)):
            raise ValueError(
                f"optimisation.drops must be epochs from 1 in rising order, got {self.drops}"
            )

    def scaled_decay(self, batch_size: int) -> float:
        """How much weights decay at a batch of some size.

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
    """One run. The defaults are the paper's YOLOv5s.

    Attributes:
        detector: A name that build_detector knows.
        loss: The box loss; with Faster R-CNN also l1 or smooth_l1.
        alpha_schedule: α over the training, in place of the one of loss.
        data: What is trained on and scored.
        image_size: The long side of the images, in pixels.
        batch_size: Images per step, over all processes.
        epochs: Passes over the training images.
        seed: Decides the weights at the start, the order, the augmentation, noise and subset.
        box_gain: The weight of the box loss; 10 is usual in Faster R-CNN (1 for l1 and
            smooth_l1), 2 in DETR.
        final_box_gain: Its value at the end, if it moves linearly during the training.
        objectness_gain: The weight of the objectness loss of YOLOv5.
        class_gain: The weight of the class loss of YOLOv5.
        objectness: What the objectness of a positive of YOLOv5 learns: iou or similarity.
        rpn_loss: The box loss of the first stage of Faster R-CNN; l1 unless given.
        match_loss: The box loss that DETR matches objects and queries by; giou unless given.
        backbone_weights: Of the ResNet of Faster R-CNN and DETR: none, imagenet, or a file.
        norm: Its norms: frozen or learning batch norms, or group norms; auto is frozen with
            weights, else group.
        backbone_lr_scale: The factor of the learning rate for the backbone of DETR; by default 0.1
            with weights, else 1.
        dropout: The share of numbers that the transformer of DETR drops in training.
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
        """Reject values that do not go together."""
        if self.batch_size % self.optimisation.accumulate:
            raise ValueError(
                f"batch_size must be a multiple of optimisation.accumulate, got {self.batch_size} "
                f"and {self.optimisation.accumulate}"
            )
        if self.select == "best" and self.data.val is None and not self.data.hold_out:
            raise ValueError("select='best' needs data.val or data.hold_out to choose on")
        if self.select == "best-on-test" and self.data.test is None:
            raise ValueError("select='best-on-test' needs data.test")
        if self.alpha_schedule is not None and self.loss.kind in DELTA_LOSSES:
            raise ValueError(f"alpha_schedule: loss.kind={self.loss.kind!r} has no α")
        weights = [one for one in self.loss.modifiers if one in WEIGHING_MODIFIERS]
        if self.objectness == "similarity" and weights:
            raise ValueError(
                f"objectness='similarity' is one minus the loss, which {weights[0]} in "
                "loss.modifiers weighs; take objectness='iou', or another modifier"
            )
        self._check_detector()

    @property
    def loss_name(self) -> str:
        """The name of the box loss in tables, with the schedule of α.

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
        for one in fields(self):
            setting = _SETTING_OF.get(one.name)
            if setting is None or setting in settings_of(self.detector):
                continue
            if getattr(self, one.name) != _default(one):
                has = ", ".join(name for name in DETECTORS if setting in settings_of(name))
                raise ValueError(f"{one.name} is for {has}; {self.detector} has none")
        if self.backbone_weights == "none" and self.norm == "frozen":
            raise ValueError(
                "norm='frozen' needs backbone_weights: what is fresh has to learn; take auto, "
                "batch or group"
            )
        if self.backbone_weights == "imagenet" and self.norm == "group":
            raise ValueError(
                "norm='group' has no backbone_weights='imagenet', which are of batch norms; take "
                "auto, frozen or batch"
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
#: Fields that not every detector has, and their names in ``build_detector``.
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
                f"{name}.kind={loss.kind!r} is for {FASTER_RCNN} alone; with {detector} it must be "
                f"one of {', '.join(KINDS)}"
            )
        if (loss.alpha, loss.penalty_alpha) != (1.0, None):
            raise ValueError(f"{name}.kind={loss.kind!r} has no power; {name}.alpha must be 1")
        if loss.modifiers:
            raise ValueError(
                f"{name}.kind={loss.kind!r} takes no modifiers; leave {name}.modifiers empty, got "
                f"{' '.join(loss.modifiers)}"
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
    """The name of a run: twelve hexadecimal digits of the settings that are not the default.

    A field that a later version adds leaves the names of earlier runs as they are.

    Examples:
        >>> recipe_hash(Recipe()) == recipe_hash(Recipe(seed=0)) != recipe_hash(Recipe(seed=1))
        True
    """
    text = json.dumps(_changed(recipe), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _changed(part: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """The fields of a dataclass that differ from its defaults, those of its parts likewise."""
    found = {}
    for one in fields(part):
        value = getattr(part, one.name)
        if value != _default(one):
            found[one.name] = _changed(value) if is_dataclass(value) else value
    return found


def _default(one: Field[Any]) -> Any:  # noqa: ANN401
    """The default of a field; ``MISSING`` if it has none."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def recipe_from(values: Mapping[str, Any], kind: type[AnyRecipe] = Recipe) -> AnyRecipe:  # type: ignore[assignment]
    """A recipe back from the dictionary in a record.

    Examples:
        >>> from dataclasses import asdict
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
