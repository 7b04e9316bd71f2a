"""Records on disk, and which of them belong to the rows of a grid."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alphaiou.losses.spec import LossSpec
from alphaiou.study.records import (
    RecordError,
    find_record,
    grid_runs,
    load_records,
    record_paths,
    with_found_seeds,
)
from alphaiou.study.runner import is_scored, planned_runs
from alphaiou.study.series import FOUND
from alphaiou.training.recipes import voc320
from tests.study.made import RECIPE, gain_grid, made_record, records_of, table1, write_runs

RESULTS = Path(__file__).parents[2] / "studies/voc320/records"


def test_records_are_found_as_committed_and_as_runs_leave_them(tmp_path):
    records = records_of(table1())
    first, *rest = records
    write_runs({name: records[name] for name in rest}, tmp_path / "runs")
    (tmp_path / "results/deep").mkdir(parents=True)
    (tmp_path / f"results/deep/{first}.json").write_text(json.dumps(records[first]))
    (tmp_path / "results/seeds.json").write_text("not a run")
    found = load_records([tmp_path / "results", tmp_path / "runs"])
    assert found == records
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
    assert find_record(recipe, load_records([RESULTS]))["name"] == "14b070d0de5c"


def test_seeds_are_those_that_were_run():
    records = records_of(table1(seeds=(3, 5)))
    assert with_found_seeds(table1(seeds=(0,)), records).seeds == (3, 5)
    assert with_found_seeds(table1(seeds=(0,)), {}).seeds == (0,)
    assert with_found_seeds(gain_grid(seeds=(0,)), records).seeds == (3, 5)  # it shares runs


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
