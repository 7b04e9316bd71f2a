"""Any box loss in a training of YOLOv5 (the package ``yolov5``), in the place of its CIoU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from alphaiou.boxes import convert_boxes
from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    InstalledLoss,
    Replacement,
    check_name,
    install_process_wide,
    restore_names,
)
from alphaiou.losses.pair_loss import Boxes, BoxLoss
from alphaiou.losses.similarity import box_iou

try:
    from yolov5.utils import loss as yolo_loss
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.yolov5 needs YOLOv5: pip install 'yolov5>=7.0'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "yolov5 7.0"
NAME = "bbox_iou"
CAUSE = "every batch so far had no objects, or another model than a detector of YOLOv5 was trained"


def use_box_loss(
    loss: BoxLoss, *, weight: float = 1.0, objectness_from_loss: bool = False
) -> BoxLossHandle:
    """Train every YOLOv5 of this process with another loss in the place of its CIoU loss.

    It keeps the name and the factor of the configuration (``box=0.05``). Boxes are in cells of the
    grid. YOLOv5 teaches its objectness the value that its box loss is one minus of. A power or a
    penalty would lower these targets, so they become the plain IoU.

    Args:
        loss: An ``AlphaIoULoss``, a text such as ``ciou`` or ``ciou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the loss, beside that of the configuration.
        objectness_from_loss: Teach ``1 − loss`` to the objectness, as YOLOv5 does with its CIoU.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of YOLOv5 has no place for the loss.
    """
    check_name(yolo_loss, NAME, yolo_loss, known=KNOWN)
    installed = InstalledLoss(loss, weight)
    changes = [Change(yolo_loss, NAME, _BoxIoU(installed, objectness_from_loss))]
    return install_process_wide(installed, changes, cause=CAUSE)


def restore_box_loss() -> None:
    """Put back YOLOv5's own box loss, without the handle."""
    restore_names([(yolo_loss, NAME)])


class _BoxIoU(Replacement):
    """In the place of ``bbox_iou``, as the loss calls it: boxes by their centres, one column."""

    def __init__(self, loss: InstalledLoss, objectness_from_loss: bool) -> None:
        self.loss, self.objectness_from_loss = loss, objectness_from_loss

    def __call__(self, pred: Boxes, target: Boxes, CIoU: bool = True) -> Tensor:
        """``1 − loss``; detached, it is what the objectness learns."""
        pred, target = (convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target))
        value = 1 - self.loss(pred, target)[:, None]
        if self.objectness_from_loss:
            return value
        with torch.no_grad():
            objectness = box_iou(pred, target)[:, None]
        return _WithObjectness.of(value, objectness.to(value.dtype))


class _WithObjectness(Tensor):
    """A similarity that becomes the plain IoU when it is detached."""

    objectness: Tensor

    @classmethod
    def of(cls, value: Tensor, objectness: Tensor) -> _WithObjectness:
        """Both in one tensor."""
        both = value.as_subclass(cls)
        both.objectness = objectness
        return both

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """What changes the shape changes that of both; all else takes the similarity alone."""
        options = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is Tensor.detach:
                return args[0].objectness
            value = func(*args, **options)
            if func not in _SHAPING:
                return value
            return cls.of(value, func(args[0].objectness, *args[1:], **options))


_SHAPING = (Tensor.squeeze, Tensor.view, Tensor.reshape, Tensor.flatten)
