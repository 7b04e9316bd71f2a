"""A quality loss in the place of the classification loss of a detector of the DETR family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy

import torch
from torch import Tensor, nn

from alphaiou.integrations._patching import new_key, note_call
from alphaiou.losses.quality import QualityLoss
from alphaiou.losses.similarity import box_iou
from alphaiou.numerics import check_number

#: Predictions and objects of each image that are matched, as indices.
Matches = Sequence[tuple[Tensor, Tensor]]


class LabelLoss(nn.Module):
    """The sum of a quality loss over all predictions and classes, times a weight.

    Args:
        loss: A ``QualityLoss`` (its reduction is ignored), or a text such as ``mal`` or ``vfl:2``.
        weight: The factor.
    """

    def __init__(self, loss: QualityLoss | str, weight: float = 1.0) -> None:
        super().__init__()
        check_number("weight", weight)
        if isinstance(loss, str):
            loss = QualityLoss.parse(loss)
        elif not isinstance(loss, QualityLoss):
            raise TypeError(
                "loss must be a QualityLoss, or a text such as 'mal' or 'vfl:2', got "
                f"{type(loss).__name__}"
            )
        loss = copy(loss)  # which shares a scheduled α
        loss.reduction = "sum"
        self.function, self.weight, self.key = loss, weight, new_key()

    def forward(self, logits: Tensor, iou: Tensor, positive: Tensor) -> Tensor:
        """The weighted sum."""
        note_call(self.key)
        if any(state.device != logits.device for state in self.function.buffers()):
            self.function.to(logits.device)
        return self.weight * self.function(logits, iou, positive)

    def __repr__(self) -> str:
        return f"{self.function!r} × {self.weight:g}" if self.weight != 1 else repr(self.function)

    def of_matches(
        self,
        logits: Tensor,
        boxes: Tensor,
        targets: Sequence[Mapping[str, Tensor]],
        indices: Matches,
        *,
        labels: str,
        counts: Tensor | None = None,
    ) -> Tensor:
        """The sum for matched predictions.

        Args:
            logits: Scores (images, predictions, classes).
            boxes: Predicted boxes (images, predictions, 4), ``cxcywh``.
            targets: The objects of each image: ``boxes``, and their classes.
            indices: Which predictions and objects of each image are matched.
            labels: The name of the classes in the targets.
            counts: Which matches count; all by default.
        """
        image = torch.cat([torch.full_like(source, i) for i, (source, _) in enumerate(indices)])
        source = torch.cat([source for source, _ in indices])
        found, classes = (
            torch.cat(
                [target[name][chosen] for target, (_, chosen) in zip(targets, indices, strict=True)]
            )
            for name in ("boxes", labels)
        )
        pairs = boxes.detach()[image, source], found
        matched = image, source, classes
        iou = torch.zeros_like(logits, dtype=torch.float32)
        positive = torch.zeros_like(logits, dtype=torch.bool)
        iou[matched] = box_iou(*pairs, box_format="cxcywh").to(iou)
        positive[matched] = True if counts is None else counts.bool()
        loss: Tensor = self(logits, iou, positive)
        return loss
