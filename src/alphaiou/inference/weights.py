"""Weights for inference, in a file that says what detector they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from alphaiou.detectors import Detector, build_detector
from alphaiou.detectors.faster_rcnn.loss import DeltaLoss
from alphaiou.detectors.registry import DELTA_LOSSES, settings_of
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.checkpoint import LAST, CheckpointError, read_tensors, write_tensors
from alphaiou.training.recipe import AUTO, Recipe, recipe_from

#: The weights that a run keeps.
WEIGHTS = "best.safetensors"


@dataclass(frozen=True, eq=False)
class TrainedDetector:
    """A detector with its weights, and what they were trained on.

    Attributes:
        detector: Ready to detect.
        recipe: The run that trained it.
        classes: The name of each label.
    """

    detector: Detector
    recipe: Recipe
    classes: tuple[str, ...]


def fresh_detector(recipe: Recipe, num_classes: int, *, weightless: bool = False) -> Detector:
    """The detector of a recipe, with weights of chance but for those its backbone is given.

    Args:
        recipe: The run.
        num_classes: The number of classes.
        weightless: Whether it is to take weights that somebody else has kept, and its backbone
            need not be given any.
    """
    settings: dict[str, Any] = {
        "box_gain": recipe.box_gain,
        "objectness_gain": recipe.objectness_gain,
        "class_gain": recipe.class_gain,
        "objectness": recipe.objectness,
        "rpn_loss": recipe.rpn_loss and _box_loss(recipe.rpn_loss),
        "match_loss": recipe.match_loss and _box_loss(recipe.match_loss),
        "backbone_weights": None if weightless else _backbone_weights(recipe),
        "norm": _norm(recipe),
        "backbone_lr_scale": recipe.backbone_lr_scale,
        "dropout": recipe.dropout,
        "image_size": recipe.image_size,
    }
    own = {name: one for name, one in settings.items() if name in settings_of(recipe.detector)}
    loss = _box_loss(recipe.loss, recipe.alpha_schedule)
    detector = build_detector(recipe.detector, num_classes, box_loss=loss, **own)
    if "postprocess" in settings_of(recipe.detector):
        detector.postprocess = replace(detector.postprocess, nms_threshold=recipe.nms_threshold)
    return detector


def _box_loss(spec: LossSpec, schedule: AlphaSchedule | None = None) -> AlphaIoULoss | DeltaLoss:
    if spec.kind in DELTA_LOSSES:
        return spec.kind
    return spec.module(schedule)


def _backbone_weights(recipe: Recipe) -> Literal["imagenet"] | Path | None:
    if recipe.backbone_weights == "none":
        return None
    return "imagenet" if recipe.backbone_weights == "imagenet" else Path(recipe.backbone_weights)


def _norm(recipe: Recipe) -> str:
    """The norms of a backbone, whether or not it is given its weights now."""
    if recipe.norm != AUTO:
        return recipe.norm
    return "group" if recipe.backbone_weights == "none" else "frozen"


def save_weights(detector: nn.Module, recipe: Recipe, classes: Sequence[str], path: Path) -> None:
    """Write weights for inference, whole or not at all."""
    facts = {"recipe": asdict(recipe), "classes": list(classes)}
    write_tensors(detector.state_dict(), path, facts)


def load_weights(path: Path) -> TrainedDetector:
    """A trained detector from its file, or from the folder of its run.

    Raises:
        CheckpointError: There is no such file, or it holds something else.
    """
    if path.is_dir():
        path = path / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file; alphaiou train makes {WEIGHTS}")
    kept = read_tensors(path)
    if "recipe" not in kept.facts or "classes" not in kept.facts:
        why = f"take {WEIGHTS} beside it" if path.name == LAST else f"take a {WEIGHTS} of a run"
        raise CheckpointError(f"{path}: holds no weights for inference; {why}")
    try:
        recipe: Recipe = recipe_from(kept.facts["recipe"])
        classes = tuple(kept.facts["classes"])
        detector = fresh_detector(recipe, len(classes), weightless=True)
        detector.load_state_dict(dict(kept.tensors))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); train again"
        ) from None
    detector.eval()
    return TrainedDetector(detector, recipe, classes)
