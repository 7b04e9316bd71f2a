import io
import json
import sys

import pytest
import torch
from rich.console import Console

from alphaiou import KINDS, alpha_iou_loss
from alphaiou.cli import main
from benchmarks import command as without_tyro
from benchmarks.adversarial import FAMILIES, adversarial_pairs
from benchmarks.agreement import agreement, relative_change
from benchmarks.contenders import (
    PLAIN_KINDS,
    TORCHVISION_KINDS,
    contenders,
    plain_loss,
    torchvision_loss,
)
from benchmarks.fuzz import Battery, finite_rows, hull_sides, is_ordinary
from benchmarks.losses import (
    DTYPES,
    Cell,
    cells,
    realistic_pairs,
    rows_of,
    with_ratios,
)
from benchmarks.record import read_record, write_record
from benchmarks.settings import KIND_NAMES, FuzzBench, LossBench
from benchmarks.terminal import fuzz_view, losses_view, print_losses
from benchmarks.timing import Measurement, copy_bandwidth, measure
from tests.records import losses_record, losses_row

LOSSES_HEAD = {
    *("record", "date", "device", "device_type", "threads", "versions"),
    *("settings", "copy_gb_per_s", "complete", "rows"),
}
CPU = torch.device("cpu")


def shown(renderable, width=100):
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


# --- losses: what is measured ---------------------------------------------------------------------


def test_the_settings_know_every_kind():
    assert set(KIND_NAMES) == set(KINDS)


def test_ciou_in_every_size_and_dtype_the_others_at_both_ends():
    settings = LossBench(kinds=("ciou", "eiou"))
    found = cells(settings, (10, 100, 1000))
    assert len(found) == len(set(found))
    backward = {(c.kind, c.dtype, c.alpha, c.pairs) for c in found if c.mode != "forward"}
    assert backward == {
        *(("ciou", dtype, 3.0, pairs) for dtype in DTYPES for pairs in (10, 100, 1000)),
        *(("ciou", "fp32", 1.0, pairs) for pairs in (10, 1000)),
        *(("eiou", "fp32", 3.0, pairs) for pairs in (10, 1000)),
    }
    assert sum(cell.mode == "forward" for cell in found) == len(found) // 2


@pytest.mark.parametrize(
    ("dtype", "mode", "bytes_a_pair"),
    [
        ("fp32", "forward", 32),
        ("fp32", "forward+backward", 80),
        ("fp16", "forward", 16),
        ("bf16", "forward+backward", 56),
    ],
)
def test_least_bytes(dtype, mode, bytes_a_pair):
    assert Cell("ciou", 3.0, dtype, 7, mode).least_bytes == 7 * bytes_a_pair


def test_realistic_pairs_overlap_like_predictions_do():
    pred, target = realistic_pairs(2000, seed=1)
    for boxes in (pred, target):
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert boxes.abs().max() < 1000
    iou = 1 - alpha_iou_loss(pred, target, alpha=1.0)
    assert 0.5 < iou.mean() < 0.9
    assert torch.equal(pred, realistic_pairs(2000, seed=1)[0])


@pytest.mark.parametrize("alpha", [1.0, 3.0])
@pytest.mark.parametrize("kind", PLAIN_KINDS)
def test_all_contenders_compute_the_same_loss(kind, alpha):
    pred, target = realistic_pairs(500)
    found = contenders(kind, alpha, backends=("reference",), compiled=False)
    names = [one.name for one in found]
    assert names == ["reference", "eager", *["torchvision"] * (kind in TORCHVISION_KINDS)]
    ours, plain = (one.loss(pred, target) for one in found[:2])
    torch.testing.assert_close(plain, ours, rtol=1e-5, atol=1e-6)
    if alpha == 1.0 and len(found) == 3:
        torch.testing.assert_close(found[2].loss(pred, target), ours, rtol=1e-5, atol=1e-6)


def test_the_plain_losses_are_a_code_object_each():
    first, second = (
        contenders(kind, 3.0, backends=(), compiled=False)[0].loss for kind in ("iou", "ciou")
    )
    assert first.__code__ is not second.__code__
    pred, target = realistic_pairs(10)
    assert first(pred, target) == plain_loss(pred, target, "iou", 3.0).mean()


def test_without_torchvision_there_is_one_contender_less(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    assert torchvision_loss("ciou") is None
    assert len(contenders("ciou", 3.0, backends=("reference",), compiled=False)) == 2


def test_measure_times_everybody_and_outlives_a_failure():
    counts = {"good": 0}

    def good():
        counts["good"] += 1

    def bad():
        raise RuntimeError("no such thing\nand a long trace")

    results = measure(
        {"bad": bad, "good": good},
        device=CPU,
        repeats=3,
        seconds=0.0,
        capturable={"bad": True, "good": True},
    )
    assert list(results) == ["bad", "good"]
    assert results["bad"] == Measurement(error="RuntimeError: no such thing")
    good_result = results["good"]
    assert good_result.calls == 3
    assert counts["good"] == 3 + 3 + 2  # rounds, warm-up, estimate
    assert 0 < good_result.wall_ms_fastest <= good_result.wall_ms == good_result.device_ms
    assert good_result.device_how == "wall"


def test_copy_bandwidth_is_a_positive_number():
    assert copy_bandwidth(CPU, megabytes=1, repeats=2) > 0


# --- losses: arithmetic and record ----------------------------------------------------------------


def test_ratios_on_a_cell_made_by_hand():
    rows = with_ratios(
        [
            losses_row("fused", wall_ms=0.5, device_ms=0.1),
            losses_row("reference", wall_ms=4.0, device_ms=3.0),
            losses_row("eager", wall_ms=3.0, device_ms=2.0),
            losses_row("compiled", wall_ms=1.0, device_ms=0.8),
            losses_row("torchvision", wall_ms=6.0, device_ms=5.0),
        ]
    )
    fused, reference, *_, theirs = rows
    assert fused["wall_vs_torchvision"] == 12.0
    assert fused["wall_vs_best_peer"] == 2.0
    assert fused["device_vs_torchvision"] == pytest.approx(50.0)
    assert fused["device_vs_best_peer"] == pytest.approx(8.0)
    assert reference["wall_vs_best_peer"] == 0.25  # slower: below 1, and said so
    assert theirs["wall_vs_torchvision"] == 1.0


def test_ratios_without_peers_or_with_failed_ones_are_none():
    (alone,) = with_ratios([losses_row("fused")])
    assert alone["wall_vs_torchvision"] is None
    assert alone["device_vs_best_peer"] is None
    ours, failed = with_ratios(
        [losses_row("fused"), losses_row("torchvision", wall_ms=None, device_ms=None)]
    )
    assert ours["wall_vs_torchvision"] is None
    assert failed["wall_vs_torchvision"] is None


def test_bandwidth_and_memory_of_a_row():
    cell = Cell("ciou", 3.0, "fp32", 1000, "forward+backward")
    (fused, _) = contenders("ciou", 3.0, backends=("reference",), compiled=False)[:2]
    results = [
        (fused, Measurement(wall_ms=1.0, device_ms=0.5, device_how="graph", peak_bytes=24_000)),
        (fused, Measurement(error="it broke")),
    ]
    good, bad = rows_of(cell, results, bandwidth=320e6)
    assert good["gb_per_s"] == pytest.approx(0.16)  # 80 bytes · 1000 pairs in half a millisecond
    assert good["share_of_copy"] == pytest.approx(0.5)
    assert good["memory_bytes_per_pair"] == 24
    assert bad["error"] == "it broke"
    assert bad["gb_per_s"] is bad["memory_bytes_per_pair"] is None


def test_a_record_is_written_a_row_a_line_and_read_back(tmp_path):
    record = losses_record()
    path = write_record(record, tmp_path / "new" / "record.json")
    assert read_record(path) == record
    lines = path.read_text().splitlines()
    assert sum(line.startswith(' {"kind"') for line in lines) == len(record["rows"])
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


@pytest.mark.parametrize("clock", ["wall", "device"])
def test_the_table_of_the_losses_is_readable_at_100_columns(clock):
    text = shown(losses_view(losses_record(), clock))
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 100
    line = next(line for line in text.splitlines() if "4,194,304" in line and "fwd+bwd" in line)
    assert line.split()[:3] == ["ciou:3", "4,194,304", "fwd+bwd"]


def test_a_contender_that_could_not_run_is_named():
    record = losses_record()
    record["rows"][0] |= {"wall_ms": None, "error": "it broke"}
    console = Console(width=100, file=io.StringIO())
    print_losses(record, console)
    assert "could not run fused: it broke" in console.file.getvalue()


@pytest.mark.parametrize("program", [main, without_tyro.main])
def test_quick_losses_really_run(program, capsys, tmp_path):
    path = tmp_path / "record.json"
    options = ["--kinds", "ciou", "nwd", "--backends", "reference", "--device", "cpu"]
    arguments = ["losses", "--quick", "--no-compile", *options, "--out", str(path)]
    assert program(["bench", *arguments] if program is main else arguments) == 0
    out = capsys.readouterr().out
    assert "wall time from Python" in out
    assert str(path) in out
    record = json.loads(path.read_text())
    assert set(record) == LOSSES_HEAD
    assert record["record"] == "losses"
    assert record["complete"] is True
    assert record["settings"]["quick"] is True
    assert set(record["versions"]) == {"python", "alphaiou", "torch", "torchvision", "triton"}
    assert {row["contender"] for row in record["rows"]} == {"reference", "eager", "torchvision"}
    assert all(set(row) == set(losses_row("fused")) for row in record["rows"])
    assert all(row["error"] is None and row["wall_ms"] > 0 for row in record["rows"])


def test_wrong_settings_say_what_is_allowed(capsys):
    for wrong in ({"kinds": ("jou",)}, {"dtypes": ("fp8",)}, {"sizes": (0,)}, {"repeats": 0}):
        with pytest.raises(ValueError, match="must be"):
            LossBench(**wrong)
    with pytest.raises(ValueError, match="pairs must be at least 1, got 0"):
        FuzzBench(pairs=0)
    assert main(["bench", "losses", "--kinds", "jou"]) == 2
    assert "shape_iou" in capsys.readouterr().err
    assert without_tyro.main(["losses", "--kinds", "jou"]) == 2
    assert "shape_iou" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_cuda_device_the_command_says_so(capsys):
    assert main(["bench", "losses", "--device", "cuda"]) == 2
    assert "use --device cpu" in capsys.readouterr().err


# --- fuzz -----------------------------------------------------------------------------------------


def test_the_battery_is_finite_and_has_every_family():
    pred, target = adversarial_pairs(10 * len(FAMILIES) + 3, seed=5)
    assert pred.shape == target.shape == (10 * len(FAMILIES) + 3, 4)
    assert pred.isfinite().all()
    assert target.isfinite().all()


def test_ordinary_pairs_are_in_order_and_of_pixel_or_unit_size():
    box = [0.0, 0.0, 1.0, 1.0]
    others = {
        (0.0, 0.0, 1.0, 0.0): True,  # flat
        (5.0, 5.0, 5.0, 5.0): True,  # a point
        (1.0, 0.0, 0.0, 1.0): False,  # inverted
        (0.0, 0.0, 2e4, 1.0): False,  # far away
    }
    pred = torch.tensor(list(others))
    assert is_ordinary(pred, torch.tensor([box]).expand_as(pred)).tolist() == list(others.values())
    tiny = torch.tensor([[0.0, 0.0, 1e-5, 1e-5]])
    assert not is_ordinary(tiny, tiny).any()


def test_finite_rows_count_pairs_by_domain():
    pred = torch.tensor([[0.0, 0.0, 2.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]])
    target = torch.tensor([[1.0, 0.0, 4.0, 1.0]]).expand_as(pred)
    chunk = Battery(pred, target, hull_sides(pred, target), is_ordinary(pred, target))
    assert chunk.sides[0].tolist() == [4.0, 1.0, 4.0, 1.0]

    def loss(pred, target):  # NaN for the second pair, an infinite gradient for the third
        value = 3 * pred[:, 0] - 5 * pred[:, 1]
        nan = torch.tensor([1.0, float("nan"), 1.0])
        return value * nan + torch.tensor([0.0, 0.0, 1.0]) * (pred[:, 0] - 1).abs().sqrt()

    everywhere, ordinary = finite_rows(loss, [chunk, chunk])
    assert everywhere["pairs"] == 6
    assert everywhere["nonfinite_values"] == 2
    assert everywhere["nonfinite_gradients"] == 4
    assert ordinary["pairs"] == 4
    assert ordinary["nonfinite_gradients"] == 2
    assert ordinary["largest_gradient"] == 12.0  # 3 over a hull 4 wide, not 5 over one 1 high


def test_agreement_finds_an_error_and_leaves_out_kinks():
    pairs = adversarial_pairs(1400, seed=2)

    def exact(pred, target):
        return alpha_iou_loss(pred, target, kind="diou", alpha=1.0, backend="reference")

    def wrong(pred, target):  # an error of 1e-3 in value and gradient
        return exact(pred, target) * 1.001

    row = agreement(exact, exact, [pairs])
    assert row["pairs"] == 1400
    assert 300 < row["comparable"] < 1300
    assert row["value_error"] < 1e-5
    assert row["gradient_error"] < 1e-4
    assert row["gradient_off"] == 0
    assert row["examples"] == []
    row = agreement(wrong, exact, [pairs])
    assert row["gradient_off"] > row["comparable"] // 2
    assert 1e-4 < row["gradient_error"] < 1.2e-3
    assert len(row["examples"]) == 3
    identical = pairs[1][:100]
    assert agreement(wrong, exact, [(identical, identical)])["comparable"] == 0


def test_relative_change_is_over_the_largest_component():
    exact = torch.tensor([[1.0, 100.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    change = relative_change(exact + torch.tensor([0.5, 0.0, 0.0, 0.0]), exact)
    assert change.tolist() == pytest.approx([0.005, 50.0])


@pytest.mark.parametrize("program", [main, without_tyro.main])
def test_quick_fuzz_really_runs(program, capsys, tmp_path):
    path = tmp_path / "record.json"
    options = ["--kinds", "giou", "piou", "--alphas", "0.5", "3", "--device", "cpu"]
    arguments = ["fuzz", "--quick", *options, "--out", str(path)]
    assert program(["bench", *arguments] if program is main else arguments) == 0
    assert "hard boxes" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert record["complete"] is True
    assert record["settings"]["backend"] == "reference"
    finite = [row for row in record["rows"] if row["test"] == "finite"]
    ours = [row for row in finite if row["contender"] == "reference"]
    assert len(ours) == 2 * 2 * 4 * 2  # kinds, powers, dtypes, domains
    assert sum(row["nonfinite_values"] + row["nonfinite_gradients"] for row in ours) == 0
    theirs = {row["kind"]: 0 for row in finite if row["contender"] == "torchvision"}
    assert set(theirs) == set(TORCHVISION_KINDS)
    assert sum(row["nonfinite_values"] for row in finite if row["kind"] == "ciou") > 0
    assert sum(row["test"] == "agreement" for row in record["rows"]) == 4
    text = shown(fuzz_view(record))
    assert "…" not in text
