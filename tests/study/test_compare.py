import json
import multiprocessing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from alphaiou.cli import main
from alphaiou.cli.compare import Compare
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.formats.layouts import load_dataset, split_names
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.losses.spec import LossSpec
from alphaiou.study.compare import (
    CompareSettings,
    compare_recipes,
    compared_splits,
    run_comparison,
)
from alphaiou.study.detections import choose_examples, findings_of
from alphaiou.study.runner import fit_side_by_side
from alphaiou.training.loop import Execution, Report, TrainingFailedError
from alphaiou.training.record import finished_record

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


def test_lines_of_progress_without_a_terminal(small_set, tmp_path, capsys):
    options = ["--epochs", "2", "--image-size", "64", "--batch-size", "6", "--device", "cpu"]
    where = ["--data", str(small_set), "--out", str(tmp_path)]
    assert main(["compare", "iou", *where, *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    epochs = [line for line in lines if "epoch" in line]
    assert len(epochs) == 2
    assert epochs[0].startswith("IoU: epoch 1 of 2, box loss ")
    assert epochs[0].endswith(" left")


def test_stopped_it_goes_on_to_the_same_result(small_set, compared, tmp_path):
    settings = CompareSettings(str(small_set), image_size=64, batch_size=4, epochs=2)
    (recipe,) = compare_recipes([LossSpec("iou")], settings)

    def stop(_):
        raise KeyboardInterrupt

    # The second epoch: the first one is kept.
    often = Execution(device="cpu", checkpoint_seconds=0)
    stopping = Report(stepped=lambda epoch, *_: stop(epoch) if epoch == 1 else None)
    with pytest.raises(KeyboardInterrupt):
        run_comparison([recipe], tmp_path, execution=often, report=lambda _: stopping)
    notes = []
    (run,) = run_comparison([recipe], tmp_path, report=lambda _: Report(note=notes.append))
    assert "resuming after epoch 1 of 2" in notes
    undisturbed = finished_record(compared / run.folder.name)
    assert run.record["scores"] == undisturbed["scores"]
    assert run.record["history"][-1]["box"] == undisturbed["history"][-1]["box"]


def test_side_by_side_is_the_same_as_one_after_another(small_set, compared, tmp_path):
    settings = CompareSettings(str(small_set), image_size=64, batch_size=4, epochs=2)
    recipes = compare_recipes([LossSpec("diou", 3.0, 1.0)], settings)
    (run,) = run_comparison(recipes, tmp_path, execution=Execution(device="cpu"))
    apart = finished_record(compared / run.folder.name)  # the command runs them side by side
    assert apart["scores"] == run.record["scores"]


def test_a_training_that_is_killed(small_set, tmp_path):
    settings = CompareSettings(str(small_set), image_size=64, batch_size=4, epochs=2)
    recipes = compare_recipes([LossSpec("iou")], settings)

    def kill(*_):
        for child in multiprocessing.active_children():
            child.kill()

    with pytest.raises(TrainingFailedError, match="exit code -9"):
        fit_side_by_side(recipes, tmp_path, report=lambda _: Report(note=kill))
    assert multiprocessing.active_children() == []


def test_an_error_over_there_is_one_here(small_set, tmp_path):
    (recipe,) = compare_recipes([LossSpec("iou")], CompareSettings(str(small_set), image_size=64))
    gone = replace(recipe, data=replace(recipe.data, path=str(tmp_path / "gone")))
    with pytest.raises(DataError, match="no such file or folder") as caught:
        fit_side_by_side([gone], tmp_path)
    assert "Traceback" in caught.value.__notes__[0]


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
    assert small.objectness_gain * (64 / 640) ** 2 == pytest.approx(large.objectness_gain)
    assert small.class_gain * 4 == pytest.approx(large.class_gain * 12)


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
    assert (first.detector, first.optimisation.optimiser, first.box_gain) == (
        detector,
        optimiser,
        gain,
    )
    assert (first.image_size, first.epochs, first.backbone_weights) == (64, 7, "none")
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
    with pytest.raises(DataError, match="shapes, shapes-plain, shapes-discs, and each with a size"):
        load_dataset(word, "train")
    with pytest.raises(DataError, match="no drawn set"):
        load_dataset(word, "train", layout="shapes")


def test_examples_are_spread_over_images_with_objects():
    index = shapes_index("train", size=64, length=200, level="plain")
    chosen = choose_examples(index, 6)
    assert len(chosen) == 6
    assert chosen == sorted(set(chosen))
    assert all(len(index.boxes[index.rows(row)]) for row in chosen)
    assert choose_examples(index.take(chosen[:2]), 6) == [0, 1]
