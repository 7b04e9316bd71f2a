"""YOLO: a ``data.yaml``, and one text file of boxes per image."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import yaml

from alphaiou.data.formats.base import (
    EXTRAS,
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
    stray_label,
)
from alphaiou.data.formats.files import (
    IMAGE_SUFFIXES,
    FolderImages,
    file_names,
    image_stems,
    read_limited,
    reason,
)
from alphaiou.data.formats.index_cache import Sources
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
DEEPEST_NESTING = 8
_USUAL_SPLITS = ("train", "val", "test")
_OTHER_SPELLINGS = {"valid": "val", "validation": "val"}
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
    if path.is_dir() and path.suffix not in (".yaml", ".yml"):
        return _config_of_folders(path)
    content = _load(path)
    folder = Path(os.path.abspath(path.parent / _text(path, "path", content.get("path", ""))))  # noqa: PTH100
    splits = {}
    for key, value in content.items():
        entries = _entries(value)
        name = _OTHER_SPELLINGS.get(key, key)
        if entries and (name in _USUAL_SPLITS or _looks_like_split(path, folder, key, entries)):
            splits[name] = entries
    base = folder if folder.is_dir() else path.parent
    return YoloConfig(path, base, _classes(path, content), splits)


def _config_of_folders(root: Path) -> YoloConfig:
    """A split for each folder in ``images``, and as many nameless classes as the labels need."""
    folders = sorted(folder.name for folder in (root / "images").glob("*/"))
    splits: dict[str, tuple[str, ...]] = {
        _OTHER_SPELLINGS.get(name, name): (f"images/{name}",) for name in folders
    }
    numbers = [_largest_class(path) for path in (root / "labels").rglob("*.txt")]
    classes = tuple(f"class {number}" for number in range(max(numbers, default=-1) + 1))
    return YoloConfig(root, root, classes, splits or {"train": ("images",)})


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
        raise BrokenFileError(f"{path}: cannot be used: {reason(error)}") from None
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
    return any(_exists(place) and (place.suffix == ".txt" or place.is_dir()) for place in places)


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
        if _exists(place):
            return place
    raise DataError(
        f"{config.file}: {split}: there is no {str(places[0])[:500]}; "
        "correct the entry, or the field path"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def images_in(folder: Path) -> list[Path]:
    """The images in a folder and the folders in it, in the order of their paths."""
    found = [
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
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


def _images_of(config: YoloConfig, split: str, problems: list[Problem]) -> Iterator[Path]:
    """The images of a split, each once."""
    entries = config.splits.get({"valid": "val"}.get(split, split))
    if entries is None:
        there = ", ".join(config.splits) or "none at all"
        raise DataError(f"{config.file}: has no split {split!r}; there are: {there}")
    seen: set[Path] = set()
    for entry in entries:
        place = locate(config, split, entry)
        listed = _listed(place, config.base) if place.is_file() else enumerate(images_in(place), 1)
        for line, path in listed:
            if path not in seen:
                seen.add(path)
                yield path
                continue
            detail = f"{path} is listed again"
            problems.append(_problem(place, "image-duplicate", detail, where=f"line {line}"))


def _listed(list_file: Path, base: Path) -> Iterator[tuple[int, Path]]:
    """The lines of a list of images, relative to the list, or to ``path`` where that is right."""
    try:
        text = read_limited(list_file, LARGEST_LIST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise DataError(f"{list_file}: the list cannot be read: {reason(error)}") from None
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line.replace("\0", "\\0")) for number, line in lines if line]
    folder = list_file.parent
    if lines and not (folder / lines[0][1]).exists() and (base / lines[0][1]).exists():
        folder = base
    for number, line in lines:
        yield number, Path(os.path.abspath(folder / line))  # noqa: PTH100 - links keep their names


# --- reading --------------------------------------------------------------------------------------


def read_yolo(config: Path, split: str) -> DetectionIndex:
    """Read one split of a YOLO data set.

    The labels of ``…/images/…/a.jpg`` are in ``…/labels/…/a.txt``; an image without that file has
    no objects, and is counted among the problems as kept. A line is ``class cx cy w h`` in
    fractions of the image, or ``class x y x y x y …``, a polygon, of which the bounding box counts.

    Args:
        config: The ``data.yaml``.
        split: One of the splits in it; ``valid`` is ``val``.

    Raises:
        DataError: The file is broken, there is no such split, or it has no image that can be used.
    """
    description = read_config(config)
    found = Collection("line")
    listed = 0
    for path in _images_of(description, split, found.problems):
        listed += 1
        _read_image(path, description.base, found)
    if not len(found):
        message = f"{config}: {split}: of {listed} images none can be used"
        raise NothingUsableError(message, found.problems)
    classes = description.classes
    return found.index(
        "yolo",
        config,
        split,
        images=FolderImages(description.base, anywhere=True),
        classes=classes,
        labels={number: number for number in range(len(classes))},
        names=dict(enumerate(classes)),
    )


def _read_image(path: Path, base: Path, found: Collection) -> None:
    """Add an image and its boxes, or say why not."""
    from alphaiou.data.images import ImageError, image_size

    label = label_path(path)
    try:
        size = image_size(path)
        lines = read_limited(label, LARGEST_LABEL_FILE).splitlines()
    except ImageError as error:
        kind = error.kind if path.exists() else "image-missing"
        found.problems.append(_problem(path, kind, error.why))
        return
    except FileNotFoundError:
        lines = []
        detail = f"{path.name} has no label file: it counts as an image without objects"
        found.problems.append(_problem(label, "image-without-label", detail, effect="kept"))
    except OSError as error:
        detail = f"it cannot be read: {reason(error)}"
        found.problems.append(_problem(label, "line-broken", detail))
        return
    inside = path.is_relative_to(base)
    found.add_image((path.relative_to(base) if inside else path).as_posix(), size, str(label))
    for number, line in enumerate(lines, 1):
        try:
            _add_line(line.split(), size, number, found)
        except ValueError as error:
            place = f"line {number}"
            found.problems.append(
                _problem(label, "line-broken", str(error), where=place, effect="box left out")
            )


def _add_line(fields: list[bytes], size: tuple[int, int], number: int, found: Collection) -> None:
    """Add the box of a line; ValueError says what is wrong with the line."""
    if not fields:
        return
    if len(fields) < 5 or len(fields) % 2 == 0:
        raise ValueError(f"it has {len(fields)} columns; a box has 5, a polygon 7 or more, odd")
    try:
        label, *values = map(float, fields)
    except ValueError:
        raise ValueError(f"{b' '.join(fields)[:60]!r} are not all numbers") from None
    if not label.is_integer():
        raise ValueError(f"the class {fields[0].decode()[:60]} is not a whole number")
    x1, y1, x2, y2 = _corners(values)
    width, height = size
    # An unknown class may be any number, the column of labels holds those of 32 bits.
    class_number = int(max(-1.0, min(label, 2.0**31 - 1)))
    found.add_box((x1 * width, y1 * height, x2 * width, y2 * height), class_number, number)


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
    "line-broken": "write class cx cy w h, in fractions of the image",
}


def _problem(
    file: Path, kind: str, detail: str, *, where: str = "", effect: Effect = "image left out"
) -> Problem:
    return Problem(str(file), where, kind, detail, _REMEDIES[kind], effect)


# --- writing --------------------------------------------------------------------------------------


def write_yolo(index: DetectionIndex, out: Path, *, images: Placing = "none") -> None:
    """Write an index with full precision: reading it gives the same boxes, to rounding.

    Labels go to ``labels/<split>``, images to ``images/<split>``, and ``data.yaml`` gets the split
    besides those it has. Crowds, difficult and truncated objects become ordinary boxes: the layout
    has no word for them.

    Args:
        index: What to write.
        out: The folder to make, or to add this split to.
        images: Place the images by hard link, by copy, or not at all.

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
            path.write_text(_label_text(index, image), encoding="ascii", newline="\n")
        (folder / CONFIG_NAMES[0]).write_text(config, encoding="utf-8", newline="\n")


def _label_text(index: DetectionIndex, image: int) -> str:
    rows = index.rows(image)
    corners = index.boxes[rows].reshape(-1, 2, 2) / index.sizes[image]
    low, high = corners[:, 0], corners[:, 1]
    fractions = np.concatenate([(low + high) / 2, high - low], axis=1).tolist()
    lines = zip(index.labels[rows].tolist(), fractions, strict=True)
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
    content = {"path": ".", **dict(sorted(splits.items())), "names": dict(enumerate(index.classes))}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


# --- the format -----------------------------------------------------------------------------------


def _recognise(path: Path) -> bool:
    in_folders = (path / "images").is_dir() and (path / "labels").is_dir()
    return in_folders or ((config := find_config(path)) is not None and config.is_file())


def yolo_splits(path: Path) -> tuple[str, ...]:
    """The splits of a data set."""
    return tuple(read_config(find_config(path) or path).splits)


def _find(path: Path, split: str) -> FoundSplit:
    config = find_config(path) or path
    folders = list(_image_places(config, split))
    labels = [label_path(folder / "image.jpg").parent for folder in folders]
    # The sizes of images are in their files alone: here their contents count too.
    contents = dict.fromkeys((config, *folders, *labels))
    return FoundSplit(Sources(tuple(contents)), lambda: read_yolo(config, split))


def _image_places(config: Path, split: str) -> Iterator[Path]:
    """The folders of images of a split, and the lists of images."""
    description = read_config(config)
    for entry in description.splits.get({"valid": "val"}.get(split, split), ()):
        place = locate(description, split, entry)
        yield place
        if place.is_file():
            lines = place.read_bytes().decode("utf-8", "surrogateescape").splitlines()
            for folder in dict.fromkeys(line.strip().rpartition("/")[0] for line in lines):
                yield place.parent / folder
                yield description.base / folder


def _stray_labels(_: Path, indexes: Sequence[DetectionIndex]) -> Iterator[Problem]:
    """Label files beside those of the images, for which the folder of images has no image."""
    folders = {
        Path(os.path.dirname(index.images.where(name)))  # noqa: PTH120 - a Path per image is slow
        for index in indexes
        for name in index.files
    }
    for folder in folders:
        labels = label_path(folder / "image.jpg").parent
        pictures = image_stems(folder)
        for name in file_names(labels):
            stem, dot, suffix = name.rpartition(".")
            # Labelling tools put the names of the classes there.
            if dot and suffix == "txt" and name != "classes.txt" and stem not in pictures:
                yield stray_label(labels / name, f"there is no image of this name in {folder}")


FORMAT = Format(
    signs="a .yaml file that names the classes, or the folders images and labels",
    recognise=_recognise,
    splits=yolo_splits,
    find=_find,
    write=write_yolo,
    stray_labels=_stray_labels,
    lacks=EXTRAS,
    broken_kind="yaml-broken",
)
