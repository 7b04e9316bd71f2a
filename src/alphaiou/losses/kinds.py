"""The kinds: each a similarity S and penalties Pᵢ of one box pair, a few lines under its equation.

To add a loss, write one function from a ``PairGeometry`` to ``Terms`` and give it a row in
``KINDS`` (or pass the function itself as ``kind``). Everything else reads that row. Lengths come in
units of the pair's hull, per axis; keep every penalty a ratio, take no powers (the formula does),
and divide by one box's side with ``bounded_ratio`` only. A parameter is a keyword argument with a
default; callers set it with ``functools.partial``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor

from alphaiou._shapes import Float
from alphaiou.boxes import PairFormat, PairGeometry, check_choice, norm_squared
from alphaiou.losses import gaussians
from alphaiou.numerics import PENALTY_CEILING, bounded_ratio, check_number, length, safe_floor
from alphaiou.oriented import Geometry, OrientedGeometry, geometry_type

#: PIoU's exponential is 0 long before an edge lies this many target sides away.
GAP_CEILING = 1e3


@dataclass(frozen=True)
class Terms:
    """The terms of the formula ``weight · (1 − S^α₁ + Σᵢ Pᵢ^α₂)``."""

    similarity: Float[Tensor, "*batch"]
    penalties: tuple[Float[Tensor, "*batch"], ...] = ()
    weight: Float[Tensor, "*batch"] | None = None


TermsFunction = Callable[[Any], Terms]


class ResolvedKind(NamedTuple):
    """A kind with its parameter, as the formula and the kernels take it."""

    terms: TermsFunction
    #: The name of the kernel; ``None`` without one.
    kernel: str | None = None
    #: The parameter of the kernel.
    number: float = 0.0
    #: The name of the kind, and its parameter as it was given, if it was: a number or a size.
    name: str = ""
    parameter: tuple[float, ...] = ()
    #: What the kind can read; a function of your own reads what it reads.
    geometries: tuple[type[Geometry], ...] = (PairGeometry, OrientedGeometry)


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of loss: all that the package knows of it, except the code of its kernel.

    It can be called like its ``terms`` and passed as ``kind``.

    Attributes:
        name: The name in calls, commands and records.
        title: The name in tables and figures, at α = 1.
        terms: The function from the geometry of box pairs to the terms.
        similarity: S as text.
        penalties: Each penalty as text, with a few words on what it measures.
        kernel: The name of its fused kernel in ``kernels/analytic.py``; ``None`` without one.
        number: Checks the parameter and returns the number that the kernel takes in its place.
        variant: The kernel for other values of the parameter than the default, if that is another.
        geometries: The geometries that ``terms`` reads: of axis-aligned boxes, oriented ones, both.
        parameters: The keyword arguments of ``terms`` with their defaults.
        resolved: The kind with its default parameter.
    """

    name: str
    title: str = field(repr=False)
    terms: Callable[..., Terms] = field(repr=False)
    similarity: str = field(default="IoU", repr=False)
    penalties: Mapping[str, str] = field(default_factory=dict, repr=False)
    kernel: str | None = field(default=None, repr=False)
    number: Callable[[Any], float] | None = field(default=None, repr=False)
    variant: str | None = field(default=None, repr=False)
    geometries: tuple[type[Geometry], ...] = field(default=(PairGeometry,), repr=False)
    parameters: Mapping[str, Any] = field(init=False, repr=False)
    resolved: ResolvedKind = field(init=False, repr=False)

    def __post_init__(self) -> None:
        options = signature(self.terms).parameters.values()
        defaults = {one.name: one.default for one in options if one.kind is one.KEYWORD_ONLY}
        if self.kernel is not None and len(defaults) != (self.number is not None):
            raise ValueError(
                f"kind {self.name!r}: a kernel takes at most one parameter, which number checks; "
                f"got {', '.join(defaults) or 'none'}"
            )
        object.__setattr__(self, "parameters", defaults)
        number = 0.0 if self.number is None else self.number(*defaults.values())
        resolved = ResolvedKind(
            self.terms, self.kernel, number, self.name, geometries=self.geometries
        )
        object.__setattr__(self, "resolved", resolved)

    def __call__(self, pair: Geometry, **options: Any) -> Terms:  # noqa: ANN401
        """The terms of box pairs."""
        return self.terms(pair, **options)

    def with_options(self, options: Mapping[str, Any]) -> ResolvedKind:
        """The kind with some of its parameters set."""
        if self.kernel is None:
            return ResolvedKind(partial(self.terms, **options), geometries=self.geometries)
        for option in options:
            if option not in self.parameters:
                raise TypeError(f"{self.name}() got an unexpected keyword argument {option!r}")
        ((option, default),) = self.parameters.items()
        value = options.get(option, default)
        if value is default or self.number is None:
            return self.resolved
        number = self.number(value)
        changed = self.variant is not None and number != self.resolved.number
        return ResolvedKind(
            partial(self.terms, **options),
            self.variant if changed else self.kernel,
            number,
            self.name,
            tuple(map(float, value)) if isinstance(value, Iterable) else (number,),
            self.geometries,
        )


def iou(pair: Geometry) -> Terms:
    """IoU: no penalty."""
    return Terms(pair.iou)


def giou(pair: Geometry) -> Terms:
    """GIoU: ``|C ∖ (B ∪ Bᵍ)| / |C|``, the empty share of the hull."""
    return Terms(pair.iou, (pair.hull_gap(),))


def diou(pair: Geometry) -> Terms:
    """DIoU: ``ρ²/c²``, the distance of the centres."""
    return Terms(pair.iou, (pair.squared_distance(pair.center),))


def ciou(pair: Geometry) -> Terms:
    """CIoU: DIoU and ``βv``, the difference of the aspect ratios (and angles, where boxes have)."""
    return Terms(pair.iou, (*diou(pair).penalties, pair.aspect()))


def eiou(pair: PairGeometry) -> Terms:
    """EIoU: DIoU, ``((w − wᵍ)/W)²`` and ``((h − hᵍ)/H)²``."""
    width, height = (pair.growth / pair.hull).square().unbind(-1)
    return Terms(pair.iou, (*diou(pair).penalties, width, height))


def siou(pair: PairGeometry) -> Terms:
    """SIoU: ``(Δ + Ω)/2``, the distance sharpened by its angle, and the difference of the sides.

    ``Δ = Σ 1 − exp(−γ(δ/W)²)``, ``γ = 2 − Λ``, ``Λ = sin 2θ = 2|δx||δy|/ρ²``.
    """
    x, y = (pair.center * pair.shape).abs().unbind(-1)
    # Centres that coincide have no angle; there Δ is 0 whatever γ is, and its slope with it.
    gamma = 2.0 - 2.0 * x * y / (x.square() + y.square()).clamp(min=1e-30)
    distance = -torch.expm1(-gamma[..., None] * (pair.center / pair.hull).square()).sum(-1)
    return Terms(pair.iou, (0.5 * (distance + _side_mismatch(pair, torch.ones_like(pair.pred))),))


def mpdiou(pair: PairGeometry, *, image_size: tuple[float, float] | None = None) -> Terms:
    """MPDIoU: ``d₁²/D²`` and ``d₂²/D²``, how far the corners are apart.

    ``image_size`` is (height, width) in the boxes' units; without it D is the diagonal of the hull.
    """
    if image_size is None:
        return Terms(pair.iou, tuple(map(pair.squared_distance, (pair.low, pair.high))))
    diagonal = image_diagonal(image_size)
    # From the corners as they came: by way of hull units the slope of a distant box would overflow.
    gaps = ((a - b) / diagonal for a, b in zip(*pair.corners, strict=True))
    return Terms(pair.iou, tuple(norm_squared(gap).clamp(max=PENALTY_CEILING) for gap in gaps))


def image_diagonal(image_size: tuple[float, float] | None) -> float:
    """The diagonal of an image given as (height, width); 0 without one."""
    if image_size is None:
        return 0.0
    height, width = image_size
    if not (0 < height < math.inf and 0 < width < math.inf):
        raise ValueError(f"image_size must be two finite numbers > 0, got {image_size!r}")
    return math.hypot(height, width)


def shape_iou(pair: PairGeometry, *, scale: float = 0.0) -> Terms:
    """Shape-IoU: distance and side mismatch, each axis weighted by the other side of the target.

    ``ww = 2wᵍˢ/(wᵍˢ + hᵍˢ)`` weighs y, ``hh`` weighs x; both are held constant in the gradient.
    ``scale=0`` is the default of the authors' code: both weights are 1.
    """
    shape_scale(scale)
    sides = (pair.target * pair.shape).detach()
    longer = sides.amax(-1, keepdim=True)
    # Relative to the longer side, a point counting as a square: the shares never become 0/0.
    sides = (sides / longer.masked_fill(longer == 0, 1.0) + (longer == 0)).pow(scale)
    across = (2.0 * sides / sides.sum(-1, keepdim=True)).flip(-1)
    distance = pair.squared_distance(pair.center * across.sqrt())
    return Terms(pair.iou, (distance, 0.5 * _side_mismatch(pair, across)))


def shape_scale(scale: float) -> float:
    """The power of Shape-IoU's weights, 0 or more."""
    check_number("scale", scale, strict=False)
    return float(scale)


def piou(pair: PairGeometry, *, version: int = 1) -> Terms:
    """Powerful-IoU: ``1 − exp(−P²)``, P the mean edge gap as a share of the target's side.

    ``version=2`` adds the non-monotonic weight ``3u·exp(−u²)``, ``u = 1.3·exp(−P)``. The weight is
    held constant in the gradient; the authors' code differentiates it.
    """
    piou_version(version)
    shift = pair.low.abs() + pair.high.abs()
    far = shift > GAP_CEILING * pair.target
    gaps = bounded_ratio(shift.masked_fill(far, GAP_CEILING), pair.target.masked_fill(far, 1.0))
    mean_gap = 0.25 * gaps.sum(-1)
    u = 1.3 * torch.exp(-mean_gap.detach())
    weight = 3.0 * u * torch.exp(-u.square()) if version == 2 else None
    return Terms(pair.iou, (-torch.expm1(-mean_gap.square()),), weight)


def piou_version(version: int | float) -> float:
    """The version of Powerful-IoU, 1 or 2."""
    if version not in (1, 2):
        raise ValueError(f"version must be 1 or 2, got {version!r}")
    return float(version)


def nwd(pair: PairGeometry, *, constant: float = 12.8) -> Terms:
    """NWD: ``S = exp(−W₂/constant)``, W₂ the distance of the boxes as Gaussians, in pixels.

    ``W₂² = ρ² + ¼(w − wᵍ)² + ¼(h − hᵍ)²``.
    """
    nwd_constant(constant)
    parts = torch.cat((pair.center * pair.shape, 0.5 * pair.growth * pair.shape), dim=-1)
    return Terms(torch.exp(-length(parts) * (pair.unit.amax(-1) / constant)))


def nwd_constant(constant: float) -> float:
    """NWD's unit of length, more than 0."""
    check_number("constant", constant)
    return float(constant)


def biou(pair: PairGeometry, *, beta: float = 0.2) -> Terms:
    """Bounded-IoU: the Huber loss of ``1 − bound`` for x, y, w, h; S plays no part.

    A bound is the best IoU of its coordinate: ``(wᵍ − 2|δx|)/(wᵍ + 2|δx|)``, ``min(w/wᵍ, wᵍ/w)``.
    """
    biou_beta(beta)
    offset = 2.0 * pair.center.abs()
    place = bounded_ratio(2.0 * offset, pair.target + offset)
    misfits = torch.cat((torch.where(place > 1.0, 1.0, place), _side_difference(pair)), dim=-1)
    bent = torch.where(misfits < beta, misfits.square() / (2 * beta), misfits - 0.5 * beta)
    return Terms(torch.ones_like(pair.iou), bent.unbind(-1))


def biou_beta(beta: float) -> float:
    """Where Bounded-IoU's Huber loss becomes linear, more than 0."""
    check_number("beta", beta)
    return float(beta)


def interpiou(pair: PairGeometry, *, coefficient: float = 0.98) -> Terms:
    """InterpIoU: ``1 − IoU(B′, Bᵍ)``, ``B′ = (1 − c)·B + c·Bᵍ``, a box that has left B for Bᵍ.

    ``coefficient`` is c, from 0 to below 1: B′ meets the target where B does not.
    """
    keep = torch.full_like(pair.iou, 1.0 - interpolation(coefficient))
    return Terms(pair.iou, (_interpolated_misfit(pair, keep),))


def d_interpiou(pair: PairGeometry, *, most: float = 0.99) -> Terms:
    """Dynamic InterpIoU: c is 1 − IoU between 0.6 and ``most``, held constant in the gradient."""
    keep = pair.iou.detach().clamp(max=0.4).clamp(min=1.0 - interpolation(most))
    return Terms(pair.iou, (_interpolated_misfit(pair, keep),))


def interpolation(share: float) -> float:
    """InterpIoU's c or the most that it may be, from 0 to below 1."""
    check_number("interpolation", share, strict=False)
    if share >= 1:
        raise ValueError(f"interpolation must lie below 1, got {share!r}")
    return float(share)


def _interpolated_misfit(pair: PairGeometry, keep: Tensor) -> Tensor:
    """``1 − IoU`` of target and interpolated box, as a sum of what only one of them covers."""
    low, high = keep[..., None] * pair.low, keep[..., None] * pair.high
    extra, missed = (-low).relu() + high.relu(), low.relu() + (-high).relu()
    overlap = pair.target - missed
    (x, y), (extra_x, extra_y), (missed_x, missed_y) = (
        sides.unbind(-1) for sides in (overlap, extra, missed)
    )
    alone = extra_x * (y + extra_y) + x * extra_y + missed_x * (y + missed_y) + x * missed_y
    union = x * y + alone
    nothing = (overlap <= 0).any(-1) | (union < safe_floor(union.dtype))
    return torch.where(nothing, 1.0, alone / union.masked_fill(nothing, 1.0))


def probiou(pair: OrientedGeometry) -> Terms:
    """ProbIoU: S is one minus the Hellinger distance of the boxes as Gaussians."""
    return Terms(gaussians.hellinger(pair))


def kld(pair: OrientedGeometry) -> Terms:
    """KLD: ``S = 1/(1 + ln(1 + √D))``, D the divergence of the target from the prediction."""
    return Terms(gaussians.of_distance(gaussians.kullback_leibler(pair)))


def gwd(pair: OrientedGeometry) -> Terms:
    """GWD: ``S = 1/(1 + ln(1 + W₂))``, W₂ the Wasserstein distance over ``⁴√(whwᵍhᵍ)``."""
    return Terms(gaussians.of_distance(gaussians.wasserstein(pair)))


def kfiou(pair: OrientedGeometry) -> Terms:
    """KFIoU: ``S = 3·KFIoU``, the overlap of Gaussians put in one place, and DIoU's distance."""
    return Terms(gaussians.kalman_overlap(pair), (pair.squared_distance(pair.center),))


def _side_difference(pair: PairGeometry) -> Tensor:
    """``|w − wᵍ| / max(w, wᵍ)`` per axis."""
    return bounded_ratio(pair.growth.abs(), torch.maximum(pair.pred, pair.target))


def _side_mismatch(pair: PairGeometry, weight: Tensor) -> Tensor:
    """``Ω = Σ (1 − exp(−weight·|w − wᵍ|/max(w, wᵍ)))⁴``."""
    return (-torch.expm1(-weight * _side_difference(pair))).pow(4).sum(-1)


_DISTANCE = {"ρ²/c²": "distance of the centres"}
_EITHER = (PairGeometry, OrientedGeometry)
_ORIENTED = (OrientedGeometry,)

#: All kinds by name, in the order of tables and menus.
KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("iou", "IoU", iou, kernel="iou", geometries=_EITHER),
        Kind(
            "giou",
            "GIoU",
            giou,
            penalties={"|C ∖ (B ∪ Bᵍ)| / |C|": "empty share of the hull"},
            kernel="giou",
            geometries=_EITHER,
        ),
        Kind("diou", "DIoU", diou, penalties=_DISTANCE, kernel="diou", geometries=_EITHER),
        Kind(
            "ciou",
            "CIoU",
            ciou,
            penalties=_DISTANCE | {"βv": "difference of the aspect ratios"},
            kernel="ciou",
            geometries=_EITHER,
        ),
        Kind(
            "eiou",
            "EIoU",
            eiou,
            penalties=_DISTANCE
            | {
                "((w − wᵍ)/W)²": "difference of the widths",
                "((h − hᵍ)/H)²": "difference of the heights",
            },
            kernel="eiou",
        ),
        Kind(
            "siou",
            "SIoU",
            siou,
            penalties={"(Δ + Ω)/2": "angle, distance and sides"},
            kernel="siou",
        ),
        Kind(
            "mpdiou",
            "MPDIoU",
            mpdiou,
            penalties={"d₁²/D²": "top-left corners", "d₂²/D²": "bottom-right corners"},
            kernel="mpdiou",
            number=image_diagonal,
            variant="mpdiou_in_image",
        ),
        Kind(
            "shape_iou",
            "Shape-IoU",
            shape_iou,
            penalties={
                "(hh·δx² + ww·δy²)/c²": "distance, weighted by the target's shape",
                "Ω/2": "difference of the sides",
            },
            kernel="shape_iou",
            number=shape_scale,
        ),
        Kind(
            "piou",
            "PIoU",
            piou,
            penalties={"1 − exp(−P²)": "gaps of the edges"},
            kernel="piou",
            number=piou_version,
            variant="piou_v2",
        ),
        Kind(
            "nwd",
            "NWD",
            nwd,
            similarity="exp(−W₂/constant)",
            kernel="nwd",
            number=nwd_constant,
        ),
        Kind(
            "biou",
            "BIoU",
            biou,
            similarity="1",
            penalties={
                "huber(1 − bound_x)": "place along x",
                "huber(1 − bound_y)": "place along y",
                "huber(1 − bound_w)": "width",
                "huber(1 − bound_h)": "height",
            },
            kernel="biou",
            number=biou_beta,
        ),
        *(
            Kind(
                name,
                title,
                terms,
                penalties={"1 − IoU(B′, Bᵍ)": "misfit of a box on the way to the target"},
                kernel=name,
                number=interpolation,
            )
            for name, title, terms in (
                ("interpiou", "InterpIoU", interpiou),
                ("d_interpiou", "D-InterpIoU", d_interpiou),
            )
        ),
        Kind("probiou", "ProbIoU", probiou, "1 − √(1 − e^(−B))", geometries=_ORIENTED),
        Kind("kld", "KLD", kld, "1/(1 + ln(1 + √D))", geometries=_ORIENTED),
        Kind("gwd", "GWD", gwd, "1/(1 + ln(1 + W₂))", geometries=_ORIENTED),
        Kind("kfiou", "KFIoU", kfiou, "3·KFIoU", _DISTANCE, geometries=_ORIENTED),
    )
}


def kinds_of(geometry: type[Geometry] = PairGeometry) -> tuple[str, ...]:
    """The names of the kinds that read a geometry: of axis-aligned boxes, or of oriented ones.

    Examples:
        >>> kinds_of(OrientedGeometry)
        ('iou', 'giou', 'diou', 'ciou', 'probiou', 'kld', 'gwd', 'kfiou')
    """
    kinds = KINDS.items()
    return tuple(
        name for name, kind in kinds if geometry in getattr(kind, "geometries", (PairGeometry,))
    )


def check_geometry(kind: ResolvedKind, box_format: PairFormat) -> None:
    """Reject a kind that cannot read boxes in this format."""
    geometry = geometry_type(box_format)
    if geometry not in kind.geometries:
        sort = "oriented" if geometry is PairGeometry else "axis-aligned"
        raise ValueError(
            f"kind {kind.name!r} is for {sort} boxes; box_format={box_format!r} takes "
            f"{', '.join(kinds_of(geometry))}"
        )


def kind_title(name: str) -> str:
    """The name of a kind for tables and figures; other names are returned as they are.

    Examples:
        >>> kind_title("shape_iou"), kind_title("l1")
        ('Shape-IoU', 'l1')
    """
    kind = KINDS.get(name)
    return kind.title if isinstance(kind, Kind) else name


def resolve_kind(kind: str | TermsFunction) -> ResolvedKind:
    """Look up a kind by name or function and check its parameter, which a ``partial`` sets.

    A function that is not in ``KINDS`` is returned as it is, without a kernel.
    """
    function: Any = kind
    if not callable(kind):
        check_choice("kind", kind, tuple(KINDS))
        function = KINDS[kind]
        if isinstance(function, Kind):
            return function.resolved
    options: dict[str, Any] = {}
    if isinstance(function, partial) and not function.args:
        function, options = function.func, function.keywords
    terms = function.terms if isinstance(function, Kind) else function
    for known in KINDS.values():
        if isinstance(known, Kind) and known.terms is terms:
            return known.with_options(options) if options else known.resolved
    return ResolvedKind(partial(terms, **options) if options else terms)


def kind_from_numbers(name: str, parameter: Sequence[float]) -> ResolvedKind:
    """The kind that ``resolve_kind`` gave this name and parameter."""
    kind = KINDS[name]
    if not parameter:
        return kind.resolved
    (option,) = kind.parameters
    return kind.with_options({option: parameter[0] if len(parameter) == 1 else tuple(parameter)})
