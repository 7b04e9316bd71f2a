"""The network has the published layers, parameters and operations."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from alphaiou.detectors import build_detector, fold_batch_norm
from alphaiou.detectors.yolov5.network import SIZES, STRIDES

#: Parameters of the layers of the published table, in its order.
LAYERS = {
    "yolov5s": [
        3_520, 18_560, 18_816, 73_984, 156_928, 295_424, 625_152, 1_180_672, 656_896, 1_182_720,
        131_584, 361_984, 33_024, 90_880, 147_712, 296_448, 590_336, 1_182_720, 229_245,
    ],
    "yolov5x": [
        8_800, 115_520, 309_120, 461_440, 3_285_760, 1_844_480, 13_125_120, 7_375_360, 4_099_840,
        19_676_160, 820_480, 5_332_480, 205_440, 1_335_040, 922_240, 4_922_880, 3_687_680,
        19_676_160, 571_965,
    ],
}  # fmt: skip


def network(name, num_classes=80):
    with torch.device("meta"):
        return build_detector(name, num_classes).network


def size(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "num_classes", "count"),
    [
        ("yolov5s", 80, 7_276_605),
        ("yolov5s", 20, 7_114_785),
        ("yolov5m", 80, 21_375_645),
        ("yolov5l", 80, 47_056_765),
        ("yolov5x", 80, 87_775_965),
        ("yolov5x", 20, 87_372_225),
    ],
)
def test_parameters(name, num_classes, count):
    assert size(network(name, num_classes)) == count


@pytest.mark.parametrize("name", LAYERS)
def test_parameters_of_each_layer(name):
    assert [size(layer) for layer in network(name).children()] == LAYERS[name]


@pytest.mark.parametrize(("name", "gflops"), [("yolov5s", 16.96), ("yolov5x", 218.56)])
def test_operations(name, gflops):
    with FlopCounterMode(display=False) as counter:
        network(name)(torch.zeros(1, 3, 640, 640, device="meta"))
    assert counter.get_total_flops() / 1e9 == pytest.approx(gflops, abs=0.005)


@pytest.mark.parametrize(("name", "count"), [("yolov5s", 7_266_973), ("yolov5x", 87_730_285)])
def test_parameters_after_folding(name, count):
    model = network(name).to_empty(device="cpu") if name == "yolov5s" else None
    if model is None:  # the large one by arithmetic: scale and shift become one bias
        model = network(name)
        norms = [m for m in model.modules() if isinstance(m, torch.nn.BatchNorm2d)]
        assert size(model) - sum(norm.num_features for norm in norms) == count
    else:
        assert size(fold_batch_norm(model)) == count


def test_folding_changes_nothing_but_rounding():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 3).network.double()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.5, 0.5)
            torch.nn.init.uniform_(module.running_var, 0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.uniform_(module.bias, -0.5, 0.5)
    images = torch.rand(2, 3, 64, 96, dtype=torch.float64)
    folded = fold_batch_norm(model)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    for mine, theirs in zip(folded(images), model.eval()(images), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", SIZES)
def test_outputs(name):
    outputs = network(name, 7)(torch.zeros(2, 3, 64, 96, device="meta"))
    assert [tuple(output.shape) for output in outputs] == [
        (2, 64 // stride, 96 // stride, 3, 12) for stride in STRIDES
    ]


def test_channels_last_is_the_same():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 2).network.eval()
    images = torch.rand(2, 3, 64, 64)
    expected = model(images)
    model.to(memory_format=torch.channels_last)
    got = model(images.contiguous(memory_format=torch.channels_last))
    for mine, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
        assert mine.is_contiguous()


def test_the_head_starts_from_few_objects():
    torch.manual_seed(0)
    model = build_detector("yolov5s", 80).network
    for head, stride in zip(model.head, STRIDES, strict=True):
        bias, spread = head.bias.view(3, 85), 1 / math.sqrt(head.in_channels)
        assert (bias[:, 4] - math.log(8 / (640 / stride) ** 2)).abs().max() <= spread
        assert (bias[:, 5:] - math.log(0.6 / 79.01)).abs().max() <= spread
        assert bias[:, :4].abs().max() <= spread
