"""Batched non-maximum suppression with static shapes.

torchvision's operator returns the kept indices, so the host has to wait for their number, and on
CUDA it processes the candidates of all images sequentially. Here every image is a separate problem
and the result is a mask. On CUDA all problems are solved in parallel, so it can be captured in a
CUDA graph. The kept boxes are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou._shapes import Bool, Float, Int
from alphaiou.detectors.ops.kernels import HAS_TRITON

#: The kernel holds the candidates of an image in registers.
MOST_IN_KERNEL = 4096


def keep_best(
    boxes: Float[Tensor, "problems candidates 4"],
    groups: Int[Tensor, "problems candidates"],
    valid: Bool[Tensor, "problems candidates"],
    threshold: float,
) -> Bool[Tensor, "problems candidates"]:
    """Return which candidates NMS keeps.

    Args:
        boxes: ``xyxy``, the best candidate of each problem first.
        groups: Boxes of different groups, such as classes, do not suppress each other.
        valid: Which slots hold a candidate; the others are not kept and suppress nothing.
        threshold: The IoU above which the lower-ranked of two boxes is removed.

    Examples:
        >>> boxes = torch.tensor([[[0.0, 0, 9, 9], [0.0, 0, 9, 8], [5.0, 5, 9, 9]]])
        >>> keep_best(boxes, torch.zeros(1, 3).long(), torch.ones(1, 3).bool(), 0.5)
        tensor([[ True, False,  True]])
    """
    kept: Tensor = _keep_best(boxes, groups, valid, threshold)
    return kept


def _solve(boxes: Tensor, groups: Tensor, valid: Tensor, threshold: float) -> Tensor:
    if boxes.is_cuda and HAS_TRITON and boxes.shape[1] <= MOST_IN_KERNEL:
        from alphaiou.detectors.ops.kernels.nms import launch

        return launch(boxes, groups, valid, threshold)
    return by_torchvision(boxes, groups, valid, threshold)


_keep_best = torch.library.custom_op(
    "alphaiou::keep_best",
    _solve,
    mutates_args=(),
    schema="(Tensor boxes, Tensor groups, Tensor valid, float threshold) -> Tensor",
)
_keep_best.register_fake(lambda boxes, groups, valid, threshold: torch.empty_like(valid))


def by_torchvision(
    boxes: Float[Tensor, "problems candidates 4"],
    groups: Int[Tensor, "problems candidates"],
    valid: Bool[Tensor, "problems candidates"],
    threshold: float,
) -> Bool[Tensor, "problems candidates"]:
    """Solve the problems one by one with torchvision's operator."""
    from torchvision.ops import nms

    kept = torch.zeros_like(valid)
    # Ranks serve as scores. fp64, because offsetting groups costs precision.
    falling = -torch.arange(boxes.shape[1], dtype=torch.float64, device=boxes.device)
    for problem, there in enumerate(valid):
        rows = there.nonzero().flatten()
        if not len(rows):
            continue
        own = boxes[problem, rows].double()
        apart = own + (groups[problem, rows] * (own.amax() - own.amin() + 1.0))[:, None]
        kept[problem, rows[nms(apart, falling[rows], threshold)]] = True
    return kept
