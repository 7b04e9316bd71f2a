"""Assign boxes to YOLOv5 predictions, with static shapes and no host synchronisation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int
from alphaiou.batch import Targets

#: An anchor matches a box if all ratios of their sides are below this.
LARGEST_RATIO = 4.0


class Positives(NamedTuple):
    """The pairs of predictions and boxes of one layer, with a slot per box, anchor and cell.

    Attributes:
        predictions: The row of the prediction among those of all images, cells and anchors.
        anchors: Width and height of the anchor, in cells.
        boxes: The target box, ``cxcywh`` in cells, relative to the corner of the prediction's cell.
        labels: The target class.
        valid: Whether the slot holds a pair.
    """

    predictions: Int[Tensor, " slots"]
    anchors: Float[Tensor, "slots 2"]
    boxes: Float[Tensor, "slots 4"]
    labels: Int[Tensor, " slots"]
    valid: Bool[Tensor, " slots"]


def assign(
    targets: Targets,
    anchors: Float[Tensor, "anchors 2"],
    *,
    stride: int,
    grid: tuple[int, int],
) -> Positives:
    """Pair the boxes of a batch with the predictions of one layer.

    A box is assigned to every anchor that matches it, in the cell of its centre and in the nearest
    horizontal and vertical neighbour cells inside the grid. A centre on the border of two cells
    counts once, where YOLOv5 counts it several times.

    Args:
        targets: The boxes, in pixels.
        anchors: The widths and heights of the anchors, in pixels.
        stride: The size of a cell in pixels.
        grid: The rows and columns of the layer.

    Returns:
        Nine slots per box (three anchors, three cells), the predictions in the order image, row,
        column, anchor.
    """
    sizes = (targets.boxes[:, 2:] - targets.boxes[:, :2]) / stride
    centres = (targets.boxes[:, 2:] + targets.boxes[:, :2]) / (2 * stride)
    anchors = anchors.to(sizes) / stride
    ratios = sizes[:, None] / anchors
    fits = torch.maximum(ratios, 1 / ratios).amax(-1) < LARGEST_RATIO
    cells, near = _cells(centres, grid)
    valid = (targets.valid[:, None] & fits)[:, :, None] & near[:, None, :]

    shape = valid.shape
    rows, columns = grid
    place = (targets.image_of_box[:, None] * rows + cells[..., 1]) * columns + cells[..., 0]
    number = torch.arange(len(anchors), device=place.device)[:, None]
    predictions = place[:, None] * len(anchors) + number
    offsets = centres[:, None] - cells
    boxes = torch.cat([offsets, sizes[:, None].expand_as(offsets)], dim=-1)
    return Positives(
        predictions=predictions.where(valid, 0).flatten(),
        anchors=anchors[:, None].expand(*shape, 2).reshape(-1, 2),
        boxes=boxes[:, None].expand(*shape, 4).reshape(-1, 4),
        labels=targets.labels[:, None, None].expand(shape).flatten(),
        valid=valid.flatten(),
    )


def _cells(
    centres: Float[Tensor, "boxes 2"], grid: tuple[int, int]
) -> tuple[Int[Tensor, "boxes 3 2"], Bool[Tensor, "boxes 3"]]:
    """Return the cell of each centre and its two neighbours, and which are valid."""
    rows, columns = grid
    x, y = centres.unbind(-1)
    column, row = x.floor().clamp(0, columns - 1), y.floor().clamp(0, rows - 1)
    # Nearer than half a cell: a centre in the exact middle has no neighbour.
    beside, above = column + (x - column - 0.5).sign(), row + (y - row - 0.5).sign()
    cells = torch.stack([column, row, beside, row, column, above], dim=-1).view(-1, 3, 2)
    there = [
        torch.ones_like(column, dtype=torch.bool),
        (beside != column) & (beside >= 0) & (beside < columns),
        (above != row) & (above >= 0) & (above < rows),
    ]
    return cells.long(), torch.stack(there, dim=-1)
