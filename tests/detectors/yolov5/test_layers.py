"""The layers are what they stand for, however they are computed."""

import pytest
import torch
from torch import nn

from alphaiou.detectors import build_detector
from alphaiou.detectors.yolov5 import network
from alphaiou.detectors.yolov5.network import C3, SPP, Conv, convolve_in_eights, doubled


def with_gradient(function, x, seed=1):
    """What a function gives, and the gradient of a sum of it with weights of chance."""
    x = x.clone().requires_grad_()
    y = function(x)
    weights = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(seed))
    return y.detach(), torch.autograd.grad((weights * y).sum(), x)[0]


def features(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_same(one, other, x):
    for mine, theirs in zip(with_gradient(one, x), with_gradient(other, x), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("size", [(1, 1), (2, 7), (13, 10)])
def test_pyramid_pooling_has_windows_of_5_9_and_13(size):
    spp = SPP(8).double().eval()

    def large_windows(x):
        y = spp.narrow(x)
        pools = (nn.MaxPool2d(window, stride=1, padding=window // 2) for window in (5, 9, 13))
        return spp.join(torch.cat([y, *(pool(y) for pool in pools)], dim=1))

    assert_same(spp, large_windows, features(2, 8, *size))


def test_the_halves_of_a_stage_are_two_convolutions():
    stage = C3(6, 8, 2).double().train()
    inner, past = Conv(6, 4).double(), Conv(6, 4).double()
    for name, both in stage.halves.named_parameters():
        for own, half in zip((inner, past), both.detach().chunk(2), strict=True):
            own.get_parameter(name).data.copy_(half)

    def of_two(x):
        return stage.join(torch.cat([stage.blocks(inner(x)), past(x)], dim=1))

    assert_same(stage, of_two, features(2, 6, 5, 7))


def test_a_doubled_map_is_that_of_interpolation():
    assert_same(doubled, nn.Upsample(scale_factor=2.0, mode="nearest"), features(2, 3, 4, 5))


@pytest.mark.parametrize(("inputs", "outputs"), [(12, 32), (16, 75), (3, 5), (8, 16)])
@pytest.mark.parametrize("bias", [True, False])
def test_channels_in_eights_change_nothing(inputs, outputs, bias):
    conv = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=bias).double()
    x = features(2, inputs, 9, 8)
    assert_same(lambda x: convolve_in_eights(x, conv), conv, x)
    for one in conv.parameters():
        of_eights = torch.autograd.grad(convolve_in_eights(x, conv).square().sum(), one)
        of_conv = torch.autograd.grad(conv(x).square().sum(), one)
        torch.testing.assert_close(of_eights, of_conv)


def test_a_network_with_channels_in_eights_predicts_the_same(monkeypatch):
    torch.manual_seed(0)
    built = build_detector("yolov5n", 20).network.double().eval()
    images = features(1, 3, 64, 64)
    expected = built(images)
    monkeypatch.setattr(network, "convolve", convolve_in_eights)
    for mine, theirs in zip(built(images), expected, strict=True):
        torch.testing.assert_close(mine, theirs)
