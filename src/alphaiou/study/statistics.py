"""Whether a difference between two losses is more than the variation between seeds.

Runs are paired: with the same seed, two losses start from the same weights and see the same images
in the same order, so that the differences within each seed are compared.

**The limits of a bootstrap of three seeds.** Three differences have 27 resamples, and the lowest
difference taken three times is 1 in 27 of them, more than 2.5 %: the percentile interval *is* the
range of the three differences. A symmetric truth lies outside it whenever all three fall on the
same side of it, once in four times. So with three seeds the bootstrap's "95 %" covers about 75 %,
with two 50 %. Student's interval of the differences covers 95 % at every number of seeds if they
are normal, at the price of its width: with three seeds it is 4.3 standard errors to either side.
Both are computed and exported, and a change counts as significant only if *neither* includes zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from alphaiou._shapes import Float64, Int64
from alphaiou.metrics.comparison import relative_improvement

#: Up to this number all resamples are taken; otherwise this many, drawn with a fixed seed.
MOST_RESAMPLES = 50_000
TAIL = 0.025
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Interval:
    """An interval of confidence."""

    low: float
    high: float

    def holds_zero(self) -> bool:
        """Whether it includes zero."""
        return self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class PairedChange:
    """A score against its baseline, over the seeds that both have.

    Attributes:
        seeds: The number of these seeds.
        baseline: The mean of the baseline.
        score: The mean of the score.
        difference: The score minus the baseline.
        relative: The difference as a fraction of the baseline, as the paper's tables print it.
        bootstrap: 95 % of the difference by resampling seeds; None with one seed.
        relative_bootstrap: 95 % of ``relative``, from the same resamples; None with one seed.
        student: 95 % of the difference by Student's t; None with one seed.
    """

    seeds: int
    baseline: float
    score: float
    difference: float
    relative: float
    bootstrap: Interval | None = None
    relative_bootstrap: Interval | None = None
    student: Interval | None = None

    @property
    def decided(self) -> bool:
        """Whether neither interval of the difference includes zero."""
        return not any(one is None or one.holds_zero() for one in (self.bootstrap, self.student))


def paired_change(
    scores: Mapping[int, float], baseline: Mapping[int, float]
) -> PairedChange | None:
    """Compare two losses over the seeds that both were run with; None if there is no such seed.

    Args:
        scores: The score of a loss by seed.
        baseline: The same score of its baseline.

    Examples:
        >>> change = paired_change({0: 0.23, 1: 0.25, 2: 0.24}, {0: 0.21, 1: 0.22, 2: 0.22})
        >>> f"{change.difference:.3f}, {change.bootstrap.low:.2f} to {change.bootstrap.high:.2f}"
        '0.023, 0.02 to 0.03'
    """
    seeds = sorted(scores.keys() & baseline.keys())
    if not seeds:
        return None
    ours = np.array([scores[seed] for seed in seeds])
    theirs = np.array([baseline[seed] for seed in seeds])
    mean, before = float(ours.mean()), float(theirs.mean())
    differences = ours - theirs
    change = PairedChange(
        seeds=len(seeds),
        baseline=before,
        score=mean,
        difference=float(differences.mean()),
        relative=relative_improvement(mean, before),
    )
    if len(seeds) == 1 or not np.isfinite(differences).all():
        return change
    rows = resamples(len(seeds))
    below, above = theirs[rows].mean(1), differences[rows].mean(1)
    return replace(
        change,
        bootstrap=percentiles(above),
        relative_bootstrap=percentiles(above / below) if (below > 0).all() else None,
        student=student_interval(differences),
    )


def bootstrap_mean(values: Sequence[float]) -> Interval | None:
    """The 95 % bootstrap interval of a mean over seeds; None for fewer than two.

    Examples:
        >>> bootstrap_mean([0.25, 0.5, 1.0])
        Interval(low=0.25, high=1.0)
    """
    array = np.asarray(values, dtype=np.float64)
    if len(array) < 2 or not np.isfinite(array).all():
        return None
    return percentiles(array[resamples(len(array))].mean(1))


def resamples(count: int) -> Int64[np.ndarray, "samples count"]:
    """The indices of each resample of some values: all resamples, or many drawn with a seed.

    Examples:
        >>> resamples(2).tolist()
        [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    if count**count <= MOST_RESAMPLES:
        return np.indices((count,) * count).reshape(count, -1).T.astype(np.int64)
    return np.random.default_rng(0).integers(0, count, (MOST_RESAMPLES, count))


def percentiles(values: Float64[np.ndarray, " samples"]) -> Interval:
    """The interval between the lowest and the highest 2.5 %; both ends are among the values."""
    low = np.quantile(values, TAIL, method="inverted_cdf")
    high = -np.quantile(-values, TAIL, method="inverted_cdf")
    return Interval(float(low), float(high))


def student_interval(values: Float64[np.ndarray, " seeds"]) -> Interval:
    """The 95 % interval of the mean of at least two normal values."""
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    margin = student_quantile(len(values) - 1) * error
    return Interval(mean - margin, mean + margin)


@cache
def student_quantile(freedom: int) -> float:
    """The 97.5 % quantile of Student's t.

    With t = √ν tan θ the density of t with ν degrees of freedom is that of θ ∝ cos^{ν-1} θ on a
    quarter turn to either side, which a fine grid sums up.

    Examples:
        >>> round(student_quantile(2), 3)
        4.303
    """
    edges = np.linspace(0.0, np.pi / 2, 200_001)
    middles = (edges[1:] + edges[:-1]) / 2
    reached = np.concatenate(([0.0], np.cumsum(np.cos(middles) ** (freedom - 1))))
    angle = np.interp(1 - 2 * TAIL, reached / reached[-1], edges)
    return math.sqrt(freedom) * math.tan(angle)


def seeds_word(count: int) -> str:
    """A number of seeds in words.

    Examples:
        >>> seeds_word(1), seeds_word(3), seeds_word(12)
        ('one seed', 'three seeds', '12 seeds')
    """
    number = NUMBER_WORDS[count] if count < len(NUMBER_WORDS) else str(count)
    return f"{number} seed{'s' * (count != 1)}"
