"""DETR with a ResNet-50."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from alphaiou.boxes import convert_boxes
from alphaiou.detectors.contract import (
    Detections,
    Detector,
    Images,
    Target,
    TargetBatch,
    batch_images,
    batch_targets,
)
from alphaiou.detectors.detr_backbone import Norm, prepare_backbone
from alphaiou.detectors.detr_loss import DETRLoss
from alphaiou.detectors.detr_model import fresh_model
from alphaiou.detectors.detr_network import DETRNetwork
from alphaiou.detectors.pair_loss import BoxLoss
from alphaiou.losses import AlphaIoULoss
from alphaiou.numerics import upcast

#: Of AdamW; the learning rate of a backbone that has been trained before is a tenth of it.
LEARNING_RATE, PRETRAINED_LR_SCALE, WEIGHT_DECAY = 1e-4, 0.1, 1e-4
#: The norm that gradients are clipped to.
CLIPPED_NORM = 0.1
#: The learning rate drops to a tenth after ``DROP_EPOCH`` of ``EPOCHS``.
EPOCHS, DROP_EPOCH = 150, 100


class DETR(Detector):
    """The detector, torchvision's way: losses in training, detections in evaluation.

    ``model(images, targets)`` in training gives the losses ``class``, ``l1`` and ``box``, to be
    summed; ``model(images)`` in evaluation gives ``boxes`` (``xyxy`` in pixels of the image),
    ``scores`` and ``labels`` of each image, one a query, best first. Images are a batch, or a list
    of any sizes, of bytes or of numbers from 0 to 1; they are not resized.

    Args:
        network: Images to what each query finds.
        loss: The loss in training.
        backbone_lr_scale: The share of the learning rate that the backbone learns with.
    """

    #: The parts that are worth compiling by themselves: the network does not depend on the loss.
    compiled_parts = ("network", "loss")
    cast_later = ("network.model.bbox_predictor.layers.2",)
    loss_names = ("class", "l1", "box")

    def __init__(
        self, network: DETRNetwork, loss: DETRLoss, *, backbone_lr_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.network, self.loss, self.backbone_lr_scale = network, loss, backbone_lr_scale
        self.least_score = 0.0

    def forward(
        self, images: Images, targets: Sequence[Target] | TargetBatch | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Losses in training, detections in evaluation."""
        if self.training and targets is None:
            raise ValueError("targets must be given in training; call model.eval() to detect")
        batch = batch_images(images, multiple=1)
        sizes = [(image.shape[-2], image.shape[-1]) for image in images]
        logits, boxes = self.network(batch, pixel_mask(sizes, batch))
        scale = scale_of(sizes, batch.device)
        if targets is None or not self.training:
            return detections(logits[-1], boxes[-1], scale, self.least_score)
        if not isinstance(targets, TargetBatch):
            targets = batch_targets(targets)
        losses: dict[str, Tensor] = self.loss(logits, boxes, targets, scale)
        return losses

    def lr_scale(self, name: str) -> float:
        """The share of the learning rate that a parameter learns with."""
        return self.backbone_lr_scale if ".backbone." in name else 1.0

    def set_least_score(self, score: float) -> None:
        """Detect nothing that has a lower score."""
        self.least_score = score


def detections(
    logits: Float[Tensor, "batch queries classes_and_none"],
    boxes: Float[Tensor, "batch queries 4"],
    scale: Float[Tensor, "batch 4"],
    least_score: float = 0.0,
) -> list[Detections]:
    """The best class of every query, best query first; boxes end where the image does."""
    scores, labels = upcast(logits).softmax(-1)[..., :-1].max(-1)
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    labels = labels.gather(1, order)
    corners = convert_boxes(upcast(boxes), "cxcywh", "xyxy") * scale[:, None]
    corners = corners.clamp(min=0.0).minimum(scale[:, None])
    corners = corners.gather(1, order[..., None].expand(*order.shape, 4))
    names = ("boxes", "scores", "labels")
    found = [
        dict(zip(names, one, strict=True)) for one in zip(corners, scores, labels, strict=True)
    ]
    if not least_score:
        return found
    counts = (scores >= least_score).sum(1).tolist()
    return [
        {name: tensor[:count] for name, tensor in one.items()}
        for one, count in zip(found, counts, strict=True)
    ]


def scale_of(sizes: Sequence[tuple[int, int]], device: torch.device) -> Float[Tensor, "batch 4"]:
    """Width, height, width, height of images, from their heights and widths."""
    if len(set(sizes)) == 1:
        # Filled on the device: nothing to copy there.
        height, width = (
            torch.full((len(sizes), 1), float(side), device=device) for side in sizes[0]
        )
        return torch.cat([width, height, width, height], dim=1)
    return torch.tensor([(w, h, w, h) for h, w in sizes], dtype=torch.float32, device=device)


def pixel_mask(
    sizes: Sequence[tuple[int, int]], batch: Tensor
) -> Bool[Tensor, "batch height width"] | None:
    """Which pixels of a batch are images; None if all are."""
    height, width = batch.shape[-2:]
    if all(size == (height, width) for size in sizes):
        return None
    limits = torch.tensor(sizes, device=batch.device)[:, :, None]
    rows = torch.arange(height, device=batch.device) < limits[:, 0]
    columns = torch.arange(width, device=batch.device) < limits[:, 1]
    return rows[:, :, None] & columns[:, None, :]


def detr(
    num_classes: int,
    box_loss: BoxLoss | None = None,
    *,
    match_loss: BoxLoss | None = None,
    box_weight: float = 2.0,
    queries: int = 100,
    dropout: float = 0.1,
    encoder_layers: int = 6,
    decoder_layers: int = 6,
    backbone_weights: Literal["imagenet"] | Path | None = None,
    norm: Norm | None = None,
    backbone_lr_scale: float | None = None,
) -> DETR:
    """DETR with a ResNet-50 and fresh weights, all but those that the backbone is given.

    Args:
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes in ``xyxy``
            to one value a pair; GIoU with α = 3 unless given.
        match_loss: The same for the cost of a match; GIoU with α = 1 unless given.
        box_weight: How much the box part of the loss counts; for other weights give the detector
            another loss, ``detector.loss = DETRLoss(...)``.
        queries: The most objects of an image.
        dropout: The share of numbers that the transformer drops in training.
        encoder_layers: Layers of the encoder.
        decoder_layers: Layers of the decoder.
        backbone_weights: ``imagenet`` for those of torchvision, a file of the like or of a Faster
            R-CNN, or none.
        norm: Batch norms of the backbone that do not learn (``frozen``; then its first stage does
            not either), that do (``batch``), or group norms (``group``). Unless given: frozen ones
            with weights, else group norms, as what is fresh has to learn.
        backbone_lr_scale: The share of the learning rate that the backbone learns with; 0.1 for
            one that has learnt before (with weights or frozen norms), else 1, unless given.

    Raises:
        WeightsError: The weights of the backbone are not there or do not fit.

    Examples:
        >>> detector = detr(20, AlphaIoULoss("giou", alpha=3.0))
        >>> len(detector.eval()(torch.zeros(1, 3, 64, 64))[0]["scores"])
        100
    """
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    norm = norm or ("group" if backbone_weights is None else "frozen")
    if backbone_lr_scale is None:
        fresh = backbone_weights is None and norm != "frozen"
        backbone_lr_scale = 1.0 if fresh else PRETRAINED_LR_SCALE
    model = fresh_model(
        num_classes,
        queries=queries,
        dropout=dropout,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
    )
    prepare_backbone(model.model.backbone.model, weights=backbone_weights, norm=norm)
    loss = DETRLoss(
        AlphaIoULoss("giou", 3.0) if box_loss is None else box_loss,
        match_loss=match_loss,
        box_weight=box_weight,
    )
    return DETR(DETRNetwork(model), loss, backbone_lr_scale=backbone_lr_scale)
