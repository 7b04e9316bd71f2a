import csv
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from alphaiou._figures import save_figure
from alphaiou.losses.spec import LossSpec
from alphaiou.simulate import (
    SimulationResult,
    SimulationSettings,
    line_looks,
    load_run,
    nearest_picture,
    result_path,
    run_simulation,
    run_simulations,
    save_run,
    simulation_figure,
    summary,
    write_curves_csv,
    write_summary_csv,
)

SMALL = SimulationSettings(points=3, iterations=10)
SPECS = [LossSpec("iou"), LossSpec("diou", 3.0)]


def same(a: SimulationResult, b: SimulationResult) -> bool:
    return all(torch.equal(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


def test_a_second_call_takes_what_the_first_one_kept(tmp_path):
    first = run_simulations(SPECS[:1], SMALL, tmp_path)
    second = run_simulations(SPECS, SMALL, tmp_path)
    third = run_simulations(SPECS, SMALL, tmp_path, fresh=True)
    assert [run.resumed for run in (*first, *second, *third)] == [False, True, False, False, False]
    assert same(first[0].result, second[0].result)
    assert same(first[0].result, third[0].result)


def test_an_interrupted_loss_leaves_nothing_and_the_finished_one_stays(tmp_path):
    steps = 0

    def stop_in_the_second_loss(cases):
        nonlocal steps
        steps += 1
        if steps > SMALL.iterations + 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_simulations(SPECS, SMALL, tmp_path, on_step=stop_in_the_second_loss)
    assert list((tmp_path / "results").iterdir()) == [result_path(SPECS[0], SMALL, tmp_path)]
    assert [run.resumed for run in run_simulations(SPECS, SMALL, tmp_path)] == [True, False]


@pytest.mark.parametrize(
    "change", [{"points": 4}, {"iterations": 11}, {"learning_rate": 0.2}, {"seed": 1}]
)
def test_other_settings_are_another_result(tmp_path, change):
    other = replace(SMALL, **change)
    assert result_path(SPECS[0], SMALL, tmp_path) != result_path(SPECS[0], other, tmp_path)


def test_a_file_that_cannot_be_read_is_computed_again(tmp_path):
    path = result_path(SPECS[0], SMALL, tmp_path)
    path.parent.mkdir()
    for content in (b"", b"not an archive", b"PK\x03\x04 half of one"):
        path.write_bytes(content)
        assert load_run(SPECS[0], path) is None
    assert not run_simulations(SPECS[:1], SMALL, tmp_path)[0].resumed


def test_a_saved_run_comes_back_whole(tmp_path):
    run = run_simulation(SPECS[1], SMALL)
    save_run(run, tmp_path / "run.npz")
    loaded = load_run(SPECS[1], tmp_path / "run.npz")
    assert same(loaded.result, run.result)
    assert loaded.seconds == run.seconds
    assert loaded.resumed


def test_equal_slope_divides_the_step_by_alpha(tmp_path):
    (equal,) = run_simulations(SPECS[1:], SMALL, tmp_path, equal_slope=True)
    (slower,) = run_simulations(SPECS[1:], replace(SMALL, learning_rate=0.1 / 3), tmp_path)
    assert same(equal.result, slower.result)
    assert slower.resumed  # the same settings, by another way


def test_torch_gets_its_threads_back():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_simulation(SPECS[0], replace(SMALL, iterations=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def runs():
    return [run_simulation(spec, SMALL) for spec in SPECS]


def test_the_csv_files_hold_the_results(runs, tmp_path):
    with write_curves_csv(runs, tmp_path / "curves.csv").open(newline="") as file:
        curves = list(csv.DictReader(file))
    assert [(row["loss"], int(row["iteration"])) for row in curves] == [
        (name, iteration) for name in ("iou", "diou:3") for iteration in range(11)
    ]
    errors = [float(row["mean_error"]) for row in curves]
    assert errors == pytest.approx(torch.cat([run.result.error for run in runs]).tolist())
    with write_summary_csv(runs, SMALL, tmp_path / "summary.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert table == [summary(run, SMALL) for run in runs]
    for row, run in zip(table, runs, strict=True):
        assert float(row["mean_iou"]) == pytest.approx(run.result.iou[-1].item(), abs=1e-6)
        assert float(row["share_iou_over_0.5"]) == pytest.approx(
            run.result.shares[0].item(), abs=1e-6
        )
        expected = run.result.final_error.sum().item() * 343
        assert float(row["total_error"]) == pytest.approx(expected, rel=1e-4)
        assert int(row["cases"]) == 3 * 343


def test_the_map_gives_every_pixel_the_value_of_the_nearest_point():
    points, values = np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([1.0, 2.0])
    picture = nearest_picture(points, values, 0.0, 1.0)
    half = picture.shape[1] // 2
    assert (picture[:, :half] == 1).all()
    assert (picture[:, half:] == 2).all()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_figure_has_a_curve_and_a_map_for_every_loss(runs, tmp_path, count):
    many = (runs * 3)[:count]
    paths = save_figure(lambda: simulation_figure(many, SMALL), tmp_path / "figure")
    assert [path.suffix for path in paths] == [".png", ".svg"]
    figure = simulation_figure(many, SMALL)
    assert sum(len(axes.images) for axes in figure.findobj(match=_is_map)) == count


def _is_map(artist):
    return bool(getattr(artist, "images", None))


def test_kinds_differ_by_colour_and_powers_by_dashes():
    specs = [LossSpec("iou"), LossSpec("ciou"), LossSpec("iou", 3.0), LossSpec("ciou", 3.0, 1.0)]
    looks = line_looks(specs)
    assert looks[0]["color"] == looks[2]["color"] != looks[1]["color"] == looks[3]["color"]
    dashes = [
        look["linestyle"] if look["linestyle"] == "-" else look["linestyle"][1] for look in looks
    ]
    assert dashes[0] == dashes[1] == "-"
    assert len(set(dashes)) == 3
