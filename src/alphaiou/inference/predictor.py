"""Detections in image files: find the files, letterbox as in training, detect, write as JSON."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.files import IMAGE_SUFFIXES, FolderImages
from alphaiou.data.images import ImageError, image_size
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.pipeline.stream import stream_batches
from alphaiou.data.problems import DataError
from alphaiou.detectors import Detections, fold_batch_norm
from alphaiou.inference.evaluation import detect
from alphaiou.inference.weights import TrainedDetector

BATCH = 16
#: Starting a process takes as long as decoding about so many images.
IMAGES_WORTH_A_WORKER = 256


@dataclass(frozen=True)
class PredictedImage:
    """An image and its detections.

    Attributes:
        path: The file.
        name: What detections call it.
        found: ``boxes``, ``scores`` and ``labels``, best first, in pixels; None if not readable.
        problem: Why it could not be read; "" if it could.
    """

    path: Path
    name: str
    found: Detections | None
    problem: str = ""


def find_images(places: Sequence[str]) -> list[Path]:
    """The images that files, folders and patterns stand for, each once, in their order.

    Of a folder, every image in it and in the folders below.

    Raises:
        DataError: There is no such file or folder, or no image in it.
    """
    found: dict[Path, None] = {}
    for place in places:
        here = _images_at(place)
        if not here:
            raise DataError(f"{place}: there is no such file, or no image in it")
        found |= dict.fromkeys(here)
    return list(found)


def _images_at(place: str) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if _is_image(one))
    if path.exists():
        return [path]
    names = sorted(glob.glob(place, recursive=True))  # noqa: PTH207 - it may be absolute
    matches = map(Path, names)
    return [one for one in matches if _is_image(one)]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()


def image_names(paths: Sequence[Path]) -> list[str]:
    """The names of images in detections: the file's name; with its folders where two have the same.

    Examples:
        >>> image_names([Path("a/1.jpg"), Path("a/2.jpg"), Path("b/2.jpg")])
        ['1.jpg', 'a/2.jpg', 'b/2.jpg']
    """
    often = Counter(path.name for path in paths)
    return [path.name if often[path.name] == 1 else path.as_posix() for path in paths]


def predict_images(
    trained: TrainedDetector,
    paths: Sequence[Path],
    *,
    score: float = 0.25,
    device: str = "cpu",
    workers: int | None = None,
) -> Iterator[PredictedImage]:
    """Detect objects in image files, in their order; unreadable images are reported, not raised.

    Args:
        trained: The detector.
        paths: The files.
        score: The least score of a detection.
        device: ``cpu`` or ``cuda``.
        workers: Processes that decode images; one per core by default, none for few images.
    """
    sizes = [_size_or_problem(path) for path in paths]
    rows = [row for row, size in enumerate(sizes) if not isinstance(size, str)]
    found = (
        _detections(
            trained,
            [paths[row] for row in rows],
            [sizes[row] for row in rows],
            score=score,
            device=device,
            workers=workers,
        )
        if rows
        else iter(())
    )
    for path, name, size in zip(paths, image_names(paths), sizes, strict=True):
        if isinstance(size, str):
            yield PredictedImage(path, name, None, size)
        else:
            one, problem = next(found)
            yield PredictedImage(path, name, one, problem)


def _size_or_problem(path: Path) -> tuple[int, int] | str:
    try:
        return image_size(path)
    except ImageError as error:
        return error.why


def _detections(
    trained: TrainedDetector,
    paths: Sequence[Path],
    sizes: Sequence[Any],
    *,
    score: float,
    device: str,
    workers: int | None,
) -> Iterator[tuple[Detections | None, str]]:
    """The detections of each image; None and the reason where its pixels cannot be decoded."""
    detector = trained.detector
    detector.set_least_score(score)
    folded = fold_batch_norm(detector).to(device).to(memory_format=torch.channels_last)
    if workers is None:
        workers = min(os.cpu_count() or 1, len(paths) // IMAGES_WORTH_A_WORKER)
    caches = stream_batches(
        DetectionDataset(_index(paths, sizes, trained.classes)),
        range(len(paths)),
        trained.image_size,
        batch_size=BATCH,
        images_per_sample=1,
        device=device,
        workers=workers,
    )
    for cache in caches:
        why = {
            problem.file: problem.detail for problem in cache.problems if problem.effect != "kept"
        }
        rows = torch.arange(len(cache), device=cache.pixels.device)
        precision = trained.precision if device == "cuda" else "fp32"
        found = detect(folded, cache, rows, precision=precision)
        for number, one, width in zip(
            cache.image_ids.tolist(), found, cache.sizes[:, 0].tolist(), strict=True
        ):
            path = str(paths[number])
            readable = {name: tensor.cpu() for name, tensor in one.items()} if width else None
            yield readable, "" if width else why.get(path, "cannot be decoded")


def _index(
    paths: Sequence[Path], sizes: Sequence[tuple[int, int]], classes: tuple[str, ...]
) -> DetectionIndex:
    """The images as a data set without boxes."""
    nothing = np.zeros(0, dtype=np.int64)
    flags = nothing.astype(bool)
    return DetectionIndex(
        layout="yolo",
        root=Path(),
        split="images",
        classes=classes,
        category_ids=np.arange(len(classes)),
        images=FolderImages(Path(), anywhere=True),
        files=Strings.pack([str(path) for path in paths]),
        image_ids=np.arange(len(paths)),
        sizes=np.array(sizes, dtype=np.int32).reshape(-1, 2),
        offsets=np.zeros(len(paths) + 1, dtype=np.int64),
        boxes=np.zeros((0, 4)),
        labels=nothing.astype(np.int32),
        box_ids=nothing,
        areas=np.zeros(0),
        crowd=flags,
        difficult=flags,
        truncated=flags,
    )


def as_coco(image: PredictedImage, classes: Sequence[str]) -> list[dict[str, Any]]:
    """The detections of an image in COCO's format, image and category by name.

    Examples:
        >>> found = {"boxes": torch.tensor([[1.0, 2.0, 4.0, 6.0]]), "scores": torch.tensor([0.5])}
        >>> image = PredictedImage(Path("a.jpg"), "a.jpg", found | {"labels": torch.tensor([0])})
        >>> as_coco(image, ["cat"])
        [{'image_id': 'a.jpg', 'category_id': 'cat', 'bbox': [1.0, 2.0, 3.0, 4.0], 'score': 0.5}]
    """
    if image.found is None:
        return []
    columns = (image.found[name].tolist() for name in ("boxes", "labels", "scores"))
    return [
        {
            "image_id": image.name,
            "category_id": classes[label],
            "bbox": [round(side, 3) for side in (x1, y1, x2 - x1, y2 - y1)],
            "score": round(score, 5),
        }
        for (x1, y1, x2, y2), label, score in zip(*columns, strict=True)
    ]
