"""Every loss under test beside the oracle that says what it should be."""

from functools import partial
from typing import Any, NamedTuple

from alphaiou.losses import kinds, modifiers
from tests import oracle


class Twin(NamedTuple):
    """The same thing twice: as `alpha_iou_loss` takes it, and as the oracle has it."""

    ours: Any
    oracle: Any


NAMES = kinds.kinds_of()
_IMAGE = {"image_size": (1.5, 2.0)}
_VARIANTS = {
    "mpdiou_image": ("mpdiou", _IMAGE),
    "nwd_constant": ("nwd", {"constant": 0.5}),
    "shape_iou_scale": ("shape_iou", {"scale": 0.5}),
    "shape_iou_scale_1": ("shape_iou", {"scale": 1.0}),
    "piou_v2": ("piou", {"version": 2}),
    "biou_beta": ("biou", {"beta": 0.5}),
    "interpiou_half": ("interpiou", {"coefficient": 0.5}),
    "d_interpiou_most": ("d_interpiou", {"most": 0.7}),
}
KINDS = {name: Twin(name, getattr(oracle, name)) for name in NAMES} | {
    label: Twin(partial(getattr(kinds, name), **options), partial(getattr(oracle, name), **options))
    for label, (name, options) in _VARIANTS.items()
}
IN_PIXELS = {"nwd", "nwd_constant", "mpdiou_image"}
SCALE_FREE = tuple(label for label in KINDS if label not in IN_PIXELS)

_MODIFIED = {
    "inner_wide": ("inner", {"ratio": 1.25}),
    "focaler_band": ("focaler", {"lower": 0.1, "upper": 0.6}),
    "rectified_shares": ("rectified", {"powers": (0.5, 2.0, 4.0), "shares": (0.5, 0.25, 0.25)}),
    "focal_gamma": ("focal", {"gamma": 2.0}),
}
MODIFIERS = {
    name: Twin((name,), (getattr(oracle, name),))
    for name in ("inner", "focaler", "rectified", "focal", "wise")
} | {
    label: Twin(
        (partial(getattr(modifiers, name), **options),),
        (partial(getattr(oracle, name), **options),),
    )
    for label, (name, options) in _MODIFIED.items()
}


def chain(*labels: str) -> Twin:
    """Several modifiers in the order given."""
    twins = [MODIFIERS[label] for label in labels]
    return Twin(sum((t.ours for t in twins), ()), sum((t.oracle for t in twins), ()))


CHAINS = MODIFIERS | {
    " ".join(labels): chain(*labels)
    for labels in (
        ("inner", "focaler"),
        ("focaler", "inner"),
        ("inner", "focaler", "rectified", "focal", "wise"),
        ("focal", "focal_gamma"),
    )
}
