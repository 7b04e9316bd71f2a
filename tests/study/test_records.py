"""Records on disk, and which of them belong to the rows of a grid."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from alphaiou.losses.spec import LossSpec
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.records import (
    RecordError,
    by_name,
    comparable_rows,
    find_record,
    grid_runs,
    load_records,
    record_paths,
    with_found_seeds,
)
from alphaiou.study.runner import is_scored, planned_runs
from alphaiou.study.series import FOUND
from alphaiou.training.recipe import recipe_from
from alphaiou.training.recipes import voc320
from tests.study.made import (
    RECIPE,
    gain_grid,
    made_record,
    records_of,
    table1,
    write_record,
    write_runs,
)

RESULTS = Path(__file__).parents[2] / "studies/voc320/records"


def test_records_are_found_as_committed_and_as_runs_leave_them(tmp_path):
    records = records_of(table1())
    first, *rest = records
    write_runs({name: records[name] for name in rest}, tmp_path / "runs")
    (tmp_path / "results/deep").mkdir(parents=True)
    write_record(records[first], tmp_path / f"results/deep/{first}.json")
    (tmp_path / "results/seeds.json").write_text("not a run")
    found = load_records([tmp_path / "results", tmp_path / "runs"])
    assert [record | {"digest": ""} for record in found.values()] == [
        records[name] | {"digest": ""} for name in sorted(records)
    ]
    assert list(found) == sorted(found)


def test_the_first_folder_is_preferred(tmp_path):
    (name, record), *_ = records_of(table1()).items()
    write_runs({name: record}, tmp_path / "a")
    write_runs({name: record | {"device": "other"}}, tmp_path / "b")
    assert load_records([tmp_path / "b", tmp_path / "a"])[name]["device"] == "other"
    assert record_paths([tmp_path / "a", tmp_path / "b"])[name].is_relative_to(tmp_path / "a")


@pytest.mark.parametrize("text", ["{", '{"record": "bench"}', "[]"])
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "0123456789ab.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=re.escape(str(path))):
        load_records([tmp_path])


def test_a_recipe_that_cannot_be_read_is_named():
    grid = table1()
    records = records_of(grid)
    name = next(iter(records))
    records[name]["recipe"]["noise"] = 7.0
    with pytest.raises(RecordError, match=f"{name}.*noise must be from 0 to below 1"):
        grid_runs(grid, records)


def test_data_sets_that_are_linked_are_not_searched(tmp_path):
    write_runs(records_of(table1(seeds=(0,))), tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/data").symlink_to(tmp_path / "elsewhere")
    assert record_paths([tmp_path / "runs"]) == {}


def test_a_folder_that_is_not_there_has_no_records(tmp_path):
    assert load_records([tmp_path / "nowhere"]) == {}


def test_a_record_answers_a_recipe_that_leaves_things_open():
    settled = replace(RECIPE, precision="bf16")
    record = made_record(settled, 0.5)
    records = {record["name"]: record}
    far = replace(settled.data, path="/somewhere/else/shapes-plain-96", val="auto")
    assert find_record(replace(settled, precision="auto", data=far), records) is record
    assert find_record(replace(settled, precision="fp32"), records) is None
    assert find_record(replace(settled, seed=1), records) is None
    other = replace(settled.data, path="/somewhere/else")
    assert find_record(replace(settled, data=other), records) is None


def test_the_committed_runs_are_found_without_the_data():
    recipe = replace(voc320(), loss=LossSpec("iou", 3.0), evaluate_every=20)
    recipe = replace(recipe, data=replace(recipe.data, path="elsewhere/voc320"))
    assert find_record(recipe, load_records([RESULTS]))["name"] == "7f7b59ee471f"


def test_seeds_are_those_that_were_run():
    records = records_of(table1(seeds=(3, 5)))
    assert with_found_seeds(table1(seeds=(0,)), records).seeds == (3, 5)
    assert with_found_seeds(table1(seeds=(0,)), {}).seeds == (0,)
    assert with_found_seeds(gain_grid(seeds=(0,)), records).seeds == (3, 5)  # it shares runs


def test_repeated_runs_count_and_copies_do_not(tmp_path):
    grid = table1((0, 1))
    records = records_of(grid)
    write_runs(records, tmp_path / "first")
    again = {name: made_record(recipe_from(run["recipe"]), 0.3) for name, run in records.items()}
    write_runs(again, tmp_path / "again")
    write_runs(again, tmp_path / "copied")
    found = load_records([tmp_path / part for part in ("first", "again", "copied")])
    assert list(found) == sorted([*records, *(f"{name}#2" for name in records)])
    for row in grid_runs(grid, found).values():
        assert [seed for seed, _ in row.every()] == [0, 0, 1, 1]
        for seed, run in row.runs.items():
            first = records[run["name"]]["scores"]["ap75"]
            repeated = again[run["name"]]["scores"]["ap75"]
            assert run["scores"]["ap75"] == first
            assert row.scores("ap75")[seed] == pytest.approx((first + repeated) / 2)
    record_paths_found = record_paths([tmp_path / "first", tmp_path / "again"])
    assert set(record_paths_found) == set(records), "one path per run"


def test_comparable_runs_differ_in_loss_gains_rate_and_seed_alone():
    grid = table1((0, 1))
    usual = grid.rows[0].recipe
    detector = replace(usual.detector, class_gain=9.0, objectness="similarity", box_gain=0.2)
    detector = replace(detector, objectness_alpha=2.0)
    faster = replace(usual.optimisation, lr=2 * usual.optimisation.lr)
    comparable = [
        replace(usual, loss=LossSpec("giou", 2.0)),
        replace(usual, loss=LossSpec("giou", 2.0), seed=3),
        replace(usual, detector=detector),
        replace(usual, optimisation=faster),
        replace(usual, seed=5),
        replace(usual, seed=6, evaluate_every=7),
    ]
    others = [
        replace(usual, epochs=usual.epochs + 1),
        replace(usual, noise=0.1),
        replace(usual, subset=0.25),
        replace(usual, image_size=usual.image_size * 2),
        replace(usual, rule="yolov5"),
        replace(usual, batch_size=usual.batch_size * 2),
        replace(usual, detector=replace(usual.detector, nms_threshold=0.5)),
    ]
    elsewhere = made_record(replace(usual, loss=LossSpec("diou")), 0.3) | {"scored_on": "train"}
    records = records_of(grid)
    rows = grid_runs(grid, records)
    more = [made_record(recipe, 0.4) for recipe in (*comparable, *others)]
    every = by_name([*records.values(), *more, elsewhere])
    found = comparable_rows(rows, every)
    assert sum(len(own.every()) for own in found.values()) == 4 + len(comparable)
    assert sorted(found["IoU"].runs) == [0, 1, 5, 6], "further seeds of a row are its own"
    assert sorted(found["α-IoU (α=3)"].runs) == [0, 1]
    assert sorted(len(own.runs) for own in found.values()) == [1, 1, 2, 2, 4]


def test_the_committed_comparable_runs_are_64_rows():
    """As an independent script counted them; repeats are in the folder ``earlier``."""
    records = load_records([RESULTS])
    grid = paper_grids(quick_scale(Path("voc320")))["table1"]
    rows = grid_runs(with_found_seeds(grid, records), records)
    found = comparable_rows(rows, records)
    assert (len(found), sum(len(own.every()) for own in found.values())) == (64, 115)


def test_records_without_the_scores_of_a_grid_do_not_count(tmp_path):
    """As those of earlier versions, which did not count found objects."""
    grid = replace(table1(seeds=(0,)), found_shares=tuple(FOUND))
    new = records_of(grid)
    old = {
        name: {**run, "scores": {k: v for k, v in run["scores"].items() if k not in FOUND}}
        for name, run in new.items()
    }
    old_paths, new_paths = (
        record_paths([write_runs(records, tmp_path / name)])
        for name, records in (("old", old), ("new", new))
    )
    assert all(row.missing == (0,) for row in grid_runs(grid, old).values())
    assert all(is_scored(run, new_paths) for run in planned_runs([grid]))
    plain = table1(seeds=(0,))
    assert all(is_scored(run, old_paths) for run in planned_runs([plain]))
    for grids in ([grid], [plain, grid], [grid, plain]):
        assert not any(is_scored(run, old_paths) for run in planned_runs(grids))
    assert not any(is_scored(run, {}) for run in planned_runs([grid]))
