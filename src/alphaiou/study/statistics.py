"""Whether a difference between two losses is more than the variation between seeds.

**Model.** All runs that are comparable with those of a table (see ``records.comparable_rows``) are
described by one linear model per score::

    score = row + seed + residual,    variance of a residual = φ m (1 − m)

where m is the mean of the row. A seed decides the initial weights, the order of the images and
their augmentation for every row alike, so its effect is common to all rows. The effects are
weighted least-squares estimates; φ is estimated from all residuals with n − rank degrees of
freedom, so that rows with few runs borrow the variance of the others. Rows with different seeds,
missing runs, and repeated runs with the same seed need no special treatment. Residuals count as
independent: in the committed records, repeats with the same seed scatter no less than the model
leaves between seeds.

The variance is that of a share, since rows of one table differ much in their scores. In the
records of ``studies/voc320``, AP95 is between 0.1 and 1.8 %, and a constant variance, that of the
plain linear model, fits it worse by 15 units of deviance; a variance that grows as m², that of the
linear model of log scores, by 48. Where scores differ little, all three are alike. In simulations
of rows with these AP95 against one baseline, three to five seeds each, 95 % intervals of the
difference cover 91 to 99 % under the plain linear model, those of the ratio 80 to 99 % under the
log model, and both 94 to 96 % under this one.

**Intervals** are 95 % intervals by Student's t, each by itself. A relative change is a ratio of
two estimates; its interval is Fieller's. Unlike that of the delta method, it is exact for normal
estimates, skewed as the ratio is, and excludes "no change" exactly if the t-test of the difference
does. The ratio is taken at the seeds of the table. Between rows as different as clean and very
noisy training boxes (a fourth of the mAP75:95) the intervals cover 88 to 90 %, since the effect of
the seed on the level of the baseline is not among the errors; those of the difference cover 95 %.
For the doubled AP95 of the committed runs they cover 95 %, and would cover 94 % if the seeds
differed twice as much.

**Correction.** A change is significant if its p-value, adjusted by Holm's method, is below 5 %. A
family is all changes of one column of a table: each score is a question of its own, and the scores
of a run are too dependent for a family of all columns.

**Equivalence** is claimed within a stated margin only, by two one-sided tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import pinv
from scipy.sparse.csgraph import connected_components
from scipy.special import stdtr, stdtrit  # Student’s t: distribution function and quantile

from alphaiou._shapes import Float64
from alphaiou.metrics.columns import read_score
from alphaiou.metrics.comparison import relative_improvement
from alphaiou.study.records import RowRuns

#: The probability that an interval misses, and that a test finds a change where there is none.
LEVEL = 0.05
#: Row means are moved this far from 0 and 1 before their variance is computed.
LEAST_MEAN = 1e-3
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Interval:
    """A 95 % confidence interval."""

    low: float
    high: float

    def includes_zero(self) -> bool:
        """Whether it includes zero."""
        return self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class Change:
    """The change of a score against its baseline.

    Attributes:
        runs: The number of runs of the row or of its baseline, whichever has fewer.
        baseline: The mean of the baseline.
        score: The level of the row at the seeds of the baseline.
        difference: The score minus the baseline.
        relative: The difference as a fraction of the baseline; NaN from a baseline near zero.
        interval: That of the difference; None if no residual is left to estimate the variance.
        relative_interval: That of ``relative``; None also where ``relative`` is NaN, or the
            baseline is not known well enough to divide by it.
        p: The p-value of the difference, adjusted for its family by :func:`compare`.
        equivalence: The p-value of a relative change outside the margin, if one was stated.
    """

    runs: int
    baseline: float
    score: float
    difference: float
    relative: float
    interval: Interval | None = None
    relative_interval: Interval | None = None
    p: float = math.nan
    equivalence: float = math.nan

    @property
    def significant(self) -> bool:
        """Whether the change is significant at 5 %."""
        return self.p < LEVEL

    @property
    def equivalent(self) -> bool:
        """Whether the relative change is within the stated margin."""
        return self.equivalence < LEVEL


# Model


@dataclass(frozen=True)
class Model:
    """The fitted model of one score.

    Attributes:
        rows: The names of the rows.
        runs: The number of runs of each row with each seed.
        effects: Those of the rows, then those of the seeds.
        covariance: That of the effects, as a multiple of the variance.
        variance: φ; NaN without degrees of freedom.
        freedom: The degrees of freedom of the variance.
    """

    rows: tuple[str, ...]
    runs: Float64[np.ndarray, "rows seeds"]
    effects: Float64[np.ndarray, " effects"]
    covariance: Float64[np.ndarray, "effects effects"]
    variance: float
    freedom: int

    def change(self, row: str, baseline: str, margin: float | None = None) -> Change | None:
        """The change of a row, its p-value not adjusted; None if the two cannot be compared.

        Args:
            row: The name of the row.
            baseline: The name of its baseline.
            margin: The relative change within which the two count as equivalent.
        """
        if not self._are_comparable(row, baseline):
            return None
        after, before = self._level(row, baseline), self._level(baseline, baseline)
        score, base = float(after @ self.effects), float(before @ self.effects)
        relative = relative_improvement(score, base)
        ratio = None if math.isnan(relative) else self._ratio(after, before)
        apart = self._t(after - before)
        change = Change(
            runs=int(min(self.runs[self.rows.index(name)].sum() for name in (row, baseline))),
            baseline=base,
            score=score,
            difference=score - base,
            relative=relative,
            interval=self._interval(after - before),
            relative_interval=ratio and Interval(ratio.low - 1, ratio.high - 1),
            p=2 * self._above(abs(apart)),
        )
        if margin is None or math.isnan(relative):
            return change
        lower = self._t(after - (1 - margin) * before)
        upper = self._t((1 + margin) * before - after)
        return replace(change, equivalence=self._above(min(lower, upper)))

    def share(self, part: str, whole: str, baseline: str) -> tuple[float, Interval | None]:
        """The share of one change that another explains, and its interval (Fieller's).

        Args:
            part: The row whose change explains, such as IoU at twice the box gain.
            whole: The row whose change is explained, such as α-IoU.
            baseline: The baseline of both.
        """
        first, second, base = (self._level(row, baseline) for row in (part, whole, baseline))
        explained, change = first - base, second - base
        share = float(explained @ self.effects) / float(change @ self.effects)
        return share, self._ratio(explained, change)

    def _level(self, row: str, at: str) -> Float64[np.ndarray, " effects"]:
        """The weights of the effects in the level of a row at the seeds of another one."""
        seeds = self.runs[self.rows.index(at)]
        return np.concatenate([np.eye(len(self.rows))[self.rows.index(row)], seeds / seeds.sum()])

    def _are_comparable(self, *names: str) -> bool:
        """Whether rows have runs, and share a seed, directly or through other rows."""
        if not set(names) <= set(self.rows):
            return False
        _, group = connected_components(self.runs @ self.runs.T)
        return len({group[self.rows.index(name)] for name in names}) == 1

    def _quantile(self) -> float:
        return float(stdtrit(self.freedom, 1 - LEVEL / 2))

    def _above(self, t: float) -> float:
        return float(stdtr(self.freedom, -t))

    def _t(self, contrast: Float64[np.ndarray, " effects"]) -> float:
        value, error = float(contrast @ self.effects), self._error(contrast)
        if error < 1e-12:  # runs that agree to the last digit
            return 0.0 if abs(value) < 1e-12 else math.copysign(math.inf, value)
        return value / error

    def _error(self, contrast: Float64[np.ndarray, " effects"]) -> float:
        return math.sqrt(self.variance * max(float(contrast @ self.covariance @ contrast), 0.0))

    def _interval(self, contrast: Float64[np.ndarray, " effects"]) -> Interval | None:
        if not self.freedom:
            return None
        value, margin = float(contrast @ self.effects), self._quantile() * self._error(contrast)
        return Interval(value - margin, value + margin)

    def _ratio(
        self, over: Float64[np.ndarray, " effects"], under: Float64[np.ndarray, " effects"]
    ) -> Interval | None:
        """Fieller's interval: every ratio r for which over − r · under may be zero."""
        if not self.freedom:
            return None
        both = np.array([over, under])
        x, y = both @ self.effects
        spread = self._quantile() ** 2 * self.variance * (both @ self.covariance @ both.T)
        a, b, c = y * y - spread[1, 1], x * y - spread[0, 1], x * x - spread[0, 0]
        if a <= 0:  # the divisor may be zero, so that the ratio has no bounds
            return None
        root = math.sqrt(max(b * b - a * c, 0.0))
        return Interval(float((b - root) / a), float((b + root) / a))


def fit(runs: Iterable[tuple[str, int, float]]) -> Model:
    """Fit the model to the row, the seed and the score of each run; NaN scores are left out.

    Examples:
        >>> scores = {"IoU": (0.21, 0.22, 0.22), "α-IoU": (0.23, 0.25, 0.24)}
        >>> model = fit((row, seed, s) for row, own in scores.items() for seed, s in enumerate(own))
        >>> change = model.change("α-IoU", "IoU")
        >>> f"{change.difference:.3f} ({change.interval.low:.3f} to {change.interval.high:.3f})"
        '0.023 (0.009 to 0.038)'
    """
    known = [run for run in runs if math.isfinite(run[2])]
    names, row_of = _index([row for row, _, _ in known])
    seeds, seed_of = _index([seed for _, seed, _ in known])
    scores = np.array([score for _, _, score in known])
    in_row, in_seed = np.eye(len(names))[row_of], np.eye(len(seeds))[seed_of]
    counts = in_row.sum(0)
    means = np.clip(in_row.T @ scores / counts, LEAST_MEAN, 1 - LEAST_MEAN)
    deviation = np.sqrt(means * (1 - means))[row_of]
    design, target = np.hstack([in_row, in_seed]) / deviation[:, None], scores / deviation
    inverse, rank = pinv(design, return_rank=True) if known else (design.T, 0)
    effects = inverse @ target
    freedom = len(known) - int(rank)
    residuals = target - design @ effects
    variance = float(residuals @ residuals) / freedom if freedom else math.nan
    return Model(tuple(names), in_row.T @ in_seed, effects, inverse @ inverse.T, variance, freedom)


def fit_rows(rows: Mapping[str, RowRuns], column: str) -> Model:
    """The model of one score of some rows, of every run of each, repeated ones included."""
    return fit(
        (label, seed, read_score(record["scores"], column))
        for label, row in rows.items()
        for seed, record in row.every()
    )


def _index(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The distinct values, and the place of each value among them."""
    place = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return list(place), [place[value] for value in values]


# Correction


def compare(
    model: Model, baselines: Mapping[str, str], margin: float | None = None
) -> dict[str, Change]:
    """The changes of a family of rows, with p-values adjusted by Holm's method.

    Args:
        model: The model of the score.
        baselines: The baseline of each row; rows that cannot be compared are left out.
        margin: The relative change within which two rows count as equivalent.
    """
    found = {row: model.change(row, base, margin) for row, base in baselines.items()}
    changes = {row: change for row, change in found.items() if change is not None}
    p, equivalence = (
        holm([getattr(change, name) for change in changes.values()])
        for name in ("p", "equivalence")
    )
    return {
        row: replace(change, p=own, equivalence=within)
        for (row, change), own, within in zip(changes.items(), p, equivalence, strict=True)
    }


def holm(p: Sequence[float]) -> list[float]:
    """Adjust the p-values of a family by Holm's method; NaN is not a member of it.

    Examples:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted, highest = [math.nan] * len(p), 0.0
    tested = sorted((value, place) for place, value in enumerate(p) if not math.isnan(value))
    for number, (value, place) in enumerate(tested):
        highest = max(highest, min(1.0, (len(tested) - number) * value))
        adjusted[place] = highest
    return adjusted


def seeds_word(count: int) -> str:
    """A number of seeds in words.

    Examples:
        >>> seeds_word(1), seeds_word(3), seeds_word(12)
        ('one seed', 'three seeds', '12 seeds')
    """
    number = NUMBER_WORDS[count] if count < len(NUMBER_WORDS) else str(count)
    return f"{number} seed{'s' * (count != 1)}"
