"""Records: written whole, read back, refused with a remedy when they are damaged."""

import json
import math

import pytest
import torch

from alphaiou.inference.weights import CheckpointError
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import (
    RECORD,
    finished_record,
    peak_memory,
    run_record,
    throughput,
    write_record,
)


def entry(seconds, images):
    return {"seconds": seconds, "images_per_second": images / seconds}


def test_the_first_epoch_does_not_count_for_the_pace():
    assert throughput([entry(10.0, 100), entry(1.0, 100), entry(3.0, 100)]) == pytest.approx(50.0)
    assert throughput([entry(10.0, 100)]) == pytest.approx(10.0)


def test_what_is_not_defined_is_null(tmp_path):
    record = run_record(
        Recipe(),
        [entry(1.0, 10) | {"val": {"map": math.nan}}],
        scores={},
        scored_on="",
        best=None,
        notes=["a note"],
        device=torch.device("cpu"),
    )
    path = write_record(record, tmp_path / "run")
    written = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert written["history"][0]["val"]["map"] is None
    assert written["name"] == recipe_hash(Recipe())
    assert finished_record(tmp_path / "run") == written
    assert [one.name for one in (tmp_path / "run").iterdir()] == [RECORD]


def test_a_run_that_is_not_finished_has_none(tmp_path):
    assert finished_record(tmp_path) is None
    assert finished_record(tmp_path / "absent") is None


@pytest.mark.parametrize("content", ["", '{"record": "run"', "[]", '{"record": "bench"}', "\x00"])
def test_a_damaged_record_is_named_with_the_remedy(tmp_path, content):
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(CheckpointError, match=rf"{RECORD} is damaged.*rm .*{RECORD}"):
        finished_record(tmp_path)


def test_a_record_that_is_no_text(tmp_path):
    (tmp_path / RECORD).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="is damaged"):
        finished_record(tmp_path)


@pytest.mark.slow
def test_the_memory_of_this_process_is_counted():
    before = peak_memory(torch.device("cpu"))
    kept = torch.ones(before // 4 + 50_000_000)  # 200 MB more than ever before
    assert peak_memory(torch.device("cpu")) - before > 150_000_000
    assert kept[-1] == 1
