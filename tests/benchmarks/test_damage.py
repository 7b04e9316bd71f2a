import json

import pytest

from alphaiou.data.problems import DataError
from benchmarks import damage
from benchmarks.damage import OUTCOMES, SOUND, Damage, attempt, damaged_set, main


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


@pytest.mark.slow
def test_quick_damage_really_runs(capsys, tmp_path):
    path = tmp_path / "record.json"
    assert main(["--quick", "--out", str(path)]) == 0
    assert str(path) in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert record["complete"] is True
    assert list(record["counts"]) == list(SOUND)
    for layout, counts in record["counts"].items():
        rows = [row for row in record["rows"] if row["layout"] == layout]
        assert counts["tried"] == len(rows) == sum(counts[outcome] for outcome in OUTCOMES)
        assert counts["read"] > 0
        assert counts["refused"] > 0
        assert counts["crashed"] == counts["unclear"] == 0
    assert all(row["message"] for row in record["rows"] if row["outcome"] == "refused")


@pytest.mark.parametrize("layout", SOUND)
def test_the_sound_sets_are_sound(tmp_path, layout):
    damaged_set(tmp_path, Damage(layout, "", "none", lambda path: path))
    row = attempt(tmp_path)
    assert (row["outcome"], row["findings"], row["message"]) == ("read", {}, "")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("no file"), "crashed"),
        (RecursionError("deep"), "crashed"),
        (DataError("it does not name a file"), "unclear"),
    ],
)
def test_what_goes_wrong_is_counted(tmp_path, monkeypatch, error, outcome):
    def fail(*_):
        raise error

    damaged_set(tmp_path, Damage("voc", "", "none", lambda path: path))
    monkeypatch.setattr(damage, "load_dataset", fail)
    assert attempt(tmp_path)["outcome"] == outcome
