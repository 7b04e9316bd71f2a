"""``alphaiou eval`` from its arguments to its files."""

import json
from pathlib import Path

import numpy as np
import pytest
import tyro

from alphaiou.cli import UsageError
from alphaiou.cli.evaluate import Evaluate, run_eval
from alphaiou.data.dataset import load_dataset
from alphaiou.data.formats.coco import write_coco
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.inference.detection_files import score_files

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
    for text in ("12 images", "rule coco", "base", "exact", "rela. improv.", "mAP75:95", "100.00"):
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
@pytest.mark.parametrize("rule", ["voc", "voc07", "coco", "paper"])
def test_a_devkit_by_file_names(rule, tmp_path):
    """All boxes find themselves; by the paper's rule the difficult ones are mistakes."""
    index = load_dataset(VOC_SAMPLE, "trainval").index
    assert index.difficult.any()
    found = write(tmp_path / "found.json", detections(index, called="stem"))
    (evaluation,) = score_files([found], index, rule=rule)
    assert (evaluation.scores.ap[50] == pytest.approx(1.0)) == (rule != "paper")


def test_a_folder_called_shapes_is_not_the_drawn_set(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    index = shapes_index("val", size=64, length=3)
    write_coco(index, Path("shapes"), images="copy")
    Path("own.json").write_text(json.dumps(detections(index)))
    assert run("own.json", "--data", "./shapes") == 0
    assert json.loads(Path("runs/eval/scores.json").read_text())["data"]["images"] == 3


def test_what_is_refused(small_set, tmp_path):
    out = ("--data", small_set, "--out", tmp_path / "out")
    good = write(tmp_path / "good.json", [])
    with pytest.raises(UsageError, match="give at least one detection file"):
        run_eval(Evaluate((), small_set, out=tmp_path / "out"))
    with pytest.raises(UsageError, match="--max-detections 0: must be at least 1"):
        run(good, *out, "--max-detections", "0")
    for no_file in (tmp_path / "none.json", small_set):
        with pytest.raises(UsageError, match=f"{no_file}: this detection file does not exist"):
            run(no_file, *out)
    with pytest.raises(UsageError, match="--min-score nan"):
        run(good, *out, "--min-score", "nan")
    assert not (tmp_path / "out").exists()
    entry = {"image_id": "no", "category_id": 1, "bbox": [0, 0, 1, 1], "score": 1}
    strange = write(tmp_path / "strange.json", [entry])
    with pytest.raises(DataError, match="none of its 1 images is in the data set"):
        run(strange, *out)
    with pytest.raises(DataError, match="nowhere"):
        run(good, "--data", tmp_path / "nowhere", "--out", tmp_path / "out")
