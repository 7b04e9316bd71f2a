"""``--missing`` of the commands that train: half a set is refused, unless told."""

import json
from pathlib import Path

import pytest

from alphaiou.cli import main
from tests.training.runs import write_shapes

SMALL = ("--image-size", "64", "--batch-size", "2")
COMMANDS = {
    "train": ("train", "--detector", "yolov5n", *SMALL),
    "compare": ("compare", "iou", *SMALL),
    "paper run": ("paper", "run", "table1", "--quick", "--only", "α-DIoU"),
}


@pytest.fixture
def lacking(tmp_path):
    """A quarter of the training images is not there."""
    data = write_shapes(tmp_path / "set")
    next((tmp_path / "set/images/train").iterdir()).unlink()
    return data


@pytest.fixture
def where(lacking, tmp_path):
    return ["--data", lacking, "--out", str(tmp_path / "runs"), "--epochs", "1", "--device", "cpu"]


def records(tmp_path):
    return list((tmp_path / "runs").glob("*/record.json"))


@pytest.mark.parametrize("command", ["train", "compare"])
def test_half_a_set_is_refused_and_an_image_named(command, where, tmp_path, capsys):
    assert main([*COMMANDS[command], *where]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "1 of the 4 images of split 'train' cannot be used, such as" in said
    assert ".png: there is no such file" in said
    assert "--missing 1" in said
    assert not records(tmp_path)


@pytest.mark.parametrize("command", ["train", "compare"])
def test_told_so_they_train_on_what_is_there(command, where, tmp_path):
    assert main([*COMMANDS[command], *where, "--missing", "0.25"]) == 0
    (record,) = records(tmp_path)
    assert "train: 1 image left out (1 image-missing)" in json.loads(record.read_text())["notes"]


@pytest.mark.slow
def test_a_grid_refuses_what_it_is_told_to(tmp_path, capsys):
    """One image of forty, which is few enough unless told: so that nothing need be trained."""
    data = write_shapes(tmp_path / "set", train=40)
    next((tmp_path / "set/images/train").iterdir()).unlink()
    where = ["--data", data, "--out", str(tmp_path / "runs"), "--epochs", "1", "--device", "cpu"]
    assert main([*COMMANDS["paper run"], *where, "--missing", "0"]) == 1
    said = " ".join("".join(capsys.readouterr()).split())
    assert "1 of the 40 images of split 'train' cannot be used, such as" in said
    assert not records(tmp_path)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("share", ["2", "-0.1", "nan"])
def test_what_is_no_share_is_wrong_usage(command, share, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--missing", share]) == 2
    assert f"--missing must be from 0 to 1, got {share}" in capsys.readouterr().err
    assert not Path("runs").exists()
