"""The charts of grids: which there are, what they draw, and the values that they print."""

from dataclasses import replace
from itertools import product

import pytest
from matplotlib.colors import to_hex

from alphaiou.study.detections import Findings
from alphaiou.study.figures import (
    IN_THE_PAPER,
    change_chart,
    curves_chart,
    distribution_chart,
    found_chart,
    grid_figures,
    save_plots,
)
from alphaiou.study.grid import Grid
from alphaiou.study.records import drawn_runs, grid_runs
from alphaiou.study.series import FOUND, change_sweeps
from tests.study.made import (
    PRINTED,
    alpha_grid,
    cell,
    gain_grid,
    noise_grid,
    records_of,
    table1,
)

DISTRIBUTION = replace(table1(), name="distribution", found_shares=tuple(FOUND))


def names_of(grid, *others):
    return list(grid_figures(grid, records_of(grid, *others)))


def changes_of_noise(grid, records):
    rows = drawn_runs(grid, records)
    (sweep,) = change_sweeps(rows)
    return change_chart(rows, sweep)


def test_a_grid_has_the_charts_of_what_it_varies():
    assert names_of(table1()) == ["curves", "losses"]
    assert names_of(replace(table1(), pictures=True)) == ["curves", "losses", "ious"]
    assert names_of(DISTRIBUTION) == ["ious"]
    assert names_of(gain_grid()) == ["gain"], "no value has a baseline of its own"
    assert names_of(noise_grid(), table1()) == ["noise-change"], "not levels that coincide"
    assert names_of(alpha_grid()) == ["alpha"]


def test_nothing_is_drawn_without_records(tmp_path):
    assert grid_figures(table1(), {}) == {}
    assert save_plots(table1(), {}, tmp_path) == []


def test_plots_are_the_same_bytes_each_time(tmp_path):
    grid = replace(table1(), pictures=True)
    records = records_of(grid)
    first, second = (save_plots(grid, records, tmp_path / part) for part in "ab")
    assert [path.name for path in first] == [
        f"table1-{name}.{kind}" for name in ("curves", "losses", "ious") for kind in ("png", "svg")
    ]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (4, 4), (6, 3), (7, 4)])
def test_a_legend_has_rows_of_the_same_length(count, columns):
    grid = gain_grid()
    rows = list(grid_runs(grid, records_of(grid)).items())[:count]
    chart = curves_chart({f"loss number {n}": row for n, (_, row) in enumerate(rows)})
    (legend,) = chart.draw().legends
    assert legend._ncols == columns


def test_a_chart_draws_the_values_that_it_prints():
    grid = table1()
    chart = curves_chart(grid_runs(grid, records_of(grid)))
    for axes, panel, (title, head, rows) in zip(
        chart.draw().axes, chart.panels, chart.values(), strict=True
    ):
        assert title == panel.title
        assert axes.get_title().endswith(title)
        assert head == ["epoch", "IoU", "α-IoU (α=3)"]
        for number, line in enumerate(axes.lines, start=1):
            assert [f"{x:g}" for x in line.get_xdata()] == [row[0] for row in rows]
            printed = [row[number].partition(" (")[0] for row in rows]
            assert [f"{y:.2f}" for y in line.get_ydata()] == printed
            assert all(" to " in row[number] for row in rows), "there are three seeds"


def test_what_the_paper_prints_is_in_the_legend_and_among_the_values():
    grid = noise_grid()
    records = records_of(grid, table1())
    chart = changes_of_noise(grid, records)
    (legend,) = chart.draw().legends
    assert [text.get_text() for text in legend.get_texts()] == ["α-IoU (α=3)", IN_THE_PAPER]
    *_, (title, head, rows) = chart.values()
    assert title == "mAP75:95, change in %"
    assert head == ["rate of noise", "α-IoU (α=3)", "α-IoU (α=3), in the paper"]
    assert [(row[0], row[2]) for row in rows] == [
        ("0", "6.19"),
        ("0.1", "10.00"),
        ("0.2", "20.00"),
        ("0.3", "25.00"),
    ]
    bare = replace(
        grid,
        rows=tuple(replace(row, published={}) for row in grid.rows),
        beside=tuple(replace(row, published={}) for row in grid.beside),
    )
    (legend,) = changes_of_noise(bare, records).draw().legends
    assert [text.get_text() for text in legend.get_texts()] == ["α-IoU (α=3)"]


def test_a_score_of_zero_has_no_change_and_no_panel():
    grid = noise_grid()
    records = records_of(grid, table1())
    for run in records.values():
        run["scores"]["ap50"] = 0.0
    chart = changes_of_noise(grid, records)
    assert [panel.title.partition(",")[0] for panel in chart.panels] == ["mAP", "mAP75:95"]


def test_the_paper_stands_beside_lines_that_have_runs():
    """Of two lines one is all zeros; its published changes are not drawn alone."""
    rows = tuple(
        cell(
            f"{kind}{power}",
            f"{kind}, η={rate:g}" if power else None,
            f"{kind}{power}, η={rate:g}",
            {"map75_95": 0.2},
            noise=rate,
        )
        for rate, kind, power in product(PRINTED, ("iou", "diou"), ("", ":3"))
    )
    grid = Grid("table3", "Noise", rows, (0,))
    records = records_of(grid)
    for run in records.values():
        if run["recipe"]["loss"]["kind"] == "diou":
            run["scores"]["map75_95"] = 0.0
    *_, (_, head, _) = changes_of_noise(grid, records).values()
    assert head[1:] == ["α-IoU (α=3)", "α-IoU (α=3), in the paper"]


def test_marks_of_a_single_seed_are_hollow():
    grid = noise_grid(seeds=(0,))
    records = records_of(grid, table1(seeds=(0,)))
    for axes in changes_of_noise(grid, records).draw().axes:
        marks = [
            line for line in axes.lines if len(line.get_xdata()) == 1 and line.get_marker() == "o"
        ]
        assert {to_hex(mark.get_markerfacecolor()) for mark in marks} == {"#ffffff"}
        assert len(marks) == 4
    several = changes_of_noise(noise_grid(), records_of(noise_grid(), table1())).draw()
    assert not [line for line in several.axes[1].lines if len(line.get_xdata()) == 1]


def test_found_objects_have_a_panel_of_changes_where_rows_are_compared():
    rows = grid_runs(DISTRIBUTION, records_of(DISTRIBUTION))
    shares, changes = found_chart(rows).draw().axes
    assert len(shares.patches) == 2 * len(FOUND)
    line = next(line for line in changes.lines if line.get_label() == "α-IoU (α=3)")
    assert to_hex(line.get_color()) == to_hex(shares.patches[-1].get_facecolor()), "as at the left"
    assert len(found_chart({"IoU": rows["IoU"]}).panels) == 1


def test_histograms_are_shares_of_all_objects():
    findings = Findings("val", 10, 20, 0.25, [0.96, 0.951, 0.61, 0.3], [])
    ((_, head, rows),) = distribution_chart({"IoU": findings}).values()
    assert head == ["IoU", "IoU"]
    assert {row[0]: row[1] for row in rows if row[1] != "0.00"} == {"0.95": "10.00", "0.6": "5.00"}
