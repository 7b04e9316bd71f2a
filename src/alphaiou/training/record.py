"""The record that a run leaves: what it was, where it ran, what came out."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from alphaiou import __version__
from alphaiou.metrics import Scores
from alphaiou.training.recipe import Recipe, recipe_hash

RECORD = "record.json"
PACKAGES = ("torch", "torchvision", "triton", "lightning", "hotcoco", "numpy")


def run_record(
    recipe: Recipe,
    history: Sequence[Mapping[str, Any]],
    *,
    scores: Scores | None,
    scored_on: str,
    best: Mapping[str, Any] | None,
    notes: Sequence[str],
    device: torch.device,
    evaluation_seconds: float,
) -> dict[str, Any]:
    """The record of a finished run."""
    return {
        "record": "run",
        "name": recipe_hash(recipe),
        "recipe": asdict(recipe),
        "scores": {} if scores is None else scores.as_dict(),
        "scored_on": scored_on,
        "selected": recipe.select if best is None else dict(best),
        "throughput": throughput(history),
        "evaluation_seconds": evaluation_seconds,
        "memory_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        "device": device_name(device),
        "versions": versions(),
        "notes": list(notes),
        "history": list(history),
    }


def throughput(history: Sequence[Mapping[str, Any]]) -> float:
    """Images a second over whole epochs, the first one left out if there are others."""
    counted = history[1:] or history
    seconds = sum(entry["seconds"] for entry in counted)
    images = sum(entry["images_per_second"] * entry["seconds"] for entry in counted)
    return float(images / seconds) if seconds else 0.0


def versions() -> dict[str, str]:
    """The versions that results may depend on."""
    found = {"alphaiou": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def device_name(device: torch.device) -> str:
    """The device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{platform.machine()} CPU, {torch.get_num_threads()} threads"


def finished_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run that is finished; None otherwise."""
    path = folder / RECORD
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def write_record(record: Mapping[str, Any], folder: Path) -> Path:
    """Write ``record.json``, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    path, spare = folder / RECORD, folder / f"{RECORD}.part"
    spare.write_text(json.dumps(_plain(record), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    spare.replace(path)
    return path


def _plain(value: Any) -> Any:  # noqa: ANN401
    """JSON knows no NaN: a number that nothing defines is null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
