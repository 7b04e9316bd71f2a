"""The second stage of Faster R-CNN: from proposals to classes and boxes, and its loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchvision.models.detection.faster_rcnn import FastRCNNPredictor, TwoMLPHead

from alphaiou._shapes import Bool, Float, Int
from alphaiou.detectors.faster_rcnn.loss import RegressionLoss
from alphaiou.detectors.faster_rcnn.rpn import Proposals
from alphaiou.detectors.faster_rcnn.targets import Assignment, Truth, rows_of
from alphaiou.detectors.ops.pooling import POOLED, of_level, pool_cells
from alphaiou.numerics import upcast

#: The strides of the four levels that regions are pooled from.
STRIDES = (4, 8, 16, 32)
#: Boxes of this side are pooled from the third level, boxes of half of it from the second.
USUAL_SIDE = 224

Features = Float[Tensor, "batch channels _rows _columns"]


class Regions(NamedTuple):
    """The training regions of the second stage.

    Attributes:
        boxes: ``xyxy`` in pixels, 0 in empty slots.
        labels: 0 for the background, else the class plus one.
        targets: The target box of positives.
        valid: Whether the slot holds a box.
    """

    boxes: Float[Tensor, "batch regions 4"]
    labels: Int[Tensor, "batch regions"]
    targets: Float[Tensor, "batch regions 4"]
    valid: Bool[Tensor, "batch regions"]


class RegionSampler(nn.Module):
    """Sample training regions from the proposals and the ground truth.

    Args:
        assignment: The rules of matching and sampling.
    """

    def __init__(self, assignment: Assignment) -> None:
        super().__init__()
        self.assignment = assignment

    @torch.no_grad()
    def forward(
        self, proposals: Proposals, truth: Truth, chance: Float[Tensor, "batch candidates"]
    ) -> Regions:
        """Sample the regions."""
        known = truth.boxes.to(proposals.boxes.dtype)
        boxes = torch.cat([proposals.boxes, known], dim=1)
        valid = torch.cat([proposals.valid, truth.valid], dim=1)
        matches = self.assignment.match(boxes, truth._replace(boxes=known))
        sample = self.assignment.sample(matches.positive & valid, matches.negative & valid, chance)
        target = matches.target.gather(1, sample.rows)
        labels = truth.labels.gather(1, target) + 1
        return Regions(
            rows_of(boxes, sample.rows).where(sample.valid[:, :, None], 0.0),
            labels.where(sample.positive, 0),
            rows_of(known, target),
            sample.valid,
        )


class RegionHeads(nn.Module):
    """The box head: classes and boxes of regions.

    Args:
        channels: The number of feature channels.
        width: The width of the two hidden layers.
        num_classes: The number of classes without the background.
    """

    def __init__(self, channels: int, *, width: int, num_classes: int) -> None:
        super().__init__()
        self.box_head = TwoMLPHead(channels * POOLED**2, width)
        self.box_predictor = FastRCNNPredictor(width, num_classes + 1)

    def forward(
        self, features: Sequence[Features], boxes: Float[Tensor, "batch regions 4"]
    ) -> tuple[Float[Tensor, "batch regions classes"], Float[Tensor, "batch regions classes 4"]]:
        """Return logits of the background and the classes, and box deltas for each of them."""
        pooled = pool_regions(features, boxes)
        logits, deltas = self.box_predictor(self.box_head(pooled))
        shape = (*boxes.shape[:2], logits.shape[1])
        return upcast(logits).reshape(shape), upcast(deltas).reshape(*shape, 4)


class RegionLoss(nn.Module):
    """The loss of the second stage.

    Args:
        box_loss: The box loss.
    """

    def __init__(self, box_loss: RegressionLoss) -> None:
        super().__init__()
        self.box_loss = box_loss

    def forward(
        self,
        logits: Float[Tensor, "batch regions classes"],
        deltas: Float[Tensor, "batch regions classes 4"],
        regions: Regions,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the class and box losses, both divided by the number of sampled regions."""
        count = regions.valid.sum().clamp(min=1)
        labels = regions.labels
        each = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        own_deltas = deltas.gather(2, labels[:, :, None, None].expand(-1, -1, 1, 4))[:, :, 0]
        boxes = self.box_loss(own_deltas, regions.boxes, regions.targets, labels > 0)
        return each.where(regions.valid.flatten(), 0.0).sum() / count, boxes / count


def pool_regions(
    features: Sequence[Features], boxes: Float[Tensor, "batch regions 4"]
) -> Float[Tensor, "pooled channels size size"]:
    """Pool region features by RoIAlign, each from the level that fits its size.

    It is torchvision's ``MultiScaleRoIAlign`` with the settings of its Faster R-CNN.

    Args:
        features: The features of the levels of ``STRIDES``.
        boxes: ``xyxy`` in pixels.
    """
    level = _level(boxes)
    stride = of_level(level, STRIDES)[..., None]
    image = torch.arange(boxes.shape[0], device=boxes.device).to(boxes)[:, None].expand(level.shape)
    places = torch.cat([image[..., None], boxes / stride], dim=-1)
    return pool_cells(features, places.flatten(0, 1), level.flatten())


def _level(boxes: Float[Tensor, "batch regions 4"]) -> Int[Tensor, "batch regions"]:
    """Return the level of each box, one higher per doubling of its side."""
    left, top, right, bottom = boxes.unbind(-1)
    area = ((right - left) * (bottom - top)).clamp(min=0.0)
    # Counted from a stride of 1 and rounded as in torchvision.
    octaves = 4 + (area.sqrt() / USUAL_SIDE).log2()
    return ((octaves + 1e-6).floor() - 2).clamp(0, len(STRIDES) - 1).long()
