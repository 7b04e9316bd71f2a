"""Linear assignment of many small problems at once, in shapes that do not depend on the data.

On CUDA all problems are solved side by side where their costs lie, without the host: this can be
recorded in a CUDA graph. Elsewhere SciPy solves one after the other. Both are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou._shapes import Float, Int
from alphaiou.detectors.ops.kernels import HAS_TRITON
from alphaiou.numerics import upcast

#: The kernel holds a number for each column in registers.
MOST_IN_KERNEL = 4096


def assign(
    cost: Float[Tensor, "problems rows columns"], counts: Int[Tensor, " problems"]
) -> Int[Tensor, "problems rows"]:
    """A column of its own for each row, such that the costs of the pairs have the least sum.

    Args:
        cost: What each pair costs; there are at most as many rows as columns. Costs that are no
            finite numbers count as the largest one: such pairs are the last resort.
        counts: How many rows of each problem, its first ones, take part.

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
    """The same by SciPy, in one transfer where the costs are not on the CPU."""
    from scipy.optimize import linear_sum_assignment

    found = torch.zeros(cost.shape[:2], dtype=torch.int64)
    for own, matrix, count in zip(found, cost.cpu().numpy(), counts.tolist(), strict=True):
        rows, columns = linear_sum_assignment(matrix[:count])
        own[rows] = torch.from_numpy(columns)
    return found.to(cost.device)
