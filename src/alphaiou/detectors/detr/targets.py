"""The boxes of a batch grouped by image, with the same number of slots per image."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int
from alphaiou.batch import Targets
from alphaiou.boxes import convert_boxes


class ImageTargets(NamedTuple):
    """The boxes of each image in its first slots.

    Attributes:
        labels: The class of each, from 0.
        boxes: ``xyxy`` in pixels.
        shares: The same boxes, ``cxcywh`` relative to the image size.
        valid: Whether the slot holds a box; the others hold a point of class 0.
        total: The number of boxes, including those beyond the slots.
    """

    labels: Int[Tensor, "batch places"]
    boxes: Float[Tensor, "batch places 4"]
    shares: Float[Tensor, "batch places 4"]
    valid: Bool[Tensor, "batch places"]
    total: Float[Tensor, ""]


def targets_by_image(
    targets: Targets, scale: Float[Tensor, "batch 4"], *, most: int
) -> ImageTargets:
    """Sort the slots of a batch by image, without host synchronisation.

    Args:
        targets: The boxes, those of an image in any slots.
        scale: Width, height, width, height of each image.
        most: The number of slots per image; further boxes are dropped.
    """
    batch, slots, device = len(scale), len(targets.image_of_box), targets.image_of_box.device
    places = min(slots, most)
    images = torch.arange(batch, device=device)
    in_image = (targets.image_of_box[:, None] == images) & targets.valid[:, None]
    ranks = ((in_image.cumsum(0) - 1) * in_image).sum(1)
    placed = in_image.any(1) & (ranks < places)
    # Dropped boxes are written to an extra slot, which is removed.
    place = (targets.image_of_box * places + ranks).where(placed, batch * places)
    slot_of = torch.zeros(batch * places + 1, dtype=torch.int64, device=device)
    slot_of = slot_of.scatter(0, place, torch.arange(slots, device=device))[:-1]
    valid = torch.arange(places, device=device) < in_image.sum(0)[:, None]
    boxes = targets.boxes.to(scale)[slot_of].view(batch, places, 4).where(valid[..., None], 1.0)
    return ImageTargets(
        labels=targets.labels[slot_of].view(batch, places).where(valid, 0),
        boxes=boxes,
        shares=convert_boxes(boxes, "xyxy", "cxcywh") / scale[:, None],
        valid=valid,
        total=targets.valid.sum(dtype=torch.float32),
    )
