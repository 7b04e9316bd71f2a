"""What the kernel tests share: where the kernel runs, and how its results are checked."""

from functools import cache
from importlib.util import find_spec

import pytest
import torch

from alphaiou import alpha_iou_loss
from alphaiou.losses.kernels import fused
from tests.losses.catalogue import KINDS
from tests.strategies import FAMILIES, encode

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ALPHAS = (0.0, 0.5, 1.0, 2.0, 3.0, 10.0)


@cache
def kernel_device():
    """`cpu` in Triton's interpreter, else `cuda`, else nothing."""
    if find_spec("triton") is None or not fused._HAS_OPERATORS:
        return None
    if fused._interpreted():
        return "cpu"
    return "cuda" if torch.cuda.is_available() else None


def skip_without_kernel():
    """At the head of a module: its tests need a device on which the Triton kernel runs."""
    if kernel_device() is None:
        reason = "needs CUDA or TRITON_INTERPRET=1 (tests/losses/test_fused.py sets it), and Triton"
        pytest.skip(reason, allow_module_level=True)


def loss_and_gradient(pred, target, *, slope=None, **options):
    """The loss, detached, and the gradient of the prediction; `slope` is what came after."""
    leaf = pred.detach().clone().requires_grad_()
    loss = alpha_iou_loss(leaf, target, **options)
    slope = torch.ones_like(loss) if slope is None else slope.to(loss)
    (gradient,) = torch.autograd.grad(loss, leaf, slope)
    return loss.detach(), gradient


def exact(pred, target, **options):
    """The same by the reference in float64 on the CPU."""
    pred, target = pred.detach().cpu().double(), target.cpu().double()
    options = {
        name: value.cpu().double() if isinstance(value, torch.Tensor) else value
        for name, value in options.items()
    }
    return loss_and_gradient(pred, target, backend="reference", **options)


def check(pred, target, *, box_format="xyxy", keep=None, rounding=0.0, backend="fused", **options):
    """Kernel against reference: values to 1e-5, slopes to 1e-4 of a pair's largest.

    `rounding` is allowed on top, per hull unit of an axis; `keep` says whose slopes are looked at.
    """
    loss, gradient = loss_and_gradient(
        pred, target, backend=backend, box_format=box_format, **options
    )
    expected, expected_gradient = exact(pred, target, box_format=box_format, **options)
    assert loss.dtype == torch.float32
    assert loss.device == gradient.device == pred.device
    assert gradient.dtype == pred.dtype
    assert gradient.shape == pred.shape
    assert loss.shape == expected.shape
    torch.testing.assert_close(loss.cpu().double(), expected, rtol=1e-5, atol=1e-5)
    limit = torch.finfo(pred.dtype).max
    expected_gradient = expected_gradient.clamp(-limit, limit)
    # A half-precision gradient is rounded once, on its way out.
    own = 0.0 if pred.dtype == torch.float32 else 2.0 * torch.finfo(pred.dtype).eps
    largest = expected_gradient.abs().amax(dim=-1, keepdim=True)
    allowed = 1e-4 * largest + own * expected_gradient.abs() + 1e-7
    if rounding:
        allowed = allowed + rounding / hull_sides(pred, target, box_format).nan_to_num(nan=1.0)
    good = ((gradient.cpu().double() - expected_gradient).abs() <= allowed).all(dim=-1)
    good = good if keep is None else good | ~keep
    if not good.all():
        row = tuple((~good).nonzero()[0].tolist())
        shown = (pred, target, gradient, expected_gradient)
        pytest.fail(f"{(~good).sum()} pairs, first: {[tensor[row].tolist() for tensor in shown]}")


def hull_sides(pred, target, box_format):
    """The sides of what encloses both boxes, twice: one for each coordinate."""
    corners = [corners_of(boxes.cpu().double(), box_format) for boxes in (pred, target)]
    edges = torch.stack([edge for box in corners for edge in box])
    sides = (edges.amax(dim=0) - edges.amin(dim=0)).clamp(min=1e-9)
    return torch.cat([sides, sides], dim=-1)


def corners_of(boxes, box_format):
    """Both corners; an inverted side is its midpoint twice."""
    first, second = boxes[..., :2], boxes[..., 2:]
    if box_format == "xywh":
        second = first + second
    elif box_format == "cxcywh":
        first, second = first - second / 2, first + second / 2
    middle, half = (first + second) / 2, ((second - first) / 2).clamp(min=0)
    return middle - half, middle + half


def hard_pairs(count, box_format, device):
    """Pairs of every family on a grid that fp32 can hold: ties stay ties, nothing is rounded."""
    generator = torch.Generator().manual_seed(1)
    drawn = [make(generator, count) for make in FAMILIES.values()]
    far = (torch.cat(boxes).clamp(-4096, 4096) for boxes in zip(*drawn, strict=True))
    corners = [boxes.mul(64).round().div(64) for boxes in far]
    return tuple(encode(boxes, box_format).float().to(device) for boxes in corners)


def decided_by_the_formula(kind, pred, target, box_format):
    """Pairs whose subgradient no rounding decides.

    Left out: SIoU's angle has a kink where the centres agree along one axis, and Bounded-IoU's
    bound of the place one where it reaches 0, both of sums that a compiler may round either way.
    """
    (low, high), (target_low, target_high) = (
        corners_of(boxes.cpu().double(), box_format) for boxes in (pred, target)
    )
    offset, side = (low + high - target_low - target_high).abs(), target_high - target_low
    if kind == "siou":
        return (offset == 0).sum(dim=-1) != 1
    if kind.startswith("biou"):
        return ((offset - side).abs() > 1e-5 * side).all(dim=-1)
    return torch.ones(offset.shape[:-1], dtype=torch.bool)


def ours(label):
    """A kind of the catalogue, as `alpha_iou_loss` takes it."""
    return KINDS[label].ours
