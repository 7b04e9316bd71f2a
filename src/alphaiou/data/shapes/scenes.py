"""The content of the drawn images: shapes, their boxes, and how much of each is visible.

All numbers of an image come from a counter-based generator whose key is the image, so that any
image can be had in any order and in any process. Many images are laid out at once, as arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.data.shapes.outlines import (
    SHAPES,
    cell_centres,
    circle,
    encloses,
    look_up_inside,
    outline_edges,
)

MAX_OBJECTS = 7
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Level:
    """How hard the images are.

    Attributes:
        shapes: Which shapes there are.
        objects: The most in an image.
        smallest: The least extent of a shape, as a share of the image's longer side.
        clutter: The most pieces of clutter under the objects.
        strokes: The most lines over them.
        camouflage: The share of shapes in about the colour of the background.
        softness: The most passes of blur.
        grain: The most noise of single pixels, in levels of 256.
        stretched: The least and the most by which a shape is stretched along one axis.
        cut: The share of shapes that the border of the image may cut.
        is_oriented: Whether the boxes of objects turn with them.
    """

    shapes: tuple[str, ...] = SHAPES
    objects: int = MAX_OBJECTS
    smallest: float = 0.025
    clutter: int = 8
    strokes: int = 3
    camouflage: float = 0.2
    softness: int = 2
    grain: float = 25.0
    stretched: tuple[float, float] = (1.0, 1.7)
    cut: float = 0.25
    is_oriented: bool = False


_PLAIN = Level(
    shapes=("disc", "triangle", "star", "cross"),
    objects=3,
    smallest=0.16,
    clutter=2,
    strokes=0,
    camouflage=0.0,
    softness=1,
    grain=10.0,
)
LEVELS = {
    "full": Level(),
    "plain": _PLAIN,
    # One class: a small detector finds discs within a minute on two cores, long before it can tell
    # shapes apart.
    "discs": replace(_PLAIN, shapes=("disc",)),
    # Shapes that show which way they point, much longer than wide, and whole: the box of a shape
    # that the border cuts would not follow from what is seen.
    "oriented": replace(
        _PLAIN,
        shapes=("square", "cross", "arrow", "drop"),
        objects=5,
        smallest=0.12,
        stretched=(1.5, 4.0),
        cut=0.0,
        is_oriented=True,
    ),
}

SHORT_SIDES = np.array([1.0, 1.0, 0.9, 0.75, 0.75, 0.66])  # as fractions of the long side
SMALLEST_PIXELS = 8.0
LARGEST = 0.85  # of the short side of the image
NUMBERS_PER_OBJECT = 8


@dataclass(frozen=True)
class Scenes:
    """The shapes of some images; a later shape of an image covers an earlier one.

    Attributes:
        sizes: Width and height of each image.
        image_of_shape: The position of the image of each shape, ascending.
        shapes: Which of ``SHAPES`` each is.
        centres: Where the origin of each outline is.
        axes: Where the unit vectors of each outline go, one row each: the image of the point
            ``(u, v)`` is ``centre + u * axes[0] + v * axes[1]``.
    """

    sizes: Int64[np.ndarray, "images 2"]
    image_of_shape: Int64[np.ndarray, " shapes"]
    shapes: Int64[np.ndarray, " shapes"]
    centres: Float64[np.ndarray, "shapes 2"]
    axes: Float64[np.ndarray, "shapes 2 2"]

    def edges(self) -> Float64[np.ndarray, "shapes edges 2 2"]:
        """The edges of each outline in its image, in pixels."""
        return _apply(self.axes, outline_edges()[self.shapes]) + self.centres[:, None, None]

    def boxes(self) -> Float64[np.ndarray, "shapes 4"]:
        """The extent of the part of each outline that lies in the image, covered or not."""
        edges, past = self.edges(), self.past_border()
        boxes = np.concatenate([edges.min((1, 2)), edges.max((1, 2))], axis=1)
        boxes[past] = _extent_in_image(edges[past], self.sizes[self.image_of_shape[past]])
        return boxes

    def oriented_boxes(self) -> Float64[np.ndarray, "shapes 5"]:
        """The smallest box along the axes of each outline, as ``cxcywhr``; it may be cut."""
        low, _, high, _ = np.moveaxis(_box_corners()[self.shapes], 1, 0)
        centre = self.centres + _apply(self.axes, (low + high) / 2)
        lengths = np.sqrt(np.square(self.axes).sum(-1))
        angle = np.arctan2(self.axes[:, 0, 1], self.axes[:, 0, 0])
        return np.concatenate([centre, (high - low) * lengths, angle[:, None]], axis=1)

    def past_border(self) -> Bool[np.ndarray, " shapes"]:
        """Whether each outline passes the border of its image."""
        corners = self.edges()[:, :, 0]
        outside = (corners < 0) | (corners > self.sizes[self.image_of_shape, None])
        return np.asarray(outside.any((1, 2)))

    def seen(self) -> Float64[np.ndarray, " shapes"]:
        """The share of each shape that is in the image and not covered, by 144 points of it."""
        places = cell_centres(12)
        own = look_up_inside(self.shapes, np.broadcast_to(places, (len(self.shapes), 144, 2)))
        points = _apply(self.axes, places[None]) + self.centres[:, None]
        sizes = self.sizes[self.image_of_shape]
        seen = own & (points >= 0).all(-1) & (points < sizes[:, None]).all(-1)
        for later in range(1, MAX_OBJECTS):
            under = np.flatnonzero(self.image_of_shape[later:] == self.image_of_shape[:-later])
            over = under + later
            local = _invert(self.axes[over], points[under] - self.centres[over, None])
            seen[under] &= ~look_up_inside(self.shapes[over], local)
        return seen.sum(1) / own.sum(1)


def lay_out(
    images: Iterable[int], *, split: str, size: int, seed: int, level: Level = LEVELS["full"]
) -> Scenes:
    """Choose the shapes and boxes of some images of a split."""
    numbers = np.stack([_numbers(image, split, seed) for image in images])
    sizes = _image_sizes(numbers[:, 0], numbers[:, 1], size)
    counts = np.where(numbers[:, 2] < 0.02, 0, 1 + np.floor(numbers[:, 2] * level.objects))
    used = np.arange(MAX_OBJECTS) < counts[:, None]
    of_object = numbers[:, 3:].reshape(-1, MAX_OBJECTS, NUMBERS_PER_OBJECT)

    choice = np.array([SHAPES.index(shape) for shape in level.shapes])
    shapes = choice[np.floor(of_object[..., 0] * len(choice)).astype(np.int64)]
    smallest = max(SMALLEST_PIXELS, level.smallest * size)
    extents = _extents(of_object[..., 1], of_object[..., 2], used, sizes, smallest)
    axes = _axes(shapes, of_object[..., 3], of_object[..., 4], extents, level)
    centres = _centres(of_object[..., 5] < level.cut, of_object[..., 6:], extents, sizes)
    return Scenes(sizes, np.nonzero(used)[0], shapes[used], centres[used], axes[used])


def generator(image: int, split: str, seed: int, *, stream: int) -> np.random.Generator:
    """The generator of one image; the streams of an image, and the images, are independent."""
    key = np.array([seed, image * len(SPLITS) + SPLITS.index(split)], dtype=np.uint64)
    counter = np.array([0, 0, 0, stream], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _numbers(image: int, split: str, seed: int) -> Float64[np.ndarray, " numbers"]:
    return generator(image, split, seed, stream=0).random(3 + MAX_OBJECTS * NUMBERS_PER_OBJECT)


def _image_sizes(
    shape: Float64[np.ndarray, " images"], upright: Float64[np.ndarray, " images"], size: int
) -> Int64[np.ndarray, "images 2"]:
    short = np.floor(size * SHORT_SIDES[np.floor(shape * len(SHORT_SIDES)).astype(int)] + 0.5)
    lying = np.stack([np.full_like(short, size), short], axis=1)
    return np.where(upright[:, None] < 0.3, lying[:, ::-1], lying).astype(np.int64)


def _extents(
    wanted: Float64[np.ndarray, "images objects"],
    raised: Float64[np.ndarray, "images objects"],
    used: Bool[np.ndarray, "images objects"],
    sizes: Int64[np.ndarray, "images 2"],
    smallest: float,
) -> Float64[np.ndarray, "images objects"]:
    """The longer side of each box: of all octaves, more of the upper ones; the large ones below."""
    below = np.argsort(np.where(used, -(wanted + 0.4 * raised), np.inf), axis=1, kind="stable")
    ranked = np.take_along_axis(wanted, below, axis=1)
    ratio = LARGEST * sizes.min(1, keepdims=True) / smallest
    return smallest * _power(ratio, np.sqrt(ranked * np.sqrt(ranked)))


def _power(
    base: Float64[np.ndarray, "images 1"], exponent: Float64[np.ndarray, "images objects"]
) -> Float64[np.ndarray, "images objects"]:
    """``base ** exponent`` for exponents in [0, 1), from square roots alone: its binary digits."""
    power, root, rest = np.ones_like(exponent), base, exponent
    for _ in range(24):
        root, rest = np.sqrt(root), rest * 2
        power = np.where(rest >= 1, power * root, power)
        rest = rest - np.floor(rest)
    return power


def _axes(
    shapes: Int64[np.ndarray, "images objects"],
    stretch: Float64[np.ndarray, "images objects"],
    turn: Float64[np.ndarray, "images objects"],
    extents: Float64[np.ndarray, "images objects"],
    level: Level,
) -> Float64[np.ndarray, "images objects 2 2"]:
    """Stretched along one axis, turned by any angle, scaled to the extent that was asked for."""
    directions = circle(1024)[np.floor(turn * 1024).astype(int)]
    least, most = level.stretched
    long = directions * (least + (most - least) * np.square(stretch))[..., None]
    across = np.stack([-directions[..., 1], directions[..., 0]], axis=-1)
    axes = np.stack([long, across], axis=-2)
    # The extent is that of the box, which turns with the shape or not.
    corners = _box_corners() if level.is_oriented else outline_edges()[:, :, 0]
    points = _apply(axes.reshape(-1, 2, 2), corners[shapes.reshape(-1)])
    widest = (points.max(1) - points.min(1)).max(1).reshape(shapes.shape)
    scaled: np.ndarray = axes * (extents / widest)[..., None, None]
    return scaled


def _box_corners() -> Float64[np.ndarray, "shapes 4 2"]:
    """The corners of the box of each outline before it is stretched and turned."""
    corners = outline_edges()[:, :, 0]
    (left, top), (right, bottom) = corners.min(1).T, corners.max(1).T
    points = ((left, top), (right, top), (right, bottom), (left, bottom))
    return np.array(points).transpose(2, 0, 1)


def _centres(
    may_be_cut: Bool[np.ndarray, "images objects"],
    places: Float64[np.ndarray, "images objects 2"],
    extents: Float64[np.ndarray, "images objects"],
    sizes: Int64[np.ndarray, "images 2"],
) -> Float64[np.ndarray, "images objects 2"]:
    """Anywhere in the image; some may be cut by its border."""
    margin = (extents * np.where(may_be_cut, 0.25, 0.5))[..., None]
    return margin + places * (sizes[:, None] - 2.0 * margin)


def _apply(
    axes: Float64[np.ndarray, "n 2 2"], points: Float64[np.ndarray, "#n *points 2"]
) -> Float64[np.ndarray, "n *points 2"]:
    """Points of outlines put into their images; no matrix product, whose rounding varies."""
    axes = axes.reshape(len(axes), *[1] * (points.ndim - 2), 2, 2)
    return points[..., :1] * axes[..., 0, :] + points[..., 1:] * axes[..., 1, :]


def _invert(
    axes: Float64[np.ndarray, "n 2 2"], offsets: Float64[np.ndarray, "n points 2"]
) -> Float64[np.ndarray, "n points 2"]:
    """Points of images, relative to the centre, in the coordinates of an outline."""
    (a, b), (c, d) = np.moveaxis(axes, 0, -1)[..., None]
    x, y = offsets[..., 0], offsets[..., 1]
    return np.stack([x * d - y * c, y * a - x * b], axis=-1) / (a * d - b * c)[..., None]


def _extent_in_image(
    edges: Float64[np.ndarray, "n edges 2 2"], sizes: Int64[np.ndarray, "n 2"]
) -> Float64[np.ndarray, "n 4"]:
    """The extent of the part of outlines within the image.

    The corners of that part are ends of edges cut at the border, or corners of the image.
    """
    start, across = edges[:, :, 0], edges[:, :, 1] - edges[:, :, 0]
    limit = sizes[:, None].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):  # an edge along an axis never crosses it
        at_low, at_high = -start / across, (limit - start) / across
    along = across == 0
    within = (start >= 0) & (start <= limit)
    enters = np.where(along, np.where(within, 0.0, 2.0), np.minimum(at_low, at_high))
    leaves = np.where(along, 1.0, np.maximum(at_low, at_high))
    first, last = enters.max(-1).clip(min=0.0), leaves.min(-1).clip(max=1.0)
    ends = start[:, :, None] + np.stack([first, last], axis=-1)[..., None] * across[:, :, None]
    ends = ends.clip(0.0, limit[:, :, None]).reshape(len(edges), 2 * edges.shape[1], 2)
    corners = np.array([(0, 0), (0, 1), (1, 0), (1, 1)]) * limit
    points = np.concatenate([ends, corners], axis=1)
    there = np.concatenate([(first <= last).repeat(2, axis=1), encloses(edges, corners)], axis=1)
    low = np.where(there[..., None], points, np.inf).min(1)
    high = np.where(there[..., None], points, -np.inf).max(1)
    return np.concatenate([low, high], axis=1)
