"""Polygons to pixels: the exact area of each pixel that an outline covers."""

import numpy as np
from jaxtyping import Float32, Float64

from alphaiou.data.shape_outlines import Edges

Plane = Float32[np.ndarray, "height width"]


def coverage(edges: Edges, width: int, height: int) -> tuple[slice, slice, Plane]:
    """The rows and columns that closed loops reach, and the area that they cover of each pixel.

    Each edge is cut at the grid of pixels. A piece within one pixel covers its part of that pixel
    and the whole height of it in all pixels to the right; the sum over pieces, signed by direction,
    is the area.
    """
    low = np.floor(edges.min((0, 1))).clip(0, (width, height)).astype(int)
    high = np.ceil(edges.max((0, 1))).clip(low, (width, height)).astype(int)
    columns, rows = (high - low).tolist()
    start, end = _cut_at_grid(edges - low)
    rise = end[:, 1] - start[:, 1]
    x, y = np.moveaxis((start + end) / 2, -1, 0)
    column, row = np.floor(x), np.floor(y)
    here = (row >= 0) & (row < rows) & (column < columns)
    rise, x, column, row = rise[here], x[here], column[here], row[here]
    share = np.where(column < 0, 1.0, column + 1.0 - x)
    pixel = (row * (columns + 1) + column.clip(0)).astype(np.int64)
    total = rows * (columns + 1)
    area = np.bincount(pixel, rise * share, total)
    area += np.bincount(pixel + 1, rise * (1.0 - share), total + 1)[:total]
    area = np.abs(area.reshape(rows, columns + 1).cumsum(1)[:, :columns]).clip(max=1.0)
    window = slice(low[1], high[1]), slice(low[0], high[0])
    return *window, area.astype(np.float32)


def _cut_at_grid(
    edges: Edges,
) -> tuple[Float64[np.ndarray, "pieces 2"], Float64[np.ndarray, "pieces 2"]]:
    """The pieces of the edges between the lines of the grid; level ones have no area and go."""
    edges = edges[edges[:, 0, 1] != edges[:, 1, 1]]
    start, across = edges[:, 0], edges[:, 1] - edges[:, 0]
    everyone = np.arange(len(edges))
    owners, times = [everyone, everyone], [np.zeros(len(edges)), np.ones(len(edges))]
    for axis in (0, 1):
        first = np.floor(edges[:, :, axis].min(1)).astype(np.int64) + 1
        count = (np.ceil(edges[:, :, axis].max(1)).astype(np.int64) - first).clip(0)
        owner = everyone.repeat(count)
        line = first[owner] + np.arange(len(owner)) - (np.cumsum(count) - count)[owner]
        owners.append(owner)
        times.append((line - start[owner, axis]) / across[owner, axis])
    owner, time = np.concatenate(owners), np.concatenate(times)
    order = np.lexsort((time, owner))
    owner, time = owner[order], time[order]
    points = start[owner] + time[:, None] * across[owner]
    same = owner[1:] == owner[:-1]
    return points[:-1][same], points[1:][same]
