"""Adversarial box pairs by family, for tests and the fuzz benchmark.

Each family generates ``count`` pairs of corners in float64 around the unit square. Then the pairs
are scaled and rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

Boxes = tuple[Tensor, Tensor]


def _uniform(generator: torch.Generator, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def _choice(generator: torch.Generator, low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=generator)


def _log_uniform(generator: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return 10.0 ** (low + (high - low) * _uniform(generator, *shape))


def _box(generator: torch.Generator, count: int) -> Tensor:
    edges = _uniform(generator, count, 2, 2).sort(dim=-1).values
    return edges.transpose(1, 2).flatten(1)


def _overlapping(generator: torch.Generator, count: int) -> Boxes:
    return _box(generator, count), _box(generator, count)


def _nested(generator: torch.Generator, count: int) -> Boxes:
    outer = _box(generator, count)
    inside = _box(generator, count)
    side = (outer[:, 2:] - outer[:, :2]).repeat(1, 2)
    inner = outer[:, :2].repeat(1, 2) + side * inside
    swap = _uniform(generator, count, 1) < 0.5
    return torch.where(swap, outer, inner), torch.where(swap, inner, outer)


def _disjoint(generator: torch.Generator, count: int) -> Boxes:
    shift = _log_uniform(generator, -3, 6, count, 2) * _choice(generator, -1, 2, count, 2)
    return _box(generator, count) + shift.repeat(1, 2), _box(generator, count)


def _touching(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _overlapping(generator, count)
    axis = _choice(generator, 0, 2, count)
    rows = torch.arange(count)
    pred[rows, axis] = target[rows, axis + 2]
    pred[rows, axis + 2] = target[rows, axis + 2] + _uniform(generator, count)
    return pred, target


def _shared_edges(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _overlapping(generator, count)
    return torch.where(_uniform(generator, count, 4) < 0.5, target, pred), target


def _identical(generator: torch.Generator, count: int) -> Boxes:
    box = _box(generator, count)
    return box.clone(), box


def _nearly_identical(generator: torch.Generator, count: int) -> Boxes:
    target = _box(generator, count)
    noise = _log_uniform(generator, -17, -2, count, 1) * (_uniform(generator, count, 4) - 0.5)
    return target + noise, target


def _same_centre(generator: torch.Generator, count: int) -> Boxes:
    # Dyadic numbers, so that the centres agree to the last bit.
    centre = _choice(generator, -64, 65, count, 2) / 64
    half = _choice(generator, 0, 33, count, 2, 2) / 64
    boxes = torch.cat([centre[:, None] - half, centre[:, None] + half], dim=-1).double()
    return boxes[:, 0], boxes[:, 1]


def _zero_size(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _overlapping(generator, count)
    flat = _uniform(generator, count, 2, 2) < 0.6  # which box, along which axis
    pred[:, 2:] = torch.where(flat[:, 0], pred[:, :2], pred[:, 2:])
    target[:, 2:] = torch.where(flat[:, 1], target[:, :2], target[:, 2:])
    meet = _uniform(generator, count, 4) < 0.3  # on a line of the target, or on the same point
    return torch.where(meet, target, pred), target


def _inverted(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _shared_edges(generator, count)
    swap = _uniform(generator, count, 2, 1) < 0.7
    pred = torch.where(swap[:, 0], pred.roll(2, dims=-1), pred)
    return pred, torch.where(swap[:, 1], target.roll(2, dims=-1), target)


def _thin(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _overlapping(generator, count)
    ratio = _log_uniform(generator, -20, 0, count, 2, 2)
    pred[:, 2:] = pred[:, :2] + (pred[:, 2:] - pred[:, :2]) * ratio[:, 0]
    target[:, 2:] = target[:, :2] + (target[:, 2:] - target[:, :2]) * ratio[:, 1]
    return pred, target


def _mixed_scales(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _overlapping(generator, count)
    return pred * _log_uniform(generator, -30, 0, count, 1), target


def _lattice(generator: torch.Generator, count: int) -> Boxes:
    boxes = _choice(generator, -1, 3, count, 8).double()
    return boxes[:, :4], boxes[:, 4:]


def _wild(generator: torch.Generator, count: int) -> Boxes:
    size = _log_uniform(generator, -60, 0, count, 8) * _choice(generator, -1, 2, count, 8)
    return size[:, :4], size[:, 4:]


FAMILIES: dict[str, Callable[[torch.Generator, int], Boxes]] = {
    "overlapping": _overlapping,
    "nested": _nested,
    "disjoint": _disjoint,
    "touching": _touching,
    "shared_edges": _shared_edges,
    "identical": _identical,
    "nearly_identical": _nearly_identical,
    "same_centre": _same_centre,
    "zero_size": _zero_size,
    "inverted": _inverted,
    "thin": _thin,
    "mixed_scales": _mixed_scales,
    "lattice": _lattice,
    "wild": _wild,
}


def adversarial_pairs(count: int, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Boxes:
    """Return pairs (pred, target) as corners, an equal share per family in ``FAMILIES``.

    Half of them are of pixel size (1e-3 to 1e4), half of any size from 1e-30 to 1e30 within the
    range of the dtype. All are finite; equal coordinates stay equal after scaling and rounding.
    """
    generator = torch.Generator().manual_seed(seed)
    shares = [count // len(FAMILIES)] * len(FAMILIES)
    shares[0] += count - sum(shares)
    drawn = [make(generator, share) for make, share in zip(FAMILIES.values(), shares, strict=True)]
    pred, target = (torch.cat(boxes) for boxes in zip(*drawn, strict=True))

    limits = torch.finfo(dtype)
    lowest = max(-30.0, math.log10(limits.smallest_normal * limits.eps))
    highest = min(30.0, math.log10(limits.max))
    anywhere = _log_uniform(generator, lowest, highest, count, 1)
    pixels = _log_uniform(generator, -3, 4, count, 1)
    scale = torch.where(_uniform(generator, count, 1) < 0.5, anywhere, pixels)
    pred, target = (
        (boxes * scale).clamp(-limits.max, limits.max).to(dtype) for boxes in (pred, target)
    )
    return pred, target
