"""Open a data set of any layout, and read its images one at a time for a ``DataLoader``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from alphaiou._shapes import Bool, Float32, Int64, UInt8
from alphaiou.data.formats.base import FoundSplit
from alphaiou.data.formats.index_cache import cached_index
from alphaiou.data.formats.registry import get_format, recognise
from alphaiou.data.formats.splits import split_name
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import left_out

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset

    _Base = Dataset[tuple[UInt8[Tensor, "3 height width"], "Target"]]
else:
    # A loader asks for __len__ and __getitem__ alone. Without torch, a large set can be opened,
    # counted and checked in a tenth of the memory that importing torch takes.
    _Base = object

logger = logging.getLogger("alphaiou.data")


def load_dataset(path: str | Path, split: str, *, layout: str | None = None) -> DetectionDataset:
    """Open one split of a data set of any layout.

    The index is cached on disk, and read from there while the files stay the same (see
    :mod:`alphaiou.data.formats.index_cache`). The data set, and images and boxes that are left
    out, are reported to the logger ``alphaiou.data``; ``dataset.index.problems`` lists them.

    Args:
        path: A folder or file of one of the layouts in :mod:`alphaiou.data.formats.registry`, or a
            word for a set that is drawn as it is read, such as ``shapes``. If the path is neither,
            the error lists the files and words that each layout is recognised by.
        split: The split: ``train``, ``val``, ``test``, or what the data set calls it. ``valid`` and
            ``validation`` are ``val``.
        layout: The layout, where the files fit more than one.

    Raises:
        DataError: The path is no data set, fits two layouts, or has no such split. The message
            lists the files that were looked for, or the splits.

    Examples:
        >>> dataset = load_dataset("shapes", "val")
        >>> dataset.layout, len(dataset)
        ('shapes', 500)
        >>> load_dataset("shapes-plain-96", "val").index.classes
        ('disc', 'triangle', 'star', 'cross')
    """
    dataset = open_dataset(path, split, recognise(path, layout))
    logger.info("%s", dataset)
    if lost := left_out(dataset.index.problems):
        logger.warning("%s, split %s: %s", path, split, lost)
    return dataset


def open_dataset(path: str | Path, split: str, layout: str) -> DetectionDataset:
    """Open a data set of a known layout without logging, for callers that report by themselves."""
    root = Path(path)

    def find() -> FoundSplit:
        name, title = _spelt(root, split, layout)
        sources, read = get_format(layout).find(root, name)
        return FoundSplit(sources, lambda: replace(read(), split=title))

    # An index holds paths relative to the working directory where the data set was given as one.
    key = (layout, str(root), str(root.absolute()), split)
    return DetectionDataset(cached_index(key, find))


def split_names(path: str | Path, *, layout: str | None = None) -> tuple[str, ...]:
    """The splits of a data set.

    Examples:
        >>> split_names("shapes")
        ('train', 'val', 'test')
    """
    names = get_format(recognise(path, layout)).splits(Path(path))
    return tuple(_titles(names))


def _titles(names: Sequence[str]) -> dict[str, str]:
    """Of each split by its usual name, such as ``val``, what the data set calls it: ``valid``.

    A data set that has both ``val`` and ``valid`` keeps both.
    """
    usual = [split_name(name) for name in names]
    return {
        title if usual.count(title) == 1 else name: name
        for name, title in zip(names, usual, strict=True)
    }


def _spelt(root: Path, split: str, layout: str) -> tuple[str, str]:
    """What a data set calls a split, and the name for it everywhere else."""
    names = _titles(get_format(layout).splits(root))
    for title, name in names.items():
        if split in (title, name):
            return name, title
    title = split_name(split)
    return names.get(title, title), title


class _OrientedTarget(TypedDict, total=False):
    oriented: Float32[Tensor, "n 5"]


class Target(_OrientedTarget):
    """The annotation of one image; boxes are absolute ``x1 y1 x2 y2``.

    Data sets with oriented boxes have them as well, as ``cxcywhr``; ``boxes`` are their extents.
    """

    boxes: Float32[Tensor, "n 4"]
    labels: Int64[Tensor, " n"]
    image_id: int
    iscrowd: Bool[Tensor, " n"]
    difficult: Bool[Tensor, " n"]
    area: Float32[Tensor, " n"]


class DetectionDataset(_Base):
    """The images of an index, decoded when asked for, with their targets.

    Small to pickle but for the arrays of the index, and safe to read from many workers.

    Attributes:
        index: The images and boxes; a data set of a changed index is a new ``DetectionDataset``.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_index
        >>> dataset = DetectionDataset(shapes_index("val", size=64, length=2))
        >>> image, target = dataset[1]
        >>> image.dtype, image.shape[0], target["boxes"].shape[1], target["image_id"]
        (torch.uint8, 3, 4, 2)
    """

    def __init__(self, index: DetectionIndex) -> None:
        self.index = index

    @property
    def layout(self) -> str:
        """The name of the layout that the data set was read from."""
        return self.index.layout

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, position: int) -> tuple[UInt8[Tensor, "3 height width"], Target]:
        """An image and its target.

        Raises:
            DataError: The image cannot be read; the message names the file.
        """
        from alphaiou.data.images import decode_image
        from alphaiou.data.shapes.dataset import DrawnImages

        position = range(len(self))[position]
        images, name = self.index.images, self.index.files[position]
        if isinstance(images, DrawnImages):  # nothing to decode
            return images.pixels(name), self.target(position)
        return decode_image(images.read(name), images.where(name)), self.target(position)

    def target(self, position: int) -> Target:
        """The target of an image, without reading the image."""
        import torch

        index, rows = self.index, self.index.rows(position)
        target: Target = {
            "boxes": torch.tensor(index.boxes[rows], dtype=torch.float32),
            "labels": torch.tensor(index.labels[rows], dtype=torch.int64),
            "image_id": int(index.image_ids[position]),
            "iscrowd": torch.tensor(index.crowd[rows]),
            "difficult": torch.tensor(index.difficult[rows]),
            "area": torch.tensor(index.areas[rows], dtype=torch.float32),
        }
        if index.oriented is not None:
            target["oriented"] = torch.tensor(index.oriented[rows], dtype=torch.float32)
        return target

    def __repr__(self) -> str:
        return f"<DetectionDataset {self.index}>"

    def __str__(self) -> str:
        return str(self.index)


def collate(
    samples: Iterable[tuple[UInt8[Tensor, "3 height width"], Target]],
) -> tuple[list[Tensor], list[Target]]:
    """The images and the targets of a batch, as lists: neither have a size in common.

    Examples:
        >>> collate([("image a", "target a"), ("image b", "target b")])
        (['image a', 'image b'], ['target a', 'target b'])
    """
    pairs = list(samples)
    return [image for image, _ in pairs], [target for _, target in pairs]
