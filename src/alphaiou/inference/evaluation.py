"""Evaluate a detector on a data set."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from alphaiou._shapes import Float, Int, Int64
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.cache import (
    ImageCache,
    TooLargeError,
    build_cache,
    letterbox_batch,
    margins,
    to_original,
)
from alphaiou.data.pipeline.stream import StreamedImages
from alphaiou.data.problems import DataError
from alphaiou.detectors import Detector, fold_batch_norm
from alphaiou.detectors.base import AUTOCAST, Precision
from alphaiou.inference.weights import TrainedDetector
from alphaiou.metrics import DetectionScores, Scores
from alphaiou.metrics.rules import RuleName


def evaluate(
    detector: Detector,
    index: DetectionIndex,
    images: ImageCache | StreamedImages,
    *,
    rule: RuleName,
    precision: Precision,
    batch_size: int | None = None,
    rank: int = 0,
    count: int = 1,
) -> Scores:
    """Score a detector on the images of an index.

    Args:
        detector: The detector.
        index: The images and their ground truth, in pixels of the original images.
        images: The pixels, in the same order; unreadable images are not scored.
        rule: The evaluation rule.
        precision: The precision of the network.
        batch_size: The batch size; by default that of the detector.
        rank: The rank of this process, which evaluates its share of the images.
        count: The number of processes; the scores are merged over all of them.
    """
    scores = collect(
        detector,
        index,
        images,
        rule=rule,
        precision=precision,
        batch_size=batch_size,
        rows=torch.arange(len(images))[rank::count],
    )
    return (scores if count == 1 else scores.gather()).compute()


def collect(
    detector: Detector,
    index: DetectionIndex,
    images: ImageCache | StreamedImages,
    *,
    rule: RuleName,
    precision: Precision,
    batch_size: int | None = None,
    rows: Int64[Tensor, " some"] | None = None,
) -> DetectionScores:
    """Detect objects in the images of an index, and return the detections with the ground truth.

    Args:
        detector: The detector.
        index: The images and their ground truth, in pixels of the original images.
        images: The pixels, in the same order; unreadable images are left out.
        rule: The evaluation rule.
        precision: The precision of the network.
        batch_size: The batch size; by default that of the detector.
        rows: The rows of ``images`` to use; all by default.
    """
    scores = DetectionScores(classes=index.classes, rule=rule)
    device = next(detector.parameters()).device
    row_of = {int(number): row for row, number in enumerate(index.image_ids)}
    rows = torch.arange(len(images)) if rows is None else rows
    folded = fold_batch_norm(detector).to(memory_format=torch.channels_last)
    for part in images.parts(rows, batch_size or detector.images_at_once, device):
        rows_read = (part.sizes[:, 0] > 0).nonzero().flatten()
        if not len(rows_read):
            continue
        detections = detect(folded, part, rows_read, precision=precision)
        numbers = part.image_ids[rows_read].tolist()
        scores.update(detections, [ground_truth(index, row_of[number]) for number in numbers])
    return scores


def weights_detections(
    trained: TrainedDetector,
    dataset: DetectionDataset,
    *,
    rule: RuleName,
    device: str = "cpu",
    workers: int | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> DetectionScores:
    """Collect the detections of a trained detector on a data set as its training scored them.

    Args:
        trained: The detector.
        dataset: The images, with the classes of the detector.
        rule: The evaluation rule.
        device: ``cpu`` or ``cuda``.
        workers: The number of decoding processes; by default from the images and cores.
        note: Called with a message about each unreadable image, which is not scored.

    Raises:
        DataError: If the data set has other classes, or no readable image.
    """
    index = dataset.index
    if index.classes != trained.classes:
        differing = ", ".join(sorted({*index.classes} ^ {*trained.classes})[:5])
        raise DataError(
            f"{index.root}: the classes of split {index.split!r} differ from those of the weights "
            f"({differing or 'in their order only'}); choose the data set that they were trained "
            "for, or give it the same list of classes"
        )
    images: ImageCache | StreamedImages
    try:
        images = build_cache(dataset, trained.image_size, device=device, workers=workers)
    except TooLargeError:
        images = StreamedImages(dataset, trained.image_size, workers)
    for problem in images.problems:
        note(str(problem))
    detector = trained.detector.to(device)
    return collect(detector, index, images, rule=rule, precision=trained.precision)


@torch.no_grad()
def detect(
    detector: Detector, cache: ImageCache, rows: Tensor, *, precision: Precision
) -> list[dict[str, Tensor]]:
    """Detect objects in some images of a cache, in pixels of the original images."""
    device = next(detector.parameters()).device
    images = letterbox_batch(cache, rows).to(device)
    kind = AUTOCAST.get(precision)
    with torch.autocast(images.device.type, kind, enabled=kind is not None):
        detections: Iterable[dict[str, Tensor]] = detector(images)
    geometry = margins(cache, rows), cache.sizes[rows], cache.scales[rows]
    return in_original(list(detections), *geometry)


def in_original(
    detections: list[dict[str, Tensor]],
    corners: Int[Tensor, "images 2"],
    sizes: Int[Tensor, "images 2"],
    scales: Float[Tensor, "images 2"],
) -> list[dict[str, Tensor]]:
    """Convert the boxes of all images to pixels of the original images."""
    counts = [len(image["boxes"]) for image in detections]
    boxes = torch.cat([image["boxes"] for image in detections])
    image_of_box = (
        torch.arange(len(detections)).repeat_interleave(torch.tensor(counts)).to(boxes.device)
    )
    # Clip boxes to the image: the padding shows nothing.
    corner, limits = (part.to(boxes).repeat(1, 2)[image_of_box] for part in (corners, sizes))
    boxes = to_original(
        (boxes - corner).clamp(min=0).minimum(limits), scales.to(boxes)[image_of_box]
    )
    return [
        image | {"boxes": own_boxes}
        for image, own_boxes in zip(detections, torch.split(boxes, counts), strict=True)
    ]


def readable(index: DetectionIndex, cache: ImageCache) -> DetectionIndex:
    """Return the part of an index whose images are in a cache."""
    is_cached = np.isin(index.image_ids, cache.image_ids.cpu().numpy())
    return index if is_cached.all() else index.take(np.flatnonzero(is_cached))


def ground_truth(index: DetectionIndex, image: int) -> dict[str, object]:
    """Return the ground truth of an image in the format of ``DetectionScores``."""
    rows = index.rows(image)
    return {
        "boxes": index.boxes[rows],
        "labels": index.labels[rows],
        "iscrowd": index.crowd[rows],
        "difficult": index.difficult[rows],
        "area": index.areas[rows],
        "image_id": int(index.image_ids[image]),
    }
