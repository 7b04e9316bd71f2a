import contextlib
import io
import json
import logging
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alphaiou.cli import main
from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import DetectionDataset, load_dataset, split_names
from alphaiou.data.formats.coco import annotation_files, find_annotations, find_images
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.registry import FORMATS, WRITABLE_LAYOUTS, get_format, recognise
from alphaiou.data.problems import DataError
from alphaiou.training.recipe import DataRecipe
from alphaiou.training.setup import resolve_splits
from tests.data.formats.layouts import put_all

SHARED = Path(__file__).parents[3] / "../shared/data"
XML = """<annotation><filename>a.jpg</filename><size><width>20</width><height>10</height>
<depth>3</depth></size><object><name>cat</name><bndbox><xmin>1</xmin><ymin>1</ymin>
<xmax>5</xmax><ymax>5</ymax></bndbox></object></annotation>"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "set").mkdir()
    return tmp_path / "set"


def put(path, content=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def put_image(path, size=(20, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)


def coco_json(*names, box=(0, 0, 5, 5)):
    images = [
        {"id": number, "file_name": name, "width": 20, "height": 10}
        for number, name in enumerate(names, 1)
    ]
    annotation = {"id": 1, "image_id": 1, "category_id": 1, "bbox": box}
    categories = [{"id": 1, "name": "cat"}]
    document = {"images": images, "annotations": [annotation], "categories": categories}
    return json.dumps(document)


def make_voc(root):
    year = root / "VOC2007"
    put(year / "Annotations/a.xml", XML)
    put(year / "ImageSets/Main/train.txt", "a\n")
    put_image(year / "JPEGImages/a.jpg")


def make_coco(root, split="train"):
    put(root / f"annotations/instances_{split}2017.json", coco_json("a.jpg"))
    put_image(root / f"{split}2017/a.jpg")


def make_yolo(root, yaml="data.yaml"):
    put_image(root / "images/train/a.jpg")
    put(root / "labels/train/a.txt", "1 0.25 0.5 0.5 1\n")
    if yaml:
        put(root / yaml, "train: images/train\nnames: [dog, cat]\n")


MAKERS = {"voc": make_voc, "coco": make_coco, "yolo": make_yolo}


@pytest.mark.parametrize("layout", MAKERS)
def test_each_layout_is_recognised_and_said(root, layout, caplog):
    MAKERS[layout](root)
    assert recognise(root) == layout
    assert split_names(root)[0].startswith("train")
    with caplog.at_level(logging.INFO, "alphaiou.data"):
        dataset = load_dataset(root, "train")
    assert isinstance(dataset, DetectionDataset)
    assert dataset.layout == dataset.index.layout == layout
    assert f"{layout} layout, split train): 1 images, 1 boxes" in str(dataset)
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("INFO", str(dataset))]
    image, target = dataset[0]
    assert image.shape == (3, 10, 20)
    assert target["boxes"].shape == (1, 4)
    assert dataset.index.classes[dataset.index.labels[0]] == "cat"


@pytest.mark.parametrize("layout", MAKERS)
def test_from_the_cache_it_is_the_same(root, layout, cache):
    MAKERS[layout](root)
    first = load_dataset(root, "train").index
    assert len(list(cache.iterdir())) == 1
    again = load_dataset(str(root), "train").index
    assert again.boxes is not first.boxes
    assert (str(again), again.images, again.problems) == (str(first), first.images, first.problems)
    assert again.boxes.tolist() == first.boxes.tolist()


CHANGES = {
    "voc": ("VOC2007/Annotations/a.xml", XML.replace("<xmax>5<", "<xmax>7<")),
    "coco": ("annotations/instances_train2017.json", coco_json("a.jpg", box=(0, 0, 7, 5))),
    "yolo": ("labels/train/a.txt", "1 0.25 0.5 0.35 1.00\n"),
}


@pytest.mark.parametrize("layout", MAKERS)
def test_a_change_of_the_annotations_is_noticed(root, layout):
    MAKERS[layout](root)
    before = load_dataset(root, "train").index.boxes
    name, content = CHANGES[layout]
    put(root / name, content)
    os.utime(root / name, ns=(1, 1))  # even where clocks are coarse
    after = load_dataset(root, "train").index.boxes
    assert after[0, 2] == pytest.approx(8.5 if layout == "yolo" else 7)
    assert not np.array_equal(before, after)


def test_an_image_that_is_gone_or_comes_is_noticed(root):
    put(root / "annotations/train.json", coco_json("a.jpg", "b.jpg"))
    put_image(root / "train/a.jpg")
    assert [p.kind for p in load_dataset(root, "train").index.problems] == ["image-missing"]
    put_image(root / "train/b.jpg")
    assert load_dataset(root, "train").index.problems == ()


def test_a_yolo_image_of_another_size_is_noticed(root):
    make_yolo(root)
    assert load_dataset(root, "train").index.boxes[0].tolist() == [0, 0, 10, 10]
    put_image(root / "images/train/a.jpg", (40, 30))
    assert load_dataset(root, "train").index.boxes[0].tolist() == [0, 0, 20, 30]


def test_yolo_lists_anywhere_are_watched(root, tmp_path):
    make_yolo(root, yaml=None)
    (root / "images/train/a.jpg").rename(root / "images/train/b.jpg")
    (root / "labels/train/a.txt").rename(root / "labels/train/b.txt")
    put(tmp_path / "elsewhere/list.txt", f"{root}/images/train/b.jpg\n")
    put(tmp_path / "elsewhere/my.yaml", "train: list.txt\nnames: [dog, cat]\n")
    dataset = load_dataset(tmp_path / "elsewhere/my.yaml", "train")
    assert dataset[0][0].shape == (3, 10, 20)
    put(root / "labels/train/b.txt", "0 0.25 0.5 0.5 1\n0 0.75 0.5 0.5 1\n")
    assert load_dataset(tmp_path / "elsewhere", "train").index.num_boxes == 2
    assert load_dataset(tmp_path / "elsewhere/my.yaml", "train").index.num_boxes == 2


def test_yolo_folders_without_names(root):
    make_yolo(root, yaml=None)
    index = load_dataset(root, "train").index
    assert index.classes == ("class 0", "class 1")
    assert split_names(root) == ("train",)
    with pytest.raises(DataError, match="train"):
        load_dataset(root, "val")


def test_yolo_images_without_splits(root):
    put_image(root / "images/a.jpg")
    put(root / "labels/a.txt", "0 0.5 0.5 1 1\n99999 0.5 0.5 1 1\n")
    index = load_dataset(root, "train").index
    assert (len(index), index.num_boxes, index.classes) == (1, 1, ("class 0",))
    assert [p.kind for p in index.problems] == ["class-unknown"]


def test_any_yaml_that_names_classes_is_one_and_others_are_not(root):
    make_yolo(root, yaml="pets.yaml")
    put(root / "compose.yaml", "services: {}\n")
    assert load_dataset(root, "train").index.classes == ("dog", "cat")


def test_voc_by_three_paths(root):
    make_voc(root / "VOCdevkit")
    for path in (root, root / "VOCdevkit", root / "VOCdevkit/VOC2007"):
        assert recognise(path) == "voc"
        assert load_dataset(path, "train").index.num_boxes == 1


def test_two_layouts_are_an_error_that_names_both(root):
    make_coco(root)
    make_yolo(root, yaml=None)
    with pytest.raises(DataError, match="could be coco or yolo; choose with layout='coco'"):
        load_dataset(root, "train")
    assert load_dataset(root, "train", layout="coco").index.classes == ("cat",)
    assert load_dataset(root, "train", layout="yolo").index.classes == ("class 0", "class 1")
    assert split_names(root, layout="coco") == ("train2017",)
    assert recognise(root / "annotations/instances_train2017.json") == "coco"


def test_nothing_is_said_to_be_nothing(root):
    with pytest.raises(DataError, match=r"looked for voc: .*; coco: .*; yolo: "):
        load_dataset(root, "train")
    with pytest.raises(DataError, match="no such file or folder"):
        load_dataset(root / "absent", "train")
    put(root / "notes.txt")
    with pytest.raises(DataError, match="no data set of a known layout"):
        load_dataset(root / "notes.txt", "train")
    make_coco(root)
    with pytest.raises(DataError, match=r"not of the voc layout.*it looks like coco"):
        load_dataset(root, "train", layout="voc")
    with pytest.raises(DataError, match="no such layout"):
        load_dataset(root, "train", layout="kitti")


@pytest.mark.parametrize("layout", MAKERS)
def test_a_split_that_is_not_there_is_an_error_with_those_that_are(root, layout):
    MAKERS[layout](root)
    with pytest.raises(DataError, match=r"holdout.*train"):
        load_dataset(root, "holdout")


def test_shapes(monkeypatch, root):
    monkeypatch.chdir(root)
    make_coco(root / "shapes")
    assert load_dataset("shapes", "val").layout == "shapes"
    assert split_names("shapes") == ("train", "val", "test")
    assert load_dataset("./shapes", "train").layout == "coco"
    with pytest.raises(DataError, match="holdout"):
        load_dataset("shapes", "holdout")


def test_what_is_left_out_is_warned_of(root, caplog):
    put(root / "annotations/train.json", coco_json("a.jpg", "b.jpg", box=(0, 0, 0, 5)))
    put_image(root / "train/a.jpg")
    for _ in range(2):  # read, and from the cache
        caplog.clear()
        load_dataset(root, "train")
        (warning,) = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
        assert "1 image left out (1 image-missing)" in warning
        assert "1 box left out (1 box-flat)" in warning
        assert str(root) in warning


@pytest.mark.parametrize("layout", FORMATS)
def test_what_can_be_written_is_read_again_and_the_rest_says_so(layout, tmp_path):
    index = load_dataset("shapes-plain-64", "val").index.take(range(3))
    if layout not in WRITABLE_LAYOUTS:
        with pytest.raises(DataError, match="can only be read; write another"):
            get_format(layout).write(index, tmp_path / "out", images="copy")
        return
    get_format(layout).write(index, tmp_path / "out", images="copy")
    assert recognise(tmp_path / "out") == layout
    again = load_dataset(tmp_path / "out", "val").index
    np.testing.assert_allclose(again.boxes, index.boxes, atol=1e-9)
    assert again.problems == ()


UNREADABLE = {
    "TFRecord": ({"train/Cells.tfrecord": b"\0", "train/Cells.pbtxt": "item {}"}, "Pascal"),
    "TFRecord in shards": ({"data.record-00000-of-00010": b"\0"}, "COCO"),
    "Label Studio": (
        {"project-1-at-2024.json": '[{"id": 1, "annotations": [{"id": 2, "result": [{"type": '
         '"rectanglelabels", "value": {"x": 1}}]}], "data": {"image": "/data/upload/1/a.jpg"}}]'},
        "export it from Label Studio as COCO or YOLO",
    ),
    "VIA": (
        {"via_region_data.json": '{"a.jpg123": {"filename": "a.jpg", "size": 123, "regions": []}}'},
        "export it from VIA as COCO",
    ),
    "VIA of a project": ({"via.json": '{"_via_settings": {}, "_via_img_metadata": {}}'}, "VIA"),
    "VIA in CSV": (
        {"via.csv": "filename,file_size,file_attributes,region_count,region_id,"
         'region_shape_attributes,region_attributes\na.jpg,1,"{}",1,0,"{}","{}"\n'},
        "VIA",
    ),
    "LabelMe": ({"a.json": '{"shapes": [], "imagePath": "a.jpg"}'}, "labelme2coco"),
    "KITTI": (
        {"training/image_2/000000.png": None, "training/label_2/000000.txt": "Pedestrian 0.00 0 "
         "-0.20 712.40 143.00 810.73 307.92 1.89 0.48 1.20 1.84 1.47 8.41 0.01\n"},
        "KITTIDetectionDataset",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_layouts_that_cannot_be_read_are_named_with_the_conversion(root, name):
    files, remedy = UNREADABLE[name]
    put_all(root, {"images/a.jpg": None} | files)
    with pytest.raises(DataError, match=rf"{name.partition(' ')[0]}.*cannot be read; .*{remedy}"):
        load_dataset(root, "train")
    report = json.loads(check_json(root))
    assert name.partition(" ")[0] in report["error"]
    for file in files:
        if file.endswith((".json", ".csv", ".tfrecord")):
            with pytest.raises(DataError, match=f"cannot be read; .*{remedy}"):
                recognise(root / file)


def check_json(root):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["data", "check", str(root), "--json"]) == 1
    return out.getvalue()


@pytest.mark.parametrize("command", [["data", "--help"], ["data", "check", "--help"]])
def test_the_help_lists_every_layout(capsys, command):
    with contextlib.suppress(SystemExit):
        main(command)
    words = set(re.findall(r"[\w-]+", capsys.readouterr().out))
    assert set(FORMATS) <= words


ANNOTATIONS = [
    ("annotations/train.json", "train"),
    ("annotations/instances_train.json", "train"),
    ("annotations/instances_train2017.json", "train"),
    ("annotations/instances_train2017.json", "train2017"),
    ("train/_annotations.coco.json", "train"),
]


@pytest.mark.parametrize(("name", "split"), ANNOTATIONS)
def test_where_annotations_are_looked_for(root, name, split):
    put(root / name)
    put(root / "annotations/captions_train2017.json")
    put(root / "annotations/person_keypoints_train2017.json")
    put(root / "annotations/instances_val2017.json")
    assert find_annotations(root, split) == root / name
    assert len(annotation_files(root)) == 2


def test_another_annotation_file_is_noticed(root):
    make_coco(root)
    assert load_dataset(root, "train").index.num_boxes == 1
    put(root / "annotations/instances_train2014.json")
    with pytest.raises(DataError, match="more than one year"):
        load_dataset(root, "train")


def test_two_years_are_one_too_many(root):
    make_coco(root)
    put(root / "annotations/instances_train2014.json")
    with pytest.raises(DataError, match=r"more than one year.*train2014, train2017"):
        find_annotations(root, "train")
    assert find_annotations(root, "train2017").name == "instances_train2017.json"


PLACES = [
    ("annotations/instances_train2017.json", "train2017", "a.jpg"),
    ("annotations/train.json", "images/train", "a.jpg"),
    ("annotations/train.json", "train", "a.jpg"),
    ("annotations/train.json", "train/images", "a.jpg"),
    ("annotations/train.json", "images", "a.jpg"),
    ("annotations/train.json", "images", "train/a.jpg"),
    ("annotations/train.json", "", "train/a.jpg"),
    ("annotations/train.json", "", "deep/er/a.jpg"),
    ("train/_annotations.coco.json", "train", "a.jpg"),
    ("labels.json", "", "a.jpg"),
    ("labels.json", "images", "a.jpg"),
]


@pytest.mark.parametrize(("annotations", "folder", "name"), PLACES)
def test_where_images_are_looked_for(root, annotations, folder, name):
    put(root / annotations, coco_json(name))
    for empty in ("train", "images", "images/train"):
        (root / empty).mkdir(parents=True, exist_ok=True)
    put_image(root / folder / name)
    images = find_images(root / annotations, "train")
    assert isinstance(images, FolderImages)
    assert (images.root / name).samefile(root / folder / name)


def test_images_in_shards(root):
    put(root / "annotations/train.json", coco_json("a.jpg", "b.jpg"))
    put_image(root / "x.jpg")
    for shard, name in (
        ("train-10.tar", "a.jpg"),
        ("train-9.tar", "b.jpg"),
        ("train-more.tar", "c"),
    ):
        with tarfile.open(root / shard, "w") as tar:
            tar.add(root / "x.jpg", f"train/{name}")
    images = find_images(root / "annotations/train.json", "train")
    assert images == TarImages((root / "train-9.tar", root / "train-10.tar"))
    dataset = load_dataset(root, "train")
    assert dataset[1][0].shape == (3, 10, 20)
    (root / "train-10.tar").unlink()
    assert len(load_dataset(root, "train")) == 1


def test_images_that_are_nowhere_are_an_error_with_the_places(root):
    put(root / "annotations/train.json", coco_json("a.jpg"))
    (root / "images").mkdir()
    with pytest.raises(DataError, match=r"a\.jpg.*images"):
        load_dataset(root, "train")


def make_valid_voc(root, name):
    make_voc(root)
    lists = root / "VOC2007/ImageSets/Main"
    (lists / "train.txt").rename(lists / f"{name}.txt")


def make_valid_coco(root, name):
    put(root / f"{name}/_annotations.coco.json", coco_json("a.jpg"))
    put_image(root / f"{name}/a.jpg")


def make_valid_yolo(root, name):
    make_yolo(root)
    put(root / "data.yaml", f"{name}: images/train\nnames: [dog, cat]\n")


@pytest.mark.parametrize("name", ["valid", "validation", "VALID", "val"])
@pytest.mark.parametrize("make", [make_valid_voc, make_valid_coco, make_valid_yolo])
def test_valid_is_val_in_every_layout(root, make, name):
    make(root, name)
    assert split_names(root) == ("val",)
    for asked in ("val", "valid", "validation", name):
        for _ in range(2):  # read, and from the cache
            index = load_dataset(root, asked).index
            assert (index.split, len(index), index.num_boxes) == ("val", 1, 1)
        assert [one.split for one in check_dataset(root, asked).splits] == ["val"]
    data = DataRecipe(path=str(root), train="train", val="auto", test="auto")
    assert resolve_splits(data).val == "val"


def test_a_set_that_has_val_and_valid_keeps_both(root):
    make_valid_coco(root, "val")
    make_valid_coco(root, "valid")
    put(root / "valid/_annotations.coco.json", coco_json("a.jpg", box=(0, 0, 7, 7)))
    assert split_names(root) == ("val", "valid")
    assert load_dataset(root, "val").index.boxes[0, 2] == 5
    assert load_dataset(root, "valid").index.boxes[0, 2] == 7


def test_a_file_by_itself(root):
    make_coco(root)
    path = root / "annotations/instances_train2017.json"
    assert split_names(path) == ("train2017",)
    index = load_dataset(path, "anything").index
    assert (index.split, len(index)) == ("anything", 1)


def test_opening_coco_loads_no_torch(root):
    make_coco(root)
    code = (
        "import sys; from alphaiou.data.dataset import load_dataset; "
        "load_dataset(sys.argv[1], 'train'); print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


EXPECTED = [
    ("voc320", "train", "coco", 11_538, 31_556),
    ("voc320", "test", "coco", 5_008, 15_655),
    ("voc-sample", "trainval", "voc", 44, 106),
    ("coco256", "train", "yolo", 128, 929),
    ("coco256", "val", "yolo", 128, 898),
]


@pytest.mark.parametrize(("name", "split", "layout", "images", "boxes"), EXPECTED)
def test_real_data(name, split, layout, images, boxes):
    if not (SHARED / name).exists():
        pytest.skip(f"needs shared/data/{name} beside the checkout")
    dataset = load_dataset(SHARED / name, split)
    assert (dataset.layout, len(dataset), dataset.index.num_boxes) == (layout, images, boxes)
    image, target = dataset[-1]
    assert image.shape[::-1][:2] == tuple(dataset.index.sizes[-1])
    assert len(target["boxes"]) == len(dataset.index.boxes[dataset.index.rows(len(dataset) - 1)])


def test_the_page_on_data_sets_describes_every_format():
    page = (Path(__file__).parents[3] / "docs/data.md").read_text()
    table = page.partition("\n## Layouts\n")[2].partition("\n\n`load_dataset`")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == set(FORMATS)
