"""Files of detections: what they may look like, and what is said when they cannot be used."""

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from alphaiou.data.problems import DataError
from alphaiou.inference.detection_files import (
    load_detections,
    score_files,
    summary,
    targets_of,
    write_results,
)
from alphaiou.inference.tables import (
    class_table,
    comparison_markdown,
    number_table,
)
from alphaiou.metrics import comparison_rows, score
from tests.data.made_index import made_index, random_index


def index_of(names, *, layout="coco", numbers=None):
    """Each image with one box of 10 pixels, labels in turn."""
    index = made_index([[[0, 0, 10, 10]]] * len(names), names=names)
    numbers = np.arange(1, len(names) + 1) if numbers is None else np.array(numbers)
    return replace(index, layout=layout, image_ids=numbers, category_ids=np.array([18, 44, 70]))


def one(image=1, category=18, bbox=(0, 0, 10, 10), score=0.5):
    return {"image_id": image, "category_id": category, "bbox": list(bbox), "score": score}


@pytest.fixture
def write(tmp_path):
    def write(content, name="found.json"):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write


INDEX = index_of(["a/000005.jpg", "a/000007.jpg", "b/x.y.jpg"], numbers=[139, 285, 7])


@pytest.mark.parametrize("image", [285, 285.0, "000007", "000007.jpg", "a/000007", "a/000007.jpg"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_image_has_many_names(write, image, wrapped):
    content = [one(image), one(139, "dog") | {"segmentation": [], "extra": {"a": 1}}]
    data = load_detections(
        write({"info": {}, "annotations": content} if wrapped else content), INDEX
    )
    assert data.images.tolist() == [1, 0]
    assert data.labels.tolist() == [0, 1]
    assert len(data.target_labels) == 3


def test_a_name_that_two_images_share_must_have_its_folder(write):
    index = index_of(["a/1.jpg", "b/1.jpg"])
    assert load_detections(write([one("b/1")]), index).images.tolist() == [1]
    with pytest.raises(DataError, match="image_id '1' is unknown"):
        load_detections(write([one("1")]), index)


def test_numbers_where_the_format_has_none(write):
    names = ["JPEGImages/000002.jpg", "JPEGImages/000009.jpg", "JPEGImages/000004.jpg"]
    index = index_of(names, layout="voc")
    assert load_detections(write([one(9), one(4)]), index).images.tolist() == [1, 2]
    assert load_detections(write([one(1), one(3)]), index).images.tolist() == [0, 2]
    with pytest.raises(DataError, match="image_id 2 may be the file 000002 or image 2 of the set"):
        load_detections(write([one(2)]), index)
    words = index_of(["x.jpg", "y.jpg"], layout="yolo")
    assert load_detections(write([one(2)]), words).images.tolist() == [1]


FAULTS = {
    "": "truncated",
    "[": "truncated",
    "12": "it must be a list",
    '"text"': "it must be a list",
    "null": "it must be a list",
    '{"images": []}': "missing required field `annotations`",
    '{"annotations": 3}': "it must be a list",
    "[3]": r"entry 0 \(the first is 0\): expected `object`, got `int`",
    "\ufeff[]": "malformed",
    "[" * 100_000: "found.json",
    json.dumps(
        [one(), one() | {"bbox": [1, 2, 3]}]
    ): "entry 1 .*, bbox: expected `array` of length 4",
    json.dumps([one() | {"bbox": [1, 2, 3, 4, 5]}]): "bbox: expected `array` of length 4",
    json.dumps([one() | {"bbox": "1 2 3 4"}]): "entry 0 .*, bbox: expected `array`, got `str`",
    json.dumps([one() | {"bbox": [1, 2, None, 4]}]): "entry 0 .*, bbox: expected `float`",
    json.dumps([one() | {"score": "high"}]): "entry 0 .*, score: expected `float`, got `str`",
    json.dumps([one() | {"image_id": None}]): "entry 0 .*, image_id: expected",
    json.dumps([{k: v for k, v in one().items() if k != "score"}]): "required field `score`",
    json.dumps([one(), one(score=float("nan"))]): "entry 1 .*NaN and Infinity are not valid JSON",
    json.dumps(
        [one(bbox=(0, 0, float("inf"), 1))]
    ): "entry 0 .*NaN and Infinity are not valid JSON",
    json.dumps([one()]).replace("0.5", "1e999"): "found.json",
    json.dumps([one(bbox=(0, 0, -1, 5))]): "entry 0 .*: bbox is .*must not be negative",
    json.dumps([one(), one(image=4)]): "image_id 4 is unknown; 1 of its 2 images are not in",
    json.dumps([one(image=4), one(image="no.jpg")]): "none of its 2 images is in the data set",
    json.dumps([one(image=10**30)]): "is unknown; none of its 1 images",
    json.dumps([one(image=1.5)]): r"image_id 1\.5 is unknown",
    json.dumps(
        [one(category=1)]
    ): "category_id 1 is unknown; none of its 1 categories.* has 18, 44, 70",
    json.dumps([one(category="cat"), one(category="cow")]): "1 of its 2 categories are not in",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_what_cannot_be_used(write, text):
    path = write(text)
    with pytest.raises(DataError, match=FAULTS[text]) as caught:
        load_detections(path, index_of(["a.jpg", "b.jpg", "c.jpg"]))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert len(message) < 600
    assert "\n" not in message


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "found.json"
    for raw in (b"\xff\xfe[", b'[{"image_id": "\xff"}]', bytes(range(256)), b"\0" * 1000):
        path.write_bytes(raw)
        with pytest.raises(DataError, match=r"found\.json"):
            load_detections(path, INDEX)


def test_no_detections(write):
    evaluations = score_files([write([])], INDEX)
    assert evaluations[0].scores.map == 0
    assert evaluations[0].scores.num_images == 3


def noisy(index, seed, size):
    """Detections around the boxes of an index, with whole pixels so that nothing is rounded."""
    random = np.random.default_rng(seed)
    images = index.image_ids[index.image_of_box()].tolist()
    numbers = index.category_ids[index.labels].tolist()
    found = []
    for image, number, corners in zip(images, numbers, index.boxes, strict=True):
        box = np.array([*corners[:2], *(corners[2:] - corners[:2])])
        for _ in range(2):
            moved = np.maximum(np.round(box + random.normal(0, size, 4) * box[[2, 3, 2, 3]]), 0)
            found.append(one(image, number, moved.tolist(), round(float(random.random()), 2)))
    return found


def whole_index(images=40):
    index = random_index(images, seed=3)
    boxes = np.round(index.boxes)
    boxes[:, 2:] = np.maximum(boxes[:, 2:], boxes[:, :2] + 1)
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    return replace(index, boxes=boxes, areas=areas)


def test_a_file_scores_as_pycocotools_scores_it(write):
    index = whole_index()
    path = write(noisy(index, 0, 0.1))
    rows = zip(
        index.image_ids[index.image_of_box()].tolist(),
        index.category_ids[index.labels].tolist(),
        index.boxes.tolist(),
        strict=True,
    )
    truth = COCO()
    truth.dataset = {
        "images": [{"id": number} for number in index.image_ids.tolist()],
        "categories": [{"id": number} for number in index.category_ids.tolist()],
        "annotations": [
            {"id": i, "image_id": image, "category_id": category, "iscrowd": 0}
            | {"bbox": [x, y, x2 - x, y2 - y], "area": (x2 - x) * (y2 - y)}
            for i, (image, category, (x, y, x2, y2)) in enumerate(rows, 1)
        ],
    }
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(str(path)), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    found = score_files([path], index)[0].scores
    ours = [found.map, found.ap[50], found.ap[75], *found.size_ap.values()]
    ours += [*found.ar.values(), *found.size_ar.values()]
    np.testing.assert_allclose(ours, evaluation.stats, rtol=0, atol=1e-12)
    assert 0.1 < found.map < 0.9


def test_results_are_written(write, tmp_path):
    index = whole_index()
    files = [write(noisy(index, 0, 0.2), "base.json"), write(noisy(index, 1, 0.05), "ours.json")]
    evaluations = score_files(files, index, rule="paper", min_score=0.2)
    paths = write_results(evaluations, index, tmp_path / "out")
    assert {path.name for path in paths} == {
        "scores.json",
        *(f"{stem}.{ending}" for stem in STEMS for ending in ("png", "svg")),
    }
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in paths}
    written = json.loads(paths[0].read_text())
    assert written == json.loads(json.dumps(summary(evaluations, index)))
    base, ours = written["predictions"]
    assert (base["name"], ours["name"]) == ("base", "ours")
    expected = (ours["scores"]["map"] - base["scores"]["map"]) / base["scores"]["map"]
    assert ours["relative_improvement"]["map"] == pytest.approx(expected)
    assert expected > 0
    assert base["relative_improvement"]["map"] == 0
    assert ours["detections_with_iou"]["0.5"] >= ours["objects_with_iou"]["0.5"] > 0
    again = write_results(evaluations, index, tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


STEMS = ("precision_recall", "iou_distribution")


def test_undefined_numbers_are_null(write):
    index = index_of(["a.jpg", "b.jpg"])  # nothing is large; no box of the third class
    numbers = summary(score_files([write([one()])], index), index)["predictions"][0]
    assert numbers["scores"]["map_large"] is None
    assert numbers["per_class"]["hen"] is None
    json.dumps(numbers, allow_nan=False)


def test_files_of_one_name(write, tmp_path):
    (tmp_path / "b").mkdir()
    files = [write([one()]), write([one()], "b/found.json"), write([one()])]
    names = [evaluation.name for evaluation in score_files(files, index_of(["a.jpg"]))]
    assert names == [f"{files[0]} (0)", str(files[1]), f"{files[2]} (2)"]


def test_tables(write):
    index = index_of(["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    files = [write([one(1)], "base.json"), write([one(1), one(4)], "ours.json")]
    scores = {one.name: one.scores for one in score_files(files, index)}
    rows = comparison_rows({name: one.as_dict() for name, one in scores.items()}, ("ap50", "map"))
    assert comparison_markdown(rows).splitlines() == [
        "| predictions | AP50 | mAP |",
        "| --- | ---: | ---: |",
        "| base | 16.83 | 16.83 |",
        "| ours | 33.33 | 33.33 |",
        "| rela. improv. | +98.04% | +98.04% |",
    ]
    assert class_table(scores, "title").row_count == 3
    assert number_table(scores, "title").row_count == len(scores["base"].as_dict())


DATA = Path(__file__).parents[3] / "shared/data/voc320/annotations/test.json"


@pytest.mark.skipif(not DATA.exists(), reason="voc320 is not beside this checkout")
@pytest.mark.parametrize(("rule", "expected"), [("coco", 1), ("voc", 1), ("voc07", 1)])
def test_the_boxes_of_voc320_find_themselves(rule, expected):
    from alphaiou.data.formats.coco import read_coco
    from tests.data.made_index import NoImages

    index = read_coco(DATA, "test", NoImages())
    data = targets_of(index)
    data = replace(
        data,
        images=data.target_images,
        boxes=data.target_boxes,
        labels=data.target_labels,
        scores=np.ones(len(data.crowd)),
    )
    found = score(data, index.classes, rule=rule)
    assert found.num_images == 5008
    assert found.num_targets == 15_655 - 3_054
    assert found.as_dict()["ap95"] == pytest.approx(expected, abs=1e-9)
    assert np.min(list(found.per_class.values())) == pytest.approx(expected, abs=1e-9)
