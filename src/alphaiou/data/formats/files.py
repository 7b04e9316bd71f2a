"""The encoded images of a data set: in folders, or in tar shards that are read in place."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from alphaiou.data.problems import DataError

#: What the names of images end in, in the order of preference where only the ending differs.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")

_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate ends of lines


@runtime_checkable
class ImageFiles(Protocol):
    """The encoded images of a data set, by name.

    Picklable and small: worker processes and index caches carry it.
    """

    def read(self, name: str) -> bytes:
        """The encoded image; DataError when it is not there or cannot be read."""
        ...

    def where(self, name: str) -> str:
        """The path to show in messages: a file, or ``shard.tar!member``."""
        ...

    def missing(self, names: Iterable[str]) -> list[int]:
        """The positions of the names that are not there, without opening any file."""
        ...


@dataclass(frozen=True)
class FolderImages:
    """Images that are files under one folder.

    Attributes:
        root: The folder.
        anywhere: Whether names may lead out of the folder, or be absolute. Only for lists of paths
            that the user wrote; a name from an annotation file must not choose what is read.

    Examples:
        >>> FolderImages(Path("photos")).where("cats/1.jpg")
        'photos/cats/1.jpg'
    """

    root: Path
    anywhere: bool = False

    def path(self, name: str) -> Path:
        """The file of an image; DataError when the name leads out of the folder."""
        if not self.anywhere and not stays_inside(name):
            raise DataError(
                f"{self.root}: the image name {name!r} leads out of the folder; "
                "write names relative to it"
            )
        return self.root / name

    def read(self, name: str) -> bytes:
        """The bytes of the file."""
        path = self.path(name)
        try:
            with open_file(path) as file:
                return file.read()
        except (OSError, ValueError) as error:
            raise DataError(f"{path}: the image cannot be read: {reason(error)}") from None

    def where(self, name: str) -> str:
        """The path of the file."""
        return str(self.root / name)

    def missing(self, names: Iterable[str]) -> list[int]:
        """The names that are no file; one listing per folder, since a stat per file is slow."""
        listings: dict[str, set[str]] = {}
        absent = []
        for position, name in enumerate(names):
            folder, _, base = name.rpartition("/")
            if folder not in listings:
                inside = self.anywhere or stays_inside(name)
                listings[folder] = file_names(self.root / (folder or ".")) if inside else set()
            if base not in listings[folder]:
                absent.append(position)
        return absent


@dataclass(frozen=True)
class TarImages:
    """Images that are members of uncompressed tar files, read in place: nothing is extracted.

    A member is found by its full name, or by the name without its folders where only one member
    has it. The shards are listed on first use in each process, and never pickled.

    Attributes:
        shards: The tar files.
    """

    shards: tuple[Path, ...]

    @cached_property
    def _listing(self) -> _Listing:
        return _Listing(self.shards)

    def __getstate__(self) -> dict[str, object]:
        return {"shards": self.shards}

    def read(self, name: str) -> bytes:
        """The bytes of the member; any thread may read, the position in a shard is not shared."""
        if name not in self._listing.members:
            shards = ", ".join(map(str, self.shards))
            raise DataError(f"{shards}: no member, or more than one, has the name {name!r}")
        shard, offset, size = self._listing.members[name]
        data = os.pread(self._listing.descriptors[shard], size, offset)
        if len(data) != size:
            raise _cut_off(self.shards[shard])
        return data

    def where(self, name: str) -> str:
        """The shard and the name."""
        shard, *_ = self._listing.members.get(name, (0,))
        return f"{self.shards[shard]}!{name}"

    def missing(self, names: Iterable[str]) -> list[int]:
        """The names that no member has, or more than one."""
        members = self._listing.members
        return [position for position, name in enumerate(names) if name not in members]


class _Listing:
    """The members of some tar files: shard, offset and size by name; and the open files."""

    def __init__(self, shards: tuple[Path, ...]) -> None:
        self.members: dict[str, tuple[int, int, int]] = {}
        self.descriptors: list[int] = []
        by_base: dict[str, tuple[int, int, int] | None] = {}
        for shard, path in enumerate(shards):
            self.descriptors.append(_open(path))
            for name, offset, size in _members(path):
                self.members[name] = (shard, offset, size)
                base = PurePosixPath(name).name
                by_base[base] = None if base in by_base else (shard, offset, size)
        for base, place in by_base.items():
            if place is not None:
                self.members.setdefault(base, place)

    def __del__(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)


def _open(path: Path) -> int:
    try:
        with open_file(path) as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise DataError(f"{path}: the shard cannot be read: {reason(error)}") from None


def _members(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size of the regular files in a tar; links and devices are passed over."""
    try:
        size = path.stat().st_size
        with tarfile.open(path, "r:") as tar:
            for member in tar:
                if member.isreg() and not member.issparse():
                    if member.offset_data + member.size > size:
                        raise _cut_off(path)
                    yield member.name, member.offset_data, member.size
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{path}: not a whole, uncompressed tar file ({reason(error)}); "
            "copy it again, or uncompress it first"
        ) from None


def _cut_off(path: Path) -> DataError:
    return DataError(f"{path}: the tar file is cut off; copy it again")


def stays_inside(name: str) -> bool:
    """Whether a relative name stays below the folder it is relative to.

    Examples:
        >>> stays_inside("a/b.jpg"), stays_inside("../b.jpg"), stays_inside("/etc/passwd")
        (True, False, False)
    """
    path = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    return bool(path.parts) and not (path.is_absolute() or drive or ".." in path.parts)


def file_names(folder: Path) -> set[str]:
    """The names of the files in a folder; none when there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_file()}
    except (OSError, ValueError):
        return set()


def image_stems(folder: Path) -> set[str]:
    """The names of the images in a folder, without their suffixes."""
    names = (name.rpartition(".") for name in file_names(folder))
    return {stem for stem, dot, suffix in names if f"{dot}{suffix}".lower() in IMAGE_SUFFIXES}


def open_file(path: Path) -> BufferedReader:
    """Open a file to read; OSError for a pipe or a device, which could keep us waiting for ever."""
    # Without O_NONBLOCK, opening a pipe would wait for a writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("is not a regular file")
    return open(descriptor, "rb")  # noqa: PTH123 - not a path


def read_limited(path: Path, limit: int) -> bytes:
    """The bytes of a file; OSError when there are more than ``limit``."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"has more than {limit:,} bytes")
    return data


def reason(error: BaseException) -> str:
    """What an error says, without the path that the message around it names already."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
