"""Several processes train as one does: real ones, joined by gloo."""

import json
from pathlib import Path

import pytest
import torch

from alphaiou._environment import DeviceError
from alphaiou.losses.spec import LossSpec
from alphaiou.training.processes import Processes, is_first_process
from alphaiou.training.recipe import Optimisation
from tests.training.runs import tensors, tiny_recipe, train, train_together, write_shapes

pytestmark = pytest.mark.slow

# Sums over processes are in another order than sums within one. That is 1e-7 of a number, but
# batch norms over sixteen pixels make 3e-4 of a gradient of it (as does a change of the weights by
# 1e-7), and steps multiply it; hence few and small ones. A share that is counted twice, or
# statistics of half a batch, change the gradient by a third and more.
CLOSE = 0.01
GENTLE = {"lr": 1e-4, "warmup_bias_lr": 1e-4, "warmup_steps": 2, "warmup_epochs": 0.0}


def record_of(folder):
    return json.loads(next(Path(folder).glob("*/record.json")).read_text())


@pytest.mark.parametrize(
    ("loss", "accumulate"), [("ciou:3", 1), ("ciou:3", 2), ("iou+wise_v3:3", 1)]
)
def test_two_processes_train_to_the_weights_of_one(tmp_path, loss, accumulate):
    path = write_shapes(tmp_path / "data", train=8, val=3)
    recipe = tiny_recipe(
        path,
        loss=LossSpec.parse(loss),
        batch_size=4,
        epochs=3,
        data={"val": "val"},
        select="best",
        evaluate_every=1,
        optimisation=Optimisation(**GENTLE, accumulate=accumulate),
    )
    train(recipe, tmp_path / "one")
    assert train_together(recipe, tmp_path / "two", 2) == [0, 0]
    one, two = tensors(tmp_path / "one"), tensors(tmp_path / "two")
    assert one.keys() == two.keys()
    difference = (two["velocity"] - one["velocity"]).norm() / one["velocity"].norm()
    assert difference < CLOSE
    for name, tensor in one.items():
        if name != "velocity":
            torch.testing.assert_close(two[name], tensor, rtol=1e-3, atol=1e-5, msg=name)
        if name.endswith("mean_loss"):  # which has hardly left 1
            assert (1 - two[name]).item() == pytest.approx((1 - tensor).item(), rel=1e-3)
    mine, theirs = record_of(tmp_path / "one"), record_of(tmp_path / "two")
    for first, second in zip(mine["history"], theirs["history"], strict=True):
        for part in ("box", "objectness", "class", "lost_boxes"):
            assert second[part] == pytest.approx(first[part], rel=1e-3)
    assert theirs["scored_on"] == "val"
    assert theirs["scores"].keys() == mine["scores"].keys()


def test_a_process_without_images_to_score_waits_for_the_others(tmp_path):
    path = write_shapes(tmp_path / "data", train=4, val=1)
    recipe = tiny_recipe(path, batch_size=2, epochs=1, data={"val": "val"})
    assert train_together(recipe, tmp_path / "runs", 2) == [0, 0]
    assert record_of(tmp_path / "runs")["scores"]["map"] is not None


def test_shares_of_a_batch_are_disjoint_and_whole():
    both = []
    for rank in range(2):
        processes = Processes()
        processes.count, processes.rank = 2, rank
        both += [range(12)[rows] for rows in processes.shares(12, pieces=3)]
    assert sorted(row for rows in both for row in rows) == list(range(12))
    with pytest.raises(DeviceError, match="multiple of 3 pieces times 2 processes, got 10"):
        processes.shares(10, pieces=3)


def test_the_first_process_is_known_before_they_are_joined(monkeypatch):
    assert is_first_process()
    monkeypatch.setenv("RANK", "1")
    assert not is_first_process()
