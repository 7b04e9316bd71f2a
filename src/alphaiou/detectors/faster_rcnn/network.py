"""Faster R-CNN with a feature pyramid, trained with any box loss and static shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float
from alphaiou.batch import Targets
from alphaiou.detectors.base import (
    DEVIATION,
    MEAN,
    ClassRow,
    Detections,
    Detector,
    Images,
    PostProcess,
    Target,
    batch_images,
    batch_targets,
    in_unit,
)
from alphaiou.detectors.faster_rcnn.backbone import CHANNELS, Norm, ResNet, resnet_fpn
from alphaiou.detectors.faster_rcnn.boxes import (
    ROI_WEIGHTS,
    RPN_WEIGHTS,
    clip,
    decode,
    least_side,
)
from alphaiou.detectors.faster_rcnn.loss import DeltaLoss, RegressionLoss
from alphaiou.detectors.faster_rcnn.roi import STRIDES, RegionHeads, RegionLoss, RegionSampler
from alphaiou.detectors.faster_rcnn.rpn import Anchored, Proposals, RegionProposals, RPNLoss
from alphaiou.detectors.faster_rcnn.state_dict import class_rows, translated
from alphaiou.detectors.faster_rcnn.targets import Assignment, Truth, pad_targets
from alphaiou.losses.pair_loss import BoxLoss

#: The minimum side of a detection in pixels.
LEAST_SIDE = 1e-2


class FasterRCNN(Detector):
    """Faster R-CNN with torchvision's interface: losses in training, detections in evaluation.

    In training, ``model(images, targets)`` returns the losses ``objectness``, ``rpn_box``,
    ``class`` and ``box`` to sum. In evaluation, ``model(images)`` returns ``boxes`` (``xyxy`` in
    pixels of the image), ``scores`` and ``labels`` of each image, best first. Images are a batch or
    a list of any sizes, uint8 or floats in [0, 1]; they are not resized.

    Parameter names are those of torchvision's ``fasterrcnn_resnet50_fpn``. Use ``faster_rcnn`` to
    build the detector.

    Args:
        backbone: The backbone, from images to the features of five levels.
        rpn: The region proposal network (first stage).
        roi_heads: The box head (second stage).
        rpn_loss: The loss of the first stage.
        roi_sampler: The sampler of training regions for the second stage.
        roi_loss: The loss of the second stage.
        max_boxes: The maximum number of boxes per image in training with static shapes.
        postprocess: Score threshold, NMS, and the number of detections.
    """

    mean: Tensor
    deviation: Tensor
    loss_names = ("objectness", "rpn_box", "class", "box")
    compiled_parts = ("backbone", "rpn", "rpn_loss", "roi_sampler", "roi_heads", "roi_loss")
    cast_later = ("rpn.head",)
    backbone_prefixes = ("backbone.body.",)
    images_at_once = 16

    def __init__(
        self,
        backbone: nn.Module,
        rpn: RegionProposals,
        roi_heads: RegionHeads,
        *,
        rpn_loss: RPNLoss,
        roi_sampler: RegionSampler,
        roi_loss: RegionLoss,
        max_boxes: int,
        postprocess: PostProcess,
    ) -> None:
        super().__init__()
        self.backbone, self.rpn, self.roi_heads = backbone, rpn, roi_heads
        self.rpn_loss, self.roi_sampler, self.roi_loss = rpn_loss, roi_sampler, roi_loss
        self.max_boxes, self.postprocess = max_boxes, postprocess
        for name, values in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(values).view(3, 1, 1), persistent=False)

    def forward(
        self, images: Images, targets: Sequence[Target] | Targets | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Return losses in training, detections in evaluation."""
        if not self.training:
            sizes = [(image.shape[-2], image.shape[-1]) for image in images]
            return self.postprocess(self.predictions(images), sizes)
        if targets is None:
            raise ValueError("targets must be given in training; call model.eval() to detect")
        levels, anchors, _, every, proposals = self._first_stage(images)
        batch = levels[0]
        truth = self._truth(targets, len(batch))
        candidates = proposals.valid.shape[1] + truth.valid.shape[1]
        # Not in the compiled parts: Triton 3.6 fails to fuse random numbers with a reduction.
        first, second = (
            torch.rand(len(batch), count, device=batch.device)
            for count in (len(anchors), candidates)
        )
        regions = self.roi_sampler(proposals, truth, second)
        losses = (
            *self.rpn_loss(every, anchors, truth, first),
            *self.roi_loss(*self.roi_heads(levels, regions.boxes), regions),
        )
        return dict(zip(self.loss_names, losses, strict=True))

    def predictions(
        self, images: Images
    ) -> tuple[Float[Tensor, "batch n classes 4"], Float[Tensor, "batch n classes"]]:
        """Return the box of every proposal for each class, ``xyxy`` in pixels, and its score."""
        levels, _, frames, _, proposals = self._first_stage(images)
        return self.predict(levels, proposals, frames)

    def _first_stage(
        self, images: Images
    ) -> tuple[list[Tensor], Tensor, Tensor, Anchored, Proposals]:
        """Return the features to pool from, the anchors, the frames, and the predictions."""
        batch = (in_unit(batch_images(images, multiple=32)) - self.mean) / self.deviation
        features = list(self.backbone(batch).values())
        anchors = self.rpn.anchors(features, (batch.shape[-2], batch.shape[-1]))
        frames = _frames(images, anchors)
        return features[: len(STRIDES)], anchors, frames, *self.rpn(features, anchors, frames)

    def predict(
        self, levels: Sequence[Tensor], proposals: Proposals, frames: Float[Tensor, "batch 4"]
    ) -> tuple[Float[Tensor, "batch n classes 4"], Float[Tensor, "batch n classes"]]:
        """Return the box of every proposal for each class, ``xyxy`` in pixels, and its score."""
        logits, deltas = self.roi_heads(levels, proposals.boxes)
        boxes = decode(deltas[:, :, 1:], proposals.boxes[:, :, None], ROI_WEIGHTS)
        boxes = clip(boxes, frames[:, None, None])
        valid = proposals.valid[:, :, None] & (least_side(boxes) >= LEAST_SIDE)
        return boxes, logits.softmax(dim=-1)[:, :, 1:].where(valid, 0.0)

    def translated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a state dict of torchvision with the names of this detector."""
        return translated(tensors)

    def class_rows(self, name: str, rows: int) -> list[ClassRow] | None:
        """Return what each row of a tensor of the box predictor is for."""
        return class_rows(name, rows)

    def _truth(self, targets: Sequence[Target] | Targets, images: int) -> Truth:
        if isinstance(targets, Targets):
            return pad_targets(targets, images, max(1, min(len(targets.labels), self.max_boxes)))
        most = max(len(target["boxes"]) for target in targets)
        return pad_targets(batch_targets(targets), images, max(1, most))


def faster_rcnn(
    num_classes: int,
    box_loss: BoxLoss | DeltaLoss,
    *,
    box_weight: float | None = None,
    rpn_box_loss: BoxLoss | DeltaLoss = "l1",
    rpn_box_weight: float | None = None,
    backbone: ResNet = "resnet50",
    backbone_weights: Literal["imagenet"] | Path | None = None,
    norm: Norm | None = None,
    frozen_stages: int | None = None,
    image_size: int = 800,
    pre_nms: int = 1000,
    post_nms: int = 1000,
    rpn_samples: int = 256,
    roi_samples: int = 512,
    head_width: int = 1024,
    max_boxes: int = 128,
    postprocess: PostProcess | None = None,
) -> FasterRCNN:
    """Faster R-CNN R50-FPN as in the common 1x recipes, with any box loss in both stages.

    Args:
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: The box loss of the second stage: an ``AlphaIoULoss`` or a function from predicted
            and target boxes ``xyxy`` to one value per pair, for decoded boxes; or ``l1`` or
            ``smooth_l1`` of the deltas.
        box_weight: The weight of the box loss, which is summed over positives and divided by the
            number of sampled regions; by default 10 for losses of boxes and 1 for losses of deltas.
        rpn_box_loss: The box loss of the first stage, likewise.
        rpn_box_weight: The weight of the box loss of the first stage, likewise.
        backbone: The ResNet.
        backbone_weights: ``imagenet`` for torchvision's (downloaded), a ``.pth`` or
            ``.safetensors`` file of a ResNet or a Faster R-CNN, or none, which freezes nothing.
        norm: Frozen batch norms (``frozen``), trained batch norms (``batch``), or group norms
            (``group``); by default frozen with weights, else group.
        frozen_stages: The number of frozen stages of five; by default 2 with weights and frozen
            norms, else 0.
        image_size: The image size; anchors have 32 to 512 pixels at 800 and scale with it.
        pre_nms: The maximum number of boxes per level before NMS of proposals.
        post_nms: The maximum number of proposals per image.
        rpn_samples: The number of anchors sampled per image, at most half of them positives.
        roi_samples: The number of regions sampled per image, at most a quarter of them positives.
        head_width: The width of the two hidden layers of the second stage.
        max_boxes: The maximum number of boxes per image in training with static shapes.
        postprocess: Score threshold, NMS, and the number of detections; by default .05, .5 and 100.

    Raises:
        WeightsError: If the weights do not exist or do not fit.

    Examples:
        >>> from alphaiou import AlphaIoULoss
        >>> detector = faster_rcnn(20, AlphaIoULoss("giou", 3.0), backbone="resnet18")
        >>> detections = detector.eval()(torch.zeros(1, 3, 64, 64))
        >>> sorted(detections[0])
        ['boxes', 'labels', 'scores']
    """
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    first = RegressionLoss(rpn_box_loss, weight=rpn_box_weight, coder=RPN_WEIGHTS)
    second = RegressionLoss(box_loss, weight=box_weight, coder=ROI_WEIGHTS)
    anchors = Assignment(0.7, 0.3, low_quality=True, samples=rpn_samples, positive_share=0.5)
    regions = Assignment(0.5, 0.5, low_quality=False, samples=roi_samples, positive_share=0.25)
    return FasterRCNN(
        resnet_fpn(backbone, weights=backbone_weights, norm=norm, frozen_stages=frozen_stages),
        RegionProposals(
            CHANNELS, image_size=image_size, pre_nms=pre_nms, post_nms=post_nms, nms_iou=0.7
        ),
        RegionHeads(CHANNELS, width=head_width, num_classes=num_classes),
        rpn_loss=RPNLoss(anchors, first),
        roi_sampler=RegionSampler(regions),
        roi_loss=RegionLoss(second),
        max_boxes=max_boxes,
        postprocess=postprocess or PostProcess(0.05, 0.5, max_detections=100),
    )


def _frames(images: Images, like: Tensor) -> Float[Tensor, "batch 4"]:
    """Return width, height, width, height of each image."""
    if isinstance(images, Tensor):
        # Not from a list, which would synchronise with the device.
        height, width = images.shape[-2:]
        shape = (images.shape[0], 2)
        sides = like.new_full(shape, width), like.new_full(shape, height)
        return torch.stack(sides, dim=-1).flatten(1)
    sizes = [(image.shape[-1], image.shape[-2]) * 2 for image in images]
    return torch.tensor(sizes).to(like)
