"""What the seeds of the pre-registered study can show."""

import csv

import numpy as np
import pytest
from scipy.stats import t

from alphaiou.study.records import load_records
from studies.voc320.power import MARGIN, OUT, POWER, RECORDS, chance, detectable, rows_of

ERROR, FREEDOM = 0.005, 24


def simulated(change):
    """The lower and upper ends of many 95 % intervals of a true change."""
    generator = np.random.default_rng(0)
    found = generator.normal(change, ERROR, 40_000)
    error = ERROR * np.sqrt(generator.chisquare(FREEDOM, 40_000) / FREEDOM)
    half = t.ppf(0.975, FREEDOM) * error
    return found - half, found + half


def test_a_detectable_change_is_found_as_often_as_said():
    low, _ = simulated(detectable(ERROR, FREEDOM))
    assert (low > 0).mean() == pytest.approx(POWER, abs=0.01)


@pytest.mark.parametrize("change", [0.0, -0.005, 0.01])
def test_the_chance_to_lie_above_the_margin(change):
    low, _ = simulated(change)
    assert (low > -MARGIN).mean() == pytest.approx(chance(ERROR, FREEDOM, change), abs=0.01)


def test_the_table_is_that_of_the_records():
    with OUT.open(newline="") as file:
        committed = list(csv.DictReader(file))
    made = [
        {name: str(value) for name, value in row.items()}
        for row in rows_of(load_records([RECORDS]))
    ]
    assert [{k: v for k, v in row.items() if v} for row in committed] == made
