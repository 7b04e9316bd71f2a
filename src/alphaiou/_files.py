"""Atomic writes, which leave a file complete or as it was before, and hashes of files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from alphaiou.errors import AlphaIoUError

#: The end of the name of a file that is being written.
PART = ".part"


class WriteError(AlphaIoUError, OSError):
    """A file cannot be written; the message names the file and the remedy."""


def write_file(path: Path, content: str | bytes, *, backup: Path | None = None) -> None:
    """Write a file atomically; folders that are missing are made.

    Args:
        path: The file.
        content: What it holds afterwards; text is written as UTF-8.
        backup: The name under which the present file is kept.

    Raises:
        WriteError: The disk is full, or the folder cannot be written to. The file is unchanged.

    Examples:
        >>> write_file(Path("new/a.txt"), "α")
        >>> Path("new/a.txt").read_text(encoding="utf-8")
        'α'
    """
    data = content.encode() if isinstance(content, str) else content
    with replacing(path, backup=backup) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, *, backup: Path | None = None) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when the block ends without an error.

    Args:
        path: The file to replace.
        backup: The name under which the present file is kept.

    Raises:
        WriteError: The disk is full, or the folder cannot be written to. The file is unchanged.
    """
    part = _part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if backup is not None and path.exists():
                _link(path, backup)
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as error:
        kept = "; the file is as it was" if path.exists() else ""
        raise WriteError(
            f"{path} could not be written: {error.strerror or error}{kept}. Free some space or "
            "choose another folder (--out), and run the same command again"
        ) from error


def file_digest(path: Path) -> str:
    """Return a hash of the content of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        # Not hashlib.file_digest, which Python 3.10 does not have.
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


@contextlib.contextmanager
def working_folder(folder: Path) -> Iterator[None]:
    """``contextlib.chdir``, which Python 3.10 does not have."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def remove_parts(folder: Path) -> None:
    """Remove what processes that were killed had begun to write. Nobody else may be writing."""
    for part in folder.glob(f".*{PART}"):
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    # In the same folder, so that it can be renamed; a name of its own, since several processes may
    # write the same file; by open(), not tempfile, so that its mode follows the umask.
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")


def _link(source: Path, target: Path) -> None:
    """Make ``target`` another name of the file. Neither name is ever without a file."""
    part = _part_of(target)
    try:
        os.link(source, part)
    except OSError:  # the file system has no hard links: there is no backup
        return
    part.replace(target)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every system can open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
