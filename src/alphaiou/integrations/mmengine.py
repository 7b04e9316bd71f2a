"""The loss by its name in the configurations of MMEngine: MMDetection, MMYOLO and others.

A configuration says ``custom_imports = dict(imports=["alphaiou.integrations.mmengine"])``, and
``loss_bbox=dict(type="AlphaIoULoss", kind="giou", alpha=3.0, loss_weight=2.0)``. With oriented
boxes, as in MMRotate, it is ``dict(type="AlphaIoULoss", kind="probiou", box_format="cxcywhr")``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float, Num, Shaped
from alphaiou.boxes import PairFormat, check_choice
from alphaiou.losses import AlphaIoULoss as Loss
from alphaiou.losses import alpha_iou_loss
from alphaiou.losses.functional import REDUCTIONS, Reduction
from alphaiou.numerics import check_number, is_compiling

try:
    from mmengine.registry import MODELS
except ImportError as error:
    raise ImportError(
        "alphaiou.integrations.mmengine needs MMEngine: pip install 'mmengine>=0.10'"
    ) from error

__all__ = ["AlphaIoULoss"]

#: What MMDetection adds to a factor before it divides by that.
EPSILON = torch.finfo(torch.float32).eps
#: How many calls look at the targets; on a GPU each of these waits for it.
CHECKED_CALLS = 10
PairWeight = Shaped[Tensor, " pairs"] | Shaped[Tensor, "pairs coordinates"]
LossAndIoU = tuple[Float[Tensor, "*reduced"], Float[Tensor, " pairs"]]


@MODELS.register_module()
class AlphaIoULoss(nn.Module):
    """``alphaiou.AlphaIoULoss``, built and called as MMDetection builds and calls its losses.

    Args:
        kind: A name in ``alphaiou.KINDS``, such as ``ciou``.
        alpha: α₁, the power of the similarity.
        penalty_alpha: α₂, the power of the penalties; ``None`` is α₁.
        box_cox: Divide the similarity term by α₁.
        box_format: ``xyxy``, as MMDetection has it; ``cxcywh`` for YOLOv5 of MMYOLO; ``cxcywhr``
            for heads of MMRotate that decode their boxes, with any of its ranges of angles.
        modifiers: Their names, as of ``alphaiou.AlphaIoULoss``.
        reduction: ``none``, ``mean`` or ``sum``.
        loss_weight: The factor of the loss.
        return_iou: Give the similarity of each pair as well, ``1 − loss`` at α = 1 without a
            gradient: YOLOv5 of MMYOLO teaches it to its objectness.

    Examples:
        >>> loss = MODELS.build(dict(type="AlphaIoULoss", kind="iou", alpha=3.0, loss_weight=2.0))
        >>> pred, target = torch.tensor([[[0.0, 0.0, 2.0, 2.0]], [[0.0, 0.0, 4.0, 2.0]]])
        >>> loss(pred, target, weight=torch.ones(1), avg_factor=7.0)
        tensor(0.2500)
    """

    def __init__(
        self,
        kind: str = "iou",
        alpha: float = 3.0,
        *,
        penalty_alpha: float | None = None,
        box_cox: bool = False,
        box_format: PairFormat = "xyxy",
        modifiers: Sequence[str] = (),
        reduction: Reduction = "mean",
        loss_weight: float = 1.0,
        return_iou: bool = False,
    ) -> None:
        super().__init__()
        check_choice("reduction", reduction, REDUCTIONS)
        check_number("loss_weight", loss_weight, strict=False)
        self.loss = Loss(
            kind,
            alpha,
            penalty_alpha=penalty_alpha,
            box_cox=box_cox,
            box_format=box_format,
            modifiers=modifiers,
            reduction="none",
        )
        self.reduction, self.loss_weight, self.return_iou = reduction, loss_weight, return_iou
        self._unchecked = CHECKED_CALLS

    def forward(
        self,
        pred: Num[Tensor, "pairs coordinates"],
        target: Num[Tensor, "pairs coordinates"],
        weight: PairWeight | None = None,
        avg_factor: float | Tensor | None = None,
        reduction_override: Reduction | None = None,
        *,
        pred_decode: Num[Tensor, "pairs coordinates"] | None = None,
        targets_decode: Num[Tensor, "pairs coordinates"] | None = None,
        **_: Any,  # noqa: ANN401
    ) -> Float[Tensor, "*reduced"] | LossAndIoU:
        """The loss of aligned boxes, times ``loss_weight``.

        Args:
            pred: Predicted boxes.
            target: Target boxes.
            weight: Weight of each pair, or of its coordinates, of which the mean counts. With
                all of them zero the loss is a zero that has a gradient.
            avg_factor: With ``mean``: what the sum is divided by, in place of the number of pairs.
            reduction_override: The reduction of this call alone.
            pred_decode: The boxes, where ``pred`` holds deltas: heads of MMRotate with
                ``loss_bbox_type="kfiou"`` give both.
            targets_decode: The targets as boxes, likewise.
            **_: What some heads give in addition; not used.
        """
        reduction = reduction_override or self.reduction
        _check_override(reduction)
        if pred_decode is not None and targets_decode is not None:
            pred, target = pred_decode, targets_decode
        if pred.shape[-1] == 5 and self.loss.box_format != "cxcywhr":
            raise ValueError(
                "the boxes have five numbers: oriented boxes need box_format='cxcywhr' in the "
                f"configuration of the loss, which has {self.loss.box_format!r}"
            )
        if self._unchecked and not is_compiling():
            self._check_boxes(target, weight)
        if weight is not None and weight.ndim == pred.ndim:
            weight = weight.mean(dim=-1)
        losses = self.loss_weight * self.loss(pred, target, weight)
        loss = _reduced(losses, reduction, avg_factor)
        return (loss, self._similarity(pred, target)) if self.return_iou else loss

    @torch.no_grad()
    def _check_boxes(self, target: Tensor, weight: Tensor | None) -> None:
        """Warn once about targets that are no boxes; later calls do not wait for the device."""
        if weight is not None:
            target = target[(weight if weight.ndim == 1 else weight.sum(-1)) > 0]
        if not len(target):
            return
        self._unchecked -= 1
        sides = target[:, 2:4]
        if self.loss.box_format == "xyxy":
            sides = sides - target[:, :2]
        inverted = int((sides < 0).any(-1).sum())
        if inverted:
            self._unchecked = 0
            warnings.warn(
                f"{inverted} of {len(target)} targets of the box loss are no boxes: a side is "
                "negative. A head that gives deltas from anchors or regions needs "
                "reg_decoded_bbox=True (RetinaHead, RPNHead, Shared2FCBBoxHead); boxes given by "
                "their centres need box_format='cxcywh' in the configuration of the loss",
                stacklevel=3,
            )

    @torch.no_grad()
    def _similarity(self, pred: Tensor, target: Tensor) -> Tensor:
        kind, box_format = self.loss.kind, self.loss.box_format
        return 1 - alpha_iou_loss(pred, target, kind=kind, alpha=1.0, box_format=box_format)


class _OverrideError(ValueError, AssertionError):
    """MMDetection asserts that it knows the reduction of a call."""


def _check_override(reduction: Reduction) -> None:
    try:
        check_choice("reduction_override", reduction, REDUCTIONS)
    except ValueError as error:
        raise _OverrideError(*error.args) from None


def _reduced(losses: Tensor, reduction: Reduction, avg_factor: float | Tensor | None) -> Tensor:
    """As MMDetection reduces: a factor is refused with a sum, and not used without a reduction."""
    if reduction == "none":
        return losses
    if reduction == "sum":
        if avg_factor is not None:
            raise ValueError(f"avg_factor needs reduction='mean', got {avg_factor!r} with 'sum'")
        return losses.sum()
    return losses.sum() / (max(len(losses), 1) if avg_factor is None else avg_factor + EPSILON)
