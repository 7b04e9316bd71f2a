"""Indexes made by hand, for tests of what is done with an index."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from alphaiou.data.index import DetectionIndex, Strings


class NoImages:
    """Images that nobody reads."""

    def read(self, name: str) -> bytes:
        raise AssertionError(f"nothing here reads pixels, but {name} was asked for")

    def where(self, name: str) -> str:
        return name

    def missing(self, names) -> list[int]:
        return []


def made_index(
    boxes: Sequence[Sequence[Sequence[float]]],
    *,
    names: Sequence[str] | None = None,
    sizes: Sequence[tuple[int, int]] | None = None,
    classes: Sequence[str] = ("cat", "dog", "hen"),
) -> DetectionIndex:
    """An index of images with the boxes given for each; labels go round."""
    counts = [len(one) for one in boxes]
    total = sum(counts)
    flat = np.array([box for one in boxes for box in one], dtype=np.float64).reshape(-1, 4)
    names = [f"images/{i:04d}.jpg" for i in range(len(boxes))] if names is None else names
    sizes = [(640, 480)] * len(boxes) if sizes is None else sizes
    return DetectionIndex(
        layout="coco",
        root=Path("made"),
        split="train",
        classes=tuple(classes),
        category_ids=np.arange(1, len(classes) + 1),
        images=NoImages(),
        files=Strings.pack(names),
        image_ids=np.arange(1, len(boxes) + 1),
        sizes=np.array(sizes, dtype=np.int32).reshape(-1, 2),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=flat,
        labels=(np.arange(total) % max(len(classes), 1)).astype(np.int32),
        box_ids=np.arange(1, total + 1),
        areas=(flat[:, 2] - flat[:, 0]) * (flat[:, 3] - flat[:, 1]),
        crowd=np.zeros(total, dtype=bool),
        difficult=np.zeros(total, dtype=bool),
        truncated=np.zeros(total, dtype=bool),
    )


def random_index(images: int, *, seed: int = 0) -> DetectionIndex:
    """Random boxes in images of random sizes; some images have none, some boxes pass the border."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(40, 700, (images, 2))
    boxes = []
    for size in sizes:
        low = rng.uniform(0, 0.9, (rng.integers(0, 6), 2)) * size
        high = low + rng.uniform(1, 1.05 * (size - low).clip(2))
        boxes.append(np.concatenate([low, high], axis=1).tolist())
    names = [f"images/{name:05d}.jpg" for name in rng.permutation(99_999)[:images]]
    return made_index(boxes, names=names, sizes=[tuple(size) for size in sizes.tolist()])
