"""The training batch: images of one size, and their boxes in a fixed number of slots."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Float32, Int, Int64, UInt8

#: The grey beside an image that does not fill its square, of 255.
FILL = 114


class Targets(NamedTuple):
    """The boxes of a batch of images, in a number of slots that does not depend on the data.

    Attributes:
        image_of_box: The position in the batch of the image of each box.
        labels: The class of each box, from 0.
        boxes: ``xyxy`` in pixels of the batched images.
        valid: Whether the slot holds a box; the content of other slots does not matter.
    """

    image_of_box: Int[Tensor, " slots"]
    labels: Int[Tensor, " slots"]
    boxes: Float[Tensor, "slots 4"]
    valid: Bool[Tensor, " slots"]


class Batch(NamedTuple):
    """Images of one size with their boxes.

    Attributes:
        images: RGB, 0 to 255. The channels of a pixel lie beside each other, so that a cast to a
            floating type gives the ``channels_last`` format.
        targets: Their boxes, valid slots first, in the order of the images; other slots are 0.
        lost: The number of boxes that found no slot. If it is not 0, the batch has
            too few slots.
    """

    images: UInt8[Tensor, "batch 3 side side"]
    targets: Targets
    lost: Int64[Tensor, ""]

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor of the batch by name."""
        return {"images": self.images, **self.targets._asdict(), "lost": self.lost}


def compact(
    boxes: Float32[Tensor, "batch most 4"],
    labels: Int64[Tensor, "batch most"],
    valid: Bool[Tensor, "batch most"],
    slots: int,
) -> tuple[Targets, Int64[Tensor, ""]]:
    """Move the valid boxes of all images, in their order, to the first of a fixed number of slots.

    There is no host synchronisation, and no shape depends on the data: slot ``t`` looks up the
    position at which the running count of valid boxes reaches ``t + 1``.

    Args:
        boxes: The boxes of each image, padded to the most that an image may have.
        labels: The class of each.
        valid: Whether a position holds a box.
        slots: The number of slots.

    Returns:
        The boxes in their slots, and the number of boxes for which there was no slot.

    Examples:
        >>> boxes = torch.arange(16.0).reshape(2, 2, 4)
        >>> valid = torch.tensor([[False, True], [True, False]])
        >>> targets, lost = compact(boxes, torch.tensor([[5, 6], [7, 8]]), valid, slots=3)
        >>> targets.labels, targets.image_of_box, targets.valid
        (tensor([6, 7, 0]), tensor([0, 1, 0]), tensor([ True,  True, False]))
    """
    most = valid.shape[1]
    reached = valid.flatten().cumsum(0, dtype=torch.int64)
    slot = torch.arange(slots, device=valid.device)
    source = torch.searchsorted(reached, slot + 1).clamp(max=reached.numel() - 1)
    filled = slot < reached[-1]
    targets = Targets(
        image_of_box=source // most * filled,
        labels=labels.flatten()[source] * filled,
        boxes=boxes.flatten(0, 1)[source] * filled[:, None],
        valid=filled,
    )
    return targets, (reached[-1] - slots).clamp(min=0)
