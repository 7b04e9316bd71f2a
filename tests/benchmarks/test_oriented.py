import argparse
import json
import subprocess
import sys

import pytest
import torch

from alphaiou import alpha_iou_loss, box_iou
from benchmarks import oriented, oriented_speed
from benchmarks.adversarial import ORIENTED_FAMILIES, oriented_pairs
from tools.oriented_tables import areas_table, contract_table, speed_table

OPTIONS = argparse.Namespace(pairs=520, seed=0, device=torch.device("cpu"))


def test_pairs_are_finite_and_of_every_family():
    pred, target = oriented_pairs(10 * len(ORIENTED_FAMILIES) + 3, seed=5)
    assert pred.shape == target.shape == (10 * len(ORIENTED_FAMILIES) + 3, 5)
    assert pred.isfinite().all()
    assert target.isfinite().all()


def test_faults_are_counted():
    def wrong(pred, target):  # depends on the writing, leaves the range, is NaN for large boxes
        value = (pred[:, 2] - target[:, 2]).abs() + 0.1
        return torch.where(pred[:, 2] > 1e3, torch.nan, value)

    def rounded(pred, target):
        return (pred[:, 2] - target[:, 2]).abs() + 1e-7

    everywhere, ordinary = oriented.contract_rows(wrong, 1.0, OPTIONS)
    assert everywhere["pairs"] == 520 > ordinary["pairs"] > 0
    assert everywhere["identical_nonzero"] == everywhere["identical"] > 0
    assert 0 < ordinary["identical_far"] <= everywhere["identical_far"] <= everywhere["identical"]
    assert oriented.contract_rows(rounded, 1.0, OPTIONS)[0]["identical_far"] == 0
    for fault in ("nonfinite_values", "out_of_range", "writing_dependent"):
        assert everywhere[fault] > 0


def test_a_difference_that_rounding_explains_is_no_dependence():
    box = torch.tensor([[0.0, 0.0, 1.0, 1e-5, 1.0]])
    turned = box + torch.tensor([[0.0, 0.0, 0.0, 0.0, 3e-6]])

    def loss(pred, target):
        return alpha_iou_loss(pred, target, kind="iou", alpha=1.0, box_format="cxcywhr")

    tested, dependent = oriented.writing_dependence(loss, turned, box)
    assert tested.all()
    assert not dependent.any()
    tested, _ = oriented.writing_dependence(loss, torch.full_like(box, 1e9), box)
    assert not tested.any()


def test_a_loss_in_fp32_gets_its_own_rounding():
    def iou_loss(pred, target):
        assert pred.dtype == target.dtype == torch.float32
        return 1.0 - box_iou(pred, target, box_format="cxcywhr")

    options = {"slopes": False, "rewrite": False}
    rows = oriented.contract_rows(iou_loss, 1.0, OPTIONS, single=True, **options)
    assert rows[0]["pairs"] == 520
    assert rows[0]["nonfinite_values"] == rows[0]["out_of_range"] == 0
    assert "nonfinite_gradients" not in rows[0]


def test_rows_of_others_stay_with_their_dates_and_versions():
    def record(date, torch_version, *contenders):
        rows = [{"contender": name, "date": date} for name in contenders]
        versions = {"torch": torch_version, **dict.fromkeys(contenders, date)}
        settings = {"pairs": 8, "contenders": list(contenders)}
        head = {"date": date, "device": "CPU", "threads": int(date), "versions": versions}
        return head | {"settings": settings, "rows": rows}

    first = oriented.beside({"rows": []}, record("1", "2.1", "alphaiou", "ultralytics"))
    assert first["rows"] == []
    first["rows"] = record("1", "2.1", "alphaiou", "ultralytics")["rows"]
    second = oriented.beside(first, record("2", "2.2", "mmcv"))
    assert second["rows"] == first["rows"]
    assert second["dates"] == {"alphaiou": "1", "ultralytics": "1", "mmcv": "2"}
    assert second["versions"] == {"torch": "2.1", "alphaiou": "1", "ultralytics": "1", "mmcv": "2"}
    assert second["settings"]["contenders"] == ["alphaiou", "ultralytics", "mmcv"]
    assert second["threads"] == 1
    second["rows"] += record("2", "2.2", "mmcv")["rows"]
    third = oriented.beside(second, record("3", "2.3", "ultralytics"))
    assert [row["contender"] for row in third["rows"]] == ["alphaiou", "mmcv"]
    assert third["dates"] == {"alphaiou": "1", "ultralytics": "3", "mmcv": "2"}
    ours = oriented.beside(second, record("5", "2.5", "alphaiou"))
    assert ours["versions"] == {"torch": "2.5", "alphaiou": "5", "ultralytics": "1", "mmcv": "2"}
    anew = oriented.beside(third, record("4", "2.4", *oriented.CONTENDERS))
    assert anew["rows"] == []
    assert anew["versions"]["torch"] == "2.4"


def test_the_record_has_what_the_tables_need(tmp_path):
    path = tmp_path / "record.json"
    arguments = ["--quick", "--contenders", "ultralytics", "--device", "cpu", "--out", str(path)]
    # In a process of its own: Ultralytics changes how Pillow opens images.
    subprocess.run([sys.executable, "-m", "benchmarks.oriented", *arguments], check=True)
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["complete"]
    line = contract_table(record).splitlines()[-1]
    assert line.startswith("| ProbIoU, Ultralytics | 520 |")
    rows = oriented.area_rows(argparse.Namespace(contenders=["alphaiou"], area_pairs=200, seed=1))
    assert all(row["error"] < 1e-6 for row in rows)
    assert len(areas_table({"rows": rows}).splitlines()) == 5


@pytest.mark.slow
def test_speed_is_recorded(tmp_path):
    path = tmp_path / "record.json"
    arguments = ["--quick", "--no-compile", "--device", "cpu", "--out", str(path)]
    assert oriented_speed.main(arguments) == 0
    record = json.loads(path.read_text(encoding="utf-8"))
    assert {row["error"] for row in record["rows"]} == {None}
    assert "| IoU | shapely (area of the intersection) |" in speed_table(record)
