"""Anchors fitted to the boxes of a data set."""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou._shapes import Float
from alphaiou.detectors.yolov5.targets import LARGEST_RATIO

#: New anchors are made if a smaller share of the boxes has an anchor that fits.
ENOUGH = 0.98
#: Boxes that clustering looks at, and how often it starts.
SAMPLE, STARTS = 10_000, 10


def best_possible_recall(
    sizes: Float[Tensor, "boxes 2"], anchors: Float[Tensor, "*anchors 2"]
) -> float:
    """The share of boxes that at least one anchor fits: neither four times as wide nor as high.

    Args:
        sizes: Width and height of the boxes, in pixels at the size of training.
        anchors: Width and height of the anchors, in the same pixels.

    Examples:
        >>> best_possible_recall(torch.tensor([[10.0, 10.0], [90.0, 9.0]]), torch.ones(1, 2) * 12)
        0.5
    """
    if not len(sizes):
        return 1.0
    return (_misfit(sizes, anchors.reshape(-1, 2)).amin(1) < LARGEST_RATIO).double().mean().item()


def cluster_anchors(
    sizes: Float[Tensor, "boxes 2"], *, layers: int = 3, each: int = 3, seed: int = 0
) -> Float[Tensor, "layers each 2"]:
    """Anchors that suit some boxes, the smallest on the first layer.

    They are the centres of k-means over the logarithms of width and height, since a fit is a matter
    of ratios: the best of several starts by k-means++, over a sample of the boxes if they are many.

    Args:
        sizes: Width and height of the boxes, in pixels at the size of training.
        layers: Layers of the detector.
        each: Anchors of a layer.
        seed: Of the sample and of the starts.
    """
    count = layers * each
    points = sizes[(sizes > 0).all(1)].double().log()
    if len(points) < count:
        raise ValueError(f"{count} anchors need as many boxes; there are {len(points)}")
    generator = torch.Generator().manual_seed(seed)
    points = points[torch.randperm(len(points), generator=generator)[:SAMPLE]]
    starts = [_spread(points, count, generator) for _ in range(STARTS)]
    settled = [_settle(points, start) for start in starts]
    _, best = min(settled, key=lambda pair: pair[0])
    best = best[best.sum(1).argsort(stable=True)]
    return best.exp().float().view(layers, each, 2)


def fit_anchors(
    sizes: Float[Tensor, "boxes 2"], anchors: Float[Tensor, "layers each 2"], *, seed: int = 0
) -> Float[Tensor, "layers each 2"]:
    """The anchors given, or new ones if those fit under 98 % of the boxes and new ones fit more."""
    layers, each = anchors.shape[:2]
    recall = best_possible_recall(sizes, anchors)
    if recall >= ENOUGH or len(sizes) < layers * each:
        return anchors
    clustered = cluster_anchors(sizes, layers=layers, each=each, seed=seed).to(anchors)
    return clustered if best_possible_recall(sizes, clustered) > recall else anchors


def _misfit(
    sizes: Float[Tensor, "boxes 2"], anchors: Float[Tensor, "anchors 2"]
) -> Float[Tensor, "boxes anchors"]:
    ratios = sizes[:, None] / anchors.to(sizes)
    return torch.maximum(ratios, 1 / ratios).amax(-1)


def _settle(
    points: Float[Tensor, "boxes 2"], centres: Float[Tensor, "count 2"]
) -> tuple[float, Float[Tensor, "count 2"]]:
    """Lloyd's iterations from some centres: the mean squared distance, and where they come to."""
    for _ in range(100):
        nearest = torch.cdist(points, centres).argmin(1)
        members = nearest.bincount(minlength=len(centres))[:, None]
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        moved = torch.where(members > 0, sums / members.clamp(min=1), centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return torch.cdist(points, centres).amin(1).square().mean().item(), centres


def _spread(
    points: Float[Tensor, "boxes 2"], count: int, generator: torch.Generator
) -> Float[Tensor, "count 2"]:
    """First centres, each drawn by its squared distance from those before it (k-means++)."""
    chosen = points[torch.randint(len(points), (1,), generator=generator)]
    while len(chosen) < count:
        weights = torch.cdist(points, chosen).amin(1).square()
        weights = weights if weights.sum() > 0 else torch.ones_like(weights)
        chosen = torch.cat([chosen, points[torch.multinomial(weights, 1, generator=generator)]])
    return chosen
