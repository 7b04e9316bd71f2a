"""Images and boxes as a reader finds them, one after another, and the index they make."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alphaiou.data.box_checks import check_boxes
from alphaiou.data.image_files import ImageFiles
from alphaiou.data.index import DetectionIndex, Layout, Strings
from alphaiou.data.problems import DataError, Problem

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
    """What a reader has found so far, in arrays that grow.

    Attributes:
        place_word: What the place of a box in its file is called: "object" or "line".
        problems: What is wrong, besides what the boxes themselves show.
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
        layout: Layout,
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
