"""From the predictions of every cell to the detections of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from alphaiou.detectors.contract import Detections
from alphaiou.detectors.nms import keep_best

#: One box for all classes, or one for each.
Boxes = Float[Tensor, "batch n 4"] | Float[Tensor, "batch n classes 4"]
#: Candidates of an image that are tried first; nearly always its best detections are among them.
FIRST_CANDIDATES = 512


@dataclass(frozen=True)
class PostProcess:
    """Score threshold, NMS within each class, and the best detections of each image.

    A box counts once for every class whose score reaches the threshold; there may be a box of its
    own for each class.

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
        predictions: tuple[Boxes, Float[Tensor, "batch n classes"]],
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
        all_boxes: Boxes,
        all_scores: Float[Tensor, "batch n classes"],
        sizes: Sequence[tuple[int, int]],
        most: int,
    ) -> tuple[list[Detections], list[int]]:
        """The detections among the best candidates of each image, and where more might be found.

        What NMS keeps of the best candidates it also keeps of all of them, so an image is done once
        it has all its detections.
        """
        classes, every = all_scores.shape[2], all_scores[0].numel()
        most = min(most, every)
        scores, place = _best(all_scores.flatten(1), most)
        labels = place % classes
        row = place if all_boxes.ndim == 4 else place // classes
        boxes = all_boxes.flatten(1, -2).gather(1, row[..., None].expand(-1, -1, 4))
        above = scores > self.score_threshold
        kept = keep_best(boxes, labels, above, self.nms_threshold)
        kept &= kept.cumsum(1) <= self.max_detections
        counts = kept.sum(1).tolist()
        image, rank = kept.nonzero(as_tuple=True)
        clipped = _clip(boxes[image, rank], image, sizes)
        parts = (clipped, scores[image, rank], labels[image, rank])
        found = [
            {"boxes": own, "scores": score, "labels": label}
            for own, score, label in zip(*(torch.split(p, counts) for p in parts), strict=True)
        ]
        if most == min(every, self.max_candidates):
            return found, []
        short = above[:, -1].tolist()
        return found, [i for i, n in enumerate(counts) if short[i] and n < self.max_detections]


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
