"""The CUDA kernel of ``assign``: one program per problem, one value per column in registers.

Rows are taken in one by one. A new row looks for the cheapest way to a free column, along which
rows that have one already may move on to another: Dijkstra's search over costs that the prices of
the columns keep from being negative (Jonker and Volgenant's shortest augmenting paths). A row that
has a column is indifferent between it and its best others, so its own price is not kept: it is the
cost of its column less the column's price. fp64, in which sums of fp32 costs are nearly exact.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _pick(vector, place, columns):
    """One number of a vector that is spread over registers."""
    return tl.sum(tl.where(columns == place, vector, 0))


@triton.jit
def _solve(cost_ptr, counts_ptr, found_ptr, rows, width, SLOTS: tl.constexpr):
    problem = tl.program_id(0).to(tl.int64)
    cost_ptr += problem * rows * width
    columns = tl.arange(0, SLOTS)
    inside = columns < width
    price = tl.zeros([SLOTS], tl.float64)
    row_of = tl.full([SLOTS], -1, tl.int32)
    infinite = tl.full([SLOTS], float("inf"), tl.float64)
    count = tl.minimum(tl.load(counts_ptr + problem).to(tl.int32), rows)

    for new in range(count):
        distance, reached = infinite, columns >= width
        before = tl.full([SLOTS], -1, tl.int32)
        row, origin = new, tl.full([], 0.0, tl.float64)
        end, nearest = tl.full([], -1, tl.int32), tl.full([], 0.0, tl.float64)
        steps = tl.full([], 0, tl.int32)
        # Every step settles a column, and all but the last one's belong to rows before this one.
        while (end < 0) & (steps <= new):
            cost = tl.load(cost_ptr + row * width + columns, mask=inside, other=0.0).to(tl.float64)
            length = cost - price + origin
            shorter = (length < distance) & (reached == 0)
            distance = tl.where(shorter, length, distance)
            before = tl.where(shorter, row, before)
            nearest, column = tl.min(
                tl.where(reached, infinite, distance), axis=0, return_indices=True
            )
            reached = reached | (columns == column)
            owner = _pick(row_of, column, columns)
            end = tl.where(owner < 0, column, -1)
            row = tl.maximum(owner, 0)
            own_cost = tl.load(cost_ptr + row * width + column).to(tl.float64)
            origin = nearest - (own_cost - _pick(price, column, columns))
            steps += 1
        price += tl.where(reached & inside, distance - nearest, 0.0)

        steps = tl.full([], 0, tl.int32)
        while (end >= 0) & (steps <= new):
            row = _pick(before, end, columns)
            left = tl.max(tl.where(row_of == row, columns, -1))
            row_of = tl.where(columns == end, row, row_of)
            end = left
            steps += 1

    tl.store(found_ptr + problem * rows + row_of, columns.to(tl.int64), mask=row_of >= 0)


def launch(cost: Tensor, counts: Tensor) -> Tensor:
    """Solve all problems at once; the arguments are those of ``assign``, all costs finite."""
    problems, rows, width = cost.shape
    found = torch.zeros(problems, rows, dtype=torch.int64, device=cost.device)
    if found.numel():
        slots = triton.next_power_of_2(width)
        _solve[(problems,)](
            cost.contiguous(),
            counts.contiguous(),
            found,
            rows,
            width,
            SLOTS=slots,
            # One warp has no need to wait for others; four numbers a thread of it.
            num_warps=max(1, min(16, slots // 128)),
        )
    return found
