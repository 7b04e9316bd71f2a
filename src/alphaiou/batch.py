"""A batch for training: images, and their boxes in a number of slots that never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float32, Int64, UInt8


class Slots(NamedTuple):
    """The boxes of a batch in a fixed number of slots, those that hold a box first.

    Attributes:
        boxes: ``xyxy``, 0 in empty slots.
        labels: The class of each, 0 in empty slots.
        image_of_box: The image of each, 0 in empty slots.
        valid: Whether a slot holds a box.
        lost: How many boxes found no slot.
    """

    boxes: Float32[Tensor, "slots 4"]
    labels: Int64[Tensor, " slots"]
    image_of_box: Int64[Tensor, " slots"]
    valid: Bool[Tensor, " slots"]
    lost: Int64[Tensor, ""]


@dataclass(frozen=True, eq=False)
class Batch:
    """Images of one size, and the boxes of all of them.

    Attributes:
        images: RGB, 0 to 255. The channels of a pixel lie beside each other, so that a cast to a
            floating type gives the ``channels_last`` format.
        boxes: ``xyxy`` in pixels of the images, 0 in empty slots.
        labels: The class of each box.
        image_of_box: The position of the image of each box, ascending.
        valid: Whether a slot holds a box; those that do come first.
        lost: How many boxes found no slot. Anything but 0 means that there are too few slots.
    """

    images: UInt8[Tensor, "batch 3 side side"]
    boxes: Float32[Tensor, "slots 4"]
    labels: Int64[Tensor, " slots"]
    image_of_box: Int64[Tensor, " slots"]
    valid: Bool[Tensor, " slots"]
    lost: Int64[Tensor, ""]


def compact(
    boxes: Float32[Tensor, "batch most 4"],
    labels: Int64[Tensor, "batch most"],
    valid: Bool[Tensor, "batch most"],
    slots: int,
) -> Slots:
    """Move the valid boxes of all images, in their order, to the first of a fixed number of slots.

    There is no host sync and no shape that depends on the data: slot ``t`` looks up the place where
    the running count of valid boxes reaches ``t + 1``.

    Args:
        boxes: The boxes of each image, with places for the most that one may have.
        labels: The class of each.
        valid: Whether a place holds a box.
        slots: How many slots to fill.

    Examples:
        >>> boxes = torch.arange(16.0).reshape(2, 2, 4)
        >>> valid = torch.tensor([[False, True], [True, False]])
        >>> found = compact(boxes, torch.tensor([[5, 6], [7, 8]]), valid, slots=3)
        >>> found.labels, found.image_of_box, found.valid
        (tensor([6, 7, 0]), tensor([0, 1, 0]), tensor([ True,  True, False]))
    """
    most = valid.shape[1]
    reached = valid.flatten().cumsum(0, dtype=torch.int64)
    slot = torch.arange(slots, device=valid.device)
    source = torch.searchsorted(reached, slot + 1).clamp(max=reached.numel() - 1)
    filled = slot < reached[-1]
    return Slots(
        boxes=boxes.flatten(0, 1)[source] * filled[:, None],
        labels=labels.flatten()[source] * filled,
        image_of_box=source // most * filled,
        valid=filled,
        lost=(reached[-1] - slots).clamp(min=0),
    )
