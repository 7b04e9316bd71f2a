"""State dicts of the DETR of transformers, and the rows of classes in the classifier."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from alphaiou.detectors.base import ClassRow
from alphaiou.detectors.detr.backbone import name_in_transformers

_BACKBONE = "model.backbone.model."
#: The names in files of transformers, and those of its models as of 5.1.
_EARLIER = (
    (r"^model\.backbone\.conv_encoder\.model\.", _BACKBONE),
    (r"\.out_proj\.", ".o_proj."),
    (r"(\.layers\.\d+)\.(fc\d)\.", r"\1.mlp.\2."),
)


def translated(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict of transformers with the names of this detector.

    The backbone may have the names of transformers, or those of torchvision and timm as in the
    published weights.

    Examples:
        >>> list(translated({"model.encoder.layers.0.fc1.bias": Tensor()}))
        ['network.model.model.encoder.layers.0.mlp.fc1.bias']
        >>> list(translated({"model.backbone.conv_encoder.model.bn1.bias": Tensor()}))
        ['network.model.model.backbone.model.embedder.embedder.normalization.bias']
    """
    renamed = {}
    for name, tensor in tensors.items():
        new = name
        for pattern, today in _EARLIER:
            new = re.sub(pattern, today, new)
        part = new.removeprefix(_BACKBONE)
        if part != new and re.match(r"(conv1|bn1|layer\d)\.", part):
            new = _BACKBONE + name_in_transformers(part)
        renamed[f"network.model.{new}"] = tensor
    return renamed


def class_rows(name: str, rows: int) -> list[ClassRow] | None:
    """Return what each row of a tensor of the classifier is for; the last is "no object"."""
    if not name.startswith("network.model.class_labels_classifier."):
        return None
    return [(0, row if row < rows - 1 else None) for row in range(rows)]
