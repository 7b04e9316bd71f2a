"""The detectors by name.

A new detector is a folder with its configuration, one line here, and a named recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, get_args

from alphaiou._config import Texts
from alphaiou.boxes import check_choice
from alphaiou.detectors.base import Detector, DetectorConfig
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.faster_rcnn.config import FasterRCNNConfig
from alphaiou.detectors.yolov5.config import (
    YOLOv5lConfig,
    YOLOv5mConfig,
    YOLOv5nConfig,
    YOLOv5sConfig,
    YOLOv5xConfig,
)
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec

AnyDetectorConfig = (
    YOLOv5nConfig
    | YOLOv5sConfig
    | YOLOv5mConfig
    | YOLOv5lConfig
    | YOLOv5xConfig
    | FasterRCNNConfig
    | DETRConfig
)
#: The configuration class of each detector.
DETECTORS: dict[str, type[DetectorConfig]] = {
    kind.__struct_config__.tag: kind for kind in get_args(AnyDetectorConfig)
}
FASTER_RCNN, DETR = FasterRCNNConfig().name, DETRConfig().name
#: The fields of any detector's configuration.
SETTINGS = frozenset(item.name for kind in DETECTORS.values() for item in fields(kind))
#: The box losses that only some detectors support, by name.
DELTA_LOSSES = tuple(
    dict.fromkeys(name for kind in DETECTORS.values() for name in kind.delta_losses)
)


def detector_config(name: str, **settings: Any) -> AnyDetectorConfig:  # noqa: ANN401
    """Return the configuration of a detector; settings that are not given have its defaults.

    Raises:
        ValueError: If there is no such detector, or it does not support a setting.

    Examples:
        >>> detector_config("detr_r50", dropout=0.0).box_gain
        2.0
    """
    check_settings(name, settings)
    return DETECTORS[name](**settings)  # type: ignore[return-value]


def check_settings(name: str, settings: Iterable[str]) -> None:
    """Reject settings that a detector does not support."""
    check_choice("detector", name, tuple(DETECTORS))
    known = _settings_of(name)
    for key in settings:
        if key not in known:
            others = [other for other in DETECTORS if key in _settings_of(other)]
            owner = f"it is a setting of {', '.join(others)}; " if others else ""
            raise ValueError(
                f"{key} is not supported by {name}; {owner}its settings are {', '.join(known)}"
            )


def _settings_of(name: str) -> list[str]:
    return [item.name for item in fields(DETECTORS[name])]


def build_detector(
    detector: str | DetectorConfig,
    num_classes: int,
    *,
    box_loss: BoxLoss | str | None = None,
    image_size: int | None = None,
    **settings: Any,  # noqa: ANN401 - the fields of the configuration
) -> Detector:
    """Build a detector with random weights; settings that are not given have its defaults.

    The functions ``yolov5``, ``faster_rcnn`` and ``detr`` of the ``network`` modules have further
    settings.

    Args:
        detector: One of ``DETECTORS``, or a configuration.
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes to one value
            per pair, in ``cxcywh`` for YOLOv5 and in ``xyxy`` for the others; for Faster R-CNN also
            ``l1`` or ``smooth_l1`` of its deltas. The default is α-IoU with α = 3; α-GIoU for DETR.
        image_size: The longer side of the images, with which the anchors of Faster R-CNN scale.
        settings: Fields of the configuration, such as ``box_gain``.

    Raises:
        ValueError: If the detector does not support a setting.
        WeightsError: If the weights of the backbone do not exist or do not fit.

    Examples:
        >>> import torch
        >>> from alphaiou import AlphaIoULoss
        >>> detector = build_detector("yolov5n", 20, box_loss=AlphaIoULoss("diou", alpha=3.0))
        >>> detections = detector.eval()(torch.zeros(1, 3, 64, 64))
        >>> sorted(detections[0])
        ['boxes', 'labels', 'scores']
    """
    if isinstance(detector, DetectorConfig):
        if settings:
            raise ValueError(f"{', '.join(settings)}: set the fields of the configuration instead")
    else:
        detector = detector_config(detector, **settings)
    return detector.build(num_classes, box_loss, image_size=image_size)


def parse_loss(text: str) -> LossSpec:
    """Read a box loss, also one that only some detectors support.

    Examples:
        >>> parse_loss("l1").kind, str(parse_loss("ciou:3"))
        ('l1', 'ciou:3')
    """
    return LossSpec(text) if text in DELTA_LOSSES else LossSpec.parse(text)


#: Values that YAML files may write as text.
TEXTS: Texts = {LossSpec: parse_loss}


def nested_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe in plain values with the settings of its detector below ``detector``.

    They may also be given beside the name of the detector, as options of the command line are and
    as they were fields of the recipe in the first edition.

    Raises:
        ValueError: If there is no such detector, or it does not support a setting.

    Examples:
        >>> nested_settings({"detector": "yolov5n", "class_gain": 2.0, "seed": 1})
        {'detector': {'name': 'yolov5n', 'class_gain': 2.0}, 'seed': 1}
    """
    name = values.get("detector")
    if not isinstance(name, str):
        return dict(values)
    own = {key: value for key, value in values.items() if key in SETTINGS}
    check_settings(name, own)
    rest = {key: value for key, value in values.items() if key not in SETTINGS}
    return {**rest, "detector": {"name": name, **own}}


#: The settings of detectors that recipes of the first edition may lack, with what they did then.
_EARLIER = {
    "box_gain": 0.05,
    "objectness_gain": 1.0,
    "class_gain": 0.5,
    "objectness": "iou",
    "objectness_alpha": 1.0,
    "rpn_loss": None,
    "match_loss": None,
    "backbone_weights": "none",
    "norm": "auto",
    "backbone_lr_scale": None,
    "dropout": 0.1,
    "nms_threshold": 0.6,
}


def earlier_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recipe of the first edition with the settings of its detector alone, all of them.

    It held the settings of all detectors, with the same defaults for all. Recipes of today's layout
    are returned unchanged.
    """
    name = values.get("detector")
    if not isinstance(name, str):
        return dict(values)
    check_choice("detector", name, tuple(DETECTORS))
    rest = {key: value for key, value in values.items() if key not in SETTINGS}
    return rest | {key: values.get(key, _EARLIER[key]) for key in _settings_of(name)}
