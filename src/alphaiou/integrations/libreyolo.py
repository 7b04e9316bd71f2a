"""Any box loss in a training of LibreYOLO: YOLOv9, in the place of its CIoU, and RF-DETR's GIoU."""

from __future__ import annotations

from torch import Tensor

from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    InstalledLoss,
    Replacement,
    Similarity,
    check_name,
    install_process_wide,
    restore_names,
)
from alphaiou.losses.pair_loss import Boxes, BoxLoss

try:
    from libreyolo.models.rfdetr import box_ops
    from libreyolo.models.rfdetr import loss as rfdetr_loss
    from libreyolo.models.yolo9 import loss as yolo9_loss
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.libreyolo needs LibreYOLO: pip install 'libreyolo>=1.6'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "libreyolo 1.6"
#: Where the losses of YOLOv9 and RF-DETR look their similarity up.
NAMES = ((yolo9_loss, "calculate_iou"), (box_ops, "paired_generalized_box_iou"))
CAUSE = (
    "the model is neither YOLOv9 nor RF-DETR, every batch so far had no objects, or the training "
    "runs in other processes that did not run this line"
)


def use_box_loss(loss: BoxLoss, *, weight: float = 1.0) -> BoxLossHandle:
    """Train every YOLOv9 and RF-DETR of LibreYOLO in this process with another box loss.

    It keeps the factors of the configuration. The assigner of YOLOv9, the matching of RF-DETR and
    the other losses stay. Boxes are in cells of the grid, and in units of the image for RF-DETR.

    Args:
        loss: An ``AlphaIoULoss``, a text such as ``ciou`` or ``ciou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the loss, beside those of LibreYOLO.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of LibreYOLO has no place for the loss.
    """
    for (module, name), user in zip(NAMES, (yolo9_loss, rfdetr_loss), strict=True):
        check_name(module, name, user, known=KNOWN)
    installed = InstalledLoss(loss, weight)
    replacements = _AlignedIoU(installed), Similarity(installed)
    changes = [
        Change(module, name, replacement)
        for (module, name), replacement in zip(NAMES, replacements, strict=True)
    ]
    return install_process_wide(installed, changes, cause=CAUSE)


def restore_box_loss() -> None:
    """Put back LibreYOLO's own box losses, without the handle."""
    restore_names(NAMES)


class _AlignedIoU(Replacement):
    """In the place of ``compute_iou``: ``1 − loss`` of aligned pairs, which are the loss's."""

    def __init__(self, loss: InstalledLoss) -> None:
        self.loss = loss

    def __call__(
        self, pred: Boxes, target: Boxes, mode: str = "iou", *, pairwise: bool = True
    ) -> Tensor:
        """One value per pair where the loss asks, the similarity of all pairs elsewhere."""
        if pairwise:
            (own,) = self.previous
            return own(pred, target, mode)  # type: ignore[operator, no-any-return]
        return 1 - self.loss(pred, target)
