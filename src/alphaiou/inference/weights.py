"""Weights files: the tensors of a detector, and in the same file the settings to build it with."""

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

#: The weights that a run keeps for inference.
WEIGHTS = "best.safetensors"


class CheckpointError(AlphaIoUError):
    """A file of a run cannot be used; the message names the file and the remedy."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a safetensors file.

    Attributes:
        tensors: Weights; in the checkpoint of a training also averages and velocities.
        facts: What else the file says; JSON.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TrainedDetector:
    """A detector with its weights, and how it was trained.

    Attributes:
        detector: The detector, in evaluation mode.
        classes: The name of each label.
        recipe: The recipe of the training as plain values.
    """

    detector: Detector
    classes: tuple[str, ...]
    recipe: Mapping[str, Any]

    @property
    def image_size(self) -> int:
        """The long side of the images that it was trained on, in pixels."""
        return int(self.recipe["image_size"])

    @property
    def precision(self) -> Precision:
        """The arithmetic of the network that it was trained with."""
        precision: Precision = self.recipe["precision"]
        return precision


def save_weights(
    detector: nn.Module, recipe: Mapping[str, Any], classes: Sequence[str], path: Path
) -> None:
    """Write weights for inference, atomically.

    Args:
        detector: Whose weights.
        recipe: The recipe of the training as plain values, those of the detector among them.
        classes: The name of each label.
        path: The file.
    """
    facts = {"recipe": dict(recipe), "classes": list(classes)}
    write_tensors(Checkpoint(detector.state_dict(), facts), path)


def load_weights(path: Path) -> TrainedDetector:
    """Read a trained detector from its file, or from the folder of its run.

    Raises:
        CheckpointError: There is no such file, or it is not a weights file.
    """
    if path.is_dir():
        path = path / WEIGHTS
    if not path.exists():
        raise CheckpointError(f"{path}: there is no such file; alphaiou train makes {WEIGHTS}")
    kept = read_tensors(path)
    if "recipe" not in kept.facts or "classes" not in kept.facts:
        beside = path.with_name(WEIGHTS).exists() and path.name != WEIGHTS
        remedy = f"take {WEIGHTS} beside it" if beside else f"take a {WEIGHTS} of a run"
        raise CheckpointError(f"{path}: holds no weights for inference; {remedy}")
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
    """Read a safetensors file; nothing in it is ever executed.

    Raises:
        CheckpointError: The file is damaged or of another kind.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no whole safetensors file ({error})") from None
    return Checkpoint(tensors, facts)


def write_tensors(content: Checkpoint, path: Path, *, backup: Path | None = None) -> None:
    """Write a safetensors file, atomically; the present one is kept as ``backup``."""
    from safetensors.torch import save

    tensors = {name: one.detach().cpu().contiguous() for name, one in content.tensors.items()}
    data = save(tensors, metadata={"facts": json.dumps(dict(content.facts))})
    write_file(path, data, backup=backup)
