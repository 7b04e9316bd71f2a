"""State dicts of torchvision's Faster R-CNN, and the rows of classes in the box predictor."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from alphaiou.detectors.base import ClassRow

#: The names in files of torchvision before 0.13, such as its published weights, and those of today.
_EARLIER = (
    (r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d+)\.(weight|bias)", r"\1.0.\2"),
    (r"(rpn\.head\.conv)\.(weight|bias)", r"\1.0.0.\2"),
)
#: The rows per class of the tensors of the box predictor; the first class is the background.
_ROWS = {"cls_score": 1, "bbox_pred": 4}


def translated(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict of torchvision with the names of this detector.

    Examples:
        >>> list(translated({"rpn.head.conv.weight": Tensor()}))
        ['rpn.head.conv.0.0.weight']
    """
    renamed = {}
    for name, tensor in tensors.items():
        new = name
        for pattern, today in _EARLIER:
            if re.fullmatch(pattern, name):
                new = re.sub(pattern, today, name)
        renamed[new] = tensor
    return renamed


def class_rows(name: str, rows: int) -> list[ClassRow] | None:
    """Return what each row of a tensor of the box predictor is for."""
    match = re.fullmatch(r"roi_heads\.box_predictor\.(\w+)\.(?:weight|bias)", name)
    if match is None:
        return None
    each = _ROWS[match[1]]
    return [(row % each, row // each - 1 if row >= each else None) for row in range(rows)]
