"""The record of a run: recipe, scores, history and environment."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from alphaiou._environment import device_name, versions
from alphaiou._files import write_file
from alphaiou.inference.weights import CheckpointError
from alphaiou.training.recipe import Recipe, recipe_hash

RECORD = "record.json"
#: The fields of a history entry that are not parts of the loss.
NO_LOSSES = (
    "epoch",
    "seconds",
    "images_per_second",
    "memory_bytes",
    "lost_boxes",
    "val",
    "test",
)


def run_record(
    recipe: Recipe,
    history: Sequence[Mapping[str, Any]],
    *,
    scores: Mapping[str, float],
    scored_on: str,
    best: Mapping[str, Any] | None,
    notes: Sequence[str],
    device: torch.device,
) -> dict[str, Any]:
    """Build the record of a finished run."""
    return {
        "record": "run",
        "name": recipe_hash(recipe),
        "recipe": asdict(recipe),
        "scores": dict(scores),
        "scored_on": scored_on,
        "selected": recipe.select if best is None else dict(best),
        "throughput": throughput(history),
        "memory_bytes": peak_memory(device),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "notes": list(notes),
        "history": list(history),
    }


def loss_parts(entry: Mapping[str, Any]) -> dict[str, float]:
    """Return the parts of the loss in a history entry; they depend on the detector.

    Examples:
        >>> loss_parts({"epoch": 1, "box": 0.5, "class": 0.25, "seconds": 60.0})
        {'box': 0.5, 'class': 0.25}
    """
    return {name: number for name, number in entry.items() if name not in NO_LOSSES}


def throughput(history: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean images per second, excluding the first epoch if there are several."""
    counted = history[1:] or history
    seconds = sum(entry["seconds"] for entry in counted)
    images = sum(entry["images_per_second"] * entry["seconds"] for entry in counted)
    return float(images / seconds) if seconds else 0.0


def peak_memory(device: torch.device) -> int:
    """Return the peak memory in bytes: allocated by torch on a GPU, else of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def finished_record(folder: Path) -> dict[str, Any] | None:
    """Return the record of a finished run, or None if the run is not finished.

    Raises:
        CheckpointError: If the record is damaged; the message says what to do.
    """
    path = folder / RECORD
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise _damaged(path, f"it is not valid JSON ({error})") from None
    if not isinstance(record, dict) or record.get("record") != "run":
        raise _damaged(path, "it is not the record of a run")
    return record


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is damaged: {why}. To rebuild it from the last checkpoint: rm {path} and "
        "run the same command again"
    )


def write_record(record: Mapping[str, Any], folder: Path) -> Path:
    """Write ``record.json`` atomically."""
    path = folder / RECORD
    write_file(path, json.dumps(_plain(record), indent=1, allow_nan=False) + "\n")
    return path


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Replace NaN by None: JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
