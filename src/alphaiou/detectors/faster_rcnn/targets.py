"""Which references learn which boxes, and which are sampled; static shapes, no host sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int
from alphaiou.batch import Targets
from alphaiou.detectors.faster_rcnn.boxes import iou_matrix, least_side

#: IoUs of this share of the best are as good: a compiled kernel may round them differently.
TIE = 1.0 - 1e-6


class Truth(NamedTuple):
    """The ground truth of each image.

    Attributes:
        boxes: ``xyxy`` in pixels.
        labels: The class of each, from 0.
        valid: Whether the slot holds a box.
    """

    boxes: Float[Tensor, "batch most 4"]
    labels: Int[Tensor, "batch most"]
    valid: Bool[Tensor, "batch most"]


class Matches(NamedTuple):
    """The target of each reference.

    Attributes:
        target: The slot of the box that overlaps it most.
        positive: Whether it answers for that box.
        negative: Whether it shows no box; some references are neither.
    """

    target: Int[Tensor, "batch references"]
    positive: Bool[Tensor, "batch references"]
    negative: Bool[Tensor, "batch references"]


class Sample(NamedTuple):
    """References chosen to train, in a fixed number of slots.

    Attributes:
        rows: Which ones.
        positive: Whether it is a positive.
        valid: Whether the slot holds one at all.
    """

    rows: Int[Tensor, "batch slots"]
    positive: Bool[Tensor, "batch slots"]
    valid: Bool[Tensor, "batch slots"]


@dataclass(frozen=True)
class Assignment:
    """Rules of matching and sampling.

    Attributes:
        positive_iou: References with a box of at least this IoU are positives.
        negative_iou: References whose best IoU is under this are negatives.
        low_quality: Whether the best references of each box are positives whatever their IoU.
        samples: How many references of an image train.
        positive_share: The most of them that are positives.
    """

    positive_iou: float
    negative_iou: float
    low_quality: bool
    samples: int
    positive_share: float

    @torch.no_grad()
    def match(self, references: Float[Tensor, "#batch references 4"], truth: Truth) -> Matches:
        """Match references to the boxes of their image."""
        overlaps = iou_matrix(truth.boxes, references)
        overlaps = overlaps.where(truth.valid[:, :, None], -1.0)
        best, target = overlaps.max(dim=1)
        positive = best >= self.positive_iou
        if self.low_quality:
            # A box that overlaps no reference at all has no best one.
            most = overlaps.amax(dim=2, keepdim=True)
            positive = positive | ((overlaps >= TIE * most) & (most > 0)).any(dim=1)
        return Matches(target, positive, ~positive & (best < self.negative_iou))

    @torch.no_grad()
    def sample(
        self,
        positive: Bool[Tensor, "batch references"],
        negative: Bool[Tensor, "batch references"],
        chance: Float[Tensor, "batch references"],
    ) -> Sample:
        """Choose by chance, from 0 to 1: positives up to their share, then negatives."""
        count = positive.shape[1]
        some = min(int(self.samples * self.positive_share), count)
        drawn, rows = chance.where(positive, -1.0).topk(some, dim=1)
        keys = chance.where(negative, -1.0)
        # The chosen positives come before any negative.
        keys = keys.scatter(1, rows, (drawn + 2.0).where(drawn >= 0, keys.gather(1, rows)))
        keys, rows = keys.topk(min(self.samples, count), dim=1)
        return Sample(rows, keys >= 2.0, keys >= 0.0)


def pad_targets(targets: Targets, images: int, most: int) -> Truth:
    """The boxes of each image in slots of its own; those without an area are left out.

    Args:
        targets: The boxes of all images.
        images: The number of images.
        most: Slots of an image; its further boxes are left out.

    Examples:
        >>> images, labels = torch.tensor([0, 1, 1]), torch.tensor([5, 6, 7])
        >>> boxes = torch.tensor([[0.0, 0, 2, 2], [0.0, 0, 3, 3], [1.0, 1, 4, 4]])
        >>> flat = Targets(images, labels, boxes, valid=labels > 0)
        >>> pad_targets(flat, images=2, most=2).labels
        tensor([[5, 0],
                [6, 7]])
    """
    number = torch.arange(images, device=targets.image_of_box.device)[:, None]
    own = (targets.image_of_box == number) & (targets.valid & (least_side(targets.boxes) > 0))
    rank = own.cumsum(dim=1) - 1
    # What has no place goes to one slot more, which is cut off.
    place = (number * most + rank).where(own & (rank < most), images * most).amin(dim=0)
    boxes = targets.boxes.new_zeros(images * most + 1, 4)
    labels = targets.labels.new_zeros(images * most + 1)
    there = torch.zeros_like(labels, dtype=torch.bool)
    return Truth(
        boxes.index_copy(0, place, targets.boxes)[:-1].view(images, most, 4),
        labels.index_copy(0, place, targets.labels)[:-1].view(images, most),
        there.index_fill(0, place, True)[:-1].view(images, most),
    )


def rows_of(
    table: Float[Tensor, "#batch n width"], rows: Int[Tensor, "batch slots"]
) -> Float[Tensor, "batch slots width"]:
    """Rows of each image's own table."""
    table = table.expand(len(rows), -1, -1)
    return table.gather(1, rows[:, :, None].expand(-1, -1, table.shape[2]))
