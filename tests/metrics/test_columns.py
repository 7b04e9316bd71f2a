"""The registry of scores against the committed records, which were written without it."""

import math
from pathlib import Path

import pytest

from alphaiou.metrics.columns import COLUMNS, column_title, optional_columns, read_score
from alphaiou.study.records import load_records

NAMES = [column.name for column in COLUMNS]


@pytest.fixture(scope="module")
def scores():
    folder = Path(__file__).parents[2] / "studies" / "voc320" / "records"
    return [record["scores"] for record in load_records([folder]).values()]


def test_records_hold_the_columns_in_their_order(scores):
    for one in scores:
        assert list(one) == [name for name in NAMES if name in one]


def test_only_optional_columns_are_absent_from_older_records(scores):
    newest = max(scores, key=len)
    absent = {name for one in scores for name in newest.keys() - one.keys()}
    assert absent == optional_columns(newest)


def test_absent_and_undefined_scores_are_not_a_number(scores):
    oldest = min(scores, key=len)
    assert read_score(oldest, "map75_95") == oldest["map75_95"]
    assert math.isnan(read_score(oldest, "found50"))
    assert math.isnan(read_score({"map_small": None}, "map_small"))


def test_the_title_of_a_score_that_is_not_ours_is_its_name():
    assert [column_title(name) for name in ("f1", "ap", "arrow")] == ["f1", "ap", "arrow"]
