"""The model of transformers that DETR's weights live in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from alphaiou.errors import AlphaIoUError

if TYPE_CHECKING:
    from transformers import DetrForObjectDetection


class PackageMissingError(AlphaIoUError, ImportError):
    """A package that a detector needs is not there, or too old; the message says which."""


def fresh_model(
    num_classes: int, *, queries: int, dropout: float, encoder_layers: int, decoder_layers: int
) -> DetrForObjectDetection:
    """A model of transformers with a ResNet-50 and the first weights that DETR was published with.

    Those of transformers are smaller: all of a spread of .02.
    """
    try:
        from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
        from transformers.models.detr.modeling_detr import DetrMLP  # noqa: F401 - as of 5.1
    except ImportError as error:
        raise PackageMissingError(
            "DETR needs transformers 5.1 or newer, and SciPy: pip install 'alphaiou[detr]'"
        ) from error
    # Both classes take more than they say.
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
    """Draw the weights of all but the backbone as DETR was published."""
    for part in (model.model.encoder, model.model.decoder):
        for name, parameter in part.named_parameters():
            if parameter.ndim > 1:
                # One matrix makes queries, keys and values there: its bounds are narrower.
                joined = name.split(".")[-2] in ("q_proj", "k_proj", "v_proj")
                nn.init.xavier_uniform_(parameter, gain=0.5**0.5 if joined else 1.0)
    model.model.query_position_embeddings.reset_parameters()
    model.model.input_projection.reset_parameters()
    for layer in (model.class_labels_classifier, *model.bbox_predictor.layers):
        layer.reset_parameters()
