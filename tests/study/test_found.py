"""IoU distributions: objects found with at least an IoU, from the records of runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from alphaiou.inference.tables import column_title
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.figures import found_figure, save_plots
from alphaiou.study.records import grid_runs, record_paths
from alphaiou.study.report.page import paper_page
from alphaiou.study.runner import is_scored, planned_runs
from alphaiou.study.series import FOUND, MOST_ROWS, found_changes, found_lines
from alphaiou.study.tables import study_table
from tests.study.made import gain_grid, made_level, made_record, records_of, table1, write_runs
from tools.findings import drawn, findings

GRID = replace(table1(), name="distribution", found_shares=tuple(FOUND))
VOC320 = paper_grids(quick_scale(Path("voc320")), (0, 1, 2))["distribution"]


def without_counts(records):
    """Records of earlier versions."""
    return {
        name: {**run, "scores": {k: v for k, v in run["scores"].items() if k not in FOUND}}
        for name, run in records.items()
    }


def test_lines_are_the_shares_of_the_records_and_changes_are_paired():
    rows = grid_runs(GRID, records_of(GRID))
    lines, changes = found_lines(rows), found_changes(rows)
    assert [point.x for point in lines["IoU"]] == pytest.approx(
        [0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9]
    )
    values = {label: list(own.scores("found75").values()) for label, own in rows.items()}
    means = {label: sum(own) / 3 for label, own in values.items()}
    assert lines["IoU"][5].mean == pytest.approx(100 * means["IoU"])
    assert list(changes) == ["α-IoU (α=3)"]
    expected = 100 * (means["α-IoU (α=3)"] / means["IoU"] - 1)
    assert changes["α-IoU (α=3)"][5].mean == pytest.approx(expected)


def test_records_that_do_not_count_are_none():
    records = without_counts(records_of(GRID))
    assert found_lines(grid_runs(table1(), records)) == {}
    assert all(not own.runs for own in grid_runs(GRID, records).values())
    (own, *_) = grid_runs(GRID, records).values()
    assert own.missing == (0, 1, 2)
    mixed = records | dict(list(records_of(replace(GRID, seeds=(1,))).items()))
    assert [list(own.runs) for own in grid_runs(GRID, mixed).values()] == [[1], [1]]


def test_what_no_baseline_finds_has_no_change(tmp_path):
    records = records_of(GRID)
    for run in records.values():
        run["scores"]["found90"] = 0.0
    (points,) = found_changes(grid_runs(GRID, records)).values()
    assert [point.x for point in points] == pytest.approx(list(FOUND.values())[:-1])
    paths = {name: tmp_path / name / "record.json" for name in records}
    assert "NaN" not in paper_page([GRID], records, paths)
    for run in records.values():
        run["scores"] |= dict.fromkeys(FOUND, 0.0)
    assert found_changes(grid_runs(GRID, records)) == {}
    paper_page([GRID], records, paths)


def test_more_rows_than_can_be_told_apart_are_not_drawn():
    rows = grid_runs(gain_grid(), records_of(gain_grid()))
    assert len(rows) > MOST_ROWS
    assert found_lines(rows) == {}
    assert found_lines(dict(list(rows.items())[:MOST_ROWS]))


def test_the_table_has_the_columns_of_its_grid_and_a_verdict_at_both_ends():
    table = study_table(GRID, records_of(GRID))
    assert table.columns == tuple(FOUND)
    assert [column_title(c) for c in table.columns[::8]] == ["found .50", "found .90"]
    assert [one for one in table.sentences if "at found .50" in one or "at found .90" in one] == [
        *table.sentences
    ]
    assert len(table.sentences) == 2
    assert table.notes[0].startswith("Shares of the objects in percent, the mean of three seeds")


@pytest.mark.slow
def test_the_figure_has_a_panel_of_changes_where_rows_are_compared(tmp_path):
    rows = grid_runs(GRID, records_of(GRID))
    shares, changes = found_figure(rows).axes
    assert len(shares.patches) == 2 * len(FOUND)
    assert next(line.get_label() for line in changes.lines) == "α-IoU (α=3)"
    alone = {"IoU": rows["IoU"]}
    assert len(found_figure(alone).axes) == 1
    names = {path.stem for path in save_plots(GRID, records_of(GRID), tmp_path)}
    assert "distribution-ious" in names


def test_the_page_shows_it_though_its_runs_are_those_of_another_table(tmp_path):
    records = records_of(table1())
    paths = {name: tmp_path / name / "record.json" for name in records}
    page = paper_page([table1(), GRID], records, paths)
    section = page.partition('id="distribution"')[2].partition("</section>")[0]
    assert "found .90" in section
    assert "Objects found with at least this IoU, change" in section
    assert "by epoch" not in section
    shares, changes = (
        {line["name"]: line["look"] for line in json.loads(text)["series"]}
        for text in re.findall(r'<script type="application/json">(.*?)</script>', section)
    )
    assert changes == {"α-IoU (α=3)": shares["α-IoU (α=3)"]}, "the colour that it has above"
    assert len(set(shares.values())) == 2
    assert "Its runs so far are all among" not in paper_page([GRID, table1()], records, paths)
    folder = write_runs(records, tmp_path / "seen", pictures=True)
    both = paper_page([table1(), GRID], records, record_paths([folder]))
    assert both.count("<summary>Pictures</summary>") == 1, "which the other table has"
    bare = paper_page([table1(), GRID], without_counts(records), paths)
    assert "Without any run so far, and so not on this page: distribution." in bare


def test_a_record_without_what_a_grid_is_about_is_computed_again(tmp_path):
    records = records_of(GRID)
    runs = planned_runs([replace(GRID, seeds=(0,))])
    folder = write_runs(without_counts(records), tmp_path / "old")
    old, new = record_paths([folder]), record_paths([write_runs(records, tmp_path / "new")])
    assert all(is_scored(run, new) for run in runs)
    assert not any(is_scored(run, old) for run in runs)
    assert all(is_scored(run, old) for run in planned_runs([table1()]))
    for grids in ([table1(), GRID], [GRID, table1()]):
        assert not any(is_scored(run, old) for run in planned_runs(grids))
    assert not any(is_scored(run, {}) for run in runs)


def test_findings_have_the_section_once_there_is_a_count():
    runs = [made_record(recipe, made_level(recipe)) for _, recipe in VOC320.recipes()]
    text = findings({"runs": runs})
    assert "### How well the boxes that are found lie on their objects" in text
    assert "(images/voc320_distribution.svg)" in text
    assert drawn({"runs": runs})["voc320_distribution"].shows == "found"
    old = list(without_counts({run["name"]: run for run in runs}).values())
    assert "How well the boxes" not in findings({"runs": old})
    assert "voc320_distribution" not in drawn({"runs": old})
