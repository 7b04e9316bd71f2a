"""RoIAlign, against torchvision's; the kernels in the interpreter."""

import pytest
import torch
from torchvision.ops import roi_align

from alphaiou.detectors.ops.pooling import POINTS, POOLED, pool_cells, stack
from tests.detectors.ops.kernels import DEVICE, check_in_the_interpreter, in_the_interpreter, kernel

pytestmark = pytest.mark.gpu


def problem(regions, channels, rows, columns, *, seed=0):
    """Features of two images, and regions in them, some past the border, some of no size."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, channels, rows, columns, generator=generator)
    size = torch.tensor([columns, rows])
    corner = (torch.rand(regions, 2, generator=generator) * 1.6 - 0.3) * size
    sides = torch.rand(regions, 2, generator=generator) ** 2 * size
    sides[::5] = 0.0
    image = torch.randint(2, (regions, 1), generator=generator)
    return features, torch.cat([image, corner, corner + sides], dim=1)


def expected(features, places):
    return roi_align(features, places, output_size=POOLED, sampling_ratio=POINTS)


def pool(features, places):
    """Pool from a single level."""
    return pool_cells([features], places, torch.zeros_like(places[:, 0]).long())


def stacked(features, places):
    """The arguments of the kernel, of a single level."""
    return stack([features], places, torch.zeros_like(places[:, 0]).long())


def hostile_pyramid(dtype=torch.float32):
    """Levels of several sizes; regions thin, empty, huge, at and beyond every border of theirs."""
    generator = torch.Generator().manual_seed(3)
    sizes = [(12, 10), (6, 13), (3, 2), (1, 1)]
    levels = [torch.randn(2, 3, *size, generator=generator, dtype=dtype) for size in sizes]
    places, level = [], []
    for number, size in enumerate(sizes):
        axes = []
        for length in size:
            starts = [
                -9,
                -1.5,
                -1,
                -0.25,
                0,
                0.5,
                *(length + d for d in (-1, -0.25, 0, 0.25, 1, 9)),
            ]
            axes.append([(s, s + d) for s in starts for d in (0, 0.125, 0.875, 1, 1.5, 20)])
        for one, (y, y2) in enumerate(axes[0]):
            for x, x2 in (axes[1][(5 * one) % len(axes[1])], axes[1][(7 * one + 3) % len(axes[1])]):
                places.append((one % 2, x, y, x2, y2))
                level.append(number)
    order = torch.randperm(len(level), generator=generator)
    return levels, torch.tensor(places, dtype=dtype)[order], torch.tensor(level)[order]


def expected_of_levels(levels, places, level):
    each = torch.stack([expected(features, places) for features in levels])
    return each[level, torch.arange(len(level))]


SHAPES = [(5, 8, 12, 10), (2, 5, 4, 7), (1, 16, 1, 1), (0, 4, 6, 6)]


@pytest.mark.parametrize("shape", SHAPES)
def test_is_torchvisions(shape):
    features, places = problem(*shape)
    found = pool(features.to(DEVICE), places.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected(features, places), rtol=1e-5, atol=1e-5)


def test_half_precision_stays_what_it_is():
    features, places = problem(6, 8, 9, 9)
    found = pool(features.bfloat16().to(DEVICE), places.to(DEVICE))
    assert found.dtype == torch.bfloat16
    exact = expected(features.bfloat16().float(), places)
    torch.testing.assert_close(found.cpu().float(), exact, rtol=2**-8, atol=1e-6)


def test_gradients_are_torchvisions():
    features, places = problem(9, 8, 12, 10)
    gradients = []
    for function in (pool, expected):
        own = features.to(DEVICE).requires_grad_()
        function(own, places.to(DEVICE)).square().sum().backward()
        gradients.append(own.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


def test_levels_and_their_gradients_are_torchvisions():
    levels, places, level = hostile_pyramid()
    results = []
    for function in (pool_cells, expected_of_levels):
        own = [features.to(DEVICE).requires_grad_() for features in levels]
        pooled = function(own, places.to(DEVICE), level.to(DEVICE))
        weight = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(4)).to(DEVICE)
        results.append((pooled, *torch.autograd.grad((pooled * weight).sum(), own)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_the_kernel_of_several_levels_is_torchvisions():
    launch = kernel("pooling")
    from alphaiou.detectors.ops.kernels.pooling import launch_backward

    levels, places, level = hostile_pyramid()
    places, level = places[:8], level[:8]  # the interpreter takes a while
    features, places, bounds = (part.to(DEVICE) for part in stack(levels, places, level))
    found = launch(features, places, bounds)
    own = [features.requires_grad_() for features in levels]
    theirs = expected_of_levels(own, places.cpu(), level)
    torch.testing.assert_close(found.cpu(), theirs, rtol=1e-5, atol=1e-5)
    gradient = torch.randn(theirs.shape, generator=torch.Generator().manual_seed(4))
    into = launch_backward(gradient.to(DEVICE), places, bounds, list(features.shape)).cpu()
    top = 0
    for one, slope in zip(own, torch.autograd.grad(theirs, own, gradient), strict=True):
        rows, columns = one.shape[-2:]
        part = into[:, :, top : top + rows, :columns]
        torch.testing.assert_close(part, slope, rtol=1e-4, atol=1e-4)
        top += rows


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_is_torchvisions(shape):
    features, places = problem(*shape)
    found = kernel("pooling")(*(part.to(DEVICE) for part in stacked(features, places)))
    assert found.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(found.cpu(), expected(features, places), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_of_the_gradient_is_torchvisions(shape):
    kernel("pooling")
    from alphaiou.detectors.ops.kernels.pooling import launch_backward

    features, places = problem(*shape)
    features.requires_grad_()
    pooled = expected(features, places)
    gradient = torch.randn(pooled.shape, generator=torch.Generator().manual_seed(1))
    gradient[1:2] = 0.0
    (theirs,) = torch.autograd.grad(pooled, features, gradient)
    _, places, bounds = (part.to(DEVICE) for part in stacked(features.detach(), places))
    ours = launch_backward(gradient.to(DEVICE), places, bounds, list(features.shape))
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # of copies in opcheck
def test_the_operators_are_sound():
    features, *regions = (part.to(DEVICE) for part in stacked(*problem(9, 8, 12, 10)))
    operator = torch.ops.alphaiou.pool_cells
    torch.library.opcheck(operator, (features.requires_grad_(), *regions))


@pytest.mark.slow
@in_the_interpreter
def test_kernels_in_the_interpreter():
    check_in_the_interpreter(__file__, "the_kernel", 9)
