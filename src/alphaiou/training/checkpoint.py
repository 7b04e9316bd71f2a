"""Checkpoints: tensors in safetensors files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from alphaiou.errors import AlphaIoUError

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


class CheckpointError(AlphaIoUError):
    """A checkpoint cannot be written or read; the message names the file and the remedy."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after some epochs.

    Attributes:
        tensors: Weights, averages, velocities.
        facts: What else a run must know to go on; JSON.
    """

    tensors: Mapping[str, Tensor]
    facts: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write ``last.safetensors``; the one that was there becomes ``previous.safetensors``."""
    last = folder / LAST
    with _writing(last):
        spare = _write_spare(_encoded(checkpoint.tensors, checkpoint.facts), last)
        if last.exists():
            _replace_link(last, folder / PREVIOUS)
        spare.replace(last)
        _sync_folder(folder)
    return last


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint of a folder; None where there is none."""
    last = folder / LAST
    if not last.exists():
        return None
    try:
        return read_tensors(last)
    except CheckpointError as error:
        older = folder / PREVIOUS
        remedy = (
            f"to go on from the checkpoint before it: mv {older} {last}"
            if older.exists()
            else f"to start again: rm {last}"
        )
        raise CheckpointError(f"{error}; {remedy}") from None


@contextlib.contextmanager
def alone_in(folder: Path, *, needed: bool = True) -> Iterator[None]:
    """Refuse to train a run that another process trains; the lock ends with its process."""
    if not needed or sys.platform == "win32":
        yield
        return
    with _writing(folder / LAST):
        handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"{folder}: another process is training this run; wait for it, or take another --out"
        ) from None
    except OSError:  # a file system without locks
        return


def write_tensors(tensors: Mapping[str, Tensor], path: Path, facts: Mapping[str, Any]) -> None:
    """Write a safetensors file, whole or not at all."""
    write_whole(_encoded(tensors, facts), path)


def write_whole(data: bytes, path: Path) -> None:
    """Write a file so that it is there whole, and on the disk, or not at all.

    Raises:
        CheckpointError: The disk is full, or the folder cannot be written to.
    """
    with _writing(path):
        _write_spare(data, path).replace(path)
        _sync_folder(path.parent)


def read_tensors(path: Path) -> Checkpoint:
    """Read a safetensors file; nothing in it is ever executed."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is no whole safetensors file ({error})") from None
    return Checkpoint(tensors, facts)


def _encoded(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    from safetensors.torch import save

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    return save(whole, metadata={"facts": json.dumps(dict(facts))})


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        kept = f"; {path} is as it was" if path.exists() else ""
        raise CheckpointError(
            f"{path} could not be written: {error.strerror or error}{kept}. Free some space or "
            "choose another --out, and run the same command again"
        ) from error


def _write_spare(data: bytes, path: Path) -> Path:
    """A file beside the path, written and on the disk, to be renamed."""
    spare = path.with_name(f"{path.name}.part")
    try:
        with spare.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            spare.unlink(missing_ok=True)
        raise
    return spare


def _replace_link(source: Path, target: Path) -> None:
    """Make ``target`` another name of the file: at no moment is either name without one."""
    spare = target.with_name(f"{target.name}.part")
    spare.unlink(missing_ok=True)
    try:
        os.link(source, spare)
    except OSError:  # a file system without links: one checkpoint has to do
        return
    spare.replace(target)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
