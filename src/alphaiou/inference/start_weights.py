"""Weights to start a training from: those of an earlier run, or of another implementation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alphaiou._files import file_digest
from alphaiou.detectors import Detector
from alphaiou.detectors.registry import earlier_settings, nested_settings
from alphaiou.inference.weights import WEIGHTS, Checkpoint, CheckpointError, read_finite
from alphaiou.losses import AlphaIoULoss

#: The number of names in a message; the others are counted.
LISTED = 4
#: The rows of a tensor to overwrite, and those of the file to take.
Rows = tuple[list[int], list[int]]


@dataclass(frozen=True, eq=False)
class StartWeights:
    """Weights to start from, as they are in their file.

    Attributes:
        path: The file.
        tensors: The weights by name.
        classes: The names of the classes, if the file is of this project.
        detector: The name of the detector, if the file is of this project.
        digest: The digest of the file.
    """

    path: Path
    tensors: Mapping[str, Tensor]
    classes: tuple[str, ...] | None
    detector: str | None
    digest: str


def weights_file(path: Path) -> Path:
    """Return the file of weights of a run folder; files are returned unchanged."""
    return path / WEIGHTS if path.is_dir() else path


def read_start_weights(path: Path) -> StartWeights:
    """Read weights to start from; nothing but tensors is unpickled.

    Args:
        path: A run folder, a weights file of this project, or a state dict: torchvision's
            ``fasterrcnn_resnet50_fpn`` (``.pth`` or ``.safetensors``), DETR of transformers or
            YOLOv5 v4.0 (``.safetensors``).

    Raises:
        CheckpointError: If the file does not exist or holds no weights.
    """
    path = weights_file(path)
    if not path.is_file():
        raise CheckpointError(
            f"{path}: there is no such file; weights must be a run folder, its {WEIGHTS}, or a "
            "state dict (.safetensors or .pth)"
        )
    content = read_finite(path) if path.suffix == ".safetensors" else _unpickled(path)
    classes, detector = None, None
    if "recipe" in content.facts:
        if "classes" not in content.facts:
            raise CheckpointError(
                f"{path}: is the state of a training; use {WEIGHTS} of a finished run"
            )
        try:
            recipe = nested_settings(earlier_settings(content.facts["recipe"]))
            classes, detector = tuple(content.facts["classes"]), str(recipe["detector"]["name"])
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path}: holds no recipe of a training ({error})") from None
    return StartWeights(path, content.tensors, classes, detector, file_digest(path))


def _unpickled(path: Path) -> Checkpoint:
    """Read a state dict that torch saved."""
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        tensors = content.get("model", content)
        if not all(isinstance(tensor, Tensor) for tensor in tensors.values()):
            raise TypeError("not all values are tensors")
    except Exception as error:
        raise CheckpointError(
            f"{path}: holds no state dict ({type(error).__name__}), and nothing else is unpickled; "
            "save one by safetensors.torch.save_file(model.state_dict(), 'weights.safetensors')"
        ) from error
    return Checkpoint(tensors)


@torch.no_grad()
def start_from(detector: Detector, weights: StartWeights, name: str, classes: Sequence[str]) -> str:
    """Load weights into a detector as far as they fit.

    Tensors are taken by name and shape. Of tensors with rows per class, the rows of classes with
    the same name are taken, and the rows of no class. If the file has no names of classes, the
    classes are the same if their number is. The state of the box loss is not taken.

    Args:
        detector: The detector. The file must have all of its frozen parameters.
        weights: The weights.
        name: The name of the detector.
        classes: The name of each label.

    Returns:
        What was taken, for the notes of the run.

    Raises:
        CheckpointError: If fewer than half of the tensors fit, or a frozen one does not.
    """
    if weights.detector not in (None, name):
        raise CheckpointError(
            f"{weights.path}: has the weights of {weights.detector}, not of {name}; give "
            f"--detector {weights.detector}, or other weights"
        )
    tensors, targets = _own_names(detector, weights, name), _targets(detector)
    _check_norms(weights.path, tensors, targets)
    before = _classes_before(detector, tensors, weights, classes)
    rows = {
        key: _rows(detector, key, tensors[key], target, (before, classes))
        for key, target in targets.items()
        if key in tensors
    }
    new = [key for key in targets if rows.get(key) is None]
    if 2 * len(new) > len(targets):
        raise CheckpointError(
            f"{weights.path}: does not fit {name}: only {len(targets) - len(new)} of "
            f"{len(targets)} tensors do; {_misfit(new[0], tensors, targets)}; give the --detector "
            "that the weights are of, or other weights"
        )
    partial = [key for key, found in rows.items() if found and len(found[0]) < len(targets[key])]
    fixed = {key for key, one in detector.named_parameters() if not one.requires_grad}
    if bad := [key for key in (*new, *partial) if key in fixed]:
        raise CheckpointError(
            f"{weights.path}: {bad[0]} is frozen, and the file lacks it, or some of its classes; "
            "freeze less, or give other weights"
        )
    for key, found in rows.items():
        if found is not None:
            mine, theirs = found
            targets[key][mine] = tensors[key][theirs].to(targets[key])
    taken = f"taken {len(targets) - len(new) - len(partial)} of {len(targets)} tensors"
    parts = [f"{taken} from {weights.path}"]
    if partial:
        fresh = [one for one in classes if one not in before]
        parts.append(f"taken but for the classes {_listed(fresh)}: {_listed(partial)}")
    if new:
        parts.append(f"new: {_listed(new)}")
    return "; ".join(parts)


def _own_names(detector: Detector, weights: StartWeights, name: str) -> Mapping[str, Tensor]:
    """Return the tensors of a file by the names of the detector."""
    if weights.detector is not None:
        return weights.tensors
    try:
        return detector.translated(weights.tensors)
    except ValueError as error:
        raise CheckpointError(f"{weights.path}: does not fit {name}: {error}") from None


def _targets(detector: Detector) -> dict[str, Tensor]:
    """Return the tensors to load: all but the state of losses, and counts without a use."""
    losses = tuple(
        f"{name}." for name, part in detector.named_modules() if isinstance(part, AlphaIoULoss)
    )
    return {
        key: tensor
        for key, tensor in detector.state_dict().items()
        if not key.startswith(losses) and not key.endswith("num_batches_tracked")
    }


def _check_norms(path: Path, tensors: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> None:
    """Reject weights of other norms: their weights and biases would fit by name and shape."""
    for key in (*tensors, *targets):
        norm, _, last = key.rpartition(".")
        weight = f"{norm}.weight"
        if last != "running_mean" or weight not in tensors or weight not in targets:
            continue
        if key not in targets:
            raise CheckpointError(
                f"{path}: has batch norms, and the detector has group norms; set norm to frozen or "
                "batch"
            )
        if key not in tensors:
            raise CheckpointError(
                f"{path}: has no batch norms, and the detector has; set norm to group"
            )


def _classes_before(
    detector: Detector,
    tensors: Mapping[str, Tensor],
    weights: StartWeights,
    classes: Sequence[str],
) -> Sequence[str | int]:
    """Return the names of the classes of a file, or their numbers if other names are unknown."""
    labels = {
        label
        for key, tensor in tensors.items()
        for _, label in detector.class_rows(key, len(tensor) if tensor.ndim else 0) or ()
    } - {None}
    if weights.classes is None:
        return classes if len(labels) == len(classes) else range(len(labels))
    if len(labels) != len(weights.classes):
        raise CheckpointError(
            f"{weights.path} is damaged: it has {len(weights.classes)} names of classes for "
            f"{len(labels)} classes"
        )
    return weights.classes


def _rows(
    detector: Detector,
    key: str,
    source: Tensor,
    target: Tensor,
    classes: tuple[Sequence[str | int], Sequence[str | int]],
) -> Rows | None:
    """Return the rows to take, or None if the shapes do not fit.

    Args:
        detector: The detector.
        key: The name of the tensor.
        source: The tensor of the file.
        target: The tensor of the detector.
        classes: The names of the classes of the file and of the detector.
    """
    if detector.class_rows(key, len(target)) is None:
        every = list(range(len(target)))
        return (every, every) if source.shape == target.shape else None
    if source.shape[1:] != target.shape[1:]:
        return None
    theirs, mine = (
        {
            (place, None if label is None else names[label]): row
            for row, (place, label) in enumerate(detector.class_rows(key, len(tensor)) or ())
        }
        for tensor, names in zip((source, target), classes, strict=True)
    )
    shared = [one for one in mine if one in theirs]
    return [mine[one] for one in shared], [theirs[one] for one in shared]


def _misfit(key: str, tensors: Mapping[str, Tensor], targets: Mapping[str, Tensor]) -> str:
    """Return why a tensor does not fit."""
    if key not in tensors:
        return f"it has no {key}"
    return f"{key} has the shape {tuple(tensors[key].shape)}, not {tuple(targets[key].shape)}"


def _listed(names: Sequence[str]) -> str:
    """Return some names, and how many there are more.

    Examples:
        >>> _listed(["a", "b", "c", "d", "e", "f"])
        'a, b, c, d and 2 more'
    """
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")
