"""Any box loss in torchvision's Faster, Mask and Keypoint R-CNN, RetinaNet and FCOS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from alphaiou.integrations._patching import (
    BoxLossHandle,
    Change,
    InstalledLoss,
    Replacement,
    Rewired,
    install,
    restore_box_loss,
)
from alphaiou.losses.pair_loss import BoxLoss, PairLoss
from alphaiou.numerics import upcast

try:
    from torchvision.models.detection import roi_heads
    from torchvision.models.detection.fcos import FCOSHead
    from torchvision.models.detection.retinanet import RetinaNetRegressionHead
    from torchvision.models.detection.roi_heads import RoIHeads
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.torchvision needs torchvision: pip install 'torchvision>=0.24'"
    ) from error

if TYPE_CHECKING:
    from torchvision.models.detection._utils import BoxCoder

__all__ = ["BoxLossHandle", "restore_box_loss", "use_box_loss"]

KNOWN = "torchvision 0.24 to 0.29"
CAUSE = (
    "the loss was not computed by the model itself, such as model(images, targets) in training "
    "mode, but by a function or a copy of your own"
)
Samples = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]


def use_box_loss(model: nn.Module, loss: BoxLoss, *, weight: float = 1.0) -> BoxLossHandle:
    """Train a model of torchvision with another box loss.

    Boxes are in pixels of the image as the model resizes it. What the losses of a model are called,
    and what they are divided by, stays: the sampled regions of interest in Faster R-CNN, the
    positives in RetinaNet and FCOS. The box loss of Faster R-CNN's proposals stays what it is.

    Args:
        model: Faster R-CNN, Mask R-CNN, Keypoint R-CNN, RetinaNet or FCOS, or a module with one
            inside.
        loss: An ``AlphaIoULoss``, a text such as ``diou`` or ``diou:3``, or a function from
            predicted and target boxes in ``xyxy`` to one value per pair.
        weight: The factor of the box loss.

    Returns:
        A handle: its ``restore()``, or the end of a ``with`` block, removes the loss.

    Raises:
        ValueError: The model is none of these, has such a loss already, or one of the methods that
            would change was changed by something else.
        UnsupportedVersionError: This torchvision has no place for the loss.

    Examples:
        >>> from torchvision.models.detection import retinanet_resnet50_fpn
        >>> model = retinanet_resnet50_fpn(weights=None, weights_backbone=None)
        >>> use_box_loss(model, "giou:3")
        <AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None) in \
RetinaNet.head.regression_head.compute_loss>
    """
    pair_loss = InstalledLoss(loss, weight)
    changes = [change for module in model.modules() for change in _changes(module, pair_loss)]
    if not changes:
        raise ValueError(
            f"{type(model).__name__} has no box loss that can be exchanged: this works for "
            "Faster R-CNN, Mask R-CNN, Keypoint R-CNN, RetinaNet and FCOS of torchvision"
        )
    for module, attribute, _ in changes:
        own = vars(module).get(attribute)
        if own is not None and not isinstance(own, Replacement):
            raise ValueError(
                f"{attribute} of this {type(module).__name__} is not the one of its class: "
                "something else has replaced it, and the box loss would undo that"
            )
    return install(model, pair_loss, changes, cause=CAUSE)


def _changes(module: nn.Module, loss: PairLoss) -> Sequence[Change]:
    """What to change in one part of a model: nothing, in most."""
    names: dict[str, object]
    if isinstance(module, RoIHeads):
        names = {"fastrcnn_loss": partial(_roi_losses, loss, module)}
        forward = Rewired(type(module).forward, names, module, known=KNOWN)
        samples = Change(module, "select_training_samples", _SamplesWithRegions(module))
        return Change(module, "forward", forward), samples
    if isinstance(module, RetinaNetRegressionHead):
        names = {"_box_loss": partial(_sum_over_anchors, loss)}
    elif isinstance(module, FCOSHead):
        names = {"generalized_box_iou_loss": partial(_sum_over_boxes, loss)}
    else:
        return ()
    compute_loss = Rewired(type(module).compute_loss, names, module, known=KNOWN)
    return (Change(module, "compute_loss", compute_loss),)


def _sum_over_boxes(loss: PairLoss, pred: Tensor, target: Tensor, *, reduction: str) -> Tensor:
    """In the place of ``generalized_box_iou_loss``, as FCOS calls it."""
    if reduction != "sum":
        raise ValueError(f"FCOS is known to sum its box loss, not to take its {reduction}")
    return loss(pred, target).sum()


def _sum_over_anchors(  # noqa: PLR0917
    loss: PairLoss,
    own_loss: str,
    box_coder: BoxCoder,
    anchors: Tensor,
    target: Tensor,
    deltas: Tensor,
) -> Tensor:
    """In the place of ``_box_loss``, as RetinaNet calls it."""
    return loss(box_coder.decode_single(upcast(deltas), anchors), target).sum()


class _SamplesWithRegions(Replacement):
    """``RoIHeads.select_training_samples``, with the region beside the target of each sample.

    ``RoIHeads.forward`` hands the targets to its loss and to nothing else: so the loss gets eight
    numbers a sample, the deltas from the region to its target, and the region.
    """

    def __init__(self, head: RoIHeads) -> None:
        self.head = head

    def __call__(self, proposals: list[Tensor], targets: list[dict[str, Tensor]]) -> Samples:
        """The sampled regions, the targets they match, their labels, deltas with regions."""
        select = type(self.head).select_training_samples
        regions, matched, labels, deltas = select(self.head, proposals, targets)
        pairs = zip(deltas, regions, strict=True)
        return regions, matched, labels, [torch.cat([upcast(d), upcast(r)], 1) for d, r in pairs]


def _roi_losses(  # noqa: PLR0917
    loss: PairLoss,
    head: RoIHeads,
    class_logits: Tensor,
    box_regression: Tensor,
    labels: list[Tensor],
    samples: list[Tensor],
) -> tuple[Tensor, Tensor]:
    """In the place of ``fastrcnn_loss``: its own loss of the classes, and ours of the boxes."""
    own_deltas = [sample[:, :4] for sample in samples]
    class_loss, _ = roi_heads.fastrcnn_loss(class_logits, box_regression, labels, own_deltas)
    classes = torch.cat(labels)
    positive = torch.where(classes > 0)[0]
    deltas, regions = torch.cat(samples)[positive].chunk(2, dim=1)
    of_class = box_regression.reshape(len(classes), -1, 4)[positive, classes[positive]]
    pred = head.box_coder.decode_single(upcast(of_class), regions)
    target = head.box_coder.decode_single(deltas, regions)
    return class_loss, loss(pred, target).sum() / len(classes)
