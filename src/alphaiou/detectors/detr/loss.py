"""The loss of DETR: one query is matched to each object, the others learn "no object"."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float, Int
from alphaiou.batch import Targets
from alphaiou.boxes import convert_boxes
from alphaiou.detectors.detr.targets import ImageTargets, targets_by_image
from alphaiou.detectors.ops.assignment import assign
from alphaiou.detectors.yolov5.loss import unchanged
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.module import check_stateless
from alphaiou.losses.pair_loss import BoxLoss, PairLoss
from alphaiou.numerics import check_number, upcast

Matches = Int[Tensor, "layers batch places"]


class QueryPredictions(NamedTuple):
    """The predictions of the queries of each layer.

    Attributes:
        logits: The logits of the classes and, last, of "no object".
        shares: Boxes ``cxcywh``, relative to the image size.
        boxes: The same boxes, ``xyxy`` in pixels.
    """

    logits: Float[Tensor, "layers batch queries classes_and_none"]
    shares: Float[Tensor, "layers batch queries 4"]
    boxes: Float[Tensor, "layers batch queries 4"]


class DETRLoss(nn.Module):
    """The three weighted parts of the loss, summed over the decoder layers.

    - class: the cross-entropy of every query towards the class of its object or "no object",
      averaged over the queries of the batch, with a lower weight for queries without an object;
    - l1: the L1 distance of matched boxes in ``cxcywh``, relative to the image size;
    - box: the box loss of the matched pairs, in pixels. (Relative coordinates would change aspect
      ratios and distances unless the image is square.)

    The last two are summed over the pairs and divided by the number of boxes of the batch. Each
    layer is matched separately, minimising the sum of class, l1 and box costs.

    If an image has more boxes than queries, only the first boxes are used, one per query.

    Args:
        box_loss: An ``AlphaIoULoss`` (its own box format and reduction do not matter here), or
            any function from predicted and target boxes in ``xyxy`` to one value per pair.
        match_loss: The box loss in the matching cost, without a running mean; by default GIoU with
            α = 1.
        class_weight: The weight of the class part.
        no_object_weight: The weight of queries without an object in the class part.
        l1_weight: The weight of the l1 part.
        box_weight: The weight of the box part.
        match_class_weight: The weight of the class probability in the matching cost.
        match_l1_weight: The weight of the l1 distance in the matching cost.
        match_box_weight: The weight of ``match_loss`` in the matching cost.
        auxiliary: Whether to supervise all decoder layers, or the last one only.
    """

    def __init__(
        self,
        box_loss: BoxLoss,
        *,
        match_loss: BoxLoss | None = None,
        class_weight: float = 1.0,
        no_object_weight: float = 0.1,
        l1_weight: float = 5.0,
        box_weight: float = 2.0,
        match_class_weight: float = 1.0,
        match_l1_weight: float = 5.0,
        match_box_weight: float = 2.0,
        auxiliary: bool = True,
    ) -> None:
        super().__init__()
        self.weights = {"class": class_weight, "l1": l1_weight, "box": box_weight}
        self.match_weights = {
            "class": match_class_weight,
            "l1": match_l1_weight,
            "box": match_box_weight,
        }
        for part in self.weights:
            check_number(f"{part}_weight", self.weights[part], strict=False)
            check_number(f"match_{part}_weight", self.match_weights[part], strict=False)
        check_number("no_object_weight", no_object_weight)
        self.no_object_weight, self.auxiliary = no_object_weight, auxiliary
        self.box_loss = PairLoss(box_loss, box_format="xyxy")
        match_loss = AlphaIoULoss("giou", 1.0) if match_loss is None else match_loss
        check_stateless("match_loss", match_loss)
        self.match_loss = PairLoss(match_loss, box_format="xyxy")
        #: With several processes: averages the number of boxes, so that all boxes weigh equally.
        self.mean_over_processes: Callable[[Tensor], Tensor] = unchanged

    def forward(
        self,
        logits: Float[Tensor, "layers batch queries classes_and_none"],
        boxes: Float[Tensor, "layers batch queries 4"],
        targets: Targets,
        scale: Float[Tensor, "batch 4"],
    ) -> dict[str, Float[Tensor, ""]]:
        """Return the parts ``class``, ``l1`` and ``box``, whose sum is the loss.

        Args:
            logits: The logits of the classes and, last, of "no object", per layer and query.
            boxes: ``cxcywh``, relative to the image size.
            targets: The boxes of the batch, in pixels.
            scale: Width, height, width, height of each image.
        """
        if not self.auxiliary:
            logits, boxes = logits[-1:], boxes[-1:]
        logits, boxes = upcast(logits), upcast(boxes)
        scale = scale.to(boxes)
        objects = targets_by_image(targets, scale, most=logits.shape[2])
        predictions = QueryPredictions(
            logits, boxes, convert_boxes(boxes, "cxcywh", "xyxy") * scale[:, None]
        )
        matched = self.match(predictions, objects)
        count = self.mean_over_processes(objects.total).clamp(min=1.0)
        parts = {
            "class": self._classes(logits, matched, objects),
            "l1": _l1(predictions, matched, objects) / count,
            "box": self._boxes(predictions, matched, objects) / count,
        }
        return {name: self.weights[name] * part for name, part in parts.items()}

    @torch.no_grad()
    def match(self, predictions: QueryPredictions, objects: ImageTargets) -> Matches:
        """Return the query of each object in each layer; 0 for slots without an object."""
        layers, batch, queries = predictions.logits.shape[:3]
        shape = (layers, batch, objects.valid.shape[1], queries)
        labels = objects.labels[None, :, :, None].expand(shape)
        probability = predictions.logits.softmax(-1).transpose(2, 3).gather(2, labels)
        apart = (predictions.shares[:, :, None] - objects.shares[:, :, None]).abs().sum(-1)
        losses: Tensor = self.match_loss(
            predictions.boxes[:, :, None].expand(*shape, 4).reshape(-1, 4),
            objects.boxes[:, :, None].expand(*shape, 4).reshape(-1, 4),
            objects.valid[:, :, None].expand(shape).reshape(-1),
        )
        weights = self.match_weights
        cost = weights["l1"] * apart + weights["box"] * losses.view(shape)
        cost = cost - weights["class"] * probability
        counts = objects.valid.sum(1).repeat(layers)
        return assign(cost.flatten(0, 1), counts).view(shape[:3])

    def _classes(
        self, logits: Tensor, matched: Matches, objects: ImageTargets
    ) -> Float[Tensor, ""]:
        layers, batch, queries, classes_and_none = logits.shape
        none = classes_and_none - 1
        # Slots without an object write to an extra query, which is removed.
        written = matched.where(objects.valid, queries)
        aims = torch.full((layers, batch, queries + 1), none, device=logits.device)
        aims = aims.scatter(2, written, objects.labels.expand_as(written))[..., :queries]
        losses = -logits.log_softmax(-1).gather(-1, aims[..., None]).squeeze(-1)
        weights = torch.where(aims == none, self.no_object_weight, 1.0).to(losses.dtype)
        return ((losses * weights).sum((1, 2)) / weights.sum((1, 2))).sum()

    def _boxes(
        self, predictions: QueryPredictions, matched: Matches, objects: ImageTargets
    ) -> Float[Tensor, ""]:
        valid = objects.valid.expand_as(matched)
        # Slots without an object are replaced by equal points in predictions and targets.
        pred = _of_queries(predictions.boxes, matched).where(valid[..., None], 1.0)
        target = objects.boxes.expand_as(pred)
        losses: Tensor = self.box_loss(
            pred.reshape(-1, 4), target.reshape(-1, 4), valid.reshape(-1)
        )
        return losses.sum()


def _l1(
    predictions: QueryPredictions, matched: Matches, objects: ImageTargets
) -> Float[Tensor, ""]:
    distances = (_of_queries(predictions.shares, matched) - objects.shares).abs().sum(-1)
    return distances.where(objects.valid, 0.0).sum()


def _of_queries(
    boxes: Float[Tensor, "layers batch queries 4"], matched: Matches
) -> Float[Tensor, "layers batch places 4"]:
    return boxes.gather(2, matched[..., None].expand(*matched.shape, 4))
