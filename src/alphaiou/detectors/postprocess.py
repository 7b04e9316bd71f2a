"""From the predictions of every cell to the detections of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from alphaiou.detectors.contract import Detections

#: Candidates of an image that are tried first; nearly always its best detections are among them.
FIRST_CANDIDATES = 512
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
        boxes, scores = predictions
        found: list[Detections] = [{}] * len(sizes)
        waiting, most = list(range(len(sizes))), FIRST_CANDIDATES
        while waiting:
            most = min(most, self.max_candidates)
            own_sizes = [sizes[image] for image in waiting]
            some, short = self._detect(boxes[waiting], scores[waiting], own_sizes, most)
            for image, detections in zip(waiting, some, strict=True):
                found[image] = detections
            waiting, most = [waiting[image] for image in short], 8 * most
        return found

    def _detect(
        self,
        all_boxes: Float[Tensor, "batch n 4"],
        all_scores: Float[Tensor, "batch n classes"],
        sizes: Sequence[tuple[int, int]],
        most: int,
    ) -> tuple[list[Detections], list[int]]:
        """The detections among the best candidates of each image, and where more might be found.

        What NMS keeps of the best candidates it also keeps of all of them, so an image is done once
        it has all its detections.
        """
        classes = all_scores.shape[2]
        most, every = min(most, all_scores[0].numel()), all_scores[0].numel()
        best, place = _best(all_scores.flatten(1), most)
        above = best > self.score_threshold
        image, rank = above.nonzero(as_tuple=True)
        place, scores = place[image, rank], best[image, rank]
        label, boxes = place % classes, all_boxes[image, place // classes]
        kept = self._suppress(boxes, scores, image, label, all_scores.shape)
        kept = kept[_rank(image[kept], len(sizes)) < self.max_detections]
        counts = image[kept].bincount(minlength=len(sizes)).tolist()
        clipped = _clip(boxes[kept], image[kept], sizes)
        parts = (torch.split(part, counts) for part in (clipped, scores[kept], label[kept]))
        found = [
            {"boxes": own, "scores": score, "labels": name}
            for own, score, name in zip(*parts, strict=True)
        ]
        more = most < min(every, self.max_candidates)
        unfinished = above[:, -1] & (torch.tensor(counts) < self.max_detections).to(above.device)
        return found, unfinished.nonzero().flatten().tolist() if more else []

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


def _best(
    scores: Float[Tensor, "batch n"], most: int
) -> tuple[Float[Tensor, "batch most"], Int[Tensor, "batch most"]]:
    """The best scores of each image and their places, the earlier place first where they tie."""
    place = scores.topk(most, dim=1).indices.sort(dim=1).values
    best, order = scores.gather(1, place).sort(dim=1, descending=True, stable=True)
    return best, place.gather(1, order)


def _clip(
    boxes: Float[Tensor, "n 4"], image: Int[Tensor, " n"], sizes: Sequence[tuple[int, int]]
) -> Float[Tensor, "n 4"]:
    limits = torch.tensor([(w, h, w, h) for h, w in sizes], device=boxes.device).to(boxes)
    return boxes.clamp(min=0).minimum(limits[image])
