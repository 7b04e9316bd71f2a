"""Polygons to pixels: the exact area of each pixel that an outline covers."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from alphaiou._shapes import Bool, Float32, Float64, Int64

Loop = Float64[np.ndarray, "_vertices 2"]
Edges = Float64[np.ndarray, "_edges 2 2"]

CIRCLE_VERTICES = 64


def circle(vertices: int = CIRCLE_VERTICES) -> Loop:
    """The vertices of a regular polygon on the unit circle; their number is a power of two."""
    points = np.array([(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)])
    while len(points) < vertices:
        halfway = points + np.roll(points, -1, axis=0)
        halfway /= np.sqrt(halfway[:, :1] ** 2 + halfway[:, 1:] ** 2)
        points = np.stack([points, halfway], axis=1).reshape(-1, 2)
    return points


def _loop(*points: tuple[float, float]) -> Loop:
    return np.array(points, dtype=np.float64)


def _turned(count: int, cosine: float, *radii: float) -> Loop:
    """Points on the radii in turn, one every ``1 / count`` of a turn, the first one on top."""
    sine = math.sqrt(1.0 - cosine * cosine)
    points, x, y = [], 0.0, -1.0
    for i in range(count):
        points.append((radii[i % len(radii)] * x, radii[i % len(radii)] * y))
        x, y = x * cosine - y * sine, x * sine + y * cosine
    return _loop(*points)


def _bend(start: tuple[float, float], knee: tuple[float, float], end: tuple[float, float]) -> Loop:
    """A quadratic Bézier curve without its end."""
    t = np.arange(12)[:, None] / 12
    return np.square(1 - t) * _loop(start) + 2 * t * (1 - t) * _loop(knee) + t * t * _loop(end)


def _mirrored(right: Loop) -> Loop:
    """A loop from its right half, whose ends lie on the vertical axis."""
    return np.concatenate([right, (right * (-1.0, 1.0))[-2:0:-1]])


def _crescent() -> Loop:
    outer, inner = circle(), circle() * 0.8 + (0.45, 0.0)
    tip = (0.625, math.sqrt(1 - 0.625**2))  # where the two circles meet
    outer = np.roll(outer, -8, axis=0)  # from the lower right on, the long way round
    inner = np.roll(inner, -8, axis=0)
    return np.concatenate(
        [
            _loop(tip),
            outer[outer[:, 0] < tip[0]],
            _loop((tip[0], -tip[1])),
            inner[inner[:, 0] < tip[0]][::-1],
        ]
    )


def _heart() -> Loop:
    lobe = circle()[CIRCLE_VERTICES // 2 :] * 0.5 + (0.5, -0.35)  # its upper half
    side = _bend((1.0, -0.35), (1.0, 0.2), (0.0, 0.9))
    return _mirrored(np.concatenate([lobe, side, _loop((0.0, 0.9))]))


def _drop() -> Loop:
    side = _bend((0.0, -1.0), (0.66, 0.0), (0.66, 0.34))
    bowl = circle()[: CIRCLE_VERTICES // 4 + 1] * 0.66 + (0.0, 0.34)
    return _mirrored(np.concatenate([side, bowl]))


#: Half the golden section.
_COS_36 = (1 + math.sqrt(5)) / 4

#: The loops of each shape within [-1, 1]; a hole turns the other way.
LOOPS: dict[str, tuple[Loop, ...]] = {
    "disc": (circle(),),
    "ring": (circle(), circle()[::-1] * 0.58),
    "square": (_loop((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),),
    "triangle": (_turned(3, -0.5, 1.0),),
    "hexagon": (_turned(6, 0.5, 1.0),),
    "star": (_turned(10, _COS_36, 1.0, 0.42),),
    "cross": (
        _loop(
            (-0.28, -1.0), (0.28, -1.0), (0.28, -0.28), (1.0, -0.28), (1.0, 0.28), (0.28, 0.28),
            (0.28, 1.0), (-0.28, 1.0), (-0.28, 0.28), (-1.0, 0.28), (-1.0, -0.28), (-0.28, -0.28),
        ),
    ),
    "crescent": (_crescent(),),
    "arrow": (
        _loop(
            (-1.0, -0.2), (0.15, -0.2), (0.15, -0.6), (1.0, 0.0),
            (0.15, 0.6), (0.15, 0.2), (-1.0, 0.2),
        ),
    ),
    "heart": (_heart(),),
    "drop": (_drop(),),
    "bolt": (
        _loop((0.2, -1.0), (-0.55, 0.15), (-0.05, 0.1), (-0.25, 1.0), (0.55, -0.2), (0.05, -0.15)),
    ),
}  # fmt: skip

SHAPES = tuple(LOOPS)


def edges_of(*loops: Loop) -> Edges:
    """The edges of closed loops, each with its start and its end."""
    return np.concatenate([np.stack([loop, np.roll(loop, -1, 0)], axis=1) for loop in loops])


@cache
def outline_edges() -> Float64[np.ndarray, "shapes edges 2 2"]:
    """The edges of every shape, filled up to one number with edges of no length."""
    outlines = [edges_of(*loops) for loops in LOOPS.values()]
    longest = max(len(edges) for edges in outlines)
    padded = np.stack([np.broadcast_to(edges[0, 0], (longest, 2, 2)) for edges in outlines])
    for row, edges in zip(padded, outlines, strict=True):
        row[: len(edges)] = edges
    return padded


def encloses(
    edges: Float64[np.ndarray, "... edges 2 2"], points: Float64[np.ndarray, "... points 2"]
) -> Bool[np.ndarray, "... points"]:
    """Whether the edges of closed loops go round each point (a hole takes its turn back)."""
    start, end = edges[..., None, :, 0, :], edges[..., None, :, 1, :]
    point = points[..., :, None, :]
    across = end - start
    side = across[..., 0] * (point - start)[..., 1] - across[..., 1] * (point - start)[..., 0]
    below, above = start[..., 1] <= point[..., 1], end[..., 1] > point[..., 1]
    turns = (below & above & (side > 0)).astype(int) - (~below & ~above & (side < 0)).astype(int)
    return turns.sum(-1) != 0


#: Cells of the table that says which parts of the square [-1, 1] belong to a shape.
INSIDE_CELLS = 64


def cell_centres(cells: int) -> Float64[np.ndarray, "points 2"]:
    """The centres of the cells of the square [-1, 1]."""
    middles = (2.0 * np.arange(cells) + 1.0) / cells - 1.0
    return np.stack([np.tile(middles, cells), np.repeat(middles, cells)], axis=1)


@cache
def inside_table() -> Bool[np.ndarray, "shapes rows columns"]:
    """Which cells of the square [-1, 1] lie inside each shape, and a margin of one cell."""
    centres = cell_centres(INSIDE_CELLS)
    inside = [encloses(edges, centres) for edges in outline_edges()]
    table = np.stack(inside).reshape(-1, INSIDE_CELLS, INSIDE_CELLS)
    return np.pad(table, ((0, 0), (1, 1), (1, 1)))


def look_up_inside(
    shapes: Int64[np.ndarray, " n"], points: Float64[np.ndarray, "n points 2"]
) -> Bool[np.ndarray, "n points"]:
    """Whether points, in the coordinates of each shape, lie inside it, to the nearest cell."""
    cells = np.floor((points + 1.0) * (INSIDE_CELLS / 2)) + 1.0
    column, row = np.moveaxis(cells.clip(0, INSIDE_CELLS + 1).astype(np.int64), -1, 0)
    inside: np.ndarray = inside_table()[shapes[:, None], row, column]
    return inside


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
