"""Values against the scalar oracle, closed forms worked by hand, and published identities."""

import math
from functools import partial

import pytest
import torch

from alphaiou import AlphaIoULoss, AlphaSchedule, alpha_iou_loss
from alphaiou.losses import ScheduledInner, kinds, modifiers
from alphaiou.losses.module import check_stateless
from tests import oracle
from tests.losses.catalogue import CHAINS, IN_PIXELS, KINDS, NAMES
from tests.strategies import DTYPES, FORMATS, adversarial_pairs, encode, generic_pairs

ALPHAS = (0.0, 0.5, 1.0, 2.0, 3.0, 10.0)
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
OURS = partial(torch.testing.assert_close, check_dtype=False)


def check(pred, target, *, kind="iou", chain=None, tolerance=None, **options):
    """Our losses of a batch of pairs against the oracle's, pair by pair."""
    ours, theirs = dict(options), dict(options)
    if chain is not None:
        ours["modifiers"], theirs["modifiers"] = CHAINS[chain]
    actual = alpha_iou_loss(pred, target, kind=KINDS[kind].ours, **ours)
    expected = oracle.losses(pred.tolist(), target.tolist(), kind=KINDS[kind].oracle, **theirs)
    tolerance = tolerance or TOLERANCES[pred.dtype]
    OURS(actual, torch.tensor(expected, dtype=pred.dtype), rtol=tolerance, atol=tolerance)


# --- against the oracle -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_alpha(kind, alpha, dtype):
    check(*generic_pairs(24, seed=1, dtype=dtype), kind=kind, alpha=alpha)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("kind", ["iou", "giou", "ciou", "nwd_constant", "biou"])
@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.05, 0.5, 1.0, 3.0])
def test_box_cox(kind, alpha, dtype):
    pred, target = generic_pairs(24, seed=2, dtype=dtype)
    overlap = alpha_iou_loss(pred, target, alpha=1.0) < 1
    check(pred[overlap], target[overlap], kind=kind, alpha=alpha, box_cox=True)


@pytest.mark.parametrize("alpha", [1e-3, 0.05, 0.5, 1.0, 3.0])
def test_similarity_terms_of_disjoint_boxes(alpha):
    """S = 0 exactly: 1 − 0^α is 1, and its Box-Cox form 1/α, capped where α is small."""
    pred = torch.tensor([0.0, 0.0, 1.0, 1.0])
    assert alpha_iou_loss(pred, pred + 5, alpha=alpha).item() == 1
    box_cox = alpha_iou_loss(pred, pred + 5, alpha=alpha, box_cox=True).item()
    capped = -math.expm1(alpha * math.log(2.0**-126)) / alpha
    assert box_cox == pytest.approx(1 / alpha if alpha >= 0.1 else capped)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("alpha", "penalty_alpha"), [(3.0, 1.0), (1.0, 0.5), (0.0, 2.0)])
def test_separate_penalty_alpha(kind, alpha, penalty_alpha):
    pairs = generic_pairs(24, seed=3)
    check(*pairs, kind=kind, alpha=alpha, penalty_alpha=penalty_alpha)
    check(*pairs, kind=kind, alpha=alpha, penalty_alpha=penalty_alpha, box_cox=True)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("kind", ["iou", "ciou", "siou", "nwd_constant", "biou", "piou_v2"])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_modifiers(kind, chain, alpha):
    check(*generic_pairs(16, seed=4), kind=kind, chain=chain, alpha=alpha)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_formats(kind, box_format):
    corners = generic_pairs(16, seed=5)
    pred, target = (encode(boxes, box_format) for boxes in corners)
    check(pred, target, kind=kind, box_format=box_format)
    here = alpha_iou_loss(pred, target, kind=KINDS[kind].ours, box_format=box_format)
    OURS(here, alpha_iou_loss(*corners, kind=KINDS[kind].ours), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_lattice_of_degenerate_pairs(kind, alpha):
    """Points, lines, inverted, touching, nested, identical boxes: the conventions, in float64."""
    pairs = torch.randint(0, 3, (300, 8), generator=torch.Generator().manual_seed(6)).double()
    check(pairs[:, :4], pairs[:, 4:], kind=kind, alpha=alpha)


@pytest.mark.parametrize("chain", CHAINS)
def test_modifiers_of_degenerate_pairs(chain):
    pairs = torch.randint(0, 3, (300, 8), generator=torch.Generator().manual_seed(7)).double()
    check(pairs[:, :4], pairs[:, 4:], kind="diou", chain=chain, alpha=1.0)


def resolved(pred, target, kind):
    """The pairs whose lengths are zero or within the reach of fp32, and not at a jump of `kind`."""
    edges = torch.cat([pred.view(-1, 2, 2), target.view(-1, 2, 2)], dim=1).double()
    lengths = (edges[:, :, None] - edges[:, None]).abs().flatten(1)
    floor = 1e-30 * lengths.amax(dim=1, keepdim=True).clamp(min=1)
    keep = ((lengths == 0) | (lengths > floor)).all(dim=1)
    if kind == "biou":  # an empty target has its centre hit or missed: a rounding decides
        keep &= (target[:, 2:] > target[:, :2]).all(dim=1)
    return keep


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_hard_pairs_of_every_dtype_and_size(kind, alpha, dtype):
    pred, target = adversarial_pairs(560, dtype=dtype, seed=8)
    keep = resolved(pred, target, kind)
    pred, target = pred[keep], target[keep]
    assert len(pred) > 300
    tolerance = 1e-10 if dtype is torch.float64 else 1e-5
    actual = alpha_iou_loss(pred, target, kind=kind, alpha=alpha).double()
    expected = oracle.losses(pred.tolist(), target.tolist(), kind=KINDS[kind].oracle, alpha=alpha)
    expected = torch.tensor(expected, dtype=torch.float64)
    OURS(actual, expected, rtol=tolerance, atol=tolerance)


# --- arguments that vary over the pairs ----------------------------------------------------------


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("box_cox", [False, True])
def test_tensor_alpha(kind, box_cox):
    pred, target = generic_pairs(len(ALPHAS), seed=9)
    alpha = torch.tensor(ALPHAS, dtype=torch.float64)
    actual = alpha_iou_loss(pred, target, kind=kind, alpha=alpha, box_cox=box_cox)
    one_by_one = [
        alpha_iou_loss(p, t, kind=kind, alpha=a, box_cox=box_cox)
        for p, t, a in zip(pred, target, ALPHAS, strict=True)
    ]
    OURS(actual, torch.stack(one_by_one), rtol=1e-12, atol=1e-12)


def test_tensor_alphas_broadcast_over_the_batch():
    pred, target = (boxes.view(3, 4, 4) for boxes in generic_pairs(12, seed=10))
    alpha, penalty_alpha = torch.tensor([[0.5], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 3.0, 0.5])
    actual = alpha_iou_loss(
        pred, target, kind="eiou", alpha=alpha.double(), penalty_alpha=penalty_alpha.double()
    )
    assert actual.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            expected = oracle.loss(
                pred[i, j].tolist(),
                target[i, j].tolist(),
                kind=oracle.eiou,
                alpha=alpha[i, 0].item(),
                penalty_alpha=penalty_alpha[j].item(),
            )
            assert actual[i, j].item() == pytest.approx(expected, rel=1e-10)


def test_penalty_alpha_of_none_is_alpha():
    pairs = generic_pairs(16, seed=11)
    ours = partial(alpha_iou_loss, *pairs, kind="ciou")
    assert torch.equal(ours(alpha=2.0), ours(alpha=2.0, penalty_alpha=2.0))
    assert torch.equal(ours(alpha=0.0), ours(alpha=0.0, penalty_alpha=1.0))


@pytest.mark.parametrize(
    "weight",
    [torch.rand(3, 4), torch.rand(3, 1), torch.rand(4), torch.tensor(0.25)],
    ids=lambda weight: str(tuple(weight.shape)),
)
def test_weight_broadcasts(weight):
    pred, target = (boxes.view(3, 4, 4) for boxes in generic_pairs(12, seed=12))
    plain = alpha_iou_loss(pred, target, kind="giou")
    weighed = alpha_iou_loss(pred, target, kind="giou", weight=weight.double())
    assert weighed.shape == (3, 4)
    OURS(weighed, plain * weight.double(), rtol=1e-12, atol=1e-12)


# --- reductions ----------------------------------------------------------------------------------


def test_reductions():
    pred, target = generic_pairs(10, seed=13)
    weight = torch.rand(10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ours = partial(alpha_iou_loss, pred, target, kind="diou", weight=weight)
    each = ours()
    assert each.shape == (10,)
    OURS(ours(reduction="sum"), each.sum())
    OURS(ours(reduction="mean"), each.sum() / 10)
    OURS(ours(reduction="mean", avg_factor=2.5), each.sum() / 2.5)
    OURS(ours(reduction="mean", avg_factor=torch.tensor(2.5)), each.sum() / 2.5)
    OURS(ours(reduction="mean", avg_factor=torch.tensor(4)), each.sum() / 4)


@pytest.mark.parametrize("nothing", [0, 0.0, torch.tensor(0.0), torch.tensor(0)])
def test_avg_factor_of_zero_gives_zero(nothing):
    pred, target = generic_pairs(4, seed=14)
    pred.requires_grad_()
    loss = alpha_iou_loss(pred, target, reduction="mean", avg_factor=nothing)
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(pred.grad, torch.zeros_like(pred))


def test_module_is_the_function():
    pred, target = generic_pairs(10, seed=15)
    options = {"kind": "ciou", "alpha": 2.0, "penalty_alpha": 1.5, "modifiers": ("inner", "focal")}
    weight = torch.linspace(0, 1, 10, dtype=torch.float64)
    for reduction in ("none", "mean", "sum"):
        module = AlphaIoULoss(**options, reduction=reduction)
        expected = alpha_iou_loss(pred, target, weight=weight, reduction=reduction, **options)
        assert torch.equal(module(pred, target, weight), expected)
    expected = alpha_iou_loss(pred, target, reduction="mean", avg_factor=3.0, **options)
    assert torch.equal(AlphaIoULoss(**options)(pred, target, avg_factor=3.0), expected)


def test_defaults():
    pred, target = generic_pairs(10, seed=16)
    plain = alpha_iou_loss(pred, target, kind="iou", alpha=3.0, box_format="xyxy", reduction="none")
    assert torch.equal(alpha_iou_loss(pred, target), plain)
    assert torch.equal(AlphaIoULoss()(pred, target), plain.mean())


# --- worked by hand ------------------------------------------------------------------------------

DIAGONAL = ([0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0])  # IoU 1/7, hull 3 × 3, ρ² 2, c² 18
CROSSED = ([0.0, 0.0, 4.0, 2.0], [0.0, 0.0, 2.0, 4.0])  # IoU 1/3, hull 4 × 4, ρ² 2, c² 32
NEAR = ([0.2, 0.2, 2.2, 2.2], [0.0, 0.0, 2.0, 2.0])  # IoU above 0.4
TURN = 4 / math.pi**2 * (math.atan(0.5) - math.atan(2.0)) ** 2
HALF = (1 - math.exp(-0.5)) ** 4  # the shape cost of a side half as long as the other


@pytest.mark.parametrize(
    ("kind", "boxes", "similarity", "penalties"),
    [
        ("iou", DIAGONAL, 1 / 7, ()),
        ("giou", DIAGONAL, 1 / 7, (2 / 9,)),
        ("diou", DIAGONAL, 1 / 7, (1 / 9,)),
        ("ciou", DIAGONAL, 1 / 7, (1 / 9, 0)),
        ("eiou", DIAGONAL, 1 / 7, (1 / 9, 0, 0)),
        ("siou", DIAGONAL, 1 / 7, (1 - math.exp(-1 / 9),)),
        ("mpdiou", DIAGONAL, 1 / 7, (1 / 9, 1 / 9)),
        ("mpdiou_image", DIAGONAL, 1 / 7, (2 / 6.25, 2 / 6.25)),
        ("shape_iou", DIAGONAL, 1 / 7, (1 / 9, 0)),
        ("piou", DIAGONAL, 1 / 7, (1 - math.exp(-1 / 4),)),
        ("nwd", DIAGONAL, math.exp(-math.sqrt(2) / 12.8), ()),
        ("biou", DIAGONAL, 1, (0.9, 0.9)),
        # the moved box: 0.02, a half, 1/7 (IoU itself) and 0.3 of the offset of 1 are left
        ("interpiou", DIAGONAL, 1 / 7, (1 - 1.98**2 / (8 - 1.98**2),)),
        ("interpiou_half", DIAGONAL, 1 / 7, (3.5 / 5.75,)),
        ("d_interpiou", DIAGONAL, 1 / 7, (1 - 169 / 223,)),
        ("d_interpiou_most", DIAGONAL, 1 / 7, (1 - 2.89 / 5.11,)),
        ("iou", CROSSED, 1 / 3, ()),
        ("giou", CROSSED, 1 / 3, (1 / 4,)),
        ("diou", CROSSED, 1 / 3, (1 / 16,)),
        ("ciou", CROSSED, 1 / 3, (1 / 16, TURN**2 / (2 / 3 + TURN))),
        ("eiou", CROSSED, 1 / 3, (1 / 16, 1 / 4, 1 / 4)),
        ("siou", CROSSED, 1 / 3, (1 - math.exp(-1 / 16) + HALF,)),
        ("mpdiou", CROSSED, 1 / 3, (0, 8 / 32)),
        ("shape_iou", CROSSED, 1 / 3, (1 / 16, HALF)),
        # target 2 × 4: ww = 2/3, hh = 4/3
        (
            "shape_iou_scale_1",
            CROSSED,
            1 / 3,
            (
                (4 / 3 + 2 / 3) / 32,
                ((1 - math.exp(-2 / 3)) ** 4 + (1 - math.exp(-1 / 3)) ** 4) / 2,
            ),
        ),
        # right edge 2/2, bottom edge 2/4
        ("piou", CROSSED, 1 / 3, (1 - math.exp(-((1.5 / 4) ** 2)),)),
        ("nwd", CROSSED, math.exp(-2 / 12.8), ()),
        # bounds: x (2 − 2)/(2 + 2), y (4 − 2)/(4 + 2), w and h 1/2
        ("biou", CROSSED, 1, (0.9, 2 / 3 - 0.1, 0.4, 0.4)),
        # half way lies the square of 3
        ("interpiou_half", CROSSED, 1 / 3, (5 / 11,)),
        # 1 − IoU is less than 0.6: 0.4 of the offset of 0.2 are left
        ("d_interpiou", NEAR, 1.8**2 / (8 - 1.8**2), (1 - 1.92**2 / (8 - 1.92**2),)),
        ("biou_beta", CROSSED, 1, (0.75, 2 / 3 - 0.25, 0.25, 0.25)),
    ],
)
def test_closed_forms(kind, boxes, similarity, penalties):
    pred, target = torch.tensor(boxes, dtype=torch.float64)
    for alpha in (0.5, 1.0, 3.0):
        actual = alpha_iou_loss(pred, target, kind=KINDS[kind].ours, alpha=alpha).item()
        expected = 1 - similarity**alpha + sum(p**alpha for p in penalties)
        assert actual == pytest.approx(expected, rel=1e-12)
    log = alpha_iou_loss(pred, target, kind=KINDS[kind].ours, alpha=0.0).item()
    assert log == pytest.approx(-math.log(similarity) + sum(penalties), rel=1e-12)


@pytest.mark.parametrize(
    ("chain", "similarity", "weight"),
    [
        (("inner",), 0.16 / 3.76, 1),
        (("focaler",), 1 / 7 / 0.95, 1),
        (("rectified",), (1 / 7 + 1 / 343) / 2, 1),
        (("focal",), 1 / 7, math.sqrt(1 / 7)),
        (("wise",), 1 / 7, math.exp(1 / 9)),
        (("inner", "focaler", "focal"), 0.16 / 3.76 / 0.95, math.sqrt(1 / 7)),
    ],
)
def test_closed_forms_of_the_modifiers(chain, similarity, weight):
    pred, target = torch.tensor(DIAGONAL, dtype=torch.float64)
    actual = alpha_iou_loss(pred, target, kind="diou", alpha=3.0, modifiers=chain).item()
    assert actual == pytest.approx(weight * (1 - similarity**3 + (1 / 9) ** 3), rel=1e-12)


@pytest.mark.parametrize("momentum", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("version", [2, 3])
def test_wise_by_hand(version, momentum):
    """Two pairs of IoU 1/7 and 1/3: the mean moves first, then weighs."""
    pred, target = torch.tensor([DIAGONAL, CROSSED], dtype=torch.float64).unbind(1)
    losses = [6 / 7, 2 / 3]
    mean = 1 + momentum * (sum(losses) / 2 - 1)
    expected = []
    for loss, distance in zip(losses, [1 / 9, 1 / 16], strict=True):
        b = loss / mean
        factor = b**0.5 if version == 2 else b / (3 * 1.9 ** (b - 3))
        expected.append(math.exp(distance) * factor * loss)
    wise = modifiers.Wise(version=version, momentum=momentum)
    module = AlphaIoULoss(kind="iou", alpha=1.0, modifiers=(wise,), reduction="none")
    OURS(module(pred, target).tolist(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alpha", [1.0, 3.0])
def test_wise_against_the_oracle(version, alpha):
    pred, target = generic_pairs(16, seed=17)
    wise = modifiers.Wise(version=version, momentum=0.5)
    module = AlphaIoULoss(kind="eiou", alpha=alpha, modifiers=(wise,), reduction="none").train()
    actual = module(pred, target)
    weigh = partial(getattr(oracle, f"wise_v{version}"), mean=wise.mean_loss.item())
    expected = oracle.losses(
        pred.tolist(), target.tolist(), kind=oracle.eiou, alpha=alpha, modifiers=(weigh,)
    )
    OURS(actual.tolist(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("offset", [10.0, 0.1, 0.01, 1e-3, 1e-6, 1e-9])
def test_slope_of_nwd_near_the_target(offset, box_format):
    """S = exp(−W₂/constant) has the slope 1/constant at the target, however near a box is."""
    target = torch.tensor([100.0, 50.0, 140.0, 90.0], dtype=torch.float64)
    pred = target + torch.tensor([offset, 0, offset, 0], dtype=torch.float64)
    pred, target = (encode(boxes, box_format) for boxes in (pred, target))
    pred.requires_grad_()
    alpha_iou_loss(pred, target, kind="nwd", alpha=1.0, box_format=box_format).backward()
    along_x = pred.grad[0] + pred.grad[2] if box_format == "xyxy" else pred.grad[0]
    assert along_x.item() == pytest.approx(math.exp(-offset / 12.8) / 12.8, rel=1e-5)


def test_distance_of_nwd_neither_vanishes_nor_overflows():
    for size in (1e-25, 1e-12, 1.0, 1e12, 1e25):
        target = size * torch.tensor([0.0, 0.0, 1.0, 1.0])
        kind = partial(kinds.nwd, constant=size)
        pred = (target + size * torch.tensor([3.0, 4.0, 3.0, 4.0])).requires_grad_()
        loss = alpha_iou_loss(pred, target, kind=kind, alpha=1.0)
        loss.backward()
        assert loss.item() == pytest.approx(1 - math.exp(-5), rel=1e-5)
        assert pred.grad.isfinite().all()


# --- identities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["iou", "giou", "diou", "ciou", "eiou"])
def test_box_cox_tends_to_the_logarithm(kind):
    pairs = generic_pairs(32, seed=18)
    overlap = alpha_iou_loss(*pairs, alpha=1.0) < 0.99
    ours = partial(alpha_iou_loss, *pairs, kind=kind, penalty_alpha=1.0, box_cox=True)
    limit = ours(alpha=0.0)[overlap]
    gaps = [(ours(alpha=alpha)[overlap] - limit).abs().max().item() for alpha in (1e-2, 1e-4, 1e-6)]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2]
    assert gaps[2] < 1e-4


def test_box_cox_at_one_is_plain():
    pairs = generic_pairs(32, seed=19)
    plain = alpha_iou_loss(*pairs, kind="ciou", alpha=1.0)
    OURS(alpha_iou_loss(*pairs, kind="ciou", alpha=1.0, box_cox=True), plain)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.0, 3.0])
def test_penalties_only_add(alpha):
    pairs = generic_pairs(200, seed=20)
    loss = {kind: alpha_iou_loss(*pairs, kind=kind, alpha=alpha) for kind in NAMES}
    slack = 1e-12
    assert (loss["giou"] >= loss["iou"] - slack).all()
    assert (loss["diou"] >= loss["iou"] - slack).all()
    assert (loss["ciou"] >= loss["diou"] - slack).all()
    assert (loss["eiou"] >= loss["diou"] - slack).all()
    assert (loss["ciou"] > loss["diou"] + 1e-6).any()
    assert (loss["eiou"] > loss["diou"] + 1e-6).any()


@pytest.mark.parametrize("kind", NAMES)
def test_larger_alpha_gives_larger_similarity_term(kind):
    """S^α falls with α, so 1 − S^α rises (the paper's loss reweighting)."""
    pairs = generic_pairs(64, seed=21)
    ours = partial(alpha_iou_loss, *pairs, kind=kind, penalty_alpha=1.0)
    losses = torch.stack([ours(alpha=alpha) for alpha in (0.5, 1.0, 2.0, 3.0)])
    assert (losses.diff(dim=0) >= -1e-12).all()


def test_reweighting_of_the_paper():
    """w_r = (1 − IoU^α)/(1 − IoU) = 1 + (IoU − IoU^α)/(1 − IoU): 1 at IoU 0, α as IoU → 1."""
    width = torch.tensor([1e-9, 0.25, 0.5, 1 - 1e-7], dtype=torch.float64)
    pred = torch.stack([0 * width, 0 * width, width, 0 * width + 1], dim=-1)
    target = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64).expand(4, 4)
    weights = alpha_iou_loss(pred, target, alpha=3.0) / alpha_iou_loss(pred, target, alpha=1.0)
    OURS(weights, torch.tensor([1, 1.3125, 1.75, 3], dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_inner_of_one_and_trivial_modifiers_change_nothing():
    pairs = generic_pairs(16, seed=22)
    plain = alpha_iou_loss(*pairs, kind="diou")
    for modifier in (
        partial(modifiers.inner, ratio=1.0),
        partial(modifiers.focaler, lower=0.0, upper=1.0),
        partial(modifiers.rectified, powers=(1.0,), shares=(1.0,)),
        partial(modifiers.focal, gamma=0.0),
    ):
        OURS(alpha_iou_loss(*pairs, kind="diou", modifiers=(modifier,)), plain)


def test_rectified_is_a_sum_of_powers():
    pairs = generic_pairs(16, seed=23)
    mixed = partial(modifiers.rectified, powers=(1.0, 3.0), shares=(0.25, 0.75))
    actual = alpha_iou_loss(*pairs, alpha=1.0, modifiers=(mixed,))
    one, three = (alpha_iou_loss(*pairs, alpha=alpha) for alpha in (1.0, 3.0))
    OURS(actual, 0.25 * one + 0.75 * three)


def test_a_custom_kind_is_a_function_of_the_geometry():
    """The shipped kinds are such functions: by name and by themselves they are the same loss."""

    pairs = generic_pairs(8, seed=24)
    for kind in NAMES:
        by_name = alpha_iou_loss(*pairs, kind=kind, alpha=2.0)
        assert torch.equal(alpha_iou_loss(*pairs, kind=getattr(kinds, kind), alpha=2.0), by_name)


# --- caps ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logarithm_of_disjoint_boxes_is_capped(dtype):
    pred = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=dtype)
    target = torch.tensor([5.0, 0.0, 6.0, 1.0], dtype=dtype)
    log = alpha_iou_loss(pred, target, kind="iou", alpha=0.0).item()
    assert log == pytest.approx(-math.log(1.17549435e-38), rel=1e-6)
    far = alpha_iou_loss(pred, target + 1e6, kind="nwd", alpha=0.0).item()
    assert far == pytest.approx(log)


def test_penalty_counts_at_most_a_thousand():
    image = KINDS["mpdiou_image"].ours
    pred = torch.tensor([1e6, 0.0, 1e6 + 1, 1.0], dtype=torch.float64)
    target = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    assert alpha_iou_loss(pred, target, kind=image, alpha=1.0).item() == pytest.approx(2001)
    assert alpha_iou_loss(pred, target, kind=image, alpha=2.0).item() == pytest.approx(2e6 + 1)


def test_values_below_the_slope_cap_are_exact():
    """IoU 1e-8 under α = ½ and the logarithm: the cap is on the slope alone."""
    pred = torch.tensor([0.0, 0.0, 1e-8, 1.0], dtype=torch.float64)
    target = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    root = alpha_iou_loss(pred, target, alpha=0.5).item()
    assert 1 - root == pytest.approx(1e-4, rel=1e-9)
    assert alpha_iou_loss(pred, target, alpha=0.0).item() == pytest.approx(-math.log(1e-8))


# --- schedule ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "values"),
    [
        ("linear", [1.0, 1.5, 2.0, 3.0]),
        ("cosine", [1.0, 1 + 2 * (1 - math.sqrt(0.5)) / 2, 2.0, 3.0]),
    ],
)
def test_schedule(shape, values):
    schedule = AlphaSchedule(1.0, 3.0, shape=shape)
    assert [schedule(p) for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(values)
    constant = AlphaSchedule(2.0, 2.0, shape="constant")
    assert [constant(p) for p in (0.0, 0.25, 1.0)] == [2.0, 2.0, 2.0]


def test_module_follows_its_schedule():
    pairs = generic_pairs(8, seed=25)
    module = AlphaIoULoss(kind="diou", alpha=AlphaSchedule(1.0, 3.0, shape="linear"))
    for progress, alpha in ((None, 1.0), (0.5, 2.0), (1.0, 3.0), (0.0, 1.0)):
        if progress is not None:
            module.set_progress(progress)
        expected = alpha_iou_loss(*pairs, kind="diou", alpha=alpha, reduction="mean")
        OURS(module(*pairs), expected)


def test_in_pixels_is_said_of_the_right_kinds():
    """The kinds the other tests exempt from scale invariance do depend on the scale."""
    pred, target = generic_pairs(8, seed=26)
    for kind in IN_PIXELS:
        here, there = (
            alpha_iou_loss(pred * s, target * s, kind=KINDS[kind].ours, alpha=1.0) for s in (1, 10)
        )
        assert (here - there).abs().max() > 1e-2


def test_a_scheduled_ratio_is_that_of_inner_at_every_progress():
    boxes = generic_pairs(50, seed=13)
    inner = ScheduledInner(AlphaSchedule(2.0, 0.5))
    module = AlphaIoULoss("ciou", 2.0, modifiers=(inner, "focaler"), reduction="none")
    for progress, ratio in ((0.0, 2.0), (0.5, 1.25), (1.0, 0.5)):
        module.set_progress(progress)
        fixed = (partial(modifiers.inner, ratio=ratio), "focaler")
        expected = alpha_iou_loss(*boxes, kind="ciou", alpha=2.0, modifiers=fixed)
        torch.testing.assert_close(module(*boxes), expected, rtol=1e-12, atol=0)
    assert {name: value.item() for name, value in module.state_dict().items()} == {
        "stateful.0.ratio": 0.5
    }
    assert "ScheduledInner(schedule=AlphaSchedule(start=2.0, end=0.5" in repr(module)
    check_stateless("matcher_loss", module)
    with pytest.raises(ValueError, match="ratio must be a finite number > 0, got 0"):
        ScheduledInner(lambda progress: 1.0 - progress)
    with pytest.raises(ValueError, match="progress must lie in"):
        module.set_progress(1.5)


def test_a_compiled_loss_sees_the_ratio_move():
    boxes = generic_pairs(5, seed=14)
    module = AlphaIoULoss("iou", modifiers=(ScheduledInner(AlphaSchedule(2.0, 0.5)),))
    compiled = torch.compile(module, backend="eager", fullgraph=True)
    for progress in (0.0, 1.0):
        module.set_progress(progress)
        torch.testing.assert_close(compiled(*boxes), module(*boxes))
