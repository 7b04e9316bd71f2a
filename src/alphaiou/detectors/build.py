"""Detectors by name."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from alphaiou.boxes import check_choice
from alphaiou.detectors.pair_loss import BoxLoss
from alphaiou.detectors.postprocess import PostProcess
from alphaiou.detectors.yolov5 import SIZES, YOLOv5, YOLOv5Network
from alphaiou.detectors.yolov5_loss import Objectness, YOLOv5Loss
from alphaiou.losses import AlphaIoULoss

DETECTORS = tuple(SIZES)


def build_detector(
    name: str,
    num_classes: int,
    *,
    box_loss: BoxLoss | None = None,
    box_gain: float = 0.05,
    objectness_gain: float = 1.0,
    class_gain: float = 0.5,
    objectness: Objectness = "iou",
    anchors: Float[Tensor, "3 3 2"] | None = None,
    postprocess: PostProcess | None = None,
) -> YOLOv5:
    """A detector with fresh weights.

    Args:
        name: ``yolov5n``, ``yolov5s``, ``yolov5m``, ``yolov5l`` or ``yolov5x``.
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes in ``cxcywh``
            to one value a pair; α-IoU with α = 3 unless given.
        box_gain: How much the box part of the loss counts.
        objectness_gain: How much the objectness part counts, for images of 640 pixels; for others
            it goes with their area.
        class_gain: How much the class part counts, for 80 classes; it goes with their number.
        objectness: What the objectness of a positive learns: ``iou``, or ``similarity`` (one minus
            the box loss) as in the published code of the paper.
        anchors: Width and height of three anchors on each of three layers, in pixels; those of
            YOLOv5 unless given.
        postprocess: Thresholds of score and NMS, and the number of detections.

    Example:
        >>> detector = build_detector("yolov5n", 20, box_loss=AlphaIoULoss("diou", alpha=3.0))
        >>> detections = detector.eval()(torch.zeros(1, 3, 64, 64))
        >>> sorted(detections[0])
        ['boxes', 'labels', 'scores']
    """
    check_choice("name", name, DETECTORS)
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    depth, width = SIZES[name]
    return YOLOv5(
        YOLOv5Network(num_classes, depth=depth, width=width),
        YOLOv5Loss(
            num_classes,
            AlphaIoULoss() if box_loss is None else box_loss,
            box_gain=box_gain,
            objectness_gain=objectness_gain,
            class_gain=class_gain,
            objectness=objectness,
        ),
        postprocess=postprocess or PostProcess(),
        anchors=anchors,
    )
