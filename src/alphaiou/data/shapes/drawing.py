"""Drawing scenes of shapes: exact antialiasing, textures, clutter, backgrounds, soft focus.

Nothing but additions, multiplications, divisions, roots and comparisons of single numbers: the
pixels are the same bytes on every machine.
"""

from __future__ import annotations

import numpy as np

from alphaiou._shapes import Float32, Float64, UInt8
from alphaiou.data.shapes.outlines import Edges, Plane, circle, coverage, edges_of
from alphaiou.data.shapes.scenes import LEVELS, Level, Scenes

Canvas = Float32[np.ndarray, "3 height width"]
Colour = Float64[np.ndarray, " 3"]

LEAST_CONTRAST = 26.0
CHEVRON = np.array([(-1, -0.6), (0, 0.4), (1, -0.6), (1, -0.2), (0, 0.8), (-1, -0.2)])


def draw(
    scene: Scenes, rng: np.random.Generator, level: Level = LEVELS["full"]
) -> UInt8[np.ndarray, "3 height width"]:
    """Draw the one image of a scene."""
    (width, height) = scene.sizes[0].tolist()
    canvas, ground = _background(rng, width, height)
    unit = max(width, height) / 320
    for _ in range(_below(rng, level.clutter + 1)):
        _draw_clutter(canvas, rng, ground, unit)
    frames = np.concatenate([scene.centres[:, None], scene.axes], axis=1)
    for edges, frame in zip(scene.edges(), frames, strict=True):
        camouflaged = rng.random() < level.camouflage
        colours = _object_colours(rng, ground, camouflaged=camouflaged)
        _draw_object(canvas, rng, edges, frame, colours)
    for _ in range(_below(rng, level.strokes + 1)):
        _fill(canvas, _stroke(rng, width, height, unit), _colour(rng, 0.8))
    for _ in range(_below(rng, level.softness + 1)):
        canvas = _soften(canvas)
    grain = 3.0 + (level.grain - 3.0) * np.square(rng.random())
    canvas += np.float32(grain) * (rng.random(canvas.shape, dtype=np.float32) - np.float32(0.5))
    return np.floor(canvas.clip(0, 255) + np.float32(0.5)).clip(0, 255).astype(np.uint8)


def _fill(
    canvas: Canvas,
    edges: Edges,
    colour: Colour,
    *,
    opacity: float = 1.0,
) -> None:
    rows, columns, area = coverage(edges, canvas.shape[2], canvas.shape[1])
    _blend(canvas[:, rows, columns], area * np.float32(opacity), colour.astype(np.float32))


def _blend(canvas: Canvas, area: Plane, colour: Float32[np.ndarray, " 3"] | Canvas) -> None:
    canvas += area * (colour.reshape(3, *colour.shape[1:] or (1, 1)) - canvas)


def _draw_object(
    canvas: Canvas,
    rng: np.random.Generator,
    edges: Edges,
    frame: Float64[np.ndarray, "3 2"],
    colours: tuple[Colour, Colour],
) -> None:
    """Fill one shape with a texture and, at times, give it an outline inside its border."""
    first, second = colours
    rows, columns, area = coverage(edges, canvas.shape[2], canvas.shape[1])
    window = canvas[:, rows, columns]
    mix = _texture(rng, rows, columns, frame)
    paint = (first[:, None, None] + (second - first)[:, None, None] * mix).astype(np.float32)
    extent = min(area.shape)
    thickness = 1 + _below(rng, 3) if rng.random() < 0.35 and extent >= 16 else 0
    if thickness:
        _blend(window, area, _contrasting(rng, first).astype(np.float32))
        area = _shrink(area, thickness)
    _blend(window, area, paint)


def _object_colours(
    rng: np.random.Generator, ground: Colour, *, camouflaged: bool
) -> tuple[Colour, Colour]:
    """Two colours of a shape, either close to the background or apart from it."""
    if camouflaged:
        first = _contrasting(rng, ground, most=60.0)
        return first, (first + (rng.random(3) - 0.5) * 30.0).clip(0, 255)
    return _contrasting(rng, ground), _colour(rng, 0.9)


def _contrasting(rng: np.random.Generator, other: Colour, most: float = 765.0) -> Colour:
    """A colour that differs enough from another one to be told from it."""
    for _ in range(12):
        colour = _colour(rng, 0.9) if most > 255 else other + (rng.random(3) - 0.5) * 2 * most
        colour = colour.clip(0, 255)
        if np.abs(colour - other).max() >= LEAST_CONTRAST * (3 if most > 255 else 1):
            return colour
    return (other + 128.0) % 256.0


def _texture(
    rng: np.random.Generator,
    rows: slice,
    columns: slice,
    frame: Float64[np.ndarray, "3 2"],
) -> Plane | Float64[np.ndarray, "height width"]:
    """How much of the second colour each pixel has; the frame is the shape's origin and axes."""
    centre, axes = frame[0], frame[1:]
    kind, period = _below(rng, 6), 0.25 + 0.35 * rng.random()
    x = np.arange(columns.start, columns.stop) + 0.5 - centre[0]
    y = (np.arange(rows.start, rows.stop) + 0.5 - centre[1])[:, None]
    (a, b), (c, d) = axes / (axes[0, 0] * axes[1, 1] - axes[0, 1] * axes[1, 0])
    u, v = x * d - y * c, y * a - x * b
    if kind == 0:
        return np.zeros_like(u)
    if kind == 1:
        return (0.5 + 0.5 * u).clip(0, 1)
    if kind == 2:
        return (1.5 * _wave(u, period)).clip(-0.5, 0.5) + 0.5
    if kind == 3:
        return (12.0 * _wave(u, 2 * period) * _wave(v, 2 * period)).clip(-0.5, 0.5) + 0.5
    if kind == 4:
        return (4.0 * (0.06 - _wave(u, period) ** 2 - _wave(v, period) ** 2)).clip(-0.5, 0.5) + 0.5
    return _smooth_noise(rng, u.shape[1], u.shape[0], cell=6)


def _wave(
    u: Float64[np.ndarray, "height width"], period: float
) -> Float64[np.ndarray, "height width"]:
    """A triangle wave between -1/2 and 1/2."""
    phase = u / period
    return np.abs(2 * (phase - np.floor(phase)) - 1) - 0.5


def _background(rng: np.random.Generator, width: int, height: int) -> tuple[Canvas, Colour]:
    """A gradient of two muted colours with smooth noise of two sizes, and its mean colour."""
    first = _colour(rng, 0.5)
    second = (first + (rng.random(3) - 0.5) * 160.0).clip(0, 255)
    direction = circle()[_below(rng, 64)]
    x, y = np.arange(width) / width - 0.5, (np.arange(height) / height - 0.5)[:, None]
    mix = 0.5 + 0.7 * (direction[0] * x + direction[1] * y)
    if rng.random() < 0.25:
        mix = mix + 0.25 * (8.0 * _wave(direction[0] * x + direction[1] * y, 0.2)).clip(-0.5, 0.5)
    mix = mix + 0.6 * rng.random() * (_smooth_noise(rng, width, height, cell=70) - 0.5)
    mix = mix + 0.5 * rng.random() ** 2 * (_smooth_noise(rng, width, height, cell=9) - 0.5)
    spread = (second - first).astype(np.float32)[:, None, None]
    canvas = first.astype(np.float32)[:, None, None] + spread * mix.astype(np.float32)
    return canvas, (first + second) / 2


def _smooth_noise(rng: np.random.Generator, width: int, height: int, cell: int) -> Plane:
    """Random values on a grid, blended in between."""
    grid = rng.random((height // cell + 2, width // cell + 2), dtype=np.float32)
    x, y = np.arange(width, dtype=np.float32) / cell, np.arange(height, dtype=np.float32) / cell
    left, top = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    across, down = x - left.astype(np.float32), (y - top.astype(np.float32))[:, None]
    lines = grid[:, left] + across * (grid[:, left + 1] - grid[:, left])
    return lines[top] + down * (lines[top + 1] - lines[top])


def _draw_clutter(canvas: Canvas, rng: np.random.Generator, ground: Colour, unit: float) -> None:
    """Something that is no object: a line, a blob, or a chevron."""
    height, width = canvas.shape[1:]
    colour = _contrasting(rng, ground, most=90.0) if rng.random() < 0.6 else _colour(rng, 0.7)
    kind = _below(rng, 3)
    if kind == 0:
        edges = _stroke(rng, width, height, unit)
    elif kind == 1:
        edges = _blob(rng, width, height, 12.0 + 60.0 * rng.random() ** 2 * unit)
    else:
        edges = _chevron(rng, width, height, 6.0 + 30.0 * rng.random() * unit)
    _fill(canvas, edges, colour, opacity=0.35 + 0.6 * rng.random())


def _stroke(rng: np.random.Generator, width: int, height: int, unit: float) -> Edges:
    """A thin straight line, a pixel or three wide."""
    start = rng.random(2) * (width, height)
    along = circle()[_below(rng, 64)]
    end = start + along * (20.0 + 200.0 * rng.random()) * unit
    side = np.array([-along[1], along[0]]) * (0.4 + rng.random())
    return edges_of(np.stack([start + side, end + side, end - side, start - side]))


def _blob(rng: np.random.Generator, width: int, height: int, radius: float) -> Edges:
    """A rounded spot without a shape of its own."""
    radii = 0.55 + 0.9 * rng.random(8)
    radii = np.stack([radii, (radii + np.roll(radii, -1)) / 2], axis=1).reshape(-1)
    radii = np.repeat(radii, 2)
    radii = (radii + np.roll(radii, 1) + np.roll(radii, -1)) / 3
    return edges_of(rng.random(2) * (width, height) + circle(32) * radii[:, None] * radius)


def _chevron(rng: np.random.Generator, width: int, height: int, radius: float) -> Edges:
    """Two strokes that meet, turned any way."""
    along = circle()[_below(rng, 64)] * radius
    across = np.array([-along[1], along[0]])
    corners = CHEVRON[:, :1] * along + CHEVRON[:, 1:] * across
    return edges_of(rng.random(2) * (width, height) + corners)


def _soften(canvas: Canvas) -> Canvas:
    """Blur by the weights 1, 2, 1 along both axes."""
    quarter, half = np.float32(0.25), np.float32(0.5)
    around = np.pad(canvas, ((0, 0), (1, 1), (1, 1)), mode="edge")
    lines = quarter * (around[:, :-2] + around[:, 2:]) + half * around[:, 1:-1]
    softer: Canvas = quarter * (lines[:, :, :-2] + lines[:, :, 2:]) + half * lines[:, :, 1:-1]
    return softer


def _shrink(area: Plane, pixels: int) -> Plane:
    """The covered area less a border of some pixels: the least of each pixel and its neighbours."""
    for _ in range(pixels):
        around = np.pad(area, 1)
        across = np.minimum(around[1:-1, :-2], around[1:-1, 2:])
        area = np.minimum(area, np.minimum(across, np.minimum(around[:-2, 1:-1], around[2:, 1:-1])))
    return area


def _colour(rng: np.random.Generator, saturation: float) -> Colour:
    """A colour of any hue; its lightness and saturation vary."""
    hue = 6.0 * rng.random() - np.array([3.0, 2.0, 4.0])
    pure = np.array([np.abs(hue[0]) - 1.0, 2.0 - np.abs(hue[1]), 2.0 - np.abs(hue[2])]).clip(0, 1)
    mixed = 1.0 - saturation * (0.3 + 0.7 * rng.random()) * (1.0 - pure)
    return 255.0 * (0.25 + 0.75 * rng.random()) * mixed


def _below(rng: np.random.Generator, count: int) -> int:
    """An integer from 0 to ``count - 1``."""
    return int(rng.random() * count)
