"""Indexes kept on disk, and used again for as long as the files they were read from stay the same.

They are in ``$ALPHAIOU_CACHE``, else in ``alphaiou`` under ``$XDG_CACHE_HOME`` or ``~/.cache``; an
empty ``ALPHAIOU_CACHE`` keeps none. A cache is never an obstacle: where it cannot be read or
written, the data set is read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import msgspec
import numpy as np

from alphaiou._files import replacing
from alphaiou._version import __version__
from alphaiou.data.formats.files import FolderImages, ImageFiles, TarImages, is_file
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.problems import Problem


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
        except (OSError, ValueError) as error:  # a name with a zero byte is a ValueError
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
            if _is_folder(entry):
                waiting.append(Path(entry.path))
            else:
                yield f"{entry.name}\0{_version(_status(entry)) if stat else ''}\n"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except OSError:  # a link to nowhere
        return None


def _version(status: os.stat_result | None) -> str:
    return f"{status.st_size} {status.st_mtime_ns}" if status else "gone"


#: To be raised when what readers make of the same files changes.
CACHE_VERSION = 2

ARRAYS = (
    "category_ids",
    "image_ids",
    "sizes",
    "offsets",
    "boxes",
    "labels",
    "box_ids",
    "areas",
    "crowd",
    "difficult",
    "truncated",
)
IMAGE_FILES: dict[str, type[FolderImages | TarImages]] = {
    kind.__name__: kind for kind in (FolderImages, TarImages)
}


def cached_index(
    key: Sequence[str], find: Callable[[], tuple[Sources, Callable[[], DetectionIndex]]]
) -> DetectionIndex:
    """The index of some files, from the cache if they are as they were.

    Args:
        key: What names the index: its layout, path and split.
        find: Gives the files to read, and the function that reads them; called only if need be.
    """
    folder = cache_folder()
    if folder is None:
        return find()[1]()
    path = folder / f"{blake2b(repr(key).encode(), digest_size=16).hexdigest()}.npz"
    index = load_index(path)
    if index is None:
        sources, read = find()
        fingerprint = sources.fingerprint()  # before reading: a change in between must not be lost
        index = read()
        save_index(index, path, sources, fingerprint)
    return index


def cache_folder() -> Path | None:
    """The folder of the cache; None if it is switched off, or if there is no place for it."""
    chosen = os.environ.get("ALPHAIOU_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "alphaiou"
    except RuntimeError:  # there is no home
        return None


def save_index(index: DetectionIndex, path: Path, sources: Sources, fingerprint: str) -> None:
    """Keep an index; nothing happens where that cannot be done."""
    if not isinstance(index.images, FolderImages | TarImages):
        return
    facts = {
        "version": [CACHE_VERSION, __version__],
        "fingerprint": fingerprint,
        "sources": asdict(sources),
        "layout": index.layout,
        "root": index.root,
        "split": index.split,
        "classes": index.classes,
        "images": [type(index.images).__name__, asdict(index.images)],
        "problems": [asdict(problem) for problem in index.problems],
    }
    arrays = {name: getattr(index, name) for name in ARRAYS}
    if index.oriented is not None:
        arrays["oriented"] = index.oriented
    with suppress(OSError, ValueError):  # no room, no permission, a path that is not text
        encoded = np.frombuffer(msgspec.json.encode(facts, enc_hook=str), dtype=np.uint8)
        strings = {"text": index.files.text, "ends": index.files.ends}
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, facts=encoded, **strings, **arrays)


def load_index(path: Path) -> DetectionIndex | None:
    """An index that was kept; None if there is none, or if its files have changed since."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            facts = json.loads(kept["facts"].tobytes())
            if facts["version"] != [CACHE_VERSION, __version__]:
                return None
            if _sources(facts["sources"]).fingerprint() != facts["fingerprint"]:
                return None
            index = DetectionIndex(
                layout=facts["layout"],
                root=Path(facts["root"]),
                split=facts["split"],
                classes=tuple(facts["classes"]),
                images=_image_files(*facts["images"]),
                files=Strings(kept["text"], kept["ends"]),
                problems=tuple(Problem(**problem) for problem in facts["problems"]),
                oriented=kept.get("oriented"),
                **{name: kept[name] for name in ARRAYS},
            )
            return index if _resolves(index) else None
    except Exception:  # damaged or from elsewhere: whatever it is, the data set can be read again
        return None


def _resolves(index: DetectionIndex) -> bool:
    """Whether all images are where the index says, so that a mistake in it does not stay."""
    if isinstance(index.images, TarImages):  # their sizes and times are in the fingerprint
        return all(map(is_file, index.images.shards))
    return not index.images.missing(index.files)


def _sources(paths: dict[str, list[str]]) -> Sources:
    return Sources(tuple(map(Path, paths["contents"])), tuple(map(Path, paths["names"])))


def _image_files(kind: str, fields: dict[str, Any]) -> ImageFiles:
    # The hook makes paths of what the file holds as text.
    return msgspec.convert(fields, IMAGE_FILES[kind], dec_hook=lambda type_, value: type_(value))
