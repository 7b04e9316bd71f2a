"""Labels of oriented boxes: YOLO's and DOTA's read, checked, written and converted."""

from dataclasses import replace

import hotcoco
import numpy as np
import pytest
from shapely import Polygon

from alphaiou.data.check import check_dataset
from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import DetectionDataset, load_dataset, split_names
from alphaiou.data.derived import fingerprint
from alphaiou.data.formats.registry import get_format
from alphaiou.data.noise import perturb_index
from alphaiou.data.oriented import corners_of
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from tests.data.formats.layouts import SIZE, kinds, put_all
from tests.data.made_index import random_index

LAYOUTS = ("yolo-obb", "dota")
YAML = "train: images/train\nnames: [plane, ship]\n"


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


@pytest.fixture(scope="module")
def drawn():
    index = shapes_index("train", size=96, length=8, level="oriented")
    return replace(index, difficult=np.arange(index.num_boxes) % 3 == 0)


def polygons(index):
    return [Polygon(corners) for corners in corners_of(index.oriented)]


def assert_same_rectangles(index, other):
    for one, two in zip(polygons(index), polygons(other), strict=True):
        assert one.symmetric_difference(two).area < 1e-9 * one.area


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_is_read_again(tmp_path, drawn, layout):
    convert_splits([drawn, replace(drawn.take([5, 3]), split="val")], layout, tmp_path / "set")
    assert set(split_names(tmp_path / "set")) == {"train", "val"}
    read = load_dataset(tmp_path / "set", "train")
    index = read.index
    assert (read.layout, index.classes, index.problems) == (layout, drawn.classes, ())
    assert_same_rectangles(index, drawn)
    np.testing.assert_array_equal(index.labels, drawn.labels)
    np.testing.assert_allclose(index.boxes, drawn.boxes, atol=1e-9)
    np.testing.assert_allclose(index.areas, drawn.areas)
    assert index.difficult.tolist() == (drawn.difficult & (layout == "dota")).tolist()
    assert np.array_equal(read[2][0], DetectionDataset(drawn)[2][0])
    assert check_dataset(tmp_path / "set", workers=1).ok
    lost = get_format(layout).lost(drawn)
    difficult = int(drawn.difficult.sum())
    assert lost.get("difficult marks", 0) == (0 if layout == "dota" else difficult)
    assert "angles of boxes" not in lost


def test_from_one_layout_to_the_other_and_to_those_without_angles(tmp_path, drawn):
    convert_splits([drawn], "dota", tmp_path / "dota")
    dota = load_dataset(tmp_path / "dota", "train").index
    convert_splits([dota], "yolo-obb", tmp_path / "obb")
    assert_same_rectangles(load_dataset(tmp_path / "obb", "train").index, drawn)
    for layout in ("coco", "voc", "yolo"):
        assert get_format(layout).lost(dota)["angles of boxes"] == drawn.num_boxes
        convert_splits([dota], layout, tmp_path / layout)
        index = load_dataset(tmp_path / layout, "train").index
        assert index.oriented is None
        np.testing.assert_allclose(index.boxes, drawn.boxes, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_axis_aligned_boxes_become_rectangles_that_are_not_turned(tmp_path, layout):
    boxes = random_index(6)
    get_format(layout).write(boxes, tmp_path / "set", images="none")
    for image, name in enumerate(boxes.files):
        (label,) = (tmp_path / "set").rglob(f"{name[7:-4]}.txt")
        lines = [line.split() for line in label.read_text().splitlines()]
        numbers = [line[:8] if layout == "dota" else line[1:] for line in lines]
        corners = np.array(numbers, float).reshape(-1, 4, 2)
        if layout == "yolo-obb":
            corners *= boxes.sizes[image]
        low, high = corners.min(1), corners.max(1)
        expected = boxes.boxes[boxes.rows(image)]
        np.testing.assert_allclose(np.hstack([low, high]).reshape(-1, 4), expected, atol=1e-9)


def test_dota_as_hotcoco_reads_it(tmp_path, drawn):
    convert_splits([drawn], "dota", tmp_path / "set")
    theirs = hotcoco.COCO.from_dota(str(tmp_path / "set" / "train" / "labelTxt")).dataset
    names = {one["id"]: one["name"] for one in theirs["categories"]}
    files = {one["id"]: one["file_name"].partition(".")[0] for one in theirs["images"]}
    found = {}
    for one in theirs["annotations"]:
        box = corners_of(np.array([one["obb"]]))[0]
        found.setdefault(files[one["image_id"]], []).append((names[one["category_id"]], box))
    read = load_dataset(tmp_path / "set", "train").index
    for image, name in enumerate(read.files):
        labels = [read.classes[label] for label in read.labels[read.rows(image)]]
        theirs_here = found.get(name.rpartition("/")[2][:-4], [])
        assert labels == [label for label, _ in theirs_here]
        for ours, (_, box) in zip(read.corners(image), theirs_here, strict=True):
            assert Polygon(ours).symmetric_difference(Polygon(box)).area < 1e-3


DOTA_FILES = {
    "images/a.png": None,
    "images/b.png": None,
    "labelTxt/a.txt": "imagesource:GoogleEarth\ngsd:0.146343\n10 10 30 10 30 20 10 20 ship 1\n",
    "labelTxt/b.txt": "50 10 60 20 50 30 40 20 plane 0\n60 20 80 20 80 30 60 30 plane\n",
}


@pytest.mark.parametrize("folder", ["labelTxt", "annfiles", "labelTxt-v1.5/deep"])
@pytest.mark.parametrize("half", ["", "val/"])
def test_folders_of_dota(tmp_path, folder, half):
    files = {half + name.replace("labelTxt", folder): text for name, text in DOTA_FILES.items()}
    put_all(tmp_path, files)
    split = half[:-1] or "train"
    index = load_dataset(tmp_path, split).index
    assert (index.layout, index.classes) == ("dota", ("plane", "ship"))
    assert list(index.files) == [f"{half}images/a.png", f"{half}images/b.png"]
    assert index.labels.tolist() == [1, 0, 0]
    assert index.difficult.tolist() == [True, False, False]
    np.testing.assert_allclose(index.boxes[1], [40, 10, 60, 30])
    np.testing.assert_allclose(index.areas, [200, 200, 200])
    assert index.problems == ()


def test_splits_below_the_two_folders_of_dota(tmp_path):
    for split in ("train", "val"):
        half = {
            f"{kind}/{split}/{rest}": text
            for name, text in DOTA_FILES.items()
            for kind, _, rest in [name.partition("/")]
        }
        put_all(tmp_path, half)
    assert split_names(tmp_path) == ("train", "val")
    assert load_dataset(tmp_path, "val").index.files[0] == "images/val/a.png"


def test_what_is_wrong_with_dota_is_said(tmp_path):
    lines = [
        "1 1 2 2 3 3 4 4 ship 0",
        "10 10 30 10 30 20 10 20 ship maybe",
        "10 10 30 10 30 20 ship 0",
        "a 10 30 10 30 20 10 20 ship 0",
        "10 10 30 20 30 10 10 20 ship 0",
        "nan 10 30 10 30 20 10 20 ship 0",
        "90 40 120 40 120 45 90 45 ship 0",
        "900 40 920 40 920 45 900 45 ship 0",
        "10 10 30 10 30 20 10 20 ship 0",
        "10 10 30 10 30 20 10 20 ship 0",
    ]
    put_all(
        tmp_path,
        DOTA_FILES
        | {"labelTxt/a.txt": "\n".join(lines), "images/c.png": None, "labelTxt/d.txt": "gsd:1\n"},
    )
    index = load_dataset(tmp_path, "train").index
    assert kinds(index)[:5] == [
        ("line-broken", "a.txt", "line 2", "box left out"),
        ("line-broken", "a.txt", "line 3", "box left out"),
        ("line-broken", "a.txt", "line 4", "box left out"),
        ("image-without-label", "c.png", "", "image left out"),
        ("image-missing", "d.txt", "", "image left out"),
    ]
    assert kinds(index)[5:] == [
        ("box-flat", "a.txt", "line 1", "box left out"),
        ("corners-askew", "a.txt", "line 5", "kept"),
        ("box-nan", "a.txt", "line 6", "box left out"),
        ("box-past-border", "a.txt", "line 7", "kept"),
        ("box-outside", "a.txt", "line 8", "box left out"),
        ("box-duplicate", "a.txt", "line 10", "kept"),
    ]
    assert "x1 y1 x2 y2 x3 y3 x4 y4 = 1 1 2 2 3 3 4 4" in index.problems[5].detail
    with pytest.raises(DataError, match="has no split 'val'; there are: train"):
        load_dataset(tmp_path, "val")
    (tmp_path / "labelTxt-v1.5").mkdir()
    with pytest.raises(DataError, match=r"labelTxt and labelTxt-v1\.5; move one"):
        load_dataset(tmp_path, "train")


def obb_set(root, text):
    files = {"data.yaml": YAML, "images/train/a.jpg": None, "labels/train/a.txt": text}
    return put_all(root, files)


TURNED = "0 0.5 0.2 0.6 0.4 0.5 0.6 0.4 0.4\n"


def test_the_two_layouts_of_yolo_are_told_apart(tmp_path):
    obb_set(tmp_path / "turned", TURNED)
    obb_set(tmp_path / "one bad line", TURNED * 2 + "0 0.5 0.5 0.1 0.1\n")
    obb_set(tmp_path / "polygons", TURNED + "1 0.1 0.1 0.2 0.1 0.2 0.2\n")
    assert load_dataset(tmp_path / "turned", "train").layout == "yolo-obb"
    assert load_dataset(tmp_path / "polygons", "train").layout == "yolo"
    index = load_dataset(tmp_path / "one bad line", "train").index
    assert kinds(index)[0] == ("line-broken", "a.txt", "line 3", "box left out")
    assert "5 columns; an oriented box has 9" in index.problems[0].detail
    # The same extents either way.
    boxes = [
        load_dataset(tmp_path / "turned", "train", layout=layout).index.boxes
        for layout in ("yolo", "yolo-obb")
    ]
    np.testing.assert_allclose(boxes[0], boxes[1], atol=1e-9)
    np.testing.assert_allclose(boxes[0] / [*SIZE, *SIZE], [[0.4, 0.2, 0.6, 0.6]])


def test_boxes_of_the_same_extent_are_no_repetition(tmp_path):
    other = "0 0.4 0.3 0.5 0.2 0.6 0.5 0.5 0.6\n"
    index = load_dataset(obb_set(tmp_path, TURNED + other), "train").index
    np.testing.assert_allclose(*index.boxes)
    assert index.problems == ()


def test_targets_have_the_oriented_boxes_beside_their_extents(drawn):
    target = DetectionDataset(drawn).target(0)
    rows = drawn.rows(0)
    np.testing.assert_allclose(target["oriented"], drawn.oriented[rows], rtol=1e-6)
    np.testing.assert_allclose(target["boxes"], drawn.boxes[rows], rtol=1e-6)
    assert "oriented" not in DetectionDataset(shapes_index("val", length=1)).target(0)


def test_images_and_boxes_are_chosen_with_their_angles(drawn):
    chosen = drawn.take([4, 1])
    expected = np.concatenate([drawn.oriented[drawn.rows(4)], drawn.oriented[drawn.rows(1)]])
    np.testing.assert_array_equal(chosen.oriented, expected)
    kept = drawn.drop_boxes(drawn.difficult)
    np.testing.assert_array_equal(kept.oriented, drawn.oriented[~drawn.difficult])
    turned = replace(drawn, oriented=drawn.oriented + np.array([0, 0, 0, 0, 0.1]))
    assert fingerprint([turned]) != fingerprint([drawn])


def test_a_cached_index_keeps_its_angles(tmp_path, drawn, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    convert_splits([drawn], "dota", tmp_path / "set")
    first, again = (load_dataset(tmp_path / "set", "train").index for _ in range(2))
    assert list((tmp_path / "cache").iterdir())
    np.testing.assert_array_equal(first.oriented, again.oriented)


def test_noise_for_axis_aligned_boxes_is_refused(drawn):
    with pytest.raises(DataError, match="these are oriented; convert"):
        perturb_index(drawn, 0.3, seed=0)


def test_a_class_that_a_line_of_dota_cannot_hold(tmp_path, drawn):
    index = replace(drawn, classes=("traffic light", *drawn.classes[1:]))
    with pytest.raises(DataError, match="cannot hold the class 'traffic light'; rename"):
        get_format("dota").write(index, tmp_path / "set", images="none")
