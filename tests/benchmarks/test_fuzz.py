import json

import pytest
import torch

from alphaiou import alpha_iou_loss
from benchmarks import fuzz_quality
from benchmarks.adversarial import FAMILIES, adversarial_pairs
from benchmarks.agreement import agreement, relative_change
from benchmarks.contenders import TORCHVISION_KINDS
from benchmarks.fuzz import Battery, finite_rows, hull_sides, is_ordinary, main


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


def test_quick_fuzz_really_runs(capsys, tmp_path):
    path = tmp_path / "record.json"
    options = ["--kinds", "giou", "piou", "--alphas", "0.5", "3", "--device", "cpu"]
    assert main(["--quick", *options, "--out", str(path)]) == 0
    out = capsys.readouterr().out
    assert "reference giou α=0.5: 560 pairs, not finite: 0 values, 0 gradients; errors" in out
    assert str(path) in out
    record = json.loads(path.read_text())
    assert record["complete"] is True
    assert record["settings"]["backends"] == ["auto", "reference"]
    finite = [row for row in record["rows"] if row["test"] == "finite"]
    ours = [row for row in finite if row["contender"] in {"auto", "reference"}]
    assert len(ours) == 2 * 2 * 2 * 4 * 2  # backends, kinds, powers, dtypes, domains
    assert sum(row["nonfinite_values"] + row["nonfinite_gradients"] for row in ours) == 0
    theirs = {row["kind"]: 0 for row in finite if row["contender"] == "torchvision"}
    assert set(theirs) == set(TORCHVISION_KINDS)
    assert sum(row["nonfinite_values"] for row in finite if row["kind"] == "ciou") > 0
    assert sum(row["test"] == "agreement" for row in record["rows"]) == 8


def test_quick_fuzz_of_the_quality_losses(capsys, tmp_path):
    path = tmp_path / "record.json"
    assert (
        fuzz_quality.main(["--quick", "--device", "cpu", "--alphas", "3", "--out", str(path)]) == 0
    )
    assert "mal α=3: 4,000 entries, not finite: 0, 0" in capsys.readouterr().out
    record = json.loads(path.read_text())
    assert record["complete"] is True
    assert len(record["rows"]) == 4 * 4  # losses, dtypes
    for row in record["rows"]:
        assert row["nonfinite_values"] == row["nonfinite_gradients"] == 0
        assert 400 < row["ordinary"] < row["entries"] == 1000
        assert (row["gradient_error"] is not None) == (row["dtype"] == "fp32")


def test_the_fuzz_of_the_quality_losses_sees_what_is_not_finite(monkeypatch):
    options = fuzz_quality._options(["--quick", "--device", "cpu"])
    entries = fuzz_quality.adversarial_entries(1000, "fp32", options)
    assert entries.logits.isfinite().all()
    assert entries.logits.abs().max() == torch.finfo(torch.float32).max
    naive = lambda logits, *_, **__: -torch.sigmoid(logits).log()  # noqa: E731
    monkeypatch.setattr(fuzz_quality, "quality_loss", naive)
    row = fuzz_quality.fuzzed(entries, "vfl", 1.0)
    assert row["nonfinite_values"] > 100
    assert row["nonfinite_gradients"] > 100
