"""RoIAlign, against torchvision's; the kernels in the interpreter."""

import pytest
import torch
from torchvision.ops import roi_align

from alphaiou.detectors.ops.pooling import POINTS, POOLED, pool_cells
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


SHAPES = [(5, 8, 12, 10), (2, 5, 4, 7), (1, 16, 1, 1), (0, 4, 6, 6)]


@pytest.mark.parametrize("shape", SHAPES)
def test_is_torchvisions(shape):
    features, places = problem(*shape)
    found = pool_cells(features.to(DEVICE), places.to(DEVICE))
    torch.testing.assert_close(found.cpu(), expected(features, places), rtol=1e-5, atol=1e-5)


def test_half_precision_stays_what_it_is():
    features, places = problem(6, 8, 9, 9)
    found = pool_cells(features.bfloat16().to(DEVICE), places.to(DEVICE))
    assert found.dtype == torch.bfloat16
    exact = expected(features.bfloat16().float(), places)
    torch.testing.assert_close(found.cpu().float(), exact, rtol=2**-8, atol=1e-6)


def test_gradients_are_torchvisions():
    features, places = problem(9, 8, 12, 10)
    gradients = []
    for pool in (pool_cells, expected):
        own = features.to(DEVICE).requires_grad_()
        pool(own, places.to(DEVICE)).square().sum().backward()
        gradients.append(own.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_kernel_is_torchvisions(shape):
    features, places = problem(*shape)
    found = kernel("pooling")(features.to(DEVICE), places.to(DEVICE))
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
    ours = launch_backward(gradient.to(DEVICE), places.to(DEVICE), list(features.shape))
    torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


def test_the_operators_are_sound():
    if DEVICE != "cuda":
        pytest.skip("needs CUDA")
    features, places = (part.to(DEVICE) for part in problem(9, 8, 12, 10))
    operator = torch.ops.alphaiou.pool_cells
    torch.library.opcheck(operator, (features.requires_grad_(), places))


@pytest.mark.slow
@in_the_interpreter
def test_kernels_in_the_interpreter():
    check_in_the_interpreter(__file__, "the_kernel", 8)
