"""Scores of a detector on a data set."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from alphaiou._shapes import Float, Int
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.cache import ImageCache, letterbox_batch, margins, to_original
from alphaiou.data.pipeline.stream import StreamedImages
from alphaiou.detectors import Detector, fold_batch_norm
from alphaiou.detectors.base import AUTOCAST, Precision
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
        index: The images and their boxes, in pixels of the original images.
        images: Their pixels, in the same order; images that cannot be read are not scored.
        rule: How to score.
        precision: The arithmetic of the network.
        batch_size: Images at a time; by default that of the detector.
        rank: Which of several processes this is, each of which takes a share of the images.
        count: The number of these processes; the scores are those of all images.
    """
    scores = DetectionScores(classes=index.classes, rule=rule)
    device = next(detector.parameters()).device
    row_of = {int(number): row for row, number in enumerate(index.image_ids)}
    rows = torch.arange(len(images))[rank::count]
    folded = fold_batch_norm(detector).to(memory_format=torch.channels_last)
    for part in images.parts(rows, batch_size or detector.images_at_once, device):
        seen = (part.sizes[:, 0] > 0).nonzero().flatten()
        if not len(seen):
            continue
        found = detect(folded, part, seen, precision=precision)
        numbers = part.image_ids[seen].tolist()
        scores.update(found, [ground_truth(index, row_of[number]) for number in numbers])
    return (scores if count == 1 else scores.gather()).compute()


@torch.no_grad()
def detect(
    detector: Detector, cache: ImageCache, rows: Tensor, *, precision: Precision
) -> list[dict[str, Tensor]]:
    """The detections of some images of a cache, in pixels of the original images."""
    device = next(detector.parameters()).device
    images = letterbox_batch(cache, rows).to(device)
    kind = AUTOCAST.get(precision)
    with torch.autocast(images.device.type, kind, enabled=kind is not None):
        found: Iterable[dict[str, Tensor]] = detector(images)
    places = margins(cache, rows), cache.sizes[rows], cache.scales[rows]
    return in_original(list(found), *places)


def in_original(
    found: list[dict[str, Tensor]],
    corners: Int[Tensor, "images 2"],
    sizes: Int[Tensor, "images 2"],
    scales: Float[Tensor, "images 2"],
) -> list[dict[str, Tensor]]:
    """Detections with their boxes in pixels of the original images; those of all images at once."""
    counts = [len(one["boxes"]) for one in found]
    boxes = torch.cat([one["boxes"] for one in found])
    image = torch.arange(len(found)).repeat_interleave(torch.tensor(counts)).to(boxes.device)
    # Nothing is seen in the grey beside an image: boxes end where it does.
    corner, limits = (part.to(boxes).repeat(1, 2)[image] for part in (corners, sizes))
    boxes = to_original((boxes - corner).clamp(min=0).minimum(limits), scales.to(boxes)[image])
    own = torch.split(boxes, counts)
    return [one | {"boxes": its} for one, its in zip(found, own, strict=True)]


def readable(index: DetectionIndex, cache: ImageCache) -> DetectionIndex:
    """The part of an index whose images a cache holds."""
    there = np.isin(index.image_ids, cache.image_ids.cpu().numpy())
    return index if there.all() else index.take(np.flatnonzero(there))


def ground_truth(index: DetectionIndex, image: int) -> dict[str, object]:
    """The boxes of an image in the form that ``DetectionScores`` takes."""
    rows = index.rows(image)
    return {
        "boxes": index.boxes[rows],
        "labels": index.labels[rows],
        "iscrowd": index.crowd[rows],
        "difficult": index.difficult[rows],
        "area": index.areas[rows],
        "image_id": int(index.image_ids[image]),
    }
