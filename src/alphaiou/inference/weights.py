"""Weights files: the tensors of a detector and the settings to rebuild it, in one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from alphaiou._files import write_file
from alphaiou.detectors import Detector
from alphaiou.detectors.base import Precision
from alphaiou.detectors.registry import detector_from
from alphaiou.errors import AlphaIoUError

#: The file name of the weights for inference in a run folder.
WEIGHTS = "best.safetensors"


class CheckpointError(AlphaIoUError):
    """A file of a run cannot be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a safetensors file.

    Attributes:
        tensors: The weights; a training checkpoint also holds averages and optimiser state.
        facts: Further values, stored as JSON.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TrainedDetector:
    """A detector with its weights and its recipe.

    Attributes:
        detector: The detector, in evaluation mode.
        classes: The name of each label.
        recipe: The recipe of the training as plain values (str, int, dict, ...).
    """

    detector: Detector
    classes: tuple[str, ...]
    recipe: Mapping[str, Any]

    @property
    def image_size(self) -> int:
        """The longer side of the training images, in pixels."""
        return int(self.recipe["image_size"])

    @property
    def precision(self) -> Precision:
        """The precision that the network was trained with."""
        precision: Precision = self.recipe["precision"]
        return precision


def save_weights(
    detector: nn.Module, recipe: Mapping[str, Any], classes: Sequence[str], path: Path
) -> None:
    """Write weights for inference atomically.

    Args:
        detector: The detector to save.
        recipe: The recipe of the training as plain values, including the detector settings.
        classes: The name of each label.
        path: The file to write.
    """
    facts = {"recipe": dict(recipe), "classes": list(classes)}
    write_tensors(Checkpoint(detector.state_dict(), facts), path)


def load_weights(path: Path) -> TrainedDetector:
    """Load a trained detector from a weights file or a run folder.

    Raises:
        CheckpointError: If the file does not exist or is not a weights file.
    """
    if path.is_dir():
        path = path / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file; alphaiou train writes {WEIGHTS}")
    kept = read_tensors(path)
    if "recipe" not in kept.facts or "classes" not in kept.facts:
        beside = path.with_name(WEIGHTS).exists() and path.name != WEIGHTS
        remedy = f"use {WEIGHTS} in the same folder" if beside else f"use the {WEIGHTS} of a run"
        raise CheckpointError(f"{path}: contains no weights for inference; {remedy}")
    try:
        recipe, classes = kept.facts["recipe"], tuple(kept.facts["classes"])
        detector = detector_from(recipe, len(classes), for_training=False)
        detector.load_state_dict(dict(kept.tensors))
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); train again"
        ) from None
    detector.eval()
    return TrainedDetector(detector, classes, recipe)


def read_tensors(path: Path) -> Checkpoint:
    """Read a safetensors file.

    Raises:
        CheckpointError: If the file is damaged or not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from None
    return Checkpoint(tensors, facts)


def write_tensors(content: Checkpoint, path: Path, *, backup: Path | None = None) -> None:
    """Write a safetensors file atomically; an existing file is kept as ``backup``."""
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().contiguous() for name, value in content.tensors.items()}
    data = save(tensors, metadata={"facts": json.dumps(dict(content.facts))})
    write_file(path, data, backup=backup)
