"""The report from records and findings that are made up here: no training."""

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alphaiou.experiments.compare import ComparedRun
from alphaiou.experiments.comparison_report import (
    SCORES,
    comparison_page,
    seeds_table,
    write_report,
)
from alphaiou.experiments.detection_pictures import Box, Example, Findings
from alphaiou.experiments.html import Axis, line_chart, spanning, tag
from alphaiou.experiments.score_tables import cell
from alphaiou.losses.spec import LossSpec
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
    """Checks that tags are closed in order, and collects the cells of the table of scores."""

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


def test_it_says_how_it_came_about(runs):
    page = comparison_page(runs)
    for fact in ("seed 0", "a note about the data", "torch 9.9", "IoU 123", "a device", "One seed"):
        assert fact in page
    assert "3 of 20 found at IoU .5, with a mean IoU of .823" in page


def test_seeds_as_a_table():
    scores = [dict.fromkeys(("ap50", "ap75", "map", "map75_95"), value) for value in (0.5, 0.7)]
    rows = [{"loss": "iou:3", "seed": seed, "scores": one} for seed, one in enumerate(scores)]
    line = seeds_table({"rows": rows}).splitlines()[-1]
    assert line.startswith("| α-IoU (α=3) | 2 | 60.00 (50.00 to 70.00) |")


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
