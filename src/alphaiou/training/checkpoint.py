"""The last two checkpoints of a run, and the lock on its folder."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from alphaiou._files import remove_parts
from alphaiou.inference.weights import Checkpoint, CheckpointError, read_finite, write_tensors


class RunBusyError(CheckpointError):
    """Another process is training this run."""


LAST, PREVIOUS = "last.safetensors", "previous.safetensors"


def save_checkpoint(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write ``last.safetensors``; the existing file is renamed to ``previous.safetensors``."""
    last = folder / LAST
    write_tensors(checkpoint, last, backup=folder / PREVIOUS)
    return last


def load_checkpoint(folder: Path, note: Callable[[str], None]) -> Checkpoint | None:
    """Return the last checkpoint of a folder, or None if the folder has none.

    A damaged checkpoint is reported, and the previous one is used.

    Args:
        folder: The folder of the run.
        note: Called with a message if the previous checkpoint is used.

    Raises:
        CheckpointError: If no checkpoint is sound.
    """
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists():
        return None
    try:
        return read_finite(last, with_digest=True)
    except CheckpointError as error:
        damage = str(error)
    remedy = f"to start again: rm -r {folder}"
    if not previous.exists():
        raise CheckpointError(f"{damage}; {remedy}")
    try:
        checkpoint = read_finite(previous, with_digest=True)
    except CheckpointError as error:
        raise CheckpointError(f"{damage}; {error}; {remedy}") from None
    note(f"{damage}; resuming from {previous}")
    return checkpoint


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
        raise RunBusyError(
            f"{folder}: another process is training this run; wait for it, or choose another --out"
        ) from None
    except OSError:  # the file system has no locks
        return
