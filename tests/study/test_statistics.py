"""The model against closed forms and SciPy, and what its intervals cover of a known truth."""

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from alphaiou.paper.scales import quick_scale
from alphaiou.study.statistics import (
    Interval,
    compare,
    fit,
    holm,
    seeds_word,
)
from alphaiou.training.recipe import recipe_from
from alphaiou.training.recipes import other_factors
from benchmarks.record import load_record
from tools.runs import run_label

RECORDS = Path(__file__).parents[2] / "studies/voc320/records"


def runs_of(scores):
    """Runs from the scores of each row in the order of the seeds."""
    return [(row, seed, s) for row, values in scores.items() for seed, s in enumerate(values)]


def change_of(ours, theirs):
    return fit(runs_of({"IoU": theirs, "α-IoU": ours})).change("α-IoU", "IoU")


def ends(interval):
    return (interval.low, interval.high)


# --- model ----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0.2, 0.8), st.floats(0.2, 0.8)), min_size=2, max_size=8))
def test_of_two_rows_with_the_same_seeds_it_is_the_paired_t_test(pairs):
    ours, theirs = map(np.array, zip(*pairs, strict=True))
    if (ours - theirs).std() < 1e-6:
        return
    expected = stats.ttest_rel(ours, theirs)
    change = change_of(ours, theirs)
    assert change.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert ends(change.interval) == pytest.approx(expected.confidence_interval(), rel=1e-6)
    assert change.relative == pytest.approx(ours.mean() / theirs.mean() - 1)


def test_balanced_rows_share_the_variance_of_a_two_way_analysis():
    """Rows of the same mean have the same weight: the sums of squares of the textbook."""
    noise = np.random.default_rng(1).normal(0, 0.01, (4, 3))
    scores = 0.3 + noise - noise.mean(1, keepdims=True)
    model = fit(runs_of({str(row): values for row, values in enumerate(scores)}))
    left = scores - scores.mean(0)
    assert model.freedom == 3 * 2
    assert model.variance * 0.3 * 0.7 == pytest.approx((left**2).sum() / 6)
    margin = stats.t.ppf(0.975, 6) * math.sqrt((left**2).sum() / 6 * 2 / 3)
    assert ends(model.change("1", "0").interval) == pytest.approx((-margin, margin))


def test_a_seed_that_is_good_for_all_rows_is_no_difference():
    base = [0.2, 0.4, 0.3]
    change = change_of([score + 0.1 for score in base], base)
    assert ends(change.interval) == pytest.approx((0.1, 0.1))
    assert change.significant


def test_changes_are_adjusted_for_seeds_that_a_row_lacks():
    """Seed 1 adds .1 to every row; the row with seed 1 alone is .05 above its baseline."""
    runs = [("a", 0, 0.2), ("a", 1, 0.3), ("b", 0, 0.22), ("b", 1, 0.32), ("c", 1, 0.35)]
    model = fit(runs)
    assert model.change("c", "a").difference == pytest.approx(0.05)
    assert model.change("c", "a").relative == pytest.approx(0.05 / 0.25)
    assert model.change("c", "a").runs == 1
    apart = [("a", 0, 0.2), ("b", 1, 0.3), ("c", 1, 0.4)]
    assert fit(apart).change("b", "a") is None, "row and seed cannot be told apart"
    linked = [*apart, ("d", 0, 0.3), ("d", 1, 0.35)]
    assert fit(linked).change("b", "a").difference == pytest.approx(0.05)


def test_repeated_runs_of_a_seed_count():
    model = fit([("a", 0, 0.2), ("a", 0, 0.22), ("b", 0, 0.3), ("b", 0, 0.32)])
    assert model.freedom == 2
    assert model.change("b", "a").runs == 2


def test_one_seed_per_row_has_no_interval():
    change = change_of([0.23], [0.2])
    assert change.difference == pytest.approx(0.03)
    assert change.interval is change.relative_interval is None
    assert math.isnan(change.p)
    assert not change.significant


def test_undefined_scores_are_left_out():
    assert change_of([0.3, math.nan], [0.2, 0.2]).runs == 1
    assert change_of([math.nan], [0.2]) is None
    assert fit([]).change("a", "b") is None
    assert fit([("a", 0, 0.5)]).change("a", "nowhere") is None


def test_no_relative_change_from_almost_nothing():
    change = change_of([0.004, 0.005, 0.006], [0.001, 0.001, 0.001])
    assert math.isnan(change.relative)
    assert change.relative_interval is None
    assert change.difference == pytest.approx(0.004)
    assert change.interval.low < 0.004 < change.interval.high
    assert not math.isnan(change_of([0.006, 0.007], [0.005, 0.0051]).relative)


def test_a_ratio_to_what_may_be_zero_has_no_bounds():
    change = change_of([0.3, 0.5], [0.01, 0.3])
    assert change.interval is not None
    assert change.relative_interval is None


@given(st.lists(st.tuples(st.floats(0.2, 0.8), st.floats(0.2, 0.8)), min_size=2, max_size=6))
def test_the_interval_of_the_ratio_agrees_with_the_test_of_the_difference(pairs):
    ours, theirs = map(np.array, zip(*pairs, strict=True))
    change = change_of(ours, theirs)
    differs = (ours - theirs).std() > 1e-6
    if differs and change.relative_interval and abs(change.p - 0.05) > 1e-6:
        assert change.relative_interval.includes_zero() is not change.significant


# --- committed runs -------------------------------------------------------------------------------


@cache
def committed():
    """The row and the record of each run with clean boxes, all images and 60 epochs."""
    folder = load_record(RECORDS)
    usual = quick_scale(Path("voc320")).recipe()
    found = []
    for run in [*folder["runs"], *folder["folders"]["earlier"]["runs"]]:
        recipe = recipe_from(run["recipe"])
        if (recipe.detector.name, recipe.epochs, recipe.noise, recipe.subset) == (
            "yolov5s",
            60,
            0,
            1,
        ):
            label = ", ".join([run_label(recipe), *other_factors(recipe, usual)])
            found.append((f"{label}, {recipe.detector.objectness}", run))
    return found


def committed_model(column):
    return fit((row, run["recipe"]["seed"], run["scores"][column]) for row, run in committed())


PLAIN, TWICE, POWERED = "IoU, iou", "IoU, box gain ×2, iou", "α-IoU (α=3), iou"


@pytest.mark.parametrize(
    ("column", "baseline", "percent"),
    [
        ("map75_95", PLAIN, (12.3, 10.9, 13.8)),
        ("ap50", PLAIN, (-1.0, -1.6, -0.3)),
        ("map75_95", TWICE, (3.2, 1.7, 4.8)),
    ],
)
def test_committed_runs_agree_with_an_independent_computation(column, baseline, percent):
    """It had a constant variance and took the baseline as known, and printed one decimal.

    With these, the ends differ by at most .1, and rounding adds .05.
    """
    model = committed_model(column)
    assert (len(model.rows), model.runs.sum(), model.freedom) == (64, 115, 47)
    change = model.change(POWERED, baseline)
    found = (change.relative, *ends(change.relative_interval))
    assert [100 * value for value in found] == pytest.approx(percent, abs=0.15)


def test_the_committed_change_at_ap95_is_less_certain_than_if_the_baseline_were_known():
    """The independent 26 to 50 % takes the mean of the baseline, 1.03 ± .04 %, as known."""
    change = committed_model("ap95").change(POWERED, TWICE)
    assert 100 * change.relative == pytest.approx(38, abs=0.55)
    known = [100 * end / change.baseline for end in ends(change.interval)]
    assert known == pytest.approx([26, 50], abs=1.0)  # of the rounding .5, of the weights the rest
    found = [100 * end for end in ends(change.relative_interval)]
    assert found == pytest.approx([24.0, 52.8], abs=0.1)


def test_the_committed_share_of_the_rise_that_twice_the_gain_explains():
    share, interval = committed_model("map75_95").share(TWICE, POWERED, PLAIN)
    assert (share, *ends(interval)) == pytest.approx((0.72, 0.59, 0.84), abs=0.0075)


def test_the_variance_of_committed_runs_is_that_of_a_share():
    """Deviance of the variances within rows, as gamma values with n − 1 degrees of freedom."""

    def deviance(column, of_mean):
        rows = {}
        for row, run in committed():
            rows.setdefault(row, []).append(run["scores"][column])
        values = [np.array(own) for own in rows.values() if len(own) > 2]
        means = of_mean(np.array([own.mean() for own in values]))
        variances = np.array([own.var(ddof=1) for own in values]) / means
        freedom = np.array([len(own) - 1 for own in values])
        scale = (freedom * variances).sum() / freedom.sum()
        return (freedom * (np.log(scale * means) + variances / scale)).sum()

    for column, margin in (("ap95", 2.0), ("ap50", -2.0), ("map75_95", -2.0)):
        ours = deviance(column, lambda m: m * (1 - m))
        for other in (np.ones_like, np.square):
            assert deviance(column, other) > ours + margin, column


# --- coverage -------------------------------------------------------------------------------------


class Simulated:
    """The model of ``fit``, fitted to many draws of the scores of one design at once.

    It knows the closed form alone: effects and covariance of weighted least squares with the first
    seed as reference. ``test_the_simulated_model_is_that_of_the_package`` compares the two.
    """

    def __init__(self, cells, means, variance, seed_spread, draws, rng, *, is_weighted=True):
        self.cells, self.means, count = cells, means, len(means)
        rows, seeds = np.array(cells).T
        names = list(dict.fromkeys(seeds))
        spread = np.sqrt(variance * means * (1 - means))[rows]
        shift = seed_spread * rng.standard_normal((draws, len(names)))
        places = [names.index(seed) for seed in seeds]
        noise = spread * rng.standard_normal((draws, len(cells)))
        self.scores = means[rows] + shift[:, places] + noise
        in_row, in_seed = np.eye(count)[rows], np.eye(len(names))[places]
        self.mix = (in_row.T @ in_seed / in_row.sum(0)[:, None])[:, 1:]
        design = np.hstack([in_row, in_seed[:, 1:]])
        found = np.clip(self.scores @ in_row / in_row.sum(0), 1e-3, 1 - 1e-3)
        weights = (1 / (found * (1 - found)) if is_weighted else np.ones_like(found))[:, rows]
        normal = np.einsum("dn,np,nq->dpq", weights, design, design, optimize=True)
        self.inverse = np.linalg.inv(normal)
        self.effects = np.einsum("dpq,dq->dp", self.inverse, (weights * self.scores) @ design)
        residuals = self.scores - self.effects @ design.T
        freedom = len(cells) - design.shape[1]
        self.variance = (weights * residuals**2).sum(1) / freedom
        self.quantile = stats.t.ppf(0.975, freedom)

    def level(self, row, at):
        return np.concatenate([np.eye(len(self.means))[row], self.mix[at]])

    def covers(self, contrast):
        """Whether the interval of a contrast that is zero in truth includes zero."""
        error = np.einsum("p,dpq,q->d", contrast, self.inverse, contrast) * self.variance
        return np.abs(self.effects @ contrast) <= self.quantile * np.sqrt(error)

    def difference(self, row, base):
        contrast = self.level(row, base) - self.level(base, base)
        error = np.einsum("p,dpq,q->d", contrast, self.inverse, contrast) * self.variance
        missed = np.abs(self.effects @ contrast - (self.means[row] - self.means[base]))
        return missed <= self.quantile * np.sqrt(error)

    def relative(self, row, base):
        """Fieller's interval includes a ratio that the t-test does not reject."""
        ratio = self.means[row] / self.means[base]
        return self.covers(self.level(row, base) - ratio * self.level(base, base))

    def share(self, part, whole, base):
        share = (self.means[part] - self.means[base]) / (self.means[whole] - self.means[base])
        levels = [self.level(row, base) for row in (part, whole, base)]
        return self.covers(levels[0] - levels[2] - share * (levels[1] - levels[2]))


@cache
def truth(column):
    """Means and φ of the committed rows with several seeds, and the spread of the seeds."""
    model = committed_model(column)
    several = [row for row in model.rows if model.runs[model.rows.index(row)].sum() > 2]
    assert len(several) > 12
    names = [PLAIN, TWICE, POWERED, *(row for row in several if row not in (PLAIN, TWICE, POWERED))]
    scores = [[run["scores"][column] for own, run in committed() if own == row] for row in names]
    # Of the seeds with many runs: of the others the estimates scatter more than the seeds do.
    often = np.flatnonzero(model.runs.sum(0) > 10) + len(model.rows)
    centred = np.eye(len(often)) - 1 / len(often)
    noise = model.variance * np.trace(centred @ model.covariance[np.ix_(often, often)])
    squares = model.effects[often] @ centred @ model.effects[often] - noise
    spread = math.sqrt(max(squares, 0.0) / (len(often) - 1))
    return np.array([np.mean(own) for own in scores]), model.variance, spread


def balanced(rows, seeds):
    return [(row, seed) for row in range(rows) for seed in range(seeds)]


#: Rows with a single seed, missing cells, other seeds, and repeated runs.
UNBALANCED = [
    *[(0, 0), (0, 1), (0, 2), (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3), (1, 4)],
    *[(2, 0), (2, 1), (2, 2), (3, 0), (4, 1), (5, 0), (5, 2), (6, 3), (6, 4), (7, 0), (8, 1)],
]
DESIGNS = {
    "two rows, 3 seeds": balanced(2, 3),
    "two rows, 5 seeds": balanced(2, 5),
    "3 seeds": balanced(10, 3),
    "5 seeds": balanced(10, 5),
    "unbalanced": UNBALANCED,
}


def simulated(design, column, draws):
    means, variance, spread = truth(column)
    cells = DESIGNS[design]
    rows = 1 + max(row for row, _ in cells)
    # With two rows, the one with the power against plain IoU, which differ the most.
    means = means[[0, 2]] if rows == 2 else means[:rows]
    return Simulated(cells, means, variance, spread, draws, np.random.default_rng(7))


@pytest.mark.parametrize("design", DESIGNS)
def test_the_simulated_model_is_that_of_the_package(design):
    many = simulated(design, "ap95", 3)
    for draw in range(3):
        model = fit(
            (str(row), seed, score)
            for (row, seed), score in zip(many.cells, many.scores[draw], strict=True)
        )
        for row in range(1, len(many.means)):
            change = model.change(str(row), "0")
            contrast = many.level(row, 0) - many.level(0, 0)
            value = many.effects[draw] @ contrast
            error = math.sqrt(contrast @ many.inverse[draw] @ contrast * many.variance[draw])
            margin = many.quantile * error
            assert ends(change.interval) == pytest.approx((value - margin, value + margin))
            for end in ends(change.relative_interval):
                edge = many.level(row, 0) - (1 + end) * many.level(0, 0)
                error = math.sqrt(edge @ many.inverse[draw] @ edge * many.variance[draw])
                assert abs(many.effects[draw] @ edge) == pytest.approx(many.quantile * error)


@pytest.mark.parametrize("column", ["ap50", "map75_95", "ap95"])
@pytest.mark.parametrize("design", DESIGNS)
def test_every_interval_covers_95_percent(design, column):
    """The standard error of 20,000 draws is .15 %, so that one percent is six of them."""
    many = simulated(design, column, 20_000)
    for row in range(1, len(many.means)):
        assert many.difference(row, 0).mean() == pytest.approx(0.95, abs=0.01), row
        assert many.relative(row, 0).mean() == pytest.approx(0.95, abs=0.01), row
    if len(many.means) > 2:
        assert many.share(1, 2, 0).mean() == pytest.approx(0.95, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["ap50", "map75_95", "ap95"])
def test_the_intervals_of_the_headline_cover_95_percent(column):
    """With the rows and runs of the committed model; the standard error is .24 %."""
    model, (_, _, spread) = committed_model(column), truth(column)
    cells = [(model.rows.index(row), run["recipe"]["seed"]) for row, run in committed()]
    rows, scores = np.array(cells)[:, 0], [run["scores"][column] for _, run in committed()]
    means = np.bincount(rows, scores) / np.bincount(rows)
    plain, twice, powered = (model.rows.index(row) for row in (PLAIN, TWICE, POWERED))
    found = []
    for seed in range(4):  # one at a time, for the memory
        many = Simulated(cells, means, model.variance, spread, 2000, np.random.default_rng(seed))
        pairs = ((powered, plain), (twice, plain), (powered, twice))
        covered = [way(*pair) for pair in pairs for way in (many.difference, many.relative)]
        found.append([one.mean() for one in (*covered, many.share(twice, powered, plain))])
    assert np.mean(found, axis=0) == pytest.approx(0.95, abs=0.01)


def test_a_constant_variance_would_not_do():
    """With the levels of AP95 in all committed runs, of noisy boxes too."""
    _, variance, spread = truth("ap95")
    means = np.array([0.0072, *np.linspace(0.0012, 0.0183, 9)])
    settings = (balanced(10, 3), means, variance, spread, 20_000)
    covered = [
        [one.difference(row, 0).mean() for row in range(1, 10)]
        for one in (
            Simulated(*settings, np.random.default_rng(7)),
            Simulated(*settings, np.random.default_rng(7), is_weighted=False),
        )
    ]
    assert covered[0] == pytest.approx([0.95] * 9, abs=0.01)
    assert min(covered[1]) < 0.92
    assert max(covered[1]) > 0.98


@pytest.mark.slow
def test_losses_that_are_alike_have_a_significant_change_in_one_table_of_twenty():
    rng = np.random.default_rng(3)
    names = [str(row) for row in range(6)]
    scores = 0.2 + 0.003 * rng.standard_normal((2000, 6, 3))
    found = [
        any(
            change.significant
            for change in compare(
                fit(runs_of(dict(zip(names, draw, strict=True)))), dict.fromkeys(names[1:], "0")
            ).values()
        )
        for draw in scores
    ]
    # Changes against one baseline depend on each other, so that Holm's method errs to the safe
    # side; four standard errors are 2 %.
    assert 0.02 < np.mean(found) < 0.065


# --- correction and equivalence -------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_step_by_step(p):
    """As the method is told: from the smallest on, until one is above its share of the level."""
    rejected = set()
    for number, place in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        if p[place] > 0.05 / (len(p) - number):
            break
        rejected.add(place)
    adjusted = holm(p)
    sure = {place for place, value in enumerate(adjusted) if value < 0.05 * (1 - 1e-9)}
    assert sure <= rejected <= {place for place, own in enumerate(adjusted) if own < 0.05 + 1e-9}


def test_an_undefined_p_value_is_not_in_the_family():
    first, undefined, last = holm([0.02, math.nan, 0.03])
    assert (first, last) == (0.04, 0.04)
    assert math.isnan(undefined)


def test_a_family_is_adjusted_and_its_intervals_are_not():
    scores = {"a": [0.30, 0.31, 0.29], "b": [0.34, 0.35, 0.32], "c": [0.31, 0.32, 0.32]}
    model = fit(runs_of(scores))
    changes = compare(model, {"b": "a", "c": "a", "nowhere": "a"})
    alone = {row: model.change(row, "a") for row in "bc"}
    assert list(changes) == ["b", "c"]
    assert changes["b"].p == pytest.approx(2 * alone["b"].p)
    assert changes["c"].p == alone["c"].p
    assert changes["b"].interval == alone["b"].interval


def test_equivalence_is_two_one_sided_tests_within_the_margin():
    base = [0.600, 0.603, 0.601, 0.598]
    close = [score + step for score, step in zip(base, (1e-3, -1e-3, 2e-3, 0), strict=True)]
    model = fit(runs_of({"a": base, "b": close}))
    assert model.change("b", "a", 0.01).equivalent
    assert not model.change("b", "a", 0.002).equivalent
    assert math.isnan(model.change("b", "a").equivalence), "nothing is claimed without a margin"
    few = fit(runs_of({"a": [0.6, 0.65], "b": [0.62, 0.63]})).change("b", "a", 0.01)
    assert not few.significant
    assert not few.equivalent, "not significant is not the same"
    # At the smallest margin that the 90 % interval lies within, p is .05.
    low, high = (few_margin(model, side) for side in (-1, 1))
    assert model.change("b", "a", max(low, high)).equivalence == pytest.approx(0.05, abs=1e-6)


def few_margin(model, side):
    """How far the 90 % interval of the ratio reaches, by bisection of the one-sided test."""
    near, far = 0.0, 0.5
    base, ours = model._level("a", "a"), model._level("b", "a")
    for _ in range(60):
        middle = (near + far) / 2
        statistic = side * model._t((1 + side * middle) * base - ours)
        near, far = (near, middle) if stats.t.sf(statistic, model.freedom) < 0.05 else (middle, far)
    return far


@pytest.mark.slow
def test_equivalence_is_claimed_at_the_margin_in_one_case_of_twenty():
    rng = np.random.default_rng(5)
    noise = 0.001 * rng.standard_normal((4000, 2, 5))
    means = np.array([0.6, 0.606])[:, None]
    found = [
        fit(runs_of(dict(zip("ab", means + own, strict=True)))).change("b", "a", 0.01).equivalent
        for own in noise
    ]
    assert np.mean(found) == pytest.approx(0.05, abs=0.014)  # four standard errors


def test_words():
    assert [seeds_word(n) for n in (0, 1, 2, 11)] == [
        "no seeds",
        "one seed",
        "two seeds",
        "11 seeds",
    ]
    assert Interval(-1.0, 0.0).includes_zero()
    assert not Interval(0.5, 1.0).includes_zero()
