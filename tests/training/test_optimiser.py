"""The optimisers against torch's own, the moving average against a loop, rates by hand."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

from alphaiou.detectors import Detector
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.optimiser import (
    SGD,
    AdamW,
    FlatParameters,
    MovingAverage,
    StepRates,
    clip,
    float_buffers,
    lr_scales,
    make_optimiser,
    rate_table,
    rates,
)
from alphaiou.training.recipe import Optimisation, Recipe

RECIPE = Recipe(epochs=300)


def small_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.Conv2d(8, 4, 1)
    )


def number(value):
    return torch.tensor(float(value))


def step_rates(lr=0.1, bias_lr=0.1, momentum=0.9):
    return StepRates(number(lr), number(bias_lr), number(momentum))


def torch_groups(model, weight_decay, *, decay_all=False):
    """Weights, norms and biases, of which the first or all decay."""
    named = list(model.named_parameters())
    biases = [p for name, p in named if name.endswith("bias")]
    weights = [p for name, p in named if not name.endswith("bias") and p.ndim > 1]
    norms = [p for name, p in named if not name.endswith("bias") and p.ndim == 1]
    rest = weight_decay if decay_all else 0.0
    return [
        {"params": weights, "weight_decay": weight_decay},
        {"params": norms, "weight_decay": rest},
        {"params": biases, "weight_decay": rest},
    ]


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


def test_parameters_that_do_not_learn_stay_where_they_are():
    model = small_model()
    model[0].requires_grad_(requires_grad=False)
    place, before = model[0].weight.data_ptr(), model[0].weight.clone()
    flat = FlatParameters(model)
    assert flat.names == ["3.weight", "1.weight", "1.bias", "3.bias"]
    flat.values.zero_()
    assert model[0].weight.data_ptr() == place
    assert torch.equal(model[0].weight, before)
    average = FlatParameters(deepcopy(model).requires_grad_(requires_grad=False), flat.names)
    assert average.names == flat.names


class WithEmbedding(Detector):
    """Weights of which autocast casts some."""

    cast_later = ("exact",)

    def __init__(self):
        super().__init__()
        self.embedding, self.linear = nn.Embedding(3, 4), nn.Linear(4, 5)
        self.exact, self.norm = nn.Linear(5, 2), nn.LayerNorm(4)

    def lr_scale(self, name):
        return 0.1 if name.startswith("linear") else 1.0


def test_weights_that_are_cast_come_first():
    flat = FlatParameters(WithEmbedding())
    assert flat.names[:4] == ["linear.weight", "embedding.weight", "exact.weight", "norm.weight"]
    assert (flat.cast, flat.decayed, flat.unbiased) == (20, 20 + 12 + 10, 20 + 12 + 10 + 4)


def trained_beside(ours, theirs, optimiser, peer):
    """Six steps of both, with other rates each time."""
    for step in range(6):
        images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        now = step_rates(0.1 / (step + 1), 0.05 * step, 0.8 + 0.02 * step)
        for group, lr in zip(peer.param_groups, (now.lr, now.lr, now.bias_lr), strict=True):
            group["lr"] = lr.item()
            if "momentum" in group:
                group["momentum"] = now.momentum.item()
        peer.zero_grad()
        theirs(images).square().mean().backward()
        peer.step()
        flat = optimiser.parameters
        found = torch.autograd.grad(ours(images).square().mean(), flat.views)
        gradient = torch.zeros_like(flat.values)
        torch._foreach_copy_(flat.like(gradient), found)
        optimiser.step(gradient, now, keep=torch.tensor(True))
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, other, msg=name, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize(("weight_decay", "decay_all"), [(0.0, False), (0.01, False), (0.01, True)])
def test_steps_of_sgd_are_those_of_torch(weight_decay, decay_all, nesterov):
    ours, theirs = small_model(), small_model()
    flat = FlatParameters(ours)
    optimiser = SGD(flat, weight_decay, nesterov=nesterov, decay_all=decay_all)
    groups = torch_groups(theirs, weight_decay, decay_all=decay_all)
    peer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, nesterov=nesterov)
    trained_beside(ours, theirs, optimiser, peer)


@pytest.mark.parametrize(("weight_decay", "decay_all"), [(0.0, False), (0.1, False), (0.1, True)])
def test_steps_of_adamw_are_those_of_torch(weight_decay, decay_all):
    ours, theirs = small_model(), small_model()
    optimiser = AdamW(FlatParameters(ours), weight_decay, decay_all=decay_all)
    groups = torch_groups(theirs, weight_decay, decay_all=decay_all)
    trained_beside(ours, theirs, optimiser, torch.optim.AdamW(groups))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_compiled_steps_are_the_same(kind):
    models = small_model(), small_model()
    plain, compiled = (kind(FlatParameters(model), 0.1) for model in models)
    step = torch.compile(compiled.step, fullgraph=True, dynamic=False)
    for number in range(3):
        gradient = torch.randn(
            len(plain.parameters.values), generator=torch.Generator().manual_seed(number)
        )
        now, keep = step_rates(0.1 / (number + 1), 0.05), torch.tensor(number != 1)
        plain.step(gradient.clone(), now, keep=keep)
        step(gradient.clone(), now, keep=keep)
    torch.testing.assert_close(compiled.parameters.values, plain.parameters.values)
    for name, tensor in compiled.state().items():
        torch.testing.assert_close(tensor, plain.state()[name], msg=name)


@pytest.mark.parametrize("kind", [SGD, AdamW])
def test_nothing_moves_when_a_step_is_not_kept(kind):
    flat = FlatParameters(small_model())
    optimiser, before = kind(flat, 0.1), flat.values.clone()
    gradient = torch.full_like(flat.values, math.nan)
    optimiser.step(gradient, step_rates(), keep=torch.tensor(False))
    assert torch.equal(flat.values, before)
    assert all(tensor.count_nonzero() == 0 for tensor in optimiser.state().values())


def test_some_parameters_learn_slower():
    detector = WithEmbedding()
    flat = FlatParameters(detector)
    before, how = flat.values.clone(), Optimisation(weight_decay=0.0)
    optimiser = make_optimiser(Recipe(optimisation=how), detector, flat)
    optimiser.step(torch.ones_like(flat.values), step_rates(0.1, 0.1, 0.0), keep=torch.tensor(True))
    for name, moved in zip(flat.names, flat.like(before - flat.values), strict=True):
        expected = torch.full_like(moved, 0.01 if name.startswith("linear") else 0.1)
        torch.testing.assert_close(moved, expected, rtol=1e-4, atol=1e-6, msg=name)
    assert lr_scales(Detector(), FlatParameters(small_model())) is None


def test_the_recipe_chooses_the_optimiser():
    detector = WithEmbedding()
    flat = FlatParameters(detector)
    default = make_optimiser(Recipe(batch_size=128), detector, flat)
    assert isinstance(default, SGD)
    assert default.nesterov
    assert (default.weight_decay, default.decayed) == (1e-3, flat.decayed)
    how = Optimisation(optimiser="adamw", decay="all", decay_batch=None, warmup_bias_lr=0.0)
    other = make_optimiser(Recipe(batch_size=128, optimisation=how), detector, flat)
    assert isinstance(other, AdamW)
    assert (other.weight_decay, other.decayed) == (5e-4, flat.values.numel())


@pytest.mark.parametrize("norm", [0.1, 1e3])
def test_clipping_is_that_of_torch(norm):
    gradient = torch.randn(100, generator=torch.Generator().manual_seed(0))
    parameter = nn.Parameter(torch.zeros(100))
    parameter.grad = gradient.clone()
    nn.utils.clip_grad_norm_([parameter], norm)
    clip(gradient, norm)
    torch.testing.assert_close(gradient, parameter.grad)


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


def test_an_average_without_memory_is_the_model():
    model = small_model()
    average = MovingAverage(deepcopy(model).eval(), FlatParameters(model), model)
    with torch.no_grad():
        for tensor in (*model.parameters(), *float_buffers(model)):
            tensor.add_(torch.randn_like(tensor))
    average.step(number(0.0))
    for name, value in average.model.state_dict().items():
        assert torch.equal(value, model.state_dict()[name]), name


def test_frozen_norms_and_constants_are_not_averaged():
    model = nn.Sequential(nn.BatchNorm2d(2), FrozenBatchNorm2d(2), nn.BatchNorm2d(2).eval())
    model.register_buffer("constant", torch.ones(1), persistent=False)
    model.register_buffer("saved", torch.ones(1))
    expected = {id(model[0].running_mean), id(model[0].running_var), id(model.saved)}
    assert {id(buffer) for buffer in float_buffers(model)} == expected


# --- rates of each step --------------------------------------------------------------------------


def test_warm_up_takes_at_least_a_thousand_steps():
    # Three epochs of 180 steps are 540, so the thousand decide; at step 500 half is done.
    half = rates(500, 180, RECIPE)
    lr = 0.01 * (0.2 + 0.8 * 0.5 * (1 + math.cos(math.pi * 2 / 300)))
    assert half.lr == pytest.approx(0.5 * lr)
    assert half.bias_lr == pytest.approx(0.05 + 0.5 * lr)
    assert half.momentum == pytest.approx((0.8 + 0.937) / 2)


def test_warm_up_takes_three_epochs_where_those_are_longer():
    assert rates(3 * 1000 - 1, 1000, RECIPE).momentum < 0.937
    assert rates(3 * 1000, 1000, RECIPE).momentum == 0.937


def test_the_cosine_moves_by_epochs_and_ends_at_a_fifth():
    assert rates(150 * 180, 180, RECIPE).lr == pytest.approx(0.006)
    assert rates(150 * 180 + 179, 180, RECIPE).lr == rates(150 * 180, 180, RECIPE).lr
    last = rates(300 * 180 - 1, 180, RECIPE).lr
    assert 0.002 < last < 0.00201
    assert rates(300 * 180 - 1, 180, RECIPE).bias_lr == pytest.approx(last)


def test_the_decay_of_the_average_grows():
    assert rates(0, 180, RECIPE).ema_decay == pytest.approx(0.9999 * (1 - math.exp(-1 / 2000)))
    assert rates(50_000, 180, RECIPE).ema_decay == pytest.approx(0.9999, abs=1e-9)


def test_alpha_follows_its_schedule():
    recipe = Recipe(epochs=2, alpha_schedule=AlphaSchedule(1.0, 3.0))
    assert rates(0, 5, recipe).alpha == 1.0
    assert rates(9, 5, recipe).alpha == 3.0
    assert rates(9, 5, Recipe(loss=LossSpec("ciou", 2.0))).alpha == 2.0


def test_the_box_gain_moves_to_its_final_one():
    recipe = Recipe(epochs=3, box_gain=0.1, final_box_gain=0.3)
    grown = [rates(step, 5, recipe).box_growth for step in (0, 7, 14)]
    assert grown == pytest.approx([1.0, 2.0, 3.0])
    assert {rates(step, 5, Recipe(epochs=3)).box_growth for step in range(15)} == {1.0}


def test_the_table_has_a_row_for_every_step():
    recipe = Recipe(epochs=3, optimisation=Optimisation(warmup_steps=4, warmup_epochs=0.0))
    table = rate_table(5, recipe)
    assert table.shape == (15, 6)
    for step in (0, 3, 4, 14):
        assert table[step].tolist() == pytest.approx(list(rates(step, 5, recipe)), rel=1e-6)


def test_no_warm_up_is_possible():
    recipe = Recipe(optimisation=Optimisation(warmup_steps=0, warmup_epochs=0.0))
    assert rates(1, 5, recipe).lr == pytest.approx(0.01)


def test_steps_drop_after_their_epochs():
    how = Optimisation(lr=0.02, schedule="steps", drops=(8, 11), warmup_steps=0, warmup_epochs=0.0)
    recipe = Recipe(epochs=12, optimisation=how)
    found = [rates(epoch * 10 + 1, 10, recipe).lr for epoch in range(12)]
    assert found == pytest.approx([0.02] * 8 + [0.002] * 3 + [0.0002])
    half = Recipe(epochs=12, optimisation=replace(how, drop_factor=0.5))
    assert rates(119, 10, half).lr == pytest.approx(0.005)
