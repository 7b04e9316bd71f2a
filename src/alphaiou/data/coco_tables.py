"""The three lists of a COCO file as arrays: each element decoded, checked, and let go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from alphaiou.data.json_stream import Run, parse_run, stream_arrays
from alphaiou.data.problems import BrokenFileError, Effect, Problem

Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Pixels = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Flag = bool | int | None


class CocoImage(msgspec.Struct, gc=False):
    """An element of ``images``; the fields that are not used are passed over."""

    id: Id
    file_name: str
    width: Pixels | None = None
    height: Pixels | None = None


class CocoAnnotation(msgspec.Struct, gc=False):
    """An element of ``annotations``, with the two fields of VOC that converted sets have."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: Flag = None
    difficult: Flag = None
    truncated: Flag = None


class CocoCategory(msgspec.Struct, gc=False):
    """An element of ``categories``."""

    id: Id
    name: str


@dataclass(frozen=True)
class _List:
    """One of the lists: what its elements are, and what it costs if one cannot be used."""

    singular: str
    element: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[list[Any]]
    cost: Effect


LISTS = {
    "images": _List("image", CocoImage, msgspec.json.Decoder(list[CocoImage]), "image left out"),
    "annotations": _List(
        "annotation", CocoAnnotation, msgspec.json.Decoder(list[CocoAnnotation]), "box left out"
    ),
    "categories": _List("category", CocoCategory, msgspec.json.Decoder(list[CocoCategory]), "kept"),
}

IMAGE_ROW = np.dtype([("id", "i8"), ("size", "i4", 2)])
BOX_ROW = np.dtype(
    [
        ("id", "i8"),
        ("image_id", "i8"),
        ("category_id", "i8"),
        ("bbox", "f8", 4),
        ("area", "f8"),  # NaN where there is none
        ("flags", "?", 3),  # crowd, difficult, truncated
    ]
)


@dataclass
class CocoTables:
    """What a COCO file holds, as found, and what is wrong in it.

    Attributes:
        path: The file.
        images: Id and size (width, height) of each image; sizes of 0 where there are none.
        names: The ``file_name`` of each image, with forward slashes.
        boxes: The annotations.
        categories: The categories.
        problems: What has been found to be wrong.
    """

    path: Path
    images: np.ndarray
    names: list[str]
    boxes: np.ndarray
    categories: list[CocoCategory]
    problems: list[Problem]

    @classmethod
    def empty(cls, path: Path) -> CocoTables:
        """The tables of a file, before anything is read."""
        return cls(path, np.zeros(0, IMAGE_ROW), [], np.zeros(0, BOX_ROW), [], [])

    def say(self, where: str, kind: str, detail: str, remedy: str, effect: Effect = "kept") -> None:
        """Add to the problems."""
        self.problems.append(Problem(str(self.path), where, kind, detail, remedy, effect))


def read_tables(path: Path) -> CocoTables:
    """Read the three lists of a COCO file, in whatever order they come.

    Raises:
        DataError: The file is no JSON, or lacks one of the lists.
    """
    tables = CocoTables.empty(path)
    image_rows, box_rows = [tables.images], [tables.boxes]
    counts: dict[str, int] = {}
    for run in stream_arrays(path, LISTS):
        elements = _decode(run, tables, counts.get(run.key, 0))
        counts[run.key] = counts.get(run.key, 0) + len(elements)
        usable = [element for element in elements if element is not None]
        if run.key == "images":
            tables.names += map(_name, usable)
            image_rows.append(_image_rows(usable))
        elif run.key == "annotations":
            box_rows.append(_box_rows(usable))
        else:
            tables.categories += usable
    if absent := [f'"{key}"' for key in LISTS if key not in counts]:
        raise BrokenFileError(
            f"{path}: there is no list {' and no list '.join(absent)}; a COCO file of boxes has "
            '"images", "annotations" and "categories"'
        )
    tables.images, tables.boxes = np.concatenate(image_rows), np.concatenate(box_rows)
    return tables


def first_names(path: Path) -> list[str]:
    """The file names of the first images, as many as are decoded at once, and not the boxes."""
    for run in stream_arrays(path, ["images"]):
        elements = _decode(run, CocoTables.empty(path), 0)
        if names := [_name(element) for element in elements if element is not None]:
            return names
    return []


def _name(image: CocoImage) -> str:
    return image.file_name.replace("\\", "/")


def _image_rows(images: Sequence[CocoImage]) -> np.ndarray:
    return np.array([(i.id, (i.width or 0, i.height or 0)) for i in images], dtype=IMAGE_ROW)


def _box_rows(boxes: Sequence[CocoAnnotation]) -> np.ndarray:
    rows = np.empty(len(boxes), dtype=BOX_ROW)
    for name in ("id", "image_id", "category_id"):
        rows[name] = [getattr(box, name) for box in boxes]
    rows["bbox"] = np.array([box.bbox for box in boxes], dtype=np.float64).reshape(-1, 4)
    rows["area"] = np.array([box.area for box in boxes], dtype=np.float64)  # None becomes NaN
    flags = [(box.iscrowd, box.difficult, box.truncated) for box in boxes]
    rows["flags"] = np.array(flags, dtype=bool).reshape(-1, 3)  # None becomes False
    return rows


def _decode(run: Run, tables: CocoTables, first: int) -> list[Any]:
    """The elements of a run; None for one that cannot be used, which is then said."""
    try:
        return LISTS[run.key].decoder.decode(run.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        elements = parse_run(tables.path, run)
    return [
        _convert(element, f"{run.key}[{first + place}]", LISTS[run.key], tables)
        for place, element in enumerate(elements)
    ]


def _convert(element: object, where: str, kind: _List, tables: CocoTables) -> msgspec.Struct | None:
    """One element of a run that is not all as it should be; None if it cannot be used."""
    if isinstance(element, dict):
        # 7.0 is an id: some tools write every number like that.
        element = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in element.items()
        }
        if isinstance(element.get("id"), int):
            where = f"{kind.singular} id {element['id']}"
    try:
        converted = msgspec.convert(element, kind.element)
        if isinstance(converted, CocoImage):
            converted.file_name.encode()
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        problem = "field-missing" if "missing required field" in str(error) else "field-wrong"
        tables.say(where, problem, _in_words(error), "correct it in the file", kind.cost)
        return None
    return converted


def _in_words(error: Exception) -> str:
    """The message of the decoder in the words of the file."""
    if isinstance(error, UnicodeEncodeError):
        return '"file_name" holds half of a surrogate pair'
    message, _, place = str(error).partition(" - at ")
    name = place.strip("`").removeprefix("$.")
    message = message.replace("`", "").replace("Object missing required field ", "there is no ")
    message = message.replace("Expected", "expected")
    return f'"{name}": {message}' if name else message
