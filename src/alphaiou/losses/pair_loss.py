"""Any box loss as one value per pair of boxes, for detectors and integrations."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from torch import Tensor, nn

from alphaiou._shapes import Bool, Float
from alphaiou.boxes import PairFormat
from alphaiou.losses.kinds import check_geometry, resolve_kind
from alphaiou.losses.module import AlphaIoULoss
from alphaiou.losses.spec import LossSpec
from alphaiou.numerics import check_number

Boxes = Float[Tensor, "pairs coordinates"]
#: An ``AlphaIoULoss``, a text such as ``diou:3``, or a function of predicted and target boxes.
BoxLoss = AlphaIoULoss | str | Callable[[Tensor, Tensor], Tensor]


class PairLoss(nn.Module):
    """Any box loss, times a weight, with one value per pair.

    Args:
        loss: An ``AlphaIoULoss`` (its box format and reduction are ignored), a text such as
            ``diou`` or ``diou:3``, or a function from predicted and target boxes to one value per
            pair.
        weight: The factor of every value.
        box_format: The format of the boxes.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 2.0]])
        >>> PairLoss("iou:3", weight=8.0)(boxes, boxes[[0, 0]])
        tensor([0., 7.])
    """

    __call__: Callable[..., Tensor]

    def __init__(
        self, loss: BoxLoss, weight: float = 1.0, *, box_format: PairFormat = "xyxy"
    ) -> None:
        super().__init__()
        check_number("weight", weight)
        if isinstance(loss, str):
            loss = LossSpec.parse(loss).module()
        if isinstance(loss, AlphaIoULoss):
            # A copy that shares its state: a scheduled α, a running mean.
            loss = copy(loss)
            loss.box_format, loss.reduction = box_format, "none"
            check_geometry(resolve_kind(loss.kind), box_format)
        elif not callable(loss):
            raise TypeError(
                f"loss must be an AlphaIoULoss, a text such as 'diou:3', or a function of two "
                f"tensors of {box_format} boxes, got {type(loss).__name__}"
            )
        # Its name is part of the keys in weights files: box_loss.function.alpha.
        self.function, self.weight = loss, weight

    def forward(
        self, pred: Boxes, target: Boxes, valid: Bool[Tensor, " pairs"] | None = None
    ) -> Float[Tensor, " pairs"]:
        """The weighted loss of each pair.

        Args:
            pred: Predicted boxes; with no pairs, the result is empty and has a gradient.
            target: Target boxes.
            valid: Which rows hold a pair; the loss of the others is 0.
        """
        function = self.function
        if isinstance(function, nn.Module):
            _move_state(function, pred)
        if isinstance(function, AlphaIoULoss):
            losses: Tensor = function(pred, target, valid)
        else:
            losses = function(pred, target)
            _check_one_per_pair(losses, pred)
            losses = losses if valid is None else losses.where(valid, 0.0)
        return losses if self.weight == 1 else losses * self.weight

    def __repr__(self) -> str:
        loss = self.function
        text = f"AlphaIoULoss({loss.extra_repr()})" if isinstance(loss, AlphaIoULoss) else f"{loss}"
        return text if self.weight == 1 else f"{text} × {self.weight:g}"


def _move_state(loss: nn.Module, boxes: Tensor) -> None:
    """Move the state of the loss to the boxes: an integration's model does not contain the loss."""
    if any(state.device != boxes.device for state in loss.buffers()):
        loss.to(boxes.device)


def _check_one_per_pair(losses: Tensor, boxes: Tensor) -> None:
    if losses.shape != boxes.shape[:-1]:
        raise ValueError(
            f"the box loss must return one value per pair: {tuple(boxes.shape[:-1])} for boxes "
            f"{tuple(boxes.shape)}, got {tuple(losses.shape)}; does it take a mean or a sum?"
        )
