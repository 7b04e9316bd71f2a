"""YOLO: a ``data.yaml``, and one text file of boxes per image."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import yaml

from alphaiou._shapes import Float64, Int32
from alphaiou.data.formats.base import (
    CLASS_NAME_REMEDY,
    EXTRAS,
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
    misnamed,
    read_classes,
    stray_label,
)
from alphaiou.data.formats.files import (
    IMAGE_SUFFIXES,
    FolderImages,
    exists,
    file_names,
    files_below,
    folders_in,
    image_stems,
    is_file,
    is_folder,
    names_below,
    read_limited,
    reason,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.splits import USUAL_SPLITS, split_name
from alphaiou.data.formats.writing import (
    Placing,
    flat_names,
    place_images,
    shortest,
    writing_folder,
)
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import BrokenFileError, DataError, Effect, Problem

CONFIG_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
LARGEST_FILE = 1 << 20
LARGEST_LABEL_FILE = 1 << 24
LARGEST_LIST = 1 << 28
LONGEST_PATH = 1 << 12
DEEPEST_NESTING = 8
_NOTHING = ("", "~", "null", "Null", "NULL", "None")
# All values stay texts: no objects, no dates, and a class may be called "no".
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


# --- data.yaml ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class YoloConfig:
    """What a ``data.yaml`` says.

    Attributes:
        file: The file.
        base: The folder that its paths are relative to.
        classes: The name of each class.
        splits: The folders of images and lists of images of each split, as they are written.
    """

    file: Path
    base: Path
    classes: tuple[str, ...]
    splits: dict[str, tuple[str, ...]]


def find_config(path: Path) -> Path | None:
    """The configuration that a path is, or that the folder holds; None if there is none.

    By its usual name; or by any, if it is the one YAML file of the folder that names classes.
    """
    if path.suffix in (".yaml", ".yml"):
        return path
    for name in CONFIG_NAMES:
        if os.path.lexists(path / name):  # even a dangling link: it is to be said, not passed over
            return path / name
    others = [path / name for name in file_names(path) if name.endswith((".yaml", ".yml"))]
    naming = [file for file in others if _names_classes(file)]
    return naming[0] if len(naming) == 1 else None


def _names_classes(path: Path) -> bool:
    try:
        return re.search(rb"^(names|nc)\s*:", read_limited(path, LARGEST_FILE), re.M) is not None
    except OSError:
        return False


def read_config(path: Path) -> YoloConfig:
    """Read a ``data.yaml``; or make one up for a folder with ``images`` and ``labels``.

    Raises:
        DataError: It is no such file; the message names the field.
    """
    if is_folder(path) and path.suffix not in (".yaml", ".yml"):
        return _config_of_folders(path)
    content = _load(path)
    folder = _absolute(path.parent / _text(path, "path", content.get("path", "")))
    splits = {}
    for key, value in content.items():
        entries = _entries(value)
        name = split_name(key)
        if entries and (name in USUAL_SPLITS or _looks_like_split(path, folder, key, entries)):
            splits[name] = entries
    base = folder if is_folder(folder) else _absolute(path.parent)
    return YoloConfig(path, base, _classes(path, content), splits)


def _config_of_folders(root: Path) -> YoloConfig:
    """A split for each folder in ``images``, or with folders ``images`` and ``labels``.

    The classes are those of ``classes.txt``, which labelling tools put beside the folders or beside
    the labels; else as many nameless ones as the labels need.
    """
    splits: dict[str, tuple[str, ...]] = {
        split_name(folder.name): (f"images/{folder.name}",)
        for folder in folders_in(root / "images")
    }
    halves = [root] if is_folder(root / "labels") else _split_folders(root)
    if halves != [root]:
        splits = {split_name(half.name): (f"{half.name}/images",) for half in halves}
    names = (path for half in halves for path in files_below(half / "labels", "classes.txt"))
    files = [root / "classes.txt", *(half / "classes.txt" for half in halves), *names]
    named = {read_classes(file): file for file in files if os.path.lexists(file)}
    if len(named) > 1:
        first, second = list(named.values())[:2]
        raise BrokenFileError(f"{second}: has other classes than {first}; keep one of the two")
    numbers = [
        _largest_class(path)
        for half in ([] if named else halves)
        for path in files_below(half / "labels", ".txt")
    ]
    nameless = tuple(f"class {number}" for number in range(max(numbers, default=-1) + 1))
    classes = next((names for names in named if names), nameless)
    return YoloConfig(root, _absolute(root), classes, splits or {"train": ("images",)})


def _split_folders(root: Path) -> list[Path]:
    """The folders with images and labels that are named like a split."""
    usual = [folder for folder in folders_in(root) if split_name(folder.name) in USUAL_SPLITS]
    return list(filter(_has_folders, usual))


def _has_folders(folder: Path) -> bool:
    """Whether there are images and labels that are not of another layout."""
    if not is_folder(folder / "images") or not is_folder(folder / "labels"):
        return False
    others = (".xml", ".json", ".csv")
    suffixes = {PurePosixPath(name).suffix.lower() for name in names_below(folder / "labels")}
    return ".txt" in suffixes or suffixes.isdisjoint(others)


def _absolute(path: Path) -> Path:
    """The path from any working directory; links keep their names."""
    return Path(os.path.abspath(path))  # noqa: PTH100


def _largest_class(labels: Path) -> int:
    """The largest class in a file of labels; -1 where there is none that can be read."""
    try:
        words = [
            line.partition(b" ")[0] for line in read_limited(labels, LARGEST_FILE).splitlines()
        ]
    except OSError:
        return -1
    # More digits than these are no class but a mistake, to be said when the file is read.
    return max((int(word) for word in words if re.fullmatch(rb"[0-9]{1,4}", word)), default=-1)


def _load(path: Path) -> dict[str, Any]:
    try:
        data = read_limited(path, LARGEST_FILE)
    except (OSError, ValueError) as error:
        raise BrokenFileError(
            f"{path}: cannot be used: {reason(error)}; put a small YAML file there"
        ) from None
    try:
        _refuse_tricks(path, data)
        content = yaml.load(data, Loader=_LOADER)
    except (yaml.YAMLError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        problem = " ".join(str(error).replace('in "<byte string>", ', "").split())
        raise BrokenFileError(f"{path}: is not YAML ({problem}); correct the file") from None
    if not isinstance(content, dict):
        raise BrokenFileError(
            f"{path}: needs the fields train, val and names; it holds something else"
        )
    return content


def _refuse_tricks(path: Path, data: bytes) -> None:
    """Stop before anything is built at aliases, tags and deep nesting: no data.yaml needs them."""
    depth = 0
    for event in yaml.parse(data, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BrokenFileError(
                f"{path}: uses anchors or aliases, which are refused; write values out"
            )
        if tag := getattr(event, "tag", None):
            raise BrokenFileError(f"{path}: uses the tag {tag!r}, which is refused; remove it")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST_NESTING:
            raise BrokenFileError(f"{path}: is nested too deeply; it needs a mapping of fields")


def _classes(path: Path, content: dict[str, Any]) -> tuple[str, ...]:
    names, count = content.get("names"), content.get("nc")
    if isinstance(names, dict):
        by_number = {int(key): name for key, name in names.items() if str(key).isdecimal()}
        if sorted(by_number) != list(range(len(names))):
            raise BrokenFileError(
                f"{path}: names: the keys are not the numbers 0 to {len(names) - 1}; correct them"
            )
        names = [by_number[number] for number in sorted(by_number)]
    if names is None and isinstance(count, str) and count.isdecimal() and int(count) < 1 << 16:
        names = [f"class {number}" for number in range(int(count))]
    if not isinstance(names, list) or not names:
        raise BrokenFileError(f"{path}: names: is no list; write the names of the classes there")
    if not all(isinstance(name, str) for name in names):
        raise BrokenFileError(f"{path}: names: holds what is no name; write texts")
    if count is not None and count != str(len(names)):
        raise BrokenFileError(
            f"{path}: nc: is {count!r}, but names has {len(names)}; correct one of them"
        )
    return tuple(names)


def _entries(value: Any) -> tuple[str, ...]:  # noqa: ANN401 - what YAML holds
    values = value if isinstance(value, list) else [value]
    return tuple(one for one in values if isinstance(one, str) and one not in _NOTHING)


def _looks_like_split(path: Path, folder: Path, key: str, entries: tuple[str, ...]) -> bool:
    if key in ("path", "names", "nc", "download"):
        return False
    places = [base / entry for entry in entries for base in (folder, path.parent)]
    return any(is_folder(place) or (exists(place) and place.suffix == ".txt") for place in places)


def _text(path: Path, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise BrokenFileError(f"{path}: {field}: is no path; write one, or remove the field")
    return "" if value in _NOTHING else value


# --- files of a split -----------------------------------------------------------------------------


def locate(config: YoloConfig, split: str, entry: str) -> Path:
    """The folder or list that an entry of a split names.

    Paths are relative to ``path``, or to the file itself. Exports of Roboflow say ``../train`` for
    a folder beside the file.

    Raises:
        DataError: There is no such file or folder.
    """
    places = [config.base / entry, config.file.parent / entry]
    if entry.startswith("../"):
        places.append(config.file.parent / entry.removeprefix("../"))
    for place in places:
        if exists(place):
            return _absolute(place)
    raise DataError(
        f"{config.file}: {split}: there is no {str(places[0])[:500]}; "
        "correct the entry, or the field path"
    )


def images_in(folder: Path) -> list[Path]:
    """The images in a folder and the folders in it, in the order of their paths.

    Folders that are named like an image are among them, to be reported as unreadable.
    """
    found = [
        Path(parent, name)
        for parent, folders, names in os.walk(folder)
        for name in (*folders, *names)
        if Path(name).suffix.lower() in IMAGE_SUFFIXES
    ]
    return sorted(found)


def label_path(image: Path) -> Path:
    """The file with the boxes of an image.

    Examples:
        >>> label_path(Path("images/set/images/train/1.jpg")).as_posix()
        'images/set/labels/train/1.txt'
    """
    head, found, tail = f"/{image.as_posix()}".rpartition("/images/")
    path = f"{head}/labels/{tail}" if found else f"/{image.as_posix()}"
    return Path(path[1:]).with_suffix(".txt")


def _entries_of(config: YoloConfig, split: str) -> tuple[str, ...]:
    entries = config.splits.get(split_name(split))
    if entries is None:
        there = ", ".join(config.splits) or "none at all"
        raise DataError(f"{config.file}: has no split {split!r}; there are: {there}")
    return entries


def _images_of(config: YoloConfig, split: str, problems: list[Problem]) -> Iterator[Path]:
    """The images of a split, each once."""
    seen: set[Path] = set()
    for entry in _entries_of(config, split):
        place = locate(config, split, entry)
        is_list = is_file(place) or place.suffix == ".txt"  # whatever it is, reading it says so
        listed = _listed(place, config.base) if is_list else enumerate(images_in(place), 1)
        for line, path in listed:
            if path not in seen:
                seen.add(path)
                yield path
                continue
            detail = f"{path} is listed again"
            problems.append(_problem(place, "image-duplicate", detail, where=f"line {line}"))


def _listed(list_file: Path, base: Path) -> Iterator[tuple[int, Path]]:
    """The lines of a list of images, relative to the list, or to ``path`` where that is right."""
    lines = read_lines(list_file)
    folder = list_file.parent
    if lines and not exists(folder / lines[0][1]) and exists(base / lines[0][1]):
        folder = base
    for number, line in lines:
        yield number, _absolute(folder / line)


def read_lines(list_file: Path) -> list[tuple[int, str]]:
    """The lines of a list that are not empty, with their numbers."""
    try:
        text = read_limited(list_file, LARGEST_LIST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise DataError(
            f"{list_file}: the list cannot be read: {reason(error)}; "
            "put a text file of image paths there"
        ) from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    # Of a path that no file can have, the start is enough for the message.
    lines = [(n, line if len(line) <= LONGEST_PATH else f"{line[:200]}…") for n, line in lines]
    return [(number, line.replace("\0", "\\0")) for number, line in lines if line]


# --- lines of label files -------------------------------------------------------------------------


class Lines(NamedTuple):
    """What the lines of label files say, which is all that the layouts of YOLO differ in.

    Attributes:
        layout: The name of the layout.
        coordinates: The pixels of a line's numbers after the class; ValueError if they are no box.
        numbers: The numbers of each box of an image, in fractions of it.
        remedy: How a line is written.
        is_oriented: Whether boxes are given by their corners.
    """

    layout: str
    coordinates: Callable[[list[float], tuple[int, int]], Sequence[float]]
    numbers: Callable[[DetectionIndex, int], Float64[np.ndarray, "n numbers"]]
    remedy: str
    is_oriented: bool = False


def _box_coordinates(values: list[float], size: tuple[int, int]) -> Sequence[float]:
    """The box of ``cx cy w h``, or around the polygon ``x y x y x y …``."""
    if len(values) < 4 or len(values) % 2:
        count = len(values) + 1
        raise ValueError(f"it has {count} columns; a box has 5, a polygon 7 or more, odd")
    x1, y1, x2, y2 = _corners(values)
    width, height = size
    return x1 * width, y1 * height, x2 * width, y2 * height


def _box_numbers(index: DetectionIndex, image: int) -> Float64[np.ndarray, "n 4"]:
    corners = index.boxes[index.rows(image)].reshape(-1, 2, 2) / index.sizes[image]
    low, high = corners[:, 0], corners[:, 1]
    return np.concatenate([(low + high) / 2, high - low], axis=1)


BOX_LINES = Lines(
    "yolo", _box_coordinates, _box_numbers, "write class cx cy w h, in fractions of the image"
)


# --- reading --------------------------------------------------------------------------------------


def read_yolo(config: Path, split: str, lines: Lines = BOX_LINES) -> DetectionIndex:
    """Read one split of a YOLO data set.

    The labels of ``…/images/…/a.jpg`` are in ``…/labels/…/a.txt``; an image without that file has
    no objects, and is counted among the problems as kept. A line is ``class cx cy w h`` in
    fractions of the image, or ``class x y x y x y …``, a polygon, of which the bounding box counts.

    Args:
        config: The ``data.yaml``.
        split: One of the splits in it; ``valid`` is ``val``.
        lines: What the lines of label files say.

    Raises:
        DataError: The file is broken, there is no such split, or it has no image that can be used.
    """
    description = read_config(config)
    found = Collection("line", is_oriented=lines.is_oriented)
    for label, why in misnamed(description.classes):
        detail = f"the name of class {label} {why}"
        found.problems.append(_problem(config, "class-name", detail, where="names", effect="kept"))
    listed = 0
    for path in _images_of(description, split, found.problems):
        listed += 1
        read_image(path, label_path(path), description.base, found, lines)
    if not listed:
        places = ", ".join(
            str(locate(description, split, e)) for e in _entries_of(description, split)
        )
        raise DataError(
            f"{config}: {split}: there is no image in {places}; "
            "put images there, or correct the entry"
        )
    if not len(found):
        message = f"{config}: {split}: of {listed} images none can be used"
        raise NothingUsableError(message, found.problems)
    classes = description.classes
    return found.index(
        lines.layout,
        config,
        split,
        images=FolderImages(description.base, anywhere=True),
        classes=classes,
        labels={number: number for number in range(len(classes))},
        names=dict(enumerate(classes)),
    )


def read_image(
    path: Path, label: Path, base: Path, found: Collection, lines: Lines = BOX_LINES
) -> None:
    """Add an image and the boxes of its label file, or note why not; names are relative to base."""
    from alphaiou.data.images import ImageError, image_size

    try:
        size = image_size(path)
        texts = read_limited(label, LARGEST_LABEL_FILE).splitlines()
    except ImageError as error:
        kind = error.kind if os.path.lexists(path) else "image-missing"
        found.problems.append(_problem(path, kind, error.why))
        return
    except FileNotFoundError:
        texts = []
        detail = f"{path.name} has no label file: it counts as an image without objects"
        found.problems.append(_problem(label, "image-without-label", detail, effect="kept"))
    except OSError as error:
        detail = f"it cannot be read: {reason(error)}"
        found.problems.append(_problem(label, "line-broken", detail, remedy=lines.remedy))
        return
    inside = path.is_relative_to(base)
    found.add_image((path.relative_to(base) if inside else path).as_posix(), size, str(label))
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            label_number, values = _numbers(text.split())
            found.add_box(lines.coordinates(values, size), label_number, number)
        except ValueError as error:
            problem = _problem(
                label,
                "line-broken",
                str(error),
                where=f"line {number}",
                effect="box left out",
                remedy=lines.remedy,
            )
            found.problems.append(problem)


def _numbers(fields: list[bytes]) -> tuple[int, list[float]]:
    """The class of a line and the numbers after it; ValueError says what is wrong with it."""
    try:
        label, *values = map(float, fields)
    except ValueError:
        raise ValueError(f"{b' '.join(fields)[:60]!r} are not all numbers") from None
    if not label.is_integer():
        raise ValueError(f"the class {fields[0].decode()[:60]} is not a whole number")
    # An unknown class may be any number, the column of labels holds those of 32 bits.
    return int(max(-1.0, min(label, 2.0**31 - 1))), values


def _corners(values: list[float]) -> tuple[float, float, float, float]:
    """The corners of ``cx cy w h``, or of the polygon ``x y x y x y …``."""
    if len(values) == 4:
        cx, cy, w, h = values
        return cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2
    if math.isnan(sum(values)):  # min and max would pass over it
        return (math.nan,) * 4
    return min(values[::2]), min(values[1::2]), max(values[::2]), max(values[1::2])


_REMEDIES = {
    "image-missing": "put the image there, or remove it from the list",
    "image-duplicate": "remove the repetition",
    "image-without-label": "add an empty file if there are no objects in the image",
    "image-unreadable": "replace the image",
    "image-truncated": "copy the image again",
    "class-name": CLASS_NAME_REMEDY,
}


def _problem(
    file: Path,
    kind: str,
    detail: str,
    *,
    where: str = "",
    effect: Effect = "image left out",
    remedy: str = "",
) -> Problem:
    return Problem(str(file), where, kind, detail, remedy or _REMEDIES[kind], effect)


# --- writing --------------------------------------------------------------------------------------


def write_yolo(
    index: DetectionIndex, out: Path, *, images: Placing = "none", lines: Lines = BOX_LINES
) -> None:
    """Write an index with full precision: reading it gives the same boxes, to rounding.

    Labels go to ``labels/<split>``, images to ``images/<split>``, and ``data.yaml`` gets the split
    besides those it has. Crowds, difficult and truncated objects become ordinary boxes: the layout
    has no word for them.

    Args:
        index: What to write.
        out: The folder to make, or to add this split to.
        images: Place the images by hard link, by copy, or not at all.
        lines: What the lines of label files say.

    Raises:
        DataError: A file is there already with other content, the folder has other classes, or an
            image cannot be read.
    """
    names = flat_names(index.files)
    config = _config(index, out / CONFIG_NAMES[0])
    with writing_folder(out, may_change=(CONFIG_NAMES[0],)) as folder:
        place_images(index.images, index.files, folder / "images" / index.split, names, images)
        labels = folder / "labels" / index.split
        labels.mkdir(parents=True)
        for image, name in enumerate(names):
            path = labels / PurePosixPath(name).with_suffix(".txt").name
            text = _label_text(index.labels[index.rows(image)], lines.numbers(index, image))
            path.write_text(text, encoding="ascii", newline="\n")
        (folder / CONFIG_NAMES[0]).write_text(config, encoding="utf-8", newline="\n")


def _label_text(labels: Int32[np.ndarray, " n"], numbers: Float64[np.ndarray, "n numbers"]) -> str:
    lines = zip(labels.tolist(), numbers.tolist(), strict=True)
    return "".join(f"{label} {' '.join(map(shortest, values))}\n" for label, values in lines)


def _config(index: DetectionIndex, path: Path) -> str:
    """The text of ``data.yaml``, with the splits that the one that is there has."""
    splits = {}
    if path.exists():
        there = read_config(path)
        if there.classes != index.classes:
            raise DataError(f"{path}: has other classes; write to another folder")
        splits = {name: entries[0] for name, entries in there.splits.items()}
    splits[index.split] = f"images/{index.split}"
    # No "path": Ultralytics takes a relative one from the working directory, not from the file.
    content = {**dict(sorted(splits.items())), "names": dict(enumerate(index.classes))}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


# --- the format -----------------------------------------------------------------------------------


def is_yolo(path: Path) -> bool:
    """Whether a path is a data set of this layout."""
    if (config := find_config(path)) is not None and is_file(config):
        return True
    return _has_folders(path) or bool(_split_folders(path))


def yolo_splits(path: Path) -> tuple[str, ...]:
    """The splits of a data set."""
    return tuple(read_config(find_config(path) or path).splits)


def find_yolo(path: Path, split: str, lines: Lines = BOX_LINES) -> FoundSplit:
    """A split of a data set, and the files that it is read from."""
    config = find_config(path) or path
    folders = list(_image_places(config, split))
    labels = [label_path(folder / "image.jpg").parent for folder in folders]
    # The sizes of images are in their files alone: here their contents count too.
    contents = dict.fromkeys((config, *folders, *labels))
    return FoundSplit(Sources(tuple(contents)), lambda: read_yolo(config, split, lines))


def _image_places(config: Path, split: str) -> Iterator[Path]:
    """The folders of images of a split, and the lists of images."""
    description = read_config(config)
    for entry in description.splits.get(split_name(split), ()):
        place = locate(description, split, entry)
        yield place
        if is_file(place):
            lines = read_lines(place)
            for folder in dict.fromkeys(line.rpartition("/")[0] for _, line in lines):
                yield place.parent / folder
                yield description.base / folder


def stray_yolo_labels(_: Path, indexes: Sequence[DetectionIndex]) -> Iterator[Problem]:
    """Label files beside those of the images, for which the folder of images has no image."""
    folders = {
        Path(os.path.dirname(index.images.where(name)))  # noqa: PTH120 - a Path per image is slow
        for index in indexes
        for name in index.files
    }
    reported = {
        label_path(Path(problem.file))
        for index in indexes
        for problem in index.problems
        if problem.kind == "image-missing"
    }
    for folder in folders:
        labels = label_path(folder / "image.jpg").parent
        pictures = image_stems(folder)
        for name in file_names(labels):
            stem, dot, suffix = name.rpartition(".")
            # Labelling tools put the names of the classes there.
            if dot and suffix == "txt" and name != "classes.txt" and stem not in pictures:
                if labels / name in reported:
                    continue
                yield stray_label(labels / name, f"there is no image of this name in {folder}")


FORMAT = Format(
    signs="a .yaml file that names the classes, or the folders images and labels, also per split",
    recognise=is_yolo,
    splits=yolo_splits,
    find=find_yolo,
    write=write_yolo,
    stray_labels=stray_yolo_labels,
    lacks=EXTRAS,
    broken_kind="yaml-broken",
)
