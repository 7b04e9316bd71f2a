"""Wrong arguments, one by one: a ValueError with the argument's name, value and what is allowed."""

import math
from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss, box_iou, pairwise_iou
from alphaiou.losses import kinds, modifiers
from alphaiou.losses.pair_loss import PairLoss
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


@pytest.mark.parametrize("value", ["3", None, 3j, [3.0]])
@pytest.mark.parametrize("name", ["alpha", "avg_factor", "weight"])
def test_arguments_that_are_no_numbers(name, value):
    if value is None and name != "alpha":
        pytest.skip("the default")
    options = {name: value, "reduction": "mean"}
    raises(lambda: alpha_iou_loss(BOXES, BOXES, **options), name, "tensor", repr(value))
    if name == "alpha":
        raises(lambda: AlphaIoULoss(alpha=value), name, repr(value))
        raises(lambda: AlphaSchedule(value, 3.0), "start", "number", repr(value))
    else:
        call = partial(AlphaIoULoss(), BOXES, BOXES, **{name: value})
        raises(call, name, "tensor", repr(value))


@pytest.mark.parametrize("value", ["3", 3j])
def test_wrong_type_of_penalty_alpha(value):
    call = partial(alpha_iou_loss, BOXES, BOXES, penalty_alpha=value)
    raises(call, "penalty_alpha", "tensor", repr(value))


@pytest.mark.parametrize("value", ["3", 3j])
def test_wrong_type_of_the_weight_of_a_pair_loss(value):
    raises(lambda: PairLoss("diou:3", weight=value), "weight", "number", repr(value))


def test_complex_tensors():
    wrong = BOXES.to(torch.complex64)
    raises(lambda: alpha_iou_loss(wrong, BOXES), "pred", "real", "complex64")
    raises(lambda: alpha_iou_loss(BOXES, wrong), "target", "real", "complex64")
    raises(lambda: box_iou(wrong, BOXES), "pred", "real", "complex64")
    raises(lambda: pairwise_iou(BOXES, wrong), "boxes2", "real", "complex64")
    for name in ("alpha", "penalty_alpha", "weight", "avg_factor"):
        options = {name: torch.ones((), dtype=torch.complex64), "reduction": "mean"}
        raises(partial(alpha_iou_loss, BOXES, BOXES, **options), name, "real", "complex64")


def test_an_avg_factor_is_one_number():
    pair = torch.ones(2)
    raises(
        lambda: alpha_iou_loss(BOXES, BOXES, reduction="mean", avg_factor=pair),
        *("avg_factor", "one number", "2"),
    )


WRONG_TENSORS = [
    ("alpha", -1.0, ">= 0"),
    ("alpha", math.nan, ">= 0"),
    ("alpha", math.inf, ">= 0"),
    ("penalty_alpha", 0.0, "> 0"),
    ("penalty_alpha", -2.0, "> 0"),
    ("penalty_alpha", math.nan, "> 0"),
    ("avg_factor", -1.0, ">= 0"),
    ("avg_factor", math.nan, ">= 0"),
    ("avg_factor", math.inf, ">= 0"),
]


@pytest.mark.parametrize(("name", "value", "allowed"), WRONG_TENSORS)
def test_wrong_numbers_in_tensors_on_the_cpu(name, value, allowed):
    tensor = torch.tensor(value) if name == "avg_factor" else torch.tensor([1.0, value, 2.0])
    call = partial(alpha_iou_loss, BOXES, BOXES + 1, kind="diou", reduction="mean")
    raises(lambda: call(**{name: tensor}), name, str(value), allowed)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_calls_with_tensors_can_be_recorded(mode):
    """Under make_fx too reading a tensor is impossible."""

    def loss(pred, target, alpha):
        return alpha_iou_loss(pred, target, alpha=alpha, reduction="mean", avg_factor=alpha)

    recorded = make_fx(loss, tracing_mode=mode)(BOXES + 1, BOXES, torch.tensor(2.0))
    other = (BOXES + 0.5, BOXES, torch.tensor(3.0))
    torch.testing.assert_close(recorded(*other), loss(*other))


UNCHECKED = [("alpha", 0.0), ("penalty_alpha", 1.0), ("avg_factor", 0.0)]


@pytest.mark.parametrize("value", [-1.0, -math.inf, math.nan])
@pytest.mark.parametrize(("name", "acts_as"), UNCHECKED)
def test_wrong_numbers_in_tensors_that_cannot_be_read(name, acts_as, value):
    """As on CUDA: in a transform, reading a tensor is impossible, so nothing is checked."""

    def loss(number):
        options = {"kind": "diou", "alpha": 2.0, "reduction": "mean"} | {name: number}
        return alpha_iou_loss(BOXES, BOXES + 1, **options)

    found = torch.func.vmap(loss)(torch.tensor([value, acts_as, 2.0]))
    torch.testing.assert_close(found[0], found[1])
    assert found.isfinite().all()
    assert found[1] != found[2]


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
    ("kind", partial(kinds.interpiou, coefficient=1.0), ("interpolation", "below 1", "1.0")),
    ("kind", partial(kinds.d_interpiou, most=-0.1), ("interpolation", "-0.1")),
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
