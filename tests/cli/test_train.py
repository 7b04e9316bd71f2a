"""``alphaiou train`` from its arguments to its files."""

import json
from pathlib import Path

import pytest
import tyro

from alphaiou.cli import main
from alphaiou.cli.commands import COMMANDS
from alphaiou.cli.train import _recipe
from alphaiou.cli.train_options import options_of
from alphaiou.cli.training_progress import epoch_line
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.faster_rcnn.config import FasterRCNNConfig
from alphaiou.detectors.yolov5.config import YOLOv5nConfig
from alphaiou.losses.spec import LossSpec
from alphaiou.study.report.loggers import scalars
from alphaiou.training.recipe import DataRecipe, Recipe
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
    assert LossSpec(**found["recipe"]["loss"]) == LossSpec("ciou")
    assert "split train): 4 images" in out
    assert "epoch 2 of 2: box" in out
    assert "images/s" in out
    assert "GiB" in out
    assert "yolov5n, CIoU" in out
    assert "mAP75:95" in out
    folder = Path("runs/train") / found["name"]
    pictures = ("batch.jpg", "predictions.jpg", "training.html")
    for name in ("record.json", "best.safetensors", *pictures):
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


def test_a_page_that_cannot_be_written_is_said_and_none_is_wished(data, capsys, tmp_path):
    assert main(["train", "--data", data, *TINY, "--no-page"]) == 0
    out = capsys.readouterr().out
    folder = Path("runs/train") / record()["name"]
    assert not list(folder.glob("*.jpg"))
    assert "training.html" not in out
    weights = folder / "best.safetensors"
    weights.rename(tmp_path / "elsewhere")
    assert main(["train", "--data", data, *TINY]) == 0
    said = capsys.readouterr().out
    assert f"{folder / 'training.html'} could not be written: {weights}: there is no" in said
    assert "mAP75:95" in said
    (tmp_path / "elsewhere").rename(weights)
    assert main(["train", "--data", data, *TINY]) == 0
    assert (folder / "training.html").exists()


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
    command = tyro.cli(options_of(options), args=list(options))
    return _recipe(command)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_by_name(name):
    # Weights for ImageNet are not loaded before the training begins.
    named = RECIPES[name]()
    test = "val" if named.select == "best-on-test" else "None"
    found = recipe_of(name, "--data", "shapes-plain-64", "--data.test", test, "--device", "cpu")
    assert found.detector == named.detector
    assert found.optimisation == named.optimisation


def test_a_recipe_from_a_file_with_changes(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("detector: yolov5n\nclass_gain: 4\nloss: ciou:3\ndata: {path: shapes}\n")
    found = recipe_of("--config", str(path), "--epochs", "7", "--objectness-gain", "2")
    detector = YOLOv5nConfig(class_gain=4.0, objectness_gain=2.0)
    loss, data = LossSpec("ciou", 3.0), DataRecipe("shapes")
    assert found == Recipe(detector=detector, loss=loss, data=data, epochs=7)
    other = recipe_of(f"--config={path}", "--detector", "detr_r50", "--dropout", "0")
    assert other.detector == DETRConfig(dropout=0.0)
    assert other.loss == loss


def test_a_recipe_of_a_run_repeats_it(data, capsys):
    assert main(["train", "--data", data, *TINY]) == 0
    first = record()
    path = f"runs/train/{first['name']}/recipe.yaml"
    assert main(["train", "--config", path, "--device", "cpu", "--out", "again"]) == 0
    again = json.loads(Path(f"again/{first['name']}/record.json").read_text())
    assert again["weights"] == first["weights"]
    assert again["scores"] == first["scores"]


def test_a_file_with_a_mistake_is_said_without_a_traceback(tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text("optimisation: {warmup_step: 3}")
    assert main(["train", "--config", str(path)]) == 1
    message = f"{path}: optimisation.warmup_step is not a field; did you mean warmup_steps?"
    assert capsys.readouterr().err == f"alphaiou: {message}\n"
    assert main(["train", "--config", "absent.yaml"]) == 1
    assert "absent.yaml: cannot be read" in capsys.readouterr().err
    assert main(["train", "--config"]) == 2


def test_another_detector_has_its_own_settings(capsys):
    found = recipe_of("paper", "--detector", "fasterrcnn_r50_fpn", "--data", "shapes")
    assert found.detector == FasterRCNNConfig()
    assert main(["train", "paper", "--detector", "detr_r50", "--class-gain", "1"]) == 2
    assert "--class-gain" in capsys.readouterr().err


def test_yes_and_no_are_values_of_options_that_say_what_they_mean(capsys):
    assert recipe_of("paper", "--data", "shapes").optimisation.nesterov
    changed = recipe_of("paper", "--data", "shapes", "--optimisation.nesterov", "False")
    assert not changed.optimisation.nesterov
    assert main(["train", "faster-rcnn", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--optimisation.nesterov {True,False} Whether to use Nesterov momentum. (default" in out
    assert "optimisation.no-" not in out


def test_losses_of_the_other_detectors():
    where = ("--data", "shapes-plain-64", "--data.test", "None", "--device", "cpu")
    faster = recipe_of("faster-rcnn", *where, "--loss", "l1", "--rpn-loss", "giou:3")
    assert (faster.loss, faster.detector.rpn_loss) == (LossSpec("l1"), LossSpec("giou", 3.0))
    matched = recipe_of("voc320-detr", *where, "--loss", "ciou", "--match-loss", "diou:2")
    assert (matched.loss, matched.detector.match_loss) == (LossSpec("ciou"), LossSpec("diou", 2.0))
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
            "'l1' is supported by fasterrcnn_r50_fpn only, not by yolov5n",
        ),
        ("--rpn-loss giou", "rpn_loss is not supported by yolov5n"),
        ("detr --norm group", "use auto, frozen or batch"),
        (
            "detr --nms-threshold 0.5",
            "train detr has no option --nms-threshold; it is one of auto, paper, paper-code, "
            "voc320, quick, faster-rcnn, voc320-faster-rcnn. See alphaiou train detr --help",
        ),
        (
            "detr --optimisation.warmup-step 3",
            "did you mean --optimisation.warmup-steps? See alphaiou train detr --help",
        ),
        ("--epoch=3", "train has no option --epoch; did you mean --epochs? See alphaiou train"),
        ("ditr --epochs 3", "no command 'train ditr'; did you mean train detr?"),
        ("quick more", "train quick: unexpected argument 'more'. See alphaiou train quick --help"),
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
        (["paper", "--data", "DATA", "--select", "best-on-test"], "needs data.test"),
    ],
)
def test_data_that_cannot_be_used_are_one_line(data, capsys, options, message):
    options = [data if option == "DATA" else option for option in options]
    assert main(["train", *options, *TINY]) in (1, 2)
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
    for name in ("last.safetensors", "previous.safetensors"):
        (folder / name).write_bytes(b"cut")
    assert main(["train", "--data", data, *TINY]) == 1
    err = capsys.readouterr().err
    assert len(err.splitlines()) == 1
    assert err.count("is not a complete safetensors file") == 2
    assert f"to start again: rm -r {folder}" in err


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


def test_weights_to_start_from_and_what_is_frozen(data, capsys):
    assert main(["train", "--data", data, *TINY]) == 0
    source = Path("runs/train") / record()["name"]
    tuned = ["train", "--data", data, *TINY, "--out", "tuned", "--weights", str(source)]
    assert main([*tuned, "--freeze", "backbone", "network.head.0"]) == 0
    found = json.loads(next(Path("tuned").glob("*/record.json")).read_text())
    assert found["recipe"]["weights"] == str(source)
    assert found["recipe"]["freeze"] == ["backbone", "network.head.0"]
    assert "taken 262 of 262 tensors from" in " ".join(capsys.readouterr().out.split())
    for options, message in (
        ([*TINY, "--weights", str(source), "--freeze", "10"], "no parameter begins with '10'"),
        ([*TINY, "--weights", "absent.pth"], "absent.pth: there is no such file"),
        (
            ["--detector", "yolov5s", *TINY[2:], "--weights", str(source)],
            "has the weights of yolov5n, not of yolov5s",
        ),
    ):
        assert main(["train", "--data", data, *options]) == 1
        assert message in " ".join(capsys.readouterr().err.split())
    assert main(["train", "--data", data, *TINY, "--freeze", "backbone"]) == 2
    assert "freeze needs weights" in capsys.readouterr().err
