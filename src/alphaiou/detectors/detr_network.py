"""DETR's network: the modules of transformers, called so that nothing waits for the host.

Its own ``forward`` asks in every layer of the encoder whether all numbers are finite, which stops
the device, and keeps the last position embedding, which a recorded step would go on reading after
it is gone. Weights and results are the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import dropout, interpolate, linear

from alphaiou.detectors.contract import in_unit
from alphaiou.numerics import upcast

if TYPE_CHECKING:
    from transformers import DetrForObjectDetection

#: Mean and standard deviation of the colours of ImageNet.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

States = Float[Tensor, "batch places channels"]
PixelMask = Bool[Tensor, "batch height width"]


class DETRNetwork(nn.Module):
    """Images to the classes and boxes of every query in every layer of the decoder.

    Args:
        model: Where the weights are; a state dict of such a model loads into ``network.model``.

    A decoder's layer hands its output on as it is, and the norm before the heads is theirs alone,
    as DETR was published and as its checkpoints expect. transformers does otherwise where
    ``config.auxiliary_loss`` is set: each layer's output is normalised before the next one, and the
    last one's twice. Models with that setting are computed that way here too.
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
        """Logits of each class and, last, of none; boxes ``cxcywh`` as shares of the image.

        Args:
            images: Bytes, or numbers from 0 to 1.
            mask: The pixels that are images, where some are smaller than the batch.
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
        """What the encoder makes of the images, where that is, and where it is to be looked at."""
        model = self.model.model
        features = model.backbone.model(pixels).feature_maps[-1]
        states = model.input_projection(features).flatten(2).transpose(1, 2)
        grid = features.shape[-2:]
        there, attended = pixels.new_ones(1, *grid), None
        if mask is not None:
            there = interpolate(mask[None].to(pixels), size=grid)[0]
            attended = (there > 0).flatten(1)[:, None, None]
        positions = sine_positions(there, states.shape[-1])
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
        """The states of the queries after each layer, as the heads take them."""
        decoder = self.model.model.decoder
        queries = self.model.model.query_position_embeddings.weight
        queries = queries.expand(len(memory), *queries.shape)
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
        # bf16 has three digits: whatever the precision of the network, places need more.
        with torch.autocast(states.device.type, enabled=False):
            return linear(upcast(states), upcast(last.weight), upcast(last.bias)).sigmoid()


def sine_positions(
    there: Float[Tensor, "batch rows columns"], channels: int
) -> Float[Tensor, "batch places channels"]:
    """Sines and cosines of row and column as shares of the image, of many wave lengths.

    Args:
        there: 1 where there is an image, 0 beside it.
        channels: The first half is of the row, the second of the column.

    Examples:
        >>> sine_positions(torch.ones(1, 2, 3), 8).shape
        torch.Size([1, 6, 8])
    """
    each = channels // 4
    wave_lengths = 10_000.0 ** (torch.arange(each, device=there.device, dtype=there.dtype) / each)
    halves = []
    for axis in (1, 2):
        steps = there.cumsum(axis)
        whole = steps.narrow(axis, there.shape[axis] - 1, 1)
        angles = (2 * math.pi * steps / (whole + 1e-6))[..., None] / wave_lengths
        halves.append(torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2))
    return torch.cat(halves, dim=-1).flatten(1, 2)
