"""How far ahead the best of many single seeds is by luck: closed forms and simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest

from alphaiou.study.records import grid_runs
from studies.voc320.beyond import beyond_sentences
from studies.voc320.luck import expected_best, seed_scatter
from tests.studies.beyond_runs import GRID, PLAIN, records

SINGLE = ("α-CIoU (α=3), gain ×1", "α-EIoU (α=3), gain ×1", "α-GIoU (α=3), gain ×1")
SEVERAL = "α-DIoU (α=3), gain ×2"


def cells_with(shifts):
    """Cells of the search in which one row differs from the others by a shift a seed."""

    def shift(label, seed, scores):
        if label == SEVERAL:
            scores["map75_95"] = 0.2 + shifts[seed]
            scores["ap95"] = 0.04 + shifts[seed]
        else:
            scores["map75_95"], scores["ap95"] = 0.2 * PLAIN.get(label, 0.3) / 0.4, 0.04

    return grid_runs(GRID, records(PLAIN | {SEVERAL: 0.4}, change=shift))


@pytest.mark.parametrize("count", [2, 5, 30])
def test_the_best_of_many_is_as_far_out_as_in_a_simulation(count):
    drawn = np.random.default_rng(0).standard_normal((40_000, count)).max(axis=1).mean()
    assert expected_best(count) == pytest.approx(drawn, abs=0.03)


def test_scatter_is_the_pooled_deviation_of_paired_differences():
    cells = cells_with((0.00, 0.02, 0.04))
    rows, base = [cells[SEVERAL]], cells["IoU, gain ×2"]
    assert seed_scatter(rows, base, "map75_95") == pytest.approx(0.02 / 0.2)
    steady = cells["IoU, gain ×1"]
    pooled = seed_scatter([cells[SEVERAL], steady, base], base, "map75_95")
    assert pooled == pytest.approx(math.sqrt(0.1**2 / 2)), "the base itself has no difference"
    alone = replace(steady, runs={0: steady.runs[0]})
    assert math.isnan(seed_scatter([alone, base], base, "map75_95"))


def test_luck_is_said_once_there_are_single_seeds_to_choose_from():
    cells = cells_with((0.00, 0.02, 0.04))
    assert not any("Luck" in sentence for sentence in beyond_sentences(cells))
    single = grid_runs(GRID, records(dict.fromkeys(SINGLE, 0.4)))
    cells |= {label: replace(single[label], runs={0: single[label].runs[0]}) for label in SINGLE}
    (luck,) = (sentence for sentence in beyond_sentences(cells) if "Luck" in sentence)
    # Three other gains without any scatter, and one row with it.
    scatter = math.sqrt(0.1**2 / 4)
    best = expected_best(3)
    assert f"varies by {100 * scatter:.1f} % at mAP75:95 and {500 * scatter:.1f} % at AP95" in luck
    assert "Were all 3 that have one seed equal to it" in luck
    assert luck.endswith(
        f"{100 * best * scatter:.1f} % at mAP75:95 and {500 * best * scatter:.1f} % at AP95."
    )
