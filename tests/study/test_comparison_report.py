"""The report from records and findings that are made up here: no training."""

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from alphaiou.inference.tables import cell
from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import ComparedRun
from alphaiou.study.detections import Box, Example, Findings
from alphaiou.study.report.comparison import (
    SCORES,
    comparison_page,
    seeds_table,
    write_report,
)
from alphaiou.study.report.html import Axis, line_chart, spanning, tag
from alphaiou.study.report.pictures import LETTER, example_row
from alphaiou.training.recipe import Recipe

VOID = {"meta", "link", "br", "img", "input"}


def made_run(folder: Path, loss: str, scores: list[float | None], label: str = "star"):
    """A run whose scores are the given ones, from AP50 on."""
    spec = LossSpec.parse(loss)
    folder = folder / loss.replace(":", "-")
    (folder / "examples").mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "examples/000000.png")
    named = dict(zip(SCORES, scores, strict=True))
    record = {
        "name": folder.name,
        "recipe": json.loads(json.dumps(asdict(Recipe(loss=spec, epochs=4)))),
        "scores": named,
        "history": [
            {"epoch": epoch, "box": 2 / epoch, "objectness": 1 / epoch, "class": 1.0}
            | ({"val": {"ap50": epoch / 10, "map": None}} if epoch % 2 == 0 else {})
            for epoch in range(1, 5)
        ],
        "throughput": 123.4,
        "device": "a device",
        "versions": {"alphaiou": "1.2.3", "torch": "9.9"},
        "notes": ["a note about the data"],
    }
    example = Example(
        "examples/000000.png",
        (64, 48),
        [Box((4, 4, 30, 40), label)],
        [Box((5, 4, 30, 40), label, 0.9, 0.96)],
    )
    findings = Findings("val", 10, 20, 0.25, [0.95, 0.9, 0.62, 0.3], [example])
    return ComparedRun(record, findings, folder)


@pytest.fixture
def runs(tmp_path):
    baseline = [0.6 - 0.05 * i for i in range(10)] + [0.375, 0.25]
    better = [score * 1.1 for score in baseline]
    return [made_run(tmp_path, "iou", baseline), made_run(tmp_path, "iou:3", better)]


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects the rows of the table of scores."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.in_scores = False
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.in_scores |= dict(attributes).get("id") == "scores"
        if name not in VOID:
            self.open.append(name)
        if self.in_scores and name == "tr":
            self.rows.append([])
        if self.in_scores and name in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, name):
        assert self.open.pop() == name
        self.in_scores &= name != "table"

    def handle_data(self, data):
        if self.in_scores and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def test_the_table_has_the_numbers_of_the_records(runs):
    head, *rows = Page(comparison_page(runs)).rows
    assert head == ["", "IoU", "α-IoU (α=3)", "change"]
    first, second = (run.record["scores"] for run in runs)
    expected = [[cell(first[key]), cell(second[key]), "+10.00%"] for key in SCORES]
    assert [row[1:] for row in rows] == expected
    assert [row[0] for row in rows][-3:] == ["AP95", "mAP", "mAP75:95"]


def test_what_is_not_defined_is_a_dash(tmp_path):
    nothing = [None] * 6 + [0.0] * 6
    runs = [made_run(tmp_path, "iou", nothing), made_run(tmp_path, "giou", [0.5] * 12)]
    _, *rows = Page(comparison_page(runs)).rows
    assert rows[0] == ["AP50", "–", "50.00", "–"]
    assert rows[-1] == ["mAP75:95", "0.00", "50.00", "–"]  # no change from nothing


def test_nothing_is_loaded_from_elsewhere(runs):
    page = comparison_page(runs)
    assert "//" not in re.sub(r"data:image/png;base64,[\w+/=]+", "", page)
    assert "<script" not in page
    assert "@import" not in page
    loaded = re.findall(r'(?:href|src)="([^"]*)"', page) + re.findall(r"url\(([^)]*)\)", page)
    assert loaded
    assert all(place.startswith(("data:", "#")) for place in loaded)


def test_each_picture_is_embedded_once(runs):
    page = comparison_page(runs)
    assert page.count("data:image/png;base64,") == 1
    assert page.count('href="#picture0"') == len(runs)


@pytest.fixture(scope="module")
def picture(tmp_path_factory):
    """Draws an image with objects and what was found as the page shows it."""
    folder = tmp_path_factory.mktemp("picture")
    Image.new("RGB", (200, 100)).save(folder / "image.png")

    def draw(objects, found=()):
        example = Example("image.png", (200, 100), objects, list(found))
        return example_row("mark", {"IoU": example}, folder)

    return draw


def names_in(text):
    """What is written into a picture: name, left, line and size of the letters."""
    pattern = r"<text ([^>]*)>([^<]*)</text>"
    found = []
    for attributes, name in re.findall(pattern, text):
        numbers = [re.search(rf'{key}="([^"]*)"', attributes)[1] for key in ("x", "y")]
        size = re.search(r"font-size: ([\d.]+)px", attributes)[1]
        found.append((name, *map(float, numbers), float(size)))
    return found


def test_pictures_tell_what_lies_on_objects_and_what_does_not(picture):
    objects = [
        Box((4, 4, 30, 40), "bird"),
        Box((50, 4, 80, 40), "bird"),
        Box((9, 9, 99, 99), "cow"),
    ]
    found = [Box((4, 4, 30, 40), "bird", 0.9, iou) for iou in (0.93, 0.49, 0.5, 0.0)]
    text = picture(objects, found)
    assert "bird ×2, cow" in text
    assert "bird .93, bird .50, 2 elsewhere" in text
    assert text.count('class="found"') == 2
    assert text.count('class="found astray"') == 2
    assert "2 elsewhere" in picture(objects, found[1::2])
    assert "</b> nothing<" in picture(objects)
    assert "bird .93, 2 more<" in picture(objects, found[:1] * 6).replace("bird .93, " * 3, "")
    assert "no objects" in picture([])


def test_a_name_without_room_above_is_at_the_foot_of_its_box_or_not_there(picture):
    same = Box((20, 30, 60, 80), "bird")
    (_, _, above, _), (_, x, foot, size) = names_in(picture([same] * 3))
    assert above == pytest.approx(30 - 0.25 * size)
    assert (x, foot) == (20, pytest.approx(80 - 0.25 * size))


@given(
    st.lists(
        st.tuples(
            st.floats(0, 190), st.floats(0, 90), st.sampled_from(("bird", "motorbike", "a" * 40))
        ),
        max_size=12,
    )
)
def test_names_in_pictures_do_not_cover_each_other(picture, places):
    objects = [Box((x, y, x + 10, y + 10), label) for x, y, label in places]
    names = names_in(picture(objects))
    assert bool(names) == bool(objects)
    for name, x, _, size in names:
        assert x >= 0
        assert x + LETTER * size * len(name) <= 200.1 or x == 0
    for (a, xa, ya, size), (b, xb, yb, _) in combinations(names, 2):
        right_a, right_b = (x + LETTER * size * len(n) for n, x in ((a, xa), (b, xb)))
        assert right_a <= xb + 0.1 or right_b <= xa + 0.1 or abs(ya - yb) > size - 0.1


def test_it_says_how_it_came_about(runs):
    page = comparison_page(runs)
    for fact in ("seed 0", "a note about the data", "torch 9.9", "IoU 123", "a device", "One seed"):
        assert fact in page
    assert "3 of 20 found at IoU .5, with a mean IoU of .823" in page


def test_seeds_as_a_table():
    def rows(loss, values):
        scores = [dict.fromkeys(("ap50", "ap75", "map", "map75_95"), value) for value in values]
        return [{"loss": loss, "seed": seed, "scores": one} for seed, one in enumerate(scores)]

    alone = seeds_table({"rows": rows("iou:3", (0.5, 0.7))}).splitlines()
    assert len(alone) == 3
    assert alone[-1].startswith("| α-IoU (α=3) | 2 | 60.00 (50.00 to 70.00) |")
    both = {"rows": [*rows("iou", (0.4, 0.5)), *rows("iou:3", (0.5, 0.7))]}
    *_, first, second, change = seeds_table(both).splitlines()
    assert first.startswith("| IoU | 2 | 45.00 (40.00 to 50.00) |")
    assert second == alone[-1]
    assert change.startswith("| – change |  | +33.33%° (+25.0 to +40.0) |")


def test_it_depends_on_the_runs_alone(runs, tmp_path):
    first = write_report(runs, tmp_path / "a/one.html").read_bytes()
    assert write_report(runs, tmp_path / "b/two.html").read_bytes() == first


def test_names_of_classes_are_text(tmp_path):
    page = comparison_page([made_run(tmp_path, "iou", [0.5] * 12, label="<script>a&b")])
    assert "<script" not in page
    assert "&lt;script&gt;a&amp;b" in page
    Page(page)


def test_one_epoch_and_no_detections(tmp_path):
    run = made_run(tmp_path, "iou", [0.0] * 12)
    empty = Findings("val", 10, 0, 0.25, [], [])
    short = run.record | {"history": run.record["history"][:1]}
    page = comparison_page([ComparedRun(short, empty, run.folder)])
    Page(page)
    assert "none of 0 objects" in page


def test_many_losses_have_different_looks():
    series = {f"loss {i}": [(0.0, 0.0), (1.0, float(i))] for i in range(9)}
    chart = line_chart(series, Axis("x", 0, 1), spanning("y", [8]), "nine")
    looks = re.findall(r'<polyline class="([^"]*)"', chart)
    assert len(looks) == len(set(looks)) == 9


def test_points_lie_where_the_axes_say():
    chart = line_chart({"a": [(0.5, 0.0), (1.0, 10.0)]}, Axis("", 0.5, 1), Axis("", 0, 10), "t")
    (x1, y1), (x2, y2) = (
        map(float, point.split(",")) for point in re.search(r'points="(.*?)"', chart)[1].split()
    )
    assert x1 < x2
    assert y1 > y2  # down is up
    ticks = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="middle">([\d.]+)<', chart)
    assert (float(ticks[0][0]), ticks[0][1]) == (x1, "0.5")
    assert (float(ticks[-1][0]), ticks[-1][1]) == (x2, "1")


@pytest.mark.parametrize("highest", [1e-6, 0.37, 1.0, 7.0, 123.0, 9e5])
def test_ticks_are_few_and_round(highest):
    axis = spanning("", [highest])
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 7
    assert axis.low <= ticks[0] <= ticks[-1] <= axis.high


def test_attributes_are_escaped():
    assert tag("p", class_='"><script>') == '<p class="&quot;&gt;&lt;script&gt;"></p>'


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (390, True)])
def test_a_browser_draws_it_without_a_scroll_bar_across(browser, runs, tmp_path, width, dark):
    path = tmp_path / "page.html"
    path.write_text(comparison_page(runs), encoding="utf-8")
    browser.show(path, width=width, dark=dark)
    assert browser.page_width() <= width
    assert browser.brightness() < 80 if dark else browser.brightness() > 200
    assert browser.errors == []
