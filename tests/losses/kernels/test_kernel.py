"""Values and gradients of the kernel against the reference: kinds, formats, dtypes, reductions."""

from functools import partial

import pytest
import torch

from alphaiou import alpha_iou_loss
from alphaiou.losses.kernels import fused
from tests.losses.catalogue import KINDS, NAMES
from tests.losses.kernels.cases import (
    ALPHAS,
    DTYPES,
    check,
    decided_by_the_formula,
    hard_pairs,
    loss_and_gradient,
    ours,
    skip_without_kernel,
)
from tests.strategies import FORMATS, encode, generic_pairs

skip_without_kernel()
pytestmark = pytest.mark.gpu

# An orthogonal array: over these nine every two settings of reduction, α, format and dtype meet.
SETTINGS = [
    (reduction, alpha, FORMATS[(i + j) % 3], DTYPES[(i + 2 * j) % 3])
    for i, reduction in enumerate(("none", "mean", "sum"))
    for j, alpha in enumerate(("float", "scalar", "each"))
]
# PIoU's slope is made of 1 − (1 − e^(−P²)): boxes far apart have few digits left, as in fp32's
# reference.
ROUNDING = {"piou": 1e-5, "piou_v2": 1e-5}
SIZES = (1, 31, 127, 128, 129, 2047, 2049)


def boxes(count, *, box_format="xyxy", dtype=torch.float32, device="cpu", seed=1, size=1.0):
    pairs = generic_pairs(count, seed=seed, size=size)
    return tuple(encode(b, box_format).to(device=device, dtype=dtype) for b in pairs)


def each_alpha(count, device):
    """One α a pair, all of them."""
    return torch.tensor(ALPHAS, device=device).repeat(count // len(ALPHAS) + 1)[:count]


def with_holes(pred, target, seed=2):
    """Weights, some zero; what the pairs of weight zero hold does not matter."""
    generator = torch.Generator().manual_seed(seed)
    weight = 2 * torch.rand(pred.shape[:-1], generator=generator)
    weight[torch.rand(weight.shape, generator=generator) < 0.3] = 0
    weight = weight.to(pred.device)
    pred, target = pred.clone(), target.clone()
    pred[weight == 0], target[weight == 0] = torch.nan, torch.inf
    return pred, target, weight


@pytest.mark.parametrize("alpha", [12.0, 150.0])
@pytest.mark.parametrize("kind", ["siou", "shape_iou", "shape_iou_scale_1", "mpdiou_image"])
def test_alpha_above_10_stays_finite(kind, alpha, device):
    pred, target = boxes(129, device=device, size=50.0)
    for tensor in loss_and_gradient(pred, target, kind=ours(kind), alpha=alpha, backend="fused"):
        assert tensor.isfinite().all()


@pytest.mark.parametrize("offset", [0.125, 2.0**-7, 2.0**-10])
def test_nwd_near_the_target(offset, device):
    target = torch.tensor([100.0, 50.0, 140.0, 90.0], device=device)
    moves = torch.randn(129, 4, generator=torch.Generator().manual_seed(8)).sign().to(device)
    check(target + offset * moves, target.expand(129, 4), kind="nwd", alpha=1.0)


def test_it_is_tritons_kernel(device):
    launch = fused._launcher(torch.zeros(1, 4, device=device))
    assert launch.__module__ == "alphaiou.losses.kernels.triton"


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: "-".join(map(str, settings)))
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_is_the_reference(kind, settings, device):
    reduction, alpha, box_format, dtype = settings
    row = SETTINGS.index(settings)
    pred, target = boxes(67, box_format=box_format, dtype=dtype, device=device)
    options = {"reduction": reduction, "box_format": box_format, "box_cox": row % 2 == 1}
    if row % 3 != 1:
        pred, target, options["weight"] = with_holes(pred, target)
    if reduction == "none":
        slope = torch.rand(67, generator=torch.Generator().manual_seed(3)) - 0.5
        options["slope"] = slope.to(device)
    alphas = {
        "float": (0.5, 3.0),
        "scalar": (torch.tensor(0.0, device=device), torch.tensor(2.0, device=device)),
        "each": (each_alpha(67, device),),
    }
    for power in alphas[alpha]:
        rounding = ROUNDING.get(kind, 0.0)
        check(pred, target, kind=ours(kind), alpha=power, rounding=rounding, **options)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_power(kind, alpha, device):
    pred, target = boxes(50, device=device, seed=4)
    check(pred, target, kind=ours(kind), alpha=alpha, rounding=ROUNDING.get(kind, 0.0))


@pytest.mark.parametrize("alpha", [1e-6, 1e-3, 0.0999, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", ["iou", "ciou", "nwd_constant"])
def test_every_power_of_the_box_cox_form(kind, alpha, device):
    pred, target = boxes(50, device=device, seed=5)
    check(pred, target, kind=ours(kind), alpha=alpha, penalty_alpha=1.0, box_cox=True)


@pytest.mark.parametrize("form", ["float", "scalar", "each"])
@pytest.mark.parametrize("kind", ["ciou", "biou"])
def test_a_power_of_its_own_for_the_penalties(kind, form, device):
    pred, target = boxes(50, device=device, seed=6)
    penalty_alpha = {
        "float": 0.5,
        "scalar": torch.tensor(2.0, device=device),
        "each": each_alpha(50, device) + 0.5,
    }
    for alpha in (2.0, each_alpha(50, device)):
        check(pred, target, kind=ours(kind), alpha=alpha, penalty_alpha=penalty_alpha[form])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.int64, torch.bool])
def test_weights_and_powers_of_any_dtype(dtype, device):
    pred, target = boxes(40, device=device, seed=7)
    numbers = torch.arange(40, device=device) % 4
    check(pred, target, kind="ciou", weight=numbers.to(dtype))
    if dtype != torch.bool:
        check(pred, target, kind="ciou", alpha=numbers.to(dtype))


@pytest.mark.parametrize("dtypes", [(a, b) for a in DTYPES for b in DTYPES if a != b])
def test_mixed_dtypes(dtypes, device):
    pred, target = boxes(40, device=device, seed=8)
    check(pred.to(dtypes[0]), target.to(dtypes[1]), kind="ciou")


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_pairs(kind, box_format, device):
    """Touching, nested, flat, inverted, far: at ties the subgradient is the reference's."""
    pred, target = hard_pairs(6, box_format, device)
    keep = decided_by_the_formula(kind, pred, target, box_format)
    assert keep.float().mean() > 0.4
    for alpha in (0.0, 0.5, 2.0):
        options = {"kind": ours(kind), "alpha": alpha, "box_format": box_format}
        check(pred, target, keep=keep, rounding=1e-4, **options)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_identical_boxes_are_exactly_zero(kind, box_format, device):
    # One program of the interpreter, or enough to meet every way in which an approximation rounds.
    count, reduction = (2000, "sum") if device.type == "cpu" else (1_000_000, "none")
    generator = torch.Generator().manual_seed(9)
    corners = torch.rand(count, 4, generator=generator)
    corners[:, 2:] += corners[:, :2]
    sizes = 10.0 ** (8 * torch.rand(count, 1, generator=generator) - 4)
    same = encode(corners * sizes, box_format).to(device)
    for alpha in (0.5, 3.0):
        loss, gradient = loss_and_gradient(
            same,
            same.clone(),
            kind=ours(kind),
            alpha=alpha,
            box_format=box_format,
            reduction=reduction,
            backend="fused",
        )
        assert loss.count_nonzero() == 0
        assert gradient.count_nonzero() == 0


@pytest.mark.parametrize("kind", NAMES)
def test_identical_points_and_lines_are_exactly_zero(kind, device):
    """Whatever their size, down to what fp32 can hold."""
    shapes = torch.tensor([[0.0, 0, 0, 0], [1, 2, 1, 2], [1, 2, 3, 2], [1, 1, 1, 4], [0, 0, 3, 5]])
    sizes = torch.tensor([1e-38, 1e-30, 1.3e-29, 1e-28, 1e-20, 1.0, 1e20, 1e30])
    same = (shapes * sizes[:, None, None]).flatten(0, 1).to(device)
    for alpha in (0.5, 1.0, 3.0):
        options = {"kind": kind, "alpha": alpha, "backend": "fused"}
        loss, gradient = loss_and_gradient(same, same.clone(), **options)
        assert loss.count_nonzero() == 0
        assert gradient.count_nonzero() == 0


# --- sizes and shapes -----------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "sum"])
@pytest.mark.parametrize("count", SIZES)
def test_every_size(count, reduction, device):
    """One program, several, and the last of them cut off."""
    pred, target = boxes(count, device=device, seed=10)
    pred, target, weight = with_holes(pred, target)
    check(pred, target, kind="ciou", reduction=reduction, weight=weight)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3, 4), (2, 1, 3, 4)])
def test_batch_shapes(shape, reduction, device):
    batch = torch.Size(shape[:-1])
    pred, target = (b.view(shape) for b in boxes(batch.numel(), device=device, seed=11))
    alpha = each_alpha(batch.numel(), device).view(batch)
    check(pred, target, kind="ciou", reduction=reduction)
    check(pred, target, kind="ciou", reduction=reduction, alpha=alpha, weight=alpha + 1)


def test_weights_and_powers_that_broadcast(device):
    pred, target = (b.view(2, 3, 4) for b in boxes(6, device=device, seed=12))
    rows, columns = torch.tensor([[2.0], [0.5]]), torch.tensor([1.0, 0.0, 3.0])
    rows, columns = rows.to(device), columns.to(device)
    check(pred, target, kind="diou", alpha=rows, weight=columns)
    check(pred, target, kind="diou", alpha=columns, penalty_alpha=rows, weight=rows)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4)])
def test_no_pairs_at_all(shape, reduction, device):
    pred, target = torch.zeros(shape, device=device), torch.zeros(shape, device=device)
    for options in ({}, {"weight": torch.zeros(shape[:-1], device=device)}):
        loss, gradient = loss_and_gradient(
            pred, target, reduction=reduction, backend="fused", **options
        )
        assert loss.shape == (shape[:-1] if reduction == "none" else ())
        assert loss.sum() == 0
        assert gradient.shape == shape


def test_boxes_that_are_not_contiguous(device):
    pred, target = boxes(40, device=device, seed=13)
    for strided in (
        lambda b: b.t().contiguous().t(),
        lambda b: b[::2],
        lambda b: b.repeat(1, 2)[:, 4:],
        lambda b: b[:5, None].expand(5, 3, 4),
        lambda b: b.flip(0)[1:],
    ):
        some = strided(pred)
        assert not some.is_contiguous() or some.storage_offset()
        check(some, strided(target), kind="ciou", alpha=2.0)
    weight = torch.rand(80, device=device)[::2]
    check(pred, target, kind="ciou", weight=weight, alpha=(4 * weight.flip(0))[::1])


def test_arguments_are_left_alone(device):
    pred, target, weight = with_holes(*boxes(40, device=device, seed=14))
    before = [tensor.clone() for tensor in (pred, target, weight)]
    loss_and_gradient(pred, target, kind="ciou", weight=weight, backend="fused")
    for tensor, copy in zip((pred, target, weight), before, strict=True):
        assert torch.equal(tensor.nan_to_num(), copy.nan_to_num())


# --- reductions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [7.0, 0.0, torch.tensor(7.0), torch.tensor(0.0)], ids=str)
def test_avg_factor(factor, device):
    pred, target, weight = with_holes(*boxes(50, device=device, seed=15))
    factor = factor.to(device) if isinstance(factor, torch.Tensor) else factor
    options = {"reduction": "mean", "avg_factor": factor, "weight": weight}
    check(pred, target, kind="ciou", **options)
    if not factor:
        loss, gradient = loss_and_gradient(pred, target, backend="fused", **options)
        assert loss == 0
        assert gradient.count_nonzero() == 0


def test_all_weights_zero(device):
    pred = torch.full((40, 4), torch.nan, device=device)
    for reduction in ("none", "mean", "sum"):
        options = {"weight": torch.zeros(40, device=device), "reduction": reduction}
        loss, gradient = loss_and_gradient(pred, pred, kind="ciou", backend="fused", **options)
        assert loss.count_nonzero() == 0
        assert gradient.count_nonzero() == 0


def test_a_reduced_loss_inside_a_larger_one(device):
    """The slope that comes back is not 1."""
    pred, target = boxes(50, device=device, seed=16)
    for reduction in ("mean", "sum"):
        slope = torch.tensor(-3.5, device=device)
        check(pred, target, kind="giou", reduction=reduction, slope=slope)


def test_fp16_gradients_saturate(device):
    """Boxes of 1e-5: a slope of 1e5 does not fit fp16."""
    pred = torch.tensor([[0.0, 0.0, 3e-6, 3e-6]], dtype=torch.float16, device=device)
    target = torch.tensor([[0.0, 0.0, 6e-6, 6e-6]], dtype=torch.float16, device=device)
    for reduction in ("none", "sum"):
        options = {"alpha": 1.0, "reduction": reduction, "backend": "fused"}
        _, gradient = loss_and_gradient(pred, target, **options)
        assert gradient[0, 2:].tolist() == [-65504, -65504]


def test_autocast_changes_nothing(device):
    pred, target = boxes(50, device=device, seed=17, size=600.0)
    ciou = partial(loss_and_gradient, pred, target, kind="ciou", reduction="mean", backend="fused")
    plain = ciou()
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast(device.type, dtype=dtype):
            cast = ciou()
        assert all(torch.equal(a, b) for a, b in zip(plain, cast, strict=True))


def test_no_gradient_is_asked_of_boxes_that_need_none(device):
    pred, target = boxes(50, device=device, seed=18)
    needs = pred.clone().requires_grad_()
    fused_loss = partial(alpha_iou_loss, kind="ciou", backend="fused")
    expected = fused_loss(needs, target)
    assert expected.requires_grad
    assert not fused_loss(pred, target).requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            loss = fused_loss(needs, target)
        assert not loss.requires_grad
        assert torch.equal(loss, expected.detach())
