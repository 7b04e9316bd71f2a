"""CSV files with a box per row: with a header as for TensorFlow, or as for RetinaNet without."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from alphaiou.data.formats.base import (
    Collection,
    Format,
    FoundSplit,
    ListedImages,
    NothingUsableError,
    read_classes,
)
from alphaiou.data.formats.files import (
    FolderImages,
    file_names,
    is_file,
    is_folder,
    is_image,
    names_below,
    open_file,
    place_by_name,
    read_limited,
    reason,
    top_folder,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.splits import USUAL_SPLITS, file_split, folder_split, split_name
from alphaiou.data.formats.voc import CLASSES_FILE, LARGEST_SIDE, number
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import BrokenFileError, DataError, Problem

LARGEST_FILE = 1 << 30
#: How many files are looked into, and how many bytes of each, to recognise the layout.
FILES_SNIFFED, BYTES_SNIFFED = 50, 1 << 14
#: The names of each column, in small letters.
_NAMES = {
    "filename": ("filename", "file_name", "file", "image", "image_name", "image_path", "path"),
    "class": ("class", "class_name", "label", "label_name", "category", "name"),
    "xmin": ("xmin", "x_min", "x1", "left"),
    "ymin": ("ymin", "y_min", "y1", "top"),
    "xmax": ("xmax", "x_max", "x2", "right"),
    "ymax": ("ymax", "y_max", "y2", "bottom"),
    "width": ("width", "image_width", "img_width"),
    "height": ("height", "image_height", "img_height"),
    "split": ("split", "subset"),
}
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_NEEDED = ("filename", *_CORNERS, "class")
#: The names of classes with their numbers, as RetinaNet's tools write them.
_CLASS_FILES = ("classes.csv", "_classes.csv", "class.csv", "class_map.csv")


class _Columns(NamedTuple):
    """Where the columns of a file are, what separates them, and whether they have names."""

    places: dict[str, int]
    separator: str
    header: bool


@dataclass
class _Image:
    """The rows of an image."""

    line: int
    size: tuple[int, int] | None = None
    boxes: list[tuple[int, str, tuple[float, ...]]] = field(default_factory=list)


def _columns(path: Path) -> _Columns | None:
    """The columns of a file; None if it is no file of boxes."""
    try:
        with open_file(path) as file:
            start = file.read(BYTES_SNIFFED).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return None
    line = start.decode("utf-8", "replace").lstrip().partition("\n")[0].strip("\r")
    separator = max(",;\t", key=line.count)
    try:
        cells = [cell.strip() for cell in next(csv.reader([line], delimiter=separator), [])]
    except csv.Error:
        return None
    names = [cell.lower() for cell in cells]
    places = {
        column: next(names.index(name) for name in known if name in names)
        for column, known in _NAMES.items()
        if any(name in names for name in known)
    }
    if "filename" in places and any(corner in places for corner in _CORNERS):
        return _Columns(places, separator, header=True)
    box = cells[1:5]
    numeric = not any(box) or not any(math.isnan(number(cell)) for cell in box)
    if len(cells) == len(_NEEDED) and is_image(cells[0]) and numeric:
        places = {name: place for place, name in enumerate(_NEEDED)}
        return _Columns(places, separator, header=False)
    return None


def _files(path: Path) -> list[Path]:
    """The files of boxes of a data set."""
    if is_file(path):
        return [path]
    names = [name for name in names_below(path) if name.lower().endswith(".csv")]
    return [path / name for name in names[:FILES_SNIFFED] if _columns(path / name)]


def _splits_of_files(path: Path) -> dict[Path, str]:
    """The split of each file, unless its rows have one of their own."""
    files = _files(path)
    splits = {}
    for file in files:
        inside = file.relative_to(path).as_posix() if file != path else file.name
        splits[file] = folder_split(inside) or file_split(file.stem, file.parent.name)
    if len(files) == 1 and splits[files[0]] not in USUAL_SPLITS:
        return {files[0]: "train"}
    return splits


# --- reading --------------------------------------------------------------------------------------


def read_csv(path: Path, split: str) -> DetectionIndex:
    """Read one split.

    Corners are taken as written: pixels from 0, the right and lower ones after the last pixel, as
    TensorFlow's and RetinaNet's tools understand them. A row whose corners are empty is an image
    without objects. The classes are those of ``classes.txt``, or of ``classes.csv`` with the
    columns name and number, else all names in the files of all splits, sorted.

    Args:
        path: The file, or the folder.
        split: The value of a column ``split``, else what the name of the file or folder says;
            ``train`` where there is one file.

    Raises:
        DataError: A file cannot be used, there is no such split, or it has no usable image.
    """
    base = Path(os.path.abspath(path.parent if is_file(path) else path))  # noqa: PTH100
    found = Collection("line")
    numbers: dict[str, int] = {}
    every: set[str] = set()
    splits: dict[str, None] = {}
    listed = ListedImages(base, found)
    for file, default in _splits_of_files(path).items():
        images = _read_rows(file, default, found.problems if default == split else None)
        splits |= dict.fromkeys(images)
        for of_split in images.values():
            every.update(name for image in of_split.values() for _, name, _ in image.boxes)
        wanted = images.get(split, {})
        places = place_by_name(file, wanted, split)
        for name, image in wanted.items():
            if listed.add(places[name], image.size, file, image.line):
                _add_boxes(file, image, found, numbers)
    if split not in splits and not found.problems:
        there = ", ".join(splits) or "none"
        raise DataError(f"{path}: has no split {split!r}; there are: {there}")
    if not len(found):
        message = f"{path}: {split}: none of the images can be used"
        raise NothingUsableError(message, found.problems)
    classes = _find_classes(base) or tuple(sorted(every))
    return found.index(
        "csv",
        path,
        split,
        images=FolderImages(base, anywhere=True),
        classes=classes,
        labels={numbers[name]: label for label, name in enumerate(classes) if name in numbers},
        names={number: name for name, number in numbers.items()},
    )


def _rows(file: Path, columns: _Columns) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, less the header, with their lines."""
    try:
        text = read_limited(file, LARGEST_FILE).decode("utf-8")
    except UnicodeDecodeError:
        raise BrokenFileError(f"{file}: is not UTF-8; save it as CSV in UTF-8") from None
    except OSError as error:
        raise BrokenFileError(
            f"{file}: cannot be read: {reason(error)}; put a CSV file there"
        ) from None
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=columns.separator)
    header = columns.header
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise BrokenFileError(
                f"{file}: line {reader.line_num}: is no row of a CSV file: {error}; correct it"
            ) from None
        if row is None:
            return
        if not any(map(str.strip, row)):
            continue
        if header:
            header = False
            continue
        yield reader.line_num, [cell.strip() for cell in row]


def _read_rows(
    file: Path, default: str, problems: list[Problem] | None
) -> dict[str, dict[str, _Image]]:
    """The images of each split in a file, by name; problems are noted where they are wanted."""
    columns = _columns(file)
    if columns is None:
        raise BrokenFileError(
            f"{file}: is no table of boxes; the columns are {', '.join(_NEEDED)}, with a header "
            "or in this order"
        )
    if lacking := [name for name in _NEEDED if name not in columns.places]:
        raise BrokenFileError(
            f"{file}: has no column {' and no column '.join(lacking)}; "
            f"a table of boxes has {', '.join(_NEEDED)}"
        )
    splits: dict[str, dict[str, _Image]] = {}
    fractions = True
    for line, row in _rows(file, columns):
        cell = {name: row[place] for name, place in columns.places.items() if place < len(row)}
        if len(cell) < len(columns.places) or not cell["filename"]:
            if problems is not None:
                what = "no name of an image" if len(cell) == len(columns.places) else ""
                detail = f"it has {what or f'{len(row)} columns, too few'}"
                remedy = f"write {', '.join(columns.places)}"
                where, kind = f"line {line}", "line-broken"
                problems.append(Problem(str(file), where, kind, detail, remedy, "box left out"))
            continue
        images = splits.setdefault(split_name(cell.get("split") or default), {})
        image = images.setdefault(cell["filename"], _Image(line))
        width, height = (number(cell.get(name, "")) for name in ("width", "height"))
        if 1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE:
            image.size = (int(width), int(height))
        if not any(cell[name] for name in (*_CORNERS, "class")):
            continue
        corners = tuple(number(cell[name]) for name in _CORNERS)
        image.boxes.append((line, cell["class"], corners))
        fractions = fractions and all(0 <= value <= 1 for value in corners)
    boxes = [box for images in splits.values() for image in images.values() for box in image.boxes]
    if fractions and any(value % 1 for _, _, corners in boxes for value in corners):
        raise BrokenFileError(
            f"{file}: {', '.join(_CORNERS)}: are fractions of the image; "
            "multiply them by its width and height"
        )
    return splits


def _find_classes(base: Path) -> tuple[str, ...] | None:
    if (classes := read_classes(base / CLASSES_FILE)) is not None:
        return classes
    there = file_names(base)
    for file in (base / name for name in _CLASS_FILES if name in there):
        columns = _Columns({}, ",", header=False)
        rows = [row for _, row in _rows(file, columns)]
        wrong = any(len(row) != 2 or not row[0] or not row[1].isdecimal() for row in rows)
        if wrong or len({row[0] for row in rows}) < len(rows) or not rows:
            raise BrokenFileError(f"{file}: needs a name and a number per row, each name once")
        return tuple(name for name, _ in sorted(rows, key=lambda row: int(row[1])))
    return None


def _add_boxes(file: Path, image: _Image, found: Collection, numbers: dict[str, int]) -> None:
    for line, name, corners in image.boxes:
        if name:
            found.add_box(corners, numbers.setdefault(name, len(numbers)), line)
            continue
        detail, remedy = "the class is empty", "write its name there"
        problem = Problem(str(file), f"line {line}", "class-name", detail, remedy, "box left out")
        found.problems.append(problem)


# --- the format -----------------------------------------------------------------------------------


def _splits(path: Path) -> tuple[str, ...]:
    splits = {
        split
        for file, default in _splits_of_files(path).items()
        for split in _read_rows(file, default, None)
    }
    return tuple(sorted(splits))


def _recognise(path: Path) -> bool:
    if is_file(path):
        return path.suffix.lower() == ".csv"
    return is_folder(path) and bool(_files(path))


def _find(path: Path, split: str) -> FoundSplit:
    files: Sequence[Path] = _files(path)
    tops = dict.fromkeys([path, *map(top_folder, files)])
    return FoundSplit(Sources(tuple(tops)), lambda: read_csv(path, split))


FORMAT = Format(
    signs="a .csv file of boxes: filename,xmin,ymin,xmax,ymax,class in any order with a header",
    recognise=_recognise,
    splits=_splits,
    find=_find,
    broken_kind="csv-broken",
)
