"""Matching of references to boxes and sampling, with static shapes and no host sync."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int
from alphaiou.batch import Targets
from alphaiou.detectors.faster_rcnn.boxes import iou_matrix, least_side

#: IoUs within this factor of the best count as ties: compiled kernels round differently.
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
        target: The slot of the box with the highest IoU.
        positive: Whether the reference is a positive for that box.
        negative: Whether the reference is background; some references are neither.
    """

    target: Int[Tensor, "batch references"]
    positive: Bool[Tensor, "batch references"]
    negative: Bool[Tensor, "batch references"]


class Sample(NamedTuple):
    """The sampled references, in a fixed number of slots.

    Attributes:
        rows: The rows of the references.
        positive: Whether the reference is a positive.
        valid: Whether the slot holds a reference.
    """

    rows: Int[Tensor, "batch slots"]
    positive: Bool[Tensor, "batch slots"]
    valid: Bool[Tensor, "batch slots"]


@dataclass(frozen=True)
class Assignment:
    """Rules of matching and sampling.

    Attributes:
        positive_iou: The minimum IoU of positives.
        negative_iou: References whose best IoU is below this are negatives.
        low_quality: Whether the best references of each box are positives at any IoU.
        samples: The number of references to sample per image.
        positive_share: The maximum share of positives among them.
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
            # A box that overlaps no reference has no best reference.
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
        """Sample by random numbers in [0, 1): positives up to their share, then negatives."""
        count = positive.shape[1]
        some = min(int(self.samples * self.positive_share), count)
        drawn, rows = chance.where(positive, -1.0).topk(some, dim=1)
        keys = chance.where(negative, -1.0)
        # The sampled positives come before all negatives.
        keys = keys.scatter(1, rows, (drawn + 2.0).where(drawn >= 0, keys.gather(1, rows)))
        keys, rows = keys.topk(min(self.samples, count), dim=1)
        return Sample(rows, keys >= 2.0, keys >= 0.0)


def pad_targets(targets: Targets, images: int, most: int) -> Truth:
    """Group the boxes by image; boxes without an area are dropped.

    Args:
        targets: The boxes of all images.
        images: The number of images.
        most: The number of slots per image; further boxes are dropped.

    Examples:
        >>> images, labels = torch.tensor([0, 1, 1]), torch.tensor([5, 6, 7])
        >>> boxes = torch.tensor([[0.0, 0, 2, 2], [0.0, 0, 3, 3], [1.0, 1, 4, 4]])
        >>> flat = Targets(images, labels, boxes, valid=labels > 0)
        >>> pad_targets(flat, images=2, most=2).labels
        tensor([[5, 0],
                [6, 7]])
    """
    number = torch.arange(images, device=targets.image_of_box.device)[:, None]
    in_image = (targets.image_of_box == number) & (targets.valid & (least_side(targets.boxes) > 0))
    rank = in_image.cumsum(dim=1) - 1
    # Dropped boxes are written to an extra slot, which is removed.
    place = (number * most + rank).where(in_image & (rank < most), images * most).amin(dim=0)
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
    """Gather rows from the table of each image."""
    table = table.expand(rows.shape[0], -1, -1)
    return table.gather(1, rows[:, :, None].expand(-1, -1, table.shape[2]))
