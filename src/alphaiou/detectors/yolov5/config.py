"""The settings of YOLOv5."""

from __future__ import annotations

from typing import get_args

from alphaiou.boxes import check_choice
from alphaiou.detectors.base import DetectorConfig, PostProcess, check_nms_threshold
from alphaiou.detectors.yolov5.loss import Objectness
from alphaiou.detectors.yolov5.network import YOLOv5, yolov5
from alphaiou.losses.modifiers import WEIGHING_MODIFIERS
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec
from alphaiou.numerics import check_number


class YOLOv5Config(DetectorConfig, frozen=True, kw_only=True):
    """The settings of YOLOv5; each size is a subclass. The defaults are those of v4.0.

    Attributes:
        box_gain: The weight of the box loss.
        objectness_gain: The weight of the objectness loss, for images of 640 pixels.
        class_gain: The weight of the class loss, for 80 classes.
        objectness: The objectness target of positives: iou, or similarity as in the published code
            of the paper.
        objectness_alpha: The power of that target; 0 teaches 1 for every positive.
        nms_threshold: The IoU above which NMS removes a box.
    """

    box_gain: float = 0.05
    objectness_gain: float = 1.0
    class_gain: float = 0.5
    objectness: Objectness = "iou"
    objectness_alpha: float = 1.0
    nms_threshold: float = 0.6

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("objectness_gain", self.objectness_gain)
        check_number("class_gain", self.class_gain)
        check_choice("objectness", self.objectness, get_args(Objectness))
        check_number("objectness_alpha", self.objectness_alpha, strict=False)
        check_nms_threshold(self.nms_threshold)

    def check_loss(self, field: str, spec: LossSpec) -> None:
        """Reject a loss that these settings do not support; the message names the field."""
        super().check_loss(field, spec)
        weights = [name for name in spec.modifiers if name in WEIGHING_MODIFIERS]
        if self.objectness == "similarity" and weights:
            raise ValueError(
                f"objectness='similarity' is one minus the loss, which {weights[0]} in "
                f"{field}.modifiers weighs; take objectness='iou', or another modifier"
            )

    def build(
        self,
        num_classes: int,
        box_loss: BoxLoss | str | None = None,
        *,
        image_size: int | None = None,
        pretrained: bool = True,
    ) -> YOLOv5:
        """Build the detector with random weights; see the base class."""
        if isinstance(box_loss, str):
            raise ValueError(f"box_loss={box_loss!r} is not supported by {self.name}")
        return yolov5(
            self.name,
            num_classes,
            box_loss,
            box_gain=self.box_gain,
            objectness_gain=self.objectness_gain,
            class_gain=self.class_gain,
            objectness=self.objectness,
            objectness_alpha=self.objectness_alpha,
            postprocess=PostProcess(nms_threshold=self.nms_threshold),
        )


class YOLOv5nConfig(YOLOv5Config, frozen=True, kw_only=True, tag="yolov5n"):
    """YOLOv5n, the smallest."""


class YOLOv5sConfig(YOLOv5Config, frozen=True, kw_only=True, tag="yolov5s"):
    """YOLOv5s, that of the paper."""


class YOLOv5mConfig(YOLOv5Config, frozen=True, kw_only=True, tag="yolov5m"):
    """YOLOv5m."""


class YOLOv5lConfig(YOLOv5Config, frozen=True, kw_only=True, tag="yolov5l"):
    """YOLOv5l."""


class YOLOv5xConfig(YOLOv5Config, frozen=True, kw_only=True, tag="yolov5x"):
    """YOLOv5x, the largest."""
