"""The series of figures: scores and losses by epoch, against settings, and as changes."""

from dataclasses import replace

import numpy as np
import pytest

from alphaiou.study.records import drawn_runs, grid_runs
from alphaiou.study.series import (
    FOUND,
    MOST_ROWS,
    Point,
    change_sweeps,
    changes_along,
    curves,
    found_changes,
    found_lines,
    loss_curves,
    published_along,
    shared_loss_parts,
    sweeps_of,
    swept,
)
from alphaiou.training.recipe import recipe_hash
from tests.study.made import alpha_grid, gain_grid, noise_grid, records_of, table1

DISTRIBUTION = replace(table1(), name="distribution", found_shares=tuple(FOUND))


def runs_of(grid):
    """The runs of a grid, and of the rows that its figures include."""
    return drawn_runs(grid, records_of(grid, table1(grid.seeds)))


def test_curves_are_means_over_the_seeds_with_their_range():
    grid = table1()
    records = records_of(grid)
    own = [records[recipe_hash(replace(grid.rows[0].recipe, seed=s))] for s in range(3)]
    points = curves(grid_runs(grid, records), "map")["IoU"]
    assert [point.x for point in points] == [2, 4, 6]
    last = [100 * record["history"][-1]["val"]["map"] for record in own]
    found = (points[-1].mean, points[-1].low, points[-1].high)
    assert found == pytest.approx((np.mean(last), min(last), max(last)))


def test_what_a_grid_varies_is_found():
    names = {
        grid.name: [s.name for s in sweeps_of(runs_of(grid))]
        for grid in (table1(), alpha_grid(), gain_grid())
    }
    assert names == {"table1": [], "alpha": ["alpha"], "gains": ["gain"]}


def test_lines_are_named_by_what_differs_between_them():
    rows = runs_of(alpha_grid())
    lines = swept(rows, sweeps_of(rows)[0], "map")
    assert list(lines) == ["IoU, clean", "IoU, noise 0.3"]
    assert [point.x for point in lines["IoU, clean"]] == [0.5, 1, 2, 3, 5, 10]
    backwards = swept(dict(reversed(rows.items())), sweeps_of(rows)[0], "map")
    assert backwards["IoU, clean"] == lines["IoU, clean"]
    gains = runs_of(gain_grid())
    assert list(swept(gains, sweeps_of(gains)[0], "map")) == ["IoU", "α-IoU (α=3)"]


def test_rows_that_are_called_the_same_are_one_line():
    grid = gain_grid()
    often = tuple(
        replace(one, recipe=replace(one.recipe, evaluate_every=1)) if "×3" in one.label else one
        for one in grid.rows
    )
    rows = runs_of(replace(grid, rows=often))
    (sweep,) = sweeps_of(rows)
    assert [point.x for point in swept(rows, sweep, "map")["IoU"]] == [0.5, 1, 2, 3]


def test_the_points_of_a_line_have_the_same_seeds():
    rows = runs_of(replace(gain_grid(), seeds=(0, 1, 2)))
    (sweep,) = sweeps_of(rows)

    def without(seeds_of):
        """The rows without the runs of some seeds, by the place of the row."""
        left = {
            label: replace(
                own, runs={s: r for s, r in own.runs.items() if s not in seeds_of(place)}
            )
            for place, (label, own) in enumerate(rows.items())
        }
        return swept(left, sweep, "map")["IoU"]

    def mean(own, seeds):
        return pytest.approx(100 * np.mean([own.scores("map")[seed] for seed in seeds]))

    line = [own for own in rows.values() if own.row.recipe.loss.alpha == 1]
    first = without(lambda place: {1, 2} if place == 1 else set())
    assert [point.mean for point in first] == [mean(own, [0]) for own in line]
    assert all(point.alone for point in first)
    two = without(lambda place: {1} if place else set())
    assert [point.mean for point in two] == [mean(own, [0, 2]) for own in line]
    apart = without(lambda place: {0} if place else {1, 2})
    assert [point.mean for point in apart] == [
        mean(own, [1, 2] if place else [0]) for place, own in enumerate(line)
    ], "no seed is in all of them"


def test_losses_by_epoch_are_sums_of_parts():
    grid = table1(seeds=(0,))
    rows = grid_runs(grid, records_of(grid))
    assert shared_loss_parts(rows) == ["box", "objectness", "class"]
    points = loss_curves(rows, ["objectness", "class"])["IoU"]
    assert [(point.x, point.mean) for point in points[:3]] == [
        (1, pytest.approx(2)),
        (2, pytest.approx(1.5)),
        (3, pytest.approx(1 + 1 / 3)),
    ]
    (run,) = rows["IoU"].runs.values()
    for entry in run["history"]:
        del entry["class"]
    assert shared_loss_parts(rows) == ["box", "objectness"]


def test_a_change_is_that_of_a_row_against_its_baseline_at_the_same_noise():
    rows = runs_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    lines = changes_along(rows, sweep, "map")
    assert sweep.name == "noise"
    assert list(lines) == ["α-IoU (α=3)"]
    assert [point.x for point in lines["α-IoU (α=3)"]] == [0, 0.1, 0.2, 0.3]
    own, base = (
        np.array(list(rows[f"{name}, η=0.2"].scores("map").values())) for name in ("α-IoU", "IoU")
    )
    point = lines["α-IoU (α=3)"][2]
    assert point.mean == pytest.approx(100 * (own.mean() / base.mean() - 1))
    assert point.low < point.mean < point.high
    assert not point.alone


def test_what_the_paper_prints_stands_beside_it():
    rows = runs_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    (points,) = published_along(rows, sweep, "map75_95").values()
    clean, *noisy = ((point.x, round(point.mean, 2)) for point in points)
    assert clean == (0, 6.19)  # of Table 1
    assert noisy == [(0.1, 10), (0.2, 20), (0.3, 25)]
    assert published_along(rows, sweep, "map") == {}


def test_one_seed_is_told_and_a_row_without_its_baseline_left_out():
    grid = noise_grid()
    records = records_of(grid)
    rows = grid_runs(grid, records)
    lonely = rows["IoU, η=0.1"]
    rows["IoU, η=0.1"] = replace(lonely, runs={})
    rows["IoU, η=0.2"] = replace(rows["IoU, η=0.2"], runs={1: rows["IoU, η=0.2"].runs[1]})
    (sweep,) = change_sweeps(runs_of(grid))
    (points,) = changes_along(rows, sweep, "map").values()
    assert [(point.x, point.alone) for point in points] == [(0.2, True), (0.3, False)]
    assert change_sweeps(rows) == [], "two values are no line"


def test_every_alpha_is_compared_with_one_at_the_same_noise():
    grid = alpha_grid()
    rows = tuple(
        replace(one, baseline=f"α = 1, noise {one.recipe.noise:g}")
        if one.recipe.loss.alpha != 1
        else one
        for one in grid.rows
    )
    found = grid_runs(replace(grid, rows=rows), records_of(grid))
    (sweep,) = change_sweeps(found)
    lines = changes_along(found, sweep, "map")
    assert list(lines) == ["IoU, clean", "IoU, noise 0.3"]
    for noise, points in zip(("0", "0.3"), lines.values(), strict=True):
        assert [point.x for point in points] == [0.5, 1, 2, 3, 5, 10]
        assert points[1] == Point(1.0, 0.0, 0.0, 0.0)
        own, base = (
            np.mean(list(found[f"α = {alpha}, noise {noise}"].scores("map").values()))
            for alpha in (3, 1)
        )
        assert points[3].mean == pytest.approx(100 * (own / base - 1))
    elsewhere = replace(rows[3], baseline="α = 1, noise 0.3")  # of another noise
    crossed = {**found, rows[3].label: replace(found[rows[3].label], row=elsewhere)}
    clean = changes_along(crossed, sweep, "map")["IoU, clean"]
    assert [point.x for point in clean] == [0.5, 1, 2, 5, 10]


def test_what_nothing_defines_is_no_point():
    rows = runs_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    base = rows["IoU, η=0.2"]
    undefined = {seed: {**run, "scores": {}} for seed, run in base.runs.items()}
    unprinted = replace(base.row, published={})
    rows["IoU, η=0.2"] = replace(base, row=unprinted, runs=undefined)
    for made in (changes_along, published_along):
        (points,) = made(rows, sweep, "map75_95").values()
        assert [point.x for point in points] == [0, 0.1, 0.3]


@pytest.mark.parametrize("made", [table1, alpha_grid, gain_grid])
def test_nothing_changes_along_what_baselines_do_not_share(made):
    grid = made()
    rows = grid_runs(grid, records_of(grid))
    base = next(iter(rows))
    compared = {
        label: replace(own, row=replace(own.row, baseline=base if label != base else None))
        for label, own in rows.items()
    }
    assert change_sweeps(compared) == []


def without_counts(records):
    """Records of earlier versions."""
    return {
        name: {**run, "scores": {k: v for k, v in run["scores"].items() if k not in FOUND}}
        for name, run in records.items()
    }


def test_lines_are_the_shares_of_the_records_and_changes_are_paired():
    rows = grid_runs(DISTRIBUTION, records_of(DISTRIBUTION))
    lines, changes = found_lines(rows), found_changes(rows)
    assert [point.x for point in lines["IoU"]] == pytest.approx(
        [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]
    )
    values = {label: list(own.scores("found75").values()) for label, own in rows.items()}
    means = {label: sum(own) / 3 for label, own in values.items()}
    assert lines["IoU"][5].mean == pytest.approx(100 * means["IoU"])
    assert list(changes) == ["α-IoU (α=3)"]
    expected = 100 * (means["α-IoU (α=3)"] / means["IoU"] - 1)
    assert changes["α-IoU (α=3)"][5].mean == pytest.approx(expected)


def test_records_that_do_not_count_are_none():
    records = without_counts(records_of(DISTRIBUTION))
    assert found_lines(grid_runs(table1(), records)) == {}
    assert all(not own.runs for own in grid_runs(DISTRIBUTION, records).values())
    (own, *_) = grid_runs(DISTRIBUTION, records).values()
    assert own.missing == (0, 1, 2)
    mixed = records | dict(list(records_of(replace(DISTRIBUTION, seeds=(1,))).items()))
    assert [list(own.runs) for own in grid_runs(DISTRIBUTION, mixed).values()] == [[1], [1]]


def test_more_rows_than_can_be_told_apart_are_not_drawn():
    rows = grid_runs(gain_grid(), records_of(gain_grid()))
    assert len(rows) > MOST_ROWS
    assert found_lines(rows) == {}
    assert found_lines(dict(list(rows.items())[:MOST_ROWS]))
