"""A box loss as the frameworks need it: ``xyxy`` boxes, one value a pair, no part of the model."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from jaxtyping import Float
from torch import Tensor, nn

from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.spec import LossSpec
from alphaiou.numerics import check_number

Boxes = Float[Tensor, "pairs 4"]
#: An ``AlphaIoULoss``, a text such as ``diou:3``, or a function of ``xyxy`` boxes.
BoxLoss = AlphaIoULoss | str | Callable[[Tensor, Tensor], Tensor]


class PairLoss:
    """Any box loss, times a weight, one value a pair.

    Args:
        loss: An ``AlphaIoULoss`` (its own box format and reduction do not matter here), a text
            such as ``diou`` or ``diou:3``, or a function from predicted and target boxes in
            ``xyxy`` to one value a pair.
        weight: The factor of every value.

    Examples:
        >>> boxes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 2.0]])
        >>> PairLoss("iou:3", weight=8.0)(boxes, boxes[[0, 0]])
        tensor([0., 7.])
    """

    def __init__(self, loss: BoxLoss, weight: float = 1.0) -> None:
        check_number("weight", weight)
        self.loss, self.weight = _one_value_a_pair(loss), weight

    def __call__(self, pred: Boxes, target: Boxes) -> Float[Tensor, " pairs"]:
        """The weighted loss of each pair; of no pairs, an empty tensor with a gradient."""
        if isinstance(self.loss, nn.Module):
            _move_state(self.loss, pred)
        losses: Tensor = self.loss(pred, target)
        if losses.shape != pred.shape[:-1]:
            raise ValueError(
                f"the box loss must give one value a pair: {tuple(pred.shape[:-1])} for boxes "
                f"{tuple(pred.shape)}, got {tuple(losses.shape)}; does it take a mean or a sum?"
            )
        return losses * self.weight

    def __repr__(self) -> str:
        loss = self.loss
        text = f"AlphaIoULoss({loss.extra_repr()})" if isinstance(loss, AlphaIoULoss) else f"{loss}"
        return text if self.weight == 1 else f"{text} × {self.weight:g}"


def _move_state(loss: nn.Module, boxes: Tensor) -> None:
    """Move the state of the loss to the boxes: ``model.to`` does not know of it."""
    if any(state.device != boxes.device for state in loss.buffers()):
        loss.to(boxes.device)


def _one_value_a_pair(loss: BoxLoss) -> AlphaIoULoss | Callable[[Tensor, Tensor], Tensor]:
    if isinstance(loss, str):
        loss = LossSpec.parse(loss).module()
    if isinstance(loss, AlphaIoULoss):
        # A copy that shares its state: a scheduled α, a running mean.
        loss = copy(loss)
        loss.box_format, loss.reduction = "xyxy", "none"
    elif not callable(loss):
        raise TypeError(
            f"loss must be an AlphaIoULoss, a text such as 'diou:3', or a function of two tensors "
            f"of xyxy boxes, got {type(loss).__name__}"
        )
    return loss
