"""The numbers of each step, against those worked out by hand."""

import math
from dataclasses import replace

import pytest

from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.optimiser import rate_table, rates
from alphaiou.training.recipe import Optimisation, Recipe

RECIPE = Recipe(epochs=300)


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
