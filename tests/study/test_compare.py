import io
import json
import multiprocessing
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from alphaiou.cli import main
from alphaiou.cli.compare import Compare, _print_table
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS
from alphaiou.study.compare import (
    CompareSettings,
    compare_grid,
    compare_recipes,
    compared_splits,
    runs_on_same_data,
    with_other_runs,
)
from alphaiou.study.detections import findings_of
from alphaiou.study.grid import Grid, Row
from alphaiou.study.runner import GridReport, run_grid
from alphaiou.study.tables import study_table, table_lines
from alphaiou.training.loop import Execution, Report, TrainingFailedError, fit
from alphaiou.training.record import RECORD, read_record
from tests.study.made import records_of

pytestmark = pytest.mark.slow

LENGTHS = {"train": 12, "val": 6}


@pytest.fixture(scope="module")
def small_set(tmp_path_factory):
    """A user's own data set: a few drawn images as YOLO files."""
    root = tmp_path_factory.mktemp("small")
    for split, length in LENGTHS.items():
        index = shapes_index(split, size=64, length=length, level="plain")
        write_yolo(index, root, images="copy")
    return root


@pytest.fixture(scope="module")
def arguments(small_set, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    options = ["--epochs", "2", "--image-size", "64", "--batch-size", "4", "--device", "cpu"]
    return ["compare", "iou", "diou:3:1", "--data", str(small_set), *options, "--out", str(out)]


@pytest.fixture(scope="module")
def compared(arguments):
    """The folder that ``alphaiou compare`` left."""
    assert main(arguments) == 0
    return Path(arguments[-1])


def records(folder):
    return {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/record.json")}


def test_a_run_a_loss_that_differ_in_nothing_else(compared):
    first, second = (record["recipe"] for record in records(compared).values())
    assert {str(LossSpec(**recipe.pop("loss"))) for recipe in (first, second)} == {
        "iou",
        "diou:3:1",
    }
    assert first == second
    assert (first["epochs"], first["image_size"], first["batch_size"]) == (2, 64, 4)


def test_the_table_and_the_way_to_the_report(compared, arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "mAP75:95" in out
    assert "α-DIoU (α=3, α₂=1)" in out
    assert f"scored on {LENGTHS['val']} images of 'val'" in out
    assert f"wrote {compared / 'comparison.html'}" in out


def test_a_second_call_only_renders(compared, arguments, capsys):
    before = {path: path.stat().st_mtime_ns for path in compared.glob("*/*") if path.is_file()}
    page = (compared / "comparison.html").read_bytes()
    assert main(arguments) == 0
    assert capsys.readouterr().out.count("is finished already") == 2
    after = {path: path.stat().st_mtime_ns for path in compared.glob("*/*") if path.is_file()}
    assert after == before
    assert (compared / "comparison.html").read_bytes() == page


def test_findings_are_those_of_the_weights(compared):
    for name in records(compared):
        kept = findings_of(compared / name)
        assert (kept.images, kept.split) == (LENGTHS["val"], "val")
        truth = shapes_index("val", size=64, length=LENGTHS["val"], level="plain")
        assert kept.objects == truth.num_boxes
        assert len(kept.ious) <= kept.objects
        assert all(0 < iou <= 1 for iou in kept.ious)
        (compared / name / "findings.json").unlink()
        assert findings_of(compared / name) == kept
        for example in kept.examples:
            assert (compared / name / example.picture).read_bytes()[1:4] == b"PNG"
            assert all(box.score >= kept.least_score for box in example.found)


def test_detections_are_kept_and_their_errors_are_in_the_page(compared, small_set, capsys):
    _, page = page_rows(compared)
    for text in ("Errors by type", "α-DIoU (α=3, α₂=1) against IoU"):
        assert text in page
    runs = records(compared)
    folders = [str(compared / name) for name in runs]
    options = ["--data", str(small_set), "--errors", "--out", str(compared / "eval")]
    assert main(["eval", *folders, *options]) == 0
    assert "errors at IoU 0.5" in capsys.readouterr().out
    scores = json.loads((compared / "eval/scores.json").read_text())["predictions"]
    for found, record in zip(scores, runs.values(), strict=True):
        # Boxes are rounded to 1/64 pixel.
        assert found["scores"]["ap50"] == pytest.approx(record["scores"]["ap50"], abs=0.01)


def page_rows(folder):
    """The losses of the page's table, and its text."""
    page = (folder / "comparison.html").read_text()
    table = page[page.index('<table class="study"') :].partition("</table>")[0]
    return re.findall(r'<tr class="ours"><th scope="row"><span>([^<]*)', table), page


def test_seeds_and_losses_are_added_to_one_page(small_set, tmp_path, capsys):
    options = ["--epochs", "1", "--image-size", "64", "--batch-size", "6", "--device", "cpu"]
    where = ["--data", str(small_set), "--out", str(tmp_path)]
    assert main(["compare", "iou", "giou", "--seeds", "2", *where, *options]) == 0
    out = capsys.readouterr().out
    assert "two seeds per row" in " ".join(out.split())
    assert "GIoU, seed 1: epoch 1 of 1" in out
    kept = records(tmp_path)
    assert sorted(r["recipe"]["seed"] for r in kept.values()) == [0, 0, 1, 1]
    rows, page = page_rows(tmp_path)
    assert rows == ["IoU", "GIoU"]
    assert "the same data, 1 epochs under each loss with seeds 0, 1; scored" in page
    # Other losses, another seed; a run with other settings stays off the page.
    assert main(["compare", "diou", *where, *options[2:], "--epochs", "2"]) == 0
    assert page_rows(tmp_path)[0] == ["DIoU"]
    assert main(["compare", "ciou", "iou", "--seed", "2", *where, *options]) == 0
    rows, page = page_rows(tmp_path)
    assert rows == ["CIoU", "IoU", "GIoU"]
    assert "seeds 0, 1, 2" in page
    assert "3 of 9 runs are missing: CIoU (seed 0), CIoU (seed 1), GIoU (seed 2)" in page


def test_the_table_has_intervals_of_the_linear_model(small_set):
    """The printed numbers are those of the table of the study."""
    recipes = compare_recipes(
        [LossSpec("iou"), LossSpec("iou", 3.0)], CompareSettings(str(small_set))
    )
    rows = (Row("IoU", recipes[0]), Row("α-IoU (α=3)", recipes[1], "IoU"))
    grid = Grid("compare", "Scores", rows, (0, 1, 2))
    made = records_of(grid)
    console = Console(width=80, file=io.StringIO())
    table = study_table(grid, made, PAPER_COLUMNS)
    _print_table(table, console)
    printed = console.file.getvalue()
    assert max(map(len, printed.split("Average precision")[0].splitlines())) <= 80
    for line in table_lines(table):
        for cell in line.cells:
            assert all(part.strip("()") in printed for part in cell.split())


def test_runs_on_other_data_are_left_out(small_set):
    losses = [LossSpec("iou"), LossSpec("giou"), LossSpec("diou")]
    whole = replace(compare_grid(losses, CompareSettings(str(small_set))), seeds=(0, 1))
    made = {name: run | {"data": {"annotations": "a"}} for name, run in records_of(whole).items()}
    asked = compare_grid(losses[1:2], CompareSettings(str(small_set)))
    found = with_other_runs(asked, runs_on_same_data(asked, made))
    assert sorted(row.label for row in found.rows) == ["DIoU", "GIoU", "IoU"]
    assert found.rows[0].label == "GIoU"
    assert [row.baseline for row in found.rows] == [None, "GIoU", "GIoU"]
    assert found.seeds == (0, 1)
    for run in made.values():  # the annotations have changed since
        if run["recipe"]["loss"]["kind"] == "iou" or run["recipe"]["seed"] == 1:
            run["data"] = {"annotations": "b"}
    found = with_other_runs(asked, runs_on_same_data(asked, made))
    assert [row.label for row in found.rows] == ["GIoU", "DIoU"]
    assert found.seeds == (0,)


@pytest.mark.parametrize(
    "wrong", [["--seeds", "0"], ["--seeds", "-1"], ["--seeds", "2", "--seed", "1"]]
)
def test_seeds_that_cannot_be(wrong, tmp_path, capsys):
    assert main(["compare", *wrong, "--out", str(tmp_path / "out")]) == 2
    assert "--seeds" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_lines_of_progress_without_a_terminal(small_set, tmp_path, capsys):
    options = ["--epochs", "2", "--image-size", "64", "--batch-size", "6", "--device", "cpu"]
    where = ["--data", str(small_set), "--out", str(tmp_path)]
    assert main(["compare", "iou", *where, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    epochs = [line for line in lines if "epoch" in line]
    assert len(epochs) == 2
    assert epochs[0].startswith("IoU: epoch 1 of 2, box loss ")
    assert epochs[0].endswith(" left")


def test_in_workers_it_is_the_same_as_alone(small_set, compared, tmp_path):
    settings = CompareSettings(str(small_set), image_size=64, batch_size=4, epochs=2)
    (recipe,) = compare_recipes([LossSpec("diou", 3.0, 1.0)], settings)
    name = fit(recipe, tmp_path, execution=Execution(device="cpu"))["name"]
    apart, alone = (read_record(folder / name / RECORD) for folder in (compared, tmp_path))
    assert apart["scores"] == alone["scores"]


def test_a_training_that_is_killed_fails(small_set, tmp_path):
    settings = CompareSettings(str(small_set), image_size=64, batch_size=4, epochs=2)
    grid = compare_grid([LossSpec("iou")], settings)

    def kill(*_):
        for child in multiprocessing.active_children():
            child.kill()

    often = GridReport(run=lambda _: Report(note=kill, stepped=kill))
    result = run_grid([grid], tmp_path, execution=Execution(device="cpu"), report=often)
    ((_, error),) = result.failed
    assert isinstance(error, TrainingFailedError)
    assert "exit code -9" in str(error)
    assert multiprocessing.active_children() == []


def test_an_error_of_a_run_is_one_of_the_command(small_set, tmp_path, capsys):
    labels = tmp_path / "set"
    shutil.copytree(small_set, labels)
    for path in labels.glob("labels/*/*.txt"):
        path.write_text("")
    options = ["--image-size", "64", "--device", "cpu", "--out", str(tmp_path / "out")]
    assert main(["compare", "iou", "--data", str(labels), *options]) == 1
    assert "no boxes to train on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        (["uoi"], 2, "kind must be one of"),
        (["iou:x"], 2, "write kind, kind:alpha"),
        (["--detector", "yolov9"], 2, "yolov5n"),
        (["--image-size", "90"], 2, "multiple of 32"),
        (["--epochs", "-1"], 2, "epochs must be at least 1"),
        (["--data", "/no/such/set"], 1, "shapes-plain"),
        (["--data", "shapes-plain-9"], 1, "64 to 2048 pixels"),
    ],
)
def test_errors_in_one_line(wrong, code, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["compare", *wrong, "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_recipes_say_the_same_whatever_the_size_and_the_classes(small_set):
    (small,) = compare_recipes([LossSpec("iou")], CompareSettings(str(small_set), image_size=64))
    (large,) = compare_recipes([LossSpec("iou")], CompareSettings("shapes", image_size=640))
    # What YOLOv5's loss makes of the gains: objectness by the area, classes by their number.
    assert small.detector.objectness_gain * (64 / 640) ** 2 == pytest.approx(
        large.detector.objectness_gain
    )
    assert small.detector.class_gain * 4 == pytest.approx(large.detector.class_gain * 12)


def test_the_default_is_the_paper_question():
    first, second = compare_recipes([LossSpec("iou"), LossSpec("iou", 3.0)], CompareSettings())
    assert asdict(replace(second, loss=first.loss)) == asdict(first)
    assert first.select == "last"  # nothing is chosen on the images that are scored
    assert first.data.val == "val"
    assert first.data.path == Compare().data


@pytest.mark.parametrize(
    ("detector", "optimiser", "gain", "lr"),
    [("fasterrcnn_r50_fpn", "sgd", 10.0, 0.01), ("detr_r50", "adamw", 2.0, 5e-5)],
)
def test_other_detectors_are_trained_their_own_way(detector, optimiser, gain, lr):
    settings = CompareSettings(detector=detector, epochs=7, batch_size=8)
    first, second = compare_recipes([LossSpec("iou"), LossSpec("iou", 3.0)], settings)
    assert asdict(replace(second, loss=first.loss)) == asdict(first)
    assert (first.detector.name, first.optimisation.optimiser, first.box_gain) == (
        detector,
        optimiser,
        gain,
    )
    assert (first.image_size, first.epochs, first.detector.backbone_weights) == (64, 7, "none")
    assert first.optimisation.schedule == "cosine"
    assert first.optimisation.lr == pytest.approx(lr), "goes with the batch"


def test_splits_of_sets_without_val(tmp_path):
    for split in ("train", "test"):
        write_coco(shapes_index(split, size=64, length=2), tmp_path / "two", images="copy")
    write_coco(shapes_index("train", size=64, length=2), tmp_path / "one", images="copy")
    assert compared_splits(str(tmp_path / "two")).val == "test"
    alone = compared_splits(str(tmp_path / "one"))
    assert (alone.val, alone.train) == (None, "train")
    assert alone.hold_out > 0


def test_words_for_drawn_sets():
    plain = load_dataset("shapes-plain-96", "val").index
    assert plain.classes == shapes_index("val", length=1, level="plain").classes
    assert plain.sizes.max() == 96
    assert load_dataset("shapes-128", "val").index.sizes.max() == 128
    assert len(load_dataset("shapes-plain", "val").index.classes) == 4
    assert load_dataset("shapes-discs-64", "val").index.classes == ("disc",)
    assert split_names("shapes-plain-96") == split_names("shapes")


@pytest.mark.parametrize("word", ["shapes-hard", "shapes-plain-", "shapes-96-plain"])
def test_other_words_are_no_sets(word):
    with pytest.raises(DataError, match="shapes-discs, shapes-oriented, and each with a"):
        load_dataset(word, "train")
    with pytest.raises(DataError, match="no drawn set"):
        load_dataset(word, "train", layout="shapes")
