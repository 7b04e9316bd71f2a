"""DOTA: oriented boxes as four corners, in a folder ``labelTxt`` beside the folder ``images``.

A line is ``x1 y1 x2 y2 x3 y3 x4 y4 class difficult``, in pixels; lines such as ``gsd:0.146`` before
them are passed over. The two folders are those of a split, ``train/images`` and ``train/labelTxt``,
or hold the folders of splits, or are all there is. ``annfiles``, as MMRotate calls it, and
``labelTxt-v1.5`` are ``labelTxt`` too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from alphaiou.data.formats.base import (
    EXTRAS,
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
    read_classes,
)
from alphaiou.data.formats.files import (
    FolderImages,
    files_below,
    folders_in,
    is_folder,
    read_limited,
    reason,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.splits import split_name
from alphaiou.data.formats.voc import CLASSES_FILE
from alphaiou.data.formats.writing import (
    Placing,
    flat_names,
    place_images,
    shortest,
    writing_folder,
)
from alphaiou.data.formats.yolo import images_in
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError, Effect, Problem

LABELS_FOLDER = re.compile(r"labelTxt.*|annfiles", re.IGNORECASE)
HEADER = re.compile(r"(imagesource|gsd|acquisition dates)\s*:", re.IGNORECASE)
LARGEST_LABEL_FILE = 1 << 24
LONGEST_NAME = 200
CORNER_NUMBERS = 8


class _Folders(NamedTuple):
    """The folders of a split."""

    images: Path
    labels: Path


class _Line(NamedTuple):
    """An object."""

    corners: list[float]
    name: str
    is_difficult: bool


def _splits(root: Path) -> dict[str, _Folders]:
    """The folders of each split."""
    pair = _pair(root)
    if pair is None:
        pairs = {split_name(folder.name): _pair(folder) for folder in folders_in(root)}
        return {split: pair for split, pair in pairs.items() if pair is not None}
    names = {folder.name for folder in folders_in(pair.images)}
    inside = [folder for folder in folders_in(pair.labels) if folder.name in names]
    if not inside:
        return {"train": pair}
    return {split_name(f.name): _Folders(pair.images / f.name, f) for f in inside}


def _pair(folder: Path) -> _Folders | None:
    labels = [one for one in folders_in(folder) if LABELS_FOLDER.fullmatch(one.name)]
    if not labels or not is_folder(folder / "images"):
        return None
    if len(labels) > 1:
        raise DataError(
            f"{folder}: has {labels[0].name} and {labels[1].name}; move one of them elsewhere"
        )
    return _Folders(folder / "images", labels[0])


def read_dota(root: Path, split: str) -> DetectionIndex:
    """Read one split.

    The oriented box of an object is the smallest one around its corners. The classes are those of
    ``classes.txt`` in the folder, else all names in the labels of all splits, sorted.

    Args:
        root: The folder of the data set.
        split: The name of a split; ``train`` where there are no folders of splits.

    Raises:
        DataError: There is no such split, or nothing of it can be used.
    """
    splits = _splits(root)
    if split not in splits:
        there = ", ".join(splits) or "none"
        raise DataError(f"{root}: has no split {split!r}; there are: {there}")
    folders, found = splits[split], Collection("line", is_oriented=True)
    numbers: dict[str, int] = {}
    labels = _by_stem(folders.labels)
    for path in images_in(folders.images):
        label = labels.pop(path.stem, None)
        if label is None:
            detail = f"there is no {path.stem}.txt in {folders.labels}"
            _say(found, path, "image-without-label", detail, "add one, empty without objects")
        else:
            _read_image(path, label, root, found, numbers)
    for label in labels.values():
        detail = f"there is no image of this name in {folders.images}"
        _say(found, label, "image-missing", detail, "put the image there, or remove the file")
    if not len(found):
        message = f"{root}: {split}: no image with labels can be used"
        raise NothingUsableError(message, found.problems)
    others = (other.labels for name, other in splits.items() if name != split)
    names = read_classes(root / CLASSES_FILE) or tuple(
        sorted(set(numbers).union(*map(_names_in, others)))
    )
    return found.index(
        "dota",
        root,
        split,
        images=FolderImages(root),
        classes=names,
        labels={numbers[name]: label for label, name in enumerate(names) if name in numbers},
        names={number: name for name, number in numbers.items()},
    )


def _by_stem(labels: Path) -> dict[str, Path]:
    return {path.stem: path for path in sorted(files_below(labels, ".txt"))}


def _read_image(
    path: Path, label: Path, root: Path, found: Collection, numbers: dict[str, int]
) -> None:
    """Add an image and its objects, or note why not; a class gets a number when first met."""
    from alphaiou.data.images import ImageError, image_size

    try:
        size = image_size(path)
        lines = list(_lines(label))
    except ImageError as error:
        _say(found, path, error.kind, error.why, "replace the image")
        return
    except OSError as error:
        detail = f"it cannot be read: {reason(error)}"
        _say(found, label, "line-broken", detail, "write one object per line")
        return
    found.add_image(path.relative_to(root).as_posix(), size, str(label))
    for number, line in lines:
        if isinstance(line, str):
            remedy = "write x1 y1 x2 y2 x3 y3 x4 y4 class difficult, in pixels"
            _say(found, label, "line-broken", line, remedy, line=number)
            continue
        label_number = numbers.setdefault(line.name, len(numbers))
        found.add_box(line.corners, label_number, number, int(line.is_difficult))


def _lines(label: Path) -> Iterator[tuple[int, _Line | str]]:
    """The objects of a file by the numbers of their lines, or what is wrong with the line."""
    text = read_limited(label, LARGEST_LABEL_FILE).decode("utf-8", "replace")
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if fields and not HEADER.match(line.strip()):
            yield number, _parsed(fields)


def _parsed(fields: list[str]) -> _Line | str:
    if not CORNER_NUMBERS < len(fields) <= CORNER_NUMBERS + 2:
        return f"it has {len(fields)} columns; an object has 10, or 9 without difficult"
    try:
        corners = [float(field) for field in fields[:CORNER_NUMBERS]]
    except ValueError:
        return f"{' '.join(fields[:CORNER_NUMBERS])[:60]!r} are not all numbers"
    mark = fields[CORNER_NUMBERS + 1] if len(fields) > CORNER_NUMBERS + 1 else "0"
    if not re.fullmatch("[0-9]", mark):
        return f"difficult is {mark[:60]!r}, not 0 or 1"
    name = fields[CORNER_NUMBERS]
    if len(name) > LONGEST_NAME:
        return f"the name of the class has {len(name):,} characters"
    return _Line(corners, name, mark != "0")


def _names_in(labels: Path) -> set[str]:
    """The names of all classes in the label files of a folder."""
    names = set()
    for path in files_below(labels, ".txt"):
        try:
            names |= {line.name for _, line in _lines(path) if isinstance(line, _Line)}
        except OSError:  # to be said when the split is read
            continue
    return names


def _say(
    found: Collection,
    file: Path,
    kind: str,
    detail: str,
    remedy: str,
    *,
    line: int | None = None,
) -> None:
    where = "" if line is None else f"line {line}"
    effect: Effect = "image left out" if line is None else "box left out"
    found.problems.append(Problem(str(file), where, kind, detail, remedy, effect))


# --- writing --------------------------------------------------------------------------------------


def write_dota(index: DetectionIndex, out: Path, *, images: Placing = "none") -> None:
    """Write an index with full precision, axis-aligned boxes as rectangles that are not turned.

    Labels go to ``<split>/labelTxt``, images to ``<split>/images``, the classes to ``classes.txt``.

    Args:
        index: What to write.
        out: The folder to make, or to add this split to.
        images: Place the images by hard link, by copy, or not at all.

    Raises:
        DataError: A file is there already with other content, the folder has other classes, a class
            has a name that a line cannot hold, or an image cannot be read.
    """
    for name in index.classes:
        if name.split() != [name]:
            raise DataError(f"{out}: a line cannot hold the class {name!r}; rename it")
    if read_classes(out / CLASSES_FILE) not in (None, index.classes):
        raise DataError(f"{out / CLASSES_FILE}: has other classes; write to another folder")
    names = flat_names(index.files)
    with writing_folder(out) as folder:
        half = folder / index.split
        place_images(index.images, index.files, half / "images", names, images)
        (half / "images").mkdir(parents=True, exist_ok=True)
        (half / "labelTxt").mkdir(parents=True)
        for image, name in enumerate(names):
            path = half / "labelTxt" / PurePosixPath(name).with_suffix(".txt").name
            path.write_text(_text(index, image), encoding="utf-8", newline="\n")
        text = "".join(f"{name}\n" for name in index.classes)
        (folder / CLASSES_FILE).write_text(text, encoding="utf-8", newline="\n")


def _text(index: DetectionIndex, image: int) -> str:
    rows = index.rows(image)
    marks = (index.difficult[rows] | index.crowd[rows]).astype(int).tolist()
    names = [index.classes[label] for label in index.labels[rows]]
    corners = index.corners(image).reshape(-1, CORNER_NUMBERS).tolist()
    lines = zip(corners, names, marks, strict=True)
    return "".join(f"{' '.join(map(shortest, c))} {name} {mark}\n" for c, name, mark in lines)


# --- the format -----------------------------------------------------------------------------------


def _recognise(path: Path) -> bool:
    try:
        return is_folder(path) and bool(_splits(path))
    except DataError:  # to be said when the data set is read
        return True


def _find(path: Path, split: str) -> FoundSplit:
    # The names of classes are in the files of all splits.
    return FoundSplit(Sources((path,)), lambda: read_dota(path, split))


FORMAT = Format(
    signs="the folders images and labelTxt (or annfiles), also per split",
    recognise=_recognise,
    splits=lambda path: tuple(_splits(path)),
    find=_find,
    write=write_dota,
    lacks={
        "crowd": "crowds, marked difficult instead",
        **{
            name: EXTRAS[name]
            for name in ("areas", "category_ids", "image_ids", "box_ids", "truncated")
        },
    },
)
