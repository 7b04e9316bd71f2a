"""DETR: the detector, and its network on top of the model of transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, interpolate, linear

from alphaiou._shapes import Bool, Float, Shaped
from alphaiou.batch import Targets
from alphaiou.boxes import convert_boxes
from alphaiou.detectors.base import (
    DEVIATION,
    MEAN,
    ClassRow,
    Detections,
    Detector,
    Images,
    PaddedDetections,
    Target,
    batch_images,
    batch_targets,
    in_unit,
)
from alphaiou.detectors.detr.backbone import Norm, prepare_backbone
from alphaiou.detectors.detr.loss import DETRLoss
from alphaiou.detectors.detr.state_dict import class_rows, translated
from alphaiou.errors import AlphaIoUError, install_hint
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.numerics import upcast

if TYPE_CHECKING:
    from transformers import DetrForObjectDetection


#: The learning rate of AdamW; a pretrained backbone uses a tenth of it.
LEARNING_RATE, PRETRAINED_LR_SCALE, WEIGHT_DECAY = 1e-4, 0.1, 1e-4
#: The norm that gradients are clipped to.
CLIPPED_NORM = 0.1
#: The learning rate drops to a tenth after ``DROP_EPOCH`` of ``EPOCHS``.
EPOCHS, DROP_EPOCH = 150, 100
States = Float[Tensor, "batch places channels"]
PixelMask = Bool[Tensor, "batch height width"]


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
    """DETR with a ResNet-50, with random weights or a pretrained backbone.

    Args:
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes in ``xyxy``
            to one value per pair; GIoU with α = 3 by default.
        match_loss: The box loss in the matching cost; GIoU with α = 1 by default.
        box_weight: The weight of the box part of the loss. For other weights assign another loss,
            ``detector.loss = DETRLoss(...)``.
        queries: The number of queries, the maximum number of objects per image.
        dropout: The dropout rate of the transformer.
        encoder_layers: The number of encoder layers.
        decoder_layers: The number of decoder layers.
        backbone_weights: ``imagenet`` for those of torchvision, a file with the state dict of a
            ResNet or a Faster R-CNN, or none.
        norm: The norms of the backbone: frozen batch norms (``frozen``, which also freezes the
            first stage), trained batch norms (``batch``), or group norms (``group``). By default
            frozen with pretrained weights, else group.
        backbone_lr_scale: The learning-rate factor of the backbone; by default 0.1 with pretrained
            weights or frozen norms, else 1.

    Raises:
        WeightsError: If the weights of the backbone do not exist or do not fit.

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


class DETR(Detector):
    """DETR with torchvision's interface: losses in training, detections in evaluation.

    In training, ``model(images, targets)`` returns the losses ``class``, ``l1`` and ``box`` to sum.
    In evaluation, ``model(images)`` returns ``boxes`` (``xyxy`` in pixels of the image), ``scores``
    and ``labels`` of each image, one per query, best first. Images are a batch or a list of any
    sizes, uint8 or floats in [0, 1]; they are not resized.

    Args:
        network: The network, from images to the predictions of each query.
        loss: The training loss.
        backbone_lr_scale: The learning-rate factor of the backbone.
    """

    #: The parts that are compiled separately: the network does not depend on the loss.
    compiled_parts = ("network", "loss")
    cast_later = ("network.model.bbox_predictor.layers.2",)
    backbone_prefixes = ("network.model.model.backbone.",)
    loss_names = ("class", "l1", "box")

    def __init__(
        self, network: DETRNetwork, loss: DETRLoss, *, backbone_lr_scale: float = 1.0
    ) -> None:
        super().__init__()
        self.network, self.loss, self.backbone_lr_scale = network, loss, backbone_lr_scale
        self.least_score = 0.0

    def forward(
        self, images: Images, targets: Sequence[Target] | Targets | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Return losses in training, detections in evaluation."""
        if self.training and targets is None:
            raise ValueError("targets must be given in training; call model.eval() to detect")
        logits, boxes, scale = self._outputs(images)
        if targets is None or not self.training:
            return detections(logits[-1], boxes[-1], scale, self.least_score)
        if not isinstance(targets, Targets):
            targets = batch_targets(targets)
        losses: dict[str, Tensor] = self.loss(logits, boxes, targets, scale)
        return losses

    def _outputs(self, images: Images) -> tuple[Tensor, Tensor, Float[Tensor, "batch 4"]]:
        """Return the logits and boxes of all layers, and the scale of the boxes."""
        batch = batch_images(images, multiple=1)
        if isinstance(images, Tensor):
            mask, scale = None, scale_of_batch(images)
        else:
            sizes = [(image.shape[-2], image.shape[-1]) for image in images]
            mask, scale = pixel_mask(sizes, batch), scale_of(sizes, batch.device)
        return *self.network(batch, mask), scale

    def predictions(
        self, images: Images
    ) -> tuple[Float[Tensor, "batch queries 4"], Float[Tensor, "batch queries classes"]]:
        """Return the box of every query, ``xyxy`` in pixels, and its score for each class."""
        logits, boxes, scale = self._outputs(images)
        return in_pixels(boxes[-1], scale), upcast(logits[-1]).softmax(-1)[..., :-1]

    def detect_padded(
        self, images: Shaped[Tensor, "batch 3 height width"], *, candidates: int
    ) -> PaddedDetections:
        """Return the detections with static shapes; see the base class. There is no NMS."""
        logits, boxes, scale = self._outputs(images)
        found = ranked(logits[-1], boxes[-1], scale)
        above = found.scores >= self.least_score
        return PaddedDetections(
            found.boxes.where(above[..., None], 0.0),
            found.scores.where(above, 0.0),
            found.labels.where(above, -1),
        )

    def lr_scale(self, name: str) -> float:
        """Return the learning-rate factor of a parameter."""
        return self.backbone_lr_scale if ".backbone." in name else 1.0

    def translated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a state dict of transformers with the names of this detector."""
        return translated(tensors)

    def class_rows(self, name: str, rows: int) -> list[ClassRow] | None:
        """Return what each row of a tensor of the classifier is for."""
        return class_rows(name, rows)

    def set_least_score(self, score: float) -> None:
        """Set the minimum score of a detection."""
        self.least_score = score


def detections(
    logits: Float[Tensor, "batch queries classes_and_none"],
    boxes: Float[Tensor, "batch queries 4"],
    scale: Float[Tensor, "batch 4"],
    least_score: float = 0.0,
) -> list[Detections]:
    """Return the best class of every query, best query first, with boxes clipped to the image."""
    found = ranked(logits, boxes, scale)
    detections = [
        dict(zip(found._fields, image, strict=True)) for image in zip(*found, strict=True)
    ]
    if not least_score:
        return detections
    counts = (found.scores >= least_score).sum(1).tolist()
    return [
        {name: tensor[:count] for name, tensor in image.items()}
        for image, count in zip(detections, counts, strict=True)
    ]


def ranked(
    logits: Float[Tensor, "batch queries classes_and_none"],
    boxes: Float[Tensor, "batch queries 4"],
    scale: Float[Tensor, "batch 4"],
) -> PaddedDetections:
    """Return the best class of every query, best query first."""
    scores, labels = upcast(logits).softmax(-1)[..., :-1].max(-1)
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    corners = in_pixels(boxes, scale).gather(1, order[..., None].expand(*order.shape, 4))
    return PaddedDetections(corners, scores, labels.gather(1, order))


def in_pixels(
    boxes: Float[Tensor, "batch queries 4"], scale: Float[Tensor, "batch 4"]
) -> Float[Tensor, "batch queries 4"]:
    """Convert relative ``cxcywh`` to ``xyxy`` in pixels, clipped to the image."""
    corners = convert_boxes(upcast(boxes), "cxcywh", "xyxy") * scale[:, None]
    return corners.clamp(min=0.0).minimum(scale[:, None])


def scale_of_batch(images: Shaped[Tensor, "batch 3 height width"]) -> Float[Tensor, "batch 4"]:
    """Return width, height, width, height of images of one size, filled on their device."""
    shape = (images.shape[0], 1)
    height, width = (
        torch.full(shape, side, dtype=torch.float32, device=images.device)
        for side in images.shape[-2:]
    )
    return torch.cat([width, height, width, height], dim=1)


def scale_of(sizes: Sequence[tuple[int, int]], device: torch.device) -> Float[Tensor, "batch 4"]:
    """Return width, height, width, height of images from their heights and widths."""
    if len(set(sizes)) == 1:
        # Filled on the device, without a copy from the host.
        height, width = (
            torch.full((len(sizes), 1), float(side), device=device) for side in sizes[0]
        )
        return torch.cat([width, height, width, height], dim=1)
    return torch.tensor([(w, h, w, h) for h, w in sizes], dtype=torch.float32, device=device)


def pixel_mask(
    sizes: Sequence[tuple[int, int]], batch: Tensor
) -> Bool[Tensor, "batch height width"] | None:
    """Return which pixels of a batch are not padding, or None if there is no padding."""
    height, width = batch.shape[-2:]
    if all(size == (height, width) for size in sizes):
        return None
    limits = torch.tensor(sizes, device=batch.device)[:, :, None]
    rows = torch.arange(height, device=batch.device) < limits[:, 0]
    columns = torch.arange(width, device=batch.device) < limits[:, 1]
    return rows[:, :, None] & columns[:, None, :]


# --- network --------------------------------------------------------------------------------------


class DETRNetwork(nn.Module):
    """Predict the class and box of every query after every decoder layer.

    Args:
        model: A DETR model of transformers; its state dicts load into ``network.model``.

    Decoder layers pass on their output without normalisation, and the final norm is applied only
    before the heads, as in the published DETR and its checkpoints. With ``config.auxiliary_loss``,
    transformers normalises the output of each layer before the next one, and that of the last layer
    twice. Models with that setting are computed in the same way here.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, model: DetrForObjectDetection) -> None:
        super().__init__()
        self.model = model
        for name, numbers in (("mean", MEAN), ("deviation", DEVIATION)):
            self.register_buffer(name, torch.tensor(numbers)[:, None, None], persistent=False)

    def forward(
        self, images: Shaped[Tensor, "batch 3 height width"], mask: PixelMask | None = None
    ) -> tuple[
        Float[Tensor, "layers batch queries classes_and_none"],
        Float[Tensor, "layers batch queries 4"],
    ]:
        """Return logits (the last is "no object") and boxes ``cxcywh`` relative to the image size.

        Args:
            images: uint8, or floats in [0, 1].
            mask: The pixels that are not padding, if some images are smaller than the batch.
        """
        pixels = (in_unit(images) - self.mean) / self.deviation
        if mask is not None:
            pixels = pixels * mask[:, None]
        states = torch.stack(self._decode(*self._encode(pixels, mask)))
        logits: Tensor = self.model.class_labels_classifier(states)
        return logits, self._boxes(states)

    def _encode(
        self, pixels: Float[Tensor, "batch 3 height width"], mask: PixelMask | None
    ) -> tuple[States, Float[Tensor, "#batch places channels"], Tensor | None]:
        """Return the encoded images, their position encoding, and the attention mask."""
        model = self.model.model
        features = model.backbone.model(pixels).feature_maps[-1]
        states = model.input_projection(features).flatten(2).transpose(1, 2)
        grid = features.shape[-2:]
        inside, attended = pixels.new_ones(1, *grid), None
        if mask is not None:
            inside = interpolate(mask[None].to(pixels), size=grid)[0]
            attended = (inside > 0).flatten(1)[:, None, None]
        positions = sine_positions(inside, states.shape[-1])
        states = dropout(states, model.encoder.dropout, self.training)
        for layer in model.encoder.layers:
            update, _ = layer.self_attn(states, attended, position_embeddings=positions)
            update = dropout(update, layer.dropout, self.training)
            states = layer.self_attn_layer_norm(states + update)
            states = layer.final_layer_norm(states + layer.mlp(states))
        return states, positions, attended

    def _decode(
        self,
        memory: States,
        positions: Float[Tensor, "#batch places channels"],
        attended: Tensor | None,
    ) -> list[Float[Tensor, "batch queries channels"]]:
        """Return the states of the queries after each layer, as input to the heads."""
        decoder = self.model.model.decoder
        queries = self.model.model.query_position_embeddings.weight
        queries = queries.expand(memory.shape[0], *queries.shape)
        states, outputs = torch.zeros_like(queries), []
        for layer in decoder.layers:
            states = layer(
                states, None, positions, queries, memory, encoder_attention_mask=attended
            )
            outputs.append(decoder.layernorm(states))
            if self.model.config.auxiliary_loss:
                states = outputs[-1]
        if self.model.config.auxiliary_loss:
            outputs[-1] = decoder.layernorm(states)
        return outputs

    def _boxes(
        self, states: Float[Tensor, "layers batch queries channels"]
    ) -> Float[Tensor, "layers batch queries 4"]:
        layers: Any = self.model.bbox_predictor.layers
        last = layers[-1]
        for layer in layers[:-1]:
            states = layer(states).relu()
        # bf16 has three digits, too few for positions, so this is always fp32.
        with torch.autocast(states.device.type, enabled=False):
            return linear(upcast(states), upcast(last.weight), upcast(last.bias)).sigmoid()


def sine_positions(
    inside: Float[Tensor, "batch rows columns"], channels: int
) -> Float[Tensor, "batch places channels"]:
    """Sine position encoding of rows and columns relative to the image size.

    Args:
        inside: 1 inside the image, 0 in the padding.
        channels: The number of channels; the first half encodes the row, the second the column.

    Examples:
        >>> sine_positions(torch.ones(1, 2, 3), 8).shape
        torch.Size([1, 6, 8])
    """
    each = channels // 4
    wave_lengths = 10_000.0 ** (torch.arange(each, device=inside.device, dtype=inside.dtype) / each)
    halves = []
    for axis in (1, 2):
        steps = inside.cumsum(axis)
        whole = steps.narrow(axis, inside.shape[axis] - 1, 1)
        angles = (2 * math.pi * steps / (whole + 1e-6))[..., None] / wave_lengths
        halves.append(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2))
    return torch.cat(halves, dim=-1).flatten(1, 2)


# --- fresh weights --------------------------------------------------------------------------------


class PackageMissingError(AlphaIoUError, ImportError):
    """A package that a detector needs is missing or too old; the message names it."""


def fresh_model(
    num_classes: int, *, queries: int, dropout: float, encoder_layers: int, decoder_layers: int
) -> DetrForObjectDetection:
    """Build a DETR model of transformers with the weight initialisation of the original DETR.

    The initialisation of transformers is smaller: a standard deviation of .02 for all weights.
    """
    try:
        from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
        from transformers.models.detr.modeling_detr import DetrMLP  # noqa: F401 - as of 5.1
    except ImportError as error:
        raise PackageMissingError(
            f"DETR needs transformers 5.1 or newer, and SciPy: {install_hint('detr')}"
        ) from error
    # The signatures of both classes are incomplete.
    config = DetrConfig(  # type: ignore[call-arg]
        backbone_config=ResNetConfig(out_features=["stage4"]),  # type: ignore[call-arg]
        num_labels=num_classes,
        num_queries=queries,
        dropout=dropout,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
    )
    model = DetrForObjectDetection(config)
    set_first_weights(model)
    return model


@torch.no_grad()
def set_first_weights(model: DetrForObjectDetection) -> None:
    """Initialise all weights except the backbone as in the original DETR."""
    for part in (model.model.encoder, model.model.decoder):
        for name, parameter in part.named_parameters():
            if parameter.ndim > 1:
                # The original has one matrix for queries, keys and values: its bounds are narrower.
                joined = name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")
                nn.init.xavier_uniform_(parameter, gain=0.5**0.5 if joined else 1.0)
    model.model.query_position_embeddings.reset_parameters()
    model.model.input_projection.reset_parameters()
    for layer in (model.class_labels_classifier, *model.bbox_predictor.layers):
        layer.reset_parameters()
