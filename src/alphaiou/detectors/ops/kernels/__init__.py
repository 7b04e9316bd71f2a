"""Triton kernels of the detectors, and their shared helpers."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None


def side_by_side(shape: Sequence[int], like: Tensor) -> Tensor:
    """Empty features whose channels lie side by side, of the precision of others.

    Not ``empty_like``: where a side is 1 that keeps strides of its own.
    """
    return torch.empty(
        *shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last
    )
