"""The record of a run: recipe, scores, history, and what they were made with."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec
import torch
from typing_extensions import NotRequired, TypedDict  # those of Python 3.11

from alphaiou._config import ConfigError, differing_fields, to_plain
from alphaiou._environment import device_name, source_commit, versions
from alphaiou._files import file_digest, write_file
from alphaiou._version import __version__
from alphaiou.detectors.registry import earlier_settings, nested_settings
from alphaiou.errors import AlphaIoUError
from alphaiou.training.recipe import SCHEMA, Recipe, recipe_from, recipe_hash, without_added
from alphaiou.training.setup import DataDigest

RECORD = "record.json"
RunRecord = dict[str, Any]
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


class RecordError(AlphaIoUError):
    """A record cannot be used; the message names the file and the remedy."""


class _Fields(TypedDict):
    """The fields that every record has, after ``upgraded``; it may have more."""

    record: str
    schema: int
    name: str
    recipe: dict[str, Any]
    scores: dict[str, float | None]
    scored_on: str
    selected: str | dict[str, Any]
    throughput: float
    memory_bytes: int
    device: str
    versions: dict[str, str]
    made: dict[str, str | None]
    data: dict[str, str] | None
    weights: str | None
    weights_from: NotRequired[str | None]
    notes: list[str]
    history: list[dict[str, Any]]


def run_record(
    recipe: Recipe,
    history: Sequence[Mapping[str, Any]],
    *,
    scores: Mapping[str, float],
    scored_on: str,
    best: Mapping[str, Any] | None,
    notes: Sequence[str],
    device: torch.device,
    data: DataDigest,
    weights: str,
    weights_from: str | None = None,
    stopped: str = "",
) -> RunRecord:
    """Build the record of a finished run.

    Args:
        recipe: The resolved recipe.
        history: The losses, speed and scores of every epoch.
        scores: The scores of the saved weights.
        scored_on: The split of the scores.
        best: The epoch of the saved weights if the recipe selects the best.
        notes: Messages about images and boxes that were left out or changed.
        device: The device of the training.
        data: The digest of the data.
        weights: The digest of the weights file.
        weights_from: The digest of the file of the weights that the training started from, if any.
        stopped: After which epoch the training stopped early, and why; "" if it did not.
    """
    record = {
        "record": "run",
        "schema": SCHEMA,
        "name": recipe_hash(recipe),
        "recipe": to_plain(recipe),
        "scores": dict(scores),
        "scored_on": scored_on,
        "selected": recipe.select if best is None else dict(best),
        **({"stopped": stopped} if stopped else {}),
        "throughput": throughput(history),
        "memory_bytes": peak_memory(device),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "made": {
            "version": __version__,
            "commit": source_commit(),
            "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
        "data": dict(data),
        "weights": weights,
        "weights_from": weights_from,
        "notes": list(notes),
        "history": list(history),
    }
    plain: RunRecord = _plain(record)
    return {**plain, "digest": record_digest(plain)}


def record_digest(record: Mapping[str, Any]) -> str:
    """Return a hash of all fields of a record but the hash itself."""
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


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


# --- reading --------------------------------------------------------------------------------------


def read_record(path: Path) -> RunRecord:
    """Read the record of a run; records of earlier versions are upgraded.

    Raises:
        RecordError: If the file is damaged or was edited, or is not the record of a run.
    """
    remedy = f"restore it, or remove it: rm {path}"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: it is not valid JSON ({error}); {remedy}") from None
    if not isinstance(record, dict) or record.get("record") != "run":
        raise RecordError(f"{path} is not the record of a run; {remedy}")
    try:
        record = upgraded(record)
        msgspec.convert(record, _Fields)
        name = recipe_hash(recipe_from(record["recipe"], "recipe"))
    except (ConfigError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"{path} is damaged: {_reason(error)}; {remedy}") from None
    if record.get("digest", record_digest(record)) != record_digest(record):
        raise RecordError(f"{path} was changed after the run: its digest does not fit; {remedy}")
    if record["name"] != name:
        raise RecordError(
            f"{path} was changed after the run: its recipe has another name; {remedy}"
        )
    return record


def _reason(error: Exception) -> str:
    return f"the field {error} is missing" if isinstance(error, KeyError) else str(error)


#: Fields of recipes that records of the first edition may lack, with what runs did without them.
_EARLIER = {"alpha_schedule": None, "final_box_gain": None}
_EARLIER_LOSS: dict[str, Any] = {"modifiers": []}
#: The scale of Shape-IoU in the first edition; it is 0 today, as in its authors' code.
_EARLIER_SHAPE_SCALE = 1.0
_EARLIER_OPTIMISATION: dict[str, Any] = {
    "optimiser": "sgd",
    "schedule": "cosine",
    "drops": [],
    "drop_factor": 0.1,
    "nesterov": True,
    "weight_decay": 5e-4,
    "decay_batch": 64,
    "decay": "weights",
    "clip_norm": 0.0,
}


def upgraded(record: Mapping[str, Any]) -> RunRecord:
    """Return a record in today's layout, with the name that its recipe has today.

    Records of the first edition have no ``schema``. They do not know the commit, the date, or the
    digests of their data and weights.

    Raises:
        ValueError: If the record was written by a later version, or lacks what it needs.
    """
    schema = record.get("schema", 1)
    if schema == SCHEMA:
        if "digest" not in record:
            raise ValueError("it has no digest")
        return dict(record)
    if schema != 1:
        raise ValueError(f"schema {schema!r} is of another version of alphaiou than {__version__}")
    recipe = upgraded_recipe(record["recipe"])
    return {
        **record,
        "schema": SCHEMA,
        "name": recipe_hash(recipe),
        "recipe": _plain(to_plain(recipe)),
        "made": {"version": record["versions"]["alphaiou"], "commit": None, "date": None},
        "data": None,
        "weights": None,
    }


def upgraded_recipe(values: Mapping[str, Any]) -> Recipe:
    """Build a recipe from plain values of any version."""
    if isinstance(values["detector"], Mapping):
        return recipe_from(values)
    filled = {**_EARLIER, **values}
    filled["loss"] = _EARLIER_LOSS | filled["loss"]
    if filled["loss"]["kind"] == "shape_iou":
        filled["loss"]["shape_scale"] = _EARLIER_SHAPE_SCALE
    filled["optimisation"] = _EARLIER_OPTIMISATION | filled["optimisation"]
    return recipe_from(nested_settings(earlier_settings(filled)))


def finished_record(folder: Path, recipe: Recipe) -> RunRecord | None:
    """Return the record of a finished run, or None if the run is not finished.

    Args:
        folder: The folder of the run.
        recipe: The resolved recipe, which the record must have.

    Raises:
        RecordError: If the record is damaged, or of another recipe or other weights than those in
            the folder; the message says what to do.
    """
    from alphaiou.inference.weights import WEIGHTS

    path, weights = folder / RECORD, folder / WEIGHTS
    if not path.exists():
        return None
    record = read_record(path)
    check_same_recipe(path, record["recipe"], recipe)
    stored = record["weights"]
    if stored is not None and weights.exists() and file_digest(weights) != stored:
        raise RecordError(
            f"{weights} is not the file that {path} describes; restore it, or to train again: "
            f"rm -r {folder}"
        )
    return record


def check_same_recipe(path: Path, stored: Mapping[str, Any], recipe: Recipe) -> None:
    """Reject a file of another recipe; the message names the fields that differ.

    Raises:
        RecordError: If the recipes differ.
    """
    wanted = without_added(to_plain(recipe_from(to_plain(recipe))))
    if differences := differing_fields(without_added(stored), wanted):
        raise RecordError(
            f"{path} is of another recipe: {'; '.join(differences)}; to train again: "
            f"rm -r {path.parent}"
        )


def write_record(record: Mapping[str, Any], folder: Path) -> Path:
    """Write ``record.json`` atomically."""
    path = folder / RECORD
    write_file(path, json.dumps(record, indent=1, allow_nan=False) + "\n")
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
