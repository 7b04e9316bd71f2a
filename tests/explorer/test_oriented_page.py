"""Oriented boxes on the page: how they are turned, their gradient, and the chart of the angle."""

import math
from functools import partial

import pytest
import torch

from alphaiou import KINDS, alpha_iou_loss, box_iou
from alphaiou.losses.kinds import kinds_of
from alphaiou.oriented import OrientedGeometry, oriented_to_corners
from alphaiou.simulate import SimulationSettings, descend, oriented_cases_at
from tests.explorer.steps import (
    make_oriented,
    middle,
    press_preset,
    set_input,
    show_tab,
    text,
    wait_while,
)

ORIENTED = kinds_of(OrientedGeometry)
KNOB = ".box.{} circle.reach.turn"
QUARTER = math.pi / 2


@pytest.fixture
def oriented(browser, page):
    """The page with oriented boxes."""
    browser.show(page)
    make_oriented(browser)
    yield browser
    assert browser.errors == []


def angle_of(browser, which):
    return browser.evaluate(f"state.angles.{which}")


def box_of(browser, which):
    """The box on the stage as the package takes it."""
    return torch.tensor([browser.evaluate(f"boxNow({which!r})")], dtype=torch.float64)


def corners_of(browser, which):
    return oriented_to_corners(box_of(browser, which))[0]


def drag_by_angle(browser, which, turn, *, swipe=False):
    """Drag the handle of a box about its centre."""
    x, y = middle(browser, KNOB.format(which))
    cx, cy = middle(browser, f".box.{which} .body")
    cosine, sine = math.cos(turn), math.sin(turn)
    end = (
        cx + cosine * (x - cx) - sine * (y - cy),
        cy + sine * (x - cx) + cosine * (y - cy),
    )
    (browser.swipe if swipe else browser.drag)((x, y), end)
    browser.settle()


def number(written):
    return float(written.replace("−", "-"))


def test_the_switch_changes_the_kinds_and_keeps_the_boxes(browser, page):
    browser.show(page)
    places = browser.evaluate("[state.pred, state.target]")
    menu = "[...byId('kind').options].map(({value}) => value)"
    assert browser.evaluate(menu) == list(kinds_of())
    make_oriented(browser)
    assert browser.evaluate(menu) == list(ORIENTED)
    assert browser.evaluate("[state.pred, state.target]") == places
    shown = "[...document.querySelectorAll('#surfaces button')].filter((b) => !b.hidden).length"
    assert browser.evaluate(shown) == len(ORIENTED)
    set_input(browser, "kind", "kld")
    browser.evaluate("byId('oriented').click()")
    browser.settle()
    assert browser.evaluate(menu) == list(kinds_of())
    assert browser.evaluate("[state.kind, byId('kind').value]") == ["diou", "diou"]
    assert browser.evaluate(shown) == len(kinds_of())
    assert text(browser, "#facts").startswith("IoU")
    assert browser.errors == []


@pytest.mark.parametrize("which", ["pred", "target"])
@pytest.mark.parametrize("swipe", [False, True])
def test_the_handle_turns_a_box_about_its_centre(browser, page, which, swipe):
    browser.show(page, width=375 if swipe else 1200, height=812)
    make_oriented(browser)
    browser.evaluate("stage.scrollIntoView({block: 'center'})")
    browser.settle()
    before, other = box_of(browser, which), {"pred": "target", "target": "pred"}[which]
    rest = box_of(browser, other)
    for turn in (0.6, -1.1):
        angle = angle_of(browser, which)
        drag_by_angle(browser, which, turn, swipe=swipe)
        assert angle_of(browser, which) - angle == pytest.approx(turn, abs=0.02)
    assert torch.equal(box_of(browser, which)[:, :4], before[:, :4])
    assert torch.equal(box_of(browser, other), rest)


def test_keys_turn_the_box_that_has_the_focus(oriented):
    step = oriented.evaluate("KEY_TURN")
    start = {which: angle_of(oriented, which) for which in ("pred", "target")}
    oriented.evaluate("document.querySelector('.box.target').focus()")
    for _ in range(3):
        oriented.press("]")
    oriented.press("[")
    assert angle_of(oriented, "target") - start["target"] == pytest.approx(2 * step)
    oriented.press("ArrowLeft", alt=True)
    oriented.press("ArrowLeft", alt=True)
    oriented.press("ArrowRight", alt=True)
    assert angle_of(oriented, "target") - start["target"] == pytest.approx(step)
    assert angle_of(oriented, "pred") == start["pred"]
    oriented.settle()
    label = oriented.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label.startswith("Target: centre 220 across, 165 down, 140 by 110, turned by 13°")


def test_axis_aligned_boxes_do_not_turn(browser, page):
    browser.show(page)
    before = browser.evaluate("state.angles")
    browser.evaluate("document.querySelector('.box.pred').focus()")
    browser.press("]")
    assert browser.evaluate("state.angles") == before
    hidden = "getComputedStyle(document.querySelector('.box.pred .knob')).display"
    assert browser.evaluate(hidden) == "none"


def test_a_corner_is_dragged_in_the_frame_of_the_box(oriented):
    oriented.evaluate("change({angles: {pred: 0.5, target: 2.2}})")
    oriented.settle()
    scale = oriented.evaluate("STAGE.width / stage.getBoundingClientRect().width")
    for which, corner in (("pred", 0), ("target", 2)):
        before = corners_of(oriented, which)
        x, y = oriented.evaluate(
            f"(() => {{ const r = boxes.{which}.grips[{corner}].reach.getBoundingClientRect();"
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        oriented.drag((x, y), (x - 14, y + 9))
        after = corners_of(oriented, which)
        shift = scale * torch.tensor([-14.0, 9.0], dtype=torch.float64)
        torch.testing.assert_close(after[corner], before[corner] + shift, rtol=0, atol=0.01)
        opposite = (corner + 2) % 4
        torch.testing.assert_close(after[opposite], before[opposite], rtol=0, atol=1e-9)
    assert angle_of(oriented, "pred") == 0.5


def test_keys_move_and_resize_an_oriented_box(oriented):
    before = corners_of(oriented, "pred")
    cx, cy, w, h, angle = box_of(oriented, "pred")[0].tolist()
    oriented.evaluate("document.querySelector('.box.pred').focus()")
    oriented.press("ArrowRight", shift=True)
    oriented.press("ArrowUp", shift=True)
    assert box_of(oriented, "pred")[0, 2:].tolist() == pytest.approx([w + 4, h - 4, angle])
    torch.testing.assert_close(corners_of(oriented, "pred")[0], before[0], rtol=0, atol=1e-9)
    cx, cy = box_of(oriented, "pred")[0, :2].tolist()
    oriented.press("ArrowRight")
    oriented.press("ArrowDown")
    assert box_of(oriented, "pred")[0, :2].tolist() == pytest.approx([cx + 4, cy + 4])


def test_an_oriented_box_keeps_its_centre_on_the_stage_and_its_sides(oriented):
    assert oriented.evaluate("centred(movedNow([10, 10, 50, 60], -100, 1000))") == [0, 300, 40, 50]
    for dx, dy, sides in ((-1000, -1000, [6, 6]), (1000, 1000, [400, 300])):
        local = f"rotated({dx}, {dy}, 0.7)"
        box = f"centred(resizedNow([10, 10, 50, 60], 0.7, CORNERS[2], ...{local}))"
        assert oriented.evaluate(box)[2:] == pytest.approx(sides)


def test_every_handle_can_be_reached_from_the_stage(oriented):
    oriented.evaluate("change({pred: [380, 0, 400, 12], target: [0, 280, 40, 300]})")
    for angle in range(-180, 180, 30):
        oriented.evaluate(
            f"change({{angles: {{pred: {math.radians(angle)}, target: {math.radians(angle)}}}}})"
        )
        oriented.settle()
        for which in ("pred", "target"):
            x, y = middle(oriented, KNOB.format(which))
            hit = oriented.evaluate(
                f"document.elementFromPoint({x}, {y}).closest('#stage') !== null"
            )
            assert hit, (which, angle)


def test_a_turned_target_under_the_prediction_can_be_held(oriented):
    oriented.evaluate(
        "change({pred: [50, 50, 350, 250], target: [150, 130, 250, 170],"
        "angles: {pred: 0.1, target: 1}})"
    )
    oriented.settle()
    # A place on the turned target that the target would not cover if it were not turned.
    x, y = oriented.evaluate(
        "(() => { const {left, top, width} = stage.getBoundingClientRect();"
        "const [x, y] = turnedPoint(state.target, 1, [240, 150]);"
        "return [left + x * width / 400, top + y * width / 400]; })()"
    )
    oriented.drag((x, y), (x + 20, y))
    assert oriented.evaluate("state.target")[0] > 155
    assert oriented.evaluate("state.pred") == [50, 50, 350, 250]


@pytest.mark.parametrize(("alpha", "penalty_alpha", "gain"), [(3.0, 3.0, 0), (0.5, 2.0, 1)])
def test_the_table_holds_the_losses_of_oriented_boxes(oriented, alpha, penalty_alpha, gain):
    oriented.evaluate("document.getElementById('tied').click()")
    set_input(oriented, "alpha", str(alpha))
    set_input(oriented, "penalty-alpha", str(penalty_alpha))
    set_input(oriented, "gain", str(gain))
    pred, target = box_of(oriented, "pred"), box_of(oriented, "target")
    rows = oriented.evaluate(
        "[...document.querySelectorAll('#losses tbody tr')].map((row) =>"
        "[...row.children].map((cell) => cell.textContent))"
    )
    assert [row[0] for row in rows] == [KINDS[kind].title for kind in ORIENTED]
    loss_of = partial(alpha_iou_loss, target=target, box_format="cxcywhr")
    for kind, (_, _, _, plain, now, slope, turn) in zip(ORIENTED, rows, strict=True):
        boxes = pred.clone().requires_grad_()
        loss = loss_of(boxes, kind=kind, alpha=alpha, penalty_alpha=penalty_alpha)
        (gradient,) = torch.autograd.grad(loss.sum(), boxes)
        assert number(now) == pytest.approx(2**gain * loss.item(), abs=6e-4)
        assert number(plain) == pytest.approx(loss_of(pred, kind=kind, alpha=1.0).item(), abs=6e-4)
        x, y, w, h, angle = gradient[0].tolist()
        # The four sides, moved along their normals, make these numbers of the box.
        squares = 0.5 * (x * x + y * y) + 2 * (w * w + h * h)
        assert number(slope) == pytest.approx(
            100 * 2**gain * math.sqrt(squares), abs=6e-4, rel=0.06
        )
        size, way = turn.split(" ")
        assert number(size) == pytest.approx(abs(2**gain * angle), abs=6e-4, rel=0.06)
        assert way == ("↻" if angle < 0 else "↺")


def test_pulls_on_the_sides_are_those_of_the_moved_sides(oriented):
    """By differences: a box with one side moved along its normal, the others left in place."""
    loss = oriented.evaluate("lossNow('giou', PLAIN)")
    pred, target = box_of(oriented, "pred"), box_of(oriented, "target")
    angle, step = pred[0, 4].item(), 1e-5
    along = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    across = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
    for i, (way, axis, sign) in enumerate(
        ((along, 2, -1), (across, 3, -1), (along, 2, 1), (across, 3, 1))
    ):
        losses = []
        for end in (-step, step):
            box = pred.clone()
            box[0, :2] += 0.5 * end * way
            box[0, axis] += sign * end
            losses.append(alpha_iou_loss(box, target, kind="giou", alpha=1, box_format="cxcywhr"))
        slope = (losses[1] - losses[0]).item() / (2 * step)
        assert loss["sides"][i] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("turn", [-0.5, 0.5])
def test_the_arc_points_where_the_loss_falls(oriented, turn):
    """Its tip lies beyond the handle along −∂L/∂θ, on the circle of the handle."""
    press_preset(oriented, "Turned")
    oriented.evaluate(f"change({{alpha: 1, kind: 'probiou', angles: {{pred: {turn}, target: 0}}}})")
    oriented.settle()
    slope = oriented.evaluate("lossNow(state.kind, powers()).angle")
    assert slope * turn > 0
    cx, cy, (x, y), (kx, ky) = oriented.evaluate(
        "[...centred(state.pred).slice(0, 2), document.querySelector('.pull.turn polygon')"
        ".getAttribute('points').split(' ')[0].split(',').map(Number), knobPlace('pred').knob]"
    )
    assert math.hypot(x - cx, y - cy) == pytest.approx(math.hypot(kx - cx, ky - cy))
    sweep = math.atan2(y - cy, x - cx) - math.atan2(ky - cy, kx - cx)
    assert math.remainder(sweep, 2 * math.pi) * -slope > 0.01
    assert oriented.evaluate("document.querySelectorAll('.pull').length") == 5
    label, pull = oriented.evaluate(
        "[...byId('pull').children].slice(-2).map((e) => e.textContent)"
    )
    assert label == "angle, per radian"
    assert number(pull.split(" ")[0]) == pytest.approx(abs(slope), abs=6e-4)


@pytest.mark.parametrize(("alpha", "penalty_alpha"), [(1.0, 1.0), (3.0, 0.7)])
def test_the_chart_holds_the_losses_by_the_angle(oriented, alpha, penalty_alpha):
    press_preset(oriented, "Turned")
    oriented.evaluate(
        f"change({{alpha: {alpha}, tied: false, penaltyAlpha: {penalty_alpha}, gain: 2}})"
    )
    oriented.settle()
    pred, target = box_of(oriented, "pred"), box_of(oriented, "target")
    points = oriented.evaluate(
        "[...document.querySelectorAll('#chart-angle polyline')].map((line) =>"
        "line.getAttribute('points').split(' ').map((point) => point.split(',').map(Number)))"
    )
    places = oriented.evaluate("chartAngles()")
    degrees = torch.tensor(places, dtype=torch.float64)
    assert (degrees.min(), degrees.max()) == (-90, 90)
    boxes = pred.repeat(len(degrees), 1)
    boxes[:, 4] = torch.deg2rad(degrees)
    losses = torch.stack(
        [
            2
            * alpha_iou_loss(
                boxes,
                target.expand_as(boxes),
                kind=kind,
                alpha=alpha,
                penalty_alpha=penalty_alpha,
                box_format="cxcywhr",
            )
            for kind in ORIENTED
        ]
    )
    drawn = torch.tensor(points, dtype=torch.float64)
    assert drawn.shape == (len(ORIENTED), len(degrees), 2)
    # The axes are linear: from the highest loss at 1/1.04 of the height down to 0.
    ends = oriented.evaluate("[CHART.left, CHART.width - CHART.right]")
    torch.testing.assert_close(
        drawn[0, :, 0], ends[0] + (ends[1] - ends[0]) * (degrees + 90) / 180, rtol=0, atol=0.06
    )
    top, bottom = oriented.evaluate("[CHART.top, CHART.height - CHART.bottom]")
    heights = bottom + (top - bottom) * losses / (1.04 * losses.max())
    torch.testing.assert_close(drawn[..., 1], heights, rtol=0, atol=0.06)


def test_the_chart_marks_the_angle_and_names_the_lines(oriented):
    press_preset(oriented, "Turned")
    oriented.evaluate("change({kind: 'gwd', angles: {pred: Math.PI + 0.5, target: 0.2}})")
    oriented.settle()
    mark, dots = oriented.evaluate(
        "[document.querySelector('#chart-angle .mark').getAttribute('x1'),"
        "[...document.querySelectorAll('#chart-angle .dot')].map((dot) => dot.getAttribute('cx'))]"
    )
    left, right = oriented.evaluate("[CHART.left, CHART.width - CHART.right]")
    expected = left + (right - left) * (math.degrees(0.5) + 90) / 180
    assert float(mark) == pytest.approx(expected)
    assert [float(dot) for dot in dots] == pytest.approx([expected] * len(ORIENTED))
    keys = oriented.evaluate(
        "[...byId('angle-legend').children].map((key) =>"
        "[...key.children].map((part) => part.textContent))"
    )
    rows = oriented.evaluate(
        "[...document.querySelectorAll('#losses tbody tr')].map((row) =>"
        "[row.children[0].textContent, row.children[4].textContent])"
    )
    assert keys == rows
    looks = oriented.evaluate(
        "[...document.querySelectorAll('#chart-angle polyline')].map((line) =>"
        "getComputedStyle(line).stroke + getComputedStyle(line).strokeDasharray)"
    )
    assert len(set(looks)) == len(ORIENTED)
    assert text(oriented, "#angle-legend .chosen span") == "GWD"


def test_exchanging_width_and_height_changes_nothing(oriented):
    press_preset(oriented, "w and h exchanged")
    assert text(oriented, "#numbers").startswith("0.000 =")
    oriented.evaluate("change({pred: [60, 60, 160, 120]})")
    kinds = "Object.keys(ORIENTED_KINDS).map((kind) => lossNow(kind, PLAIN).value)"
    once = oriented.evaluate(kinds)
    oriented.evaluate("change({pred: [80, 40, 140, 140], angles: {pred: Math.PI, target: 0}})")
    assert oriented.evaluate(kinds) == pytest.approx(once, rel=1e-9)
    assert min(once) > 0.1


def test_every_preset_of_oriented_boxes_is_drawn(oriented):
    names = oriented.evaluate("[...byId('presets').children].map((one) => one.textContent)")
    assert names[-1] == "Identical"
    for alpha in ("1", "3"):
        set_input(oriented, "alpha", alpha)
        for name in names:
            press_preset(oriented, name)
            wait_while(oriented, "painting && performance.now() < 60000")
            assert not oriented.evaluate("painting")
    assert text(oriented, "#numbers").startswith("0.000 =")
    assert oriented.evaluate("document.querySelectorAll('.pull').length") == 0
    assert oriented.evaluate("panels.kld.end.textContent") == "0 steps"


def test_a_surface_of_almost_equal_losses_is_painted(browser, page):
    """Between two equal points linear interpolation may round to less than both."""
    browser.show(page)
    seen = browser.evaluate(
        "(() => { const mesh = Array.from({length: MESH.rows}, () =>"
        "Array.from({length: MESH.columns}, () => 0.7)); mesh[0][0] = 1;"
        "const context = document.createElement('canvas').getContext('2d');"
        "let lowest = 1;"
        "for (let i = 0; i < 997; i += 1) lowest = Math.min(lowest, meshAt(mesh, i / 996, 0.5));"
        "paintSurface(context, mesh, 997, 40); return lowest; })()"
    )
    assert seen < 0.7


@pytest.mark.parametrize("kind", ORIENTED)
def test_descent_turns_boxes_as_the_simulation_does(oriented, kind):
    """Sixteen steps of the package's length, of targets of area 1 and of area 10,000."""
    points = torch.tensor([[10.6, 9.5]], dtype=torch.float64)
    anchors, targets = (boxes[0, ::7] for boxes in oriented_cases_at(points))
    loss = partial(alpha_iou_loss, kind=kind, alpha=3.0, box_format="cxcywhr")
    one_step = SimulationSettings(points=2, iterations=1, oriented=True)
    expected = anchors
    for _ in range(16):
        expected = descend(loss, expected, targets, one_step).boxes
    for scale in (1, 100):
        units = torch.tensor([scale] * 4 + [1], dtype=torch.float64)
        found = oriented.evaluate(
            f"(() => {{ const targets = {(targets * units).tolist()};"
            f"return {(anchors * units).tolist()}.map((box, i) => {{ const {{way}} = descentWay("
            f"{kind!r}, {{alpha: 3, penaltyAlpha: null}}, 10, box, targets[i]);"
            "return way[16] ?? null; }); })()"
        )
        # The page stops at an IoU of .95.
        moving = [i for i, box in enumerate(found) if box]
        assert len(moving) > 5
        boxes = torch.tensor([found[i] for i in moving], dtype=torch.float64) / units
        torch.testing.assert_close(boxes, expected[moving], rtol=1e-6, atol=1e-6)


def test_the_other_views_work_with_oriented_boxes(oriented):
    set_input(oriented, "kind", "probiou")
    show_tab(oriented, "curves")
    iou = box_iou(box_of(oriented, "pred"), box_of(oriented, "target"), box_format="cxcywhr")
    left, right = oriented.evaluate("[CHART.left, CHART.width - CHART.right]")
    place = oriented.evaluate("document.querySelector('#chart-loss .dot').getAttribute('cx')")
    assert float(place) == pytest.approx(left + (right - left) * iou.item())
    show_tab(oriented, "simulation")
    assert text(oriented, "#own-name") == "α-DIoU (α=3)"
    oriented.evaluate("byId('step').click()")
    assert text(oriented, "#progress").startswith("step 1 of")
