import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import yaml
from pycocotools.coco import COCO

from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import DetectionDataset, load_dataset
from alphaiou.data.formats.registry import get_format
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index

SIDES = ("xmin", "ymin", "xmax", "ymax")
LAYOUTS = ("voc", "coco", "yolo")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


@pytest.fixture(scope="module")
def marked():
    """Drawn images, some boxes of which are crowds, difficult or truncated; sparse numbers."""
    index = shapes_index("train", size=64, length=6)
    rng = np.random.default_rng(0)
    flags = rng.random((3, index.num_boxes)) < 0.3
    return replace(
        index,
        crowd=flags[0],
        difficult=flags[1] | flags[0],
        truncated=flags[2],
        areas=index.areas * 0.7,
        category_ids=np.arange(1, 13) * 7,
        image_ids=np.arange(6) * 10 + 3,
    )


def by_stem(index):
    """Boxes and class names of each image, by its stem."""
    names = np.array(index.classes)[index.labels]
    return {
        name.rpartition("/")[2].partition(".")[0]: (boxes, names[index.rows(image)].tolist())
        for image, (name, boxes) in enumerate(index)
    }


def assert_same_boxes(one, other, tolerance=1e-9):
    found, expected = by_stem(one), by_stem(other)
    assert found.keys() == expected.keys()
    for stem, (boxes, names) in found.items():
        np.testing.assert_allclose(boxes, expected[stem][0], rtol=0, atol=tolerance)
        assert names == expected[stem][1]
    assert one.classes == other.classes


@pytest.mark.parametrize(("first", "second"), [*product(LAYOUTS, LAYOUTS)])
def test_round_trips(marked, tmp_path, first, second):
    assert convert_splits([marked], first, tmp_path / "1")
    there = load_dataset(tmp_path / "1", "train").index
    assert there.layout == first
    assert_same_boxes(there, marked)
    assert convert_splits([there], second, tmp_path / "2")
    back = load_dataset(tmp_path / "2", "train").index
    assert back.layout == second
    assert_same_boxes(back, marked)
    if "yolo" not in (first, second):
        assert np.array_equal(back.difficult, marked.difficult)
        assert np.array_equal(back.truncated, marked.truncated)
    assert not back.problems


@pytest.mark.parametrize("layout", LAYOUTS)
def test_images_come_along_and_decode_to_the_same_pixels(marked, tmp_path, layout):
    convert_splits([marked], layout, tmp_path / "set", images="copy")
    dataset, source = load_dataset(tmp_path / "set", "train"), DetectionDataset(marked)
    places = [name.rpartition("/")[2] for name in dataset.index.files]
    for place, name in enumerate(marked.files):
        image, _ = dataset[places.index(name)]
        assert (image == source[place][0]).all()


def test_coco_is_what_pycocotools_reads(marked, tmp_path, capsys):
    convert_splits([marked], "coco", tmp_path / "set", images="none")
    coco = COCO(str(tmp_path / "set/annotations/train.json"))
    capsys.readouterr()
    assert coco.getImgIds() == marked.image_ids.tolist()
    assert coco.getCatIds() == marked.category_ids.tolist()
    for row, box in enumerate(coco.loadAnns(marked.box_ids.tolist())):
        x, y, w, h = box["bbox"]
        np.testing.assert_allclose((x, y, x + w, y + h), marked.boxes[row], atol=1e-9)
        assert box["iscrowd"] == marked.crowd[row]
        assert box["area"] == marked.areas[row]


def test_voc_is_what_an_xml_parser_reads(marked, tmp_path):
    convert_splits([marked], "voc", tmp_path / "set", images="none")
    for image, (name, boxes) in enumerate(marked):
        (path,) = (tmp_path / "set").rglob(f"{name.partition('.')[0]}.xml")
        objects = ET.parse(path).getroot().findall("object")
        corners = [[float(one.findtext(f"bndbox/{side}")) for side in SIDES] for one in objects]
        np.testing.assert_allclose(
            np.reshape(corners, (-1, 4)) - (1, 1, 0, 0), boxes.reshape(-1, 4), atol=1e-9
        )
        hard = [int(one.findtext("difficult")) for one in objects]
        assert hard == marked.difficult[marked.rows(image)].astype(int).tolist()


def test_yolo_is_what_its_lines_say(marked, tmp_path):
    convert_splits([marked], "yolo", tmp_path / "set", images="none")
    config = yaml.safe_load((tmp_path / "set/data.yaml").read_text())
    names = config["names"]
    assert [names[label] for label in range(12)] == list(marked.classes)
    for image, (name, boxes) in enumerate(marked):
        (path,) = (tmp_path / "set").rglob(f"{name.partition('.')[0]}.txt")
        lines = np.array([line.split() for line in path.read_text().splitlines()], float)
        label, x, y, w, h = lines.reshape(-1, 5).T
        width, height = marked.sizes[image]
        assert label.tolist() == marked.labels[marked.rows(image)].tolist()
        corners = np.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], axis=1)
        np.testing.assert_allclose(
            corners * (width, height, width, height), boxes.reshape(-1, 4), atol=1e-9
        )


def test_what_is_lost_is_counted(marked):
    counts = {"crowd": marked.crowd.sum(), "difficult": marked.difficult.sum()}
    assert min(counts.values()) > 0
    assert get_format("coco").lost(marked) == {}
    voc = get_format("voc").lost(marked)
    assert voc["crowds, marked difficult instead"] == counts["crowd"]
    assert voc["areas that are not width × height"] == marked.num_boxes
    assert voc["category numbers"] == 12
    assert voc["image numbers"] == 6
    yolo = get_format("yolo").lost(marked)
    assert yolo["crowd marks"] == counts["crowd"]
    assert yolo["difficult marks"] == counts["difficult"]
    assert yolo["truncated marks"] == marked.truncated.sum()


def test_record_says_what_was_lost_and_the_same_again_is_left_alone(marked, tmp_path):
    out = tmp_path / "set"
    assert convert_splits([marked], "yolo", out, images="none")
    record = json.loads((out / "conversion.json").read_text())
    assert record["lost"]["train"] == get_format("yolo").lost(marked)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert not convert_splits([marked], "yolo", out, images="none")
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}


def test_another_conversion_into_the_same_folder_is_refused(marked, tmp_path):
    convert_splits([marked], "yolo", tmp_path / "set", images="none")
    with pytest.raises(DataError, match="was made with layout yolo, not coco; write to another"):
        convert_splits([marked], "coco", tmp_path / "set", images="none")
    other = marked.take([0, 1])
    with pytest.raises(DataError, match="was made of other annotations"):
        convert_splits([other], "yolo", tmp_path / "set", images="none")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes.txt").write_text("keep")
    with pytest.raises(DataError, match="is not empty; write to another folder"):
        convert_splits([marked], "coco", tmp_path / "mine", images="none")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("images", ["link", "none"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_same_bytes_every_time(marked, tmp_path, layout, images):
    contents = []
    for name in ("a", "b"):
        convert_splits([marked], layout, tmp_path / name, images=images)
        files = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        contents.append({str(f.relative_to(tmp_path / name)): f.read_bytes() for f in files})
    assert contents[0] == contents[1]


def test_nothing_is_left_behind_when_an_image_cannot_be_read(marked, tmp_path):
    class Broken:
        def read(self, name):
            raise DataError(f"{name}: the image cannot be read")

    with pytest.raises(DataError, match="cannot be read"):
        convert_splits([replace(marked, images=Broken())], "coco", tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


#: In a process of its own, since importing Ultralytics changes settings of the process.
READ_BY_ULTRALYTICS = """
import json, sys
from ultralytics.data import YOLODataset
from ultralytics.data.utils import check_det_dataset
data = check_det_dataset(sys.argv[1], autodownload=False)
boxes = {
    split: {
        label["im_file"]: [label["cls"].reshape(-1).tolist(), label["bboxes"].tolist()]
        for label in YOLODataset(img_path=data[split], data=data).labels
    }
    for split in ("train", "val")
}
print(); print(json.dumps({"names": list(data["names"].values()), "boxes": boxes}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("cwd", [".", "set", "other/set"])
def test_ultralytics_reads_a_yolo_set_from_any_working_directory(tmp_path, cwd):
    if find_spec("ultralytics") is None:
        pytest.skip("ultralytics is not installed")
    out = tmp_path / "set"
    splits = [shapes_index(split, size=64, length=4) for split in ("train", "val")]
    convert_splits(splits, "yolo", out)
    for split in ("train", "val"):  # in the way of paths relative to the working directory
        (tmp_path / "other/set/images" / split).mkdir(parents=True)
    config = os.path.relpath(out / "data.yaml", tmp_path / cwd)
    command = [sys.executable, "-c", READ_BY_ULTRALYTICS, config]
    environment = {**os.environ, "YOLO_CONFIG_DIR": str(tmp_path / "settings")}
    done = subprocess.run(
        command, cwd=tmp_path / cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    read = json.loads(done.stdout.splitlines()[-1])
    assert tuple(read["names"]) == splits[0].classes
    for split in splits:
        back = load_dataset(out, split.split).index
        assert len(read["boxes"][split.split]) == len(back) == 4
        for image, name in enumerate(back.files):
            (labels, boxes), rows = read["boxes"][split.split][str(out / name)], back.rows(image)
            assert labels == back.labels[rows].tolist()
            corners = back.boxes[rows].reshape(-1, 2, 2) / back.sizes[image]
            centres = np.concatenate([corners.mean(1), corners[:, 1] - corners[:, 0]], axis=1)
            np.testing.assert_allclose(np.reshape(boxes, (-1, 4)), centres, atol=1e-6)
