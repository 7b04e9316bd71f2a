"""The settings of DETR."""

from __future__ import annotations

from alphaiou.detectors.base import Detector, ResNetConfig
from alphaiou.losses.module import check_stateless
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec
from alphaiou.numerics import check_number


class DETRConfig(ResNetConfig, frozen=True, kw_only=True, tag="detr_r50"):
    """The settings of DETR R50.

    Attributes:
        box_gain: The weight of the box loss.
        match_loss: The box loss in the matching cost; default giou.
        backbone_weights: The weights of the ResNet: none, imagenet, or a file.
        norm: The norms of the ResNet: frozen batch norms, trained batch norms, or group norms; auto
            is frozen with pretrained weights, else group.
        backbone_lr_scale: The learning-rate factor of the backbone; by default 0.1 with pretrained
            weights, else 1.
        dropout: The dropout rate of the transformer.
    """

    box_gain: float = 2.0
    match_loss: LossSpec | None = None
    backbone_lr_scale: float | None = None
    dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backbone_lr_scale is not None:
            check_number("backbone_lr_scale", self.backbone_lr_scale)
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be from 0 to below 1, got {self.dropout}")
        if self.match_loss is not None:
            self.check_loss("match_loss", self.match_loss)
            check_stateless("match_loss.modifiers", self.match_loss.module())

    def build(
        self,
        num_classes: int,
        box_loss: BoxLoss | str | None = None,
        *,
        image_size: int | None = None,
        pretrained: bool = True,
    ) -> Detector:
        """Build the detector with random weights; see the base class."""
        from alphaiou.detectors.detr.network import PRETRAINED_LR_SCALE, detr

        if pretrained:
            self.check_untrained()
        lr_scale = self.backbone_lr_scale
        if lr_scale is None and self.pretrained_backbone:
            lr_scale = PRETRAINED_LR_SCALE  # also if the weights are loaded afterwards
        if isinstance(box_loss, str):
            raise ValueError(f"box_loss={box_loss!r} is not supported by {self.name}")
        return detr(
            num_classes,
            box_loss,
            match_loss=None if self.match_loss is None else self.match_loss.module(),
            box_weight=self.box_gain,
            dropout=self.dropout,
            backbone_weights=self.weights_source if pretrained else None,
            norm=self.chosen_norm,
            backbone_lr_scale=lr_scale,
        )
