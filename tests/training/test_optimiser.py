"""The optimiser against torch's own, and the moving average against a loop."""

import math
from copy import deepcopy

import pytest
import torch
from torch import nn

from alphaiou.training.flat import FlatParameters, float_buffers
from alphaiou.training.optimiser import MovingAverage, NesterovSGD


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)
    )


def number(value):
    return torch.tensor(float(value))


def torch_sgd(model, weight_decay):
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[name.endswith("bias")].append((name, parameter))
    decayed = [p for _, p in groups[False] if p.ndim > 1]
    kept = [p for _, p in groups[False] if p.ndim == 1]
    biases = [p for _, p in groups[True]]
    return torch.optim.SGD(
        [{"params": decayed, "weight_decay": weight_decay}, {"params": kept}, {"params": biases}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )


def test_parameters_are_views_of_one_tensor():
    model = small_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    flat = FlatParameters(model)
    assert flat.values.numel() == sum(p.numel() for p in model.parameters())
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    flat.values.zero_()
    assert all(p.count_nonzero() == 0 for p in model.parameters())
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_groups_are_weights_then_norms_then_biases():
    flat = FlatParameters(small_model())
    assert flat.names == ["0.weight", "3.weight", "1.weight", "1.bias", "3.bias"]
    assert (flat.decayed, flat.unbiased) == (8 * 27 + 32, 8 * 27 + 32 + 8)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_steps_are_those_of_torch(weight_decay):
    ours, theirs = small_model(), small_model()
    flat = FlatParameters(ours)
    optimiser, peer = NesterovSGD(flat, weight_decay), torch_sgd(theirs, weight_decay)
    for step in range(6):
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        rates = {"lr": 0.1 / (step + 1), "bias_lr": 0.05 * step, "momentum": 0.8 + 0.02 * step}
        for group, lr in zip(peer.param_groups, ("lr", "lr", "bias_lr"), strict=True):
            group["lr"], group["momentum"] = rates[lr], rates["momentum"]
        peer.zero_grad()
        theirs(images).square().mean().backward()
        peer.step()
        found = torch.autograd.grad(ours(images).square().mean(), flat.views)
        gradient = torch.zeros_like(flat.values)
        torch._foreach_copy_(flat.like(gradient), found)
        optimiser.step(
            gradient, **{k: number(v) for k, v in rates.items()}, keep=torch.tensor(True)
        )
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, msg=name, rtol=1e-5, atol=1e-6)


def test_nothing_moves_when_a_step_is_not_kept():
    flat = FlatParameters(small_model())
    optimiser, before = NesterovSGD(flat, 0.1), flat.values.clone()
    gradient = torch.full_like(flat.values, math.nan)
    rates = {"lr": number(0.1), "bias_lr": number(0.1), "momentum": number(0.9)}
    optimiser.step(gradient, **rates, keep=torch.tensor(False))
    assert torch.equal(flat.values, before)
    assert optimiser.velocity.count_nonzero() == 0


def test_the_average_follows_weights_and_statistics():
    model = small_model()
    copied = deepcopy(model).eval()
    expected = {k: v.clone() for k, v in model.state_dict().items() if v.is_floating_point()}
    average = MovingAverage(copied, FlatParameters(model), model)
    for step in range(4):
        decay = 0.9 - 0.1 * step
        with torch.no_grad():
            for tensor in (*model.parameters(), *float_buffers(model)):
                tensor.add_(torch.randn_like(tensor))
        average.step(number(decay))
        for name, value in model.state_dict().items():
            if name in expected:
                expected[name] = decay * expected[name] + (1 - decay) * value
    for name, value in copied.state_dict().items():
        if name in expected:
            torch.testing.assert_close(value, expected[name], msg=name)
