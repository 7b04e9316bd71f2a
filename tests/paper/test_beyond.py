"""Whether anything beats IoU at its best gain everywhere, on records that are made up."""

from pathlib import Path

import pytest

from alphaiou.experiments.exchange_plot import GROUPS, exchange_figure
from alphaiou.experiments.paper import paper_grids
from alphaiou.experiments.paper_beyond import THRESHOLDS, beyond_sentences, exchanges
from alphaiou.experiments.paper_plots import save_plots
from alphaiou.experiments.paper_records import grid_scores
from alphaiou.experiments.paper_scales import quick_scale
from alphaiou.experiments.paper_series import SWEEPS, swept
from alphaiou.experiments.paper_tables import paper_table
from alphaiou.training.recipe import recipe_hash
from tests.paper.made import made_record

GRID = paper_grids(quick_scale(Path("voc320")), seeds=(0, 1, 2))["beyond"]
PLAIN = {"IoU, gain ×0.5": 0.3, "IoU, gain ×1": 0.38, "IoU, gain ×2": 0.4, "IoU, gain ×3": 0.39}
ASKED = (
    "Better at every threshold from AP50 to AP95, by 6 % at mAP75:95 and by 50 % at AP95, all "
    "intervals clear of zero: "
)


def records(levels, change=lambda label, seed, scores: None):
    """Runs of some cells, each at its level, whose seeds differ a little."""
    found = {}
    for cell, recipe in GRID.recipes():
        if cell.label in levels:
            record = made_record(recipe, levels[cell.label] + 0.002 * (recipe.seed - 1))
            change(cell.label, recipe.seed, record["scores"])
            found[recipe_hash(recipe)] = record
    return found


def sentences(levels, **changes):
    return beyond_sentences(grid_scores(GRID, records(levels, **changes)))


def test_the_grid_has_the_gains_of_iou_first_and_says_what_moves():
    labels = [cell.label for cell in GRID.cells]
    assert labels[:4] == list(PLAIN)
    assert {cell.baseline for cell in GRID.cells} == {None, "IoU, gain ×1"}
    moving = [cell for cell in GRID.cells if cell.recipe.alpha_schedule is not None]
    assert len(moving) == 12
    assert all("(α 1→" in cell.label or "(α 3→1)" in cell.label for cell in moving)
    growing = [cell.label for cell in GRID.cells if cell.recipe.final_box_gain is not None]
    assert growing == [
        "α-DIoU (α 1→5), gain ×1→2",
        "IoU, gain ×1→3",
        "α-IoU (α 1→3), gain ×1→2",
    ]
    assert not any(cell.published for cell in GRID.cells), "of which the paper compares none so"


def test_its_runs_are_those_of_other_grids_where_they_are_the_same():
    grids = paper_grids(quick_scale(Path("voc320")))
    names = {
        name: {recipe_hash(recipe) for _, recipe in grids[name].recipes()}
        for name in ("beyond", "gains", "gains-elsewhere", "objectness", "family")
    }
    assert len(names["beyond"] & names["gains"]) == 6
    assert len(names["beyond"] & names["gains-elsewhere"]) == 2
    assert len(names["beyond"] & names["objectness"]) == 4
    assert len(names["beyond"] & names["family"]) == 3


def test_a_candidate_that_does_all_that_is_asked_is_named():
    levels = PLAIN | {"α-DIoU (α=3), gain ×2": 0.62, "α-IoU (α=2), gain ×1.5": 0.44}
    best, conclusion, *ends = sentences(levels)
    assert best == (
        "To beat: IoU, gain ×2, by mAP75:95 on the scored images the best of: IoU, gain ×0.5; "
        "IoU, gain ×1; IoU, gain ×2; IoU, gain ×3."
    )
    assert conclusion == f"{ASKED}α-DIoU (α=3), gain ×2."
    assert ends == [
        "α-IoU (α=2), gain ×1.5: better at all thresholds; mAP75:95 +10.00% "
        "(+10.0 to +10.1), AP95 +10.00% (+10.0 to +10.1); three seeds.",
        "α-DIoU (α=3), gain ×2: better at all thresholds; mAP75:95 +55.00% "
        "(+54.7 to +55.3), AP95 +55.00% (+54.7 to +55.3); three seeds.",
    ]


@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_one_threshold_that_is_not_decided_is_enough_to_fail(threshold):
    name = "α-WIoU v3 (α=3), gain ×1"

    def spoil(label, seed, scores):
        if label == name and seed == 1:
            scores[threshold] *= 0.5

    _, conclusion, end = sentences(PLAIN | {name: 0.62}, change=spoil)
    assert conclusion == f"{ASKED}none of the 1 that were run."
    assert f", undecided at AP{threshold[2:]}; " in end


@pytest.mark.parametrize(("score", "factor"), [("map75_95", 1.05), ("ap95", 1.45)])
def test_a_rise_that_is_too_small_fails(score, factor):
    name = "α-CIoU (α=3), gain ×1"

    def lower(label, _, scores):
        if label == name:
            scores[score] *= factor / 1.55

    _, conclusion, end = sentences(PLAIN | {name: 0.62}, change=lower)
    assert conclusion.endswith("none of the 1 that were run.")
    assert "better at all thresholds" in end


def test_worse_and_decided_is_not_better():
    *_, conclusion, end = sentences(PLAIN | {"α-IoU (α 1→3), gain ×2": 0.2})
    assert conclusion.endswith("none of the 1 that were run.")
    assert ": worse at all thresholds; mAP75:95 -50.00%" in end


def test_one_seed_decides_nothing():
    own = grid_scores(GRID, records(PLAIN))
    _, recipe = next(one for one in GRID.recipes() if one[0].label == "α-IoU (α=10), gain ×0.5")
    alone = {recipe_hash(recipe): made_record(recipe, 0.7)}
    _, conclusion, end = beyond_sentences(grid_scores(GRID, records(PLAIN) | alone))
    assert conclusion.endswith("none of the 1 that were run.")
    assert end.endswith(": above at all thresholds; mAP75:95 +75.88%, AP95 +75.88%; one seed.")
    assert beyond_sentences(own) == [], "there is no candidate"
    assert beyond_sentences(grid_scores(GRID, alone)) == [], "there is nothing to beat"


def test_an_alpha_that_moves_has_no_place_on_an_axis_of_alpha():
    moving, still = "α-IoU (α 1→3), gain ×2", "α-IoU (α=3), gain ×2"
    cells = grid_scores(GRID, records(PLAIN | {moving: 0.5, still: 0.5}))
    sweeps = {sweep.name: sweep for sweep in SWEEPS}
    lines = swept(cells, sweeps["alpha"], "map")
    assert [point.x for point in lines["IoU, gain ×2"]] == [1.0, 3.0]
    assert not any("→" in name for name in lines)
    assert any("α 1→3" in name for name in swept(cells, sweeps["gain"], "map"))


def test_a_gain_that_moves_is_a_candidate_and_has_no_place_on_an_axis_of_gains():
    moving = "IoU, gain ×1→3"
    cells = grid_scores(GRID, records(PLAIN | {moving: 0.62}))
    (line,) = swept(cells, {sweep.name: sweep for sweep in SWEEPS}["gain"], "map").values()
    assert [point.x for point in line] == [0.5, 1.0, 2.0, 3.0]
    best, conclusion, *_ = beyond_sentences(cells)
    assert best.startswith("To beat: IoU, gain ×2,")
    assert conclusion == f"{ASKED}{moving}."


def test_the_table_says_it_and_compares_with_what_is_to_be_beaten():
    found = records(PLAIN | {"α-EIoU (α=3), gain ×1": 0.62})
    table = paper_table(GRID, found)
    assert table.sentences[1] == f"{ASKED}α-EIoU (α=3), gain ×1."
    assert not any("Best against best" in sentence for sentence in table.sentences)
    assert {row.baseline for row in table.rows if row.changes} == {"IoU, gain ×2"}


EXCHANGED = PLAIN | {
    "α-DIoU (α=3), gain ×2": 0.42,
    "α-IoU (α 1→3), gain ×2": 0.41,
    "α-IoU (α 3→1), gain ×1": 0.39,
    "α-IoU (α=10), gain ×0.5": 0.3,
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
        for group, colour in GROUPS.items()
    }


def test_exchanges_are_paired_by_seed_and_need_a_candidate():
    def shifted(label, seed, scores):
        scores["ap50"] += 0.1 * seed  # for all alike: it cancels

    found = exchanges(grid_scores(GRID, records(EXCHANGED, change=shifted)))
    assert list(found) == [cell.label for cell in GRID.cells if cell.label in EXCHANGED]
    assert found["α-DIoU (α=3), gain ×2"]["ap50"].difference == pytest.approx(0.02)
    assert found["IoU, gain ×2"]["ap50"].difference == 0
    assert exchanges(grid_scores(GRID, records(PLAIN))) == {}
    assert exchanges(grid_scores(GRID, {})) == {}


def test_the_picture_has_a_mark_for_every_choice_that_is_not_far_below():
    figure = exchange_figure(grid_scores(GRID, exchanging(EXCHANGED)))
    for axes in figure.axes:
        marks = drawn_marks(axes)
        assert marks["rising α"] == [pytest.approx((-2.0, 2.5))]
        assert marks["constant α"] == [pytest.approx((-4.0, 5.0))], "α = 10 is 25 % below"
        assert marks["falling α"] == [pytest.approx((-20.0, -2.5))]
        assert len(marks["no power"]) == 3
        assert {text.get_text() for text in axes.texts} == {
            "IoU ×1",
            "IoU ×2",
            "IoU ×3",
            "α-IoU (1→3) ×2",
            "α-DIoU (3) ×2",
        }, "what another one beats at both has no name, but for plain IoU"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["no power", "constant α", "rising α", "falling α"]


def test_names_cover_neither_marks_nor_one_another():
    crowd = {cell.label: 0.4 + 0.0007 * number for number, cell in enumerate(GRID.cells)}
    figure = exchange_figure(grid_scores(GRID, exchanging(PLAIN | crowd)))
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert len(boxes) > 3
        assert all(one.count_overlaps(boxes) == 1 for one in boxes), "itself"
        places = axes.transData.transform(
            [place for own in drawn_marks(axes).values() for place in own]
        )
        assert not any(box.contains(*place) for box in boxes for place in places)


def test_marks_of_few_seeds_are_hollow():
    found = records(PLAIN | {"α-IoU (α 1→3), gain ×2": 0.41})
    _, recipe = next(one for one in GRID.recipes() if one[0].label == "α-DIoU (α=3), gain ×2")
    found[recipe_hash(recipe)] = made_record(recipe, 0.42)
    (axes, _) = exchange_figure(grid_scores(GRID, found)).axes
    inside = {
        line.get_markeredgecolor(): line.get_markerfacecolor()
        for line in axes.lines
        if line.get_marker() == "o" and len(line.get_xdata())
    }
    assert inside[GROUPS["rising α"]] == GROUPS["rising α"]
    assert inside[GROUPS["constant α"]] == "white"


def test_the_picture_is_among_the_plots_and_the_same_again(tmp_path):
    found = exchanging(EXCHANGED)
    paths = dict.fromkeys(found, tmp_path / "no-pictures/record.json")
    for part in "ab":
        names = {path.name for path in save_plots(GRID, found, paths, tmp_path / part)}
        assert {"beyond-exchange.png", "beyond-exchange.svg"} <= names
    first, second = ((tmp_path / part / "beyond-exchange.svg").read_bytes() for part in "ab")
    assert first == second
    plain = save_plots(GRID, records(PLAIN), paths, tmp_path / "plain")
    assert not any("exchange" in path.name for path in plain)
