import csv
import subprocess
import sys

import pytest

from alphaiou import KINDS, __version__
from alphaiou.cli import main
from alphaiou.losses.spec import LossSpec

TINY_SIMULATION = ("--points", "2", "--iterations", "5", "--device", "cpu")


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"alphaiou {__version__}\n"


def test_the_module_runs_as_a_program():
    command = [sys.executable, "-m", "alphaiou", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"alphaiou {__version__}\n")


BLOCKER = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
from alphaiou.cli import main
sys.exit(main({arguments!r}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["tyro", "rich", "matplotlib", "numpy"])
def test_without_the_extra_the_command_says_what_to_install(tmp_path, missing):
    code = BLOCKER.format(missing=missing, arguments=["curves", "--out", str(tmp_path)])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install '.[cli]'" in done.stderr
    assert missing in done.stderr
    assert "Traceback" not in done.stderr


def test_another_missing_module_is_not_blamed_on_the_extra(tmp_path):
    code = BLOCKER.format(missing="torch", arguments=["curves", "--out", str(tmp_path)])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert ".[cli]" not in done.stderr
    assert "No module named 'torch'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulat"], ["no command 'simulat'", "did you mean simulate?"]),
        (["xyz"], ["no command 'xyz'", "curves, simulate"]),
        (["simulate", "jou"], ["'jou'", *KINDS]),
        (["simulate", "ciou:three"], ["'ciou:three'", "kind:alpha"]),
        (["simulate", "ciou+outer"], ["'ciou+outer'", "modifiers must be one of inner"]),
        (["simulate", "iou+wise_v3"], ["'iou+wise_v3'", "running mean", "take the modifier wise"]),
        (["simulate", "ciou:3:1:2"], ["'ciou:3:1:2'", "kind:alpha"]),
        (["simulate", "ciou:-1"], ["'ciou:-1'", "alpha must be", ">= 0"]),
        (["simulate", "ciou:3:0"], ["'ciou:3:0'", "penalty_alpha must be", "> 0"]),
        (["simulate", "--points", "0"], ["points must be an integer >= 1, got 0"]),
        (["curves", "--alphas", "0"], ["--alphas", "(0, inf)", "got 0.0"]),
        (["curves", "--alphas", "x"], ["--alphas", "x"]),
        (["curves", "--speed", "1"], ["--speed"]),
    ],
)
def test_wrong_arguments_exit_with_2_and_say_what_is_allowed(capsys, tmp_path, arguments, words):
    if arguments[0] in ("simulate", "curves"):
        arguments = [*arguments, "--out", str(tmp_path / "out")]
    assert main(arguments) == 2
    message = " ".join(capsys.readouterr().err.split())
    for word in words:
        assert word in message
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("data chek there", "no command 'data chek'; did you mean data check?"),
        ("paper tabels", "no command 'paper tabels'; did you mean paper tables?"),
        (
            "data xyz",
            "no command 'data xyz'; commands: data check, data convert, data subset, data stats, "
            "data noise",
        ),
        (
            "data check there --splt train",
            "data check has no option --splt; did you mean --split? See alphaiou data check --help",
        ),
        (
            "predict a.jpg --weigths best.safetensors",
            "predict has no option --weigths; did you mean --weights? See alphaiou predict --help",
        ),
        ("curves --xyz 3", "curves has no option --xyz. See alphaiou curves --help"),
        ("doctor now", "doctor: unexpected argument 'now'. See alphaiou doctor --help"),
    ],
)
def test_a_wrong_word_is_one_line_with_the_nearest_one(capsys, arguments, message):
    assert main(arguments.split()) == 2
    assert capsys.readouterr().err == f"alphaiou: {message}\n"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [("data", "data"), ("data check", "data check"), ("eval", "eval")],
)
def test_what_is_missing_is_said_with_a_command_that_exists(capsys, arguments, command):
    assert main(arguments.split()) == 2
    err = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"alphaiou {command} --help" in err


def test_a_folder_that_cannot_be_made_is_a_message(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert main(["curves", "--out", str(tmp_path / "file" / "out")]) == 1
    assert "file" in capsys.readouterr().err


def test_curves_writes_figures_and_numbers(capsys, tmp_path):
    assert main(["curves", "--alphas", "0.5", "1", "4", "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "curves.csv",
        "loss_and_gradient.png",
        "loss_and_gradient.svg",
        "reweighting.png",
        "reweighting.svg",
    ]
    with (tmp_path / "curves.csv").open(newline="") as file:
        assert {row["alpha"] for row in csv.DictReader(file)} == {"0.5", "1", "4"}
    out = capsys.readouterr().out
    assert "0.6300" in out  # the turning point of α = 4
    assert str(tmp_path / "reweighting.svg") in out


@pytest.mark.slow
def test_simulate_writes_a_table_a_figure_and_numbers_and_resumes(capsys, tmp_path):
    options = (*TINY_SIMULATION, "--out", str(tmp_path))
    assert main(["simulate", "iou", "ciou:3:1", *options]) == 0
    out = capsys.readouterr().out
    assert "686 cases, 5 iterations, seed 0" in out
    assert "α-CIoU (α=3, α₂=1)" in out
    assert "earlier run" not in out
    names = {"results", "simulation.png", "simulation.svg", "summary.csv", "curves.csv"}
    assert {path.name for path in tmp_path.iterdir()} == names
    first = (tmp_path / "curves.csv").read_text()

    assert main(["simulate", "iou", "ciou:3:1", *options]) == 0
    assert "earlier run (--fresh recomputes them): iou ciou:3:1" in " ".join(
        capsys.readouterr().out.split()
    )
    assert (tmp_path / "curves.csv").read_text() == first

    assert main(["simulate", "iou", "ciou:3:1", "--fresh", *options]) == 0
    assert "earlier run" not in capsys.readouterr().out
    assert (tmp_path / "curves.csv").read_text() == first


def test_a_loss_named_twice_is_simulated_once(tmp_path):
    assert main(["simulate", "iou", "iou:1", *TINY_SIMULATION, "--out", str(tmp_path)]) == 0
    assert len(list((tmp_path / "results").iterdir())) == 1


def test_the_default_losses_are_the_papers_with_and_without_alpha():
    from alphaiou.cli.simulate import Simulate

    specs = [LossSpec.parse(text) for text in Simulate().losses]
    assert [(spec.kind, spec.alpha) for spec in specs] == [
        (kind, alpha) for alpha in (1.0, 3.0) for kind in ("iou", "giou", "diou", "ciou")
    ]


@pytest.mark.parametrize(
    ("text", "spec", "name"),
    [
        ("iou", LossSpec("iou"), "IoU"),
        ("iou:3", LossSpec("iou", 3.0), "α-IoU (α=3)"),
        ("ciou:3:1", LossSpec("ciou", 3.0, 1.0), "α-CIoU (α=3, α₂=1)"),
        ("shape_iou:0.5", LossSpec("shape_iou", 0.5), "α-Shape-IoU (α=0.5)"),
    ],
)
def test_a_loss_reads_back_as_it_is_written(text, spec, name):
    assert LossSpec.parse(text) == spec
    assert str(spec) == text
    assert spec.display_name == name
