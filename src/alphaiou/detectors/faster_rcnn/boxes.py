"""Box operations of Faster R-CNN: encode, decode, clip, IoU."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from alphaiou._shapes import Float

#: The weights of the deltas, of positions and of sizes.
Weights = tuple[float, float]
RPN_WEIGHTS: Weights = (1.0, 1.0)
ROI_WEIGHTS: Weights = (10.0, 5.0)
#: The logarithm of the maximum growth of a box.
MOST_GROWTH = math.log(1000 / 16)


def encode(
    boxes: Float[Tensor, "*batch 4"], references: Float[Tensor, "*#batch 4"], weights: Weights
) -> Float[Tensor, "*batch 4"]:
    """Encode boxes as deltas from references: shifts in units of the sides, logarithms of growth.

    Args:
        boxes: ``xyxy``.
        references: ``xyxy``; anchors or proposals.
        weights: The factors of the shifts and of the growth.
    """
    centre, sides = _centre_and_sides(boxes)
    own_centre, own_sides = _centre_and_sides(references)
    moves, growth = (centre - own_centre) / own_sides, (sides / own_sides).log()
    return torch.cat([weights[0] * moves, weights[1] * growth], dim=-1)


def decode(
    deltas: Float[Tensor, "*batch 4"], references: Float[Tensor, "*#batch 4"], weights: Weights
) -> Float[Tensor, "*batch 4"]:
    """Decode deltas to boxes ``xyxy``; growth is limited to 62.5.

    Examples:
        >>> anchor = torch.tensor([[0.0, 0.0, 4.0, 4.0]])
        >>> decode(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), anchor, RPN_WEIGHTS)
        tensor([[4., 0., 8., 4.]])
    """
    own_centre, own_sides = _centre_and_sides(references)
    centre = deltas[..., :2] / weights[0] * own_sides + own_centre
    half = 0.5 * (deltas[..., 2:] / weights[1]).clamp(max=MOST_GROWTH).exp() * own_sides
    return torch.cat([centre - half, centre + half], dim=-1)


def clip(
    boxes: Float[Tensor, "*batch 4"], frames: Float[Tensor, "*#batch 4"]
) -> Float[Tensor, "*batch 4"]:
    """Clip boxes to images, given as width, height, width, height."""
    return boxes.clamp(min=0).minimum(frames)


def least_side(boxes: Float[Tensor, "*batch 4"]) -> Float[Tensor, "*batch"]:
    """Return the shorter side of each box."""
    return (boxes[..., 2:] - boxes[..., :2]).amin(-1)


def iou_matrix(
    boxes: Float[Tensor, "batch n 4"], others: Float[Tensor, "#batch m 4"]
) -> Float[Tensor, "batch n m"]:
    """Return the pairwise IoU of the boxes of each image, 0 for empty boxes."""
    x1, y1, x2, y2 = boxes[:, :, None].unbind(-1)
    other_x1, other_y1, other_x2, other_y2 = others[:, None].unbind(-1)
    wide = (torch.minimum(x2, other_x2) - torch.maximum(x1, other_x1)).clamp(min=0)
    high = (torch.minimum(y2, other_y2) - torch.maximum(y1, other_y1)).clamp(min=0)
    common = wide * high
    areas = (x2 - x1) * (y2 - y1) + (other_x2 - other_x1) * (other_y2 - other_y1)
    return common / (areas - common).clamp(min=torch.finfo(common.dtype).tiny)


def _centre_and_sides(boxes: Tensor) -> tuple[Tensor, Tensor]:
    low, high = boxes[..., :2], boxes[..., 2:]
    sides = high - low
    return low + 0.5 * sides, sides
