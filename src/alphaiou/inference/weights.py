"""Weights files: the tensors of a detector and the settings to rebuild it, in one file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor, nn

from alphaiou._files import write_file
from alphaiou.detectors import Detector
from alphaiou.detectors.base import Precision
from alphaiou.detectors.registry import AnyDetectorConfig, earlier_settings, nested_settings
from alphaiou.errors import AlphaIoUError
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec

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
        recipe: The recipe of the training as plain values (str, int, dict, ...), in the layout of
            its version.
        image_size: The longer side of the training images, in pixels.
        precision: The precision that the network was trained with.
        epochs: The epochs of training until these weights.
        images: The number of training images; None in files of earlier versions.
    """

    detector: Detector
    classes: tuple[str, ...]
    recipe: Mapping[str, Any]
    image_size: int
    precision: Precision = "fp32"
    epochs: int = 0
    images: int | None = None


class _Settings(msgspec.Struct):
    """The parts of a recipe that a weights file is used with."""

    detector: AnyDetectorConfig
    loss: LossSpec
    image_size: int
    epochs: int = 0
    alpha_schedule: AlphaSchedule | None = None
    precision: Precision = "fp32"


class _Length(msgspec.Struct):
    """How long a file's weights were trained; files of earlier versions do not say it."""

    epochs: int | None = None
    images: int | None = None


def save_weights(
    detector: nn.Module,
    recipe: Mapping[str, Any],
    classes: Sequence[str],
    path: Path,
    *,
    epochs: int | None = None,
    images: int | None = None,
) -> None:
    """Write weights for inference atomically.

    Args:
        detector: The detector to save.
        recipe: The recipe of the training as plain values, including the detector settings.
        classes: The name of each label.
        path: The file to write.
        epochs: The epochs of training until these weights.
        images: The number of training images.
    """
    facts: dict[str, Any] = {"recipe": dict(recipe), "classes": list(classes)}
    length = {"epochs": epochs, "images": images}
    facts |= {name: number for name, number in length.items() if number is not None}
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
    kept = read_finite(path)
    if "recipe" not in kept.facts or "classes" not in kept.facts:
        beside = path.with_name(WEIGHTS).exists() and path.name != WEIGHTS
        remedy = f"use {WEIGHTS} in the same folder" if beside else f"use the {WEIGHTS} of a run"
        raise CheckpointError(f"{path}: contains no weights for inference; {remedy}")
    try:
        recipe, classes = kept.facts["recipe"], tuple(kept.facts["classes"])
        known = msgspec.convert(nested_settings(earlier_settings(recipe)), _Settings)
        length = msgspec.convert(dict(kept.facts), _Length)
        # The loss may have a state, which is among the tensors.
        loss = known.detector.box_loss(known.loss, known.alpha_schedule)
        detector = known.detector.build(
            len(classes), loss, image_size=known.image_size, pretrained=False
        )
        detector.load_state_dict(dict(kept.tensors))
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); train again"
        ) from None
    detector.eval()
    return TrainedDetector(
        detector,
        classes,
        recipe,
        known.image_size,
        known.precision,
        known.epochs if length.epochs is None else length.epochs,
        length.images,
    )


def read_tensors(path: Path, *, with_digest: bool = False) -> Checkpoint:
    """Read a safetensors file.

    Args:
        path: The file.
        with_digest: Whether the file must have a digest. Files of other programs and of the first
            edition have none; if there is one, it is compared.

    Raises:
        CheckpointError: If the file is damaged or not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            metadata = file.metadata() or {}
        facts = json.loads(metadata.get("facts", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from None
    if not isinstance(facts, dict):
        raise CheckpointError(f"{path} is damaged: its facts are not a JSON object")
    stored = facts.pop("digest", None)
    if (with_digest or stored is not None) and stored != _digest(tensors, facts):
        raise CheckpointError(f"{path} is damaged: its content does not fit its digest")
    return Checkpoint(tensors, facts)


def read_finite(path: Path, *, with_digest: bool = False) -> Checkpoint:
    """Read a safetensors file of weights or of a training.

    Args:
        path: The file.
        with_digest: Whether the file must have a digest.

    Raises:
        CheckpointError: As ``read_tensors``, or if a value is not finite.
    """
    content = read_tensors(path, with_digest=with_digest)
    for name, tensor in content.tensors.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(f"{path} is damaged: {name} has values that are not finite")
    return content


def _digest(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> str:
    """Return a hash of tensors and facts."""
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_tensors(content: Checkpoint, path: Path, *, backup: Path | None = None) -> None:
    """Write a safetensors file atomically; an existing file is kept as ``backup``."""
    from safetensors.torch import save

    tensors = {name: value.detach().cpu().contiguous() for name, value in content.tensors.items()}
    # Among the facts: safetensors writes several metadata in random order.
    facts = {**content.facts, "digest": _digest(tensors, content.facts)}
    data = save(tensors, metadata={"facts": json.dumps(facts)})
    write_file(path, data, backup=backup)
