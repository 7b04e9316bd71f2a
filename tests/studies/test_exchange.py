"""The trade-off of the candidates between AP50 and higher IoU, as a figure."""

from itertools import pairwise

import numpy as np
import pytest

from alphaiou.study.records import grid_runs
from alphaiou.training.recipe import recipe_hash
from studies.voc320.exchange import COLOURS, exchange_figure, exchange_points
from studies.voc320.search import exchanges
from tests.studies.made import GRID, PLAIN, records
from tests.study.made import made_record

EXCHANGED = PLAIN | {
    "α-DIoU (α=3), box gain ×2": 0.42,
    "α-IoU (α 1→3), box gain ×2": 0.41,
    "α-IoU (α 3→1), box gain ×1": 0.39,
    "α-IoU (α=10), box gain ×0.5": 0.3,
}


def exchanging(levels):
    """Runs of which the better are the worse at AP50; but the one whose α falls is at both."""

    def exchange(label, _, scores):
        scores["ap50"] = 0.9 - levels[label] if "3→1" not in label else 0.4

    return records(levels, change=exchange)


def drawn_marks(axes):
    """The places of the marks of each group, by their colours."""
    lines = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
    return {
        group: sorted(
            (*line.get_xdata(), *line.get_ydata())
            for line in lines
            if line.get_markeredgecolor() == colour
        )
        for group, colour in COLOURS.items()
    }


def test_exchanges_are_paired_by_seed_and_need_a_candidate():
    def shifted(label, seed, scores):
        scores["ap50"] += 0.1 * seed  # for all alike: it cancels

    found = exchanges(grid_runs(GRID, records(EXCHANGED, change=shifted)))
    assert list(found) == [row.label for row in GRID.rows if row.label in EXCHANGED]
    assert found["α-DIoU (α=3), box gain ×2"]["ap50"].difference == pytest.approx(0.02)
    assert found["IoU, box gain ×2"]["ap50"].difference == 0
    assert exchanges(grid_runs(GRID, records(PLAIN))) == {}
    assert exchanges(grid_runs(GRID, {})) == {}


def test_the_picture_has_a_mark_for_every_choice_that_is_not_far_below():
    figure = exchange_figure(grid_runs(GRID, exchanging(EXCHANGED)))
    for axes in figure.axes:
        marks = drawn_marks(axes)
        assert marks["rising α"] == [pytest.approx((-2.0, 2.5))]
        assert marks["constant α"] == [pytest.approx((-4.0, 5.0))], "α = 10 is 25 % below"
        assert marks["falling α"] == [pytest.approx((-20.0, -2.5))]
        assert len(marks["IoU"]) == 3
        assert {text.get_text() for text in axes.texts} == {
            "IoU ×1",
            "IoU ×2",
            "IoU ×3",
            "α-IoU (1→3) ×2",
            "α-DIoU (3) ×2",
        }, "what another one beats at both has no name, but for plain IoU"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["IoU", "constant α", "rising α", "falling α"]


def test_names_are_short_and_iou_with_other_gains_has_one_if_it_has_several_seeds():
    control, alone = (
        "IoU, box gain ×4, class gain ×2, objectness gain ×4",
        "IoU, box gain ×2, class gain ×2",
    )
    better = "α-DIoU (α 1→5), box gain ×1.5, objectness gain ×2"
    best = "α-DIoU (α 1→5), box gain ×1.5, learning rate ×2"
    levels = EXCHANGED | {control: 0.41, better: 0.43, best: 0.47}

    def change(label, _, scores):
        scores["ap50"] = {control: 0.51, better: 0.52, best: 0.51}.get(label, 0.9 - levels[label])

    found = records(levels, change=change)
    _, recipe = next(one for one in GRID.recipes() if one[0].label == alone)
    found[recipe_hash(recipe)] = made_record(recipe, 0.4)
    for axes in exchange_figure(grid_runs(GRID, found)).axes:
        names = {text.get_text() for text in axes.texts}
        assert {"IoU ×4/2/4", "α-DIoU (1→5) ×1.5/1/2", "α-DIoU (1→5) ×1.5 lr ×2"} <= names
        assert "IoU ×2/2/1" not in names, "it has one seed, and others beat it"


def test_names_cover_neither_marks_nor_one_another():
    crowd = {row.label: 0.4 + 0.0007 * number for number, row in enumerate(GRID.rows)}
    figure = exchange_figure(grid_runs(GRID, exchanging(PLAIN | crowd)))
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) > 3
        assert all(one.count_overlaps(boxes) == 1 for one in boxes), "itself"
        places = axes.transData.transform(
            [place for own in drawn_marks(axes).values() for place in own]
        )
        assert not any(box.contains(*place) for box in boxes for place in places)


def test_names_keep_clear_of_the_line():
    def lower(label, _, scores):
        scores["ap50"] = {"IoU, box gain ×3": 0.38, "IoU, box gain ×1": 0.41}.get(label, 0.4)

    figure = exchange_figure(grid_runs(GRID, records(EXCHANGED, change=lower)))
    figure.draw_without_rendering()
    for axes in figure.axes:
        (line,) = (line for line in axes.lines if len(line.get_xdata()) == 3)
        boxes = [text.get_window_extent() for text in axes.texts]
        assert {"IoU ×1", "IoU ×2", "IoU ×3"} <= {text.get_text() for text in axes.texts}
        for start, end in pairwise(axes.transData.transform(line.get_xydata())):
            on_it = np.linspace(start, end, 500)
            assert not any(box.contains(*place) for box in boxes for place in on_it)


def test_marks_of_one_seed_are_hollow():
    found = records(PLAIN | {"α-IoU (α 1→3), box gain ×2": 0.41})
    _, recipe = next(one for one in GRID.recipes() if one[0].label == "α-DIoU (α=3), box gain ×2")
    found[recipe_hash(recipe)] = made_record(recipe, 0.42)
    (axes, _) = exchange_figure(grid_runs(GRID, found)).axes
    inside = {
        line.get_markeredgecolor(): line.get_markerfacecolor()
        for line in axes.lines
        if line.get_marker() == "o" and len(line.get_xdata())
    }
    assert inside[COLOURS["rising α"]] == COLOURS["rising α"]
    assert inside[COLOURS["constant α"]] == "white"
    assert inside[COLOURS["IoU"]] == COLOURS["IoU"], "the one that all are compared with too"


def test_points_are_grouped_and_joined_by_gain():
    moving = {"IoU, box gain ×1→3": 0.41, "IoU, box gain ×2, class gain ×2": 0.4}
    points = exchange_points(grid_runs(GRID, exchanging(EXCHANGED | moving)), "map75_95")
    assert [point.name for point in points["IoU"]] == [
        "IoU, box gain ×1",
        "IoU, box gain ×2",
        "IoU, box gain ×3",
    ]
    assert [point.name for point in points["IoU, other gains or rate"]] == [
        "IoU, box gain ×1→3",
        "IoU, box gain ×2, class gain ×2",
    ]
    (rising,) = points["rising α"]
    assert (rising.x, rising.mean) == pytest.approx((-2.0, 2.5))
    assert (rising.low, rising.high) == pytest.approx((2.5, 2.5)), "no residual is left"
    assert exchange_points(grid_runs(GRID, records(PLAIN)), "map75_95") == {}
