"""The protocol of a data set format, and what all readers share: collecting and checking boxes."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from alphaiou._shapes import Bool, Float64, Int64, Integer
from alphaiou.data.formats.files import ImageFiles, is_file, read_limited, reason
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.writing import Placing
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.oriented import boxes_around, extents
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
    "oriented": "angles of boxes",
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
    values: np.ndarray | None = getattr(index, name)
    if values is None:
        return 0
    if name == "oriented":
        return len(values)
    if name == "areas":
        sides = index.boxes[:, 2:] - index.boxes[:, :2]
        if index.oriented is not None:
            sides = index.oriented[:, 2:4]
        return int((~np.isclose(values, sides.prod(axis=1), rtol=1e-6)).sum())
    if values.dtype == bool:
        return int(values.sum())
    return int((values != np.arange(1, len(values) + 1)).sum())


def read_classes(path: Path) -> tuple[str, ...] | None:
    """The names in a file of one class per line; None if there is no such file."""
    if not os.path.lexists(path):
        return None
    try:
        lines = read_limited(path, LARGEST_CLASSES_FILE).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: the names of the classes cannot be read: {reason(error)}; "
            "write them in UTF-8, one per line"
        ) from None
    classes = tuple(line.strip() for line in lines if line.strip())
    if not classes:
        raise DataError(f"{path}: names no class; write one per line, or remove the file")
    if len(set(classes)) < len(classes):
        raise DataError(f"{path}: names a class twice; write each on a line of its own, once")
    return classes


def stray_label(file: Path, detail: str) -> Problem:
    """The problem of a label file that no image uses."""
    remedy = "add the image, or remove the file"
    return Problem(str(file), "", "label-without-image", detail, remedy, "file left out")


LARGEST_CLASSES_FILE = 1 << 24
CLASS_NAME_REMEDY = "give each class a name of its own"


def misnamed(classes: Sequence[str]) -> list[tuple[int, str]]:
    """The classes without a name and those with the name of another, and what is wrong.

    Examples:
        >>> misnamed(["cat", "", "cat"])
        [(1, 'is empty'), (2, "is 'cat', as that of class 0 is")]
    """
    first: dict[str, int] = {}
    found = []
    for label, name in enumerate(classes):
        if not name.strip():
            found.append((label, "is empty"))
        elif first.setdefault(name, label) != label:
            found.append((label, f"is {name!r}, as that of class {first[name]} is"))
    return found


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
    corners: Float64[np.ndarray, "boxes 4 2"] | None = None,
) -> tuple[Bool[np.ndarray, " boxes"], list[Problem]]:
    """Find the boxes that can be used, and report those that cannot or that look wrong.

    Left out are boxes of an unknown class, with a coordinate that is no number, of zero or negative
    size, and wholly outside their image; the first reason that applies is reported. Boxes that
    pass the border of their image and repetitions of a box are kept, and reported. What is wrong
    with identical boxes of an image is reported once, with their number.

    Args:
        boxes: Absolute, 0-based, half-open x1 y1 x2 y2, as annotated.
        labels: The label of each box; negative, and one number for each class, where the class is
            unknown.
        image_of_box: The position in ``sizes`` of the image of each box.
        sizes: Width and height of each image.
        place: The file of a box and its place in it, for messages.
        class_name: What the file says the class of a box is, for messages; its label by default.
        corners: The corners of oriented boxes, as annotated; ``boxes`` are their extents.

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
    shown = boxes if corners is None else corners.reshape(-1, 8)
    kept = np.ones(len(boxes), dtype=bool)
    found: list[tuple[int, Problem]] = []

    def say(rows: Bool[np.ndarray, " boxes"], kind: str, effect: Effect) -> None:
        rows = rows & kept
        if effect == "box left out":
            kept[rows] = False
        # Of a repeated box, it is its first repetition that is reported.
        skipped = int(kind == "box-duplicate")
        order, starts, counts = _identical(np.flatnonzero(rows), shown, labels, image_of_box)
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            row = int(order[start + skipped])
            detail = _detail(kind, shown[row], size[row], name_of(row), count)
            problem = Problem(
                *place(row), kind, detail, REMEDIES[kind], effect, count=count - skipped
            )
            found.append((row, problem))

    say(labels < 0, "class-unknown", "box left out")
    say(~(np.abs(boxes) <= LARGEST_COORDINATE).all(1), "box-nan", "box left out")
    say(~_positive(boxes), "box-flat", "box left out")
    if corners is not None:
        flat, askew = _misshapen(np.where(kept[:, None, None], corners, 0.0))
        say(flat, "box-flat", "box left out")
        say(askew, "corners-askew", "kept")
    say(_outside(boxes, size), "box-outside", "box left out")
    say(_past_border(boxes, size), "box-past-border", "kept")
    say(_repeated(shown, labels, image_of_box, kept), "box-duplicate", "kept")
    found.sort(key=lambda one: one[0])
    return kept, [problem for _, problem in found]


REMEDIES = {
    "class-unknown": "add the class to the list of classes, or correct it in the file",
    "box-nan": "write plain numbers of pixels, or remove the object",
    "box-flat": "give the box a positive width and height, or remove the object",
    "corners-askew": "write the corners of a rectangle, in their order around it",
    "box-outside": "check that the box belongs to this image and is in its pixels",
    "box-past-border": "clip the box to the image if it is meant to end there",
    "box-duplicate": "remove the repetition",
}


def _detail(
    kind: str,
    box: Float64[np.ndarray, " coordinates"],
    size: Float64[np.ndarray, " 2"],
    name: str,
    count: int,
) -> str:
    names = " ".join(f"x{n} y{n}" for n in range(1, len(box) // 2 + 1))
    corners = f"{names} = " + " ".join(f"{value:.6g}" for value in box.tolist())
    image = "the image of {:g} x {:g}".format(*size.tolist())
    detail = {
        "class-unknown": f"the class {name!r} is not one of this data set",
        "box-nan": f"{corners} has a value that is not a usable number",
        "box-flat": f"{corners} has no width or no height",
        "corners-askew": f"{corners} is far from a rectangle; the smallest one around it is used",
        "box-outside": f"{corners} lies outside {image}",
        "box-past-border": f"{corners} passes the border of {image}",
        "box-duplicate": f"{name} at {corners} is there {count:,} times",
    }[kind]
    if count == 1 or kind == "box-duplicate":
        return detail
    return f"{detail} ({count:,} identical boxes)"


def _positive(boxes: Float64[np.ndarray, "boxes 4"]) -> Bool[np.ndarray, " boxes"]:
    return np.logical_and(boxes[:, 2] > boxes[:, 0], boxes[:, 3] > boxes[:, 1])


#: Annotated corners that fill less of the box around them are reported.
LEAST_FILLED = 0.75


def _misshapen(
    corners: Float64[np.ndarray, "boxes 4 2"],
) -> tuple[Bool[np.ndarray, " boxes"], Bool[np.ndarray, " boxes"]]:
    """Which corners lie on a line, and which are far from a rectangle or not in order."""
    short, long = np.sort(boxes_around(corners)[:, 2:4], axis=1).T
    x, y = np.moveaxis(corners, -1, 0)
    after_x, after_y = np.roll(x, -1, axis=1), np.roll(y, -1, axis=1)
    filled = 0.5 * np.abs((x * after_y - y * after_x).sum(1))
    flat = short <= 1e-9 * long
    return flat, ~flat & (filled < LEAST_FILLED * short * long)


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
    boxes: Float64[np.ndarray, "boxes coordinates"],
    labels: Integer[np.ndarray, " boxes"],
    image_of_box: Integer[np.ndarray, " boxes"],
    kept: Bool[np.ndarray, " boxes"],
) -> Bool[np.ndarray, " boxes"]:
    """Whether a box is there more than once: same image, label and coordinates."""
    columns = _coordinates(boxes).view(np.uint64).T
    # Hashing first leaves a handful of candidates; a sort by six keys takes a second per million.
    hashed = labels.astype(np.uint64)
    for column in (image_of_box.astype(np.uint64), *columns):
        hashed = (hashed ^ (hashed >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15) + column
    order = np.argsort(hashed, kind="stable")
    same = hashed[order][1:] == hashed[order][:-1]
    candidates = np.zeros(len(boxes), dtype=bool)
    candidates[order[1:][same]] = True
    candidates[order[:-1][same]] = True
    rows, _, counts = _identical(np.flatnonzero(candidates & kept), boxes, labels, image_of_box)
    repeated = np.zeros(len(boxes), dtype=bool)
    repeated[rows[np.repeat(counts > 1, counts)]] = True
    return repeated


def _identical(
    rows: Int64[np.ndarray, " n"],
    boxes: Float64[np.ndarray, "boxes coordinates"],
    labels: Integer[np.ndarray, " boxes"],
    image_of_box: Integer[np.ndarray, " boxes"],
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " groups"], Int64[np.ndarray, " groups"]]:
    """Sort rows such that identical boxes of an image follow each other, in their order.

    Returns:
        The sorted rows, where each group of identical boxes starts, and its length.
    """
    columns = (image_of_box[rows], labels[rows], *_coordinates(boxes[rows]).T)
    order = np.lexsort(columns)
    new = np.ones(len(rows), dtype=bool)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    starts = np.flatnonzero(new)
    return rows[order], starts, np.diff(starts, append=len(rows))


def _coordinates(
    boxes: Float64[np.ndarray, "n coordinates"],
) -> Int64[np.ndarray, "n coordinates"]:
    """The bits of coordinates, which are equal for NaN too; adding 0 makes 0.0 of -0.0."""
    return (boxes + 0.0).view(np.int64)


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
        is_oriented: Whether boxes are given by their four corners.
        problems: The problems found while reading; those of boxes are added by ``index``.
    """

    def __init__(self, place_word: str, *, is_oriented: bool = False) -> None:
        self.place_word, self.is_oriented = place_word, is_oriented
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
            box: Absolute, 0-based, half-open x1 y1 x2 y2; x1 y1 ... x4 y4 if oriented.
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
        corners = boxes.reshape(-1, 4, 2) if self.is_oriented else None
        boxes = boxes.reshape(-1, 4) if corners is None else extents(corners)
        sizes = np.asarray(self._sizes, dtype=np.int32).reshape(-1, 2)
        label_of_box = _translate(numbers, labels)
        kept, found = check_boxes(
            boxes,
            label_of_box,
            image_of_box,
            sizes,
            lambda row: (self._sources[image_of_box[row]], f"{self.place_word} {places[row]}"),
            class_name=lambda row: names.get(int(numbers[row]), str(numbers[row])),
            corners=corners,
        )
        oriented = None if corners is None else boxes_around(corners[kept])
        sides = boxes[kept, 2:] - boxes[kept, :2] if oriented is None else oriented[:, 2:4]
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
            oriented=oriented,
        )


class ListedImages:
    """Adds the images that the lines of annotation files name.

    Args:
        base: The folder that names in the index are relative to, absolute.
        found: What to add to.
    """

    def __init__(self, base: Path, found: Collection) -> None:
        self.base, self.found = base, found
        self._used: set[Path] = set()

    def add(self, image: Path, size: tuple[int, int] | None, file: Path, line: int) -> bool:
        """Add an image, or note why not; its size is read from it if none is given."""
        from alphaiou.data.images import ImageError, image_size

        if image in self._used:
            detail = f"{image.name} is there again, or in another file too"
            self._leave_out(file, "image-duplicate", detail, "keep one of the two", f"line {line}")
            return False
        self._used.add(image)
        if not is_file(image):
            detail = f"there is no such file, which {file.name} names in line {line}"
            self._leave_out(image, "image-missing", detail, "put the image there, or remove it")
            return False
        try:
            size = size or image_size(image)
        except ImageError as error:
            self._leave_out(image, error.kind, error.why, "replace the image")
            return False
        inside = image.is_relative_to(self.base)
        name = (image.relative_to(self.base) if inside else image).as_posix()
        self.found.add_image(name, size, str(file))
        return True

    def _leave_out(self, file: Path, kind: str, detail: str, remedy: str, where: str = "") -> None:
        problem = Problem(str(file), where, kind, detail, remedy, "image left out")
        self.found.problems.append(problem)


def _translate(numbers: np.ndarray, labels: Mapping[int, int]) -> np.ndarray:
    """The label of each number; a negative number of its own where there is none."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    translated = [labels.get(number, -1 - place) for place, number in enumerate(distinct.tolist())]
    return np.asarray(translated, dtype=np.int32)[inverse.reshape(-1)]
