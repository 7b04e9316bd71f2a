"""Detections in COCO's format, anybody's, put beside the data set that they were made on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import msgspec
import numpy as np

from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError
from alphaiou.metrics import ScoringData

Key = int | float | str


class Prediction(msgspec.Struct, gc=False):
    """One detection; ``bbox`` is x y width height in pixels."""

    image_id: Key
    category_id: Key
    bbox: tuple[float, float, float, float]
    score: float


class _Document(msgspec.Struct):
    annotations: list[Prediction]


FORM = '[{"image_id": 1, "category_id": 1, "bbox": [x, y, width, height], "score": 0.9}, ...]'


def load_predictions(path: Path, index: DetectionIndex) -> ScoringData:
    """Read detections and put them beside the boxes of a data set.

    An image is named by its number in the data set, or by its file name with or without folder
    and ending; a category by its number or its name.

    Args:
        path: A JSON file: a list of detections, or an object with such a list as ``annotations``.
        index: The data set that they were made on.

    Raises:
        DataError: They cannot be used; the message names the file, the entry and the remedy.
    """
    predictions = read_predictions(path)
    images = _places(path, "image_id", predictions, _image_keys(path, predictions, index), index)
    labels = _places(path, "category_id", predictions, _category_keys(index), index)
    boxes = np.array([one.bbox for one in predictions], dtype=np.float64).reshape(-1, 4)
    scores = np.array([one.score for one in predictions], dtype=np.float64)
    _refuse(path, "bbox", ~np.isfinite(boxes), boxes, "every number must be finite")
    _refuse(path, "bbox", boxes[:, 2:] < 0, boxes, "width and height must not be negative")
    _refuse(path, "score", ~np.isfinite(scores), scores, "it must be finite")
    return replace(targets_of(index), images=images, boxes=boxes, labels=labels, scores=scores)


def targets_of(index: DetectionIndex) -> ScoringData:
    """The boxes of a data set, without detections."""
    sizes = index.boxes[:, 2:] - index.boxes[:, :2]
    return replace(
        ScoringData.empty(),
        image_ids=index.image_ids,
        target_images=index.image_of_box(),
        target_boxes=np.concatenate([index.boxes[:, :2], sizes], axis=1),
        target_labels=index.labels.astype(np.int64),
        target_areas=index.areas,
        crowd=index.crowd,
        difficult=index.difficult,
    )


def read_predictions(path: Path) -> list[Prediction]:
    """Read the entries of a file of detections.

    Raises:
        DataError: It is no JSON, or an entry lacks something; the message says where.
    """
    raw = path.read_bytes()
    wrapped = raw.lstrip()[:1] == b"{"
    try:
        if wrapped:
            return msgspec.json.decode(raw, type=_Document).annotations
        return msgspec.json.decode(raw, type=list[Prediction])
    except msgspec.ValidationError as error:
        raise DataError(_explain(path, str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(f"{path}{_malformed(raw, str(error))}") from None


def _explain(path: Path, message: str) -> str:
    """The decoder's message with the entry in words."""
    what, _, place = message.partition(" - at ")
    found = re.fullmatch(r"`\$(?:\.annotations)?\[(\d+)\](?:\.(\w+))?.*`", place)
    if found is None:
        return f"{path}: {what[:1].lower()}{what[1:]}; it must be a list: {FORM}"
    field = f", {found[2]}" if found[2] else ""
    return (
        f"{path}, {entry(int(found[1]))}{field}: {what[:1].lower()}{what[1:]}; write it as {FORM}"
    )


def _malformed(raw: bytes, message: str) -> str:
    place = re.search(r"\(byte (\d+)\)", message)
    before = raw[: int(place[1]) if place else len(raw)].count(b'"image_id"')
    where = f", {entry(before - 1)}" if before else ""
    remedy = "write it again as JSON"
    if re.search(rb"[\[:,]\s*-?(NaN|Infinity)", raw):
        remedy = "NaN and Infinity are no JSON: leave those detections out, and write it again"
    return f"{where}: {message}; {remedy}"


def entry(number: int) -> str:
    """An entry as messages name it."""
    return f"entry {number} (the first is 0)"


def _image_keys(
    path: Path, predictions: Sequence[Prediction], index: DetectionIndex
) -> dict[Key, int]:
    """What an image may be called, each with its position."""
    files = [PurePosixPath(name) for name in index.files]
    names: dict[Key, int] = {}
    for called in ("stem", "name"):
        unique = Counter(getattr(file, called) for file in files)
        names |= {
            getattr(file, called): i
            for i, file in enumerate(files)
            if unique[getattr(file, called)] == 1
        }
    names |= {str(file.with_suffix("")): i for i, file in enumerate(files)}
    names |= {str(file): i for i, file in enumerate(files)}
    numbers = {one.image_id for one in predictions if not isinstance(one.image_id, str)}
    return names | _image_numbers(path, numbers, index, [file.stem for file in files])


def _image_numbers(
    path: Path, numbers: set[int | float], index: DetectionIndex, stems: Sequence[str]
) -> dict[Key, int]:
    """The images by number: the format's own; else that of the file name, or of the position."""
    by_number: dict[Key, int] = {number: i for i, number in enumerate(index.image_ids.tolist())}
    if index.layout not in ("voc", "yolo"):
        return by_number
    by_name: dict[Key, int] = {int(s): i for i, s in enumerate(stems) if re.fullmatch("[0-9]+", s)}
    fitting = [table for table in (by_name, by_number) if numbers <= table.keys()]
    if len(fitting) > 1 and any(by_name[n] != by_number[n] for n in numbers):
        number = min(n for n in numbers if by_name[n] != by_number[n])
        raise DataError(
            f"{path}: image_id {number} may be the file {stems[by_name[number]]} or image {number} "
            f"of the set, {stems[by_number[number]]}; write file names as image_id"
        )
    return fitting[0] if fitting else by_name or by_number


def _category_keys(index: DetectionIndex) -> dict[Key, int]:
    names: dict[Key, int] = {name: label for label, name in enumerate(index.classes)}
    return names | {number: label for label, number in enumerate(index.category_ids.tolist())}


def _places(
    path: Path,
    field: str,
    predictions: Sequence[Prediction],
    places: Mapping[Key, int],
    index: DetectionIndex,
) -> np.ndarray:
    given = [getattr(one, field) for one in predictions]
    found = np.array([places.get(key, -1) for key in given], dtype=np.int64)
    unknown = np.flatnonzero(found < 0)
    if len(unknown) == 0:
        return found
    what = "images" if field == "image_id" else "categories"
    known = [key for key in places if isinstance(key, int)]
    examples = [*sorted(known)[:3], *[key for key in places if isinstance(key, str)][:2]]
    listed = ", ".join(map(repr, examples))
    if len(unknown) == len(given):
        which = f"none of its {len(set(given)):,} {what} is in the data set"
    else:
        strangers = len({given[row] for row in unknown})
        which = f"{strangers:,} of its {len(set(given)):,} {what} are not in the data set"
    raise DataError(
        f"{path}, {entry(int(unknown[0]))}: {field} {given[unknown[0]]!r} is unknown; {which} "
        f"{index.root}, split {index.split}, which has {listed}, ...; choose the data and the "
        "split that the detections were made on"
    )


def _refuse(path: Path, field: str, wrong: np.ndarray, values: np.ndarray, rule: str) -> None:
    if wrong.any():
        row = int(np.nonzero(wrong)[0][0])
        raise DataError(
            f"{path}, {entry(row)}: {field} is {values[row].tolist()}; {rule}: leave it out"
        )
