"""NMS of many problems at once, against torchvision's of one; the kernel in the interpreter."""

import pytest
import torch
from torchvision.ops import batched_nms

from alphaiou.detectors.ops.nms import keep_best
from tests.detectors.ops.kernels import DEVICE, check_in_the_interpreter, in_the_interpreter, kernel

pytestmark = pytest.mark.gpu


def candidates(problems, count, *, seed=0, groups=3, grid=None):
    """Boxes that overlap a lot; on a grid of whole pixels, IoUs tie with the threshold."""
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(problems, count, 2, generator=generator) * 60
    sides = torch.rand(problems, count, 2, generator=generator) * 40
    if grid:
        corner, sides = (corner / grid).round() * grid, (sides / grid).round() * grid
    boxes = torch.cat([corner, corner + sides], dim=-1)
    group = torch.randint(groups, (problems, count), generator=generator)
    valid = torch.rand(problems, count, generator=generator) < 0.9
    return boxes, group, valid


def expected(boxes, groups, valid, threshold):
    kept = torch.zeros_like(valid)
    for problem, there in enumerate(valid):
        rows = there.nonzero().flatten()
        order = torch.arange(len(rows), 0, -1.0)
        own = boxes[problem, rows].double()
        found = batched_nms(own, order.double(), groups[problem, rows], threshold)
        kept[problem, rows[found]] = True
    return kept


CASES = [
    ((4, 70), {}, 0.5),
    ((3, 33), {"grid": 20}, 0.5),
    ((2, 40), {"grid": 10}, 0.7),
    ((2, 64), {"groups": 1}, 0.0),
    ((1, 1), {}, 0.6),
    ((3, 20), {}, 1.0),
]


@pytest.mark.parametrize(("shape", "options", "threshold"), CASES)
def test_is_torchvisions(shape, options, threshold):
    problem = candidates(*shape, **options)
    on_device = [tensor.to(DEVICE) for tensor in problem]
    assert keep_best(*on_device, threshold).cpu().equal(expected(*problem, threshold))


@pytest.mark.parametrize(("shape", "options", "threshold"), CASES)
def test_the_kernel_is_torchvisions(shape, options, threshold):
    problem = candidates(*shape, **options)
    on_device = [tensor.to(DEVICE) for tensor in problem]
    assert kernel("nms")(*on_device, threshold).cpu().equal(expected(*problem, threshold))


def test_boxes_that_are_no_numbers_remove_nothing():
    boxes, groups, valid = candidates(1, 6, groups=1)
    boxes[0, 2] = torch.nan
    alone = torch.tensor([[True, True, False, True, True, True]])
    kept = kernel("nms")(boxes.to(DEVICE), groups.to(DEVICE), (valid | True).to(DEVICE), 0.3).cpu()
    assert kept[alone].equal(expected(boxes, groups, alone, 0.3)[alone])


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_nothing_in_nothing_out(shape):
    problems, count = shape
    boxes = torch.zeros(problems, count, 4)
    kept = keep_best(boxes, torch.zeros(shape).long(), torch.ones(shape).bool(), 0.5)
    assert kept.shape == shape


def test_can_be_compiled():
    problem = candidates(2, 10)
    compiled = torch.compile(keep_best, fullgraph=True, backend="eager")
    assert compiled(*problem, 0.5).equal(keep_best(*problem, 0.5))


@pytest.mark.slow
@in_the_interpreter
def test_the_kernel_in_the_interpreter():
    check_in_the_interpreter(__file__, "kernel or numbers", len(CASES) + 1)
