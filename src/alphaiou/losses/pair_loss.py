"""Any box loss, over slots of which some hold no pair of boxes."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

from torch import Tensor, nn

from alphaiou._shapes import Bool, Float
from alphaiou.boxes import BoxFormat
from alphaiou.losses import AlphaIoULoss

Boxes = Float[Tensor, "pairs 4"]
BoxLoss = AlphaIoULoss | Callable[[Tensor, Tensor], Tensor]


def pair_by_pair(box_loss: BoxLoss, *, box_format: BoxFormat) -> PairLoss:
    """A box loss as a module of boxes in one format that gives one value a pair.

    Args:
        box_loss: An ``AlphaIoULoss`` (its own box format and reduction do not matter here), or any
            function from predicted and target boxes in this format to one value a pair.
        box_format: The format of the boxes.
    """
    if isinstance(box_loss, AlphaIoULoss):
        # A copy that shares its state: a scheduled α, a running mean.
        box_loss = copy(box_loss)
        box_loss.box_format, box_loss.reduction = box_format, "none"
    return PairLoss(box_loss)


class PairLoss(nn.Module):
    """A box loss over slots of which some hold no pair; those cost nothing."""

    def __init__(self, function: BoxLoss) -> None:
        super().__init__()
        self.function = function

    def forward(
        self, pred: Boxes, target: Boxes, valid: Bool[Tensor, " pairs"]
    ) -> Float[Tensor, " pairs"]:
        """One value a slot."""
        if isinstance(self.function, AlphaIoULoss):
            weighted: Tensor = self.function(pred, target, valid)
            return weighted
        return self.function(pred, target).where(valid, 0.0)
