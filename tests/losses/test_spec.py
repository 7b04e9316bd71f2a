"""A loss as text: there and back, its names, and what it makes."""

import json
from dataclasses import asdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from alphaiou import AlphaSchedule, alpha_iou_loss
from alphaiou.losses import KINDS, MODIFIERS
from alphaiou.losses.modifiers import STATEFUL_MODIFIERS, WEIGHING_MODIFIERS
from alphaiou.losses.spec import MODIFIED_NAMES, LossSpec
from tests.losses.test_errors import raises
from tests.strategies import generic_pairs

EVERY_MODIFIER = (*MODIFIERS, *STATEFUL_MODIFIERS)
POWERS = st.floats(min_value=1e-3, max_value=1e22)
SPECS = st.builds(
    LossSpec,
    st.sampled_from(list(KINDS)),
    st.just(1.0) | st.just(0.0) | POWERS,
    st.none() | POWERS,
    modifiers=st.lists(st.sampled_from(EVERY_MODIFIER), max_size=3).map(tuple),
)


@given(SPECS)
def test_every_loss_reads_back_from_its_text_and_from_json(spec):
    assert LossSpec.parse(str(spec)) == spec
    assert LossSpec(**json.loads(json.dumps(asdict(spec)))) == spec
    assert hash(LossSpec(**json.loads(json.dumps(asdict(spec))))) == hash(spec)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("iou+wise", "WIoU v1"),
        ("iou+wise_v3", "WIoU v3"),
        ("iou+wise_v3:3", "α-WIoU v3 (α=3)"),
        ("ciou+wise_v2", "Wise-CIoU v2"),
        ("eiou+focal", "Focal-EIoU"),
        ("ciou+inner:3:1", "α-Inner-CIoU (α=3, α₂=1)"),
        ("giou+focaler", "Focaler-GIoU"),
        ("iou+rectified", "Rectified-IoU"),
        ("iou+wise_v3+inner", "Inner-WIoU v3"),
    ],
)
def test_modified_losses_have_the_names_that_people_know(text, name):
    assert LossSpec.parse(text).display_name == name
    assert str(LossSpec.parse(text)) == text


def test_every_modifier_has_a_name():
    assert set(MODIFIED_NAMES) == set(EVERY_MODIFIER)


@pytest.mark.parametrize("text", ["iou+outer", "iou+", "iou+wise+:3", "iou+Wise"])
def test_modifiers_that_there_are_none_of(text):
    raises(lambda: LossSpec.parse(text), repr(text), "modifiers", *EVERY_MODIFIER)


def test_a_modifier_is_no_kind():
    raises(lambda: LossSpec.parse("wise"), "'wise'", "kind must be one of", *KINDS)


@pytest.mark.parametrize("text", ["diou:2", "eiou+focal", "ciou+inner+wise:3:1"])
def test_function_and_module_are_the_loss(text):
    spec, pairs = LossSpec.parse(text), generic_pairs(8, seed=3)
    expected = alpha_iou_loss(
        *pairs,
        kind=spec.kind,
        alpha=spec.alpha,
        penalty_alpha=spec.penalty_alpha,
        modifiers=spec.modifiers,
    )
    assert torch.equal(spec.function()(*pairs), expected)
    assert torch.equal(spec.module()(*pairs), expected.mean())


def test_a_schedule_takes_the_place_of_alpha():
    module = LossSpec.parse("diou:2").module(AlphaSchedule(1.0, 3.0))
    module.set_progress(1.0)
    pairs = generic_pairs(8, seed=3, dtype=torch.float32)
    torch.testing.assert_close(module(*pairs), LossSpec.parse("diou:3").module()(*pairs))


def test_what_keeps_a_mean_is_a_module_and_no_function():
    spec = LossSpec.parse("iou+wise_v3:3")
    assert [name.split(".")[-1] for name in spec.module().state_dict()] == ["mean_loss"]
    raises(spec.function, "'iou+wise_v3:3'", "running mean", "take the modifier wise")


@pytest.mark.parametrize("name", EVERY_MODIFIER)
def test_what_weighs_is_told_apart(name):
    """A loss that is one minus a similarity lies in [0, 1]; a weight takes it elsewhere."""
    pred = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 0.0, 6.0, 1.0]])
    target = torch.tensor([[0.5, 0.0, 2.5, 2.0], [0.0, 0.0, 1.0, 1.0]])
    module = LossSpec("iou", modifiers=(name,)).module().eval()
    module.reduction = "none"
    far = module(pred, target)[1].item()
    assert (far != 1.0) == (name in WEIGHING_MODIFIERS)


def test_modifiers_are_shown():
    shown = repr(LossSpec.parse("iou+focal+wise_v3").module())
    assert "modifiers=(focal, Wise(version=3" in shown
    assert "modifiers" not in repr(LossSpec("iou").module())
