"""The first stage of Faster R-CNN: from features to proposals, and its loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.rpn import RPNHead

from alphaiou._shapes import Bool, Float
from alphaiou.detectors.faster_rcnn.boxes import RPN_WEIGHTS, clip, decode, least_side
from alphaiou.detectors.faster_rcnn.loss import RegressionLoss
from alphaiou.detectors.faster_rcnn.targets import Assignment, Truth, rows_of
from alphaiou.detectors.ops.nms import keep_best
from alphaiou.numerics import upcast

#: The anchor sizes of each level for images of 800 pixels, and the aspect ratios (height/width).
ANCHOR_SIZES = (32, 64, 128, 256, 512)
ANCHOR_RATIOS = (0.5, 1.0, 2.0)
SIZED_FOR = 800
#: The minimum side of a proposal in pixels.
LEAST_SIDE = 1e-3


class Anchored(NamedTuple):
    """The predictions of each anchor.

    Attributes:
        logits: The objectness logits.
        deltas: The deltas from the anchor to its box.
    """

    logits: Float[Tensor, "batch anchors"]
    deltas: Float[Tensor, "batch anchors 4"]


class Proposals(NamedTuple):
    """Proposals, best first; 0 in empty slots.

    Attributes:
        boxes: ``xyxy`` in pixels.
        valid: Whether the slot holds a proposal.
    """

    boxes: Float[Tensor, "batch proposals 4"]
    valid: Bool[Tensor, "batch proposals"]


class RegionProposals(nn.Module):
    """The region proposal network.

    Args:
        channels: The number of feature channels.
        image_size: The image size, with which anchor sizes scale.
        pre_nms: The maximum number of boxes per level before NMS.
        post_nms: The maximum number of proposals per image.
        nms_iou: The IoU above which NMS removes the worse of two boxes of a level.
    """

    def __init__(
        self, channels: int, *, image_size: int, pre_nms: int, post_nms: int, nms_iou: float
    ) -> None:
        super().__init__()
        scale = image_size / SIZED_FOR
        sizes = tuple((size * scale,) for size in ANCHOR_SIZES)
        self.anchor_generator = AnchorGenerator(sizes, (ANCHOR_RATIOS,) * len(sizes))
        self.head = RPNHead(channels, len(ANCHOR_RATIOS))
        self.pre_nms, self.post_nms, self.nms_iou = pre_nms, post_nms, nms_iou
        self._anchors: tuple[object, Tensor] = (None, torch.empty(0, 4))

    def anchors(
        self, features: Sequence[Tensor], image_size: tuple[int, int]
    ) -> Float[Tensor, "anchors 4"]:
        """Return the anchors of images of one size; those of the training size are cached."""
        like = features[0]
        dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
        key = (image_size, like.device, dtype)
        if self._anchors[0] == key:
            return self._anchors[1]
        grids = [feature.shape[-2:] for feature in features]
        strides = [[image_size[axis] // grid[axis] for axis in (0, 1)] for grid in grids]
        self.anchor_generator.set_cell_anchors(dtype, like.device)
        anchors = torch.cat(self.anchor_generator.grid_anchors(grids, strides))
        # A captured training step reads them at a fixed address, so other sizes must not replace
        # them.
        if self.training:
            self._anchors = key, anchors
        return anchors

    def forward(
        self,
        features: Sequence[Float[Tensor, "batch channels _rows _columns"]],
        anchors: Float[Tensor, "anchors 4"],
        frames: Float[Tensor, "batch 4"],
    ) -> tuple[Anchored, Proposals]:
        """Return the predictions of all anchors and the proposals of each image.

        Args:
            features: The features of each level.
            anchors: The anchors of all levels, concatenated.
            frames: Width, height, width, height of each image.
        """
        logits, deltas = (
            [level.permute(0, 2, 3, 1).flatten(1) for level in levels]
            for levels in self.head(list(features))
        )
        all_deltas = upcast(torch.cat(deltas, dim=1)).reshape(frames.shape[0], -1, 4)
        every = Anchored(upcast(torch.cat(logits, dim=1)), all_deltas)
        counts = [level.shape[1] for level in logits]
        with torch.no_grad():
            return every, self._propose(every, anchors, frames, counts)

    def _propose(
        self, every: Anchored, anchors: Tensor, frames: Tensor, counts: list[int]
    ) -> Proposals:
        exporting = torch.compiler.is_exporting()  # the number of anchors may be unknown
        most = self.pre_nms if exporting else min(self.pre_nms, max(counts))
        scores, rows, start = [], [], 0
        for level in torch.split(every.logits, counts, dim=1):
            if exporting:
                best, row = pad(level, (0, most), value=-math.inf).topk(most, dim=1)
                scores.append(best)
                rows.append((row + start).where(best > -math.inf, 0))
            else:
                best, row = level.topk(min(most, level.shape[1]), dim=1)
                spare = most - best.shape[1]
                scores.append(pad(best, (0, spare), value=-math.inf))
                rows.append(pad(row + start, (0, spare)))
            start += level.shape[1]
        # Each level of each image is a separate NMS problem of the same size.
        score, row = torch.stack(scores, dim=1), torch.cat(rows, dim=1)
        decoded = decode(rows_of(every.deltas, row), rows_of(anchors[None], row), RPN_WEIGHTS)
        boxes = clip(decoded, frames[:, None])
        valid = (least_side(boxes).view_as(score) >= LEAST_SIDE) & (score > -math.inf)
        kept = keep_best(
            boxes.view(-1, most, 4),
            torch.zeros_like(row).view(-1, most),
            valid.view(-1, most),
            self.nms_iou,
        )
        score = score.flatten(1).where(kept.view_as(row), -math.inf)
        score, row = score.topk(min(self.post_nms, score.shape[1]), dim=1)
        valid = score > -math.inf
        return Proposals(rows_of(boxes, row).where(valid[:, :, None], 0.0), valid)


class RPNLoss(nn.Module):
    """The loss of the first stage, over randomly sampled anchors.

    Args:
        assignment: The rules of matching and sampling.
        box_loss: The box loss.
    """

    def __init__(self, assignment: Assignment, box_loss: RegressionLoss) -> None:
        super().__init__()
        self.assignment, self.box_loss = assignment, box_loss

    def forward(
        self,
        every: Anchored,
        anchors: Float[Tensor, "anchors 4"],
        truth: Truth,
        chance: Float[Tensor, "batch anchors"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the objectness and box losses, both divided by the number of sampled anchors."""
        matches = self.assignment.match(anchors[None], truth)
        sample = self.assignment.sample(matches.positive, matches.negative, chance)
        count = sample.valid.sum().clamp(min=1)
        logits = every.logits.gather(1, sample.rows)
        aims = sample.positive.to(logits.dtype)
        each = binary_cross_entropy_with_logits(logits, aims, reduction="none")
        boxes = self.box_loss(
            rows_of(every.deltas, sample.rows),
            rows_of(anchors[None], sample.rows),
            rows_of(truth.boxes.to(anchors.dtype), matches.target.gather(1, sample.rows)),
            sample.positive,
        )
        return each.where(sample.valid, 0.0).sum() / count, boxes / count
