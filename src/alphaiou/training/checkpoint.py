"""The last two checkpoints of a run, and the lock on its folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from alphaiou._files import remove_parts
from alphaiou.inference.weights import Checkpoint, CheckpointError, read_tensors, write_tensors

LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write ``last.safetensors``; the existing file is renamed to ``previous.safetensors``."""
    last = folder / LAST
    write_tensors(checkpoint, last, backup=folder / PREVIOUS)
    return last


def load_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the last checkpoint of a folder, or None if the folder has none."""
    last = folder / LAST
    if not last.exists():
        return None
    try:
        return read_tensors(last)
    except CheckpointError as error:
        older = folder / PREVIOUS
        remedy = (
            f"to resume from the previous checkpoint: mv {older} {last}"
            if older.exists()
            else f"to start again: rm {last}"
        )
        raise CheckpointError(f"{error}; {remedy}") from None


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Prevent other processes from training the same run; the lock ends with this process."""
    folder.mkdir(parents=True, exist_ok=True)
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        _lock(handle, folder)
        remove_parts(folder)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, folder: Path) -> None:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CheckpointError(
            f"{folder}: another process is training this run; wait for it, or choose another --out"
        ) from None
    except OSError:  # the file system has no locks
        return
