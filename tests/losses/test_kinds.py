"""The registry of kinds: what users do with its rows, and that all who read it find the same."""

import copy
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch

from alphaiou import KINDS, AlphaIoULoss, alpha_iou_loss
from alphaiou.boxes import pair_geometry
from alphaiou.losses import kinds
from alphaiou.losses.kinds import Kind, kinds_of, resolve_kind
from alphaiou.losses.spec import LossSpec
from tests.strategies import generic_pairs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pairs():
    return generic_pairs(20, seed=1)


@pytest.mark.parametrize("name", kinds_of())
def test_a_row_serves_like_its_name_and_its_function(name, pairs):
    expected = alpha_iou_loss(*pairs, kind=name)
    for kind in (KINDS[name], getattr(kinds, name), partial(KINDS[name]), KINDS[name].terms):
        assert torch.equal(alpha_iou_loss(*pairs, kind=kind), expected)
        assert resolve_kind(kind).kernel == resolve_kind(name).kernel == KINDS[name].kernel
    terms = KINDS[name](pair_geometry(*pairs))
    assert torch.equal(terms.similarity, getattr(kinds, name)(pair_geometry(*pairs)).similarity)


@pytest.mark.parametrize(
    ("name", "options", "resolved"),
    [
        ("mpdiou", {"image_size": (3.0, 4.0)}, ("mpdiou_in_image", 5.0, (3.0, 4.0))),
        ("mpdiou", {"image_size": None}, ("mpdiou", 0.0, ())),
        ("shape_iou", {"scale": 1.0}, ("shape_iou", 1.0, (1.0,))),
        ("shape_iou", {}, ("shape_iou", 0.0, ())),
        ("piou", {"version": 2}, ("piou_v2", 2.0, (2.0,))),
        ("piou", {"version": 1}, ("piou", 1.0, ())),
        ("nwd", {"constant": 5}, ("nwd", 5.0, (5.0,))),
        ("biou", {}, ("biou", 0.2, ())),
        ("d_interpiou", {"most": 0.5}, ("d_interpiou", 0.5, (0.5,))),
    ],
)
def test_the_parameter_reaches_the_kernel(name, options, resolved, pairs):
    for function in (KINDS[name], getattr(kinds, name)):
        kind = resolve_kind(partial(function, **options))
        assert (kind.kernel, kind.number, kind.parameter) == resolved
        back = kinds.kind_from_numbers(kind.name, kind.parameter)
        assert back[1:] == kind[1:]
        pair = pair_geometry(*pairs)
        for ours, theirs in zip(
            (back.terms(pair), kind.terms(pair)),
            [getattr(kinds, name)(pair, **options)] * 2,
            strict=True,
        ):
            assert torch.equal(ours.similarity, theirs.similarity)
            assert all(map(torch.equal, ours.penalties, theirs.penalties))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_loss_with_a_row_can_be_copied(duplicate, pairs):
    loss = AlphaIoULoss(partial(KINDS["nwd"], constant=0.5))
    other = duplicate(loss)
    assert torch.equal(other(*pairs), loss(*pairs))
    assert resolve_kind(other.kind).kernel == "nwd"


def test_a_row_of_ones_own(pairs):
    """It has a name in commands and tables, and no kernel: it must not be computed as another."""

    def half_iou(pair, *, share=0.5):
        return kinds.Terms(share * pair.iou)

    kind = Kind("half_iou", "Half-IoU", half_iou)
    assert kind.parameters == {"share": 0.5}
    KINDS["half_iou"] = kind
    try:
        spec = LossSpec.parse("half_iou:3")
        assert spec.display_name == "α-Half-IoU (α=3)"
        expected = alpha_iou_loss(*pairs, kind=half_iou)
        assert torch.equal(spec.module()(*pairs), expected.mean())
        for entry in ("half_iou", kind, half_iou, partial(kind, share=0.5)):
            assert resolve_kind(entry).kernel is None
            assert torch.equal(alpha_iou_loss(*pairs, kind=entry), expected)
    finally:
        del KINDS["half_iou"]


@pytest.mark.parametrize("name", kinds_of())
def test_every_penalty_is_described(name, pairs):
    kind = KINDS[name]
    assert kind.name == name
    assert len(kind.penalties) == len(kind(pair_geometry(*pairs)).penalties)


@pytest.mark.parametrize("name", KINDS)
def test_the_documents_have_its_equation(name):
    kind = KINDS[name]
    text = (ROOT / "docs/mathematics.md").read_text(encoding="utf-8").replace("\\|", "|")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
    similarity, penalties = row.removeprefix(f"| `{name}` | ").split(" | ", 1)
    assert similarity.replace("`", "").startswith(kind.similarity)
    assert all(f"`{formula}`" in penalties for formula in kind.penalties)
    assert all(f"`{option}" in row for option in kind.parameters)


def test_the_readme_lists_them():
    assert f"`{' '.join(KINDS)}`" in (ROOT / "README.md").read_text(encoding="utf-8")
