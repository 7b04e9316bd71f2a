"""The page docs/mathematics.md, one pair at a time, in plain Python.

Corners are exact fractions, so areas, ratios and differences carry no rounding at any scale; only
the transcendental functions are float64. Nothing here knows torch or the code under test.

`held` is the pair at which the pieces "held constant in the gradient" are computed: the pair itself
for a value, the unperturbed pair when `gradient` takes finite differences.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import starmap
from typing import NamedTuple

TINY = 2.0**-126  # the smallest normal fp32 number: below it the logarithm stands still
PENALTY_CAP = 1000.0


class Terms(NamedTuple):
    """What a kind makes of a pair: a similarity, penalties, a weight."""

    similarity: float
    penalties: tuple[float, ...] = ()
    weight: float = 1.0


class Side(NamedTuple):
    """One axis of a pair: prediction from `a` to `b`, target from `c` to `d`."""

    a: Fraction
    b: Fraction
    c: Fraction
    d: Fraction

    @property
    def pred(self) -> Fraction:
        return self.b - self.a

    @property
    def target(self) -> Fraction:
        return self.d - self.c

    @property
    def hull(self) -> Fraction:
        return max(self.b, self.d) - min(self.a, self.c)

    @property
    def overlap(self) -> Fraction:
        return max(Fraction(0), min(self.b, self.d) - max(self.a, self.c))

    @property
    def offset(self) -> Fraction:
        """From the target's centre to the prediction's."""
        return (self.a + self.b - self.c - self.d) / 2

    @property
    def gap(self) -> Fraction:
        """How far the lengths differ, as a part of the longer one."""
        return ratio(abs(self.pred - self.target), max(self.pred, self.target))

    def scaled(self, factor: float) -> "Side":
        """Both intervals about their own centres."""
        return Side(*stretch(self.a, self.b, factor), *stretch(self.c, self.d, factor))


class Pair(NamedTuple):
    """A pair of boxes, its corners put in order by convention 1."""

    x: Side
    y: Side

    @property
    def axes(self) -> list[Side]:
        """The axes that count: convention 2 leaves out one along which nothing extends."""
        return [side for side in self if side.hull > 0]

    @property
    def rho2(self) -> Fraction:
        return self.x.offset**2 + self.y.offset**2

    @property
    def diagonal2(self) -> Fraction:
        return self.x.hull**2 + self.y.hull**2


def make_pair(pred: Sequence[float], target: Sequence[float], box_format: str = "xyxy") -> Pair:
    """The geometry of two boxes."""
    x1, y1, x2, y2 = corners(pred, box_format)
    x1g, y1g, x2g, y2g = corners(target, box_format)
    return Pair(Side(*order(x1, x2), *order(x1g, x2g)), Side(*order(y1, y2), *order(y1g, y2g)))


def corners(box: Sequence[float], box_format: str) -> tuple[Fraction, ...]:
    """(x1, y1, x2, y2) of a box in any format."""
    a, b, c, d = map(Fraction, box)
    if box_format == "xywh":
        return a, b, a + c, b + d
    if box_format == "cxcywh":
        return a - c / 2, b - d / 2, a + c / 2, b + d / 2
    return a, b, c, d


def order(first: Fraction, second: Fraction) -> tuple[Fraction, Fraction]:
    """Convention 1: an inverted side is its midpoint."""
    return (first, second) if second >= first else ((first + second) / 2,) * 2


def stretch(first: Fraction, second: Fraction, factor: float) -> tuple[Fraction, Fraction]:
    centre, half = (first + second) / 2, (second - first) / 2 * Fraction(factor)
    return centre - half, centre + half


def ratio(numerator: Fraction, denominator: Fraction) -> Fraction | float:
    """A quotient with 0/0 = 0 and 1/0 infinite."""
    if denominator:
        return numerator / denominator
    return math.inf if numerator else Fraction(0)


def product(factors: Sequence[Fraction]) -> Fraction:
    return math.prod(factors, start=Fraction(1))


def union(pair: Pair) -> Fraction:
    return (
        product([side.pred for side in pair.axes])
        + product([side.target for side in pair.axes])
        - product([side.overlap for side in pair.axes])
    )


def plain_iou(pair: Pair) -> Fraction:
    return Fraction(ratio(product([side.overlap for side in pair.axes]), union(pair)))


def distance(pair: Pair) -> float:
    return float(ratio(pair.rho2, pair.diagonal2))


# --- kinds ------------------------------------------------------------------------------------


def iou(pair: Pair, held: Pair) -> Terms:
    return Terms(float(plain_iou(pair)))


def giou(pair: Pair, held: Pair) -> Terms:
    hull = product([side.hull for side in pair.axes])
    return Terms(float(plain_iou(pair)), (float((hull - union(pair)) / hull),))


def diou(pair: Pair, held: Pair) -> Terms:
    return Terms(float(plain_iou(pair)), (distance(pair),))


def aspect(pair: Pair) -> float:
    def angle(width: Fraction, height: Fraction) -> float:
        return math.atan2(float(width), float(height))

    turn = angle(pair.x.target, pair.y.target) - angle(pair.x.pred, pair.y.pred)
    return 4 / math.pi**2 * turn**2


def ciou(pair: Pair, held: Pair) -> Terms:
    v = aspect(held)
    beta = v / (float(1 - plain_iou(held)) + v) if v else 0.0
    return Terms(float(plain_iou(pair)), (distance(pair), beta * aspect(pair)))


def eiou(pair: Pair, held: Pair) -> Terms:
    sides = [float(ratio(side.pred - side.target, side.hull)) ** 2 for side in pair]
    return Terms(float(plain_iou(pair)), (distance(pair), *sides))


def shape_cost(gaps: Sequence[float]) -> float:
    return sum((-math.expm1(-float(gap))) ** 4 for gap in gaps)


def siou(pair: Pair, held: Pair) -> Terms:
    sine = float(ratio(2 * abs(pair.x.offset) * abs(pair.y.offset), pair.rho2))
    shifts = [float(ratio(side.offset, side.hull)) ** 2 for side in pair]
    delta = sum(-math.expm1(-(2 - sine) * shift) for shift in shifts)
    omega = shape_cost([side.gap for side in pair])
    return Terms(float(plain_iou(pair)), ((delta + omega) / 2,))


def mpdiou(pair: Pair, held: Pair, image_size: tuple[float, float] | None = None) -> Terms:
    diagonal2 = pair.diagonal2
    if image_size is not None:
        diagonal2 = Fraction(image_size[0]) ** 2 + Fraction(image_size[1]) ** 2
    first = (pair.x.a - pair.x.c) ** 2 + (pair.y.a - pair.y.c) ** 2
    second = (pair.x.b - pair.x.d) ** 2 + (pair.y.b - pair.y.d) ** 2
    penalties = (float(ratio(first, diagonal2)), float(ratio(second, diagonal2)))
    return Terms(float(plain_iou(pair)), penalties)


def shape_iou(pair: Pair, held: Pair, scale: float = 0.0) -> Terms:
    # The shares depend on the target's aspect alone; for a point, which has none, they are equal.
    longer = max(pair.x.target, pair.y.target)
    width, height = (float(ratio(side.target, longer)) ** scale if longer else 1.0 for side in pair)
    ww, hh = 2 * width / (width + height), 2 * height / (width + height)
    x2, y2 = (float(ratio(side.offset**2, pair.diagonal2)) for side in pair)
    omega = shape_cost([hh * float(pair.x.gap), ww * float(pair.y.gap)])
    return Terms(float(plain_iou(pair)), (hh * x2 + ww * y2, omega / 2))


def edge_gaps(pair: Pair) -> float:
    gaps = [ratio(abs(s.a - s.c) + abs(s.b - s.d), s.target) for s in pair]
    return float(sum(gaps)) / 4


def piou(pair: Pair, held: Pair, version: int = 1) -> Terms:
    weight = 1.0
    if version == 2:
        u = 1.3 * math.exp(-edge_gaps(held))
        weight = 3 * u * math.exp(-(u**2))
    penalty = -math.expm1(-(min(edge_gaps(pair), 1e3) ** 2))
    return Terms(float(plain_iou(pair)), (penalty,), weight)


def nwd(pair: Pair, held: Pair, constant: float = 12.8) -> Terms:
    squares = pair.rho2 + sum((side.pred - side.target) ** 2 for side in pair) / 4
    return Terms(math.exp(-math.sqrt(float(squares)) / constant))


def huber(z: float, beta: float) -> float:
    return z**2 / (2 * beta) if z < beta else z - beta / 2


def biou(pair: Pair, held: Pair, beta: float = 0.2) -> Terms:
    def place(side: Side) -> float:
        if side.offset == 0:
            return 1.0
        shift = 2 * abs(side.offset)
        return max(0.0, float((side.target - shift) / (side.target + shift)))

    def size(side: Side) -> float:
        return float(1 - side.gap)  # min(w/wᵍ, wᵍ/w), and 1 for two lengths of zero

    bounds = [place(side) for side in pair] + [size(side) for side in pair]
    return Terms(1.0, tuple(huber(1 - bound, beta) for bound in bounds))


def between(side: Side, share: Fraction) -> Side:
    """The prediction moved towards the target by a share of the way."""
    low, high = (p + share * (t - p) for p, t in ((side.a, side.c), (side.b, side.d)))
    return side._replace(a=low, b=high)


def interpiou(pair: Pair, held: Pair, coefficient: float = 0.98) -> Terms:
    moved = Pair(*(between(side, Fraction(coefficient)) for side in pair))
    return Terms(float(plain_iou(pair)), (float(1 - plain_iou(moved)),))


def d_interpiou(pair: Pair, held: Pair, most: float = 0.99) -> Terms:
    share = min(max(1 - plain_iou(held), Fraction(0.6)), Fraction(most))
    moved = Pair(*(between(side, share) for side in pair))
    return Terms(float(plain_iou(pair)), (float(1 - plain_iou(moved)),))


# --- modifiers --------------------------------------------------------------------------------


def inner(terms: Terms, pair: Pair, held: Pair, ratio: float = 0.7) -> Terms:
    scaled = Pair(pair.x.scaled(ratio), pair.y.scaled(ratio))
    return terms._replace(similarity=float(plain_iou(scaled)))


def focaler(terms: Terms, pair: Pair, held: Pair, lower: float = 0.0, upper: float = 0.95) -> Terms:
    similarity = (terms.similarity - lower) / (upper - lower)
    return terms._replace(similarity=min(max(similarity, 0.0), 1.0))


def rectified(
    terms: Terms,
    pair: Pair,
    held: Pair,
    powers: Sequence[float] = (1.0, 3.0),
    shares: Sequence[float] | None = None,
) -> Terms:
    shares = shares or [1 / len(powers)] * len(powers)
    total = sum(
        share * terms.similarity**power for share, power in zip(shares, powers, strict=True)
    )
    return terms._replace(similarity=total)


def focal(terms: Terms, pair: Pair, held: Pair, gamma: float = 0.5) -> Terms:
    return terms._replace(weight=terms.weight * float(plain_iou(held)) ** gamma)


def wise(terms: Terms, pair: Pair, held: Pair) -> Terms:
    return terms._replace(weight=terms.weight * math.exp(float(ratio(pair.rho2, held.diagonal2))))


def wise_v2(terms: Terms, pair: Pair, held: Pair, mean: float = 1.0, gamma: float = 0.5) -> Terms:
    terms = wise(terms, pair, held)
    outlier = float(1 - plain_iou(held)) / mean
    return terms._replace(weight=terms.weight * outlier**gamma)


def wise_v3(
    terms: Terms, pair: Pair, held: Pair, mean: float = 1.0, a: float = 1.9, d: float = 3.0
) -> Terms:
    terms = wise(terms, pair, held)
    outlier = float(1 - plain_iou(held)) / mean
    return terms._replace(weight=terms.weight * outlier / (d * a ** (outlier - d)))


# --- the formula ------------------------------------------------------------------------------


def similarity_term(similarity: float, alpha: float, box_cox: bool) -> float:
    """1 − S^α, its Box-Cox form, or the logarithm they end in."""
    if alpha == 0:
        return -math.log(max(similarity, TINY))
    if box_cox and alpha < 0.1:
        similarity = max(similarity, TINY)
    term = 1.0 if similarity == 0 else -math.expm1(alpha * math.log(similarity))
    return term / alpha if box_cox else term


def loss(
    pred: Sequence[float],
    target: Sequence[float],
    *,
    kind: Callable[..., Terms] = iou,
    alpha: float = 3.0,
    penalty_alpha: float | None = None,
    box_cox: bool = False,
    box_format: str = "xyxy",
    modifiers: Sequence[Callable[..., Terms]] = (),
    weight: float = 1.0,
    held: tuple[Sequence[float], Sequence[float]] | None = None,
) -> float:
    """The loss of one pair."""
    if weight == 0:
        return 0.0
    pair = make_pair(pred, target, box_format)
    held_pair = pair if held is None else make_pair(*held, box_format)
    if all(side.a == side.c and side.b == side.d for side in pair):
        return 0.0
    terms = kind(pair, held_pair)
    for modify in modifiers:
        terms = modify(terms, pair, held_pair)
    if penalty_alpha is None:
        penalty_alpha = alpha or 1.0
    penalty = sum(min(p, PENALTY_CAP) ** penalty_alpha for p in terms.penalties)
    return weight * terms.weight * (similarity_term(terms.similarity, alpha, box_cox) + penalty)


def losses(pred: Sequence[Sequence[float]], target: Sequence[Sequence[float]], **options) -> list:
    """The losses of many pairs."""
    return list(starmap(partial(loss, **options), zip(pred, target, strict=True)))


def gradient(
    pred: Sequence[float], target: Sequence[float], step: float = 1e-4, **options
) -> list[float]:
    """d loss / d pred, by central differences of fourth order, the held pieces held."""
    evaluate = partial(loss, target=target, held=(pred, target), **options)

    def derivative(index: int) -> float:
        def at(offset: float) -> float:
            moved = list(map(Fraction, pred))
            moved[index] += Fraction(offset)
            return evaluate(moved)

        near, far = at(step) - at(-step), at(2 * step) - at(-2 * step)
        return (8 * near - far) / (12 * step)

    return [derivative(index) for index in range(4)]
