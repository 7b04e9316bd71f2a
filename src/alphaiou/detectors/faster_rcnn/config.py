"""The settings of Faster R-CNN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, get_args

from alphaiou.detectors.base import Detector, ResNetConfig, check_nms_threshold
from alphaiou.detectors.faster_rcnn.loss import DeltaLoss
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec


class FasterRCNNConfig(ResNetConfig, frozen=True, kw_only=True, tag="fasterrcnn_r50_fpn"):
    """The settings of Faster R-CNN R50-FPN.

    Attributes:
        box_gain: The weight of the box loss; use 1 for l1 and smooth_l1.
        rpn_loss: The box loss of the region proposal network; default l1.
        backbone_weights: The weights of the ResNet: none, imagenet, or a file.
        norm: The norms of the ResNet: frozen batch norms, trained batch norms, or group norms; auto
            is frozen with pretrained weights, else group.
        nms_threshold: The IoU above which NMS removes a box.
    """

    box_gain: float = 10.0
    rpn_loss: LossSpec | None = None
    nms_threshold: float = 0.5

    delta_losses: ClassVar[tuple[str, ...]] = get_args(DeltaLoss)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_nms_threshold(self.nms_threshold)
        if self.rpn_loss is not None:
            self.check_loss("rpn_loss", self.rpn_loss)

    def build(
        self,
        num_classes: int,
        box_loss: BoxLoss | str | None = None,
        *,
        image_size: int | None = None,
        pretrained: bool = True,
    ) -> Detector:
        """Build the detector with random weights; see the base class."""
        from alphaiou.detectors.faster_rcnn.backbone import FROZEN_STAGES
        from alphaiou.detectors.faster_rcnn.network import faster_rcnn

        if pretrained:
            self.check_untrained()
        settings: dict[str, Any] = {} if image_size is None else {"image_size": image_size}
        if self.rpn_loss is not None:
            settings["rpn_box_loss"] = self.box_loss(self.rpn_loss)
        detector = faster_rcnn(
            num_classes,
            AlphaIoULoss() if box_loss is None else box_loss,
            box_weight=self.box_gain,
            backbone_weights=self.weights_source if pretrained else None,
            norm=self.chosen_norm,
            frozen_stages=FROZEN_STAGES if self.chosen_norm == "frozen" else 0,
            **settings,
        )
        detector.postprocess = replace(detector.postprocess, nms_threshold=self.nms_threshold)
        return detector
