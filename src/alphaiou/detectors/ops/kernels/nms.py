"""The CUDA kernel of ``keep_best``: one program per problem, with its candidates in registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _scan(boxes, groups, valid, keep, threshold, count, SLOTS: tl.constexpr):
    place = tl.arange(0, SLOTS)
    there = place < count
    own = tl.program_id(0).to(tl.int64) * count
    corner = boxes + (own + place) * 4
    x1 = tl.load(corner, mask=there, other=0.0).to(tl.float64)
    y1 = tl.load(corner + 1, mask=there, other=0.0).to(tl.float64)
    x2 = tl.load(corner + 2, mask=there, other=0.0).to(tl.float64)
    y2 = tl.load(corner + 3, mask=there, other=0.0).to(tl.float64)
    area = (x2 - x1) * (y2 - y1)
    group = tl.load(groups + own + place, mask=there, other=0)
    alive = tl.load(valid + own + place, mask=there, other=0).to(tl.int32)
    limit = tl.load(threshold)
    for best in range(count):
        if tl.sum(tl.where(place == best, alive, 0)) > 0:
            one = boxes + (own + best) * 4
            left, top = tl.load(one).to(tl.float64), tl.load(one + 1).to(tl.float64)
            right, bottom = tl.load(one + 2).to(tl.float64), tl.load(one + 3).to(tl.float64)
            width = tl.maximum(tl.minimum(x2, right) - tl.maximum(x1, left), 0.0)
            height = tl.maximum(tl.minimum(y2, bottom) - tl.maximum(y1, top), 0.0)
            shared = width * height
            union = area + (right - left) * (bottom - top) - shared
            iou = shared / tl.where(union > 0.0, union, 1.0)
            same = group == tl.load(groups + own + best)
            alive = tl.where((iou > limit) & same & (place > best), 0, alive)
    tl.store(keep + own + place, alive.to(tl.int8), mask=there)


def launch(boxes: Tensor, groups: Tensor, valid: Tensor, threshold: float) -> Tensor:
    """Solve all problems at once; the arguments are those of ``keep_best``."""
    problems, count = valid.shape
    keep = torch.empty(problems, count, dtype=torch.int8, device=boxes.device)
    if keep.numel():
        # As a number it would be rounded to fp32 on its way.
        limit = torch.full((), threshold, dtype=torch.float64, device=boxes.device)
        slots = triton.next_power_of_2(count)
        _scan[(problems,)](
            boxes.contiguous(),
            groups.contiguous(),
            valid.to(torch.int8).contiguous(),
            keep,
            limit,
            count,
            SLOTS=slots,
            num_warps=max(1, min(16, slots // 128)),
        )
    return keep.bool()
