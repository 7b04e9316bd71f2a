"""Whether anything beats IoU at its best gain everywhere, on records that are made up."""

from pathlib import Path

import pytest

from alphaiou.experiments.paper import paper_grids
from alphaiou.experiments.paper_beyond import THRESHOLDS, beyond_sentences
from alphaiou.experiments.paper_records import grid_scores
from alphaiou.experiments.paper_scales import quick_scale
from alphaiou.experiments.paper_series import SWEEPS, swept
from alphaiou.experiments.paper_tables import paper_table
from alphaiou.training.recipe import recipe_hash
from tests.paper.beyond_runs import GRID, PLAIN, records
from tests.paper.made import made_record

ASKED = (
    "Better at every threshold from AP50 to AP95, by 6 % at mAP75:95 and by 50 % at AP95, all "
    "intervals clear of zero: "
)


def sentences(levels, **changes):
    return beyond_sentences(grid_scores(GRID, records(levels, **changes)))


def test_the_grid_has_the_gains_of_iou_first_and_says_what_moves():
    labels = [cell.label for cell in GRID.cells]
    assert labels[:4] == list(PLAIN)
    assert {cell.baseline for cell in GRID.cells} == {None, "IoU, gain ×1"}
    moving = [cell for cell in GRID.cells if cell.recipe.alpha_schedule is not None]
    assert len(moving) == 17
    assert all("(α 1→" in cell.label or "(α 3→1)" in cell.label for cell in moving)
    growing = [cell.label for cell in GRID.cells if cell.recipe.final_box_gain is not None]
    assert growing == [
        "α-DIoU (α 1→5), gain ×1→2",
        "IoU, gain ×1→3",
        "α-IoU (α 1→3), gain ×1→2",
        "α-DIoU (α 1→5), gain ×2→1",
    ]
    assert "α-CIoU (α 1→5, α₂=0.5), gain ×1.5" in labels
    assert len(set(labels)) == len(labels)
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
    assert len(names["beyond"] & names["family"]) == 5
    shared = {name: {recipe_hash(r) for _, r in grids[name].recipes()} for name in grids}
    assert len(names["beyond"] & shared["penalty-alpha"]) == 9
    assert len(names["beyond"] & shared["alpha"]) == 6


def test_a_candidate_that_does_all_that_is_asked_is_named():
    levels = PLAIN | {"α-DIoU (α=3), gain ×2": 0.62, "α-IoU (α=2), gain ×1.5": 0.44}
    best, conclusion, *ends = sentences(levels)
    assert best == (
        "To beat: IoU, gain ×2, by mAP75:95 on the scored images the best of: IoU, gain ×0.5; "
        "IoU, gain ×1; IoU, gain ×2; IoU, gain ×3."
    )
    assert conclusion == f"{ASKED}α-DIoU (α=3), gain ×2."
    assert ends == [
        "α-DIoU (α=3), gain ×2: better at all thresholds; mAP75:95 +55.00% "
        "(+54.7 to +55.3), AP95 +55.00% (+54.7 to +55.3); three seeds.",
        "α-IoU (α=2), gain ×1.5: better at all thresholds; mAP75:95 +10.00% "
        "(+10.0 to +10.1), AP95 +10.00% (+10.0 to +10.1); three seeds.",
    ]


def test_what_is_above_at_the_most_thresholds_comes_first():
    few, many = "α-IoU (α=3), gain ×1", "α-CIoU (α=3), gain ×1"

    def lower(label, _, scores):
        if label == few:
            scores["ap50"] = 0.1

    *_, first, second = sentences(PLAIN | {few: 0.62, many: 0.44}, change=lower)
    assert first.startswith(f"{many}: better at all thresholds")
    assert second.startswith(f"{few}: better at AP55,")


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


def test_gains_of_the_classes_are_said_and_kept_out_of_other_rows():
    found = {cell.label: cell.recipe for cell in GRID.cells if "class gain" in cell.label}
    assert next(iter(found)) == "IoU, gain ×2, class gain ×2"
    usual = GRID.cells[1].recipe
    times = {label: recipe.class_gain / usual.class_gain for label, recipe in found.items()}
    assert all(label.endswith(f"class gain ×{times[label]:g}") for label in found)
    others = {cell.recipe.class_gain for cell in GRID.cells if cell.label not in found}
    assert others == {usual.class_gain}
    shapes = paper_grids(quick_scale())["beyond"].cells  # whose usual one is another
    assert [cell.label for cell in shapes if "class gain" in cell.label] == list(found)


def test_what_is_to_be_beaten_has_as_many_seeds_as_any_gain():
    """A control of one seed, however good, would leave one seed of all comparisons."""
    control = "IoU, gain ×2, class gain ×2"
    levels = PLAIN | {"α-CIoU (α=3), gain ×1": 0.62}
    cell, recipe = next(one for one in GRID.recipes() if one[0].label == control)
    alone = {recipe_hash(recipe): made_record(recipe, 0.6)}
    first, *_ = beyond_sentences(grid_scores(GRID, records(levels) | alone))
    assert first.startswith("To beat: IoU, gain ×2, by")
    assert first.endswith(f"IoU, gain ×3; {control}.")
    first, *_ = beyond_sentences(grid_scores(GRID, records(levels | {cell.label: 0.6})))
    assert first.startswith(f"To beat: {control}, by")


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
