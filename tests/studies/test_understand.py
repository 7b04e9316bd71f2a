"""The study of error types: its record follows from the runs in it."""

import json
from pathlib import Path

import pytest

from studies.understand import study

RECORD = Path(study.__file__).parent / "errors.json"


def test_the_changes_follow_from_the_runs():
    record = json.loads(RECORD.read_text())
    runs = study._measured(RECORD)
    assert len(runs) == len(record["runs"])
    rows = json.loads(json.dumps(study._changes(runs)))
    assert [set(row) for row in rows] == [set(row) for row in record["rows"]]
    for row, kept in zip(rows, record["rows"], strict=True):
        assert row == {name: pytest.approx(value, abs=1e-9) for name, value in kept.items()}


def test_without_a_record_nothing_was_measured(tmp_path):
    assert study._measured(tmp_path / "errors.json") == {}
