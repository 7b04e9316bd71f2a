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
from alphaiou.detectors.ops.pooling import POOLED, pool_cells
from alphaiou.numerics import upcast

#: Pixels of a cell of the four levels that regions are pooled from.
STRIDES = (4, 8, 16, 32)
#: A box of this side is pooled from the third level; of half of it, from the second.
USUAL_SIDE = 224
#: Cells beside a level that samples of a box at the border may reach.
MARGIN = 2

Features = Float[Tensor, "batch channels _rows _columns"]


class Regions(NamedTuple):
    """The boxes that the second stage looks at in training.

    Attributes:
        boxes: ``xyxy`` in pixels, 0 in slots without one.
        labels: 0 for the background, else the class and one.
        targets: The box to find, where there is one.
        valid: Whether the slot holds a box.
    """

    boxes: Float[Tensor, "batch regions 4"]
    labels: Int[Tensor, "batch regions"]
    targets: Float[Tensor, "batch regions 4"]
    valid: Bool[Tensor, "batch regions"]


class RegionSampler(nn.Module):
    """Proposals and the boxes to find themselves, of which some are drawn at random to train.

    Args:
        assignment: Which of them answer for which boxes, and how many train.
    """

    def __init__(self, assignment: Assignment) -> None:
        super().__init__()
        self.assignment = assignment

    @torch.no_grad()
    def forward(
        self, proposals: Proposals, truth: Truth, chance: Float[Tensor, "batch candidates"]
    ) -> Regions:
        """Draw."""
        known = truth.boxes.to(proposals.boxes.dtype)
        boxes = torch.cat([proposals.boxes, known], dim=1)
        there = torch.cat([proposals.valid, truth.valid], dim=1)
        matches = self.assignment.match(boxes, truth._replace(boxes=known))
        sample = self.assignment.sample(matches.positive & there, matches.negative & there, chance)
        target = matches.target.gather(1, sample.rows)
        labels = truth.labels.gather(1, target) + 1
        return Regions(
            rows_of(boxes, sample.rows).where(sample.valid[:, :, None], 0.0),
            labels.where(sample.positive, 0),
            rows_of(known, target),
            sample.valid,
        )


class RegionHeads(nn.Module):
    """Classes and boxes of regions.

    Args:
        channels: Of the features.
        width: Of the two hidden layers.
        num_classes: Without the background.
    """

    def __init__(self, channels: int, *, width: int, num_classes: int) -> None:
        super().__init__()
        self.box_head = TwoMLPHead(channels * POOLED**2, width)
        self.box_predictor = FastRCNNPredictor(width, num_classes + 1)

    def forward(
        self, features: Sequence[Features], boxes: Float[Tensor, "batch regions 4"]
    ) -> tuple[Float[Tensor, "batch regions classes"], Float[Tensor, "batch regions classes 4"]]:
        """Logits of the background and the classes, and deltas of the box for each of them."""
        pooled = pool_regions(features, boxes)
        logits, deltas = self.box_predictor(self.box_head(pooled))
        shape = (*boxes.shape[:2], logits.shape[1])
        return upcast(logits).reshape(shape), upcast(deltas).reshape(*shape, 4)


class RegionLoss(nn.Module):
    """The loss of the second stage.

    Args:
        box_loss: Of the boxes.
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
        """Classes and boxes, both over the number of regions that train, positive or not."""
        count = regions.valid.sum().clamp(min=1)
        labels = regions.labels
        each = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        own = deltas.gather(2, labels[:, :, None, None].expand(-1, -1, 1, 4))[:, :, 0]
        boxes = self.box_loss(own, regions.boxes, regions.targets, labels > 0)
        return each.where(regions.valid.flatten(), 0.0).sum() / count, boxes / count


def pool_regions(
    features: Sequence[Features], boxes: Float[Tensor, "batch regions 4"]
) -> Float[Tensor, "pooled channels size size"]:
    """Features of regions, each from the level that fits its size, by RoIAlign.

    All levels lie in one picture below each other, so that one call at a fixed shape serves them
    all: to pool each region from every level and choose would cost four times as much, to group
    the regions by level a host sync. Samples past the border of an image take the values at the
    border.

    Args:
        features: Of the levels of ``STRIDES``.
        boxes: ``xyxy`` in pixels.
    """
    rows, columns = features[0].shape[-2:]
    tops, picture = [0], []
    for level in features:
        tops.append(tops[-1] + level.shape[-2] + MARGIN)
        picture.append(_extend(level, columns + MARGIN))
    x = boxes[..., 0::2].clamp(0, columns * STRIDES[0])
    y = boxes[..., 1::2].clamp(0, rows * STRIDES[0])
    level = _level(x, y)
    stride, top = (_of_level(level, values)[..., None] for values in (STRIDES, tops))
    x, y = x / stride, y / stride + top
    image = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(level)
    places = torch.stack([image, x[..., 0], y[..., 0], x[..., 1], y[..., 1]], dim=-1)
    return pool_cells(torch.cat(picture, dim=2), places.flatten(0, 1))


def _level(
    x: Float[Tensor, "batch regions 2"], y: Float[Tensor, "batch regions 2"]
) -> Int[Tensor, "batch regions"]:
    """The level that fits each box: one up for each doubling of its side."""
    area = (x[..., 1] - x[..., 0]) * (y[..., 1] - y[..., 0])
    octaves = (area.sqrt() / USUAL_SIDE).log2()
    return (octaves + 2 + 1e-6).floor().clamp(0, len(STRIDES) - 1).long()


def _of_level(level: Int[Tensor, "batch regions"], values: Sequence[int]) -> Tensor:
    """The value of each region's level."""
    return torch.stack([value * (level == number) for number, value in enumerate(values)]).sum(0)


def _extend(feature: Features, columns: int) -> Tensor:
    """Its last column to the right up to a width, and its last row below, once more and again."""
    right = feature[..., -1:].expand(-1, -1, -1, columns - feature.shape[-1])
    wide = torch.cat([feature, right], dim=3)
    return torch.cat([wide, wide[:, :, -1:].expand(-1, -1, MARGIN, -1)], dim=2)
