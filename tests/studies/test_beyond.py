"""Whether anything beats IoU at its best gain everywhere, on records that are made up."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.records import grid_runs
from alphaiou.study.series import SWEEPS, swept
from alphaiou.study.tables import study_table, table_lines, table_markdown
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.recipes import quick
from studies.voc320.beyond import beyond_sentences
from studies.voc320.candidates import Candidate
from studies.voc320.search import THRESHOLDS
from tests.studies.beyond_runs import GRID, PLAIN, records
from tests.study.made import made_record

ASKED = (
    "Better at every threshold from AP50 to AP95, by 6 % at mAP75:95 and by 50 % at AP95, all "
    "intervals clear of zero: "
)


def sentences(levels, **changes):
    return beyond_sentences(grid_runs(GRID, records(levels, **changes)))


def test_the_grid_has_the_gains_of_iou_first_and_says_what_moves():
    labels = [cell.label for cell in GRID.rows]
    assert labels[:4] == list(PLAIN)
    assert {cell.baseline for cell in GRID.rows} == {None, "IoU, gain ×1"}
    moving = [cell for cell in GRID.rows if cell.recipe.alpha_schedule is not None]
    assert len(moving) == 22
    assert all("(α 1→" in cell.label or "(α 3→1)" in cell.label for cell in moving)
    growing = [cell.label for cell in GRID.rows if cell.recipe.final_box_gain is not None]
    assert growing == [
        "α-DIoU (α 1→5), gain ×1→2",
        "IoU, gain ×1→3",
        "α-IoU (α 1→3), gain ×1→2",
        "α-DIoU (α 1→5), gain ×2→1",
    ]
    assert "α-CIoU (α 1→5, α₂=0.5), gain ×1.5" in labels
    assert len(set(labels)) == len(labels)
    assert not any(cell.published for cell in GRID.rows), "of which the paper compares none so"


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


def test_other_gains_are_said_and_kept_out_of_other_rows():
    said = {
        "class gain": lambda recipe: recipe.class_gain,
        "objectness gain": lambda recipe: recipe.objectness_gain,
        "learning rate": lambda recipe: recipe.optimisation.lr,
    }
    for grid in (GRID, paper_grids(quick_scale())["beyond"]):  # whose usual ones are others
        usual = grid.rows[1].recipe
        assert grid.rows[1].label == "IoU, gain ×1"
        for cell in grid.rows:
            times = {part: value(cell.recipe) / value(usual) for part, value in said.items()}
            unusual = [f"{part} ×{by:g}" for part, by in times.items() if by != 1]
            assert re.findall(r", ((?:class|obj\w+|learn\w+) \w+ ×[\d.]+)", cell.label) == unusual
    labels = {cell.label for cell in GRID.rows}
    assert "α-DIoU (α 1→5), gain ×2, class gain ×2, objectness gain ×4" in labels
    assert "IoU, gain ×2, learning rate ×2" in labels


def test_a_candidate_multiplies_what_is_usual():
    own = Candidate("iou", class_gain=2.0, objectness_gain=4.0, lr=3.0).recipe(quick())
    assert (own.class_gain, own.objectness_gain) == (8.0, 80.0)
    assert own.optimisation == replace(quick().optimisation, lr=0.06)


CONTROL = "IoU, gain ×4, class gain ×2, objectness gain ×4"
OTHER_CONTROL = "IoU, gain ×3, class gain ×2, objectness gain ×4"
MOVED = "α-DIoU (α 1→5), gain ×2, class gain ×2, objectness gain ×4"


def test_what_is_to_be_beaten_is_iou_at_a_box_gain_and_no_other():
    first, conclusion, *_ = sentences(PLAIN | {CONTROL: 0.62})
    assert first.startswith("To beat: IoU, gain ×2, by")
    assert first.endswith("IoU, gain ×3.")
    assert conclusion == f"{ASKED}{CONTROL}.", "IoU with other gains may win too"
    assert [cell.label for cell in GRID.rows if cell.to_beat] == list(PLAIN)


def test_what_is_to_be_beaten_has_several_seeds_where_any_gain_has():
    """A gain of one seed, however good, would leave one seed of all comparisons."""
    levels = {label: level for label, level in PLAIN.items() if label != "IoU, gain ×3"}
    levels["α-CIoU (α=3), gain ×1"] = 0.62
    cell, recipe = next(one for one in GRID.recipes() if one[0].label == "IoU, gain ×3")
    alone = {recipe_hash(recipe): made_record(recipe, 0.6)}
    first, *_ = beyond_sentences(grid_runs(GRID, records(levels) | alone))
    assert first.startswith("To beat: IoU, gain ×2, by")
    first, *_ = beyond_sentences(grid_runs(GRID, records(levels | {cell.label: 0.6})))
    assert first.startswith("To beat: IoU, gain ×3, by")


def test_more_seeds_of_one_gain_do_not_choose_it():
    """Levels are compared over the seeds that all gains have: others may lie elsewhere."""
    more = replace(GRID, seeds=(0, 1, 2, 3, 4))
    recipes = {(cell.label, recipe.seed): recipe for cell, recipe in more.recipes()}
    levels = PLAIN | {"α-CIoU (α=3), gain ×1": 0.62}
    for label, level in (("IoU, gain ×1", 0.9), ("IoU, gain ×2", 0.1), ("IoU, gain ×3", 0.39)):
        extra = {
            recipe_hash(recipe): made_record(recipe, level)
            for (name, seed), recipe in recipes.items()
            if name == label and seed > 2
        }
        first, *_ = beyond_sentences(grid_runs(more, records(levels) | extra))
        assert first.startswith("To beat: IoU, gain ×2, by"), label


@pytest.mark.parametrize(("best", "other"), [(CONTROL, OTHER_CONTROL), (OTHER_CONTROL, CONTROL)])
def test_a_candidate_with_other_gains_is_compared_with_iou_that_has_them(best, other):
    alike = [
        sentence
        for sentence in sentences(PLAIN | {best: 0.5, other: 0.45, MOVED: 0.55})
        if sentence.startswith("All else alike")
    ]
    assert alike == [
        f"All else alike, {MOVED} against {best}: better at all thresholds; "
        "mAP75:95 +10.00% (+10.0 to +10.0), AP95 +10.00% (+10.0 to +10.0); three seeds."
    ]


def test_iou_with_the_usual_gains_is_no_control_and_without_a_control_nothing_is_said():
    usual = sentences(PLAIN | {"α-DIoU (α 1→5), gain ×1.5": 0.55, CONTROL: 0.5})
    assert not any("All else alike" in sentence for sentence in usual)
    alone = sentences(PLAIN | {MOVED: 0.55})
    assert not any("All else alike" in sentence for sentence in alone)


def test_what_only_the_bootstrap_decides_is_said_apart():
    name = "α-CIoU (α=3), gain ×1"

    def scatter(label, seed, scores):
        if label == name:
            scores["ap65"] = 0.28 + (0.01, 0.05, 0.3)[seed]

    _, conclusion, *_ = sentences(PLAIN | {name: 0.62}, change=scatter)
    none = "none of the 1 that were run"
    assert conclusion == f"{ASKED}{none}; by the bootstrap’s intervals alone: {name}."

    def lower(label, seed, scores):
        if label == name:
            scores["ap65"] = 0.28 + (-0.01, 0.05, 0.3)[seed]

    _, conclusion, *_ = sentences(PLAIN | {name: 0.62}, change=lower)
    assert conclusion == f"{ASKED}{none}."


def test_one_seed_decides_nothing():
    own = grid_runs(GRID, records(PLAIN))
    names = ("α-IoU (α=10), gain ×0.5", "α-IoU (α=5), gain ×0.75", "α-IoU (α=5), gain ×1")
    alone = {}
    for name, level in zip(names, (0.7, 0.8, 0.2), strict=True):
        _, recipe = next(one for one in GRID.recipes() if one[0].label == name)
        alone[recipe_hash(recipe)] = made_record(recipe, level)
    _, conclusion, end, *_ = beyond_sentences(grid_runs(GRID, records(PLAIN) | alone))
    assert conclusion.endswith("none of the 3 that were run.")
    assert end == (
        "Above at every threshold, with one seed: "
        "α-IoU (α=5), gain ×0.75 (mAP75:95 +101%, AP95 +101%); "
        "α-IoU (α=10), gain ×0.5 (mAP75:95 +75.88%, AP95 +75.88%)."
    )
    assert beyond_sentences(own) == [], "there is no candidate"
    assert beyond_sentences(grid_runs(GRID, alone)) == [], "there is nothing to beat"


def test_an_alpha_that_moves_has_no_place_on_an_axis_of_alpha():
    moving, still = "α-IoU (α 1→3), gain ×2", "α-IoU (α=3), gain ×2"
    rows = grid_runs(GRID, records(PLAIN | {moving: 0.5, still: 0.5}))
    sweeps = {sweep.name: sweep for sweep in SWEEPS}
    lines = swept(rows, sweeps["alpha"], "map")
    assert [point.x for point in lines["IoU, gain ×2"]] == [1.0, 3.0]
    assert not any("→" in name for name in lines)
    assert any("α 1→3" in name for name in swept(rows, sweeps["gain"], "map"))


def test_a_gain_that_moves_is_a_candidate_and_has_no_place_on_an_axis_of_gains():
    moving = "IoU, gain ×1→3"
    rows = grid_runs(GRID, records(PLAIN | {moving: 0.62}))
    (line,) = swept(rows, {sweep.name: sweep for sweep in SWEEPS}["gain"], "map").values()
    assert [point.x for point in line] == [0.5, 1.0, 2.0, 3.0]
    best, conclusion, *_ = beyond_sentences(rows)
    assert best.startswith("To beat: IoU, gain ×2,")
    assert conclusion == f"{ASKED}{moving}."


def test_the_table_says_it_and_compares_with_what_is_to_be_beaten():
    found = records(PLAIN | {"α-EIoU (α=3), gain ×1": 0.62, "α-IoU (α=2), gain ×1": 0.35})
    table = study_table(GRID, found)
    assert table.sentences[1] == f"{ASKED}α-EIoU (α=3), gain ×1."
    assert table.sentences[0] == sentences(PLAIN | {"α-EIoU (α=3), gain ×1": 0.62})[0]
    assert not any("Best against best" in sentence for sentence in table.sentences)
    assert {row.baseline for row in table.rows if row.changes} == {"IoU, gain ×2"}


def test_rows_of_the_table_are_changes_against_its_first_and_the_best_come_first():
    found = records(PLAIN | {"α-IoU (α=2), gain ×1": 0.35, "α-EIoU (α=3), gain ×1": 0.5})
    table = study_table(GRID, found)
    assert table.columns == (*THRESHOLDS, "map75_95")
    first, *others = table_lines(table)
    assert (first.name, first.rows[0]) == ("IoU, gain ×2", "40.00")
    assert [line.name for line in others] == [
        "α-EIoU (α=3), gain ×1",
        "IoU, gain ×3",
        "IoU, gain ×1",
        "α-IoU (α=2), gain ×1",
        "IoU, gain ×0.5",
    ]
    assert (first.kind, {line.kind for line in others}) == ("ours", {"compared"})
    assert others[0].rows[0] == "+25.00% (+24.9 to +25.1)"
    assert study_table(GRID, found, ("map",)).columns == ("map",)
    assert "All rows but the first are changes against it." in table.notes[0]
    assert "\n| α-EIoU (α=3), gain ×1 | +25.00%" in table_markdown(table)
    listed = tuple(replace(cell, to_beat=False) for cell in GRID.rows)
    plain = study_table(replace(GRID, rows=listed), found)
    assert not any("All rows but" in note for note in plain.notes)
    assert [line.name for line in table_lines(plain)][1:3] == ["change", "IoU, gain ×1"]
