"""Any box loss in a training of RF-DETR, in the place of its GIoU."""

from __future__ import annotations

import warnings

from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    Similarity,
    check_name,
    install_process_wide,
    restore_names,
)
from alphaiou.losses.pair_loss import BoxLoss, PairLoss

try:
    with warnings.catch_warnings():
        # It warns of parts of itself that are not used here, and torch of how it is written.
        warnings.simplefilter("ignore")
        from rfdetr.models import criterion
        from rfdetr.utilities import box_ops
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.rfdetr needs RF-DETR: pip install 'rfdetr>=1.11'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "rfdetr 1.11"
NAME = "elementwise_generalized_box_iou"


def use_box_loss(loss: BoxLoss, *, weight: float = 1.0) -> BoxLossHandle:
    """Train every RF-DETR of this process with another loss in the place of its GIoU loss.

    It goes wherever the GIoU loss went: the last layer, the auxiliary outputs, the encoder's. It
    keeps the name ``loss_giou`` and the factor the configuration gives that; the matching, the ℓ1
    loss of the boxes and the IoU in the targets of the classes stay. Boxes are in units of the
    image, from 0 to 1.

    Args:
        loss: An ``AlphaIoULoss``, a text such as ``diou`` or ``diou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the loss, beside that of the configuration.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of RF-DETR has no place for the loss.

    Examples:
        >>> with use_box_loss("giou:3") as handle:
        ...     print(handle)  # then train: RFDETRNano().train(...)
        <AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None) in \
rfdetr.utilities.box_ops.elementwise_generalized_box_iou>
    """
    check_name(box_ops, NAME, criterion, known=KNOWN)
    pair_loss = PairLoss(loss, weight)
    return install_process_wide(repr(pair_loss), [Change(box_ops, NAME, Similarity(pair_loss))])


def restore_box_loss() -> None:
    """Put back RF-DETR's own box loss, whoever has the handle."""
    restore_names([(box_ops, NAME)])
