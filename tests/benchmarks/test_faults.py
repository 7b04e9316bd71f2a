import json

import pytest

from benchmarks import faults
from benchmarks.faults import FAULTS, Tally, difference, main
from benchmarks.record import load_record
from benchmarks.tiny import tiny_recipe, train, write_shapes
from tools.reliability_tables import faults_answer, faults_cost, faults_table, suite_line


@pytest.mark.slow
def test_quick_faults_really_run(capsys, tmp_path):
    path = tmp_path / "record.json"
    assert main(["--quick", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    record = load_record(path)
    assert record["complete"] is True
    assert len({row["fault"] for row in record["rows"]}) == len(FAULTS)
    for row in record["rows"]:
        assert (row["wrong"], row["examples"]) == (0, []), row
        assert row["tried"] > 0, row
    assert len(faults_table(record).splitlines()) == 2 + len(record["rows"])
    assert "nothing was lost" in faults_answer(record)
    assert "left 0 processes behind" in faults_cost(record)


@pytest.mark.slow
def test_a_difference_is_found(tmp_path):
    path, runs = write_shapes(tmp_path / "data"), []
    for number, seed in enumerate((0, 0, 1)):
        record, _ = train(tiny_recipe(path, epochs=1, seed=seed), tmp_path / str(number))
        runs.append(tmp_path / str(number) / record["name"])
    assert difference(runs[0], runs[1]) is None
    assert "differs" in difference(runs[0], runs[2])


@pytest.mark.slow
def test_what_is_accepted_is_counted(tmp_path, monkeypatch):
    """A reader that compares no digest accepts many edited records."""
    monkeypatch.setattr(faults, "read_record", lambda path: json.loads(path.read_text()))
    path = tmp_path / "record.json"
    main(["--quick", "--faults", "records", "--out", str(path)])
    record = load_record(path)
    wrong = {row["how"]: row["wrong"] for row in record["rows"]}
    assert wrong["each field edited"] > 100
    assert "**" in faults_answer(record)


def test_a_tally_keeps_a_few_examples():
    tally = Tally("fault", "how", "expected")
    for problem in (None, "a", "b", "c", "d"):
        tally.add(problem)
    row = tally.row()
    assert (row["tried"], row["wrong"], row["examples"]) == (5, 4, ["a", "b", "c"])


def test_the_size_of_the_suite_is_a_sentence():
    record = {"suite": {"tests": 4321, "files": 87}, "date": "2026-01-02T03:04:05"}
    assert suite_line(record) == "The suite has 4,321 tests in 87 files (2026-01-02)."
