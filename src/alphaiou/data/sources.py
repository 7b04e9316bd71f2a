"""The files that an index was read from, and whether they have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from stat import S_ISDIR


@dataclass(frozen=True)
class Sources:
    """The files that an index follows from.

    Attributes:
        contents: Files, and folders with all that is in them, whose sizes and times count.
        names: Folders of which only the names of the files count.
    """

    contents: tuple[Path, ...]
    names: tuple[Path, ...] = ()

    def fingerprint(self) -> str:
        """A hash that changes when one of the files does."""
        digest = blake2b(digest_size=16)
        for path in self.contents:
            for entry in _listing(path, stat=True):
                digest.update(entry.encode("utf-8", "surrogateescape"))
        for path in self.names:
            for entry in _listing(path, stat=False):
                digest.update(entry.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()


def _listing(path: Path, *, stat: bool) -> Iterator[str]:
    """A line for a file, or for each file under a folder, in the order of their names."""
    waiting, seen = [path], set()
    while waiting:
        place = waiting.pop()
        try:
            status = place.stat()
            entries = _entries(place) if S_ISDIR(status.st_mode) else None
        except OSError as error:
            yield f"{place}\0{type(error).__name__}\n"
            continue
        if entries is None:
            yield f"{place}\0{_version(status)}\n"
            continue
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder above
            continue
        seen.add((status.st_dev, status.st_ino))
        yield f"{place}\0\n"
        for entry in entries:
            if entry.is_dir():
                waiting.append(Path(entry.path))
            else:
                yield f"{entry.name}\0{_version(_status(entry)) if stat else ''}\n"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:  # a link to nowhere
        return None


def _version(status: os.stat_result | None) -> str:
    return f"{status.st_size} {status.st_mtime_ns}" if status else "gone"
