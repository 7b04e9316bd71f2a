"""Intervals against SciPy, closed forms, and what they cover of a known truth."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from alphaiou.study.statistics import (
    Interval,
    bootstrap_mean,
    paired_change,
    percentiles,
    resamples,
    seeds_word,
    student_interval,
    student_quantile,
)


def by_seed(values):
    return dict(enumerate(values))


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 29, 200])
def test_quantile_of_student(freedom):
    assert student_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-7)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8))
def test_student_interval_is_that_of_scipy(values):
    own = np.array(values)
    if own.std() < 1e-9:
        return
    low, high = stats.t.interval(0.95, len(own) - 1, own.mean(), stats.sem(own))
    found = student_interval(own)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)


def test_small_numbers_of_seeds_have_all_resamples():
    for count in (1, 2, 3, 4):
        every = list(itertools.product(range(count), repeat=count))
        assert sorted(map(tuple, resamples(count).tolist())) == every


def test_drawn_resamples_are_the_same_each_time():
    first = resamples(9)
    assert first.shape[1] == 9
    assert (first == resamples(9)).all()
    assert set(np.unique(first)) == set(range(9))


def test_bootstrap_is_that_of_scipy():
    values = np.random.default_rng(3).normal(size=8)
    ours = bootstrap_mean(values)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=50_000, rng=np.random.default_rng(4)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.02)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=3))
def test_of_up_to_three_seeds_the_bootstrap_is_the_range(values):
    found = bootstrap_mean(values)
    assert (found.low, found.high) == pytest.approx((min(values), max(values)), abs=1e-12)


def test_it_covers_what_the_docstring_says():
    """Three normal differences: the bootstrap covers 75 %, Student's interval 95 %."""
    samples = np.random.default_rng(0).normal(0.0, 1.0, (2000, 3))
    bootstrap = np.mean([bootstrap_mean(own).holds_zero() for own in samples])
    student = np.mean([student_interval(own).holds_zero() for own in samples])
    assert bootstrap == pytest.approx(0.75, abs=0.04)  # four standard errors
    assert student == pytest.approx(0.95, abs=0.02)


def test_percentiles_are_values_that_occur():
    found = percentiles(np.arange(1.0, 101.0))
    assert (found.low, found.high) == (3.0, 98.0)


def test_pairs_are_made_by_seed():
    change = paired_change({2: 0.5, 0: 0.3, 7: 0.9}, {0: 0.2, 2: 0.3, 1: 0.0})
    assert change.seeds == 2
    assert change.difference == pytest.approx(0.15)
    assert change.relative == pytest.approx(0.15 / 0.25)
    assert (change.bootstrap.low, change.bootstrap.high) == pytest.approx((0.1, 0.2))
    # Ratios of means: (.3 - .2) / .2, (.5 - .3) / .3 and both together.
    relative = change.relative_bootstrap
    assert (relative.low, relative.high) == pytest.approx((0.5, 2 / 3))


@given(st.floats(0.1, 0.5), st.lists(st.floats(0.001, 0.2), min_size=2, max_size=5))
def test_luck_that_both_share_is_no_luck(shift, levels):
    """A seed that is good for both losses does not widen the interval of their difference."""
    base = by_seed(levels)
    change = paired_change({seed: level + shift for seed, level in base.items()}, base)
    assert change.bootstrap.low == pytest.approx(shift)
    assert change.bootstrap.high == pytest.approx(shift)
    assert change.decided


def test_one_seed_has_no_interval_and_says_so():
    change = paired_change({0: 0.23}, {0: 0.206})
    assert change.bootstrap is change.relative_bootstrap is change.student is None
    assert not change.decided


def test_no_seed_in_common():
    assert paired_change({0: 0.1}, {1: 0.2}) is None


def test_three_seeds_that_decide():
    change = paired_change(by_seed([0.230, 0.232, 0.231]), by_seed([0.206, 0.209, 0.206]))
    assert change.decided


def test_three_seeds_that_agree_without_deciding():
    """All on one side: the bootstrap excludes zero, Student's interval includes it."""
    change = paired_change(by_seed([0.21, 0.25, 0.23]), by_seed([0.20, 0.20, 0.20]))
    assert not change.bootstrap.holds_zero()
    assert change.student.holds_zero()
    assert not change.decided


def test_undefined_scores_decide_nothing():
    change = paired_change(by_seed([0.2, float("nan")]), by_seed([0.1, 0.1]))
    assert not change.decided


def test_no_relative_improvement_over_nothing():
    change = paired_change(by_seed([0.2, 0.3]), by_seed([0.0, 0.0]))
    assert np.isnan(change.relative)
    assert change.relative_bootstrap is None
    assert change.bootstrap == Interval(0.2, 0.3)


def test_words():
    assert [seeds_word(n) for n in (0, 1, 2, 11)] == [
        "no seeds",
        "one seed",
        "two seeds",
        "11 seeds",
    ]
