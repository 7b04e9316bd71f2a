"""The operations that ``analytic`` is written in: Triton's names, implemented in torch."""

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
    """The larger of two values; the second may be a number."""
    return torch.maximum(a, b) if isinstance(b, Tensor) else a.clamp(min=b)


def minimum(a: Tensor, b: Value) -> Tensor:
    """The smaller of two values; the second may be a number."""
    return torch.minimum(a, b) if isinstance(b, Tensor) else a.clamp(max=b)


def fma(a: Tensor, b: Value, c: Value) -> Tensor:
    """``a·b + c``."""
    return a * b + c
