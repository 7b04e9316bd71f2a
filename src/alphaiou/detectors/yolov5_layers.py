"""The parts of YOLOv5: convolutions with batch norm and SiLU, C3 stages, pyramid pooling."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from alphaiou.detectors.norm_silu import norm_silu

Features = Float[Tensor, "batch _channels _height _width"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)


class Conv(nn.Module):
    """A convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x: Features, plus: Features | None = None) -> Features:
        """Features to features, and others added."""
        return norm_silu(convolve(x, self.conv), self.norm, plus)


class Focus(nn.Module):
    """Each 2×2 block of pixels as channels of one, then a convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = Conv(4 * inputs, outputs, kernel=3)

    def forward(self, x: Features) -> Features:
        """An image to features at half its size."""
        halved: Tensor = self.conv(nn.functional.pixel_unshuffle(x, 2))
        return halved


class Bottleneck(nn.Module):
    """A 1×1 and a 3×3 convolution, with the input added if asked for."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.shortcut = shortcut
        self.first, self.second = Conv(channels, channels), Conv(channels, channels, kernel=3)

    def forward(self, x: Features) -> Features:
        """Features to as many features."""
        y: Tensor = self.second(self.first(x), plus=x if self.shortcut else None)
        return y


class C3(nn.Module):
    """A convolution in two halves; one goes through bottlenecks before another joins both."""

    def __init__(self, inputs: int, outputs: int, repeats: int, *, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.halves = Conv(inputs, 2 * half)
        self.blocks = nn.Sequential(*(Bottleneck(half, shortcut=shortcut) for _ in range(repeats)))
        self.join = Conv(2 * half, outputs)

    def forward(self, x: Features) -> Features:
        """Features to features of the same size."""
        through, past = self.halves(x).chunk(2, dim=1)
        # Of a slice, a convolution would make one copy forward and another backward.
        joined: Tensor = self.join(torch.cat([self.blocks(through.clone()), past], dim=1))
        return joined


class SPP(nn.Module):
    """Spatial pyramid pooling: maxima over windows of 1, 5, 9 and 13, side by side.

    A maximum of maxima over 5 is one over 9, and again one over 13: three small poolings in a row
    are the three large ones, in a fraction of the time. So is one along columns of one along rows.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = Conv(channels, channels // 2)
        self.pool = nn.Sequential(
            nn.MaxPool2d((1, 5), stride=1, padding=(0, 2)),
            nn.MaxPool2d((5, 1), stride=1, padding=(2, 0)),
        )
        self.join = Conv(channels // 2 * 4, channels)

    def forward(self, x: Features) -> Features:
        """Features to as many features."""
        pyramid: list[Tensor] = [self.narrow(x)]
        for _ in range(3):
            pyramid.append(self.pool(pyramid[-1]))
        joined: Tensor = self.join(torch.cat(pyramid, dim=1))
        return joined


class _Doubled(torch.autograd.Function):
    """Each cell as 2×2 of its like.

    The gradient sums the four. The compiler's own would scatter them one by one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - as torch wants it
        return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        return nn.functional.avg_pool2d(gradient, 2, divisor_override=1)


def doubled(x: Features) -> Features:
    """Features at twice the size, each cell four times."""
    larger: Tensor = _Doubled.apply(x)
    return larger


def convolve(x: Features, conv: nn.Conv2d) -> Features:
    """A convolution; on CUDA its channels, in and out, are made up to eights.

    The fast kernels there take no other numbers: for the 12 channels of an image's 2×2 blocks, or
    the 75 of a head for 20 classes, cuDNN would make up copies first, or take slow ones.
    """
    fits = conv.in_channels % 8 == conv.out_channels % 8 == 0
    convolved: Tensor = convolve_in_eights(x, conv) if x.is_cuda and not fits else conv(x)
    return convolved


def convolve_in_eights(x: Features, conv: nn.Conv2d) -> Features:
    """The convolution as a part of one whose channels are multiples of eight."""
    more_in, more_out = -conv.in_channels % 8, -conv.out_channels % 8
    weight = nn.functional.pad(conv.weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
    bias = None if conv.bias is None else nn.functional.pad(conv.bias, (0, more_out))
    wider = nn.functional.pad(x, (0, 0, 0, 0, 0, more_in))
    wide = nn.functional.conv2d(wider, weight, bias, conv.stride, conv.padding)
    return wide[:, : conv.out_channels]


def fold_batch_norm(model: AnyModule) -> AnyModule:
    """A copy for inference whose convolutions have taken in their batch norms.

    Examples:
        >>> folded = fold_batch_norm(Conv(3, 8, kernel=3))
        >>> sum(p.numel() for p in folded.parameters())
        224
    """
    folded = deepcopy(model).eval()
    for module in folded.modules():
        if isinstance(module, Conv) and isinstance(module.norm, nn.BatchNorm2d):
            module.conv = fuse_conv_bn_eval(module.conv, module.norm)
            module.norm = nn.Identity()
    return folded
