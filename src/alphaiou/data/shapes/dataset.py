"""``shapes``: a detection data set that is drawn as it is read, for anybody, with no download.

Twelve shapes, turned and stretched, filled with textures, covering one another, on backgrounds
with clutter. An object's box is the exact extent of its outline within the image, to a fraction
of a pixel, whether or not another shape covers part of it. A shape of which less than 30 % is seen
(the rest is covered or outside the image) is drawn but is no object. The level ``plain`` has four
shapes, few and large, on quiet backgrounds; ``discs`` is the same with one of them. The boxes of
``oriented`` turn with the objects: each is the smallest box along the axes of its shape.

An image depends on the seed, its split, its number, the size and the level alone: it is the same
bytes in every process, order and machine.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from alphaiou._shapes import Int32, Int64, UInt8
from alphaiou.data.formats.base import Format, FoundSplit
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.oriented import corners_of, extents
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.drawing import draw
from alphaiou.data.shapes.outlines import SHAPES
from alphaiou.data.shapes.scenes import LEVELS, SPLITS, Scenes, generator, lay_out

if TYPE_CHECKING:
    from torch import Tensor

    from alphaiou.data.dataset import DetectionDataset

LENGTHS = {"train": 2000, "val": 500, "test": 500}
LEAST_SEEN = 0.3
SIZES = range(64, 2049)
#: The drawn sets: their level, and the longer side of their images.
SHAPES_WORD = re.compile(r"shapes(?:-(?P<level>plain|discs|oriented))?(?:-(?P<size>[0-9]+))?")


def shapes_dataset(
    split: str = "train",
    *,
    size: int = 320,
    length: int | None = None,
    seed: int = 0,
    level: str = "full",
) -> DetectionDataset:
    """The drawn data set; the images of its splits, and of its seeds, are all different.

    Args:
        split: ``train``, ``val`` or ``test``.
        size: The longer side of the images, 64 to 2048 pixels.
        length: How many images; 2000, 500 and 500 unless given. A longer set begins with the
            images of a shorter one.
        seed: Which of the many such data sets.
        level: ``full``, ``plain``, ``oriented``, whose boxes turn with the objects, or ``discs``,
            which a small detector learns to find within a minute on a processor.

    Examples:
        >>> image, target = shapes_dataset("val", size=160, length=8)[3]
        >>> tuple(image.shape), target["boxes"].shape[-1]
        ((3, 160, 106), 4)
    """
    from alphaiou.data.dataset import DetectionDataset

    return DetectionDataset(shapes_index(split, size=size, length=length, seed=seed, level=level))


def shapes_index(
    split: str = "train",
    *,
    size: int = 320,
    length: int | None = None,
    seed: int = 0,
    level: str = "full",
) -> DetectionIndex:
    """The boxes of ``shapes_dataset``, without drawing anything."""
    length = LENGTHS.get(split, 1) if length is None else length
    images = DrawnImages(split, size, length, seed, level)
    classes = LEVELS[level].shapes
    scenes = images.scenes(range(length))
    objects = np.flatnonzero(scenes.seen() >= LEAST_SEEN)
    boxes, oriented = scenes.boxes()[objects], None
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    if LEVELS[level].is_oriented:
        oriented = scenes.oriented_boxes()[objects]
        boxes, areas = extents(corners_of(oriented)), oriented[:, 2] * oriented[:, 3]
    counts = np.bincount(scenes.image_of_shape[objects], minlength=images.length)
    return DetectionIndex(
        layout="shapes",
        root=Path("shapes"),
        split=split,
        classes=classes,
        category_ids=np.arange(1, len(classes) + 1),
        images=images,
        files=Strings.pack([images.name(number) for number in range(images.length)]),
        image_ids=np.arange(1, images.length + 1),
        sizes=scenes.sizes.astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=boxes,
        labels=_labels(scenes.shapes[objects], classes),
        box_ids=np.arange(1, len(boxes) + 1),
        areas=areas,
        crowd=np.zeros(len(boxes), dtype=bool),
        difficult=np.zeros(len(boxes), dtype=bool),
        truncated=scenes.past_border()[objects],
        oriented=oriented,
    )


def _labels(
    shapes: Int64[np.ndarray, " boxes"], classes: tuple[str, ...]
) -> Int32[np.ndarray, " boxes"]:
    """The labels of shapes of a level that has these classes."""
    label_of = np.full(len(SHAPES), -1, dtype=np.int32)
    label_of[[SHAPES.index(name) for name in classes]] = np.arange(len(classes))
    labels: np.ndarray = label_of[shapes]
    return labels


@dataclass(frozen=True)
class DrawnImages:
    """The images of one split, drawn when asked for.

    Examples:
        >>> images = DrawnImages("train", size=64, length=3, seed=0)
        >>> images.read("train-000002.png")[1:4]
        b'PNG'
    """

    split: str
    size: int
    length: int
    seed: int
    level: str = "full"

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise DataError(f"shapes has no split {self.split!r}; take one of {', '.join(SPLITS)}")
        if self.size not in SIZES:
            raise DataError(
                f"the size of shapes is {SIZES[0]} to {SIZES[-1]} pixels, not {self.size}"
            )
        if self.length < 1:
            raise DataError(f"shapes needs a length of at least 1 image, not {self.length}")
        if not 0 <= self.seed < 2**64:
            raise DataError(f"the seed of shapes is 0 to 2**64 - 1, not {self.seed}")
        if self.level not in LEVELS:
            raise DataError(f"shapes has no level {self.level!r}; take one of {', '.join(LEVELS)}")

    def name(self, number: int) -> str:
        """The name of an image by its number, from 0."""
        return f"{self.split}-{number:06d}.png"

    def number(self, name: str) -> int | None:
        """The number of an image by its name; None if there is no such image."""
        digits = name.removeprefix(f"{self.split}-").removesuffix(".png")
        number = int(digits) if digits.isascii() and digits.isdigit() else self.length
        return number if number < self.length and self.name(number) == name else None

    def draw(self, name: str) -> UInt8[np.ndarray, "3 height width"]:
        """The pixels of an image."""
        number = self.number(name)
        if number is None:
            raise DataError(
                f"{self.where(name)}: no such image; they are {self.name(0)} "
                f"to {self.name(self.length - 1)}"
            )
        rng = generator(number, self.split, self.seed, stream=1)
        return draw(self.scenes([number]), rng, LEVELS[self.level])

    def scenes(self, numbers: Iterable[int]) -> Scenes:
        """The shapes and boxes of some images."""
        return lay_out(
            numbers, split=self.split, size=self.size, seed=self.seed, level=LEVELS[self.level]
        )

    def pixels(self, name: str) -> UInt8[Tensor, "3 height width"]:
        """The same as a tensor: what reading and decoding the file would give, without either."""
        import torch

        return torch.from_numpy(self.draw(name))

    def read(self, name: str) -> bytes:
        """The image as a PNG file."""
        from PIL import Image

        file = io.BytesIO()
        pixels = np.ascontiguousarray(self.draw(name).transpose(1, 2, 0))
        Image.fromarray(pixels).save(file, "PNG", compress_level=1)
        return file.getvalue()

    def where(self, name: str) -> str:
        """The name to show in messages."""
        return f"shapes/{name}"

    def missing(self, names: Iterable[str]) -> list[int]:
        """The positions of the names that are missing from this split."""
        return [place for place, name in enumerate(names) if self.number(name) is None]


def _recognise(path: Path) -> bool:
    return SHAPES_WORD.fullmatch(str(path)) is not None


def _find(path: Path, split: str) -> FoundSplit:
    word = SHAPES_WORD.fullmatch(str(path))
    if word is None:
        raise DataError(f"{str(path)!r} is no drawn set; there are {FORMAT.signs}")
    size, level = int(word["size"] or 320), word["level"] or "full"
    return FoundSplit(Sources(()), lambda: shapes_index(split, size=size, level=level))


FORMAT = Format(
    signs="shapes, shapes-plain, shapes-discs, shapes-oriented, and each with a size such as "
    "shapes-discs-64",
    recognise=_recognise,
    splits=lambda _: tuple(LENGTHS),
    find=_find,
)
