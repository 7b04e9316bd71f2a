"""Batched linear assignment with static shapes.

On CUDA, a kernel solves all problems in parallel without host synchronisation, so it can be
captured in a CUDA graph. Elsewhere SciPy solves them one by one. Both are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou._shapes import Float, Int
from alphaiou.detectors.ops.kernels import HAS_TRITON
from alphaiou.numerics import upcast

#: The kernel holds one value per column in registers.
MOST_IN_KERNEL = 4096


def assign(
    cost: Float[Tensor, "problems rows columns"], counts: Int[Tensor, " problems"]
) -> Int[Tensor, "problems rows"]:
    """Assign a distinct column to each row, minimising the sum of costs.

    Args:
        cost: The cost matrices, with at most as many rows as columns. Non-finite costs are
            replaced by the largest cost, so that such pairs are a last resort.
        counts: The number of rows of each problem that take part, from the first.

    Returns:
        The column of each row; 0 for rows that do not take part.

    Examples:
        >>> cost = torch.tensor([[[1.0, 2.0, 9.0], [0.0, 5.0, 9.0]]])
        >>> assign(cost, torch.tensor([2])), assign(cost, torch.tensor([1]))
        (tensor([[1, 0]]), tensor([[0, 0]]))
    """
    if cost.shape[1] > cost.shape[2]:
        raise ValueError(f"more rows ({cost.shape[1]}) than columns ({cost.shape[2]})")
    largest = torch.finfo(torch.float32).max
    finite = torch.nan_to_num(upcast(cost.detach()), nan=largest, posinf=largest, neginf=largest)
    columns: Tensor = _assign(finite, counts)
    return columns


def _solve(cost: Tensor, counts: Tensor) -> Tensor:
    if HAS_TRITON and cost.is_cuda and cost.shape[2] <= MOST_IN_KERNEL:
        from alphaiou.detectors.ops.kernels.assignment import launch

        return launch(cost, counts)
    return by_scipy(cost, counts)


_assign = torch.library.custom_op(
    "alphaiou::assign",
    _solve,
    mutates_args=(),
    schema="(Tensor cost, Tensor counts) -> Tensor",
)
_assign.register_fake(
    lambda cost, counts: torch.empty(cost.shape[:2], dtype=torch.int64, device=cost.device)
)


def by_scipy(
    cost: Float[Tensor, "problems rows columns"], counts: Int[Tensor, " problems"]
) -> Int[Tensor, "problems rows"]:
    """Solve the problems with SciPy, after one transfer if the costs are not on the CPU."""
    from scipy.optimize import linear_sum_assignment

    found = torch.zeros(cost.shape[:2], dtype=torch.int64)
    for own, matrix, count in zip(found, cost.cpu().numpy(), counts.tolist(), strict=True):
        rows, columns = linear_sum_assignment(matrix[:count])
        own[rows] = torch.from_numpy(columns)
    return found.to(cost.device)
