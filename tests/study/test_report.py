"""Plots and the page of grids, from made records; the page also in a browser."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from alphaiou.study.figures import curves_figure, save_plots
from alphaiou.study.records import grid_runs, load_records, record_paths
from alphaiou.study.report.charts import band_chart
from alphaiou.study.report.page import paper_page, write_paper_report
from alphaiou.study.report.pictures import alike, seen_runs
from alphaiou.study.series import Point, curves, sweeps_of, swept
from alphaiou.training.recipe import recipe_hash
from tests.study.made import alpha_grid, gain_grid, records_of, table1, write_runs

VOID = {"meta", "link", "br", "img", "input"}
RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of three grids; those of the first have pictures."""
    place = tmp_path_factory.mktemp("runs")
    write_runs(records_of(alpha_grid(), gain_grid()), place)
    return write_runs(records_of(table1()), place, pictures=True)


@pytest.fixture(scope="module")
def page(folder):
    grids = [table1(), alpha_grid(), gain_grid()]
    return paper_page(grids, load_records([folder]), record_paths([folder]))


class Checked(HTMLParser):
    """Checks that tags are closed in order and that no mark is given twice."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))

    def handle_starttag(self, name, attributes):
        self.ids += [value for key, value in attributes if key == "id"]
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


def cells_of(grid):
    return grid_runs(grid, records_of(grid))


def test_curves_are_means_over_the_seeds_with_their_range():
    grid = table1()
    records = records_of(grid)
    own = [records[recipe_hash(replace(grid.rows[0].recipe, seed=s))] for s in range(3)]
    points = curves(grid_runs(grid, records), "map")["IoU"]
    assert [point.x for point in points] == [2, 4, 6]
    last = [100 * record["history"][-1]["val"]["map"] for record in own]
    found = (points[-1].mean, points[-1].low, points[-1].high)
    assert found == pytest.approx((np.mean(last), min(last), max(last)))


def test_what_a_grid_varies_is_found():
    names = {
        grid.name: [s.name for s in sweeps_of(cells_of(grid))]
        for grid in (table1(), alpha_grid(), gain_grid())
    }
    assert names == {"table1": [], "alpha": ["alpha"], "gains": ["gain"]}


def test_lines_are_named_by_what_differs_between_them():
    rows = cells_of(alpha_grid())
    lines = swept(rows, sweeps_of(rows)[0], "map")
    assert list(lines) == ["IoU, clean", "IoU, noise 0.3"]
    assert [point.x for point in lines["IoU, clean"]] == [0.5, 1, 2, 3, 5, 10]
    backwards = swept(dict(reversed(rows.items())), sweeps_of(rows)[0], "map")
    assert backwards["IoU, clean"] == lines["IoU, clean"]
    gains = cells_of(gain_grid())
    assert list(swept(gains, sweeps_of(gains)[0], "map")) == ["IoU", "α-IoU (α=3)"]


def test_rows_that_are_called_the_same_are_one_line():
    grid = gain_grid()
    often = tuple(
        replace(one, recipe=replace(one.recipe, evaluate_every=1)) if "×3" in one.label else one
        for one in grid.rows
    )
    rows = cells_of(replace(grid, rows=often))
    (sweep,) = sweeps_of(rows)
    assert [point.x for point in swept(rows, sweep, "map")["IoU"]] == [0.5, 1, 2, 3]


def test_the_points_of_a_line_have_the_same_seeds():
    rows = cells_of(replace(gain_grid(), seeds=(0, 1, 2)))
    (sweep,) = sweeps_of(rows)

    def without(seeds_of):
        """The rows without the runs of some seeds, by the place of the row."""
        left = {
            label: replace(
                own, runs={s: r for s, r in own.runs.items() if s not in seeds_of(place)}
            )
            for place, (label, own) in enumerate(rows.items())
        }
        return swept(left, sweep, "map")["IoU"]

    def mean(own, seeds):
        return pytest.approx(100 * np.mean([own.scores("map")[seed] for seed in seeds]))

    line = [own for own in rows.values() if own.row.recipe.loss.alpha == 1]
    first = without(lambda place: {1, 2} if place == 1 else set())
    assert [point.mean for point in first] == [mean(own, [0]) for own in line]
    assert all(point.alone for point in first)
    two = without(lambda place: {1} if place else set())
    assert [point.mean for point in two] == [mean(own, [0, 2]) for own in line]
    apart = without(lambda place: {0} if place else {1, 2})
    assert [point.mean for point in apart] == [
        mean(own, [1, 2] if place else [0]) for place, own in enumerate(line)
    ], "no seed is in all of them"


@pytest.mark.slow
def test_plots_are_the_same_bytes_each_time(folder, tmp_path):
    records = load_records([folder])
    names = {"table1": {"curves", "ious"}, "gains": {"curves", "gain"}}
    for grid in (replace(table1(), pictures=True), gain_grid()):
        first, second = (save_plots(grid, records, tmp_path / part) for part in "ab")
        assert {path.stem.partition("-")[2] for path in first} == names[grid.name]
        for one, other in zip(first, second, strict=True):
            assert one.name == other.name
            assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (4, 4), (6, 3), (7, 4)])
def test_a_legend_has_rows_of_the_same_length(count, columns):
    grid = gain_grid()
    rows = list(grid_runs(grid, records_of(grid)).items())[:count]
    (legend,) = curves_figure({f"loss number {n}": own for n, (_, own) in enumerate(rows)}).legends
    assert legend._ncols == columns


def test_nothing_is_drawn_without_records(tmp_path):
    assert save_plots(table1(), {}, tmp_path) == []


def test_pictures_are_those_that_were_kept(folder):
    grid = table1()
    seen = seen_runs(grid_runs(grid, load_records([folder])), record_paths([folder]))
    assert {label: len(runs) for label, runs in seen.items()} == {"IoU": 3, "α-IoU (α=3)": 3}
    assert list(alike(seen, 1)) == ["IoU"]


def test_a_line_with_points_of_one_seed_has_no_band():
    several, alone = Point(1, 10, 8, 12), Point(3, 20, 20, 20, alone=True)
    chart = band_chart({"a": [several, alone]}, "t", "epoch")
    counts = [chart.count(part) for part in ("<polygon", 'class="interval', "hollow", "<circle")]
    assert counts == [0, 1, 1, 2]
    whole = band_chart({"a": [several, Point(3, 20, 18, 22)]}, "t", "epoch")
    assert [whole.count(part) for part in ("<polygon", "interval", "hollow")] == [1, 0, 0]


def test_points_of_a_chart_lie_where_its_axes_say():
    chart = band_chart({"a": [Point(1, 10, 8, 12), Point(3, 20, 20, 20)]}, "t", "epoch")
    (x1, y1), (x2, y2) = (
        map(float, place.split(","))
        for place in re.search(r'polyline.*?points="(.*?)"', chart)[1].split()
    )
    assert x1 < x2
    assert y1 > y2
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', chart)[1])
    assert data["series"][0]["points"][0] == {
        "at": [x1, y1],
        "x": 1,
        "says": "10.00 (8.00 to 12.00)",
    }
    assert data["series"][0]["points"][1]["says"] == "20.00"


def test_the_page_is_whole_and_loads_nothing(page):
    Checked(page)
    bare = re.sub(r"data:image/png;base64,[\w+/=]+", "", page)
    assert "//" not in bare
    assert "@import" not in bare
    loaded = re.findall(r'(?:href|src)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert all(place.startswith(("data:", "#")) for place in loaded)
    assert "Table 1: IoU &lt;and&gt; α-IoU" in page


def test_the_page_has_tables_verdicts_and_what_differs(page):
    for part in (
        "is better than IoU at mAP75:95 by",
        "Drawn shapes &amp; few epochs.",
        "78.81",
        "+6.19%",
        "a note about the data",
        "torch 9.9",
        "optimisation.lr",
    ):
        assert part in page
    assert page.count('<table class="paper">') == 3
    assert page.count("<svg") >= 3 * 4


def test_grids_without_runs_are_named(folder):
    other = replace(table1(seeds=(9,)), name="nothing")
    text = paper_page([table1(), other], load_records([folder]), record_paths([folder]))
    assert "not on this page: nothing." in text
    Checked(paper_page([other], {}, {}))


def test_runs_that_were_shown_are_not_shown_again(folder):
    records, paths = load_records([folder]), record_paths([folder])
    again = replace(table1(), name="curves", title="The same as curves", place="a figure")
    text = paper_page([table1(), again], records, paths)
    Checked(text)
    assert text.count('<table class="paper">') == 1
    assert "In the paper: a figure" in text
    assert '<a href="#table1">Table 1' in text.partition('id="curves"')[2]


def test_it_depends_on_the_records_alone(folder, tmp_path):
    first = write_paper_report([table1()], [folder], tmp_path / "a")
    second = write_paper_report([table1()], [folder], tmp_path / "b/other.html")
    assert first.name == "report.html"
    assert first.read_bytes() == second.read_bytes()


#: What the first chart says as it is read with keys and with a pointer.
READ = """(() => {
  const chart = document.querySelector("figure.chart"), svg = chart.querySelector("svg");
  const key = name => chart.dispatchEvent(new KeyboardEvent("keydown", { key: name }));
  const read = () => chart.querySelector(".reading").textContent;
  const said = {};
  key("ArrowRight"); said.first = read();
  key("End"); said.last = read();
  key("ArrowLeft"); said.before = read();
  key("Escape"); said.none = read();
  const right = svg.getBoundingClientRect().right;
  svg.dispatchEvent(new PointerEvent("pointermove", { clientX: right }));
  said.pointer = read();
  const colours = of => [...chart.querySelectorAll(of)].map(one => getComputedStyle(one));
  said.rings = colours(".ring").map(one => one.stroke);
  said.lines = colours("polyline").map(one => one.stroke);
  return said;
})()"""


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (375, True)])
def test_in_a_browser(browser, page, tmp_path, width, dark):
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    browser.show(path, width=width, dark=dark)
    browser.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert browser.evaluate("document.querySelectorAll('table.paper').length") == 3
    assert browser.page_width() <= width
    assert browser.brightness() < 80 if dark else browser.brightness() > 200
    said = browser.evaluate(READ)
    assert re.fullmatch(r"epoch 2: IoU \d.*; α-IoU \(α=3\) \d+\.\d\d \(.* to .*\)", said["first"])
    assert said["last"].startswith("epoch 6: ")
    assert said["before"].startswith("epoch 4: ")
    assert said["none"] == ""
    assert said["pointer"] == said["last"]
    assert said["rings"] == said["lines"]
    assert len(set(said["rings"])) == 2
    assert browser.errors == []
