"""The one type that data sets are read into: images and boxes as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from alphaiou._shapes import Bool, Float64, Int32, Int64
from alphaiou.data.oriented import corners_of
from alphaiou.data.problems import Problem

if TYPE_CHECKING:
    from alphaiou.data.formats.files import ImageFiles


class Strings(Sequence[str]):
    """Many short strings in two arrays: a tenth of what a list of them costs, and no references.

    Examples:
        >>> names = Strings.pack(["a.jpg", "ä.png"])
        >>> len(names), names[1]
        (2, 'ä.png')
    """

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        self.text, self.ends = text, ends

    @classmethod
    def pack(cls, strings: Sequence[str]) -> Strings:
        """Pack a list of strings."""
        encoded = [string.encode("utf-8", "surrogateescape") for string in strings]
        ends = np.cumsum([len(one) for one in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        start = int(self.ends[index - 1]) if index else 0
        text = self.text[start : int(self.ends[index])]
        return text.tobytes().decode("utf-8", "surrogateescape")

    def take(self, rows: Sequence[int] | np.ndarray) -> Strings:
        """Those of some rows."""
        return Strings.pack([self[int(row)] for row in rows])


@dataclass(frozen=True, eq=False)
class DetectionIndex:
    """The images of one split of a data set, and their boxes, as arrays; no pixels.

    The boxes of image ``i`` are the rows ``offsets[i]`` to ``offsets[i + 1]`` of the box arrays.
    Boxes are absolute pixels, 0-based, half-open ``x1 y1 x2 y2``, whatever their format says; all
    of them are finite, have a positive size and a known class: what is not like that has been
    left out, and is one of ``problems``. A box may pass the border of its image as annotated.

    Attributes:
        layout: The name of the layout it was read from.
        root: The folder or file that was opened.
        split: The name of the split.
        classes: The name of each label.
        category_ids: The format's own number of each label (COCO's are sparse).
        images: Where the pixels are.
        files: The name of each image, as ``images`` knows it, with forward slashes.
        image_ids: The format's own number of each image; 1, 2, ... where it has none.
        sizes: Width and height of each image.
        offsets: Where the boxes of each image start, and the number of boxes.
        boxes: The boxes of all images.
        labels: The label of each box, 0 to ``len(classes) - 1``.
        box_ids: The format's own number of each box; 1, 2, ... where it has none.
        areas: The area that decides small, medium and large: COCO's own, else width times height.
        crowd: Whether a box is a crowd (COCO's ``iscrowd``).
        difficult: Whether a box is difficult (VOC).
        truncated: Whether a box is truncated (VOC).
        problems: What reading found.
        oriented: The same boxes as ``cxcywhr`` where the data set has oriented ones, else None.
            ``boxes`` are then their extents, which is what detectors without angles get.
    """

    layout: str
    root: Path
    split: str
    classes: tuple[str, ...]
    category_ids: Int64[np.ndarray, " classes"]
    images: ImageFiles
    files: Strings
    image_ids: Int64[np.ndarray, " images"]
    sizes: Int32[np.ndarray, "images 2"]
    offsets: Int64[np.ndarray, " images+1"]
    boxes: Float64[np.ndarray, "boxes 4"]
    labels: Int32[np.ndarray, " boxes"]
    box_ids: Int64[np.ndarray, " boxes"]
    areas: Float64[np.ndarray, " boxes"]
    crowd: Bool[np.ndarray, " boxes"]
    difficult: Bool[np.ndarray, " boxes"]
    truncated: Bool[np.ndarray, " boxes"]
    problems: tuple[Problem, ...] = field(default=())
    oriented: Float64[np.ndarray, "boxes 5"] | None = None

    def __len__(self) -> int:
        return len(self.files)

    @property
    def num_boxes(self) -> int:
        """The number of boxes of all images."""
        return len(self.boxes)

    def rows(self, image: int) -> slice:
        """Where the boxes of an image are in the box arrays."""
        return slice(int(self.offsets[image]), int(self.offsets[image + 1]))

    def corners(self, image: int) -> Float64[np.ndarray, "n 4 2"]:
        """The corners of the boxes of an image, around each, whether oriented or not."""
        rows = self.rows(image)
        if self.oriented is not None:
            return corners_of(self.oriented[rows])
        return self.boxes[rows][:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)

    def image_of_box(self) -> Int64[np.ndarray, " boxes"]:
        """The position of the image of each box."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    def __iter__(self) -> Iterator[tuple[str, Float64[np.ndarray, "n 4"]]]:
        """The name of each image and its boxes."""
        for image, name in enumerate(self.files):
            yield name, self.boxes[self.rows(image)]

    def take(self, images: Sequence[int] | np.ndarray) -> DetectionIndex:
        """The index of some of the images, in the order given; ``problems`` stay those of all."""
        chosen = np.asarray(images, dtype=np.int64)
        counts = np.diff(self.offsets)[chosen]
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        rows = np.repeat(self.offsets[chosen] - offsets[:-1], counts) + np.arange(offsets[-1])
        return replace(
            self.keep_rows(rows),
            files=self.files.take(chosen),
            image_ids=self.image_ids[chosen],
            sizes=self.sizes[chosen],
            offsets=offsets,
        )

    def drop_boxes(self, dropped: Bool[np.ndarray, " boxes"]) -> DetectionIndex:
        """The index without some boxes; every image stays."""
        kept = np.bincount(self.image_of_box()[~dropped], minlength=len(self))
        offsets = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)
        return replace(self.keep_rows(np.flatnonzero(~dropped)), offsets=offsets)

    def keep_rows(self, rows: Int64[np.ndarray, " kept"]) -> DetectionIndex:
        """The box arrays at some rows; the caller sets the offsets that belong to them."""
        names = ["boxes", "labels", "box_ids", "areas", "crowd", "difficult", "truncated"]
        names += ["oriented"] * (self.oriented is not None)
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def __str__(self) -> str:
        count = len(self.classes)
        return (
            f"{self.root} ({self.layout} layout, split {self.split}): {len(self):,} images, "
            f"{self.num_boxes:,} {'' if self.oriented is None else 'oriented '}boxes, "
            f"{count} class{'es' * (count != 1)}"
        )
