"""The box loss of Faster R-CNN, of deltas or of decoded boxes."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss

from alphaiou._shapes import Bool, Float
from alphaiou.boxes import check_choice
from alphaiou.detectors.faster_rcnn.boxes import Weights, decode, encode
from alphaiou.losses.pair_loss import BoxLoss, PairLoss
from alphaiou.numerics import check_number, upcast

#: Losses of deltas.
DeltaLoss = Literal["l1", "smooth_l1"]
#: The point where the smooth L1 loss changes from quadratic to linear.
TURN: dict[str, float] = {"l1": 0.0, "smooth_l1": 1 / 9}
#: The default weights of the losses of deltas and of boxes.
DELTA_WEIGHT, BOX_WEIGHT = 1.0, 10.0


class RegressionLoss(nn.Module):
    """The weighted sum of the box loss over positive references.

    Args:
        box_loss: ``l1`` or ``smooth_l1`` (with beta 1/9) of the deltas; or, for decoded boxes, an
            ``AlphaIoULoss`` or a function from predicted and target boxes ``xyxy`` to one value
            per pair.
        weight: The weight; by default 1 for losses of deltas and 10 for losses of boxes.
        coder: The factors of the deltas.
    """

    def __init__(
        self, box_loss: BoxLoss | DeltaLoss, *, weight: float | None, coder: Weights
    ) -> None:
        super().__init__()
        self.turn: float | None = None
        if isinstance(box_loss, str):
            check_choice("box_loss", box_loss, get_args(DeltaLoss))
            self.turn = TURN[box_loss]
        else:
            self.box_loss = PairLoss(box_loss, box_format="xyxy")
        usual = BOX_WEIGHT if self.turn is None else DELTA_WEIGHT
        self.weight, self.coder = usual if weight is None else weight, coder
        check_number("weight of the box loss", self.weight, strict=False)

    def forward(
        self,
        deltas: Float[Tensor, "*slots 4"],
        references: Float[Tensor, "*slots 4"],
        boxes: Float[Tensor, "*slots 4"],
        positive: Bool[Tensor, "*slots"],
    ) -> Float[Tensor, ""]:
        """Return the loss of the positives, independent of the content of other slots."""
        valid = positive.reshape(-1)
        unit = torch.arange(4, device=valid.device) // 2
        # Slots without a pair become a perfect match of the box 0, 0, 1, 1.
        references, boxes = (
            part.reshape(-1, 4).where(valid[:, None], unit.to(part.dtype))
            for part in (references, boxes)
        )
        deltas = upcast(deltas).reshape(-1, 4).where(valid[:, None], 0.0)
        if self.turn is None:
            losses: Tensor = self.box_loss(decode(deltas, references, self.coder), boxes, valid)
            return self.weight * losses.sum()
        aims = encode(boxes, references, self.coder)
        return self.weight * smooth_l1_loss(deltas, aims, beta=self.turn, reduction="sum")
