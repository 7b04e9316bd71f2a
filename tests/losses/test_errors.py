"""Wrong arguments, one by one: a ValueError with the argument's name, value and what is allowed."""

import math
from functools import partial

import pytest
import torch

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.losses import kinds, modifiers
from tests.losses.catalogue import NAMES
from tests.strategies import FORMATS

BOXES = torch.tensor([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0], [0.0, 1.0, 2.0, 3.0]])


def raises(call, *parts):
    """The call raises a ValueError whose message holds every part."""
    with pytest.raises(ValueError) as error:  # noqa: PT011 (what it says is checked here)
        call()
    message = str(error.value)
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in: {message}"


CHOICES = {
    "kind": ("ioou", NAMES),
    "box_format": ("xxyy", FORMATS),
    "reduction": ("avg", ("none", "mean", "sum")),
    "backend": ("magic", ("auto",)),
}


@pytest.mark.parametrize("name", CHOICES)
def test_unknown_choices(name):
    value, allowed = CHOICES[name]
    raises(lambda: alpha_iou_loss(BOXES, BOXES, **{name: value}), name, value, *allowed)
    raises(lambda: AlphaIoULoss(**{name: value}), name, value, *allowed)


@pytest.mark.parametrize("value", [None, 3, "IoU", ""])
def test_kinds_that_are_no_kinds(value):
    raises(lambda: alpha_iou_loss(BOXES, BOXES, kind=value), "kind", repr(value), *NAMES)


def test_unknown_modifier():
    allowed = ("inner", "focaler", "rectified", "focal", "wise")
    for bad in (("outer",), ("inner", "outer")):
        raises(
            lambda b=bad: alpha_iou_loss(BOXES, BOXES, modifiers=b), "modifier", "outer", *allowed
        )
        raises(lambda b=bad: AlphaIoULoss(modifiers=b), "modifier", "outer", *allowed, "wise_v3")


@pytest.mark.parametrize("name", ["wise_v2", "wise_v3"])
def test_modifiers_with_state_need_the_module(name):
    raises(
        lambda: alpha_iou_loss(BOXES, BOXES, modifiers=(name,)), "modifiers", name, "AlphaIoULoss"
    )
    assert AlphaIoULoss(modifiers=(name,))(BOXES, BOXES) == 0


@pytest.mark.parametrize("value", [-1.0, -1e-9, -3, math.nan, math.inf, -math.inf])
def test_wrong_alpha(value):
    shown = str(value)
    raises(lambda: alpha_iou_loss(BOXES, BOXES, alpha=value), "alpha", shown, ">= 0")
    raises(lambda: AlphaIoULoss(alpha=value), "alpha", shown, ">= 0")
    raises(lambda: AlphaSchedule(value, 3.0), "start", shown, ">= 0")
    raises(lambda: AlphaSchedule(1.0, value), "end", shown, ">= 0")


@pytest.mark.parametrize("value", [0.0, 0, -1.0, math.nan, math.inf])
def test_wrong_penalty_alpha(value):
    shown = str(value)
    raises(lambda: alpha_iou_loss(BOXES, BOXES, penalty_alpha=value), "penalty_alpha", shown, "> 0")
    raises(lambda: AlphaIoULoss(penalty_alpha=value), "penalty_alpha", shown, "> 0")


@pytest.mark.parametrize("argument", ["alpha", "penalty_alpha"])
def test_alpha_that_does_not_broadcast(argument):
    call = partial(alpha_iou_loss, BOXES, BOXES, **{argument: torch.ones(2)})
    raises(call, argument, "(2,)", "(3,)")


@pytest.mark.parametrize("count", [1, 2])
def test_boxes_that_are_not_aligned(count):
    raises(
        lambda: alpha_iou_loss(BOXES[:count], BOXES), "pred", "target", f"({count}, 4)", "(3, 4)"
    )
    raises(lambda: alpha_iou_loss(BOXES, BOXES[:count]), "(3, 4)", f"({count}, 4)")
    raises(lambda: alpha_iou_loss(BOXES[None], BOXES), "(1, 3, 4)", "(3, 4)")
    raises(lambda: AlphaIoULoss()(BOXES[:count], BOXES), f"({count}, 4)", "(3, 4)")


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (4, 1), (0,), ()])
def test_boxes_of_other_than_four_numbers(shape):
    wrong = torch.zeros(shape)
    raises(lambda: alpha_iou_loss(wrong, BOXES), "pred", str(shape), "4")
    raises(lambda: alpha_iou_loss(BOXES, wrong), "target", str(shape), "4")


@pytest.mark.parametrize("shape", [(2,), (3, 1), (3, 4), (2, 3)])
def test_weight_that_does_not_broadcast(shape):
    weight = torch.ones(shape)
    raises(lambda: alpha_iou_loss(BOXES, BOXES, weight=weight), "weight", str(shape), "(3,)")
    raises(lambda: AlphaIoULoss()(BOXES, BOXES, weight), "weight", str(shape), "(3,)")


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_avg_factor_without_mean(reduction):
    expected = ("avg_factor", "mean", reduction)
    raises(
        lambda: alpha_iou_loss(BOXES, BOXES, reduction=reduction, avg_factor=2.0), *expected, "2.0"
    )
    raises(
        lambda: AlphaIoULoss(reduction=reduction)(BOXES, BOXES, avg_factor=2.0), *expected, "2.0"
    )


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
def test_wrong_avg_factor(value):
    raises(
        lambda: alpha_iou_loss(BOXES, BOXES, reduction="mean", avg_factor=value),
        "avg_factor",
        str(value),
        ">= 0",
    )


@pytest.mark.parametrize("value", [-0.1, 1.1, math.nan])
def test_wrong_progress(value):
    schedule = AlphaSchedule(1.0, 3.0)
    raises(lambda: schedule(value), "progress", str(value), "[0, 1]")
    module = AlphaIoULoss(alpha=schedule)
    raises(lambda: module.set_progress(value), "progress", str(value), "[0, 1]")
    raises(lambda: AlphaIoULoss(alpha=3.0).set_progress(value), "progress", str(value), "[0, 1]")


def test_wrong_schedule():
    raises(
        lambda: AlphaSchedule(1.0, 3.0, shape="square"),
        *("shape", "square", "constant", "linear", "cosine"),
    )
    raises(lambda: AlphaSchedule(1.0, 3.0, shape="constant"), "end", "start", "1.0", "3.0")


WRONG_PARAMETERS = [
    ("kind", partial(kinds.mpdiou, image_size=(0, 0)), ("image_size", "(0, 0)")),
    ("kind", partial(kinds.mpdiou, image_size=(-1, 640)), ("image_size", "(-1, 640)")),
    ("kind", partial(kinds.nwd, constant=0.0), ("constant", "0.0")),
    ("kind", partial(kinds.nwd, constant=-1.0), ("constant", "-1.0")),
    ("kind", partial(kinds.piou, version=3), ("version", "3", "1", "2")),
    ("kind", partial(kinds.biou, beta=0.0), ("beta", "0.0")),
    ("kind", partial(kinds.biou, beta=-0.5), ("beta", "-0.5")),
    ("kind", partial(kinds.shape_iou, scale=-1.0), ("scale", "-1.0")),
    ("modifier", partial(modifiers.inner, ratio=0.0), ("ratio", "0.0")),
    ("modifier", partial(modifiers.inner, ratio=-1.0), ("ratio", "-1.0")),
    ("modifier", partial(modifiers.focaler, lower=0.5, upper=0.5), ("lower", "upper", "0.5")),
    ("modifier", partial(modifiers.focaler, lower=-0.5), ("lower", "-0.5")),
    ("modifier", partial(modifiers.focaler, upper=1.5), ("upper", "1.5")),
    ("modifier", partial(modifiers.rectified, powers=(0.0, 1.0)), ("powers", "0.0")),
    ("modifier", partial(modifiers.rectified, powers=()), ("powers", "()")),
    ("modifier", partial(modifiers.rectified, shares=(0.9, 0.9)), ("shares", "0.9", "1")),
    ("modifier", partial(modifiers.rectified, shares=(1.0,)), ("shares", "(1.0,)", "2")),
    ("modifier", partial(modifiers.rectified, shares=(-1.0, 2.0)), ("shares", "-1.0", ">= 0")),
    ("modifier", partial(modifiers.focal, gamma=-1.0), ("gamma", "-1.0")),
]


@pytest.mark.parametrize(
    ("what", "wrong", "parts"),
    WRONG_PARAMETERS,
    ids=[f"{w.func.__name__} {w.keywords}" for _, w, _ in WRONG_PARAMETERS],
)
def test_wrong_parameters(what, wrong, parts):
    options = {"kind": wrong} if what == "kind" else {"modifiers": (wrong,)}
    raises(lambda: alpha_iou_loss(BOXES, BOXES + 1, **options), *parts)


@pytest.mark.parametrize(
    ("name", "value"), [("version", 1), ("version", 4), ("momentum", -0.1), ("momentum", 1.5)]
)
def test_wrong_wise(name, value):
    raises(lambda: modifiers.Wise(**{name: value}), name, str(value))
