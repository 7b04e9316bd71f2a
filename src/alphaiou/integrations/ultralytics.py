"""Any box loss in a training of Ultralytics: YOLO from YOLOv5u to YOLO26, and RT-DETR."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from torch import Tensor

from alphaiou.boxes import convert_boxes
from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    Replacement,
    check_name,
    install_process_wide,
    restore_names,
)
from alphaiou.losses.pair_loss import Boxes, BoxLoss, PairLoss

try:
    from ultralytics.engine import trainer
    from ultralytics.models.utils import loss as rtdetr_loss
    from ultralytics.utils import loss as yolo_loss
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.ultralytics needs Ultralytics: pip install 'ultralytics>=8.2'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "ultralytics 8.2 to 8.4"
#: Where the losses look the IoU up, and where a trainer looks up how processes are launched.
NAMES = (
    (yolo_loss, "bbox_iou"),
    (rtdetr_loss, "bbox_iou"),
    (trainer, "generate_ddp_command"),
)


def use_box_loss(loss: BoxLoss, *, weight: float = 1.0) -> BoxLossHandle:
    """Train every model of this process, and of those Ultralytics launches, with another box loss.

    It stands for the CIoU of the YOLO models that detect, segment or find poses, with boxes in
    cells of the grid, and for the GIoU of RT-DETR, with boxes in units of the image. What the loss
    is called and weighted by (``box=7.5``) stays; so do the assigner, the matching, the other
    losses and the scores. Oriented boxes have a loss of their own, which stays as well.

    Args:
        loss: An ``AlphaIoULoss``, a text such as ``ciou`` or ``ciou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the loss, beside those of Ultralytics.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of Ultralytics has no place for the loss.

    Examples:
        >>> with use_box_loss("ciou:3") as handle:
        ...     print(handle)  # then train: YOLO("yolo11n.yaml").train(...)
        <AlphaIoULoss(kind='ciou', alpha=3.0, penalty_alpha=None) in \
ultralytics.utils.loss.bbox_iou, ultralytics.models.utils.loss.bbox_iou, \
ultralytics.engine.trainer.generate_ddp_command>
    """
    for module, name in NAMES:
        check_name(module, name, module, known=KNOWN)
    pair_loss = PairLoss(loss, weight)
    replacements = _BoxIoU(pair_loss), _BoxIoU(pair_loss), _Launch(pair_loss)
    changes = [
        Change(module, name, replacement)
        for (module, name), replacement in zip(NAMES, replacements, strict=True)
    ]
    return install_process_wide(repr(pair_loss), changes)


def restore_box_loss() -> None:
    """Put back Ultralytics' own box loss, whoever has the handle."""
    restore_names(NAMES)


class _BoxIoU(Replacement):
    """In the place of ``bbox_iou``: ``1 − loss`` where that is used as a loss."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(  # noqa: PLR0917
        self,
        pred: Boxes,
        target: Boxes,
        xywh: bool = True,
        GIoU: bool = False,
        DIoU: bool = False,
        CIoU: bool = False,
        eps: float = 1e-7,
    ) -> Tensor:
        """A column of values; the plain IoU, which RT-DETR teaches its classes, is its own."""
        if not (GIoU or DIoU or CIoU):
            (own,) = self.previous
            return own(pred, target, xywh=xywh, eps=eps)  # type: ignore[operator, no-any-return]
        if xywh:
            pred, target = (convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target))
        return 1 - self.loss(pred, target)[..., None]


class _Launch(Replacement):
    """In the place of ``generate_ddp_command``: its script puts the loss in before it trains."""

    def __init__(self, loss: PairLoss) -> None:
        self.loss = loss

    def __call__(self, *args: Any) -> tuple[list[str], str]:  # noqa: ANN401
        """The command and the script, which every process runs."""
        first = (
            "import pickle; from alphaiou.integrations.ultralytics import use_box_loss; "
            f"use_box_loss(pickle.loads({self._pickled()!r}))\n"
        )
        (own,) = self.previous
        command, file = own(*args)  # type: ignore[operator]
        script = Path(file)
        script.write_text(first + script.read_text(encoding="utf-8"), encoding="utf-8")
        return command, file

    def _pickled(self) -> bytes:
        try:
            return pickle.dumps(self.loss)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ValueError(
                f"the box loss {self.loss!r} cannot go to the processes of a training on several "
                f"devices: {error}; give a text, an AlphaIoULoss, or a function of a module"
            ) from error
