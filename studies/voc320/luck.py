"""How far ahead the best of many choices would be by the luck of its seed alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from alphaiou.study.records import CellRuns


def seed_scatter(rows: Sequence[CellRuns], base: CellRuns, column: str) -> float:
    """The standard deviation between seeds of a row's difference, as a part of the base's mean.

    It is pooled over the rows that share several seeds with the base; NaN if none does.
    """
    squares, freedom = 0.0, 0
    level = float(np.mean(list(base.scores(column).values())))
    for own in rows:
        seeds = sorted(own.runs.keys() & base.runs.keys())
        if own is base or len(seeds) < 2:
            continue
        ours, theirs = (np.array([one.scores(column)[s] for s in seeds]) for one in (own, base))
        differences = (ours - theirs) / level
        squares += float(((differences - differences.mean()) ** 2).sum())
        freedom += len(seeds) - 1
    return math.sqrt(squares / freedom) if freedom else float("nan")


def expected_best(count: int) -> float:
    """The mean of the largest of so many normal numbers, in standard deviations.

    By Blom's approximation of normal order statistics.

    Examples:
        >>> round(expected_best(1), 2), round(expected_best(30), 2)
        (0.0, 2.04)
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
