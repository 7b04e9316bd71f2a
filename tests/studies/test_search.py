"""The search for something better than IoU at its best gain, on made-up records."""

import re
from dataclasses import replace
from pathlib import Path

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.records import grid_runs
from alphaiou.study.series import SWEEPS, swept
from alphaiou.study.tables import study_table, table_lines, table_markdown
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.recipes import quick
from studies.voc320.search import (
    BASELINES,
    THRESHOLDS,
    Candidate,
    best_baseline,
    search_grid,
    search_table,
)
from tests.studies.made import GRID, PLAIN, records
from tests.study.made import made_record


def baseline(found, grid=GRID):
    """The label of IoU at its best gain."""
    return best_baseline(grid_runs(grid, found)).row.label


def test_the_grid_has_the_gains_of_iou_first_and_says_what_moves():
    labels = [row.label for row in GRID.rows]
    assert labels[:4] == list(PLAIN) == list(BASELINES)
    assert {row.baseline for row in GRID.rows} == {None, "IoU, box gain ×1"}
    moving = [row for row in GRID.rows if row.recipe.alpha_schedule is not None]
    assert len(moving) == 22
    assert all("(α 1→" in row.label or "(α 3→1)" in row.label for row in moving)
    growing = [row.label for row in GRID.rows if row.recipe.final_box_gain is not None]
    assert growing == [
        "α-DIoU (α 1→5), box gain ×1→2",
        "IoU, box gain ×1→3",
        "α-IoU (α 1→3), box gain ×1→2",
        "α-DIoU (α 1→5), box gain ×2→1",
    ]
    assert "α-CIoU (α 1→5, α₂=0.5), box gain ×1.5" in labels
    assert len(set(labels)) == len(labels)
    assert not any(row.published for row in GRID.rows), "of which the paper compares none so"


def test_runs_that_other_grids_have_too_are_the_same_runs():
    grids = paper_grids(quick_scale(Path("voc320")))
    names = {name: {recipe_hash(r) for _, r in grid.recipes()} for name, grid in grids.items()}
    searched = {recipe_hash(recipe) for _, recipe in replace(GRID, seeds=(0,)).recipes()}
    shared = {"gains": 6, "gains-elsewhere": 2, "objectness": 4, "family": 5}
    shared |= {"penalty-alpha": 9, "alpha": 6}
    assert {name: len(searched & names[name]) for name in shared} == shared


def test_labels_name_other_gains():
    said = {
        "class gain": lambda recipe: recipe.detector.class_gain,
        "objectness gain": lambda recipe: recipe.detector.objectness_gain,
        "learning rate": lambda recipe: recipe.optimisation.lr,
    }
    for grid in (GRID, search_grid(quick_scale())):  # whose defaults differ
        usual = grid.rows[1].recipe
        assert grid.rows[1].label == "IoU, box gain ×1"
        for row in grid.rows:
            times = {part: value(row.recipe) / value(usual) for part, value in said.items()}
            unusual = [f"{part} ×{by:g}" for part, by in times.items() if by != 1]
            assert re.findall(r", ((?:class|obj\w+|learn\w+) \w+ ×[\d.]+)", row.label) == unusual
    labels = {row.label for row in GRID.rows}
    assert "α-DIoU (α 1→5), box gain ×2, class gain ×2, objectness gain ×4" in labels
    assert "IoU, box gain ×2, learning rate ×2" in labels


def test_a_candidate_multiplies_the_defaults():
    own = Candidate("iou", class_gain=2.0, objectness_gain=4.0, lr=3.0).recipe(quick())
    assert (own.detector.class_gain, own.detector.objectness_gain) == (8.0, 80.0)
    assert own.optimisation == replace(quick().optimisation, lr=0.06)


CONTROL = "IoU, box gain ×4, class gain ×2, objectness gain ×4"


def test_the_baseline_is_iou_at_a_box_gain_with_all_else_at_its_default():
    assert baseline(records(PLAIN | {CONTROL: 0.62})) == "IoU, box gain ×2"
    assert best_baseline(grid_runs(GRID, records({CONTROL: 0.62}))) is None


def test_the_baseline_has_several_seeds_if_any_gain_has():
    """A gain with one seed, however good, would leave one seed for all comparisons."""
    levels = {label: level for label, level in PLAIN.items() if label != "IoU, box gain ×3"}
    row, recipe = next(one for one in GRID.recipes() if one[0].label == "IoU, box gain ×3")
    alone = {recipe_hash(recipe): made_record(recipe, 0.6)}
    assert baseline(records(levels) | alone) == "IoU, box gain ×2"
    assert baseline(records(levels | {row.label: 0.6})) == "IoU, box gain ×3"


def test_more_seeds_of_one_gain_do_not_choose_it():
    """Levels are compared over the seeds that all gains have: other seeds may lie elsewhere."""
    more = replace(GRID, seeds=(0, 1, 2, 3, 4))
    recipes = {(row.label, recipe.seed): recipe for row, recipe in more.recipes()}
    for label, level in (
        ("IoU, box gain ×1", 0.9),
        ("IoU, box gain ×2", 0.1),
        ("IoU, box gain ×3", 0.39),
    ):
        extra = {
            recipe_hash(recipe): made_record(recipe, level)
            for (name, seed), recipe in recipes.items()
            if name == label and seed > 2
        }
        assert baseline(records(PLAIN) | extra, more) == "IoU, box gain ×2", label


def test_candidates_above_at_more_thresholds_come_first():
    few, many = "α-IoU (α=3), box gain ×1", "α-CIoU (α=3), box gain ×1"

    def lower(label, _, scores):
        if label == few:
            scores["ap50"] = 0.1

    table = search_table(GRID, records(PLAIN | {few: 0.62, many: 0.44}, change=lower))
    assert [row.label for row in table.rows][:3] == ["IoU, box gain ×2", many, few]


def test_an_alpha_that_moves_has_no_place_on_an_axis_of_alpha():
    moving, still = "α-IoU (α 1→3), box gain ×2", "α-IoU (α=3), box gain ×2"
    rows = grid_runs(GRID, records(PLAIN | {moving: 0.5, still: 0.5}))
    sweeps = {sweep.name: sweep for sweep in SWEEPS}
    lines = swept(rows, sweeps["alpha"], "map")
    assert [point.x for point in lines["IoU, box gain ×2"]] == [1.0, 3.0]
    assert not any("→" in name for name in lines)
    assert any("α 1→3" in name for name in swept(rows, sweeps["gain"], "map"))


def test_a_gain_that_moves_is_a_candidate_and_has_no_place_on_an_axis_of_gains():
    moving = "IoU, box gain ×1→3"
    rows = grid_runs(GRID, records(PLAIN | {moving: 0.62}))
    (line,) = swept(rows, {sweep.name: sweep for sweep in SWEEPS}["gain"], "map").values()
    assert [point.x for point in line] == [0.5, 1.0, 2.0, 3.0]


def test_rows_of_the_table_are_changes_against_its_first_and_the_best_come_first():
    found = records(PLAIN | {"α-IoU (α=2), box gain ×1": 0.35, "α-EIoU (α=3), box gain ×1": 0.5})
    table = search_table(GRID, found)
    assert table.columns == (*THRESHOLDS, "map75_95")
    first, *others = table_lines(table)
    assert (first.name, first.cells[0]) == ("IoU, box gain ×2", "40.00")
    assert [line.name for line in others] == [
        "α-EIoU (α=3), box gain ×1",
        "IoU, box gain ×3",
        "IoU, box gain ×1",
        "α-IoU (α=2), box gain ×1",
        "IoU, box gain ×0.5",
    ]
    assert (first.kind, {line.kind for line in others}) == ("ours", {"compared"})
    assert others[0].cells[0] == "+25.00% (+25.0 to +25.0)"
    assert "All rows but the first are changes against the first." in table.notes[0]
    assert "hyperparameters of IoU, box gain ×2 were selected on the images" in table.notes[0]
    assert "\n| α-EIoU (α=3), box gain ×1 | +25.00%" in table_markdown(table)
    plain = study_table(GRID, found)
    assert not any("All rows but" in note for note in plain.notes)
    assert {row.baseline for row in plain.rows if row.changes} == {"IoU, box gain ×1"}
