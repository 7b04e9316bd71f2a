"""The loss of YOLOv5: boxes, objectness, classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from alphaiou._shapes import Float
from alphaiou.batch import Targets
from alphaiou.boxes import check_choice
from alphaiou.detectors.yolov5.targets import assign
from alphaiou.losses.pair_loss import Boxes, BoxLoss, PairLoss
from alphaiou.losses.similarity import box_iou
from alphaiou.numerics import check_number, upcast

Objectness = Literal["iou", "similarity"]
#: Raw predictions of one layer: for each cell and anchor x, y, w, h, objectness and the classes.
Predictions = Float[Tensor, "batch _rows _columns anchors channels"]

#: The objectness weight of each layer, from the finest to the coarsest: those of the paper's code.
#: YOLOv5 v4.0 has 0.3 in place of 0.4.
BALANCE = (4.0, 1.0, 0.4)


class YOLOv5Loss(nn.Module):
    """The three parts of the loss, each with its gain, summed over layers, times the batch size.

    - box: the mean of the box loss over the positives of a layer;
    - objectness: binary cross-entropy of every prediction, towards the quality of its box;
    - class: binary cross-entropy of each class, over the positives.

    Args:
        num_classes: The number of classes.
        box_loss: An ``AlphaIoULoss`` (its own box format and reduction do not matter here), or
            any function from predicted and target boxes in ``cxcywh`` to one value per pair.
        box_gain: The gain of the box part.
        objectness_gain: The gain of the objectness part for images of 640 pixels; it is scaled with
            the image area.
        class_gain: The gain of the class part for 80 classes; it is scaled with their number.
        objectness: The objectness target of positives: ``iou``, the plain IoU of the box, or
            ``similarity``, one minus the box loss, as in the published code of the paper.
        objectness_alpha: The power of that target; 0 teaches 1 for every positive.
    """

    gains: Float[Tensor, " parts"]

    def __init__(
        self,
        num_classes: int,
        box_loss: BoxLoss,
        *,
        box_gain: float = 0.05,
        objectness_gain: float = 1.0,
        class_gain: float = 0.5,
        objectness: Objectness = "iou",
        objectness_alpha: float = 1.0,
    ) -> None:
        super().__init__()
        check_choice("objectness", objectness, get_args(Objectness))
        check_number("box_gain", box_gain)
        check_number("objectness_gain", objectness_gain)
        check_number("class_gain", class_gain)
        check_number("objectness_alpha", objectness_alpha, strict=False)
        self.num_classes, self.objectness = num_classes, objectness
        self.objectness_alpha = objectness_alpha
        # In a tensor, so that compiled code is reused for other gains.
        gains = torch.tensor([box_gain, objectness_gain, class_gain * num_classes / 80])
        self.register_buffer("gains", gains, persistent=False)
        self.box_loss = PairLoss(box_loss, box_format="cxcywh")
        #: With several processes: averages the number of positives, so that all weigh equally.
        self.mean_over_processes: Callable[[Tensor], Tensor] = unchanged

    def forward(
        self,
        outputs: Sequence[Predictions],
        targets: Targets,
        anchors: Float[Tensor, "layers anchors 2"],
        strides: Sequence[int],
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the parts ``box``, ``objectness`` and ``class``, whose sum is the loss."""
        layers = zip(outputs, anchors, strides, BALANCE, strict=True)
        parts = torch.stack([self._layer(*layer, targets) for layer in layers]).sum(0)
        batch, rows, columns = outputs[0].shape[:3]
        image_size = strides[0] * max(rows, columns)
        box, objectness, classes = (batch * self.gains * parts).unbind()
        return {"box": box, "objectness": (image_size / 640) ** 2 * objectness, "class": classes}

    def _layer(
        self,
        output: Predictions,
        anchors: Float[Tensor, "anchors 2"],
        stride: int,
        balance: float,
        targets: Targets,
    ) -> Float[Tensor, " 3"]:
        """Return the three parts of one layer."""
        rows, columns = output.shape[1:3]
        positives = assign(targets, anchors, stride=stride, grid=(rows, columns))
        # Cast all predictions to fp32 before indexing: half-precision gradients cannot be summed
        # by the compiler's own kernels.
        valid, every = positives.valid, upcast(output.flatten(0, 3))
        count = self.mean_over_processes(valid.sum(dtype=torch.float32))
        count = count.where(count > 0, 1.0)
        chosen = every.index_select(0, positives.predictions)

        # Slots without a pair may hold NaN: replace them by a valid box.
        pred = decode(chosen[:, :4], positives.anchors.to(chosen.dtype)).where(valid[:, None], 1.0)
        boxes = positives.boxes.to(pred).where(valid[:, None], 1.0)
        losses = self.box_loss(pred, boxes, valid)
        quality = self._quality(pred.detach(), boxes, losses.detach()).where(valid, 0.0)

        # Of two boxes assigned to one prediction the better one counts; in YOLOv5 it is the last.
        confidence = every[:, 4]
        aims = torch.zeros_like(confidence).scatter_reduce(
            0, positives.predictions, quality.to(confidence), "amax"
        )
        objectness = binary_cross_entropy_with_logits(confidence, aims)
        return torch.stack(
            [
                losses.sum() / count,
                balance * objectness,
                self._classes(chosen[:, 5:], positives.labels, valid) / count,
            ]
        )

    def _quality(self, pred: Boxes, target: Boxes, losses: Float[Tensor, " pairs"]) -> Tensor:
        if self.objectness == "similarity":
            quality = 1.0 - losses
        else:
            quality = box_iou(pred, target, box_format="cxcywh")
        quality = quality.clamp(0.0, 1.0)
        return quality if self.objectness_alpha == 1 else quality.pow(self.objectness_alpha)

    def _classes(
        self, logits: Float[Tensor, "pairs classes"], labels: Tensor, valid: Tensor
    ) -> Float[Tensor, ""]:
        """Return the class cross-entropy summed over positives; 0 if there is only one class."""
        if self.num_classes == 1:
            return logits.sum() * 0.0
        classes = torch.arange(self.num_classes, device=labels.device)
        aims = (labels[:, None] == classes).to(logits.dtype)
        each = binary_cross_entropy_with_logits(logits, aims, reduction="none").mean(1)
        return each.where(valid, 0.0).sum()


def decode(
    raw: Float[Tensor, "*pairs 4"], anchors: Float[Tensor, "*#pairs 2"]
) -> Float[Tensor, "*pairs 4"]:
    """Decode boxes ``cxcywh`` in cells, relative to the corner of their cell; anchors in cells."""
    doubled = 2.0 * raw.sigmoid()
    return torch.cat([doubled[..., :2] - 0.5, doubled[..., 2:].square() * anchors], dim=-1)


def unchanged(count: Tensor) -> Tensor:
    """Return the mean over processes for a single process."""
    return count
