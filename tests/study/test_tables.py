"""Records found for the cells of grids, and their tables in three formats."""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from studies.voc320.best import best_against_best
from studies.voc320.cost import cost_sentences

from alphaiou.losses.spec import LossSpec
from alphaiou.metrics import relative_improvement
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import paper_scale, quick_scale
from alphaiou.study.records import (
    RecordError,
    find_record,
    grid_runs,
    load_records,
    record_paths,
    with_found_seeds,
)
from alphaiou.study.tables import (
    HEADLINES,
    latex,
    study_table,
    table_csv,
    table_latex,
    table_lines,
    table_markdown,
    table_text,
    verdicts,
)
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.recipes import voc320
from tests.study.made import (
    RECIPE,
    cell,
    gain_grid,
    made_record,
    records_of,
    table1,
    write_runs,
)
from tools.findings import findings
from tools.render import rendered

RESULTS = Path(__file__).parents[2] / "results"


def test_records_are_found_as_committed_and_as_runs_leave_them(tmp_path):
    records = records_of(table1())
    first, *rest = records
    write_runs({name: records[name] for name in rest}, tmp_path / "runs")
    (tmp_path / "results/deep").mkdir(parents=True)
    (tmp_path / f"results/deep/{first}.json").write_text(json.dumps(records[first]))
    (tmp_path / "results/seeds.json").write_text("not a run")
    found = load_records([tmp_path / "results", tmp_path / "runs"])
    assert found == records
    assert list(found) == sorted(found)


def test_the_first_folder_is_preferred(tmp_path):
    (name, record), *_ = records_of(table1()).items()
    write_runs({name: record}, tmp_path / "a")
    write_runs({name: record | {"device": "other"}}, tmp_path / "b")
    assert load_records([tmp_path / "b", tmp_path / "a"])[name]["device"] == "other"
    assert record_paths([tmp_path / "a", tmp_path / "b"])[name].is_relative_to(tmp_path / "a")


@pytest.mark.parametrize("text", ["{", '{"record": "bench"}', "[]"])
def test_a_damaged_record_is_named(tmp_path, text):
    path = tmp_path / "0123456789ab.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=re.escape(str(path))):
        load_records([tmp_path])


def test_a_recipe_that_cannot_be_read_is_named():
    grid = table1()
    records = records_of(grid)
    name = next(iter(records))
    records[name]["recipe"]["noise"] = 7.0
    with pytest.raises(RecordError, match=f"{name}.*noise must be from 0 to below 1"):
        grid_runs(grid, records)


def test_data_sets_that_are_linked_are_not_searched(tmp_path):
    write_runs(records_of(table1(seeds=(0,))), tmp_path / "elsewhere")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/data").symlink_to(tmp_path / "elsewhere")
    assert record_paths([tmp_path / "runs"]) == {}


def test_a_folder_that_is_not_there_has_no_records(tmp_path):
    assert load_records([tmp_path / "nowhere"]) == {}


def test_missing_runs_are_counted_and_not_made_up():
    grid = table1(seeds=(0, 1, 2))
    records = records_of(grid)
    del records[recipe_hash(replace(grid.rows[1].recipe, seed=1))]
    own = grid_runs(grid, records)["α-IoU (α=3)"]
    assert sorted(own.runs) == [0, 2]
    assert own.missing == (1,)
    table = study_table(grid, records)
    assert any("1 of 6 runs are missing: α-IoU (α=3) (seed 1)." in note for note in table.notes)
    assert table.rows[1].changes["map"].seeds == 2
    assert "the mean of 2 to 3 seeds a row; a change is that of the seeds which" in table.notes[0]
    assert study_table(grid, records_of(grid)).notes[0].endswith("changes are paired by seed.")
    nothing = study_table(grid, {})
    assert "No run of this table is there yet." in nothing.notes
    assert nothing.rows[0].mean("map") != nothing.rows[0].mean("map")  # NaN


def test_a_record_answers_a_recipe_that_leaves_things_open():
    settled = replace(RECIPE, precision="bf16")
    record = made_record(settled, 0.5)
    records = {record["name"]: record}
    far = replace(settled.data, path="/somewhere/else/shapes-plain-96", val="auto")
    assert find_record(replace(settled, precision="auto", data=far), records) is record
    assert find_record(replace(settled, precision="fp32"), records) is None
    assert find_record(replace(settled, seed=1), records) is None
    other = replace(settled.data, path="/somewhere/else")
    assert find_record(replace(settled, data=other), records) is None


def test_the_committed_runs_are_found_without_the_data():
    recipe = replace(voc320(), loss=LossSpec("iou", 3.0), evaluate_every=20)
    recipe = replace(recipe, data=replace(recipe.data, path="elsewhere/voc320"))
    assert find_record(recipe, load_records([RESULTS]))["name"] == "14b070d0de5c"


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


def test_changes_that_seeds_do_not_decide_are_marked():
    grid = table1()
    recipes = [replace(c.recipe, seed=s) for c in grid.rows for s in range(3)]
    for second, marked in (((0.55, 0.56, 0.55), False), ((0.51, 0.60, 0.55), True)):
        levels = (0.50, 0.51, 0.50, *second)
        records = {
            recipe_hash(r): made_record(r, level) for r, level in zip(recipes, levels, strict=True)
        }
        change = table_lines(study_table(grid, records))[3]
        assert change.name == "change"
        assert all(("°" in text) is marked for text in change.rows)
        assert all(
            re.fullmatch(r"\+\d+\.\d\d%°? \(\+\d+\.\d to \+\d+\.\d\)", t) for t in change.rows
        )


def test_one_seed_has_no_interval_and_says_so():
    grid = table1(seeds=(4,))
    table = study_table(grid, records_of(grid))
    assert all(re.fullmatch(r"[+-]\d+\.\d\d%°", text) for text in table_lines(table)[3].rows)
    assert "one seed each" in table.notes[0]
    assert table.sentences == ()


def test_markdown_has_the_paper_beside_and_says_what_differs():
    grid = table1()
    text = table_markdown(study_table(grid, records_of(grid)))
    for part in ("– in the paper | 78.81", "– change in the paper | -0.24%", "three seeds"):
        assert part in text
    assert text.endswith("- Drawn shapes & few epochs.\n")


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
    assert float(last["student_high"]) == change.student.high
    assert float(last["change_low"]) == change.relative_bootstrap.low
    assert last["decided"] == str(change.decided).lower()


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


def test_best_against_best_takes_each_loss_at_its_own_gain():
    grid = gain_grid(seeds=(0, 1, 2))
    records = {}
    for own, recipe in grid.recipes():
        level = LEVELS[own.label] + 0.001 * recipe.seed
        records[recipe_hash(recipe)] = made_record(recipe, level)
    how, *sentences = best_against_best(grid_runs(grid, records), HEADLINES)
    assert "IoU ×2 of ×0.5, ×1, ×2, ×3; α-IoU (α=3) ×1 of ×0.5, ×1, ×2, ×3" in how
    assert sentences[0] == (
        "α-IoU (α=3) at its best gain is better than IoU at its own at AP50 by 1.00 points "
        "(+1.9 %), 95 % interval 1.00 to 1.00, three seeds (Student’s interval 1.00 to 1.00)."
    )


LEVELS = {
    **{"IoU, gain ×0.5": 0.4, "IoU, gain ×1": 0.5, "IoU, gain ×2": 0.52, "IoU, gain ×3": 0.51},
    **{"α-IoU (α=3), gain ×0.5": 0.5, "α-IoU (α=3), gain ×1": 0.53},
    **{"α-IoU (α=3), gain ×2": 0.52, "α-IoU (α=3), gain ×3": 0.4},
}


def test_best_against_best_compares_a_power_with_its_own_kind_and_noise():
    grid = paper_grids(quick_scale(Path("voc320")), seeds=(0, 1, 2))["gains-elsewhere"]
    levels = {
        **{"DIoU, gain ×1": 0.5, "DIoU, gain ×2": 0.4, "α-DIoU (α=3), gain ×1": 0.5},
        **{"α-DIoU (α=3), gain ×2": 0.6, "IoU, η=0.3, gain ×1": 0.2, "IoU, η=0.3, gain ×2": 0.3},
        **{"α-IoU (α=3), η=0.3, gain ×1": 0.2, "α-IoU (α=3), η=0.3, gain ×2": 0.1},
        **{"DIoU, η=0.3, gain ×1": 0.2, "DIoU, η=0.3, gain ×2": 0.1},
        **{"α-DIoU (α=3), η=0.3, gain ×1": 0.25, "α-DIoU (α=3), η=0.3, gain ×2": 0.2},
    }
    assert {own.label for own in grid.rows} == set(levels)
    found = {recipe_hash(r): made_record(r, levels[own.label]) for own, r in grid.recipes()}
    how, first, second, third, *_ = best_against_best(grid_runs(grid, found), HEADLINES)
    assert how.endswith(
        ": DIoU ×1 of ×1, ×2; α-DIoU (α=3) ×2 of ×1, ×2; "
        "IoU, η=0.3, ×2 of ×1, ×2; α-IoU (α=3), η=0.3, ×1 of ×1, ×2; "
        "DIoU, η=0.3, ×1 of ×1, ×2; α-DIoU (α=3), η=0.3, ×1 of ×1, ×2."
    )
    assert first.startswith(
        "α-DIoU (α=3) at its best gain is better than DIoU at its own at AP50 by 10.00 points"
    )
    assert second.startswith(
        "α-IoU (α=3), η=0.3, at its best gain is worse than IoU, η=0.3, at its own at AP50 by 10.00"
    )
    assert third.startswith("α-DIoU (α=3), η=0.3, at its best gain is better than DIoU, η=0.3,")


def test_nothing_is_best_where_no_gain_is_varied():
    grid = table1()
    assert best_against_best(grid_runs(grid, records_of(grid)), HEADLINES) == []


def costly_records(grid):
    """Runs that find more and tell apart less with every gain."""
    records = records_of(grid)
    for run in records.values():
        gain = run["recipe"]["box_gain"] / Recipe.box_gain
        run["scores"] |= {"ar300": 0.5 + 0.01 * gain, "ap50": 0.6 - 0.02 * gain}
        run["history"][-1]["class"] = 1.0 + 0.1 * gain
    return records


def test_what_a_larger_gain_costs_is_said_of_each_loss():
    grid = gain_grid()
    assert cost_sentences(grid_runs(grid, costly_records(grid))) == [
        f"{name} from the usual gain to ×3: average recall 51.00 to 53.00 %, AP50 58.00 to "
        "54.00 %, loss of the classes at the end 1.10 to 1.30."
        for name in ("IoU", "α-IoU (α=3)")
    ]
    table = study_table(grid, costly_records(grid))
    assert table.sentences[-1].startswith("α-IoU (α=3) from the usual gain to ×3: average recall")
    records = costly_records(grid)
    for run in records.values():
        run["scores"]["recall50"] = 0.9
    (first, _) = cost_sentences(grid_runs(grid, records))
    assert ": recall at an IoU of .5 90.00 to 90.00 %, AP50 58.00" in first
    usual = (run for run in records.values() if run["recipe"]["box_gain"] == Recipe.box_gain)
    next(usual)["scores"].pop("recall50")
    assert ": average recall 51.00 to" in "".join(cost_sentences(grid_runs(grid, records)))


def test_nothing_is_said_of_a_cost_that_was_not_measured():
    grid = gain_grid()
    cells = grid_runs(grid, costly_records(grid))
    assert cost_sentences(grid_runs(grid, records_of(grid))) == [], "no record has a recall"
    usual = {label: own for label, own in cells.items() if "×1" in label or "×0.5" in label}
    assert cost_sentences(usual) == []
    assert cost_sentences({label: own for label, own in cells.items() if "×1" not in label}) == []
    apart = {
        label: replace(own, runs={s: r for s, r in own.runs.items() if (s == 0) == ("×1" in label)})
        for label, own in cells.items()
    }
    assert cost_sentences(apart) == [], "no seed is in both"


def test_seeds_are_those_that_were_run():
    records = records_of(table1(seeds=(3, 5)))
    assert with_found_seeds(table1(seeds=(0,)), records).seeds == (3, 5)
    assert with_found_seeds(table1(seeds=(0,)), {}).seeds == (0,)
    assert with_found_seeds(gain_grid(seeds=(0,)), records).seeds == (3, 5)  # it shares runs


def voc320_run(loss: str, level: float, **changes):
    recipe = quick_scale(Path("voc320"), 60).recipe()
    return made_record(replace(recipe, loss=LossSpec.parse(loss), **changes), level)


def test_findings_have_the_sections_that_have_runs():
    runs = [
        voc320_run(loss, level, seed=seed)
        for seed in range(3)
        for loss, level in (("iou", 0.5), ("iou:3", 0.55))
    ]
    text = findings({"runs": runs})
    assert re.findall("^#.*", text, re.MULTILINE) == [
        "## 60 epochs",
        "### IoU and DIoU against their α versions",
        "### How well the boxes that are found lie on their objects",
    ]
    assert "α-IoU (α=3) is better than IoU at AP50 by 5.00 points" in text
    assert "DIoU |" not in text  # which was not run
    noisy = [voc320_run(loss, 0.4, noise=0.3) for loss in ("iou", "iou:3")]
    assert "### Training boxes with noise" in findings({"runs": [*runs, *noisy]})
    assert "one seed each" in findings({"runs": noisy})
    assert findings({"runs": []}) == ""


def test_findings_show_the_look_at_lengths():
    runs = [
        voc320_run(loss, 0.5, epochs=epochs, evaluate_every=epochs // 5)
        for epochs in (60, 100)
        for loss in ("iou", "iou:3")
    ]
    assert "## α = 1 and α = 3 by the length of training" in findings({"runs": runs})


def test_findings_of_other_detectors_stand_apart():
    recipe = quick_scale(Path("voc320")).recipe("detr_r50")
    runs = [
        made_record(replace(recipe, loss=LossSpec.parse(loss)), 0.3) for loss in ("iou", "iou:3")
    ]
    text = findings({"runs": [*runs, voc320_run("iou", 0.5), voc320_run("iou:3", 0.5)]})
    assert re.findall("^## .*", text, re.MULTILINE) == ["## 60 epochs", "## DETR of Table 1"]
    assert f"detr_r50, {recipe.epochs} epochs." in text


@pytest.mark.slow
def test_the_page_of_findings_is_that_of_the_records():
    root = RESULTS.parent
    text = (root / "docs/findings.md").read_text(encoding="utf-8")
    assert rendered(text, root) == text


def test_many_comparisons_are_summed_up():
    cells = [
        cell("iou", label="base"),
        *(cell(f"iou:{a}", "base", f"power {a}") for a in (2, 3, 4, 5)),
    ]
    grid = replace(table1(), rows=tuple(cells))
    rises = {"base": 0.0, "power 2": 0.1, "power 3": -0.1, "power 4": 0.02, "power 5": 0.05}
    records = {}
    for own, recipe in grid.recipes():
        luck = (recipe.seed - 1) * (0.02 if own.label == "power 4" else 0.0)
        records[recipe_hash(recipe)] = made_record(recipe, 0.5 + rises[own.label] + luck)
    sides = (
        "Better: power 2 +10.00; power 5 +5.00. Worse: power 3 -10.00. Not decided: power 4 +2.00."
    )
    table = study_table(grid, records)
    assert table.sentences[0] == f"AP50, points against base. {sides}"
    *rows, last = table.rows
    mixed = verdicts([*rows, replace(last, baseline="another")], table.columns)
    assert mixed[0] == f"AP50, points against the compared row. {sides}"
