"""Box pairs to test with: generic ones, hard ones by family, and hypothesis strategies for both.

The hard ones come from the package, which fuzzes with them too. hypothesis is imported where a
strategy is built.
"""

import torch
from torch import Tensor

from benchmarks.adversarial import FAMILIES, Boxes, adversarial_pairs

__all__ = [
    "DTYPES",
    "FAMILIES",
    "FORMATS",
    "Boxes",
    "adversarial_pairs",
    "box_pairs",
    "encode",
    "generic_pairs",
]

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FORMATS = ("xyxy", "xywh", "cxcywh")


def encode(boxes: Tensor, box_format: str) -> Tensor:
    """Corners (x1, y1, x2, y2) written in `box_format`, kept within the dtype's finite range."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if box_format == "xywh":
        boxes = torch.cat([first, second - first], dim=-1)
    elif box_format == "cxcywh":
        boxes = torch.cat([first / 2 + second / 2, second - first], dim=-1)
    limit = torch.finfo(boxes.dtype).max
    return boxes.clamp(-limit, limit)


def generic_pairs(
    count: int, *, seed: int = 0, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> Boxes:
    """Ordinary pairs, overlapping or a little apart, no two edges nearer than 2 % of `size`."""
    generator = torch.Generator().manual_seed(seed)
    kept: list[Tensor] = []
    while sum(map(len, kept)) < count:
        drawn = torch.rand(4 * count, 2, 4, generator=generator, dtype=torch.float64)
        edges = drawn.sort(dim=-1).values  # per axis: four distinct places on a line
        apart = (edges.diff(dim=-1) > 0.02).all(dim=-1).all(dim=-1)
        # Who owns which two of the four places decides overlap, nesting or separation.
        owners = torch.tensor([[0, 2, 1, 3], [1, 3, 0, 2], [0, 3, 1, 2], [1, 2, 0, 3]])
        choice = torch.randint(0, 4, (4 * count, 2, 1), generator=generator)
        places = edges.gather(-1, owners[choice.squeeze(-1)])
        separate = torch.rand(4 * count, generator=generator) < 0.15
        places[separate, 0] = edges[separate, 0]
        pred, target = places[..., :2].transpose(1, 2), places[..., 2:].transpose(1, 2)
        kept.append(torch.stack([pred.flatten(1), target.flatten(1)], dim=1)[apart])
    pairs = (torch.cat(kept)[:count] * size).to(dtype)
    return pairs[:, 0].contiguous(), pairs[:, 1].contiguous()


def box_pairs(dtype: torch.dtype):
    """A hypothesis strategy for one hard pair: two tensors of shape (4,), any finite numbers.

    The prediction borrows numbers from the target, which makes shared edges, touching, identical,
    zero-size and inverted boxes common, whatever format they are read in.
    """
    from hypothesis import strategies as st

    limit = min(torch.finfo(dtype).max, 1e30)
    numbers = st.one_of(
        st.integers(-8, 8).map(float),
        st.floats(-1, 1, width=32),
        st.floats(-1e30, 1e30),
    )
    targets = st.lists(numbers, min_size=4, max_size=4)

    def with_pred(target: list[float]):
        preds = st.one_of(
            st.just(target),
            st.lists(numbers | st.sampled_from(target), min_size=4, max_size=4),
        )
        return st.tuples(preds, st.just(target), st.integers(-30, 30).map(lambda p: 10.0**p))

    def as_tensors(drawn: tuple[list[float], list[float], float]) -> Boxes:
        pred, target, scale = (torch.tensor(part, dtype=torch.float64) for part in drawn)
        return tuple((b * scale).clamp(-limit, limit).to(dtype) for b in (pred, target))

    return targets.flatmap(with_pred).map(as_tensors)
