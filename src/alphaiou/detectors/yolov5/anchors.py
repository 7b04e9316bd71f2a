"""Anchors fitted to the boxes of a data set."""

from __future__ import annotations

import torch
from torch import Tensor

from alphaiou._shapes import Float
from alphaiou.detectors.yolov5.targets import LARGEST_RATIO

#: New anchors are fitted if fewer than this share of the boxes match an anchor.
ENOUGH = 0.98
#: The maximum number of boxes for clustering, and the number of restarts.
SAMPLE, STARTS = 10_000, 10


def best_possible_recall(
    sizes: Float[Tensor, "boxes 2"], anchors: Float[Tensor, "*anchors 2"]
) -> float:
    """Return the share of boxes that match an anchor: all side ratios are below four.

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
    """Fit anchors to boxes by k-means, the smallest on the first layer.

    Clustering uses the logarithms of width and height, because matching depends on ratios. The best
    of several k-means++ starts is returned. Many boxes are subsampled.

    Args:
        sizes: Width and height of the boxes, in pixels at the training image size.
        layers: The number of detection layers.
        each: The number of anchors per layer.
        seed: The seed of the sample and the starts.
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
    """Return new anchors if the given ones match under 98 % of the boxes and they match more."""
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
    """Run Lloyd's iterations; return the mean squared distance and the final centres."""
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
    """Draw initial centres, each by its squared distance from the previous ones (k-means++)."""
    chosen = points[torch.randint(len(points), (1,), generator=generator)]
    while len(chosen) < count:
        weights = torch.cdist(points, chosen).amin(1).square()
        weights = weights if weights.sum() > 0 else torch.ones_like(weights)
        chosen = torch.cat([chosen, points[torch.multinomial(weights, 1, generator=generator)]])
    return chosen
