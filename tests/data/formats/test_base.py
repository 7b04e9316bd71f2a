from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alphaiou.data.formats.base import BORDER_TOLERANCE_PX, check_boxes
from alphaiou.data.problems import left_out

WIDTH, HEIGHT = 100, 50


def check(boxes, labels=None, images=None, sizes=((WIDTH, HEIGHT),)):
    boxes = np.array(boxes, dtype=np.float64).reshape(-1, 4)
    count = len(boxes)
    return check_boxes(
        boxes,
        np.zeros(count, np.int32) if labels is None else np.array(labels, np.int32),
        np.zeros(count, np.int64) if images is None else np.array(images, np.int64),
        np.array(sizes, dtype=np.int32),
        place=lambda row: (f"file{row}", f"object {row}"),
        class_name=lambda row: f"class of {row}",
    )


@pytest.mark.parametrize(
    ("box", "kind", "kept"),
    [
        ([0, 0, 100, 50], None, True),
        ([-0.05, 0, 100.05, 50], None, True),
        ([-0.06, 0, 100, 50], "box-past-border", True),
        ([0, 0, 100, 50.06], "box-past-border", True),
        ([99.9, 49.9, 130, 70], "box-past-border", True),
        ([100, 0, 130, 20], "box-outside", False),
        ([-20, 0, 0, 20], "box-outside", False),
        ([0, 50, 20, 60], "box-outside", False),
        ([0, -9, 20, -0.0], "box-outside", False),
        ([5, 5, 5, 9], "box-flat", False),
        ([5, 9, 7, 9], "box-flat", False),
        ([9, 5, 7, 9], "box-flat", False),
        ([float("nan"), 5, 7, 9], "box-nan", False),
        ([0, 5, float("inf"), 9], "box-nan", False),
        ([0, 5, 1e308, 9], "box-nan", False),
        ([0, 5, 2.0**24 + 2, 9], "box-nan", False),
    ],
)
def test_one_box(box, kind, kept):
    mask, problems = check([box])
    assert mask.tolist() == [kept]
    assert [p.kind for p in problems] == ([kind] if kind else [])
    for problem in problems:
        assert (problem.file, problem.where) == ("file0", "object 0")
        assert problem.effect == ("kept" if kept else "box left out")
        assert problem.detail
        assert problem.remedy


def test_an_unknown_class_is_said_before_what_else_is_wrong():
    mask, problems = check([[float("nan")] * 4], labels=[-1])
    assert not mask.any()
    assert [p.kind for p in problems] == ["class-unknown"]
    assert "class of 0" in problems[0].detail


def test_repetitions_are_kept_and_said_from_the_second_on():
    box, other = [1, 2, 3, 4], [1, 2, 3, 5]
    mask, problems = check(
        [box, other, box, box, box], labels=[0, 0, 0, 1, 0], images=[0, 0, 0, 0, 1],
        sizes=[(WIDTH, HEIGHT)] * 2,
    )  # fmt: skip
    assert mask.all()
    assert [(p.kind, p.where) for p in problems] == [("box-duplicate", "object 2")]


def test_minus_zero_is_zero():
    _, problems = check([[0.0, 0, 3, 4], [-0.0, 0, 3, 4]])
    assert [p.kind for p in problems] == ["box-duplicate"]


def test_left_out_boxes_are_no_repetitions_and_problems_come_by_row():
    _, problems = check([[5, 5, 5, 5], [5, 5, 5, 5], [-1, 0, 5, 5], [-1, 0, 5, 5]])
    assert [(p.where, p.kind, p.count) for p in problems] == [
        ("object 0", "box-flat", 2),
        ("object 2", "box-past-border", 2),
        ("object 3", "box-duplicate", 1),
    ]


@pytest.mark.parametrize(
    ("box", "label", "kind", "count"),
    [
        ([1, 1, 9, 9], 0, "box-duplicate", 99_999),
        ([1, 1, 1, 9], 0, "box-flat", 100_000),
        ([np.nan, 1, 1, 9], 0, "box-nan", 100_000),
        ([1, 1, 9, 9], -1, "class-unknown", 100_000),
    ],
)
def test_identical_boxes_are_one_problem_with_their_number(box, label, kind, count):
    _, problems = check([box] * 100_000, labels=[label] * 100_000)
    assert [(p.kind, p.count) for p in problems] == [(kind, count)]
    assert "100,000" in problems[0].detail
    if count == 100_000:
        assert left_out(problems) == f"100000 boxes left out (100000 {kind})"


def test_boxes_of_different_unknown_classes_are_not_identical():
    _, problems = check([[1, 1, 9, 9]] * 3, labels=[-1, -2, -1])
    assert [(p.where, p.count) for p in problems] == [("object 0", 2), ("object 1", 1)]


def test_no_boxes():
    mask, problems = check([])
    assert mask.shape == (0,)
    assert problems == []


def scalar_kinds(boxes, labels, images):
    """The same rules, one box at a time."""
    seen, kinds = set(), []
    for (x1, y1, x2, y2), label, image in zip(boxes, labels, images, strict=True):
        values = (x1, y1, x2, y2)
        if label < 0:
            kinds.append(["class-unknown"])
        elif not all(abs(v) <= 2**24 for v in values):
            kinds.append(["box-nan"])
        elif not (x2 > x1 and y2 > y1):
            kinds.append(["box-flat"])
        elif x2 <= 0 or y2 <= 0 or x1 >= WIDTH or y1 >= HEIGHT:
            kinds.append(["box-outside"])
        else:
            t = BORDER_TOLERANCE_PX
            past = min(x1, y1) < -t or x2 > WIDTH + t or y2 > HEIGHT + t
            kinds.append(
                ["box-past-border"] * past + ["box-duplicate"] * ((*values, label, image) in seen)
            )
            seen.add((*values, label, image))
    return kinds


coordinate = st.sampled_from(
    [-3.0, -0.0, 0.0, 10.0, 49.0, 50.04, 50.06, 99.0, 101.0, np.nan, -np.inf, 1e300]
)
row = st.tuples(*[coordinate] * 4, st.integers(-1, 2), st.integers(0, 2))


@given(st.lists(row, max_size=12))
def test_agrees_with_the_rules_written_one_box_at_a_time(rows):
    boxes, labels, images = [r[:4] for r in rows], [r[4] for r in rows], [r[5] for r in rows]
    mask, problems = check(boxes, labels, images, [(WIDTH, HEIGHT)] * 3)
    expected = scalar_kinds(boxes, labels, images)
    found = Counter()
    for problem in problems:
        image = images[int(problem.file.removeprefix("file"))]
        found[image, problem.kind] += problem.count
    pairs = zip(images, expected, strict=True)
    assert found == Counter((image, kind) for image, kinds in pairs for kind in kinds)
    kept = {"box-past-border", "box-duplicate"}
    assert mask.tolist() == [kept.issuperset(kinds) for kinds in expected]
