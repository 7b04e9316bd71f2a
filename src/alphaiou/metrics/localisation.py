"""How much of a localisation error is due to the centre, the scale and the aspect of a box."""

from __future__ import annotations

from itertools import permutations
from math import factorial

import numpy as np

from alphaiou._shapes import Float64

#: The parts of a box that can be wrong, each by itself.
PARTS = ("centre", "scale", "aspect")
_Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
_LEAST_SIDE = 1e-9  # a box without area has no aspect


def localisation_parts(
    boxes: Float64[np.ndarray, "boxes 4"], targets: Float64[np.ndarray, "boxes 4"]
) -> Float64[np.ndarray, "boxes 3"]:
    """Split 1 − IoU of each box with its target into the shares of centre, scale and aspect.

    A box is its centre, its scale √(w·h) and its aspect w/h. The share of a part is what
    correcting it adds to the IoU, averaged over all orders in which the three can be corrected
    (the Shapley value), so that the shares add up to 1 − IoU. A share is negative where
    correcting the part alone moves the box away from its target.

    Args:
        boxes: Boxes as x y width height.
        targets: The target of each.

    Returns:
        The shares in the order of ``PARTS``.

    Examples:
        >>> target = np.array([[0.0, 0.0, 10.0, 10.0]])
        >>> localisation_parts(target * [1, 1, 0.5, 0.5] + [2.5, 2.5, 0, 0], target).round(2)
        array([[0.  , 0.75, 0.  ]])
    """
    given, wanted = _split(boxes), _split(targets)

    def iou(corrected: frozenset[int]) -> Float64[np.ndarray, " boxes"]:
        chosen = [wanted[part] if part in corrected else given[part] for part in range(len(PARTS))]
        return _iou((chosen[0], chosen[1], chosen[2]), wanted)

    subsets = {frozenset(order[:count]) for order in permutations(range(3)) for count in range(4)}
    ious = {subset: iou(subset) for subset in subsets}
    shares = np.zeros((len(boxes), len(PARTS)))
    for order in permutations(range(len(PARTS))):
        for place, part in enumerate(order):
            before, after = frozenset(order[:place]), frozenset(order[: place + 1])
            shares[:, part] += ious[after] - ious[before]
    return shares / factorial(len(PARTS))


def _split(boxes: Float64[np.ndarray, "boxes 4"]) -> _Parts:
    """The centres, scales, and square roots of the aspects of boxes."""
    sides = np.maximum(boxes[:, 2:], _LEAST_SIDE)
    scales = np.sqrt(sides[:, 0] * sides[:, 1])
    return boxes[:, :2] + boxes[:, 2:] / 2, scales, np.sqrt(sides[:, 0] / sides[:, 1])


def _iou(some: _Parts, others: _Parts) -> Float64[np.ndarray, " boxes"]:
    centres, scales, aspects = some
    other_centres, other_scales, other_aspects = others
    sides = np.stack([scales * aspects, scales / aspects], axis=1)
    other_sides = np.stack([other_scales * other_aspects, other_scales / other_aspects], axis=1)
    start = np.maximum(centres - sides / 2, other_centres - other_sides / 2)
    end = np.minimum(centres + sides / 2, other_centres + other_sides / 2)
    overlap = np.prod(np.maximum(end - start, 0.0), axis=1)
    ious: np.ndarray = overlap / (scales**2 + other_scales**2 - overlap)
    return ious
