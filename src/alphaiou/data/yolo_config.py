"""The ``data.yaml`` of a YOLO data set: where its splits are, and the names of its classes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from alphaiou.data.image_files import file_names, read_limited, reason
from alphaiou.data.problems import BrokenFileError, DataError

CONFIG_NAMES = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
LARGEST_FILE = 1 << 20
DEEPEST_NESTING = 8
IMAGE_SUFFIXES = frozenset(
    (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")
)

_USUAL_SPLITS = ("train", "val", "test")
_OTHER_SPELLINGS = {"valid": "val", "validation": "val"}
_NOTHING = ("", "~", "null", "Null", "NULL", "None")

# All values stay texts: no objects, no dates, and a class may be called "no".
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


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


def images_in(folder: Path) -> list[Path]:
    """The images in a folder and the folders in it, in the order of their paths."""
    found = [
        Path(parent, name)
        for parent, _, names in os.walk(folder)
        for name in names
        if Path(name).suffix.lower() in IMAGE_SUFFIXES
    ]
    return sorted(found)


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


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def _text(path: Path, field: str, value: object) -> str:
    if not isinstance(value, str):
        raise BrokenFileError(f"{path}: {field}: is no path; write one, or remove the field")
    return "" if value in _NOTHING else value
