import json
import sys

import pytest
import torch

from alphaiou import alpha_iou_loss
from benchmarks.contenders import (
    PLAIN_KINDS,
    TORCHVISION_KINDS,
    contenders,
    plain_loss,
    torchvision_loss,
)
from benchmarks.losses import DTYPES, Cell, cells, main, realistic_pairs, rows_of, with_ratios
from benchmarks.record import load_record, write_record
from benchmarks.timing import Measurement, copy_bandwidth, measure
from tests.records import losses_record, losses_row

LOSSES_HEAD = {
    *("record", "date", "device", "device_type", "threads", "versions"),
    *("settings", "copy_gb_per_s", "complete", "rows"),
}
CPU = torch.device("cpu")


def test_ciou_in_every_size_and_dtype_the_others_at_both_ends():
    found = cells(("ciou", "eiou"), DTYPES, (10, 100, 1000))
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
    assert load_record(path) == record
    lines = path.read_text().splitlines()
    assert sum(line.startswith(' {"kind"') for line in lines) == len(record["rows"])
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def test_quick_losses_really_run(capsys, tmp_path):
    path = tmp_path / "record.json"
    options = ["--kinds", "ciou", "nwd", "--backends", "reference", "--device", "cpu"]
    assert main(["--quick", "--no-compile", *options, "--out", str(path)]) == 0
    out = capsys.readouterr().out
    assert "ciou α=3 fp32 64 forward+backward: reference " in out
    assert str(path) in out
    record = json.loads(path.read_text())
    assert set(record) == LOSSES_HEAD
    assert record["record"] == "losses"
    assert record["complete"] is True
    assert record["settings"]["quick"] is True
    assert {"python", "alphaiou", "torch"} <= set(record["versions"])
    assert {row["contender"] for row in record["rows"]} == {"reference", "eager", "torchvision"}
    assert all(set(row) == set(losses_row("fused")) for row in record["rows"])
    assert all(row["error"] is None and row["wall_ms"] > 0 for row in record["rows"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kinds", "jou"], "shape_iou"),
        (["--dtypes", "fp8"], "bf16"),
        (["--sizes", "0"], "must be at least 1, got 0"),
        (["--device", "gpu"], "must be auto, cpu or cuda"),
    ],
)
def test_wrong_options_exit_with_2_and_say_what_is_allowed(capsys, arguments, words):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present")
def test_without_a_cuda_device_the_command_says_so(capsys):
    with pytest.raises(SystemExit):
        main(["--device", "cuda"])
    assert "use --device cpu" in capsys.readouterr().err
