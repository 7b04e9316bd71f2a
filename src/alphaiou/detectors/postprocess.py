"""From the predictions of every cell to the detections of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from alphaiou.detectors.contract import Detections

#: Candidates that one call of NMS may compare: it needs memory for the square of their number.
CANDIDATES_AT_ONCE = 16_384


@dataclass(frozen=True)
class PostProcess:
    """Score threshold, NMS within each class, and the best detections of each image.

    A box counts once for every class whose score reaches the threshold.

    Attributes:
        score_threshold: The least score.
        nms_threshold: Of two boxes of a class with a larger IoU, the lower score goes.
        max_detections: The most detections of an image.
        max_candidates: The most boxes of an image that go into NMS, the best ones.
    """

    score_threshold: float = 0.001
    nms_threshold: float = 0.6
    max_detections: int = 300
    max_candidates: int = 30_000

    def __call__(
        self,
        predictions: tuple[Float[Tensor, "batch n 4"], Float[Tensor, "batch n classes"]],
        sizes: Sequence[tuple[int, int]],
    ) -> list[Detections]:
        """The detections of each image, best first, clipped to its height and width."""
        all_boxes, all_scores = predictions
        image, place, label = (all_scores > self.score_threshold).nonzero(as_tuple=True)
        scores = all_scores[image, place, label]
        order = scores.argsort(descending=True, stable=True)
        order = order[image[order].argsort(stable=True)]  # by image, then best first
        order = order[_rank(image[order], len(sizes)) < self.max_candidates]
        image, place, label, scores = image[order], place[order], label[order], scores[order]
        boxes = all_boxes[image, place]

        kept = self._suppress(boxes, scores, image, label, all_scores.shape)
        kept = kept[_rank(image[kept], len(sizes)) < self.max_detections]
        counts = image[kept].bincount(minlength=len(sizes)).tolist()
        parts = (torch.split(part[kept], counts) for part in (boxes, scores, label))
        return [
            {"boxes": _clip(own, size), "scores": score, "labels": name}
            for own, score, name, size in zip(*parts, sizes, strict=True)
        ]

    def _suppress(
        self,
        boxes: Float[Tensor, "n 4"],
        scores: Float[Tensor, " n"],
        image: Int[Tensor, " n"],
        label: Int[Tensor, " n"],
        shape: Sequence[int],
    ) -> Int[Tensor, " kept"]:
        """The rows that NMS keeps, ascending; a few images at a time."""
        from torchvision.ops import nms

        if not len(boxes):
            return image
        # Boxes of different images and classes are moved apart. That costs digits: hence fp64.
        span = boxes.amax() - boxes.amin() + 1.0
        apart = boxes.double() + ((image * shape[2] + label) * span.double())[:, None]
        kept = torch.zeros_like(image, dtype=torch.bool)
        for rows in _chunks(image.bincount(minlength=shape[0]).tolist()):
            kept[rows.start + nms(apart[rows], scores[rows].double(), self.nms_threshold)] = True
        return kept.nonzero().flatten()


def _rank(image: Int[Tensor, " n"], images: int) -> Int[Tensor, " n"]:
    """The place of each row among those of its image; rows come image by image."""
    counts = image.bincount(minlength=images)
    return torch.arange(len(image), device=image.device) - (counts.cumsum(0) - counts)[image]


def _chunks(counts: Sequence[int]) -> list[slice]:
    """Rows of whole images, as many at once as NMS can take."""
    chunks, start, end = [], 0, 0
    for count in counts:
        if end + count - start > CANDIDATES_AT_ONCE and end > start:
            chunks.append(slice(start, end))
            start = end
        end += count
    return [*chunks, slice(start, end)]


def _clip(boxes: Float[Tensor, "n 4"], size: tuple[int, int]) -> Float[Tensor, "n 4"]:
    x1, y1, x2, y2 = boxes.unbind(-1)
    (height, width) = size
    clipped = (x1.clamp(0, width), y1.clamp(0, height), x2.clamp(0, width), y2.clamp(0, height))
    return torch.stack(clipped, dim=-1)
