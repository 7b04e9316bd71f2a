"""The operations that ``analytic`` is written in, for torch: the names are Triton's."""

from __future__ import annotations

import torch
from torch import Tensor

Value = Tensor | float

abs = torch.abs  # noqa: A001
exp = torch.exp
exp2 = torch.exp2
log2 = torch.log2
where = torch.where


def maximum(a: Tensor, b: Value) -> Tensor:
    """The larger of two, the second perhaps a number."""
    return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)


def minimum(a: Tensor, b: Value) -> Tensor:
    """The smaller of two, the second perhaps a number."""
    return torch.minimum(a, b) if isinstance(b, Tensor) else a.clamp(max=b)


def fma(a: Tensor, b: Value, c: Value) -> Tensor:
    """``a·b + c``."""
    return a * b + c
