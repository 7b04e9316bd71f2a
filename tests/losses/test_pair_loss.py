"""Any box loss as one value per pair."""

import pickle

import pytest
import torch
from torch.testing import assert_close

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.boxes import convert_boxes
from alphaiou.losses.pair_loss import PairLoss
from tests import oracle

PRED = [[0.0, 0.0, 4.0, 2.0], [5.0, 5.0, 9.0, 9.0]]
TARGET = [[1.0, 0.0, 4.0, 3.0], [0.0, 0.0, 2.0, 2.0]]


def boxes(values):
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("box_format", ["xyxy", "cxcywh"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_format_and_reduction_of_the_given_loss_do_not_matter(box_format, reduction):
    given = AlphaIoULoss("diou", 3.0, box_format=box_format, reduction=reduction)
    values = PairLoss(given, 2.0)(boxes(PRED), boxes(TARGET))
    expected = oracle.losses(PRED, TARGET, kind=oracle.diou, alpha=3.0)
    assert_close(values, 2.0 * boxes(expected))
    assert (given.box_format, given.reduction) == (box_format, reduction)


def test_a_text_is_the_published_loss_or_its_powers():
    expected = alpha_iou_loss(boxes(PRED), boxes(TARGET), kind="ciou", alpha=3.0, penalty_alpha=1.0)
    assert_close(PairLoss("ciou:3:1")(boxes(PRED), boxes(TARGET)), expected)
    expected = alpha_iou_loss(boxes(PRED), boxes(TARGET), kind="giou", alpha=1.0)
    assert_close(PairLoss("giou")(boxes(PRED), boxes(TARGET)), expected)


def test_any_function_of_boxes_will_do():
    values = PairLoss(lambda pred, target: (pred - target).abs().sum(-1), 0.5)(
        boxes(PRED), boxes(TARGET)
    )
    assert values.tolist() == [1.0, 12.0]


def test_no_pairs_give_a_zero_with_a_gradient():
    pred = torch.zeros(0, 4, requires_grad=True)
    total = PairLoss("giou:3")(pred, torch.zeros(0, 4)).sum()
    total.backward()
    assert total == 0
    assert pred.grad.shape == (0, 4)


def test_a_schedule_moves_the_loss_in_use():
    given = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    used = PairLoss(given)
    before = used(boxes(PRED[:1]), boxes(TARGET[:1]))
    given.set_progress(1.0)
    after = used(boxes(PRED[:1]), boxes(TARGET[:1]))
    assert_close(1 - after, (1 - before) ** 3)


def test_state_follows_the_boxes_to_their_device():
    given = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    PairLoss(given)(torch.zeros(3, 4, device="meta"), torch.zeros(3, 4, device="meta"))
    assert given.alpha.device.type == "meta"


def test_it_can_be_pickled():
    used = pickle.loads(pickle.dumps(PairLoss("siou:2", 3.0)))
    assert_close(
        used(boxes(PRED), boxes(TARGET)), PairLoss("siou:2", 3.0)(*map(boxes, (PRED, TARGET)))
    )


def test_what_it_is_can_be_read():
    assert repr(PairLoss("giou:3")) == "AlphaIoULoss(kind='giou', alpha=3.0, penalty_alpha=None)"
    assert repr(PairLoss("giou:3", 10)).endswith(" × 10")


@pytest.mark.parametrize(
    ("loss", "weight", "error", "message"),
    [
        ("giou:x", 1.0, ValueError, "giou:x"),
        ("hiou", 1.0, ValueError, "one of iou"),
        (3.0, 1.0, TypeError, "AlphaIoULoss.*got float"),
        ("giou", -1.0, ValueError, "weight.*-1"),
        ("giou", float("nan"), ValueError, "weight.*nan"),
    ],
)
def test_other_arguments_are_refused(loss, weight, error, message):
    with pytest.raises(error, match=message):
        PairLoss(loss, weight)


def test_a_loss_that_reduces_is_refused():
    with pytest.raises(ValueError, match=r"one value per pair: \(2,\).*got \(\)"):
        PairLoss(lambda pred, target: (pred - target).abs().mean())(boxes(PRED), boxes(TARGET))


@pytest.mark.parametrize(
    "loss", [AlphaIoULoss("giou"), lambda pred, target: (pred - target).sum(-1)]
)
def test_rows_without_a_pair_cost_nothing(loss):
    pred, target = boxes(PRED).requires_grad_(), boxes(TARGET)
    valid = torch.tensor([True, False])
    values = PairLoss(loss, 2.0)(pred, target, valid)
    assert_close(values[0], 2.0 * PairLoss(loss)(pred, target)[0])
    assert values[1] == 0
    (gradient,) = torch.autograd.grad(values.sum(), pred)
    assert gradient[0].any()
    assert not gradient[1].any()


def test_boxes_in_another_format():
    given = AlphaIoULoss("diou", 3.0)
    pred, target = (convert_boxes(boxes(values), "xyxy", "cxcywh") for values in (PRED, TARGET))
    expected = oracle.losses(PRED, TARGET, kind=oracle.diou, alpha=3.0)
    assert_close(PairLoss(given, box_format="cxcywh")(pred, target), boxes(expected))


def test_its_state_is_saved_under_the_names_of_the_weights_files():
    names = PairLoss(AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0), modifiers=("wise_v3",)))
    assert [*names.state_dict()] == ["function.alpha", "function.stateful.0.mean_loss"]
