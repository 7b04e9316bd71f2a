"""The page in a browser: what it shows, how it is moved, and whether everybody can use it."""

import importlib.util
import json
import re
from pathlib import Path

import pytest
import torch

from alphaiou import KINDS, alpha_iou_loss
from alphaiou.explorer import explorer_page
from alphaiou.explorer.page import part
from alphaiou.losses.kinds import kinds_of
from alphaiou.metrics.columns import PAPER_COLUMNS
from tests.explorer.steps import make_oriented, middle, set_input, show_tab, text, wait_while

TABS = ("boxes", "curves", "simulation", "results")
SIZES = [(1200, False), (1200, True), (375, False), (375, True)]


def test_nothing_is_loaded_from_elsewhere():
    page = explorer_page()
    assert "default-src 'none'" in page
    assert re.findall(r'\b(?:src|href)="([^"]*)"', page) == ["data:,"]
    addresses = set(re.findall(r"https?://[^\s\"'<]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "url(" not in page
    assert "@import" not in page


def test_results_cannot_close_their_element():
    page = explorer_page([{"title": "</script><b>", "runs": []}])
    assert "</script><b>" not in page


@pytest.mark.parametrize("oriented", [False, True])
@pytest.mark.parametrize(("width", "dark"), SIZES)
def test_every_view_is_drawn_without_an_error_or_a_scroll_bar_across(
    browser, page, width, dark, oriented
):
    browser.show(page, width=width, dark=dark)
    if oriented:
        make_oriented(browser)
    for tab in TABS:
        show_tab(browser, tab)
        assert browser.page_width() <= width
        empty = browser.evaluate(
            f"[...document.querySelectorAll('#{tab} [id^=chart-]')]"
            ".filter((chart) => chart.checkVisibility() && !chart.querySelector('polyline'))"
            ".map(({id}) => id)"
        )
        assert empty == []
    assert browser.errors == []
    assert browser.brightness() < 80 if dark else browser.brightness() > 200


@pytest.mark.slow
@pytest.mark.parametrize("oriented", [False, True])
@pytest.mark.parametrize(("width", "dark"), [(1200, False), (375, True)])
def test_no_accessibility_finding(browser, page, width, dark, oriented):
    packages = ("axe_core_python", "axe_playwright_python")
    found = [spec for name in packages if (spec := importlib.util.find_spec(name))]
    if not found:
        pytest.skip("no axe-core: pip install axe-core-python")
    axe = Path(found[0].origin).with_name("axe.min.js").read_text("utf-8")
    browser.show(page, width=width, dark=dark)
    browser.evaluate(axe + ";0")
    if oriented:
        make_oriented(browser)
    for tab in TABS:
        show_tab(browser, tab)
        findings = browser.evaluate(
            "axe.run().then(({violations}) => violations.map(({impact, id, nodes}) =>"
            "[impact, id, nodes.map(({html}) => html)]))"
        )
        assert findings == []


@pytest.mark.parametrize(("alpha", "penalty_alpha", "gain"), [(3.0, 3.0, 0), (0.5, 2.0, 1)])
def test_the_table_holds_the_losses_of_the_package(browser, page, alpha, penalty_alpha, gain):
    browser.show(page)
    browser.evaluate("document.getElementById('tied').click()")
    set_input(browser, "alpha", str(alpha))
    set_input(browser, "penalty-alpha", str(penalty_alpha))
    set_input(browser, "gain", str(gain))  # a power of two
    pred, target = (
        torch.tensor([browser.evaluate(f"state.{which}")], dtype=torch.float64)
        for which in ("pred", "target")
    )
    rows = browser.evaluate(
        "[...document.querySelectorAll('#losses tbody tr')].map((row) =>"
        "[...row.children].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == [KINDS[kind].title for kind in kinds_of()]
    for kind, (_, _, _, plain, now, slope) in zip(kinds_of(), rows, strict=True):
        boxes = pred.clone().requires_grad_()
        loss = alpha_iou_loss(boxes, target, kind=kind, alpha=alpha, penalty_alpha=penalty_alpha)
        (gradient,) = torch.autograd.grad(loss.sum(), boxes)
        assert float(now.replace("−", "-")) == pytest.approx(2**gain * loss.item(), abs=6e-4)
        assert float(slope.replace("−", "-")) == pytest.approx(
            100 * 2**gain * gradient.norm().item(), abs=6e-4, rel=0.06
        )
        as_published = alpha_iou_loss(pred, target, kind=kind, alpha=1.0).item()
        assert float(plain.replace("−", "-")) == pytest.approx(as_published, abs=6e-4)


def test_the_formula_has_the_numbers_of_the_pair(browser, page):
    browser.show(page)
    assert text(browser, "#numbers") == "0.982 = 1.00 · ( 1 − 0.2623 + 0.0703 )"  # powers of 3
    set_input(browser, "kind", "iou")
    set_input(browser, "alpha", "0")
    assert text(browser, "#numbers") == "1.340 = 1.00 · ( − log 0.262 )"
    assert text(browser, "#formula-title") == "α-IoU (α=0) of this pair"


def test_a_mouse_moves_and_resizes_boxes(browser, page):
    browser.show(page)
    before = browser.evaluate("state.pred")
    scale = browser.evaluate("STAGE.width / stage.getBoundingClientRect().width")
    x, y = middle(browser, ".box.pred .body")
    browser.drag((x - 60, y - 50), (x - 30, y - 70))
    moved = browser.evaluate("state.pred")
    shift = [30 * scale, -20 * scale, 30 * scale, -20 * scale]
    assert [b - a for a, b in zip(before, moved, strict=True)] == pytest.approx(shift, abs=0.01)
    corner = browser.evaluate("state.target.slice()")
    x, y = middle(browser, ".box.target circle.reach.nwse")  # the upper left one
    browser.drag((x, y), (x - 15, y + 10))
    resized = browser.evaluate("state.target")
    assert resized[:2] == pytest.approx([corner[0] - 15 * scale, corner[1] + 10 * scale], abs=0.01)
    assert resized[2:] == corner[2:]


def test_a_target_under_the_prediction_can_be_held(browser, page):
    browser.show(page)
    browser.evaluate("change({pred: [50, 50, 350, 250], target: [150, 100, 250, 200]})")
    browser.settle()
    x, y = middle(browser, ".box.target .body")
    browser.drag((x, y), (x + 20, y))
    assert browser.evaluate("state.target")[0] > 155
    assert browser.evaluate("state.pred") == [50, 50, 350, 250]


def test_a_finger_moves_a_box(browser, page):
    browser.show(page, width=375, height=812)
    browser.evaluate("stage.scrollIntoView({block: 'center'})")
    browser.settle()
    before = browser.evaluate("state.pred")
    x, y = middle(browser, ".box.pred .body")
    browser.swipe((x - 30, y - 25), (x - 50, y - 5))
    moved = browser.evaluate("state.pred")
    assert moved[0] < before[0] - 15
    assert moved[1] > before[1] + 15
    assert browser.evaluate("scrollX") == 0


def test_keys_move_and_resize_the_box_that_has_the_focus(browser, page):
    browser.show(page)
    x1, y1, x2, y2 = browser.evaluate("state.pred")
    browser.evaluate("document.querySelector('.box.pred').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowUp")
    assert browser.evaluate("state.pred") == [x1 + 4, y1 - 4, x2 + 4, y2 - 4]
    browser.press("ArrowLeft", shift=True)
    browser.press("ArrowDown", shift=True)
    assert browser.evaluate("state.pred") == [x1 + 4, y1 - 4, x2, y2]
    assert browser.evaluate("document.activeElement.getAttribute('aria-label')").startswith("Pred")


def test_boxes_stay_on_the_stage_and_keep_their_sides(browser, page):
    browser.show(page)
    assert browser.evaluate("moved([10, 10, 50, 60], -100, 1000)") == [0, 250, 40, 300]
    assert browser.evaluate("resized([10, 10, 50, 60], CORNERS[0], 100, -100)") == [44, 0, 50, 60]
    assert browser.evaluate("resized([10, 10, 50, 60], CORNERS[2], 1000, -100)") == [
        10,
        10,
        400,
        16,
    ]


def test_arrows_point_where_the_loss_falls(browser, page):
    """Their tips lie beyond the side's middle along −∂L/∂side."""
    browser.show(page)
    gradient = browser.evaluate("pairLoss(state.kind, state.pred, state.target, powers()).gradient")
    tips = browser.evaluate(
        "[...document.querySelectorAll('.pull')].map((arrow) => { const [x, y] ="
        "arrow.querySelector('polygon').getAttribute('points').split(/[ ,]/).map(Number);"
        "const line = arrow.querySelector('line');"
        "return [x - line.getAttribute('x1'), y - line.getAttribute('y1')]; })"
    )
    assert len(tips) == 4
    for side, (tip, slope) in enumerate(zip(tips, gradient, strict=True)):
        assert tip[side % 2] * -slope > 0
        assert tip[1 - side % 2] == 0


def test_descent_makes_the_loss_smaller_under_every_kind(browser, page):
    browser.show(page)
    browser.evaluate("change({alpha: 1, kind: 'giou'})")
    falls = browser.evaluate(
        "Object.keys(KINDS).map((kind) => {"
        "const [pred, target] = [boxNow('pred'), boxNow('target')];"
        "const {way} = descentWay(kind, PLAIN, 1, pred, target);"
        "const loss = (box) => pairLoss(kind, box, target, PLAIN, 'cxcywh').value;"
        "return [kind, loss(way[0]), loss(way.at(-1))]; })"
    )
    assert all(end < start for _, start, end in falls), falls


def test_identical_boxes_have_no_loss_no_pull_and_no_way_to_go(browser, page):
    browser.show(page)
    browser.evaluate("[...document.querySelectorAll('#presets button')].at(-1).click()")
    browser.settle()
    wait_while(browser, "painting")
    assert browser.evaluate("document.querySelectorAll('.pull').length") == 0
    assert text(browser, "#numbers").startswith("0.000 =")
    assert browser.evaluate("panels.ciou.end.textContent") == "0 steps"
    assert browser.errors == []


@pytest.mark.parametrize("oriented", [False, True])
@pytest.mark.parametrize("alpha", ["0", "0.1", "1", "10"])
def test_every_alpha_and_gain_can_be_drawn(browser, page, alpha, oriented):
    browser.show(page)
    if oriented:
        make_oriented(browser)
    set_input(browser, "alpha", alpha)
    for gain in ("-2", "2"):
        set_input(browser, "gain", gain)
        for tab in TABS:
            show_tab(browser, tab)
            broken = "[...document.querySelectorAll('polyline')].some((line) =>"
            broken += "line.getAttribute('points').includes('NaN'))"
            assert not browser.evaluate(broken)
    assert browser.errors == []


def test_the_second_power_follows_the_first_until_it_is_untied(browser, page):
    browser.show(page)
    set_input(browser, "alpha", "2")
    assert browser.evaluate("[state.penaltyAlpha, byId('penalty-alpha').disabled]") == [2, True]
    browser.evaluate("byId('tied').click()")
    browser.settle()
    set_input(browser, "penalty-alpha", "0.7")
    set_input(browser, "alpha", "4")
    assert browser.evaluate("[state.alpha, state.penaltyAlpha]") == [4, 0.7]
    assert text(browser, "#formula-title") == "α-DIoU (α=4, α₂=0.7) of this pair"
    browser.evaluate("byId('reset').click()")
    browser.settle()
    assert text(browser, "#formula-title") == "α-DIoU (α=3) of this pair"


def test_keys_go_from_tab_to_tab(browser, page):
    browser.show(page)
    browser.evaluate("byId('tab-boxes').focus()")
    shown = "document.querySelector('[role=tabpanel]:not([hidden])').id"
    for key, expected in (("ArrowRight", "curves"), ("End", "results"), ("ArrowRight", "boxes")):
        browser.press(key)
        assert browser.evaluate(shown) == expected
    assert browser.evaluate("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1


def test_the_turning_point_is_said(browser, page):
    browser.show(page)
    show_tab(browser, "curves")
    assert text(browser, "#turning").startswith("Turning point: IoU 0.577. Above it")
    everywhere = "The gradient is {} than that of the plain loss at every IoU."
    for alpha, gain, word in (("1", "1", "larger"), ("0.5", "1", "larger"), ("2", "-1", "smaller")):
        set_input(browser, "alpha", alpha)
        set_input(browser, "gain", gain)  # a power of two
        assert text(browser, "#turning") == everywhere.format(word)
    set_input(browser, "alpha", "0.5")
    set_input(browser, "gain", "0")
    assert text(browser, "#turning") == (
        "Turning point: IoU 0.250. Above it the gradient is smaller than that of the plain loss, "
        "down to ×0.50 at IoU 1; below it larger."
    )


def test_the_simulation_plays_to_its_end(browser, page):
    browser.show(page)  # the browser asks for little motion: no frames between start and end
    show_tab(browser, "simulation")
    set_input(browser, "points", "2")
    browser.evaluate("byId('step').click()")
    assert text(browser, "#progress") == "step 1 of 200, 686 boxes"
    browser.evaluate("byId('play').click()")
    wait_while(browser, "play.running")
    assert text(browser, "#progress") == "step 200 of 200, 686 boxes"
    own, rival = browser.evaluate("[play.own.curve, play.rival.curve]")
    assert len(own) == len(rival) == 201
    assert own[-1]["iou"] > own[0]["iou"]
    assert rival[-1]["iou"] > 0.9
    shares = browser.evaluate("[...byId('shares').rows].map((row) => row.cells[4].textContent)")
    assert shares[1:] == [f"{curve[-1]['iou']:.3f}" for curve in (own, rival)]


def test_the_simulation_moves_and_pauses(browser, page):
    browser.show(page, motion=True)
    show_tab(browser, "simulation")
    set_input(browser, "points", "2")
    browser.evaluate("byId('play').click()")
    assert text(browser, "#play") == "Pause"
    wait_while(browser, "play.own.iteration < 3")
    browser.evaluate("byId('play').click()")
    at = browser.evaluate("play.own.iteration")
    browser.settle()
    assert text(browser, "#play") == "Play"
    assert text(browser, "#progress") == f"step {at} of 200, 686 boxes"
    assert at < 200


def test_a_hidden_simulation_stands_still(browser, page):
    browser.show(page, motion=True)
    show_tab(browser, "simulation")
    browser.evaluate("byId('play').click()")
    show_tab(browser, "curves")
    browser.settle()
    assert not browser.evaluate("play.running")
    assert browser.errors == []


def test_the_scores_are_those_of_the_records(browser, page):
    browser.show(page)
    show_tab(browser, "results")
    rows = browser.evaluate(
        "[...byId('scores').tBodies[0].rows].map((row) =>"
        "[...row.cells].map((cell) => cell.textContent))"
    )
    runs = json.loads(part("results.json"))[0]["runs"]
    scored = [row for row in rows if row[0] != "– change"]
    assert [row[0] for row in scored] == [run["name"] for run in runs]
    for row, run in zip(scored, runs, strict=True):
        assert row[2] == f"{run['scores'][0]:.2f}"
        assert row[-1] == f"{run['scores'][-1]:.2f}"
    assert len(rows) - len(scored) == sum(run["changes"] is not None for run in runs)


def test_every_training_can_be_drawn(browser, page):
    browser.show(page)
    show_tab(browser, "results")
    for number, table in enumerate(json.loads(part("results.json"))):
        set_input(browser, "setting", str(number))
        assert text(browser, "#result-note").startswith(f"{table['title']}.")
        lines = "document.querySelectorAll('#chart-change polyline:not(.plain)').length"
        assert browser.evaluate(lines) > 0
    assert browser.errors == []


def test_intervals_and_many_runs_are_drawn(browser, tmp_path):
    def change(*ends):
        return [ends] * len(PAPER_COLUMNS)

    plain = {"seeds": 3, "scores": [50.0] * len(PAPER_COLUMNS)}
    runs = [plain | {"name": "IoU", "kind": "iou", "alpha": 1.0, "changes": None}]
    runs += [
        plain
        | {"name": f"α {i}", "kind": "iou", "alpha": i, "changes": change(float(i), 0.0, 2.0 * i)}
        for i in range(2, 11)
    ]
    page = tmp_path / "page.html"
    page.write_text(explorer_page([{"title": "made up", "runs": runs}]), "utf-8")
    browser.show(page)
    show_tab(browser, "results")
    assert "+2.00\n+0.00 to +4.00" in text(browser, "#scores")
    assert browser.evaluate("document.querySelectorAll('#chart-change .whisker').length") == 36
    looks = browser.evaluate(
        "[...document.querySelectorAll('#chart-change polyline:not(.plain)')].map((line) =>"
        "line.getAttribute('class'))"
    )
    assert len(looks) == len(set(looks)) == 9
    assert browser.evaluate("document.querySelectorAll('#chart-sweep .dot').length") == 10


def test_without_records_the_page_says_so(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(explorer_page([]), "utf-8")
    browser.show(page)
    show_tab(browser, "results")
    assert "without records" in text(browser, "#result-note")
    assert browser.errors == []
