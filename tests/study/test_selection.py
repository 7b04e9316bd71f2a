"""Rows and epochs that are chosen on one split and reported on another."""

from dataclasses import replace

import pytest

from alphaiou.study.records import grid_runs
from alphaiou.study.selection import candidates_of, is_scored_where_selected, select
from alphaiou.study.statistics import fit_rows
from alphaiou.study.tables import selected_table, table_lines
from alphaiou.training.recipes import gain_factor
from tests.study.made import gain_grid, records_of, split_run


def gains(levels):
    """IoU and α-IoU at four gains: val and test scores by row and epoch."""
    rows = grid_runs(gain_grid(), records_of(gain_grid()))
    return {
        label: replace(row, runs={s: split_run(r, *levels(row, s)) for s, r in row.runs.items()})
        for label, row in rows.items()
    }


def by_kind(row):
    return row.row.recipe.loss


def test_a_gain_is_chosen_on_one_split_and_reported_on_another():
    val, test = {0.5: 0.3, 1: 0.5, 2: 0.4, 3: 0.2}, {0.5: 0.3, 1: 0.35, 2: 0.6, 3: 0.2}

    def levels(row, seed):
        gain = gain_factor(row.row.recipe)
        return [val[gain] + seed / 100] * 4, [test[gain]] * 4

    chosen = select(gains(levels).values(), "ap50", by=by_kind)
    assert [row.row.label for row in chosen.values()] == [
        "IoU, box gain ×1",
        "α-IoU (α=3), box gain ×1",
    ]
    for row in chosen.values():
        assert row.scores("ap50") == {0: 0.35, 1: 0.35}
        assert not any(map(is_scored_where_selected, row.runs.values()))
    same = select(gains(levels).values(), "ap50", by=by_kind, on="test")
    for row in same.values():
        assert gain_factor(row.row.recipe) == 2
        assert all(map(is_scored_where_selected, row.runs.values()))


def test_an_epoch_is_chosen_on_one_split_and_reported_on_another():
    def levels(row, _):
        best = 0.1 * gain_factor(row.row.recipe)
        return [0.2, 0.2 + best, 0.1, 0.1], [0.7, 0.3, 0.4, 0.5]

    (row,) = select(gains(levels).values(), "ap50", by=lambda _: None, epochs=True).values()
    assert gain_factor(row.row.recipe) == 3
    assert set(row.scores("ap50").values()) == {0.3}
    assert {run["selected"]["epoch"] for run in row.runs.values()} == {2}
    (last,) = select(gains(levels).values(), "ap50", by=lambda _: None).values()
    assert set(last.scores("ap50").values()) == {0.5}


def test_the_weights_of_a_record_may_be_selected_already():
    """Its scores are those of the epoch that was best on val; test was scored once, at the end."""

    def levels(row, _):
        return [0.2, 0.5, 0.3, 0.3], [0.0, 0.45, 0.0, 0.0]

    rows = gains(levels)
    for row in rows.values():
        for run in row.runs.values():
            run |= {"scores": run["history"][1]["test"], "selected": {"epoch": 2, "on": "val"}}
            for entry in run["history"]:
                del entry["test"]
    for epochs in (False, True):
        (row,) = select(rows.values(), "ap50", by=lambda _: None, epochs=epochs).values()
        assert set(row.scores("ap50").values()) == {0.45}


def test_weights_that_were_selected_on_test_stay_so():
    rows = gains(lambda *_: ([0.4] * 4, [0.5] * 4))
    for row in rows.values():
        for run in row.runs.values():
            run["selected"] = {"epoch": 4, "map": 0.5, "on": "test"}
    for row in select(rows.values(), "ap50", by=by_kind).values():
        assert all(map(is_scored_where_selected, row.runs.values()))


def test_rows_without_scores_on_both_splits_cannot_be_chosen():
    rows = grid_runs(gain_grid(), records_of(gain_grid()))
    assert select(rows.values(), "ap50", by=by_kind) == {}
    assert select((replace(row, runs={}) for row in rows.values()), "ap50", by=by_kind) == {}


def test_a_single_seed_is_not_chosen_beside_several():
    def levels(row, _):
        return [0.1 * gain_factor(row.row.recipe)] * 4, [0.5] * 4

    rows = gains(levels)
    best = rows["IoU, box gain ×3"]
    rows["IoU, box gain ×3"] = replace(best, runs={0: best.runs[0]})
    chosen = select(rows.values(), "ap50", by=by_kind)
    assert next(iter(chosen.values())).row.label == "IoU, box gain ×2"


def recorded(val, test):
    """A gain grid with a baseline, and its records with scores on both splits by gain."""
    grid = gain_grid()
    data = replace(grid.rows[0].recipe.data, val="val", test="test")
    rows = tuple(
        replace(row, recipe=replace(row.recipe, data=data, epochs=4), baseline=grid.rows[1].label)
        for row in grid.rows
    )
    grid = replace(grid, rows=rows)
    records = {}
    for name, run in records_of(grid).items():
        gain = round(run["recipe"]["detector"]["box_gain"] / 0.05, 6)
        seed, power = run["recipe"]["seed"] / 1000, run["recipe"]["loss"]["alpha"] / 100
        noise = int(name, 16) % 7 / 1000
        levels = (val[gain] + seed + power + noise, test[gain] + seed + power + noise)
        records[name] = split_run(run, *([level] * 4 for level in levels))
    return grid, records


VAL, TEST = {0.5: 0.3, 1: 0.4, 2: 0.5, 3: 0.2}, {0.5: 0.3, 1: 0.6, 2: 0.4, 3: 0.2}


def test_a_table_holds_the_chosen_rows_against_the_chosen_baseline():
    grid, records = recorded(VAL, TEST)
    table = selected_table(grid, records, "ap50")
    assert [row.label for row in table.rows] == ["IoU, box gain ×2", "α-IoU (α=3), box gain ×2"]
    plain, powered = table.rows
    assert plain.mean("ap50") == pytest.approx(0.41, abs=0.01)
    assert (plain.baseline, powered.baseline) == (None, plain.label)
    change = powered.changes["ap50"]
    assert change.difference == pytest.approx(0.02, abs=0.005)
    assert "best of 4 rows of its loss by AP50 on val; the scores are on test" in table.notes[0]
    assert not any("favours" in note for note in table.notes)
    assert sum(line.kind == "ours" for line in table_lines(table)) == 2


def test_the_variance_of_chosen_rows_is_that_of_all_rows():
    grid, records = recorded(VAL, TEST)
    rows = grid_runs(grid, records)
    powered = selected_table(grid, records, "ap50").rows[1]
    all_rows = fit_rows(rows, "ap50").change(powered.label, powered.baseline)
    assert powered.changes["ap50"].interval == all_rows.interval
    two = {label: rows[label] for label in (powered.label, powered.baseline)}
    alone = fit_rows(two, "ap50").change(powered.label, powered.baseline)
    assert alone.interval != all_rows.interval


def test_per_kind_the_power_is_chosen_too():
    table = selected_table(*recorded(VAL, TEST), "ap50", "kind")
    assert [row.label for row in table.rows] == ["α-IoU (α=3), box gain ×2"]
    assert table.rows[0].baseline is None
    assert "best of 8 rows of its kind" in table.notes[0]


def test_rows_that_differ_in_more_than_the_gain_are_not_candidates_of_one_choice():
    grid, _ = recorded(VAL, TEST)
    noisy = tuple(
        replace(row, label=f"{row.label}, η=0.3", recipe=replace(row.recipe, noise=0.3))
        for row in grid.rows
    )
    groups = candidates_of(replace(grid, rows=(*grid.rows, *noisy)), {}, "kind")
    assert [len(group) for group in groups] == [8, 8]


def test_without_scores_on_val_there_is_no_table():
    assert selected_table(gain_grid(), records_of(gain_grid()), "ap50") is None
