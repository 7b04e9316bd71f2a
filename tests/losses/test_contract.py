"""The numeric contract: finite, exact zeros, invariances, dtypes; and the known faults of peers."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from alphaiou import AlphaIoULoss, alpha_iou_loss
from alphaiou.losses import modifiers
from tests.losses.catalogue import CHAINS, KINDS, NAMES, SCALE_FREE
from tests.strategies import DTYPES, FORMATS, adversarial_pairs, box_pairs, encode, generic_pairs

ALPHAS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 10.0)
SYMMETRIC = ("iou", "giou", "diou", "ciou", "eiou", "siou", "mpdiou", "nwd")
WISE = {f"wise_v{version}": partial(modifiers.Wise, version=version) for version in (2, 3)}
POWERS = st.sampled_from(ALPHAS) | st.floats(1e-3, 10)


def make_modifiers(label):
    """The modifiers behind a label, a Wise made anew."""
    if label is None:
        return ()
    return (WISE[label](),) if label in WISE else CHAINS[label].ours


def with_gradients(pred, target, **options):
    """The loss of the pairs and its gradients with respect to both boxes."""
    pred, target = (boxes.clone().requires_grad_() for boxes in (pred, target))
    loss = alpha_iou_loss(pred, target, **options)
    return loss.detach(), *torch.autograd.grad(loss.sum(), (pred, target))


def assert_finite(tensors):
    for tensor in tensors:
        assert tensor.isfinite().all(), tensor


# --- finite, whatever comes -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=120)
@given(data=st.data())
def test_finite_and_never_negative(kind, data):
    pred, target = data.draw(st.sampled_from(DTYPES).flatmap(box_pairs), label="pair")
    loss, *gradients = with_gradients(
        pred,
        target,
        kind=KINDS[kind].ours,
        alpha=data.draw(POWERS, label="alpha"),
        penalty_alpha=data.draw(st.none() | st.floats(1e-3, 10), label="penalty_alpha"),
        box_cox=data.draw(st.booleans(), label="box_cox"),
        box_format=data.draw(st.sampled_from(FORMATS), label="box_format"),
    )
    assert_finite([loss, *gradients])
    assert loss >= 0


@pytest.mark.slow
@pytest.mark.parametrize("chain", [*CHAINS, *WISE])
@settings(max_examples=80)
@given(data=st.data())
def test_finite_under_modifiers(chain, data):
    pred, target = data.draw(st.sampled_from(DTYPES).flatmap(box_pairs), label="pair")
    loss, *gradients = with_gradients(
        pred,
        target,
        kind=data.draw(st.sampled_from(NAMES), label="kind"),
        alpha=data.draw(POWERS, label="alpha"),
        box_cox=data.draw(st.booleans(), label="box_cox"),
        box_format=data.draw(st.sampled_from(FORMATS), label="box_format"),
        modifiers=make_modifiers(chain),
    )
    assert_finite([loss, *gradients])
    assert loss >= 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_finite_with_tensor_alphas(kind, dtype):
    pred, target = adversarial_pairs(7000, dtype=dtype, seed=1)
    alpha = torch.tensor(ALPHAS).repeat(1000)
    for box_cox in (False, True):
        assert_finite(
            with_gradients(pred, target, kind=KINDS[kind].ours, alpha=alpha, box_cox=box_cox)
        )


def pairs_made_of(numbers, dtype):
    """Four thousand pairs whose coordinates are taken from a few numbers."""
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randint(0, len(numbers), (4000, 8), generator=generator)
    boxes = torch.tensor(numbers, dtype=torch.float64)[drawn].to(dtype)
    return boxes[:, :4], boxes[:, 4:]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_finite_for_the_smallest_numbers(kind, dtype):
    limits = torch.finfo(dtype)
    least = limits.smallest_normal * limits.eps
    for numbers in ([0, least, 2 * least, limits.smallest_normal], [0, 1, -1, least]):
        pairs = pairs_made_of(numbers, dtype)
        for alpha in (0.0, 0.5, 1.0, 3.0):
            assert_finite(with_gradients(*pairs, kind=KINDS[kind].ours, alpha=alpha))


@pytest.mark.parametrize("kind", KINDS)
def test_finite_for_the_largest_numbers(kind):
    """Up to 1e30, or the largest number there is."""
    for dtype in DTYPES:
        limit = min(1e30, torch.finfo(dtype).max)
        pairs = pairs_made_of([0, 1, -1, limit, -limit], dtype)
        for alpha in (0.0, 0.5, 1.0, 3.0):
            assert_finite(with_gradients(*pairs, kind=KINDS[kind].ours, alpha=alpha))


def test_wise_stays_finite_when_every_box_is_right():
    """The running mean of 1 − IoU becomes 0; the next wrong box must not weigh infinitely much."""
    boxes, other = generic_pairs(4, seed=3, dtype=torch.float32)
    for version in (2, 3):
        wise = modifiers.Wise(version=version, momentum=1.0)
        module = AlphaIoULoss(kind="iou", modifiers=(wise,), reduction="none")
        assert torch.equal(module(boxes, boxes), torch.zeros(4))
        assert wise.mean_loss == 0
        assert_finite([module.eval()(other, boxes)])


# --- identical boxes, and pairs of weight zero ----------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_identical_boxes_are_exactly_nothing(kind, alpha, dtype):
    boxes, _ = adversarial_pairs(1400, dtype=dtype, seed=4)  # points, lines, inverted, 1e±30
    loss, *gradients = with_gradients(boxes, boxes, kind=KINDS[kind].ours, alpha=alpha)
    for tensor in (loss, *gradients):
        assert torch.equal(tensor, torch.zeros_like(tensor))


@pytest.mark.slow
@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("chain", [None, *CHAINS, *WISE])
def test_identical_boxes_in_every_format_and_under_every_modifier(chain, box_format):
    boxes, _ = adversarial_pairs(1400, seed=5)
    boxes = encode(boxes, box_format)
    for kind in NAMES:
        for alpha in (0.0, 0.5, 3.0):
            loss, *gradients = with_gradients(
                boxes,
                boxes,
                kind=kind,
                alpha=alpha,
                box_cox=True,
                box_format=box_format,
                modifiers=make_modifiers(chain),
            )
            for tensor in (loss, *gradients):
                assert torch.equal(tensor, torch.zeros_like(tensor)), (kind, alpha)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("chain", [None, *CHAINS, *WISE])
def test_weight_zero_gives_zero_whatever_the_boxes(chain, dtype):
    pred, target = (boxes.to(dtype) for boxes in generic_pairs(8, seed=6))
    rubbish = torch.tensor([math.nan, math.inf, -math.inf, 0.0], dtype=dtype)
    pred[0], target[1], pred[2, 1], target[2] = rubbish, rubbish, math.nan, rubbish
    weight = torch.tensor([0.0, 0, 0, 0, 1, 2, 0.5, -0.0])
    for kind in KINDS:
        options = {"kind": KINDS[kind].ours, "alpha": 0.5}
        make = partial(make_modifiers, chain)
        loss, *gradients = with_gradients(pred, target, weight=weight, modifiers=make(), **options)
        off = weight == 0
        for tensor in (loss, *gradients):
            assert torch.equal(tensor[off], torch.zeros_like(tensor[off])), kind
        if chain not in WISE:  # whose mean the other pairs move
            alone, *alone_gradients = with_gradients(
                pred[~off], target[~off], weight=weight[~off], modifiers=make(), **options
            )
            assert torch.equal(loss[~off], alone)
            assert torch.equal(gradients[0][~off], alone_gradients[0])


def test_all_weights_zero_is_a_differentiable_zero():
    pred = torch.full((3, 4), math.nan, requires_grad=True)
    for reduction in ("mean", "sum"):
        loss = alpha_iou_loss(pred, pred.detach(), weight=torch.zeros(3), reduction=reduction)
        (gradient,) = torch.autograd.grad(loss, pred)
        assert loss == 0
        assert torch.equal(gradient, torch.zeros(3, 4))


# --- invariances ----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("kind", SCALE_FREE)
def test_scale_invariance(kind, alpha):
    pred, target = generic_pairs(200, seed=7, dtype=torch.float32)
    options = {"kind": KINDS[kind].ours, "alpha": alpha}
    loss, slope, _ = with_gradients(pred, target, **options)
    for scale in (1e-3, 0.02, 0.7, 30.0, 640.0, 1e4):
        scaled, scaled_slope, _ = with_gradients(pred * scale, target * scale, **options)
        torch.testing.assert_close(scaled, loss, rtol=1e-5, atol=1e-5)
        if alpha >= 1:  # below, the slope of a small penalty magnifies the rounding of the boxes
            torch.testing.assert_close(scaled_slope * scale, slope, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("power", [-90, -20, 20, 90])
@pytest.mark.parametrize("kind", SCALE_FREE)
def test_scaling_by_a_power_of_two_changes_no_bit(kind, power):
    pred, target = generic_pairs(200, seed=8, dtype=torch.float32)
    options = {"kind": KINDS[kind].ours, "alpha": 3.0}
    loss, slope, _ = with_gradients(pred, target, **options)
    scaled, scaled_slope, _ = with_gradients(pred * 2.0**power, target * 2.0**power, **options)
    torch.testing.assert_close(scaled, loss, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(scaled_slope * 2.0**power, slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("box_format", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_translation_invariance(kind, box_format):
    corners = generic_pairs(100, seed=9)
    # Dyadic numbers: the shift itself must not round.
    corners = tuple((boxes * 4096).round() / 4096 for boxes in corners)
    here, there = (
        [encode(boxes + shift, box_format).float() for boxes in corners]
        for shift in (0.0, torch.tensor([64.0, -32.0, 64.0, -32.0]))
    )
    ours = partial(with_gradients, kind=KINDS[kind].ours, box_format=box_format)
    for a, b in zip(ours(*here), ours(*there), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_mirrored_and_transposed_boxes(kind):
    """x and y are treated alike, and so are left and right."""
    if kind == "mpdiou_image":
        pytest.skip("the image has sides of its own")
    pred, target = generic_pairs(100, seed=10)
    loss = alpha_iou_loss(pred, target, kind=KINDS[kind].ours)
    swap = torch.tensor([1, 0, 3, 2])
    swapped = alpha_iou_loss(pred[:, swap], target[:, swap], kind=KINDS[kind].ours)
    torch.testing.assert_close(swapped, loss, rtol=1e-12, atol=1e-12)
    flip = torch.tensor([2, 3, 0, 1])
    flipped = alpha_iou_loss(-pred[:, flip], -target[:, flip], kind=KINDS[kind].ours)
    torch.testing.assert_close(flipped, loss, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_symmetry(kind, alpha):
    pred, target = generic_pairs(100, seed=11)
    there = alpha_iou_loss(pred, target, kind=kind, alpha=alpha)
    back = alpha_iou_loss(target, pred, kind=kind, alpha=alpha)
    torch.testing.assert_close(there, back, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0, 10.0])
def test_order_of_iou_is_kept(alpha):
    """The paper's order preservation: α never changes which of two boxes is the better one."""
    pred, _ = generic_pairs(500, seed=12)
    target = torch.tensor([0.2, 0.2, 0.8, 0.8], dtype=torch.float64).expand_as(pred)
    plain = 1 - alpha_iou_loss(pred, target, alpha=1.0)
    order = plain.argsort()
    losses = alpha_iou_loss(pred, target, alpha=alpha)[order]
    assert (losses.diff() <= 0).all()
    apart = plain[order].diff() > 1e-3
    assert (losses.diff()[apart & (plain[order][1:] > 0.1)] < 0).all()


# --- shapes, dtypes, autocast ---------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 4), (3, 0, 4)])
@pytest.mark.parametrize("kind", NAMES)
def test_empty_input(kind, shape):
    for chain in (None, "inner focaler rectified focal wise", "wise_v3"):
        for reduction, options in (
            ("none", {}),
            ("sum", {}),
            ("mean", {}),
            ("mean", {"avg_factor": 2.0}),
            ("mean", {"avg_factor": 0.0}),
            ("mean", {"weight": torch.ones(shape[:-1])}),
        ):
            pred = torch.zeros(shape, requires_grad=True)
            module = AlphaIoULoss(kind=kind, modifiers=make_modifiers(chain), reduction=reduction)
            loss = module(pred, torch.zeros(shape), **options)
            loss.sum().backward()
            assert loss.shape == (shape[:-1] if reduction == "none" else ())
            assert loss.sum() == 0
            assert pred.grad.shape == shape
            for state in module.state_dict().values():
                assert state == 1  # no batch, no news


@pytest.mark.parametrize("shape", [(4,), (1, 4), (2, 3, 4), (2, 1, 3, 4)])
@pytest.mark.parametrize("kind", NAMES)
def test_batch_shapes(kind, shape):
    count = math.prod(shape[:-1])
    pred, target = generic_pairs(count, seed=13)
    loss = alpha_iou_loss(pred.view(shape), target.view(shape), kind=kind)
    assert loss.shape == shape[:-1]
    assert torch.equal(loss.flatten(), alpha_iou_loss(pred, target, kind=kind))


def test_strided_boxes():
    pred, target = (boxes.t().contiguous().t() for boxes in generic_pairs(6, seed=14))
    assert not pred.is_contiguous()
    straight = alpha_iou_loss(pred.contiguous(), target.contiguous(), kind="ciou")
    assert torch.equal(alpha_iou_loss(pred, target, kind="ciou"), straight)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", NAMES)
def test_dtype_rule(kind, dtype):
    pred, target = (boxes.to(dtype) for boxes in generic_pairs(10, seed=15, size=600.0))
    loss, slope, target_slope = with_gradients(pred, target, kind=kind)
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    assert loss.dtype == wide
    assert slope.dtype == target_slope.dtype == dtype
    exact, exact_slope, _ = with_gradients(pred.double(), target.double(), kind=kind)
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
    loose = torch.finfo(dtype).eps
    torch.testing.assert_close(slope.double(), exact_slope, rtol=4 * loose, atol=loose)


@pytest.mark.parametrize(
    ("first", "second", "result"),
    [
        (torch.float16, torch.float32, torch.float32),
        (torch.bfloat16, torch.float16, torch.float32),
        (torch.float32, torch.float64, torch.float64),
        (torch.int64, torch.float16, torch.float32),
        (torch.int64, torch.uint8, torch.float32),
    ],
)
def test_mixed_dtypes(first, second, result):
    pred, target = torch.tensor([0, 0, 2, 2]).to(first), torch.tensor([1, 1, 3, 3]).to(second)
    loss = alpha_iou_loss(pred, target, alpha=1.0)
    assert loss.dtype == result
    torch.testing.assert_close(loss, torch.tensor(6 / 7, dtype=result))


@pytest.mark.parametrize("kind", NAMES)
def test_autocast_changes_nothing(kind):
    pred, target = generic_pairs(50, seed=16, dtype=torch.float32, size=600.0)
    plain = with_gradients(pred, target, kind=kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = with_gradients(pred, target, kind=kind)
    for a, b in zip(plain, cast, strict=True):
        assert torch.equal(a, b)


def test_arguments_are_left_alone():
    pred, target = generic_pairs(5, seed=17)
    pred[0], weight = torch.tensor([1.0, 1.0, 0.0, 0.0]), torch.tensor([0.0, 1, 1, 1, 1])
    before = [tensor.clone() for tensor in (pred, target, weight)]
    alpha_iou_loss(pred, target, kind="ciou", weight=weight, modifiers=("inner", "wise"))
    for tensor, copy in zip((pred, target, weight), before, strict=True):
        assert torch.equal(tensor, copy)


# --- the conventions, one example each ------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_inverted_side_is_its_midpoint(kind):
    target = torch.tensor([0.0, 0.0, 4.0, 4.0])
    inverted, flat = torch.tensor([3.0, 1.0, 1.0, 2.0]), torch.tensor([2.0, 1.0, 2.0, 2.0])
    ours = partial(alpha_iou_loss, kind=KINDS[kind].ours, alpha=2.0)
    assert torch.equal(ours(inverted, target), ours(flat, target))
    assert torch.equal(ours(target, inverted), ours(target, flat))
    negative = torch.tensor([3.0, 1.0, -2.0, 1.0])  # the same as a corner and a negative width
    square = torch.tensor([0.0, 0.0, 4.0, 4.0])
    assert torch.equal(ours(negative, square, box_format="xywh"), ours(flat, target))


@pytest.mark.parametrize(
    ("pred", "target", "iou"),
    [
        ([1, 1, 1, 1], [1, 1, 1, 1], 1),  # the same point
        ([0, 1, 0, 3], [0, 1, 0, 3], 1),  # the same line
        ([0, 0, 0, 2], [0, 1, 0, 3], 1 / 3),  # collinear segments
        ([0, 5, 2, 5], [1, 5, 3, 5], 1 / 3),
        ([0, 0, 0, 1], [0, 2, 0, 3], 0),  # collinear and apart
        ([0, 1, 0, 1], [0, 0, 0, 2], 0),  # a point on a line
        ([0, 0, 0, 2], [1, 0, 1, 2], 0),  # parallel lines
        ([0, 1, 2, 1], [1, 0, 1, 2], 0),  # a cross
        ([1, 1, 1, 1], [0, 0, 2, 2], 0),  # a point in a box
        ([3, 1, 1, 1], [2, 1, 2, 1], 1),  # an inverted line, and the point in its middle
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_iou_of_degenerate_pairs(pred, target, iou, dtype):
    pred, target = torch.tensor(pred, dtype=dtype), torch.tensor(target, dtype=dtype)
    for scale in (1.0, 2.0**-10, 2.0**10):
        loss = alpha_iou_loss(pred * scale, target * scale, alpha=1.0).item()
        assert 1 - loss == pytest.approx(iou, abs=1e-6)


@pytest.mark.parametrize("power", [-90, -20, 0, 90])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 3.0])
def test_two_lines_of_no_area(alpha, power):
    """0/0: parallel, crossing, touching or collinear; IoU 0 and nothing to divide by."""
    flat = torch.tensor([[0.0, 1, 4, 1], [0, 2, 4, 2], [2, 0, 2, 4], [0, 0, 0, 4], [4, 1, 9, 1]])
    flat = flat * 2.0**power
    pred, target = flat.repeat_interleave(len(flat), dim=0), flat.repeat(len(flat), 1)
    for kind in NAMES:
        assert_finite(with_gradients(pred, target, kind=kind, alpha=alpha))


# --- the caps on the slope ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alpha", "slope"), [(0.5, 0.5 * 1e-6**-0.5), (0.25, 0.25 * 1e-6**-0.75), (0.0, 1e6)]
)
@pytest.mark.parametrize("width", [1e-12, 1e-9, 9e-7, 4e-6])
def test_slope_below_a_millionth_is_that_at_a_millionth(alpha, slope, width):
    """A prediction [0, width] × [0, 1] in the unit square: IoU = width, dIoU/dx₂ = 1."""
    pred = torch.tensor([0.0, 0.0, width, 1.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    alpha_iou_loss(pred, target, alpha=alpha).backward()
    if width > 1e-6:
        slope = alpha * width ** (alpha - 1) if alpha else 1 / width
    assert pred.grad[2].item() == pytest.approx(-slope, rel=1e-6)


def vanishing_boxes(count, seed):
    """Boxes of 100 px whose sides are zero or anything down to 1e-12 of that."""
    generator = torch.Generator().manual_seed(seed)
    place = 100 * torch.rand(count, 2, generator=generator)
    size = 10.0 ** torch.randint(-10, 2, (count, 2), generator=generator)
    size = size * torch.randint(0, 2, (count, 2), generator=generator)
    return torch.cat([place, place + size], dim=1)


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("chain", [None, "inner", "focal", "wise"])
@pytest.mark.parametrize("kind", SCALE_FREE)
def test_zero_size_boxes_have_bounded_gradients(kind, chain, alpha):
    """Torchvision's CIoU reaches 1e6 here. Ours: at most 1e4 over the hull's side."""
    _, boxes = generic_pairs(2000, seed=18, dtype=torch.float32, size=100.0)
    lattice = torch.randint(0, 3, (2000, 8), generator=torch.Generator().manual_seed(19)).float()
    for pred, target in (
        (vanishing_boxes(2000, 20), boxes),
        (boxes, vanishing_boxes(2000, 21)),
        (vanishing_boxes(2000, 20), vanishing_boxes(2000, 21)),
        (lattice[:, :4], lattice[:, 4:]),
    ):
        edges = torch.cat([pred.view(-1, 2, 2), target.view(-1, 2, 2)], dim=1)
        hull = edges.amax(dim=1) - edges.amin(dim=1)
        _, gradient, _ = with_gradients(
            pred, target, kind=KINDS[kind].ours, alpha=alpha, modifiers=make_modifiers(chain)
        )
        assert (gradient.view(-1, 2, 2).abs() * hull[:, None]).max() <= 1e4


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("alpha", [11.0, 40.0, 127.0, 129.0, 1000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_alpha_above_10_stays_finite(kind, alpha, as_tensor):
    """The penalties of siou, shape_iou and of mpdiou with an image size exceed 1."""
    pred, target = generic_pairs(500, seed=23, dtype=torch.float32, size=100.0)
    pred[:100] *= 1000  # far away
    pred[100:200, 2:] = pred[100:200, :2]  # points
    target[150:300, 2:] = target[150:300, :2] + torch.tensor([1e-3, 1.0])
    power = torch.tensor(alpha) if as_tensor else alpha
    loss, *gradients = with_gradients(pred, target, kind=KINDS[kind].ours, alpha=power)
    assert_finite([loss, *gradients])


def test_fp16_gradients_saturate():
    """1 px = 1e-5: the slope of 1e5 a unit does not fit fp16."""
    pred = torch.tensor([0.0, 0.0, 3e-6, 3e-6], dtype=torch.float16, requires_grad=True)
    target = torch.tensor([0.0, 0.0, 6e-6, 6e-6], dtype=torch.float16)
    alpha_iou_loss(pred, target, kind="iou", alpha=1.0).backward()
    assert pred.grad.isfinite().all()
    assert pred.grad[2:].tolist() == [-65504, -65504]


# --- faults of published code, one test each ------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0, 6.0])
def test_ciou_at_the_target_is_not_nan(alpha):
    """α-IoU's own code and mmdet: β = 0/0."""
    boxes = torch.tensor([[10.0, 20.0, 110.0, 220.0]])
    assert_finite(with_gradients(boxes, boxes, kind="ciou", alpha=alpha))


@pytest.mark.parametrize("kind", ["diou", "ciou", "eiou", "siou", "shape_iou"])
@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.9])
def test_equal_centres_with_alpha_below_one(kind, alpha):
    """α-IoU's own code, YOLOX at α = 1: d(ρ^2α) = 0/0."""
    pred, target = torch.tensor([[10.0, 10.0, 30.0, 30.0]]), torch.tensor([[0.0, 0.0, 40.0, 40.0]])
    loss, slope, _ = with_gradients(pred, target, kind=kind, alpha=alpha)
    assert_finite([loss, slope])
    assert (slope[:, :2] > 0).all()  # growing the box is still the way
    assert (slope[:, 2:] < 0).all()


@pytest.mark.parametrize("kind", NAMES)
def test_disjoint_with_alpha_below_one(kind):
    pred, target = torch.tensor([[0.0, 0.0, 10.0, 10.0]]), torch.tensor([[40.0, 0.0, 50.0, 10.0]])
    assert_finite(with_gradients(pred, target, kind=kind, alpha=0.5))


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("alpha", [1.0, 3.0, 7.0, 10.0])
def test_half_precision_at_600_pixels(kind, alpha):
    """mmdet and ultralytics: 600² overflows fp16. And ρ^2α of a 1333 × 800 hull overflows fp32."""
    pred = torch.tensor([[0.0, 0.0, 600.0, 600.0], [0.0, 0.0, 1333.0, 800.0]])
    target = torch.tensor([[64.0, 32.0, 700.0, 640.0], [1200.0, 700.0, 1333.0, 800.0]])
    exact, exact_slope, _ = with_gradients(pred.double(), target.double(), kind=kind, alpha=alpha)
    for dtype in (torch.float16, torch.float32):  # every number here is one of fp16's
        loss, slope, _ = with_gradients(pred.to(dtype), target.to(dtype), kind=kind, alpha=alpha)
        torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(slope.double(), exact_slope, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["diou", "ciou", "eiou"])
@pytest.mark.parametrize("size", [1.0, 0.02, 0.01, 1e-3])
def test_powered_penalty_of_normalised_boxes(kind, size):
    """The published penalty was 34 % of exact for boxes of 0.02, 0.8 % for 0.01."""
    pred, target = torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([2.0, 0.0, 3.0, 2.0])
    penalty = alpha_iou_loss(pred * size, target * size, kind=kind, alpha=3.0).item() - 1
    exact = alpha_iou_loss(pred.double(), target.double(), kind=kind, alpha=3.0).item() - 1
    assert penalty == pytest.approx(exact, rel=1e-5)


def test_siou_of_boxes_40_pixels_apart_is_not_zero():
    """mmdet's default SIoU is 0 there."""
    pred, target = torch.tensor([0.0, 0.0, 20.0, 20.0]), torch.tensor([60.0, 0.0, 80.0, 20.0])
    assert alpha_iou_loss(pred, target, kind="siou", alpha=1.0).item() > 1


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0])
@pytest.mark.parametrize("kind", ["giou", "diou", "ciou", "siou", "shape_iou"])
def test_loss_grows_with_the_distance(kind, alpha):
    """PaddleDetection squares the signed GIoU: loss(−0.9) = 0.19 < loss(0) = 1."""
    shift = torch.linspace(0, 40, 81)
    pred = torch.tensor([0.0, 0.0, 10.0, 10.0]).repeat(81, 1)
    pred[:, 0::2] += shift[:, None]
    target = torch.tensor([0.0, 0.0, 10.0, 10.0]).expand(81, 4)
    losses = alpha_iou_loss(pred, target, kind=kind, alpha=alpha)
    assert (losses.diff() > -1e-6).all()
    assert losses[-1] > losses[20] > losses[0]


@pytest.mark.parametrize("kind", NAMES)
def test_zero_weight_times_nan_is_zero(kind):
    """mmdet: 0 · NaN = NaN."""
    pred = torch.tensor([[math.nan] * 4, [0.0, 0.0, 1.0, 1.0]])
    target = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 2.0, 2.0]])
    weight = torch.tensor([0.0, 1.0])
    loss, slope, _ = with_gradients(pred, target, kind=kind, weight=weight, reduction="mean")
    assert loss > 0
    assert_finite([loss, slope])
    assert torch.equal(slope[0], torch.zeros(4))


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("box_format", ["xywh", "cxcywh"])
def test_zero_size_given_by_width_and_height(kind, box_format):
    """Ultralytics: NaN on zero-size xywh."""
    pred, target = torch.tensor([[5.0, 5.0, 0.0, 0.0]]), torch.tensor([[5.0, 5.0, 4.0, 0.0]])
    for a, b in ((pred, target), (target, pred), (pred, pred)):
        assert_finite(with_gradients(a, b, kind=kind, alpha=0.5, box_format=box_format))


def test_eiou_is_efficient_iou():
    """mmdet's "EIoU" is Extended-IoU; the one meant has a penalty for each side."""
    pred, target = torch.tensor([0.0, 0.0, 4.0, 4.0]), torch.tensor([1.0, 1.0, 3.0, 3.0])
    loss = alpha_iou_loss(pred, target, kind="eiou", alpha=1.0).item()
    assert loss == pytest.approx(0.75 + 0.25 + 0.25)


def test_inverted_boxes_do_not_raise():
    """DETR's GIoU asserts x2 ≥ x1."""
    pred, target = torch.tensor([[3.0, 3.0, 1.0, 1.0]]), torch.tensor([[0.0, 0.0, 4.0, 4.0]])
    loss, slope, _ = with_gradients(pred, target, kind="giou", alpha=1.0)
    assert loss == 1
    assert_finite([slope])
