"""What rows change against their baselines along noise, images or epochs, beside the paper's."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from tools.run_figures import main

from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.study.figures import IN_THE_PAPER, change_figure, save_plots
from alphaiou.study.grid import Grid
from alphaiou.study.records import drawn_runs, grid_runs
from alphaiou.study.report.page import paper_page
from alphaiou.study.runner import planned_runs
from alphaiou.study.series import Point, change_sweeps, changes_along, published_along
from benchmarks.record import read_record
from tests.study.made import alpha_grid, cell, gain_grid, records_of, table1
from tools.findings import drawn

ROOT = Path(__file__).parents[2]
PRINTED = {0.1: (0.20, 0.22), 0.2: (0.10, 0.12), 0.3: (0.04, 0.05)}


def noise_grid(seeds=(0, 1, 2)) -> Grid:
    rows = tuple(
        cell(
            loss,
            f"IoU, η={rate:g}" if loss == "iou:3" else None,
            f"{'α-' * (loss == 'iou:3')}IoU, η={rate:g}",
            {"map75_95": printed},
            noise=rate,
        )
        for rate, row in PRINTED.items()
        for loss, printed in zip(("iou", "iou:3"), row, strict=True)
    )
    return Grid("table3", "Noise", rows, seeds, beside=table1().rows)


def cells_of(grid):
    return drawn_runs(grid, records_of(grid, table1(grid.seeds)))


def test_a_change_is_that_of_a_row_against_its_baseline_at_the_same_noise():
    rows = cells_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    lines = changes_along(rows, sweep, "map")
    assert sweep.name == "noise"
    assert list(lines) == ["α-IoU (α=3)"]
    assert [point.x for point in lines["α-IoU (α=3)"]] == [0, 0.1, 0.2, 0.3]
    own, base = (
        np.array(list(rows[f"{name}, η=0.2"].scores("map").values())) for name in ("α-IoU", "IoU")
    )
    point = lines["α-IoU (α=3)"][2]
    assert point.mean == pytest.approx(100 * (own.mean() / base.mean() - 1))
    assert point.low < point.mean < point.high
    assert not point.alone


def test_what_the_paper_prints_stands_beside_it():
    rows = cells_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    (points,) = published_along(rows, sweep, "map75_95").values()
    clean, *noisy = ((point.x, round(point.mean, 2)) for point in points)
    assert clean == (0, 6.19)  # of Table 1
    assert noisy == [(0.1, 10), (0.2, 20), (0.3, 25)]
    assert published_along(rows, sweep, "map") == {}
    names = [text.get_text() for text in change_figure(rows, sweep).legends[0].get_texts()]
    assert names == ["α-IoU (α=3)", IN_THE_PAPER]
    bare = {label: replace(own, row=replace(own.row, published={})) for label, own in rows.items()}
    (legend,) = change_figure(bare, sweep).legends
    assert [text.get_text() for text in legend.get_texts()] == ["α-IoU (α=3)"]


def test_one_seed_is_told_and_a_row_without_its_baseline_left_out():
    grid = noise_grid()
    records = records_of(grid)
    rows = grid_runs(grid, records)
    lonely = rows["IoU, η=0.1"]
    rows["IoU, η=0.1"] = replace(lonely, runs={})
    rows["IoU, η=0.2"] = replace(rows["IoU, η=0.2"], runs={1: rows["IoU, η=0.2"].runs[1]})
    (sweep,) = change_sweeps(cells_of(grid))
    (points,) = changes_along(rows, sweep, "map").values()
    assert [(point.x, point.alone) for point in points] == [(0.2, True), (0.3, False)]
    assert change_sweeps(rows) == [], "two values are no line"


def test_every_alpha_is_compared_with_one_at_the_same_noise():
    grid = alpha_grid()
    rows = tuple(
        replace(one, baseline=f"α = 1, noise {one.recipe.noise:g}")
        if one.recipe.loss.alpha != 1
        else one
        for one in grid.rows
    )
    found = grid_runs(replace(grid, rows=rows), records_of(grid))
    (sweep,) = change_sweeps(found)
    lines = changes_along(found, sweep, "map")
    assert list(lines) == ["IoU, clean", "IoU, noise 0.3"]
    for noise, points in zip(("0", "0.3"), lines.values(), strict=True):
        assert [point.x for point in points] == [0.5, 1, 2, 3, 5, 10]
        assert points[1] == Point(1.0, 0.0, 0.0, 0.0)
        own, base = (
            np.mean(list(found[f"α = {alpha}, noise {noise}"].scores("map").values()))
            for alpha in (3, 1)
        )
        assert points[3].mean == pytest.approx(100 * (own / base - 1))
    elsewhere = replace(rows[3], baseline="α = 1, noise 0.3")  # of another noise
    crossed = {**found, rows[3].label: replace(found[rows[3].label], row=elsewhere)}
    clean = changes_along(crossed, sweep, "map")["IoU, clean"]
    assert [point.x for point in clean] == [0.5, 1, 2, 5, 10]


def test_what_nothing_defines_is_no_point():
    rows = cells_of(noise_grid())
    (sweep,) = change_sweeps(rows)
    base = rows["IoU, η=0.2"]
    undefined = {seed: {**run, "scores": {}} for seed, run in base.runs.items()}
    unprinted = replace(base.row, published={})
    rows["IoU, η=0.2"] = replace(base, row=unprinted, runs=undefined)
    for made in (changes_along, published_along):
        (points,) = made(rows, sweep, "map75_95").values()
        assert [point.x for point in points] == [0, 0.1, 0.3]


@pytest.mark.parametrize("made", [table1, alpha_grid, gain_grid])
def test_nothing_changes_along_what_baselines_do_not_share(made):
    grid = made()
    rows = grid_runs(grid, records_of(grid))
    base = next(iter(rows))
    compared = {
        label: replace(own, row=replace(own.row, baseline=base if label != base else None))
        for label, own in rows.items()
    }
    assert change_sweeps(compared) == []


def test_rows_beside_a_grid_are_drawn_and_not_run():
    grid = paper_grids(quick_scale(Path("voc320")))["table3"]
    assert {cell.recipe.noise for cell in grid.rows} == {0.1, 0.2, 0.3}
    assert {cell.recipe.noise for cell in grid.beside} == {0.0}
    assert all(run.recipe.noise for run in planned_runs([grid]))
    assert {run.name for run in planned_runs([replace(grid, rows=grid.beside)])} <= {
        run.name for run in planned_runs([paper_grids(quick_scale(Path("voc320")))["table1"]])
    }


@pytest.mark.slow
def test_changes_are_among_the_plots_and_on_the_page(tmp_path):
    grid = noise_grid()
    records = records_of(grid, table1())
    paths = {name: tmp_path / name / "record.json" for name in records}
    names = {path.stem for path in save_plots(grid, records, tmp_path)}
    assert names == {"table3-curves", "table3-noise", "table3-noise-change"}
    page = paper_page([grid], records, paths)
    assert "mAP75:95, change against rate of noise" in page
    assert "mAP75:95 against rate of noise" not in page, "levels that lie on one another"
    figure = page.partition("<h3>mAP75:95, change")[2].partition("</figure>")[0]
    assert '<span class="key s0">α-IoU (α=3)</span>' in figure
    assert '<span class="key s0 dashed">α-IoU (α=3), in the paper</span>' in figure
    assert figure.count('<polyline class="s0 dashed"') == 1
    (told,) = re.findall(r'<script type="application/json">(.*?)</script>', figure)
    (own, _) = json.loads(told)["series"]
    assert [point["x"] for point in own["points"]] == [0, 0.1, 0.2, 0.3], "what is beside it too"


def test_a_score_of_zero_has_no_change_and_no_chart(tmp_path):
    """As AP95 on drawn shapes often is, where the paper prints one all the same."""
    grid = noise_grid()
    printed = {"ap95": 0.01, "map75_95": 0.2}
    rows = tuple(replace(one, published=printed) for one in grid.rows)
    grid = replace(grid, rows=rows, beside=())
    records = records_of(grid)
    for run in records.values():
        run["scores"]["ap95"] = 0.0
    found = drawn_runs(grid, records)
    (sweep,) = change_sweeps(found)
    assert changes_along(found, sweep, "ap95") == {}
    paths = {name: tmp_path / name / "record.json" for name in records}
    page = paper_page([grid], records, paths)
    assert "mAP75:95, change against" in page
    assert "AP95, change against" not in page.replace("mAP75:95", "")
    assert "NaN" not in page


def test_the_paper_stands_beside_the_lines_that_there_are(tmp_path):
    """Of two lines one has nothing but zeros here; what the paper prints of it has no partner."""
    kinds = ("iou", "diou")
    rows = tuple(
        cell(
            f"{kind}{power}",
            f"{kind}, η={rate:g}" if power else None,
            f"{kind}{power}, η={rate:g}",
            {"map75_95": 0.2},
            noise=rate,
        )
        for rate, kind, power in product(PRINTED, kinds, ("", ":3"))
    )
    grid = Grid("table3", "Noise", rows, (0,))
    records = records_of(grid)
    for run in records.values():
        if run["recipe"]["loss"]["kind"] == "diou":
            run["scores"]["map75_95"] = 0.0
    paths = {name: tmp_path / name / "record.json" for name in records}
    figure = paper_page([grid], records, paths).partition("<h3>mAP75:95, change")[2]
    caption = figure.partition("</figcaption>")[0]
    assert "α-IoU (α=3), in the paper" in caption
    assert "DIoU" not in caption


@pytest.mark.slow
def test_the_pictures_of_the_findings_are_those_of_the_records(tmp_path):
    """Committed figures are those that the records give: none is missing, none is left over."""
    (tmp_path / "results").mkdir()
    (tmp_path / "studies/voc320/records").symlink_to(ROOT / "studies/voc320/records")
    assert main(tmp_path) == 0
    names = [
        {path.name for path in (root / "docs/images").glob("voc320_*")} for root in (tmp_path, ROOT)
    ]
    assert names[0] == names[1]


def test_changes_are_drawn_where_rows_are_compared_at_every_value():
    shown = {
        name: own.shows for name, own in drawn(read_record(ROOT / "studies/voc320/records")).items()
    }
    assert shown["voc320_table3_noise"] == shown["voc320_length_epochs"] == "changes"
    assert shown["voc320_alpha_alpha"] == "changes"
    assert shown["voc320_gains_gain"] == "levels"
    assert shown["voc320_beyond"] == "exchange"
