"""The encoded images of a data set: in folders, or in tar shards that are read in place."""

from __future__ import annotations

import codecs
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable

from alphaiou.data.formats.splits import folder_split, split_name
from alphaiou.data.problems import DataError

#: What the names of images end in, in the order of preference where only the ending differs.
IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")

#: Folders that hold annotations alone, beside folders of images.
FOLDERS_OF_ANNOTATIONS = ("annotations", "annotation")
LONGEST_NAME = 1 << 10

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


# The functions of os.path, unlike those of Path, give False where they may not look.


def exists(path: Path) -> bool:
    """Whether there is something; False also for names that no file can have."""
    return os.path.exists(path)  # noqa: PTH110


def is_file(path: Path) -> bool:
    """Whether a path is a regular file, or a link to one."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    """Whether a path is a folder, or a link to one."""
    return os.path.isdir(path)  # noqa: PTH112


def folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, sorted."""
    return sorted(filter(is_folder, (folder / name for name in all_names(folder))))


def files_below(folder: Path, suffix: str) -> list[Path]:
    """The files under a folder whose names end in ``suffix``; links to folders are not followed."""
    return [
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if name.endswith(suffix)
    ]


def names_below(folder: Path) -> list[str]:
    """The files under a folder by their paths relative to it, sorted; none of hidden ones.

    Archives made on a Mac have a copy of each file in ``__MACOSX``.
    """
    found = []
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__MACOSX" and not name.startswith(".")]
        inside = PurePosixPath(Path(parent).relative_to(folder).as_posix())
        found += [(inside / name).as_posix() for name in names if not name.startswith(".")]
    return sorted(found)


def is_image(name: str) -> bool:
    """Whether a file has the name of an image.

    Examples:
        >>> is_image("a.JPG"), is_image("a.txt")
        (True, False)
    """
    return PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def top_folder(annotations: Path) -> Path:
    """The folder of the data set that an annotation file belongs to."""
    beside = Path(os.path.abspath(annotations.parent))  # noqa: PTH100 - links keep their names
    return beside.parent if beside.name.lower() in FOLDERS_OF_ANNOTATIONS else beside


def image_folders(annotations: Path, *names: str) -> list[Path]:
    """The folders near an annotation file that may hold its images, the most particular first.

    Args:
        annotations: The file.
        names: The names of its split.
    """
    beside = annotations.parent
    top = beside.parent if beside.name.lower() in FOLDERS_OF_ANNOTATIONS else beside
    parts = [part for name in names for part in (f"images/{name}", name, f"{name}/images")]
    usual = [*(top / part for part in parts), beside / "images", top / "images", beside, top]
    others = [one for folder in (top, beside, top / "images") for one in folders_in(folder)]
    apart = {"train", "val", "test"}
    splits = set(map(split_name, names)) & apart
    # Names of images recur in the folders of other splits.
    if splits:
        others = [one for one in others if folder_split(f"{one.name}/") in (None, *splits)]
    return list(dict.fromkeys(filter(is_folder, [*usual, *others])))


def place_by_name(annotations: Path, names: Iterable[str], *splits: str) -> dict[str, Path]:
    """The path of each image that an annotation file names, in the folder that has most of them.

    Names that start at another folder, of the machine of the tool that wrote them, count from where
    they fit: with the folders in them, or without. None leads out of the folders near the file.
    """
    cleaned = {name: _inside(name) for name in names}
    best: tuple[int, Path, bool] | None = None
    for flat in (False, True):
        wanted = [PurePosixPath(one).name if flat else one for one in cleaned.values()]
        for folder in image_folders(annotations, *splits):
            absent = len(FolderImages(folder).missing(wanted))
            if best is None or absent < best[0]:
                best = (absent, folder, flat)
    _, folder, flat = best or (0, annotations.parent, False)
    return {
        name: folder / (PurePosixPath(one).name if flat else one) for name, one in cleaned.items()
    }


def _inside(name: str) -> str:
    """The name without what would lead out of a folder, or what no file can be called."""
    parts = PurePosixPath(name.replace("\\", "/").replace("\0", "\\0")[:LONGEST_NAME]).parts
    kept = [part for part in parts if part not in ("/", "//", "..") and not part.endswith(":")]
    return "/".join(kept) or "."


def all_names(folder: Path) -> set[str]:
    """The names of all that is in a folder; none when there is no such folder."""
    return {entry.name for entry in _entries(folder)}


def file_names(folder: Path) -> set[str]:
    """The names of the files in a folder; none when there is no such folder."""
    return {entry.name for entry in _entries(folder) if _is_file(entry)}


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (OSError, ValueError):
        return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, or to where we may not look
        return False


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
    """The bytes of a text file, less a byte order mark; OSError when more than ``limit``."""
    with open_file(path) as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise OSError(f"has more than {limit:,} bytes")
    return data.removeprefix(codecs.BOM_UTF8)


def reason(error: BaseException) -> str:
    """What an error says, without the path that the message around it names already."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
