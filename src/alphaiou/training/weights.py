"""Weights for inference, in a file that says what detector they are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import nn

from alphaiou.detectors import YOLOv5, build_detector
from alphaiou.losses import AlphaIoULoss
from alphaiou.training.checkpoint import LAST, CheckpointError, read_tensors, write_tensors
from alphaiou.training.recipe import Recipe, recipe_from

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

    detector: YOLOv5
    recipe: Recipe
    classes: tuple[str, ...]


def fresh_detector(recipe: Recipe, num_classes: int) -> YOLOv5:
    """The detector of a recipe, with weights of chance."""
    loss = AlphaIoULoss(
        recipe.loss.kind,
        recipe.alpha_schedule or recipe.loss.alpha,
        penalty_alpha=recipe.loss.penalty_alpha,
    )
    detector = build_detector(
        recipe.detector,
        num_classes,
        box_loss=loss,
        box_gain=recipe.box_gain,
        objectness_gain=recipe.objectness_gain,
        class_gain=recipe.class_gain,
        objectness=recipe.objectness,
    )
    detector.postprocess = replace(detector.postprocess, nms_threshold=recipe.nms_threshold)
    return detector


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
        detector = fresh_detector(recipe, len(classes))
        detector.load_state_dict(dict(kept.tensors))
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); train again"
        ) from None
    return TrainedDetector(detector.eval(), recipe, classes)
