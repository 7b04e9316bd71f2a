"""``alphaiou eval`` from its arguments to its files."""

import json
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest
import tyro
from rich.console import Console

from alphaiou.cli import UsageError
from alphaiou.cli.evaluate import Evaluate, run_eval
from alphaiou.cli.training_progress import final_table
from alphaiou.data.dataset import load_dataset
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.inference.detection_files import score_files
from alphaiou.inference.evaluation import evaluate
from alphaiou.inference.weights import load_weights, save_weights
from alphaiou.metrics.errors import ERROR_TYPES
from alphaiou.metrics.rules import DEFAULT_RULE, RULES, RuleName
from alphaiou.training.recipes import RECIPES
from tests.training.runs import easy_images, learning_recipe, tiny_recipe, train, write_shapes

VOC_SAMPLE = Path(__file__).parents[3] / "shared/data/voc-sample"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))


def run(*arguments):
    return run_eval(tyro.cli(Evaluate, args=[str(one) for one in arguments]))


def detections(index, *, called="number", noise=0.0, seed=0):
    """A detection for each box, the image called by its number, file name or stem."""
    random = np.random.default_rng(seed)
    files = [Path(name) for name in index.files]
    names = {
        "number": index.image_ids.tolist(),
        "file": [file.name for file in files],
        "stem": [file.stem for file in files],
    }[called]
    found = []
    for image, label, (x, y, x2, y2) in zip(
        index.image_of_box(), index.labels, index.boxes.tolist(), strict=True
    ):
        shift = random.normal(0, noise, 2) * (x2 - x, y2 - y)
        box = [x + shift[0], y + shift[1], x2 - x, y2 - y]
        number = int(index.category_ids[label])
        found.append({"image_id": names[image], "category_id": number, "bbox": box, "score": 0.5})
    return found


@pytest.fixture
def small_set(tmp_path):
    index = shapes_index("val", size=64, length=12)
    write_coco(index, tmp_path / "set", images="copy")
    return tmp_path / "set"


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def test_two_files_side_by_side(small_set, tmp_path, capsys):
    index = load_dataset(small_set, "val").index
    base = write(tmp_path / "base.json", detections(index, noise=0.1))
    exact = write(tmp_path / "exact.json", {"annotations": detections(index, called="file")})
    out = tmp_path / "out"
    assert run(base, exact, "--data", small_set, "--out", out, "--per-class") == 0
    printed = capsys.readouterr().out
    for text in (
        "12 images",
        "rule paper (the paper's: as COCO, difficult boxes dropped)",
        "base",
        "exact",
        "rela. improv.",
        "mAP75:95",
        "100.00",
    ):
        assert text in printed
    assert all(name in printed for name in index.classes)
    assert "wrote" in printed
    numbers = json.loads((out / "scores.json").read_text())
    assert numbers["data"]["boxes"] == index.num_boxes
    first, second = numbers["predictions"]
    assert second["scores"]["map"] == pytest.approx(1.0)
    assert 0 < first["scores"]["map"] < 1
    assert second["relative_improvement"]["ap95"] > 0
    assert (out / "precision_recall.png").stat().st_size > 10_000
    assert (out / "iou_distribution.svg").exists()


def test_errors_of_files(small_set, tmp_path, capsys):
    index = load_dataset(small_set, "val").index
    random = np.random.default_rng(0)
    worse = [
        one | {"score": float(random.random())} for one in detections(index, noise=0.3, seed=1)
    ]
    base = write(tmp_path / "base.json", worse)
    exact = write(tmp_path / "exact.json", detections(index, called="file"))
    out = tmp_path / "out"
    assert run(base, exact, "--data", small_set, "--errors", "--out", out) == 0
    printed = capsys.readouterr().out
    for kind in ERROR_TYPES:
        assert kind in printed
    assert "exact: AP50 +" in printed
    numbers = json.loads((out / "errors.json").read_text())
    first, second = (numbers["errors"][name]["tables"][0] for name in ("base", "exact"))
    assert second["counts"] == dict.fromkeys(ERROR_TYPES, 0)
    assert first["counts"]["localisation"] > 0
    scores = json.loads((out / "scores.json").read_text())["predictions"]
    assert [first["ap"], second["ap"]] == pytest.approx([s["scores"]["ap50"] for s in scores])
    assert numbers["against_first"]["exact"]["counts"]["50"]["localisation"]["high"] < 0
    page = (out / "errors.html").read_text()
    for text in ("Errors by type", "exact against base", "data:image/png", "val-000000"):
        assert text in page


def test_json_alone(small_set, tmp_path, capsys):
    index = load_dataset(small_set, "val").index
    found = write(tmp_path / "found.json", detections(index))
    assert run(found, "--data", small_set, "--rule", "voc07", "--json", "--out", tmp_path) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers == json.loads((tmp_path / "scores.json").read_text())
    assert numbers["rule"] == "voc07"
    assert numbers["predictions"][0]["scores"]["ap50"] == 1.0
    assert "map_small" not in numbers["predictions"][0]["scores"]


def test_the_drawn_set(tmp_path, capsys):
    found = write(tmp_path / "found.json", detections(load_dataset("shapes", "test").index))
    assert run(found, "--data", "shapes", "--split", "test", "--out", tmp_path) == 0
    assert "shapes layout, split test" in capsys.readouterr().out


@pytest.mark.skipif(not VOC_SAMPLE.exists(), reason="voc-sample is not beside this checkout")
@pytest.mark.parametrize("rule", RULES)
def test_a_devkit_by_file_names(rule, tmp_path):
    """All boxes find themselves; by the paper's rule the difficult ones are mistakes."""
    index = load_dataset(VOC_SAMPLE, "trainval").index
    assert index.difficult.any()
    found = write(tmp_path / "found.json", detections(index, called="stem"))
    (evaluation,) = score_files([found], index, rule=rule)
    assert (evaluation.scores.ap[50] == pytest.approx(1.0)) == (not RULES[rule].drop_difficult)


def test_every_rule_can_be_chosen():
    named, _ = get_args(get_type_hints(Evaluate)["rule"])
    assert get_args(named) == get_args(RuleName) == tuple(RULES)


def test_a_folder_called_shapes_is_not_the_drawn_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index = shapes_index("val", size=64, length=3)
    write_coco(index, Path("shapes"), images="copy")
    Path("own.json").write_text(json.dumps(detections(index)))
    assert run("own.json", "--data", "./shapes") == 0
    assert json.loads(Path("runs/eval/scores.json").read_text())["data"]["images"] == 3


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A data set, and the folder and record of a run on it."""
    folder = tmp_path_factory.mktemp("weights")
    data = write_shapes(folder / "data", train=4, val=3, test=3)
    recipe = tiny_recipe(data, epochs=2, data={"val": "val", "test": "test"}, evaluate_every=1)
    record, _ = train(recipe, folder / "runs")
    return data, folder / "runs" / record["name"], record


@pytest.mark.parametrize("split", ["val", "test"])
def test_weights_score_as_in_their_training(weights, split, tmp_path, monkeypatch, capsys):
    data, run_folder, record = weights
    monkeypatch.setenv("COLUMNS", "120")
    out = ("--out", tmp_path / "out", "--json", tmp_path / "scores.json", "--device", "cpu")
    assert run("--weights", run_folder, "--data", data, "--split", split, *out) == 0
    printed = capsys.readouterr().out
    (found,) = json.loads((tmp_path / "scores.json").read_text())["predictions"]
    expected = record["scores"] if split == "test" else record["history"][-1]["val"]
    assert found["scores"] == json.loads(json.dumps(expected)), "equal to the last digit"
    assert (tmp_path / "out/scores.json").read_text() == (tmp_path / "scores.json").read_text()
    assert (tmp_path / "out/precision_recall.png").exists()
    assert f"{data}, {split}, rule paper, last epoch, %" in " ".join(printed.split())
    if split == "test":  # the table at the end of the training
        Console(width=120).print(final_table(record))
        assert capsys.readouterr().out in printed


@pytest.mark.slow
def test_the_best_weights_of_a_detector_that_has_learnt_score_as_in_their_training(
    tmp_path, capsys
):
    data = easy_images(tmp_path / "data", 4)
    recipe = learning_recipe(
        data, epochs=180, seed=1, data={"val": "train"}, evaluate_every=10, select="best"
    )
    record, _ = train(recipe, tmp_path / "runs", checkpoint_seconds=1e9)
    where = ("--data", data, "--split", "train", "--out", tmp_path, "--device", "cpu", "--json")
    assert run("--weights", tmp_path / "runs" / record["name"], *where) == 0
    (found,) = json.loads(capsys.readouterr().out)["predictions"]
    assert 0.1 < found["scores"]["map"] == record["scores"]["map"] == record["selected"]["map"]
    assert found["scores"] == json.loads(json.dumps(record["scores"]))


def test_weights_have_scores_by_class_and_by_other_rules(weights, tmp_path, capsys):
    data, run_folder, _ = weights
    options = ("--data", data, "--split", "test", "--out", tmp_path, "--device", "cpu")
    assert run("--weights", run_folder / "best.safetensors", *options, "--per-class") == 0
    printed = capsys.readouterr().out
    dataset = load_dataset(data, "test")
    assert all(name in printed for name in dataset.index.classes)
    assert run("--weights", run_folder, *options, "--rule", "voc07", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    trained = load_weights(run_folder)
    truth = evaluate(
        trained.detector, dataset.index, build_cache(dataset, 64), rule="voc07", precision="fp32"
    )
    assert found["rule"] == "voc07"
    assert found["predictions"][0]["scores"] == truth.as_dict()
    defined = {name: ap for name, ap in truth.per_class.items() if ap == ap}  # not NaN
    assert found["predictions"][0]["per_class"] == dict.fromkeys(truth.per_class) | defined


def test_weights_that_were_trained_by_another_rule_are_scored_by_it(weights, tmp_path, capsys):
    data, run_folder, _ = weights
    trained = load_weights(run_folder)
    path = tmp_path / "other.safetensors"
    save_weights(trained.detector, {**trained.recipe, "rule": "voc"}, trained.classes, path)
    assert run("--weights", path, "--data", data, "--out", tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["rule"] == "voc"


def test_weights_of_other_classes_are_refused(weights, tmp_path):
    _, run_folder, _ = weights
    where = ("--data", "shapes-discs-64", "--out", tmp_path)
    with pytest.raises(
        DataError, match=r"the classes of split 'val' differ .* those of the weights"
    ):
        run("--weights", run_folder, *where)


def test_train_and_eval_have_one_rule(small_set, tmp_path, capsys):
    found = write(tmp_path / "found.json", detections(load_dataset(small_set, "val").index))
    assert run(found, "--data", small_set, "--json", "--out", tmp_path) == 0
    rule = json.loads(capsys.readouterr().out)["rule"]
    rules = {name: recipe().rule for name, recipe in RECIPES.items()}
    assert {rule} == {rules[name] for name in rules if name != "paper-code"}
    assert rule == DEFAULT_RULE
    assert rules["paper-code"] == "yolov5"


def test_what_is_refused(small_set, tmp_path):
    out = ("--data", small_set, "--out", tmp_path / "out")
    good = write(tmp_path / "good.json", [])
    with pytest.raises(UsageError, match="give detection files, or --weights FILE"):
        run(*out)
    with pytest.raises(UsageError, match="give detection files, or --weights FILE"):
        run(good, *out, "--weights", good)
    with pytest.raises(UsageError, match="exists and has no scores of alphaiou eval; write"):
        run(good, *out, "--json", good)
    with pytest.raises(UsageError, match="--max-detections 0: must be at least 1"):
        run(good, *out, "--max-detections", "0")
    no_file = tmp_path / "none.json"
    with pytest.raises(UsageError, match=f"{no_file}: this detection file does not exist"):
        run(no_file, *out)
    with pytest.raises(UsageError, match="--min-score nan"):
        run(good, *out, "--min-score", "nan")
    assert not (tmp_path / "out").exists()
    with pytest.raises(DataError, match=r"detections\.npz: .* not kept; train with --keep"):
        run(small_set, *out)
    entry = {"image_id": "no", "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1}
    strange = write(tmp_path / "strange.json", [entry])
    with pytest.raises(DataError, match="none of its 1 images is in the data set"):
        run(strange, *out)
    with pytest.raises(DataError, match="nowhere"):
        run(good, "--data", tmp_path / "nowhere", "--out", tmp_path / "out")
