"""The recipe of a run: every setting that affects its result, and the hash that names it."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from alphaiou._config import Config, ConfigError, from_plain, read_yaml, to_plain, write_yaml
from alphaiou.boxes import check_choice
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.detectors.base import Precision
from alphaiou.detectors.registry import (
    DELTA_LOSSES,
    DETECTORS,
    SETTINGS,
    TEXTS,
    AnyDetectorConfig,
    check_settings,
    detector_config,
    nested_settings,
)
from alphaiou.detectors.yolov5.config import YOLOv5sConfig
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.rules import DEFAULT_RULE, RULES, RuleName
from alphaiou.numerics import check_number

__all__ = [
    "AUTO",
    "SCHEMA",
    "DataRecipe",
    "Optimisation",
    "Recipe",
    "Selection",
    "read_recipe",
    "recipe_from",
    "recipe_hash",
    "write_recipe",
]
#: Resolved from the data and the device when a run starts (:func:`training.setup.resolve_auto`).
AUTO: Literal["auto"] = "auto"
Selection = Literal["last", "best", "best-on-test"]
#: The version of the layout of recipes and records. It changes if a field is renamed, moved or
#: changes its meaning; not if a field is added, see ``ADDED``.
SCHEMA = 2
#: Fields that were added since the first release of this layout, as a path with dots, and the value
#: with which they do what runs did before. At this value they are not part of the hash, so that the
#: names of earlier runs stay.
ADDED: dict[str, Any] = {
    "weights": "none",
    "freeze": (),
    "patience": 0,
    "loss.shape_scale": 0.0,
    "detector.objectness_alpha": 1.0,
}


class DataRecipe(Config, frozen=True):
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


class Optimisation(Config, frozen=True):
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


class _WithDetectorSettings(msgspec.StructMeta):
    """Lets ``Recipe`` take settings of its detector directly, as the command line does."""

    def __call__(cls, *args: Any, **values: Any) -> Any:  # noqa: ANN401, N805 - a metaclass
        own = {key: values.pop(key) for key in SETTINGS & values.keys()}
        detector = values.get("detector", YOLOv5sConfig())
        if isinstance(detector, str):
            values["detector"] = detector_config(detector, **own)
        elif own:
            check_settings(detector.name, own)
            values["detector"] = replace(detector, **own)
        return super().__call__(*args, **values)


class Recipe(Config, frozen=True, kw_only=True, metaclass=_WithDetectorSettings):
    """The settings of a run. The defaults are those of the paper's YOLOv5s.

    Settings of the detector may be given directly: ``Recipe(detector="detr_r50", dropout=0.0)``,
    ``replace(recipe, box_gain=0.1)``.

    Attributes:
        detector: The configuration of the detector.
        loss: The box loss; with Faster R-CNN also l1 or smooth_l1.
        alpha_schedule: A schedule of α over the training, which replaces the α of loss.
        final_box_gain: The final box gain, if it changes linearly during the training.
        data: The data set and its splits.
        image_size: The longer side of the resized images, in pixels.
        batch_size: Images per step, over all processes.
        epochs: Passes over the training images.
        seed: The seed of initial weights, image order, augmentation, noise and subset.
        noise: The noise rate of the training boxes.
        subset: The share of the training images to use.
        augmentation: The augmentation of the training images.
        optimisation: The optimiser and its schedules.
        precision: The precision of the network; auto is bf16 on a GPU, else fp32. Boxes and losses
            are always fp32.
        weights: The weights to start from: none, a run folder, or a file of weights.
        freeze: What is not trained: backbone, or the first parts of names of parameters.
        evaluate_every: The number of epochs between evaluations on val, or on test if there is no
            val and select is last; 0 evaluates at the end only.
        select: The weights to save: last, best on val, or best-on-test as in the paper.
        patience: The number of epochs without a better mAP on val after which the training stops;
            0 trains all epochs. It needs select best and evaluate_every, whose evaluations are the
            moments at which the training can stop.
        rule: The evaluation rule; alphaiou eval --help lists them.
    """

    detector: AnyDetectorConfig = YOLOv5sConfig()
    loss: LossSpec = LossSpec("iou", 3.0)
    alpha_schedule: AlphaSchedule | None = None
    final_box_gain: float | None = None
    data: DataRecipe = DataRecipe()
    image_size: int = 640
    batch_size: int = 64
    epochs: int = 300
    seed: int = 0
    noise: float = 0.0
    subset: float = 1.0
    augmentation: Augmentation = Augmentation()
    optimisation: Optimisation = Optimisation()
    precision: Precision = "bf16"
    weights: str = "none"
    freeze: tuple[str, ...] = ()
    evaluate_every: int = 0
    select: Selection = "last"
    patience: int = 0
    rule: RuleName = DEFAULT_RULE

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        if self.final_box_gain is not None:
            check_number("final_box_gain", self.final_box_gain)
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.image_size % 32:
            raise ValueError(f"image_size must be a multiple of 32, got {self.image_size}")
        if not 0.0 <= self.noise < 1.0:
            raise ValueError(f"noise must be from 0 to below 1, got {self.noise}")
        if not 0.0 < self.subset <= 1.0:
            raise ValueError(f"subset must be above 0 and up to 1, got {self.subset}")
        self._check_together()

    def _check_together(self) -> None:
        """Reject combinations of values that are not supported."""
        kind, detector = self.loss.kind, self.detector
        if kind in DELTA_LOSSES and kind not in detector.delta_losses:
            owners = [name for name, other in DETECTORS.items() if kind in other.delta_losses]
            raise ValueError(
                f"loss.kind={kind!r} is supported by {', '.join(owners)} only, not by "
                f"{detector.name}"
            )
        detector.check_loss("loss", self.loss)
        self._check_start()
        if self.alpha_schedule is not None and kind in DELTA_LOSSES:
            raise ValueError(f"alpha_schedule: loss.kind={kind!r} has no α")
        if self.batch_size % self.optimisation.accumulate:
            raise ValueError(
                f"batch_size must be a multiple of optimisation.accumulate, got {self.batch_size} "
                f"and {self.optimisation.accumulate}"
            )
        if self.select == "best" and self.data.val is None and not self.data.hold_out:
            raise ValueError("select='best' needs data.val or data.hold_out")
        if self.select == "best-on-test" and self.data.test is None:
            raise ValueError("select='best-on-test' needs data.test")
        if self.patience and (self.select != "best" or not self.evaluate_every):
            raise ValueError(
                "patience needs select='best', a validation split (data.val or data.hold_out) and "
                f"evaluate_every of at least 1, got select={self.select!r} and "
                f"evaluate_every={self.evaluate_every}"
            )

    def _check_start(self) -> None:
        """Reject random weights that would never be trained."""
        if not all(self.freeze):
            raise ValueError("freeze must hold no empty names")
        if self.weights_source is not None:
            return
        self.detector.check_untrained()
        if self.freeze and not self.detector.pretrained_backbone:
            raise ValueError("freeze needs weights: random parameters must be trained")

    @property
    def weights_source(self) -> Path | None:
        """The weights to start from, if any."""
        return None if self.weights == "none" else Path(self.weights)

    @property
    def box_gain(self) -> float:
        """The weight of the box loss at the start."""
        return self.detector.box_gain

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


_CHOICES: dict[str, tuple[str, ...]] = {
    "precision": get_args(Precision),
    "select": get_args(Selection),
    "rule": tuple(RULES),
}
_LEAST = {
    "image_size": 1,
    "batch_size": 1,
    "epochs": 1,
    "seed": 0,
    "evaluate_every": 0,
    "patience": 0,
}


def recipe_hash(recipe: Recipe) -> str:
    """Return the name of a run: 12 hex digits that hash every setting.

    Examples:
        >>> recipe_hash(Recipe()) == recipe_hash(Recipe(seed=0)) != recipe_hash(Recipe(seed=1))
        True
    """
    # Converted back and forth, a number is a float or an integer as its field says.
    values = without_added(to_plain(msgspec.convert(to_plain(recipe), type(recipe))))
    text = json.dumps({"schema": SCHEMA, "recipe": values}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def without_added(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe as JSON values, without added fields that do what runs did before."""
    rest: dict[str, Any] = json.loads(json.dumps(values))
    for path, earlier in ADDED.items():
        *parents, name = path.split(".")
        part: Any = rest
        for parent in parents:
            part = part.get(parent) or {}
        if name in part and part[name] == json.loads(json.dumps(earlier)):
            del part[name]
    return rest


def recipe_from(values: Mapping[str, Any], where: str = "") -> Recipe:
    """Build a recipe from plain values, as in records and YAML files.

    Args:
        values: The values by field; fields that are not given have their defaults.
        where: The file of the values, for messages.

    Raises:
        ConfigError: If a field is unknown or a value does not fit; the message names the field.

    Examples:
        >>> recipe = Recipe(epochs=5)
        >>> recipe_from(to_plain(recipe)) == recipe
        True
    """
    try:
        nested = nested_settings(values)
    except ValueError as error:
        raise ConfigError(f"{where}: {error}" if where else str(error)) from None
    return from_plain(nested, Recipe, where=where, texts=TEXTS)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe from a YAML file.

    Raises:
        ConfigError: If the file cannot be read, or is not a recipe; the message names the field.
    """
    return recipe_from(read_yaml(path), str(path))


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe to a YAML file that ``alphaiou train --config`` reads."""
    write_yaml(recipe, path, f"alphaiou train --config {path.name}")
