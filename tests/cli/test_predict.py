"""``alphaiou predict`` from its arguments to its files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from alphaiou._config import to_plain
from alphaiou._figures import palette
from alphaiou.cli import main
from alphaiou.data.dataset import load_dataset
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.formats.voc import write_voc
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.detectors import fold_batch_norm
from alphaiou.inference.drawing import draw_detections
from alphaiou.inference.evaluation import detect
from alphaiou.inference.predictor import Predictor, find_images, image_names
from alphaiou.inference.weights import load_weights, save_weights
from tests.training.runs import tiny_recipe, train, write_shapes


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    path = write_shapes(folder / "data", train=4, val=3)
    record, _ = train(tiny_recipe(path, epochs=2, data={"val": "val"}), folder / "runs")
    return folder, folder / "runs" / record["name"], record


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


def predictions(out="runs/predict"):
    return json.loads((Path(out) / "predictions.json").read_text())


def test_detections_are_those_of_the_evaluation_in_training(trained):
    folder, run, _ = trained
    images = str(folder / "data/images/val")
    assert main(["predict", images, "--weights", str(run), "--score", "0.001"]) == 0
    dataset = load_dataset(folder / "data", "val")
    detector = fold_batch_norm(load_weights(run).detector)
    cache = build_cache(dataset, 64)
    expected = detect(detector, cache, torch.arange(3), precision="fp32")
    assert sum(len(one["scores"]) for one in expected) == len(predictions()) > 10
    for name, one in zip(dataset.index.files, expected, strict=True):
        mine = [entry for entry in predictions() if entry["image_id"] == name]
        assert [entry["score"] for entry in mine] == pytest.approx(one["scores"].tolist(), abs=1e-4)
        x1, y1, x2, y2 = one["boxes"].T
        boxes = torch.stack([x1, y1, x2 - x1, y2 - y1], dim=1)
        torch.testing.assert_close(
            torch.tensor([entry["bbox"] for entry in mine]), boxes, atol=0.01, rtol=0
        )


def test_eval_takes_the_detections(trained):
    folder, run, record = trained
    images = str(folder / "data/images/val")
    assert main(["predict", images, "--weights", str(run), "--score", "0.001"]) == 0
    command = ["eval", "runs/predict/predictions.json", "--data", str(folder / "data")]
    assert main([*command, "--split", "val", "--rule", "paper", "--out", "eval"]) == 0
    (found,) = json.loads(Path("eval/scores.json").read_text())["predictions"]
    assert found["detections"] == len(predictions())
    assert found["scores"]["map"] == pytest.approx(record["scores"]["map"], abs=2e-3)


def api_detections(dataset, run, score):
    """What the weights find, by the functions that evaluate in training."""
    detector = load_weights(run).detector
    detector.set_least_score(score)
    rows = torch.arange(len(dataset))
    return detect(fold_batch_norm(detector), build_cache(dataset, 64), rows, precision="fp32")


LAYOUTS = {"voc": write_voc, "coco": write_coco, "yolo": write_yolo}


@pytest.mark.parametrize("layout", [*LAYOUTS, pytest.param("shapes", marks=pytest.mark.slow)])
def test_a_split_of_a_data_set_in_any_layout(trained, tmp_path, capsys, layout):
    folder, run, _ = trained
    data = "shapes-plain-64"
    if layout in LAYOUTS:
        data = str(tmp_path / "set")
        index = load_dataset(folder / "data", "val").index
        LAYOUTS[layout](index, Path(data), images="copy")
    options = ["--data", data, "--split", "val", "--score", "0.002"]
    dataset = load_dataset(data, "val")
    assert dataset.layout == layout
    assert main(["predict", "--weights", str(run), *options]) == 0
    expected = api_detections(dataset, run, 0.002)
    entries = predictions()
    assert sum(len(one["scores"]) for one in expected) == len(entries) > 3
    drawings = list(Path("runs/predict/drawings").iterdir())
    assert len(drawings) == len(dataset)
    for name, number, one in zip(
        dataset.index.files, dataset.index.image_ids, expected, strict=True
    ):
        called = number if layout == "coco" else Path(name).name
        mine = [entry for entry in entries if entry["image_id"] == called]
        classes = dataset.index.category_ids if layout == "coco" else dataset.index.classes
        assert [entry["category_id"] for entry in mine] == [classes[n] for n in one["labels"]]
        assert [entry["score"] for entry in mine] == pytest.approx(one["scores"].tolist(), abs=1e-4)
    assert f"in {len(dataset):,} images" in capsys.readouterr().out


def test_pycocotools_reads_the_detections_of_a_coco_set(trained, capsys):
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    folder, run, record = trained
    options = ["--data", str(folder / "data"), "--score", "0.001", "--no-drawings"]
    assert main(["predict", "--weights", str(run), *options]) == 0
    truth = COCO(str(folder / "data/annotations/val.json"))
    evaluation = COCOeval(truth, truth.loadRes("runs/predict/predictions.json"), "bbox")
    evaluation.params.maxDets = [1, 10, 300]
    evaluation.evaluate()
    evaluation.accumulate()
    precision = evaluation.eval["precision"][:, :, :, 0, -1]
    found = precision[precision > -1].mean()
    assert found == pytest.approx(record["scores"]["map"], abs=2e-3)


def test_images_of_a_data_set_that_cannot_be_read_are_passed_over(trained, capsys, tmp_path):
    folder, run, _ = trained
    shutil.copytree(folder / "data", tmp_path / "set")
    broken = sorted((tmp_path / "set/images/val").iterdir())[1]
    broken.write_bytes(b"no image")
    assert main(["predict", "--weights", str(run), "--data", "set", "--score", "0"]) == 1
    out = capsys.readouterr().out
    assert f"{Path(*broken.parts[-4:])}: " in out
    assert "1 of 3 images could not be read" in out
    assert len(list(Path("runs/predict/drawings").iterdir())) == 2
    assert {one["image_id"] for one in predictions()} == {1, 3}


def test_a_higher_threshold_gives_a_part_of_the_same_detections(trained):
    folder, run, _ = trained
    dataset = load_dataset(folder / "data", "val")
    every = [score for one in api_detections(dataset, run, 0.0) for score in one["scores"].tolist()]
    for threshold in np.quantile(every, [0.5, 0.99]).tolist():
        found = list(Predictor(load_weights(run), score=threshold).dataset(dataset))
        for one, expected in zip(found, api_detections(dataset, run, threshold), strict=True):
            assert len(one) == len(expected["scores"])
            torch.testing.assert_close(one.boxes, expected["boxes"], atol=1e-3, rtol=1e-4)
            assert one.highest == pytest.approx(expected["scores"].max().item(), abs=1e-5)


def test_an_empty_result_is_explained(trained, capsys):
    folder, run, _ = trained
    dataset = load_dataset(folder / "data", "val")
    highest = max(one["scores"].max().item() for one in api_detections(dataset, run, 0.0))
    options = ["--data", str(folder / "data"), "--no-drawings", "--weights", str(run)]
    assert main(["predict", *options, "--score", "0.9"]) == 0
    assert (
        f"0 detections above 0.9 in 3 images; the highest score is {highest:.2g}. The weights were "
        "trained for 2 epochs on 4 images; train longer, or lower --score"
    ) in capsys.readouterr().out
    weights = load_weights(run)
    save_weights(weights.detector, weights.recipe, weights.classes, Path("older.safetensors"))
    assert main(["predict", *options[:-1], "older.safetensors", "--score", "0.9"]) == 0
    assert "trained for 2 epochs; train longer" in capsys.readouterr().out


def test_files_folders_and_patterns(trained, capsys):
    folder, run, _ = trained
    images = folder / "data/images"
    command = [str(images / "train"), str(images / "val/*-00000[01].png")]
    assert main(["predict", *command, "--weights", str(run / "best.safetensors")]) == 0
    out = capsys.readouterr().out
    assert "in 6 images" in out
    assert "wrote runs/predict/predictions.json" in out
    drawings = sorted(path.name for path in Path("runs/predict/drawings").iterdir())
    assert drawings[0] == "train-000000.png"
    assert len(drawings) == 6


def test_images_that_cannot_be_read_are_passed_over(trained, capsys, tmp_path):
    folder, run, _ = trained
    good = next((folder / "data/images/val").iterdir())
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a.png").write_bytes(good.read_bytes())
    (tmp_path / "photos/broken.jpg").write_bytes(b"no image")
    (tmp_path / "photos/cut.png").write_bytes(good.read_bytes()[:-600])
    (tmp_path / "photos/notes.txt").write_text("not an image")
    assert main(["predict", "photos", "--weights", str(run), "--score", "0"]) == 1
    out = capsys.readouterr().out
    assert "photos/broken.jpg: is not an image" in out
    assert "photos/cut.png: the image is cut off" in out
    assert "2 of 3 images could not be read" in out
    assert {one["image_id"] for one in predictions()} == {"a.png"}
    assert [path.name for path in Path("runs/predict/drawings").iterdir()] == ["a.png"]


@pytest.mark.slow
def test_detections_are_coco_boxes_within_the_image(trained, tmp_path):
    _, run, _ = trained
    noise = np.random.default_rng(0).integers(0, 255, (40, 120, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "wide.jpg")
    command = ["predict", "wide.jpg", "--weights", str(run), "--score", "0.001", "--no-drawings"]
    assert main(command) == 0
    found = predictions()
    assert found
    for one in found:
        x, y, width, height = one["bbox"]
        assert min(x, y, width, height) >= 0
        assert x + width <= 120.01
        assert y + height <= 40.01
        assert one["image_id"] == "wide.jpg"
        assert one["category_id"] in load_weights(run).classes
    assert not Path("runs/predict/drawings").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["IMAGE", "--weights", "absent.safetensors"], 1, "absent.safetensors: there is no such"),
        (["IMAGE", "--weights", "LAST"], 1, "use best.safetensors in the same folder"),
        (["IMAGE", "--weights", "RECORD"], 1, "is not a complete safetensors file"),
        (["absent.jpg", "--weights", "RUN"], 1, "absent.jpg: there is no such file"),
        (["*.nothing", "--weights", "RUN"], 1, "*.nothing: there is no such file"),
        (["IMAGE", "--weights", "RUN", "--score", "2"], 2, "--score 2.0: must be from 0 to 1"),
        (["--weights", "RUN"], 2, "give images, folders or patterns, or --data PATH"),
        (["IMAGE", "--weights", "RUN", "--data", "DATA"], 2, "or --data PATH"),
        (["--weights", "RUN", "--data", "DATA", "--split", "no"], 1, "there is no split 'no'"),
    ],
)
def test_what_cannot_be_done_is_one_line(trained, capsys, arguments, code, message):
    folder, run, _ = trained
    places = {
        "IMAGE": next((folder / "data/images/val").iterdir()),
        "RUN": run,
        "DATA": folder / "data",
        "LAST": run / "last.safetensors",
        "RECORD": run / "record.json",
    }
    assert main(["predict", *(str(places.get(one, one)) for one in arguments)]) == code
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


def test_weights_of_another_version_are_said(tmp_path, capsys):
    recipe = tiny_recipe("shapes")
    save_weights(
        recipe.detector.build(3), to_plain(recipe), ("a", "b"), tmp_path / "best.safetensors"
    )
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    assert main(["predict", "a.png", "--weights", "best.safetensors"]) == 1
    assert "does not fit this version" in capsys.readouterr().err


def test_two_images_of_one_name_are_told_apart(tmp_path):
    for place in ("a/1.png", "b/1.png", "b/2.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / place)
    paths = find_images(["a", "b/*.png", "b/2.png"])
    assert image_names(paths) == ["a/1.png", "b/1.png", "2.png"]


def found(*boxes):
    return {
        "boxes": torch.tensor(boxes),
        "scores": torch.linspace(0.9, 0.5, len(boxes)),
        "labels": torch.arange(len(boxes)) % 2,
    }


@pytest.mark.parametrize("size", [(64, 48), (640, 480), (16, 300)])
def test_boxes_are_drawn_where_they_are(size):
    width, height = size
    box = (0.25 * width, 0.5 * height, 0.75 * width, float(height))
    white = torch.full((3, height, width), 255, dtype=torch.uint8)
    picture = draw_detections(white, found(box), ["cat", "dog"])
    assert picture.size == size
    colour = palette(2)[0]
    pixel = picture.getpixel((round(box[0]), round(0.75 * height)))
    assert "#{:02X}{:02X}{:02X}".format(*pixel) == colour.upper()
    assert picture.getpixel((round(0.5 * width), round(0.9 * height))) == (255, 255, 255)


def test_boxes_at_the_border_and_many_classes():
    white = torch.full((3, 50, 50), 255, dtype=torch.uint8)
    classes = [f"a class with a long name {number}" for number in range(80)]
    boxes = ((0.0, 0.0, 50.0, 50.0), (49.5, 49.5, 50.0, 50.0), (10.0, 10.0, 10.0, 10.0))
    assert draw_detections(white, found(*boxes), classes).size == (50, 50)
    assert len({*palette(80)}) == 80
    assert draw_detections(white, found(boxes[0]), ["$%ä"]).size == (50, 50)
