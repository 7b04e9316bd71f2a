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
    pred, target = _families(FAMILIES, generator, count)
    scale = _scale(generator, count, dtype)
    return _rounded(pred * scale, dtype), _rounded(target * scale, dtype)


def _families(
    families: dict[str, Callable[[torch.Generator, int], Boxes]],
    generator: torch.Generator,
    count: int,
) -> Boxes:
    shares = [count // len(families)] * len(families)
    shares[0] += count - sum(shares)
    drawn = [make(generator, share) for make, share in zip(families.values(), shares, strict=True)]
    pred, target = (torch.cat(boxes) for boxes in zip(*drawn, strict=True))
    return pred, target


def _scale(generator: torch.Generator, count: int, dtype: torch.dtype) -> Tensor:
    limits = torch.finfo(dtype)
    lowest = max(-30.0, math.log10(limits.smallest_normal * limits.eps))
    highest = min(30.0, math.log10(limits.max))
    anywhere = _log_uniform(generator, lowest, highest, count, 1)
    pixels = _log_uniform(generator, -3, 4, count, 1)
    return torch.where(_uniform(generator, count, 1) < 0.5, anywhere, pixels)


def _rounded(boxes: Tensor, dtype: torch.dtype) -> Tensor:
    largest = torch.finfo(dtype).max
    return boxes.clamp(-largest, largest).to(dtype)


# Oriented boxes


def _oriented_box(generator: torch.Generator, count: int) -> Tensor:
    """Boxes in the unit square, half of them at multiples of π/4, of any writing."""
    angle = 2 * math.pi * (2 * _uniform(generator, count, 1) - 1)
    lattice = _choice(generator, -8, 9, count, 1) * (math.pi / 4)
    angle = torch.where(_uniform(generator, count, 1) < 0.5, angle, lattice)
    center, sides = _uniform(generator, count, 2, 2).unbind(1)
    return torch.cat((center, 0.02 + sides, angle), dim=-1)


def _turned_only(generator: torch.Generator, count: int) -> Boxes:
    pred = _oriented_box(generator, count)
    target = pred.clone()
    target[:, 4] += _log_uniform(generator, -17, 0.5, count) * _choice(generator, -1, 2, count)
    return pred, target


def _oriented_overlapping(generator: torch.Generator, count: int) -> Boxes:
    return _oriented_box(generator, count), _oriented_box(generator, count)


def _oriented_identical(generator: torch.Generator, count: int) -> Boxes:
    box = _oriented_box(generator, count)
    return box.clone(), box


def _oriented_nearly_identical(generator: torch.Generator, count: int) -> Boxes:
    target = _oriented_box(generator, count)
    noise = _log_uniform(generator, -17, -2, count, 1) * (_uniform(generator, count, 5) - 0.5)
    return target + noise, target


def _concentric(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _oriented_overlapping(generator, count)
    pred[:, :2] = target[:, :2]
    return pred, target


def _nearly_parallel(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _oriented_overlapping(generator, count)
    quarters = _choice(generator, -2, 3, count) * (math.pi / 2)
    tilt = _log_uniform(generator, -17, -3, count) * _choice(generator, -1, 2, count)
    pred[:, 4] = target[:, 4] + quarters + tilt
    return pred, target


def _oriented_nested(generator: torch.Generator, count: int) -> Boxes:
    target = _oriented_box(generator, count)
    pred = target.clone()
    pred[:, 2:4] *= _uniform(generator, count, 2)
    swap = _uniform(generator, count, 1) < 0.5
    return torch.where(swap, target, pred), torch.where(swap, pred, target)


def _oriented_touching(generator: torch.Generator, count: int) -> Boxes:
    """Side by side, along the width of the target."""
    target = _oriented_box(generator, count)
    pred = target.clone()
    pred[:, 2] = 0.02 + _uniform(generator, count)
    step = 0.5 * (pred[:, 2] + target[:, 2])
    direction = torch.stack((target[:, 4].cos(), target[:, 4].sin()), dim=-1)
    pred[:, :2] += step[:, None] * direction
    return pred, target


def _oriented_disjoint(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _oriented_overlapping(generator, count)
    pred[:, :2] += _log_uniform(generator, 0, 6, count, 2) * _choice(generator, -1, 2, count, 2)
    return pred, target


def _oriented_degenerate(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _turned_only(generator, count)
    flat = _uniform(generator, count, 2, 2) < 0.5
    pred[:, 2:4] = torch.where(flat[:, 0], 0.0, pred[:, 2:4])
    target[:, 2:4] = torch.where(flat[:, 1], 0.0, target[:, 2:4])
    pred[:, :2] += (_uniform(generator, count, 1) < 0.5) * 0.1 * _uniform(generator, count, 2)
    return pred, target


def _oriented_thin(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _turned_only(generator, count)
    pred[:, 3] *= _log_uniform(generator, -8, 0, count)
    target[:, 3] *= _log_uniform(generator, -8, 0, count)
    return pred, target


def _oriented_mixed_scales(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _oriented_overlapping(generator, count)
    pred[:, :4] *= _log_uniform(generator, -30, 0, count, 1)
    return pred, target


def _large_angles(generator: torch.Generator, count: int) -> Boxes:
    pred, target = _oriented_overlapping(generator, count)
    pred[:, 4] *= _log_uniform(generator, 0, 30, count)
    target[:, 4] *= _log_uniform(generator, 0, 30, count)
    return pred, target


ORIENTED_FAMILIES: dict[str, Callable[[torch.Generator, int], Boxes]] = {
    "overlapping": _oriented_overlapping,
    "turned": _turned_only,
    "identical": _oriented_identical,
    "nearly_identical": _oriented_nearly_identical,
    "concentric": _concentric,
    "nearly_parallel": _nearly_parallel,
    "nested": _oriented_nested,
    "touching": _oriented_touching,
    "disjoint": _oriented_disjoint,
    "degenerate": _oriented_degenerate,
    "thin": _oriented_thin,
    "mixed_scales": _oriented_mixed_scales,
    "large_angles": _large_angles,
}


def oriented_pairs(count: int, *, dtype: torch.dtype = torch.float32, seed: int = 0) -> Boxes:
    """Return pairs as ``cxcywhr``, an equal share per family in ``ORIENTED_FAMILIES``.

    Their sizes are those of ``adversarial_pairs``; angles are in radians and stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)
    pred, target = _families(ORIENTED_FAMILIES, generator, count)
    scale = torch.cat((_scale(generator, count, dtype).expand(count, 4), torch.ones(count, 1)), -1)
    return _rounded(pred * scale, dtype), _rounded(target * scale, dtype)
