import csv
import math
import struct

import pytest
import torch

from alphaiou._figures import alpha_colours
from alphaiou.curves import (
    OFF_THE_AXIS,
    QUANTITIES,
    compute_curves,
    loss_and_gradient_figure,
    reweighting_figure,
    save_figures,
    write_csv,
)

ALPHAS = (3.0, 0.5, 1.0, 2.0)

CLOSED_FORMS = {
    "loss": lambda x, a: 1 - x**a,
    "gradient": lambda x, a: a * x ** (a - 1),
    "relative_loss_weight": lambda x, a: (1 - x**a) / (1 - x) if x < 1 else a,
    "relative_gradient_weight": lambda x, a: a * x ** (a - 1),
    "absolute_loss_weight": lambda x, a: x - x**a,
    "absolute_gradient_weight": lambda x, a: a * x ** (a - 1) - 1,
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = write_csv(compute_curves(ALPHAS), tmp_path_factory.mktemp("curves") / "deep" / "c.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_csv_holds_every_alpha_in_order_from_iou_0_to_1(rows):
    alphas = [float(row["alpha"]) for row in rows]
    assert sorted(set(alphas)) == sorted(ALPHAS)
    assert alphas == sorted(alphas)
    for alpha in ALPHAS:
        ious = [float(row["iou"]) for row in rows if float(row["alpha"]) == alpha]
        assert ious == sorted(ious)
        assert (ious[0], ious[-1], len(ious)) == (0, 1, 401)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_csv_holds_the_closed_forms(rows, quantity):
    for row in rows:
        iou, alpha = float(row["iou"]), float(row["alpha"])
        unbounded = iou == 0 and alpha < 1 and "gradient" in quantity
        expected = math.inf if unbounded else CLOSED_FORMS[quantity](iou, alpha)
        assert float(row[quantity]) == pytest.approx(expected, rel=1e-9, abs=1e-11)


def test_the_csv_holds_the_turning_points(rows):
    points = {float(row["alpha"]): float(row["turning_point"]) for row in rows}
    expected = {0.5: 0.25, 1.0: 1 / math.e, 2.0: 0.5, 3.0: 3**-0.5}
    assert points == pytest.approx(expected)


def test_an_alpha_given_twice_is_drawn_once():
    assert list(compute_curves((2.0, 1.0, 2.0))) == [1.0, 2.0]


@pytest.mark.parametrize("alphas", [(), (0.0,), (2.0, -1.0), (math.nan,)])
def test_bad_alphas_are_refused(alphas):
    with pytest.raises(ValueError, match="alpha"):
        compute_curves(alphas)


@pytest.mark.slow
def test_figures_are_written_as_png_and_svg_and_are_reproducible(tmp_path):
    curves = compute_curves(ALPHAS)
    first, second = (save_figures(curves, tmp_path / name) for name in ("one", "two"))
    assert [path.name for path in first] == [
        "loss_and_gradient.png",
        "loss_and_gradient.svg",
        "reweighting.png",
        "reweighting.svg",
    ]
    width, _ = struct.unpack(">II", first[0].read_bytes()[16:24])
    assert width == 2100  # 7 inches at 300 dots an inch
    assert first[1].read_text().startswith("<?xml")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("figure_of", [loss_and_gradient_figure, reweighting_figure])
def test_lines_are_the_numbers_and_dots_are_the_turning_points(figure_of):
    curves = compute_curves(ALPHAS)
    for axes in figure_of(curves).axes:
        lines = [line for line in axes.lines if len(line.get_xdata()) > 1]
        dots = [line.get_xdata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
        assert len(lines) == len(ALPHAS)
        assert sorted(dots) in ([], pytest.approx([0.25, 0.5, 3**-0.5]))
        plotted = [torch.tensor(line.get_ydata(), dtype=torch.float64) for line in lines]
        quantity = next(
            name
            for name in QUANTITIES
            if torch.equal(plotted[1], curves[1.0][name])
            and torch.equal(plotted[2], curves[2.0][name])
        )
        for line, curve in zip(plotted, curves.values(), strict=True):
            assert torch.equal(line, curve[quantity].clamp(max=OFF_THE_AXIS))


def test_colours_are_ordered_by_alpha_and_all_different():
    def lightness(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    colours = alpha_colours((0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0))
    assert len(set(colours.values())) == 7
    assert lightness(colours[0.25]) < lightness(colours[0.5])
    above = [lightness(colours[alpha]) for alpha in (2.0, 3.0, 5.0, 10.0)]
    assert above == sorted(above, reverse=True)
