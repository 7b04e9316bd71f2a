"""Derivatives against finite differences; vmap, torch.compile, copies, the state of a Module."""

import copy
import io
import math
import pickle
from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.losses import modifiers
from tests import oracle
from tests.losses.catalogue import CHAINS, KINDS, NAMES
from tests.strategies import FORMATS, encode, generic_pairs

ALPHAS = (0.5, 1.0, 2.0, 3.0)
HELD = {
    "ciou",
    "piou_v2",
    "d_interpiou",
}  # a piece is held constant: the derivative is not that of the value
FREE = tuple(kind for kind in KINDS if kind not in HELD)


def gradient_of(pred, target, **options):
    leaf = pred.clone().requires_grad_()
    loss = alpha_iou_loss(leaf, target, **options)
    (gradient,) = torch.autograd.grad(loss.sum(), leaf)
    return gradient


def check_gradient(pred, target, *, kind, chain=None, box_format="xyxy", **options):
    """Ours against finite differences of the oracle, the held pieces held."""
    ours, theirs = CHAINS[chain] if chain else ((), ())
    actual = gradient_of(
        pred, target, kind=KINDS[kind].ours, modifiers=ours, box_format=box_format, **options
    )
    uncapped = [
        all(penalty > 1e-5 for penalty in KINDS[kind].oracle(pair, pair).penalties)
        for pair in map(
            partial(oracle.make_pair, box_format=box_format), pred.tolist(), target.tolist()
        )
    ]  # below 1e-6 and α < 1 the slope is not that of the value
    assert sum(uncapped) >= len(pred) / 2
    differences = partial(
        oracle.gradient, kind=KINDS[kind].oracle, modifiers=theirs, box_format=box_format, **options
    )
    expected = [differences(p, t) for p, t in zip(pred.tolist(), target.tolist(), strict=True)]
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual[uncapped], expected[uncapped], rtol=1e-6, atol=1e-7)


# --- first and second derivatives -----------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, *ALPHAS])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_the_oracles(kind, alpha):
    check_gradient(*generic_pairs(12, seed=1), kind=kind, alpha=alpha)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("kind", ["iou", "ciou", "nwd_constant"])
def test_gradient_under_modifiers(kind, chain):
    check_gradient(*generic_pairs(12, seed=2), kind=kind, chain=chain, alpha=2.0)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", ["giou", "ciou", "siou", "biou"])
def test_gradient_in_every_format(kind, box_format):
    pred, target = (encode(boxes, box_format) for boxes in generic_pairs(12, seed=3))
    check_gradient(pred, target, kind=kind, box_format=box_format, alpha=3.0)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_gradient_of_the_box_cox_form(alpha):
    check_gradient(*generic_pairs(12, seed=4), kind="diou", alpha=alpha, box_cox=True)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", FREE)
def test_gradcheck_of_both_boxes(kind, alpha):
    pred, target = generic_pairs(4, seed=5)
    pred.requires_grad_()
    # Shape-IoU's shares ww and hh, which are the target's own, are held constant.
    target.requires_grad_("shape_iou_scale" not in kind)
    loss = partial(alpha_iou_loss, kind=KINDS[kind].ours, alpha=alpha)
    assert gradcheck(loss, (pred, target))


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", ["iou", "giou", "diou", "eiou"])
def test_second_derivatives(kind, alpha):
    pair = tuple(boxes.requires_grad_() for boxes in generic_pairs(3, seed=6))
    loss = partial(alpha_iou_loss, kind=kind, alpha=alpha, backend="reference")
    assert gradgradcheck(loss, pair)


def test_beta_of_ciou_is_held_constant():
    """YOLOX and keras_cv let it move: the numeric derivative of the value is another one."""
    pred, target = generic_pairs(12, seed=7)
    actual = gradient_of(pred, target, kind="ciou", alpha=1.0)
    moving = torch.zeros_like(pred)
    for index in range(4):
        shift = torch.zeros(4, dtype=torch.float64)
        shift[index] = 1e-6
        up, down = (
            alpha_iou_loss(pred + s, target, kind="ciou", alpha=1.0) for s in (shift, -shift)
        )
        moving[:, index] = (up - down) / 2e-6
    assert (actual - moving).abs().amax(dim=1).max() > 1e-2


@pytest.mark.parametrize("kind", NAMES)
def test_gradient_with_weights_and_reduction(kind):
    pred, target = generic_pairs(6, seed=8)
    weight = torch.tensor([0.0, 0.5, 1.0, 2.0, 0.0, 3.0], dtype=torch.float64)
    each = gradient_of(pred, target, kind=kind)
    weighed = gradient_of(pred, target, kind=kind, weight=weight, reduction="mean", avg_factor=4.0)
    torch.testing.assert_close(weighed, each * weight[:, None] / 4, rtol=1e-12, atol=1e-14)


def test_no_gradient_is_asked_of_boxes_that_need_none():
    pred, target = generic_pairs(3, seed=9)
    assert not alpha_iou_loss(pred, target, kind="ciou").requires_grad
    assert alpha_iou_loss(pred.requires_grad_(), target, kind="ciou").requires_grad


# --- vmap -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_vmap(kind, dtype):
    pred, target = generic_pairs(8, seed=10, dtype=dtype)
    ours = partial(alpha_iou_loss, kind=KINDS[kind].ours, alpha=0.5)
    torch.testing.assert_close(vmap(ours)(pred, target), ours(pred, target))
    expected = gradient_of(pred, target, kind=KINDS[kind].ours, alpha=0.5)
    torch.testing.assert_close(vmap(grad(ours))(pred, target), expected)


def test_vmap_over_alphas():
    pred, target = generic_pairs(4, seed=11)
    alpha = torch.tensor([0.0, 0.5, 1.0, 3.0], dtype=torch.float64)
    ours = vmap(lambda a: alpha_iou_loss(pred, target, kind="ciou", alpha=a))(alpha)
    expected = [alpha_iou_loss(pred, target, kind="ciou", alpha=a) for a in alpha.tolist()]
    torch.testing.assert_close(ours, torch.stack(expected))


@pytest.mark.parametrize("chain", CHAINS)
def test_vmap_of_modifiers(chain):
    pred, target = generic_pairs(8, seed=12)
    ours = partial(alpha_iou_loss, kind="diou", modifiers=CHAINS[chain].ours)
    torch.testing.assert_close(vmap(ours)(pred, target), ours(pred, target))
    expected = gradient_of(pred, target, kind="diou", modifiers=CHAINS[chain].ours)
    torch.testing.assert_close(vmap(grad(ours))(pred, target), expected)


# --- torch.compile --------------------------------------------------------------------------------


def check_compiled(function, pred, target, backend="aot_eager"):
    """One graph, the same values and gradients."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    results = []
    for run in (function, compiled):
        leaf = pred.clone().requires_grad_()
        loss = run(leaf, target)
        loss.sum().backward()
        results.append((loss.detach(), leaf.grad))
    for eager, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_compile(kind):
    pairs = generic_pairs(16, seed=13, dtype=torch.float32)
    check_compiled(partial(alpha_iou_loss, kind=KINDS[kind].ours, alpha=3.0), *pairs)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.0, 0.5, torch.tensor([0.0, 0.5, 1.0, 3.0])])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_compile_of_other_powers(alpha, dtype):
    pred, target = generic_pairs(4, seed=14, dtype=dtype)
    loss = partial(alpha_iou_loss, kind="ciou", alpha=alpha, box_cox=True, box_format="xywh")
    check_compiled(loss, pred, target)


@pytest.mark.slow
@pytest.mark.parametrize("chain", ["inner focaler rectified focal wise"])
def test_compile_of_modifiers_and_weights(chain):
    pairs = generic_pairs(16, seed=15, dtype=torch.float32)
    options = {"modifiers": CHAINS[chain].ours, "weight": torch.linspace(0, 1, 16)}
    loss = partial(alpha_iou_loss, kind="eiou", reduction="mean", avg_factor=3.0, **options)
    check_compiled(loss, *pairs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ciou", "siou"])
def test_compile_with_inductor(kind):
    pairs = generic_pairs(16, seed=16, dtype=torch.float32)
    check_compiled(partial(alpha_iou_loss, kind=kind, alpha=3.0), *pairs, backend="inductor")


@pytest.mark.slow
def test_compile_for_any_number_of_pairs():
    torch._dynamo.reset()
    loss = partial(alpha_iou_loss, kind="giou", alpha=2.0)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (5, 9, 1, 0):
        pair = generic_pairs(9, seed=17, dtype=torch.float32)
        pred, target = (boxes[:count] for boxes in pair)
        torch.testing.assert_close(compiled(pred, target), loss(pred, target))


@pytest.mark.slow
@pytest.mark.parametrize("argument", ["alpha", "penalty_alpha", "avg_factor"])
def test_compile_with_a_number_that_changes(argument):
    """Dynamo makes a float that changed a symbol, whatever it was the first time."""
    torch._dynamo.reset()
    pairs = generic_pairs(8, seed=21, dtype=torch.float32)

    def loss(number):
        return alpha_iou_loss(*pairs, kind="diou", reduction="mean", **{argument: number})

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for number in (2.0, 3.0, 2.5):
        torch.testing.assert_close(compiled(number), loss(number))


@pytest.mark.slow
def test_compiled_module_sees_alpha_move():
    torch._dynamo.reset()
    pairs = generic_pairs(8, seed=18, dtype=torch.float32)
    module = AlphaIoULoss(kind="diou", alpha=AlphaSchedule(1.0, 3.0))
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for progress, alpha in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        module.set_progress(progress)
        expected = alpha_iou_loss(*pairs, kind="diou", alpha=alpha, reduction="mean")
        torch.testing.assert_close(compiled(*pairs), expected)


@pytest.mark.slow
def test_compiled_wise_keeps_its_mean():
    torch._dynamo.reset()
    pairs = generic_pairs(8, seed=19, dtype=torch.float32)
    eager = AlphaIoULoss(modifiers=(modifiers.Wise(version=3, momentum=0.5),))
    ours = copy.deepcopy(eager)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(compiled(*pairs), eager(*pairs))
    torch.testing.assert_close(ours.state_dict(), eager.state_dict())


# --- torch.export and torch.jit.trace -------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_export_for_any_number_of_pairs(reduction):
    module = AlphaIoULoss("ciou", reduction=reduction)
    pred, target = generic_pairs(9, seed=22, dtype=torch.float32)
    pairs = torch.export.Dim("pairs", min=2)
    exported = torch.export.export(
        module, (pred[:5], target[:5]), dynamic_shapes=({0: pairs}, {0: pairs})
    ).module()
    for count in (5, 9, 2):
        expected = module(pred[:count], target[:count])
        torch.testing.assert_close(exported(pred[:count], target[:count]), expected)


@pytest.mark.filterwarnings("ignore:.torch.jit", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("with_weight", [False, True])
@pytest.mark.parametrize("kind", ["iou", "ciou", "nwd", "shape_iou"])
def test_trace_for_any_number_of_pairs(kind, with_weight):
    module = AlphaIoULoss(kind)
    pairs = *generic_pairs(9, seed=22, dtype=torch.float32), torch.linspace(0, 1, 9)
    inputs = pairs if with_weight else pairs[:2]
    traced = torch.jit.trace(module, tuple(x[:4] for x in inputs))
    for count in (4, 9, 1, 0):
        part = tuple(x[:count] for x in inputs)
        torch.testing.assert_close(traced(*part), module(*part))


# --- the Module's state ---------------------------------------------------------------------------


def mean_loss(module):
    (mean,) = (value for name, value in module.state_dict().items() if "mean_loss" in name)
    return mean


def batches(count=6, size=10):
    pred, target = generic_pairs(count * size, seed=20)
    return list(zip(pred.split(size), target.split(size), strict=True))


@pytest.mark.parametrize("name", ["wise_v2", "wise_v3"])
def test_running_mean_by_hand(name):
    module = AlphaIoULoss(kind="diou", modifiers=(name,)).train()
    momentum = 1 - 0.5 ** (1 / 7000)
    mean = 1.0
    weight = torch.tensor([0.0, 0.0, 1, 2, 3, 4, 5, 0.5, 0.25, 0.125])
    for pred, target in batches():
        module(pred, target, weight)
        plain = alpha_iou_loss(pred[2:], target[2:], alpha=1.0)  # 1 − IoU of those that count
        mean += momentum * (plain.mean().item() - mean)
        assert mean_loss(module).item() == pytest.approx(mean, rel=1e-6)
    module.eval()
    module(pred, target)
    assert mean_loss(module).item() == pytest.approx(mean, rel=1e-6)


@pytest.mark.parametrize("weight", [None, torch.tensor([1.0, 1, 1, 1, 1, 0, 0, 2, 2, 2])])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_pairs_that_are_not_finite_do_not_enter_the_running_mean(bad, weight):
    pred, target = batches()[0]
    pred[2, 1], target[4, 2], pred[5] = bad, bad, bad
    module = AlphaIoULoss(kind="diou", modifiers=(modifiers.Wise(momentum=0.5),))
    module(pred, target, weight)
    keep = pred.isfinite().all(1) & target.isfinite().all(1)
    keep &= torch.ones(10, dtype=torch.bool) if weight is None else weight != 0
    mean = alpha_iou_loss(pred[keep], target[keep], alpha=1.0).mean().item()
    assert mean_loss(module).item() == pytest.approx(0.5 + 0.5 * mean, rel=1e-6)
    module(torch.full_like(pred, bad), target, weight)
    assert mean_loss(module).item() == pytest.approx(0.5 + 0.5 * mean, rel=1e-6)


def test_running_mean_moves_before_it_is_used():
    pred, target = batches()[0]
    wise = modifiers.Wise(version=2, momentum=1.0, gamma=1.0)
    module = AlphaIoULoss(kind="iou", alpha=1.0, modifiers=(wise,), reduction="none").train()
    plain = alpha_iou_loss(pred, target, alpha=1.0)
    expected = alpha_iou_loss(pred, target, alpha=1.0, modifiers=("wise",)) * plain / plain.mean()
    torch.testing.assert_close(module(pred, target), expected, rtol=1e-6, atol=1e-6)


def test_running_mean_is_saved_and_restored():
    make = partial(AlphaIoULoss, modifiers=("wise_v3",))
    trained, fresh = make(), make()
    for pair in batches():
        trained(*pair)
    assert mean_loss(trained) != mean_loss(fresh) == 1
    file = io.BytesIO()
    torch.save(trained.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert mean_loss(fresh) == mean_loss(trained)
    pair = batches()[0]
    assert torch.equal(fresh.eval()(*pair), trained.eval()(*pair))
    assert torch.equal(fresh.train()(*pair), trained.train()(*pair))


def test_plain_module_has_no_state():
    assert AlphaIoULoss(kind="ciou", modifiers=("inner", "wise")).state_dict() == {}
    assert list(AlphaIoULoss(kind="ciou").parameters()) == []


@pytest.mark.parametrize(
    "duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"]
)
def test_copies_are_equal_and_independent(duplicate):
    for module in (
        AlphaIoULoss(kind=KINDS["mpdiou_image"].ours, modifiers=CHAINS["inner focaler"].ours),
        AlphaIoULoss(kind="ciou", alpha=AlphaSchedule(1.0, 3.0, shape="cosine")),
        AlphaIoULoss(kind="eiou", modifiers=("focal", "wise_v2")),
    ):
        first, second, *_ = batches()
        module(*first)
        twin = duplicate(module)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        assert torch.equal(twin.eval()(*second), module.eval()(*second))
        twin.train()
        twin(*second)
        twin.set_progress(1.0)
        torch.testing.assert_close(module.state_dict(), before, rtol=0, atol=0)
        for name, value in twin.state_dict().items():
            assert not torch.equal(value, before[name])


def test_schedule_is_saved_with_the_module():
    make = partial(AlphaIoULoss, kind="diou", alpha=AlphaSchedule(1.0, 3.0))
    trained, fresh = make(), make()
    trained.set_progress(0.5)
    fresh.load_state_dict(trained.state_dict())
    pair = batches()[0]
    assert torch.equal(fresh(*pair), trained(*pair))
    torch.testing.assert_close(fresh(*pair), AlphaIoULoss(kind="diou", alpha=2.0)(*pair))


def test_module_moves_with_its_model():
    model = torch.nn.Sequential(AlphaIoULoss(modifiers=("wise_v3",))).to(torch.float64)
    model[0](*batches()[0])
    assert mean_loss(model).dtype == torch.float64
    assert mean_loss(model) != 1
    half = AlphaIoULoss(modifiers=("wise_v3",), alpha=AlphaSchedule(1.0, 3.0)).half()
    assert half(*batches()[0]).isfinite()


def test_module_shows_its_settings():
    shown = repr(AlphaIoULoss(kind="ciou", alpha=2.5))
    assert "ciou" in shown
    assert "2.5" in shown


@pytest.mark.parametrize(("kind", "most"), [("interpiou", 50.0), ("d_interpiou", 100.0)])
def test_interpiou_pulls_boxes_that_do_not_meet_up_to_its_reach(kind, most):
    """At c = 0.98 a box meets its target from fifty times its size away; IoU has no slope there."""
    target = torch.tensor([[0.0, 0.0, 1.0, 1.0]], dtype=torch.float64)
    for shift, reached in ((2.0, True), (most - 1.0, True), (most + 1.0, False)):
        pred = target + shift
        slope = gradient_of(pred, target, kind=kind, alpha=1.0)
        assert (slope > 0).any() == reached
        assert gradient_of(pred, target, kind="iou", alpha=1.0).count_nonzero() == 0
