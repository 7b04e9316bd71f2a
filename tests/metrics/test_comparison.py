"""The rows of the paper's tables from its scores."""

import math

import pytest

from alphaiou.metrics import comparison_rows, relative_improvement

COLUMNS = ("ap50", "ap75", "ap85", "ap95", "map", "map75_95")
# The paper's Table 1, YOLOv5s on PASCAL VOC: IoU, α-IoU and the improvement that it prints.
PUBLISHED = (
    (78.81, 58.04, 35.07, 2.34, 52.74, 32.45),
    (78.62, 58.78, 38.16, 3.64, 53.61, 34.46),
    (-0.24, 1.27, 8.81, 55.56, 1.65, 6.21),
)


def test_the_paper_s_row():
    baseline, better, printed = (dict(zip(COLUMNS, row, strict=True)) for row in PUBLISHED)
    rows = comparison_rows({"IoU": baseline, "α-IoU": better})
    assert [row.name for row in rows] == ["IoU", "α-IoU", "rela. improv."]
    assert [row.improvement for row in rows] == [False, False, True]
    for column in COLUMNS:  # its scores have two decimals, so its percentages are a little off
        assert 100 * rows[2].values[column] == pytest.approx(printed[column], abs=0.025), column


def test_all_are_compared_with_the_first():
    rows = comparison_rows({"a": {"map": 0.5}, "b": {"map": 0.4}, "c": {"map": 1.0}}, ("map",))
    assert [row.values["map"] for row in rows] == pytest.approx([0.5, 0.4, -0.2, 1.0, 1.0])
    assert len(comparison_rows({"a": {"map": 0.5}}, ("map",))) == 1


def test_a_baseline_of_nothing():
    assert math.isnan(relative_improvement(0.1, 0.0))
    assert math.isnan(relative_improvement(0.1, 0.0049))
    assert relative_improvement(0.01, 0.005) == 1.0
    assert math.isnan(relative_improvement(0.1, float("nan")))
    assert relative_improvement(0.0, 0.1) == -1.0
