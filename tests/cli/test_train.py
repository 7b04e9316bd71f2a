"""``alphaiou train`` from its arguments to its files."""

import json
from pathlib import Path

import pytest
import tyro

from alphaiou.cli import main
from alphaiou.cli.commands import COMMANDS
from alphaiou.cli.train import _recipe
from alphaiou.cli.train_options import Train
from alphaiou.cli.training_progress import epoch_line, scalars
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipes import RECIPES
from tests.training.runs import write_shapes

TINY = ["--detector", "yolov5n", "--image-size", "64", "--batch-size", "2", "--epochs", "2"]
TINY += ["--device", "cpu"]


@pytest.fixture(autouse=True)
def _plain_output(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def data(tmp_path):
    return write_shapes(tmp_path / "data")


def record():
    return json.loads(next(Path("runs/train").glob("*/record.json")).read_text())


def test_a_path_is_enough(data, capsys):
    assert main(["train", "--data", data, *TINY]) == 0
    out = capsys.readouterr().out
    found = record()
    assert (
        found["recipe"]["data"] | {"path": data, "train": "train", "val": "val", "test": None}
        == (found["recipe"]["data"])
    )
    assert found["recipe"]["precision"] == "fp32"
    assert LossSpec(**found["recipe"]["loss"]) == LossSpec("iou", 3.0)
    assert "split train): 4 images" in out
    assert "epoch 2 of 2: box" in out
    assert "images/s" in out
    assert "GiB" in out
    assert "yolov5n, α-IoU (α=3)" in out
    assert "mAP75:95" in out
    folder = Path("runs/train") / found["name"]
    for name in ("record.json", "best.safetensors"):
        assert f"wrote {folder / name}" in out
        assert (folder / name).exists()


def test_again_it_says_that_it_is_done(data, capsys):
    assert main(["train", "--data", data, *TINY]) == 0
    first = capsys.readouterr().out
    assert main(["train", "--data", data, *TINY]) == 0
    second = capsys.readouterr().out
    assert "is finished already" in second
    assert "epoch" not in second.splitlines()[0]
    assert first.splitlines()[-4:] == second.splitlines()[-4:], "the same table"


def test_options_change_the_fields_of_the_recipe(data):
    options = "--loss.kind ciou --loss.alpha 2 --optimisation.lr 0.5 --data.val None --seed 7"
    assert main(["train", "--data.path", data, *TINY, *options.split(), "--out", "elsewhere"]) == 0
    found = json.loads(next(Path("elsewhere").glob("*/record.json")).read_text())["recipe"]
    assert (found["loss"]["kind"], found["loss"]["alpha"]) == ("ciou", 2.0)
    assert found["optimisation"]["lr"] == 0.5
    assert found["data"]["val"] is None
    assert found["seed"] == 7


def test_short_ways_to_write_a_loss_and_a_schedule(data):
    short = ["--loss", "diou:3:1", "--alpha-schedule", "1:3:cosine"]
    assert main(["train", "quick", "--data", data, *TINY, *short, "--subset", "1"]) == 0
    found = record()["recipe"]
    assert LossSpec(**found["loss"]) == LossSpec("diou", 3.0, 1.0)
    assert found["alpha_schedule"] == {"start": 1.0, "end": 3.0, "shape": "cosine"}
    assert found["evaluate_every"] == 3, "of the recipe quick"


def recipe_of(*options):
    """The recipe that a command line means."""
    command = tyro.cli(Train, args=list(options))
    return _recipe(command)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_by_name(name):
    # Weights for ImageNet are not loaded before the training begins.
    found = recipe_of(name, "--data", "shapes-plain-64", "--data.test", "None", "--device", "cpu")
    named = RECIPES[name]()
    assert found.detector == named.detector
    assert found.optimisation == named.optimisation


def test_losses_of_the_other_detectors():
    where = ("--data", "shapes-plain-64", "--data.test", "None", "--device", "cpu")
    faster = recipe_of("faster-rcnn", *where, "--loss", "l1", "--rpn-loss", "giou:3")
    assert (faster.loss, faster.rpn_loss) == (LossSpec("l1"), LossSpec("giou", 3.0))
    matched = recipe_of("voc320-detr", *where, "--loss", "ciou", "--match-loss", "diou:2")
    assert (matched.loss, matched.match_loss) == (LossSpec("ciou"), LossSpec("diou", 2.0))
    wise = recipe_of("paper", *where, "--loss", "iou+wise_v3:3")
    assert wise.loss == LossSpec("iou", 3.0, modifiers=("wise_v3",))
    assert recipe_of("paper", *where, "--loss.modifiers", "wise_v3") == wise
    stepped = recipe_of("faster-rcnn", *where, "--optimisation.drops", "3", "5")
    assert stepped.optimisation.drops == (3, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--loss nonsense", "kind must be one of"),
        (
            "--loss l1",
            "'l1' is supported by fasterrcnn_r50_fpn only; with yolov5s it must be one of",
        ),
        ("--rpn-loss giou", "rpn_loss is not supported by yolov5s"),
        ("detr --norm group", "use auto, frozen or batch"),
        ("detr --nms-threshold 0.5", "nms_threshold is not supported by"),
        ("faster-rcnn --optimisation.schedule cosine", "drops needs"),
        ("--alpha-schedule 1", "START:END"),
        ("--alpha-schedule 1:3:zigzag", "shape"),
        ("--devices 0", "--devices 0: must be at least 1"),
        ("--workers -1", "--workers -1"),
        ("--epochs 0", "epochs must be at least 1, got 0"),
        ("--detector yolov9", "detector must be one of"),
        ("--image-size 100", "multiple of 32"),
        ("--subset 2", "subset must be above 0"),
        ("--nonsense", "--nonsense"),
        ("fast", "fast"),
    ],
)
def test_wrong_values_are_said_without_a_traceback(capsys, options, message):
    assert main(["train", *options.split()]) == 2
    err = capsys.readouterr().err
    assert message in " ".join(err.replace("│", " ").split())
    assert "Traceback" not in err
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data", "absent"], "absent: there is no such file or folder"),
        (["--data", "DATA", "--data.train", "nothing"], "the splits are: train, val"),
        (["--data", "DATA", "--select", "best-on-test"], "needs data.test"),
    ],
)
def test_data_that_cannot_be_used_are_one_line(data, capsys, options, message):
    options = [data if option == "DATA" else option for option in options]
    assert main(["train", *TINY, *options]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("alphaiou: ")
    assert len(err.splitlines()) == 1


def test_damaged_files_of_a_run_are_one_line(data, capsys):
    assert main(["train", "--data", data, *TINY]) == 0
    folder = Path("runs/train") / record()["name"]
    (folder / "record.json").write_text("{")
    assert main(["train", "--data", data, *TINY]) == 1
    assert "record.json is damaged" in capsys.readouterr().err
    (folder / "record.json").unlink()
    (folder / "last.safetensors").write_bytes(b"cut")
    assert main(["train", "--data", data, *TINY]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert "is not a complete safetensors file" in err
    assert "to resume from the previous checkpoint: mv" in err or "to start again: rm" in err


def test_tensorboard(data, capsys):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        assert main(["train", "--data", data, *TINY, "--tensorboard"]) == 2
        assert "pip install 'alphaiou[tensorboard]'" in capsys.readouterr().err
        pytest.skip("tensorboard is not installed")
    assert main(["train", "--data", data, *TINY, "--tensorboard"]) == 0
    events = EventAccumulator(str(Path("runs/train") / record()["name"]))
    events.Reload()
    assert [event.step for event in events.Scalars("train/box")] == [1, 2]
    assert "val/map" in events.Tags()["scalars"]


ENTRY = {
    "epoch": 3,
    "box": 0.5,
    "objectness": 0.25,
    "class": 0.125,
    "seconds": 90.0,
    "images_per_second": 1234.5,
    "memory_bytes": 3 * 2**30,
    "lost_boxes": 0,
}


def test_the_line_of_an_epoch():
    line = "epoch  3 of 10: box 0.500 objectness 0.250 class 0.125, 1,234 images/s, 3.0 GiB"
    assert epoch_line(ENTRY, 10) == f"{line}, 0:10:30 left"
    assert epoch_line(ENTRY | {"val": {"ap50": 0.5, "map": 0.25}}, 10).endswith(
        "left, val AP50 50.00 mAP 25.00"
    )
    assert "7 boxes exceeded the slots" in epoch_line(ENTRY | {"lost_boxes": 7}, 10)


def test_curves_have_a_name_for_every_number():
    names = scalars(ENTRY | {"val": {"map": 0.25}})
    assert names["train/box"] == 0.5
    assert names["val/map"] == 0.25
    assert "train/epoch" not in names


def test_help_names_the_recipes_and_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("train", "predict"):
        assert name in COMMANDS
        assert main([name, "--help"]) == 0
        out = capsys.readouterr().out
        usage, *rest = out.splitlines()
        assert max(map(len, rest)) <= 80
        assert usage.startswith(f"usage: alphaiou {name} ")
        assert ("voc320" in out) == (name == "train")
