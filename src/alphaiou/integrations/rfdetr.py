"""Any box loss in a training of RF-DETR, in the place of its GIoU."""

from __future__ import annotations

import warnings
from typing import Any

import torch
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
from alphaiou.integrations._quality import LabelLoss
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.quality import QualityLoss

try:
    with warnings.catch_warnings():
        # It warns of parts of itself that are not used here, and torch of how it is written.
        warnings.simplefilter("ignore")
        from rfdetr.models import criterion, lwdetr
        from rfdetr.utilities import box_ops
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.rfdetr needs RF-DETR: pip install 'rfdetr>=1.11'"
    ) from error

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss", "use_quality_loss"]

KNOWN = "rfdetr 1.11"
CAUSE = (
    "another model than RF-DETR was trained, or RF-DETR in other processes that did not run this "
    "line"
)
NAME = "elementwise_generalized_box_iou"
#: The class of criteria, and where it is looked up to build one.
CRITERION = "SetCriterion"


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
    pair_loss = InstalledLoss(loss, weight)
    changes = [Change(box_ops, NAME, Similarity(pair_loss))]
    return install_process_wide(pair_loss, changes, cause=CAUSE)


def restore_box_loss() -> None:
    """Put back RF-DETR's own losses, without the handle."""
    restore_names([(box_ops, NAME), (lwdetr, CRITERION)])


def use_quality_loss(loss: QualityLoss | str, *, weight: float = 1.0) -> BoxLossHandle:
    """Train the scores of every RF-DETR that is built from now on with a quality loss.

    It stands for IA-BCE, keeps the name ``loss_ce`` and the factor the configuration gives that.
    The matching and ``class_error`` stay. A criterion that was built before keeps its loss.

    Args:
        loss: A ``QualityLoss``, or a text such as ``mal`` or ``ia_bce:2``.
        weight: The factor of the loss, beside that of the configuration.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss from what is
        built afterwards.

    Raises:
        ValueError: There is such a loss already.
        UnsupportedVersionError: This version of RF-DETR has no place for the loss.

    Examples:
        >>> with use_quality_loss("ia_bce:2") as handle:
        ...     print(handle)  # then train: RFDETRNano().train(...)
        <QualityLoss(kind='ia_bce', alpha=2.0, gamma=2.0) in rfdetr.models.lwdetr.SetCriterion>
    """
    check_name(criterion, CRITERION, lwdetr, known=KNOWN)
    label_loss = LabelLoss(loss, weight)
    change = Change(lwdetr, CRITERION, _QualityCriterion(label_loss))
    return install_process_wide(label_loss, [change], cause=CAUSE)


class _QualityCriterion(Replacement):
    """In the place of the class ``SetCriterion``, where criteria are built."""

    def __init__(self, loss: LabelLoss) -> None:
        self.loss = loss

    def __call__(self, *args: Any, **kwargs: Any) -> criterion.SetCriterion:  # noqa: ANN401
        """A criterion with the loss."""
        built = QualityCriterion(*args, **kwargs)
        built.label_loss = self.loss
        return built


class QualityCriterion(criterion.SetCriterion):
    """RF-DETR's criterion with a quality loss of the labels.

    As a class of its own: what RF-DETR computes for all layers at once, with a classification loss
    of its own inside, it leaves to its own class alone.
    """

    label_loss: LabelLoss

    def loss_labels(  # noqa: PLR0917
        self,
        outputs: dict[str, Any],
        targets: list[dict[str, Tensor]],
        indices: list[tuple[Tensor, Tensor]],
        num_boxes: Tensor,
        log: bool = True,
        matched_targets: Any = None,  # noqa: ANN401
    ) -> dict[str, Tensor]:
        """The quality loss, and RF-DETR's ``class_error``."""
        with torch.no_grad():
            own = super().loss_labels(outputs, targets, indices, num_boxes, log, matched_targets)
        loss = self.label_loss.of_matches(
            outputs["pred_logits"],
            outputs["pred_boxes"],
            targets,
            indices,
            labels="labels",
            counts=self._matched_valid_mask(targets, indices),
        )
        return own | {"loss_ce": loss / num_boxes}
