"""Darknet: ``obj.data``, ``obj.names``, lists of images, and their boxes in text files beside them.

CVAT exports it as "YOLO 1.1", Roboflow as "YOLO Darknet". LabelImg writes the images and text files
with a ``classes.txt`` alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from alphaiou.data.formats.base import (
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
)
from alphaiou.data.formats.files import (
    FolderImages,
    exists,
    file_names,
    folders_in,
    is_file,
    is_folder,
    is_image,
    names_below,
    read_limited,
    reason,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.splits import folder_split, split_name
from alphaiou.data.formats.yolo import find_config, label_path, read_image, read_lines
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import BrokenFileError, DataError, Problem

LARGEST_FILE = 1 << 20
#: Files of one class per line, beside ``*.names``; the second is Roboflow's.
_NAMES = ("classes.txt", "_darknet.labels")
_LISTS = ("train", "valid", "val", "test")


@dataclass(frozen=True)
class _Description:
    """What a data set has.

    Attributes:
        file: The file to name in messages.
        base: The folder of the data set, absolute.
        names: The file of the names of the classes.
        splits: The list of images of each split, or a folder of images.
        folders: The images of each split where no list names them.
    """

    file: Path
    base: Path
    names: Path
    splits: dict[str, Path]
    folders: dict[str, list[str]]


def describe(path: Path) -> _Description | None:
    """Find the files of a data set; None if it is none.

    Raises:
        DataError: The ``.data`` file cannot be used.
    """
    if (config := _data_file(path)) is not None:
        return _of_data_file(config)
    base = Path(os.path.abspath(path))  # noqa: PTH100 - links keep their names
    names = [file for folder in (base, *folders_in(base)) for file in _names_files(folder)]
    if not names or find_config(path) or is_folder(path / "labels"):
        return None
    files = names_below(base)
    stems = {name.rpartition(".")[0] for name in files if name.lower().endswith(".txt")}
    images = list(filter(is_image, files))
    if not any(name.rpartition(".")[0] in stems for name in images):
        return None
    lists = {split_name(name): base / f"{name}.txt" for name in _LISTS}
    lists = {split: file for split, file in lists.items() if is_file(file) and _is_list(file)}
    folders: dict[str, list[str]] = {}
    for name in [] if lists else images:
        folders.setdefault(folder_split(name) or "train", []).append(name)
    return _Description(names[0], base, names[0], lists, folders)


def _data_file(path: Path) -> Path | None:
    if path.suffix == ".data":
        return path
    files = sorted(name for name in file_names(path) if name.endswith(".data"))
    return path / files[0] if len(files) == 1 else None


def _names_files(folder: Path) -> list[Path]:
    names = sorted(file_names(folder))
    return [folder / name for name in names if name.endswith(".names") or name in _NAMES]


def _is_list(file: Path) -> bool:
    try:
        lines = read_limited(file, LARGEST_FILE << 8).split(b"\n", 1)
    except OSError:
        return False
    return is_image(lines[0].strip().decode("utf-8", "surrogateescape"))


def _of_data_file(file: Path) -> _Description:
    base = Path(os.path.abspath(file.parent))  # noqa: PTH100 - links keep their names
    try:
        text = read_limited(file, LARGEST_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(
            f"{file}: cannot be read: {reason(error)}; write lines such as names = obj.names"
        ) from None
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    fields = {key.strip(): value.strip() for key, sign, value in pairs if sign}
    if not fields.get("names"):
        raise BrokenFileError(
            f"{file}: names: is not there; write the file of class names, such as names = obj.names"
        )
    places: dict[str, Path] = {}
    for field in ("names", "train", "valid", "test"):
        if not (entry := fields.get(field)):
            continue
        places[field] = place = _resolve(entry, base)
        if not exists(place):
            raise BrokenFileError(
                f"{file}: {field}: there is no {entry[:300]}, in {base} either; correct the entry"
            )
    names = places.pop("names")
    count = fields.get("classes")
    if count is not None and is_file(names) and count != str(len(_read_names(names))):
        raise BrokenFileError(
            f"{file}: classes: is {count[:80]!r}, but {names.name} has {len(_read_names(names))}; "
            "correct one of them"
        )
    if not places:
        raise BrokenFileError(f"{file}: train: is not there; write the list of images there")
    return _Description(file, base, names, {split_name(k): v for k, v in places.items()}, {})


def _resolve(entry: str, *folders: Path) -> Path:
    """Find a path that is relative to the folder darknet was run in, which is not known.

    It, or what is left of it without its first folders, is in one of ``folders``.
    """
    parts = PurePosixPath(entry.replace("\\", "/").replace("\0", "\\0")).parts
    for start in range(len(parts)):
        for folder in folders:
            place = folder.joinpath(*parts[start:])
            if exists(place):
                return Path(os.path.abspath(place))  # noqa: PTH100 - links keep their names
    return folders[0].joinpath(*parts)


def _read_names(file: Path) -> tuple[str, ...]:
    """The names in their order; empty lines at the end do not count."""
    try:
        text = read_limited(file, LARGEST_FILE).decode("utf-8").rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokenFileError(
            f"{file}: the names of the classes cannot be read: {reason(error)}; "
            "write them in UTF-8, one per line"
        ) from None
    names = tuple(line.strip() for line in text.splitlines())
    if not names:
        raise BrokenFileError(f"{file}: names no class; write one per line")
    for number, name in enumerate(names, 1):
        if not name or name in names[: number - 1]:
            wrong = f"{name!r} again" if name else "empty"
            raise BrokenFileError(
                f"{file}: line {number} is {wrong}; give each class a name of its own"
            )
    return names


def read_darknet(path: Path, split: str) -> DetectionIndex:
    """Read one split.

    The boxes of ``a.jpg`` are in ``a.txt`` beside it, or in ``labels`` where the image is in
    ``images``; a line is ``class cx cy w h`` in fractions of the image. An image without that file
    has no objects. Paths in ``obj.data`` and in lists may have been written for another working
    directory: folders at their start that do not exist are passed over.

    Args:
        path: The ``.data`` file, or the folder.
        split: ``train``, ``val`` or ``test``.

    Raises:
        DataError: A file cannot be used, there is no such split, or it has no usable image.
    """
    description = _described(path)
    classes = _read_names(description.names)
    found = Collection("line")
    listed = 0
    for image in _images(description, split, found.problems):
        listed += 1
        beside, apart = image.with_suffix(".txt"), label_path(image)
        label = apart if exists(apart) and not exists(beside) else beside
        read_image(image, label, description.base, found)
    if not len(found):
        message = f"{description.file}: {split}: of {listed} images none can be used"
        raise NothingUsableError(message, found.problems)
    return found.index(
        "darknet",
        path,
        split,
        images=FolderImages(description.base, anywhere=True),
        classes=classes,
        labels={number: number for number in range(len(classes))},
        names=dict(enumerate(classes)),
    )


def _described(path: Path) -> _Description:
    if (description := describe(path)) is None:
        raise DataError(f"{path}: is no darknet data set; it needs a .data or .names file")
    return description


def _images(description: _Description, split: str, problems: list[Problem]) -> Iterator[Path]:
    """The images of a split, each once."""
    if split in description.folders:
        yield from (description.base / name for name in description.folders[split])
        return
    place = description.splits.get(split)
    if place is None:
        there = ", ".join(_split_names(description)) or "none"
        raise DataError(f"{description.file}: has no split {split!r}; there are: {there}")
    if is_folder(place):
        yield from (place / name for name in names_below(place) if is_image(name))
        return
    seen: set[Path] = set()
    for number, line in read_lines(place):
        image = _resolve(line, place.parent, description.base)
        if image in seen:
            detail, remedy = f"{image} is listed again", "remove the repetition"
            where, kind = f"line {number}", "image-duplicate"
            problems.append(Problem(str(place), where, kind, detail, remedy, "image left out"))
            continue
        seen.add(image)
        yield image


def _split_names(description: _Description) -> tuple[str, ...]:
    return (*description.splits, *description.folders)


# --- the format -----------------------------------------------------------------------------------


def _recognise(path: Path) -> bool:
    config = _data_file(path)
    if config is not None:
        try:
            text = read_limited(config, LARGEST_FILE)
        except OSError:  # reported when it is read
            return True
        fields = re.search(rb"^\s*(names|train|classes)\s*=", text, re.MULTILINE)
        return path == config or fields is not None
    return is_folder(path) and describe(path) is not None


def _find(path: Path, split: str) -> FoundSplit:
    description = _described(path)
    places: Sequence[Path] = [description.base, description.names, *description.splits.values()]
    return FoundSplit(Sources(tuple(places)), lambda: read_darknet(path, split))


FORMAT = Format(
    signs="obj.data, or a .names file or classes.txt with images and .txt files together",
    recognise=_recognise,
    splits=lambda path: _split_names(_described(path)),
    find=_find,
)
