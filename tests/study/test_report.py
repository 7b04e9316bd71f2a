"""The report from made-up records, as text and in a browser."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import CompareSettings, compare_grid
from alphaiou.study.detections import on_same_images, runs_with_pictures
from alphaiou.study.records import grid_runs, load_records, record_paths
from alphaiou.study.report import report_page, write_report
from alphaiou.study.report.html import tag
from alphaiou.study.series import FOUND
from tests.study.made import alpha_grid, gain_grid, noise_grid, records_of, table1, write_runs

VOID = {"meta", "link", "br", "img", "input"}
TITLE = "A <title>"


def page_of(grids, folder, **options):
    folders = [folder]
    options = {"title": TITLE, **options}
    return report_page(grids, load_records(folders), record_paths(folders), **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of three grids; those of the first have pictures."""
    place = tmp_path_factory.mktemp("runs")
    write_runs(records_of(alpha_grid(), gain_grid()), place)
    return write_runs(records_of(table1()), place, pictures=True)


@pytest.fixture(scope="module")
def page(folder):
    return page_of([table1(), alpha_grid(), gain_grid()], folder, lead="What it shows & how.")


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """The page of a comparison of two losses with one seed."""
    grid = compare_grid([LossSpec("iou"), LossSpec("iou", 3.0)], CompareSettings())
    place = tmp_path_factory.mktemp("compare")
    return page_of([grid], write_runs(records_of(grid), place, pictures=True), title="A against B")


class Checked(HTMLParser):
    """Checks that tags are closed in order, that ids are unique and that links have targets."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: set[str] = set(re.findall(r"url\(#([^)]*)\)", text))
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.ids) == len(set(self.ids))
        assert self.links <= set(self.ids)

    def handle_starttag(self, name, attributes):
        named = dict(attributes)
        self.ids += [named["id"]] if "id" in named else []
        for key in ("href", "xlink:href"):
            self.links |= {named[key][1:]} if named.get(key, "").startswith("#") else set()
        if name not in VOID:
            self.open.append(name)

    def handle_startendtag(self, name, attributes):
        self.handle_starttag(name, attributes)
        if name not in VOID:
            self.open.pop()

    def handle_endtag(self, name):
        assert self.open.pop() == name


@pytest.mark.parametrize("which", ["page", "compared"])
def test_the_page_is_whole_and_loads_nothing(which, request):
    text = request.getfixturevalue(which)
    Checked(text)
    bare = re.sub(r"data:image/png;base64,[\w+/=]+", "", text)
    assert "//" not in re.sub(r"http://www\.w3\.org/[\w/]+", "", bare)  # the names of SVG
    assert "@import" not in bare
    assert "<script" not in bare
    loaded = re.findall(r'(?:href|src)="([^"]*)"', text) + re.findall(r"url\(([^)]*)\)", text)
    assert loaded
    assert all(place.startswith(("data:", "#")) for place in loaded)


def test_the_page_has_tables_notes_and_circumstances(page):
    for part in (
        "<title>A &lt;title&gt;</title>",
        "What it shows &amp; how.",
        "Table 1: IoU &lt;and&gt; α-IoU",
        "means over three seeds per row",
        "Drawn shapes &amp; few epochs.",
        "78.81",
        "+6.19%",
        "a note about the data",
        "torch 9.9",
        "optimisation.lr",
        "Training speed in images per second: IoU 123, α-IoU (α=3) 123.",
        "of 200 objects found at IoU .5",
    ):
        assert part in page, part
    assert page.count('<table class="study">') == 3
    assert "One seed per row. All rows share" not in page


def test_every_chart_has_its_values_below(page):
    figures = re.findall(r'<figure class="chart">(.*?)</figure>', page, re.DOTALL)
    titles = [re.search("<h3>(.*?)</h3>", figure)[1] for figure in figures]
    assert titles == [
        "Scores by epoch",
        "Training losses",
        "IoU of detections with their objects",
        "Scores against α",
        "IoU of detections with their objects",
        "Scores against box gain, times the usual",
        "IoU of detections with their objects",
    ]
    for figure in figures:
        assert figure.count("<svg") == 1
        assert re.search(r'<svg [^>]*role="img" aria-label="[^"]+"', figure)
        tables = re.findall(r'<table class="values">(.*?)</table>', figure)
        assert tables
        for table in tables:
            assert table.startswith("<caption>")
            assert '<th scope="col">' in table
            assert '<th scope="row">' in table


def test_charts_have_the_colours_of_the_page(page):
    drawings = "".join(re.findall(r"<svg .*?</svg>", page, re.DOTALL))
    assert set(re.findall(r"#[0-9a-f]{6}\b", drawings)) == set()
    assert "var(--s1)" in drawings
    assert "Verdana" in drawings


def test_a_comparison_has_what_its_runs_left(compared):
    assert "<h1>A against B</h1>" in compared
    assert "<nav" not in compared
    for part in (
        "One seed per row. All rows share",
        "AP55",
        "Box loss",
        "Objects found, % of all",
        "IoU of detections with their objects",
        "objects found at IoU .5, with a mean IoU of",
        '<details open="open"><summary>Pictures</summary>',
        "shapes-discs-64",
    ):
        assert part in compared, part


def test_changes_from_almost_nothing_are_in_points(tmp_path):
    grid = compare_grid([LossSpec("iou"), LossSpec("iou", 3.0)], CompareSettings())
    records = records_of(grid)
    for run in records.values():
        run["scores"] |= {"ap95": 0.001, "ap90": None}
    text = page_of([grid], write_runs(records, tmp_path))
    (changes,) = re.findall(r'<tr class="change">(.*?)</tr>', text)
    cells = re.findall(r"<td>(.*?)</td>", changes)
    assert cells[8:10] == ["–", "+0.00 pt°"]
    assert all(cell.startswith("+") for cell in (*cells[:8], *cells[10:]))
    assert "nan" not in text.lower().replace("nano", "")


def test_each_picture_is_embedded_once(compared):
    assert compared.count("data:image/png;base64,") == 1
    assert compared.count('href="#compare-picture0"') == 2


def test_pictures_are_those_that_were_kept(folder):
    rows = grid_runs(table1(), load_records([folder]))
    pictured = runs_with_pictures(rows, record_paths([folder]))
    assert {label: len(runs) for label, runs in pictured.items()} == {"IoU": 3, "α-IoU (α=3)": 3}
    other = replace(pictured["IoU"][0], findings=replace(pictured["IoU"][0].findings, split="x"))
    assert list(on_same_images({**pictured, "elsewhere": [other]})) == ["IoU", "α-IoU (α=3)"]
    assert on_same_images({}) == {}


def test_names_of_classes_are_text(tmp_path):
    grid = table1(seeds=(0,))
    write_runs(records_of(grid), tmp_path, pictures=True)
    for path in tmp_path.glob("*/findings.json"):
        path.write_text(path.read_text().replace('"star"', json.dumps("<script>a&b")))
    text = page_of([grid], tmp_path)
    assert "<script" not in text
    assert "&lt;script&gt;a&amp;b" in text
    Checked(text)


def test_detectors_that_find_nothing_after_one_epoch(tmp_path):
    grid = table1(seeds=(0,))
    records = records_of(grid)
    for run in records.values():
        run["history"] = run["history"][:1]
        run["scores"] |= dict.fromkeys(FOUND, 0.0)
    write_runs(records, tmp_path, pictures=True)
    for path in tmp_path.glob("*/findings.json"):
        empty = {"objects": 0, "ious": [], "examples": []}
        path.write_text(json.dumps(json.loads(path.read_text()) | empty))
    text = page_of([replace(grid, pictures=True)], tmp_path)
    Checked(text)
    assert "none of 0 objects found" in text
    assert "NaN" not in text


def test_grids_without_runs_are_named(folder):
    other = replace(table1(seeds=(9,)), name="nothing")
    assert "Without finished runs: nothing." in page_of([table1(), other], folder)
    Checked(report_page([other], {}, {}, title=TITLE))


def test_runs_that_were_shown_are_not_shown_again(folder):
    again = replace(table1(), name="curves", title="The same as curves", place="a figure")
    text = page_of([table1(), again], folder)
    Checked(text)
    assert text.count('<table class="study">') == 1
    assert "In the paper: a figure" in text
    assert '<a href="#table1">Table 1' in text.partition('id="curves"')[2]


def test_found_shares_are_shown_though_the_runs_are_those_of_another_table(folder):
    shares = replace(table1(), name="distribution", found_shares=tuple(FOUND))
    section = page_of([table1(), shares], folder).partition('id="distribution"')[2]
    assert "found .90" in section
    assert "Change against the baseline, %" in section
    assert "Scores by epoch" not in section


def test_changes_are_shown_with_the_rows_beside(tmp_path):
    grid = noise_grid()
    text = page_of([grid], write_runs(records_of(grid, table1()), tmp_path))
    values = text.partition("<caption>mAP75:95, change in %</caption>")[2].partition("</table>")[0]
    assert "α-IoU (α=3), in the paper" in values
    assert re.findall(r'<th scope="row">([^<]*)</th>', values) == ["0", "0.1", "0.2", "0.3"]


def test_it_depends_on_the_records_alone(folder, tmp_path):
    folders = [folder]
    files = (tmp_path / "a/one.html", tmp_path / "b/two.html")
    for file in files:
        records, paths = load_records(folders), record_paths(folders)
        assert write_report(file, [table1()], records, paths, title=TITLE) == file
    assert files[0].read_bytes() == files[1].read_bytes()


def test_attributes_are_escaped():
    assert tag("p", class_='"><script>') == '<p class="&quot;&gt;&lt;script&gt;"></p>'


@pytest.mark.parametrize("which", ["page", "compared"])
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (375, True)])
def test_in_a_browser(which, width, dark, request, browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(request.getfixturevalue(which), encoding="utf-8")
    browser.show(path, width=width, dark=dark)
    browser.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    assert browser.page_width() <= width
    assert browser.brightness() < 80 if dark else browser.brightness() > 200
    text = "getComputedStyle(document.querySelector('.chart svg text')).fill"
    lightness = sum(map(int, re.findall(r"\d+", browser.evaluate(text))[:3])) / 3
    assert lightness > 150 if dark else lightness < 100
    lines = browser.evaluate(
        "[...document.querySelector('.chart svg').querySelectorAll('path')]"
        ".map(one => getComputedStyle(one).stroke)"
    )
    assert {"rgb(86, 180, 233)" if dark else "rgb(0, 114, 178)"} <= set(lines)
    assert browser.errors == []
