"""Prediction on image files: collect the files, letterbox as in training, detect, export."""

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
#: Starting a process takes about as long as decoding this many images.
IMAGES_WORTH_A_WORKER = 256


@dataclass(frozen=True)
class PredictedImage:
    """An image and its detections.

    Attributes:
        path: The path of the image.
        name: The name of the image in the exported detections.
        found: ``boxes``, ``scores`` and ``labels``, best first, in pixels; None if unreadable.
        problem: The reason why the image is unreadable, or "".
    """

    path: Path
    name: str
    found: Detections | None
    problem: str = ""


def find_images(places: Sequence[str]) -> list[Path]:
    """Expand files, folders and patterns to a list of unique image paths, in order.

    Folders are searched recursively.

    Raises:
        DataError: If a file or folder does not exist or contains no image.
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
    """Return the names of images: the file name, with folders if several files have that name.

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
    """Detect objects in image files, in order; unreadable images are reported, not raised.

    Args:
        trained: The detector.
        paths: The image files.
        score: The minimum score of a detection.
        device: ``cpu`` or ``cuda``.
        workers: The number of decoding processes; by default one per core, or 0 for few images.
    """
    sizes = [_size_or_problem(path) for path in paths]
    rows = [row for row, size in enumerate(sizes) if not isinstance(size, str)]
    detections = (
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
            image, problem = next(detections)
            yield PredictedImage(path, name, image, problem)


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
    """Yield the detections of each image, or None and the reason if it cannot be decoded."""
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
        detections = detect(folded, cache, rows, precision=precision)
        for number, image, width in zip(
            cache.image_ids.tolist(), detections, cache.sizes[:, 0].tolist(), strict=True
        ):
            path = str(paths[number])
            readable = {name: tensor.cpu() for name, tensor in image.items()} if width else None
            yield readable, "" if width else why.get(path, "cannot be decoded")


def _index(
    paths: Sequence[Path], sizes: Sequence[tuple[int, int]], classes: tuple[str, ...]
) -> DetectionIndex:
    """Return the images as a data set without boxes."""
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
    """Return the detections of an image in COCO format, with image and category names.

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
