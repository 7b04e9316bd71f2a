import argparse
import json
import subprocess
import sys

import pytest
import torch

from alphaiou import alpha_iou_loss
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

    everywhere, ordinary = oriented.contract_rows(wrong, 1.0, OPTIONS)
    assert everywhere["pairs"] == 520 > ordinary["pairs"] > 0
    assert everywhere["identical_nonzero"] == everywhere["identical"] > 0
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
