"""The protocol of a data set format, and what all readers share: collecting and checking boxes."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from alphaiou._shapes import Bool, Float64, Integer
from alphaiou.data.formats.files import ImageFiles
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.problems import DataError, Effect, Problem

#: What an index holds besides classes, sizes and boxes, in the words of messages.
EXTRAS = {
    "crowd": "crowd marks",
    "areas": "areas that are not width × height",
    "category_ids": "category numbers",
    "image_ids": "image numbers",
    "box_ids": "box numbers",
    "difficult": "difficult marks",
    "truncated": "truncated marks",
}


class FoundSplit(NamedTuple):
    """One split of a data set, located but not read.

    Attributes:
        sources: The files that its index depends on, for the cache.
        read: Reads them.
    """

    sources: Sources
    read: Callable[[], DetectionIndex]


@runtime_checkable
class Writer(Protocol):
    """Writes an index to a folder, or adds the split to the data set in it."""

    def __call__(self, index: DetectionIndex, out: Path, *, images: Placing) -> None:
        """Raise DataError where a file is there already with other content."""
        ...


def _write_nothing(index: DetectionIndex, out: Path, *, images: Placing) -> None:
    del index, images
    raise DataError(f"{out}: the layout can only be read; write another one")


@dataclass(frozen=True)
class Format:
    """A layout of data sets: how it is recognised, read, written and checked.

    A format is one module that ends with its instance, ``FORMAT``, and one line in
    :mod:`alphaiou.data.formats.registry`.

    Attributes:
        signs: The files or words that it is recognised by, for messages.
        recognise: Whether a path is a data set of this layout.
        splits: The names of the splits of a data set.
        find: Locates a split of a data set; DataError lists the splits if there is no such split.
        write: Writes an index.
        stray_labels: The label files of a data set that none of the given splits uses.
        lacks: The entries of ``EXTRAS`` that the layout cannot hold, with the words for them.
        broken_kind: The kind of problem of a file that does not follow the format.
    """

    signs: str
    recognise: Callable[[Path], bool]
    splits: Callable[[Path], tuple[str, ...]]
    find: Callable[[Path, str], FoundSplit]
    write: Writer = _write_nothing
    stray_labels: Callable[[Path, Sequence[DetectionIndex]], Iterable[Problem]] = lambda *_: ()
    lacks: Mapping[str, str] = field(default_factory=dict)
    broken_kind: str = "split-unusable"

    def lost(self, index: DetectionIndex) -> dict[str, int]:
        """How many of each thing of an index the layout cannot hold; empty if it holds all.

        Boxes are never lost, only their flags: a crowd becomes an ordinary box in YOLO, and a
        difficult one in VOC, where those are ignored in the same way.
        """
        counts = {words: _count_extra(index, name) for name, words in self.lacks.items()}
        return {words: count for words, count in counts.items() if count}


def _count_extra(index: DetectionIndex, name: str) -> int:
    """How many values differ from those a reader assumes: no flag, width × height, 1, 2, ..."""
    values: np.ndarray = getattr(index, name)
    if name == "areas":
        sides = index.boxes[:, 2:] - index.boxes[:, :2]
        return int((~np.isclose(values, sides.prod(axis=1), rtol=1e-6)).sum())
    if values.dtype == bool:
        return int(values.sum())
    return int((values != np.arange(1, len(values) + 1)).sum())


def stray_label(file: Path, detail: str) -> Problem:
    """The problem of a label file that no image uses."""
    remedy = "add the image, or remove the file"
    return Problem(str(file), "", "label-without-image", detail, remedy, "file left out")


#: How far a box may pass the border before it is reported: files round their coordinates.
BORDER_TOLERANCE_PX = 0.05

#: Beyond this, float32 no longer tells neighbouring pixels apart.
LARGEST_COORDINATE = 2.0**24

#: From the row of a box to its file and its place in the file ("object 3", "line 7").
Place = Callable[[int], tuple[str, str]]


def check_boxes(
    boxes: Float64[np.ndarray, "boxes 4"],
    labels: Integer[np.ndarray, " boxes"],
    image_of_box: Integer[np.ndarray, " boxes"],
    sizes: Integer[np.ndarray, "images 2"],
    place: Place,
    *,
    class_name: Callable[[int], str] | None = None,
) -> tuple[Bool[np.ndarray, " boxes"], list[Problem]]:
    """Find the boxes that can be used, and report those that cannot or that look wrong.

    Left out are boxes of an unknown class, with a coordinate that is no number, of zero or negative
    size, and wholly outside their image; the first reason that applies is reported. Boxes that
    pass the border of their image and repetitions of a box are kept, and reported.

    Args:
        boxes: Absolute, 0-based, half-open x1 y1 x2 y2, as annotated.
        labels: The label of each box; negative where its class is unknown.
        image_of_box: The position in ``sizes`` of the image of each box.
        sizes: Width and height of each image.
        place: The file of a box and its place in it, for messages.
        class_name: What the file says the class of a box is, for messages; its label by default.

    Returns:
        Whether each box is kept, and the problems in the order of the boxes.

    Examples:
        >>> boxes = np.array([[0.0, 0, 8, 8], [4, 4, 4, 9]])
        >>> labels, images = np.array([0, 0]), np.array([0, 0])
        >>> place = lambda row: ("a.xml", f"object {row + 1}")
        >>> kept, problems = check_boxes(boxes, labels, images, np.array([[10, 10]]), place)
        >>> kept.tolist(), problems[0].where, problems[0].kind
        ([True, False], 'object 2', 'box-flat')
    """
    size = sizes[image_of_box].reshape(-1, 2).astype(np.float64)
    name_of = class_name or (lambda row: f"class {labels[row]}")
    kept = np.ones(len(boxes), dtype=bool)
    found: list[tuple[int, Problem]] = []

    def say(rows: Bool[np.ndarray, " boxes"], kind: str, effect: Effect) -> None:
        rows = rows & kept
        if effect == "box left out":
            kept[rows] = False
        for row in np.flatnonzero(rows).tolist():
            detail = _detail(kind, boxes[row], size[row], name_of(row))
            found.append((row, Problem(*place(row), kind, detail, REMEDIES[kind], effect)))

    say(labels < 0, "class-unknown", "box left out")
    say(~(np.abs(boxes) <= LARGEST_COORDINATE).all(1), "box-nan", "box left out")
    say(~_positive(boxes), "box-flat", "box left out")
    say(_outside(boxes, size), "box-outside", "box left out")
    say(_past_border(boxes, size), "box-past-border", "kept")
    say(_repeated(boxes, labels, image_of_box, kept), "box-duplicate", "kept")
    found.sort(key=lambda one: one[0])
    return kept, [problem for _, problem in found]


REMEDIES = {
    "class-unknown": "add the class to the list of classes, or correct it in the file",
    "box-nan": "write plain numbers of pixels, or remove the object",
    "box-flat": "give the box a positive width and height, or remove the object",
    "box-outside": "check that the box belongs to this image and is in its pixels",
    "box-past-border": "clip the box to the image if it is meant to end there",
    "box-duplicate": "remove the repetition",
}


def _detail(
    kind: str, box: Float64[np.ndarray, " 4"], size: Float64[np.ndarray, " 2"], name: str
) -> str:
    corners = "x1 y1 x2 y2 = " + " ".join(f"{value:.6g}" for value in box.tolist())
    image = "the image of {:g} x {:g}".format(*size.tolist())
    return {
        "class-unknown": f"the class {name!r} is not one of this data set",
        "box-nan": f"{corners} has a value that is not a usable number",
        "box-flat": f"{corners} has no width or no height",
        "box-outside": f"{corners} lies outside {image}",
        "box-past-border": f"{corners} passes the border of {image}",
        "box-duplicate": f"{name} at {corners} is there more than once",
    }[kind]


def _positive(boxes: Float64[np.ndarray, "boxes 4"]) -> Bool[np.ndarray, " boxes"]:
    return np.logical_and(boxes[:, 2] > boxes[:, 0], boxes[:, 3] > boxes[:, 1])


def _outside(
    boxes: Float64[np.ndarray, "boxes 4"], size: Float64[np.ndarray, "boxes 2"]
) -> Bool[np.ndarray, " boxes"]:
    return np.logical_or((boxes[:, 2:] <= 0).any(1), (boxes[:, :2] >= size).any(1))


def _past_border(
    boxes: Float64[np.ndarray, "boxes 4"], size: Float64[np.ndarray, "boxes 2"]
) -> Bool[np.ndarray, " boxes"]:
    before = (boxes[:, :2] < -BORDER_TOLERANCE_PX).any(1)
    return np.logical_or(before, (boxes[:, 2:] > size + BORDER_TOLERANCE_PX).any(1))


def _repeated(
    boxes: Float64[np.ndarray, "boxes 4"],
    labels: Integer[np.ndarray, " boxes"],
    image_of_box: Integer[np.ndarray, " boxes"],
    kept: Bool[np.ndarray, " boxes"],
) -> Bool[np.ndarray, " boxes"]:
    """Whether a box is there already: same image, label and coordinates in an earlier row."""
    columns = (boxes + 0.0).view(np.uint64).T  # adding 0 makes -0.0 the same bits as 0.0
    # Hashing first leaves a handful of candidates; a sort by six keys takes a second per million.
    hashed = labels.astype(np.uint64)
    for column in (image_of_box.astype(np.uint64), *columns):
        hashed = (hashed ^ (hashed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + column
    order = np.argsort(hashed, kind="stable")
    same = hashed[order][1:] == hashed[order][:-1]
    candidates = np.zeros(len(boxes), dtype=bool)
    candidates[order[1:][same]] = True
    candidates[order[:-1][same]] = True
    repeated = np.zeros(len(boxes), dtype=bool)
    seen = set()
    for row in np.flatnonzero(candidates & kept).tolist():
        key = (int(image_of_box[row]), int(labels[row]), *columns[:, row].tolist())
        repeated[row] = key in seen
        seen.add(key)
    return repeated


# The code of the growing array and the type of the final one.
_COLUMNS: dict[str, tuple[str, type[np.generic]]] = {
    "boxes": ("d", np.float64),
    "labels": ("i", np.int32),
    "images": ("q", np.int64),
    "places": ("q", np.int64),
    "marks": ("b", np.int8),
}


class NothingUsableError(DataError):
    """A split without a single image that can be used; ``problems`` says why of each."""

    def __init__(self, message: str, problems: Sequence[Problem]) -> None:
        first = f"; the first: {problems[0]}" if problems else ""
        super().__init__(message + first)
        self.problems = tuple(problems)


class Collection:
    """The images and boxes that a reader has found so far, in arrays that grow.

    Attributes:
        place_word: What the place of a box in its file is called: "object" or "line".
        problems: The problems found while reading; those of boxes are added by ``index``.
    """

    def __init__(self, place_word: str) -> None:
        self.place_word = place_word
        self.problems: list[Problem] = []
        self._files: list[str] = []
        self._sources: list[str] = []
        self._sizes = array("i")
        self._columns: dict[str, array[Any]] = {
            name: array(code) for name, (code, _) in _COLUMNS.items()
        }

    def __len__(self) -> int:
        """The number of images."""
        return len(self._files)

    def add_image(self, name: str, size: tuple[int, int], source: str) -> None:
        """Add an image; the boxes added from now on are its own.

        Args:
            name: The name of the image.
            size: Width and height.
            source: The file that holds its boxes, for messages.
        """
        self._files.append(name)
        self._sources.append(source)
        self._sizes.extend(size)

    def add_box(self, box: Sequence[float], label: int, place: int, marks: int = 0) -> None:
        """Add a box of the last image.

        Args:
            box: Absolute, 0-based, half-open x1 y1 x2 y2.
            label: Any number for its class, to be translated by :meth:`index`.
            place: Its number in the file, for messages.
            marks: 1 if difficult, plus 2 if truncated.
        """
        columns = self._columns
        columns["boxes"].extend(box)
        columns["labels"].append(label)
        columns["images"].append(len(self._files) - 1)
        columns["places"].append(place)
        columns["marks"].append(marks)

    def index(
        self,
        layout: str,
        root: Path,
        split: str,
        *,
        images: ImageFiles,
        classes: tuple[str, ...],
        labels: Mapping[int, int],
        names: Mapping[int, str],
    ) -> DetectionIndex:
        """Check the boxes and make the index of those that are kept.

        Args:
            layout: The layout that was read.
            root: What was opened.
            split: The name of the split.
            images: Where the images are.
            classes: The names of the classes.
            labels: The labels of the numbers given to :meth:`add_box`; a number that is not there
                is an unknown class.
            names: What the files call those numbers, for messages.
        """
        boxes, numbers, image_of_box, places, marks = (
            np.array(self._columns[name], dtype=kind) for name, (_, kind) in _COLUMNS.items()
        )
        boxes = boxes.reshape(-1, 4)
        sizes = np.asarray(self._sizes, dtype=np.int32).reshape(-1, 2)
        label_of_box = _translate(numbers, labels)
        kept, found = check_boxes(
            boxes,
            label_of_box,
            image_of_box,
            sizes,
            lambda row: (self._sources[image_of_box[row]], f"{self.place_word} {places[row]}"),
            class_name=lambda row: names.get(int(numbers[row]), str(numbers[row])),
        )
        sides = boxes[kept, 2:] - boxes[kept, :2]
        counts = np.bincount(image_of_box[kept], minlength=len(self._files))
        return DetectionIndex(
            layout=layout,
            root=root,
            split=split,
            classes=classes,
            category_ids=np.arange(1, len(classes) + 1),
            images=images,
            files=Strings.pack(self._files),
            image_ids=np.arange(1, len(self._files) + 1),
            sizes=sizes,
            offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            boxes=boxes[kept],
            labels=label_of_box[kept],
            box_ids=np.arange(1, kept.sum() + 1),
            areas=sides[:, 0] * sides[:, 1],
            crowd=np.zeros(len(sides), dtype=bool),
            difficult=(marks[kept] & 1).astype(bool),
            truncated=(marks[kept] & 2).astype(bool),
            problems=(*self.problems, *found),
        )


def _translate(numbers: np.ndarray, labels: Mapping[int, int]) -> np.ndarray:
    """The label of each number, -1 where there is none."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    translated = [labels.get(number, -1) for number in distinct.tolist()]
    return np.asarray(translated, dtype=np.int32)[inverse.reshape(-1)]
