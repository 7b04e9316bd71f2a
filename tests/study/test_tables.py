"""Tables of grids, in three formats."""

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.metrics import relative_improvement
from alphaiou.metrics.columns import column_title
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import paper_scale, quick_scale
from alphaiou.study.records import (
    grid_runs,
)
from alphaiou.study.series import FOUND
from alphaiou.study.tables import (
    latex,
    study_table,
    table_csv,
    table_latex,
    table_lines,
    table_markdown,
    table_text,
)
from alphaiou.training.recipe import recipe_hash
from tests.study.made import (
    cell,
    gain_grid,
    made_record,
    records_of,
    table1,
)


def test_missing_runs_are_counted_and_not_made_up():
    grid = table1(seeds=(0, 1, 2))
    records = records_of(grid)
    del records[recipe_hash(replace(grid.rows[1].recipe, seed=1))]
    own = grid_runs(grid, records)["α-IoU (α=3)"]
    assert sorted(own.runs) == [0, 2]
    assert own.missing == (1,)
    table = study_table(grid, records)
    assert any("1 of 6 runs are missing: α-IoU (α=3) (seed 1)." in note for note in table.notes)
    assert table.rows[1].changes["map"].runs == 2
    assert (
        "means over 2 to 3 seeds per row; changes are adjusted for seeds that a row lacks"
        in table.notes[0]
    )
    assert study_table(grid, records_of(grid)).notes[0].endswith("means over three seeds per row.")
    nothing = study_table(grid, {})
    assert "This table has no finished run yet." in nothing.notes
    assert nothing.rows[0].mean("map") != nothing.rows[0].mean("map")  # NaN


def test_means_and_changes_are_those_of_the_records():
    grid = table1()
    records = records_of(grid)
    base, powered = study_table(grid, records).rows
    for column in ("ap50", "ap95", "map75_95"):
        theirs, ours = (
            np.mean(
                [
                    records[recipe_hash(replace(c.recipe, seed=s))]["scores"][column]
                    for s in range(3)
                ]
            )
            for c in grid.rows
        )
        assert base.mean(column) == pytest.approx(theirs)
        assert powered.changes[column].relative == pytest.approx(relative_improvement(ours, theirs))
    assert base.changes == {}
    assert powered.published_changes["map75_95"] == pytest.approx(0.0619, abs=5e-5)


def test_cells_without_any_number_have_no_line():
    grid = gain_grid(seeds=(0,))
    first = next(iter(records_of(grid).items()))
    table = study_table(grid, dict([first]))
    assert [line.name for line in table_lines(table)] == [grid.rows[0].label]
    assert "7 of 8 runs are missing" in " ".join(table.notes)


def test_changes_that_are_not_significant_are_marked():
    grid = table1()
    recipes = [replace(c.recipe, seed=s) for c in grid.rows for s in range(3)]
    for second, marked in (((0.55, 0.56, 0.55), False), ((0.51, 0.60, 0.55), True)):
        levels = (0.50, 0.51, 0.50, *second)
        records = {
            recipe_hash(r): made_record(r, level) for r, level in zip(recipes, levels, strict=True)
        }
        change = table_lines(study_table(grid, records))[3]
        assert change.name == "change"
        assert all(("°" in text) is marked for text in change.cells)
        assert all(
            re.fullmatch(r"\+\d+\.\d\d%°? \([+-]\d+\.\d to \+\d+\.\d\)", t) for t in change.cells
        )


def test_one_seed_has_no_interval_and_says_so():
    grid = table1(seeds=(4,))
    table = study_table(grid, records_of(grid))
    assert all(re.fullmatch(r"[+-]\d+\.\d\d%°", text) for text in table_lines(table)[3].cells)
    assert "one seed per row" in table.notes[0]


def test_markdown_has_the_paper_beside_and_says_what_differs():
    grid = table1()
    text = table_markdown(study_table(grid, records_of(grid)))
    for part in ("– in the paper | 78.81", "– change in the paper | -0.24%", "three seeds"):
        assert part in text
    assert text.endswith("- Drawn shapes & few epochs.\n")


def test_a_grid_of_found_objects_has_their_columns():
    grid = replace(table1(), found_shares=tuple(FOUND))
    table = study_table(grid, records_of(grid))
    assert table.columns == tuple(FOUND)
    assert [column_title(c) for c in table.columns[::8]] == ["found .50", "found .90"]
    assert table.notes[0].startswith("Shares of the objects in percent, means over three seeds")


def test_a_change_from_almost_nothing_is_in_points():
    """Twice 0.4 % would be +100 %, of which nobody knows what it says."""
    grid, records = table1(), records_of(table1())
    for run in records.values():
        run["scores"]["ap95"] = 0.004 * run["recipe"]["loss"]["alpha"]
        run["scores"]["ap85"] = 0.005 * run["recipe"]["loss"]["alpha"]
    table = study_table(replace(grid, rows=(grid.rows[0], replace(grid.rows[1]))), records)
    place = {column: number for number, column in enumerate(table.columns)}
    change = next(line for line in table_lines(table) if line.kind == "change")
    assert change.cells[place["ap95"]] == "+0.80 pt (+0.80 to +0.80)"
    assert change.cells[place["ap85"]] == "+200% (+200.0 to +200.0)"
    assert np.isnan(table.rows[1].relative_change("ap95"))
    assert "in points of a score (pt) if the baseline is below 0.5 %" in " ".join(table.notes)


def test_a_row_with_one_seed_has_an_interval_and_a_mark():
    grid = table1()
    more = replace(grid, rows=(*grid.rows, cell("iou:2", "IoU")))
    records = records_of(more)
    for seed in (1, 2):
        del records[recipe_hash(replace(more.rows[2].recipe, seed=seed))]
    table = study_table(more, records)
    several, single = (line for line in table_lines(table) if line.kind == "change")
    assert not any("†" in text for text in several.cells)
    assert all(re.fullmatch(r"\+\d+\.\d\d%°?† \(.+ to .+\)", text) for text in single.cells)
    assert any(note.startswith("† marks") for note in table.notes)
    assert not any("†" in note for note in study_table(grid, records).notes)


def test_equivalence_is_marked_within_the_margin_of_the_grid():
    grid, records = table1(), records_of(table1())
    for run in records.values():
        noise = 0.0005 * ((run["recipe"]["seed"] + run["recipe"]["loss"]["alpha"]) % 2)
        run["scores"] |= {"ap50": 0.6 + noise, "ap75": 0.4 + noise}
    table = study_table(replace(grid, margins={"ap50": 0.01}), records)
    change = next(line for line in table_lines(table) if line.kind == "change")
    assert ["≈" in text for text in change.cells] == [c == "ap50" for c in table.columns]
    assert any("≈ marks changes within a margin" in n and "1 % at AP50" in n for n in table.notes)
    assert not any("≈" in note for note in study_table(grid, records).notes)


def test_notes_say_what_varies_and_what_does_not():
    notes = " ".join(study_table(table1(), records_of(table1())).notes)
    assert "initial weights, the order of the images and their augmentation" in notes
    assert "not the choice of test images" in notes


@pytest.mark.parametrize(("on", "told"), [("val", True), ("test", False)])
def test_runs_that_were_selected_where_they_are_scored_are_named(on, told):
    grid, records = table1(), records_of(table1())
    for run in records.values():
        if run["recipe"]["loss"]["alpha"] == 3:
            run["selected"] = {"epoch": 4, "map": 0.5, "on": on}
    first = study_table(grid, records).notes[0]
    expected = (
        "Weights or hyperparameters of α-IoU (α=3) were selected on the images that the scores"
    )
    assert (expected in first) is told


def test_columns_are_the_papers_and_what_is_published():
    grid = table1()
    more = replace(grid, rows=(cell("iou", published={"ap90": 0.1, "map_small": 0.2}),))
    titles = study_table(more, {}).columns
    assert titles == ("ap50", "ap75", "ap85", "ap90", "ap95", "map", "map75_95", "map_small")


def test_csv_has_every_number():
    grid = table1()
    table = study_table(grid, records_of(grid))
    rows = list(csv.DictReader(io.StringIO(table_csv(table))))
    assert len(rows) == 2 * len(table.columns)
    assert all(None not in row and None not in row.values() for row in rows)
    last = rows[-1]
    change = table.rows[1].changes["map75_95"]
    assert (last["row"], last["score"]) == ("α-IoU (α=3)", "map75_95")
    assert float(last["difference"]) == change.difference
    assert float(last["difference_high"]) == change.interval.high
    assert float(last["change_low"]) == change.relative_interval.low
    assert float(last["p"]) == change.p
    assert last["significant"] == str(change.significant).lower()


def test_latex_is_a_table_of_its_columns():
    grid = table1()
    text = table_latex(study_table(grid, records_of(grid)))
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(lines) == 1 + 2 + 1 + 2 + 1
    assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {6}
    assert r"$\alpha$-IoU" in body
    assert "%" not in re.sub(r"\\%", "", body)  # which would start a comment


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no LaTeX here")
def test_latex_runs(tmp_path):
    grid = table1()
    table = table_latex(study_table(grid, records_of(grid)))
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\n"
    (tmp_path / "a.tex").write_text(page + table + "\\end{document}\n")
    command = ["pdflatex", "-halt-on-error", "a.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("how", ["md", "csv", "latex"])
def test_the_same_bytes_whatever_the_order_of_the_records(how):
    grid = table1()
    records = records_of(grid)
    turned = dict(reversed(records.items()))
    assert table_text(study_table(grid, turned), how) == table_text(study_table(grid, records), how)


@pytest.mark.parametrize("scale", [paper_scale(), quick_scale(Path("voc320")), quick_scale()])
def test_every_label_can_be_set_in_latex(scale):
    """A letter that is not ASCII stops a document unless it loads fonts for it."""
    labels = [cell.label for grid in paper_grids(scale).values() for cell in grid.rows]
    assert any("α" in label for label in labels)
    assert [label for label in labels if not latex(label).isascii()] == []
