"""Detectors by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from torch import Tensor

from alphaiou._shapes import Float
from alphaiou.boxes import check_choice
from alphaiou.detectors.base import Detector, PostProcess
from alphaiou.detectors.faster_rcnn.loss import DeltaLoss
from alphaiou.detectors.yolov5.loss import Objectness
from alphaiou.detectors.yolov5.network import SIZES, yolov5
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec

FASTER_RCNN, DETR = "fasterrcnn_r50_fpn", "detr_r50"
DETECTORS = (*SIZES, FASTER_RCNN, DETR)
#: Losses of the box deltas of Faster R-CNN, as opposed to losses of the decoded boxes.
DELTA_LOSSES: tuple[DeltaLoss, ...] = get_args(DeltaLoss)
AnyPart = TypeVar("AnyPart", LossSpec, AlphaSchedule)

_BACKBONE = {"backbone_weights": "backbone_weights", "norm": "norm"}
#: The settings of each detector, and the parameter names of its own function.
_YOLOV5_SETTINGS = {
    name: name
    for name in (
        "box_gain",
        "objectness_gain",
        "class_gain",
        "objectness",
        "anchors",
        "postprocess",
    )
}
_SETTINGS: dict[str, dict[str, str]] = {
    **dict.fromkeys(SIZES, _YOLOV5_SETTINGS),
    FASTER_RCNN: {
        "box_gain": "box_weight",
        "rpn_loss": "rpn_box_loss",
        "image_size": "image_size",
        "postprocess": "postprocess",
        **_BACKBONE,
    },
    DETR: {
        "box_gain": "box_weight",
        "match_loss": "match_loss",
        **_BACKBONE,
        "backbone_lr_scale": "backbone_lr_scale",
        "dropout": "dropout",
    },
}


def settings_of(name: str) -> tuple[str, ...]:
    """Return the settings that ``build_detector`` accepts for a detector, besides its box loss.

    Examples:
        >>> settings_of("detr_r50")
        ('box_gain', 'match_loss', 'backbone_weights', 'norm', 'backbone_lr_scale', 'dropout')
    """
    check_choice("name", name, DETECTORS)
    return tuple(_SETTINGS[name])


def build_detector(
    name: str,
    num_classes: int,
    *,
    box_loss: BoxLoss | DeltaLoss | None = None,
    box_gain: float | None = None,
    objectness_gain: float | None = None,
    class_gain: float | None = None,
    objectness: Objectness | None = None,
    anchors: Float[Tensor, "3 3 2"] | None = None,
    rpn_loss: BoxLoss | DeltaLoss | None = None,
    match_loss: BoxLoss | None = None,
    backbone_weights: Literal["imagenet"] | Path | None = None,
    norm: Literal["frozen", "batch", "group"] | None = None,
    backbone_lr_scale: float | None = None,
    dropout: float | None = None,
    image_size: int | None = None,
    postprocess: PostProcess | None = None,
) -> Detector:
    """Build a detector with random weights; settings that are not given have its defaults.

    The functions ``yolov5``, ``faster_rcnn`` and ``detr`` of the ``network`` modules have further
    settings.

    Args:
        name: One of ``DETECTORS``.
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes to one value
            per pair, in ``cxcywh`` for YOLOv5 and in ``xyxy`` for the others; for Faster R-CNN also
            ``l1`` or ``smooth_l1`` of its deltas. The default is α-IoU with α = 3; α-GIoU for DETR.
        box_gain: The weight of the box loss.
        objectness_gain: The weight of the objectness loss (YOLOv5).
        class_gain: The weight of the class loss (YOLOv5).
        objectness: The objectness target of positives, ``iou`` or ``similarity`` (YOLOv5).
        anchors: Width and height of the three anchors of each of three layers, in pixels (YOLOv5).
        rpn_loss: The box loss of the region proposal network (Faster R-CNN).
        match_loss: The box loss in the matching cost (DETR).
        backbone_weights: ``imagenet`` for those of torchvision, or a file with a state dict (Faster
            R-CNN, DETR).
        norm: The norms of the backbone (Faster R-CNN, DETR).
        backbone_lr_scale: The learning-rate factor of the backbone (DETR).
        dropout: The dropout rate of the transformer (DETR).
        image_size: The image size, with which anchor sizes scale (Faster R-CNN).
        postprocess: Score threshold, NMS, and the number of detections (not DETR).

    Raises:
        ValueError: If the detector does not support a setting.
        WeightsError: If the weights of the backbone do not exist or do not fit.

    Examples:
        >>> detector = build_detector("yolov5n", 20, box_loss=AlphaIoULoss("diou", alpha=3.0))
        >>> detections = detector.eval()(torch.zeros(1, 3, 64, 64))
        >>> sorted(detections[0])
        ['boxes', 'labels', 'scores']
    """
    chosen = {
        "box_gain": box_gain,
        "objectness_gain": objectness_gain,
        "class_gain": class_gain,
        "objectness": objectness,
        "anchors": anchors,
        "rpn_loss": rpn_loss,
        "match_loss": match_loss,
        "backbone_weights": backbone_weights,
        "norm": norm,
        "backbone_lr_scale": backbone_lr_scale,
        "dropout": dropout,
        "image_size": image_size,
        "postprocess": postprocess,
    }
    settings = _own_settings(
        name, {key: value for key, value in chosen.items() if value is not None}
    )
    if name == FASTER_RCNN:
        from alphaiou.detectors.faster_rcnn.network import faster_rcnn

        return faster_rcnn(num_classes, box_loss or AlphaIoULoss(), **settings)
    if isinstance(box_loss, str):
        raise ValueError(f"box_loss={box_loss!r} is supported by {FASTER_RCNN} only, not by {name}")
    if name == DETR:
        from alphaiou.detectors.detr.network import detr

        return detr(num_classes, box_loss, **settings)
    return yolov5(name, num_classes, box_loss, **settings)


def _own_settings(name: str, chosen: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a detector by the parameter names of its own function."""
    possible = settings_of(name)
    for key in chosen:
        if key not in possible:
            raise ValueError(
                f"{name} does not support {key}; its settings are {', '.join(possible)}"
            )
    return {_SETTINGS[name][key]: value for key, value in chosen.items()}


def detector_from(
    settings: Mapping[str, Any], num_classes: int, *, for_training: bool = True
) -> Detector:
    """Build the detector of a recipe given as plain values, as in records and weights files.

    Args:
        settings: The fields of the recipe; fields that do not concern the detector are ignored, and
            missing fields have their defaults.
        num_classes: The number of classes.
        for_training: Whether to load the backbone weights that the recipe names. Pass False if all
            weights are loaded from a file afterwards.

    Examples:
        >>> recipe = {"detector": "yolov5n", "loss": {"kind": "giou", "alpha": 3.0}}
        >>> detector_from(recipe, 20).loss_names
        ('box', 'objectness', 'class')
    """
    name = settings["detector"]
    pretrained = settings.get("backbone_weights", "none")
    norm = settings.get("norm", "auto")
    chosen = {
        **settings,
        **{key: _box_loss(settings.get(key)) for key in ("rpn_loss", "match_loss")},
        "backbone_weights": _backbone_weights(pretrained) if for_training else None,
        "norm": ("group" if pretrained == "none" else "frozen") if norm == "auto" else norm,
    }
    known = {key: chosen.get(key) for key in settings_of(name) if key not in _NOT_IN_RECIPES}
    loss = _box_loss(settings["loss"], settings.get("alpha_schedule"))
    detector = build_detector(name, num_classes, box_loss=loss, **known)
    if "nms_threshold" in settings and "postprocess" in settings_of(name):
        nms = settings["nms_threshold"]
        detector.postprocess = replace(detector.postprocess, nms_threshold=nms)
    return detector


#: Settings that are not fields of a recipe: they follow from the data or from other fields.
_NOT_IN_RECIPES = ("anchors", "postprocess")


def _box_loss(
    values: Mapping[str, Any] | None, schedule: Mapping[str, Any] | None = None
) -> AlphaIoULoss | DeltaLoss | None:
    if values is None:
        return None
    spec = _from_plain(LossSpec, values)
    if spec.kind in DELTA_LOSSES:
        return spec.kind
    return spec.module(None if schedule is None else _from_plain(AlphaSchedule, schedule))


def _from_plain(kind: type[AnyPart], values: Mapping[str, Any]) -> AnyPart:
    return kind(**{item.name: values[item.name] for item in fields(kind) if item.name in values})


def _backbone_weights(name: str) -> Literal["imagenet"] | Path | None:
    if name == "none":
        return None
    return "imagenet" if name == "imagenet" else Path(name)
