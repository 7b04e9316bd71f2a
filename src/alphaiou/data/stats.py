"""Statistics of a data set: how many, how large, of what shape, and where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import numpy as np

from alphaiou._shapes import Float64
from alphaiou.data.index import DetectionIndex

#: COCO's sides of the squares that part small from medium and medium from large boxes, in pixels.
SMALL_SIDE, MEDIUM_SIDE = 32, 96
#: The long side that images are scaled to before sizes are compared between data sets.
REFERENCE_SIDE = 640
#: Cells of the map of centres, in each direction; odd, for many boxes lie in the very middle.
CENTRE_CELLS = 21


@dataclass(frozen=True)
class Spread:
    """How a quantity is distributed."""

    mean: float
    minimum: float
    lower_quartile: float
    median: float
    upper_quartile: float
    maximum: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread | None:
        """The spread of some values; None of none."""
        if not values.size:
            return None
        return cls(float(values.mean()), *np.quantile(values, (0, 0.25, 0.5, 0.75, 1)).tolist())


@dataclass(frozen=True)
class SizeCounts:
    """Boxes by COCO's sizes: areas below 32², below 96², and the others."""

    small: int
    medium: int
    large: int

    @classmethod
    def of(cls, areas: np.ndarray) -> SizeCounts:
        """Count the areas of each size."""
        small, medium = (int((areas < side**2).sum()) for side in (SMALL_SIDE, MEDIUM_SIDE))
        return cls(small, medium - small, len(areas) - medium)


@dataclass(frozen=True)
class ClassCount:
    """How often a class occurs."""

    name: str
    boxes: int
    images: int


@dataclass(frozen=True)
class DatasetStats:
    """The statistics of one split.

    Attributes:
        source: The folder or file.
        layout: Its layout.
        split: The split.
        images: Images.
        images_without_boxes: Images among them that have no box.
        boxes: Boxes.
        crowd: Crowds among them.
        difficult: Difficult ones among them.
        truncated: Truncated ones among them.
        classes: How often each class occurs, in the order of the labels.
        boxes_per_image: Boxes of an image, images without any among them.
        image_width: Pixels.
        image_height: Pixels.
        box_width: Pixels.
        box_height: Pixels.
        relative_size: √(area of the box / area of the image).
        aspect_ratio: Width over height of a box.
        sizes: Small, medium and large, by the areas of the data set.
        sizes_at_reference: The same if every image were scaled to a long side of 640 pixels.
        centres: Boxes by the cell of a 21 × 21 grid over the image that holds the centre, rows from
            the top.
    """

    source: str
    layout: str
    split: str
    images: int
    images_without_boxes: int
    boxes: int
    crowd: int
    difficult: int
    truncated: int
    classes: tuple[ClassCount, ...]
    boxes_per_image: Spread | None
    image_width: Spread | None
    image_height: Spread | None
    box_width: Spread | None
    box_height: Spread | None
    relative_size: Spread | None
    aspect_ratio: Spread | None
    sizes: SizeCounts
    sizes_at_reference: SizeCounts
    centres: tuple[tuple[int, ...], ...]

    def to_json(self) -> str:
        """The statistics as JSON."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"


def dataset_stats(index: DetectionIndex) -> DatasetStats:
    """Compute the statistics of an index.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> dataset_stats(shapes_index("val", length=8)).images
        8
    """
    counts = np.diff(index.offsets)
    sides = index.boxes[:, 2:] - index.boxes[:, :2]
    long_side = index.sizes.max(axis=1, initial=0)[index.image_of_box()]
    return DatasetStats(
        source=str(index.root),
        layout=index.layout,
        split=index.split,
        images=len(index),
        images_without_boxes=int((counts == 0).sum()),
        boxes=index.num_boxes,
        crowd=int(index.crowd.sum()),
        difficult=int(index.difficult.sum()),
        truncated=int(index.truncated.sum()),
        classes=_class_counts(index),
        boxes_per_image=Spread.of(counts),
        image_width=Spread.of(index.sizes[:, 0]),
        image_height=Spread.of(index.sizes[:, 1]),
        box_width=Spread.of(sides[:, 0]),
        box_height=Spread.of(sides[:, 1]),
        relative_size=Spread.of(relative_sizes(index)),
        aspect_ratio=Spread.of(sides[:, 0] / sides[:, 1]),
        sizes=SizeCounts.of(index.areas),
        sizes_at_reference=SizeCounts.of(index.areas * (REFERENCE_SIDE / long_side) ** 2),
        centres=tuple(tuple(row) for row in centre_map(index, CENTRE_CELLS).astype(int).tolist()),
    )


def relative_sizes(index: DetectionIndex) -> Float64[np.ndarray, " boxes"]:
    """√(area of the box / area of the image) of every box."""
    sides = index.boxes[:, 2:] - index.boxes[:, :2]
    share: Float64[np.ndarray, " boxes"] = np.sqrt(
        (sides / index.sizes[index.image_of_box()]).prod(axis=1)
    )
    return share


def centre_map(index: DetectionIndex, cells: int) -> Float64[np.ndarray, "cells cells"]:
    """The number of box centres in each cell of a grid over the image, rows from the top.

    Centres outside the image count in the cell nearest to them.
    """
    centres = (index.boxes[:, :2] + index.boxes[:, 2:]) / 2
    share = centres / index.sizes[index.image_of_box()]
    x, y = np.clip(np.floor(share * cells), 0, cells - 1).astype(np.int64).T
    return np.bincount(y * cells + x, minlength=cells**2).reshape(cells, cells).astype(np.float64)


def _class_counts(index: DetectionIndex) -> tuple[ClassCount, ...]:
    number = len(index.classes)
    boxes = np.bincount(index.labels, minlength=number)
    pairs = np.unique(index.image_of_box() * max(number, 1) + index.labels)
    images = np.bincount(pairs % max(number, 1), minlength=number)
    return tuple(map(ClassCount, index.classes, boxes.tolist(), images.tolist()))
