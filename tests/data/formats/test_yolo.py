from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.files import FolderImages
from alphaiou.data.formats.registry import recognise
from alphaiou.data.formats.yolo import (
    _corners,
    find_config,
    label_path,
    read_config,
    read_yolo,
    write_yolo,
    yolo_splits,
)
from alphaiou.data.problems import DataError
from tests.data.formats.layouts import contents, put_all
from tests.data.made_index import random_index

COCO256 = Path(__file__).parents[4] / "shared/data/coco256/data.yaml"


def add_image(root, name, label=None, size=(100, 50)):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size).save(path)
    if label is not None:
        target = label_path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(label)
    return path


def write_config(root, text="train: images/train\nval: images/val\nnames: [cat, dog]\n"):
    path = root / "data.yaml"
    path.write_text(text)
    return path


def make_roboflow(root):
    """The YOLO export of Roboflow, whose file names folders beside it as if they were above."""
    for split in ("train", "valid", "test"):
        name = f"{split}/images/IMG_1_jpg.rf.{split}0a1b.jpg"
        add_image(root, name, "1 0.5 0.5 0.2 0.4\n")
    write_config(
        root,
        "train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 2\n"
        "names: ['cone', 'sign post']\n\nroboflow:\n  workspace: traffic\n  project: cones\n"
        "  version: 3\n  license: CC BY 4.0\n  url: https://universe.roboflow.com/cones/3\n",
    )
    (root / "README.roboflow.txt").write_text("cones - v3\n")
    return root


@pytest.fixture
def config(tmp_path):
    add_image(tmp_path, "images/train/b.jpg", "1 0.5 0.5 0.2 0.4\n0 0.1 0.2 0.2 0.4\n")
    add_image(tmp_path, "images/train/a.png", "", size=(64, 64))
    add_image(tmp_path, "images/train/deep/c.webp")
    add_image(tmp_path, "images/val/d.bmp", "0 0.25 0.5 0.5 1")
    return write_config(tmp_path)


def kinds(index):
    return [(p.kind, Path(p.file).name, p.where, p.effect) for p in index.problems]


class TestReading:
    def test_boxes_empty_and_missing_labels(self, config):
        index = read_yolo(config, "train")
        assert list(index.files) == [f"images/train/{n}" for n in ("a.png", "b.jpg", "deep/c.webp")]
        assert index.sizes.tolist() == [[64, 64], [100, 50], [100, 50]]
        assert index.offsets.tolist() == [0, 0, 2, 2]
        np.testing.assert_allclose(index.boxes, [[40, 15, 60, 35], [0, 0, 20, 20]], atol=1e-12)
        assert index.labels.tolist() == [1, 0]
        assert index.classes == ("cat", "dog")
        assert kinds(index) == [("image-without-label", "c.txt", "", "kept")]
        assert index.images.missing(index.files) == []

    def test_splits(self, config):
        assert yolo_splits(config) == ("train", "val")
        assert len(read_yolo(config, "valid")) == 1
        with pytest.raises(DataError, match=r"'test'.*train, val"):
            read_yolo(config, "test")

    def test_lists_relative_absolute_and_elsewhere(self, config, tmp_path_factory):
        root, elsewhere = config.parent, tmp_path_factory.mktemp("elsewhere")
        far = add_image(elsewhere, "images/e.jpg", "0 0.5 0.5 1 1")
        (root / "list.txt").write_text(
            f"./images/train/b.jpg\n\n{far}\nimages/train/b.jpg\nno.jpg\n"
        )
        write_config(root, "train: [list.txt, images/val]\nnames: {0: cat, 1: dog}\n")
        index = read_yolo(config, "train")
        assert list(index.files) == ["images/train/b.jpg", str(far), "images/val/d.bmp"]
        assert index.num_boxes == 4
        assert kinds(index) == [
            ("image-duplicate", "list.txt", "line 4", "image left out"),
            ("image-missing", "no.jpg", "", "image left out"),
        ]
        assert index.images.read(str(far))

    def test_a_list_relative_to_the_path_field(self, config):
        lists = config.parent / "lists"
        lists.mkdir()
        (lists / "train.txt").write_text("images/train/b.jpg\n")
        write_config(config.parent, "path: .\ntrain: lists/train.txt\nnames: [cat, dog]\n")
        assert len(read_yolo(config, "train")) == 1

    def test_roboflow_names_folders_beside_the_file_as_above_it(self, config):
        write_config(config.parent, "train: ../images/train\nnc: 2\nnames: ['cat', 'dog']\n")
        assert len(read_yolo(config, "train")) == 3

    def test_roboflow_by_a_relative_path_from_any_folder(self, tmp_path, monkeypatch):
        root = make_roboflow(tmp_path / "a/cone")
        monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
        for cwd, path in [
            (tmp_path / "a", "cone"),
            (tmp_path / "a", "cone/data.yaml"),
            (tmp_path, "a/cone"),
            (root, "."),
            (root, "data.yaml"),
            (root / "train", "../data.yaml"),
            (root / "train/images", "../.."),
            (tmp_path, root),
        ]:
            monkeypatch.chdir(cwd)
            assert split_names(path) == ("train", "val", "test")
            for split in ("train", "val", "valid", "test"):
                for _ in range(2):  # read, and from the cache
                    dataset = load_dataset(path, split)
                    assert dataset.index.problems == ()
                    assert dataset.index.classes == ("cone", "sign post")
                    monkeypatch.chdir("/")
                    image, target = dataset[0]
                    assert image.shape == (3, 50, 100)
                    assert target["boxes"].tolist() == [[40, 15, 60, 35]]
                    monkeypatch.chdir(cwd)

    @pytest.mark.parametrize(
        ("line", "kind"),
        [
            ("0 0.5 0.5 0.2", "line-broken"),
            ("0 0.5 0.5 0.2 0.2 0.9", "line-broken"),
            ("cat 0.5 0.5 0.2 0.2", "line-broken"),
            ("0 0.5 x 0.2 0.2", "line-broken"),
            ("0.5 0.5 0.5 0.2 0.2", "line-broken"),
            ("nan 0.5 0.5 0.2 0.2", "line-broken"),
            ("\xff\xfe 0.5 0.5 0.2 0.2", "line-broken"),
            ("2 0.5 0.5 0.2 0.2", "class-unknown"),
            ("-1 0.5 0.5 0.2 0.2", "class-unknown"),
            ("1e300 0.5 0.5 0.2 0.2", "class-unknown"),
            ("0 nan 0.5 0.2 0.2", "box-nan"),
            ("0 0.5 0.5 inf 0.2", "box-nan"),
            ("0 0.5 0.5 1e400 0.2", "box-nan"),
            ("0 0.1 0.1 nan 0.2 0.3 0.1", "box-nan"),
            ("0 0.5 0.5 0 0.2", "box-flat"),
            ("0 0.5 0.5 0.2 -0.2", "box-flat"),
            ("0 50 25 20 10", "box-outside"),
            ("0 -0.5 0.5 0.2 0.2", "box-outside"),
            ("0 0.95 0.5 0.2 0.2", "box-past-border"),
            ("1 0.5 0.5 0.2 0.4", "box-duplicate"),
        ],
    )
    def test_problems_name_file_and_line(self, config, line, kind):
        label = config.parent / "labels/train/b.txt"
        label.write_text(f"1 0.5 0.5 0.2 0.4\n\n{line}\n", encoding="latin-1")
        index = read_yolo(config, "train")
        kept = kind in ("box-past-border", "box-duplicate")
        effect = "kept" if kept else "box left out"
        assert (kind, "b.txt", "line 3", effect) in kinds(index)
        assert index.num_boxes == 1 + kept

    def test_polygons_become_their_bounding_boxes(self, config):
        (config.parent / "labels/train/b.txt").write_text("1 0.2 0.3 0.4 0.1 0.3 0.8 0.25 0.5\n")
        np.testing.assert_allclose(read_yolo(config, "train").boxes, [[20, 5, 40, 40]], atol=1e-12)

    def test_images_that_cannot_be_read_are_left_out(self, config):
        (config.parent / "images/train/b.jpg").write_bytes(b"no image")
        (config.parent / "labels/train/a.txt").unlink()
        (config.parent / "labels/train/a.txt").mkdir()
        index = read_yolo(config, "train")
        assert list(index.files) == ["images/train/deep/c.webp"]
        assert kinds(index)[:2] == [
            ("line-broken", "a.txt", "", "image left out"),
            ("image-unreadable", "b.jpg", "", "image left out"),
        ]

    def test_a_split_with_no_image(self, config):
        (config.parent / "empty").mkdir()
        write_config(config.parent, "train: empty\nnames: [cat]\n")
        with pytest.raises(DataError, match=r"data\.yaml: train"):
            read_yolo(config, "train")

    def test_upright_sizes(self, config):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (100, 50)).save(config.parent / "images/train/b.jpg", exif=exif)
        assert read_yolo(config, "train").sizes.tolist()[1] == [50, 100]


class TestConfig:
    @pytest.mark.parametrize(
        ("names", "classes"),
        [
            ("names: [no, yes, 1, ~]", ("no", "yes", "1", "~")),
            ("names: {1: b, 0: a}", ("a", "b")),
            ("nc: 2", ("class 0", "class 1")),
            ("nc: 1\nnames: ['a b']", ("a b",)),
            ("names:\n- 2001-01-01", ("2001-01-01",)),
        ],
    )
    def test_classes_stay_the_texts_they_are(self, tmp_path, names, classes):
        assert read_config(write_config(tmp_path, f"train: x\n{names}\n")).classes == classes

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "something else"),
            ("- a\n- b", "something else"),
            ("train: x", "names"),
            ("names: []", "names"),
            ("names: cat", "names"),
            ("names: [[a]]", "names"),
            ("names: {0: a, 2: b}", "names"),
            ("names: {a: b}", "names"),
            ("nc: 3\nnames: [a]", "nc"),
            ("nc: 99999999999", "names"),
            ("path: [a]\nnames: [a]", "path"),
            ("names: [a", "YAML"),
            ("a: b: c", "YAML"),
            ("\ttrain: x", "YAML"),
            ("a: &x [1]\nnames: *x", "aliases"),
            ("!!python/object/apply:os.system ['true']", "tag"),
            ("names: !!python/name:os.system", "tag"),
            ("x: " + "[" * 50 + "]" * 50, "deeply"),
            ("[" * 100_000, "deeply"),
            ("x: " + "a" * (1 << 20), "bytes"),
            ("\0", "YAML"),
        ],
    )
    def test_what_is_wrong_names_file_and_field(self, tmp_path, text, says):
        with pytest.raises(DataError, match=rf"data\.yaml: .*{says}"):
            read_config(write_config(tmp_path, text))

    def test_no_such_folder_names_what_was_tried(self, tmp_path):
        path = write_config(tmp_path, "train: nowhere\nnames: [a]\n")
        with pytest.raises(DataError, match=r"train: there is no .*nowhere"):
            read_yolo(path, "train")

    def test_finding_the_file(self, config):
        assert find_config(config.parent) == config
        assert find_config(config) == config
        assert find_config(config.parent / "images") is None


class TestWriting:
    def test_comes_back_the_same(self, config, tmp_path_factory):
        out = tmp_path_factory.mktemp("out") / "set"
        for split in ("train", "val"):
            write_yolo(read_yolo(config, split), out, images="copy")
        assert yolo_splits(out / "data.yaml") == ("train", "val")
        for split in ("train", "val"):
            one, other = read_yolo(config, split), read_yolo(out / "data.yaml", split)
            assert [Path(n).name for n in one.files] == [Path(n).name for n in other.files]
            np.testing.assert_allclose(one.boxes, other.boxes, rtol=1e-12, atol=1e-10)
            for name in ("labels", "sizes", "offsets"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))

    def test_random_boxes_and_the_same_bytes(self, tmp_path):
        index = random_index(20)
        for name, (width, height) in zip(index.files, index.sizes.tolist(), strict=True):
            add_image(tmp_path / "source", name, size=(width, height))
        object.__setattr__(index, "images", FolderImages(tmp_path / "source"))
        for out in ("a", "b"):
            write_yolo(index, tmp_path / out, images="link")
        first, second = (
            {p.relative_to(tmp_path / o): p.read_bytes() for p in (tmp_path / o).rglob("*.*")}
            for o in ("a", "b")
        )
        assert first == second
        back = read_yolo(tmp_path / "a/data.yaml", "train")
        order = np.argsort(list(index.files))
        np.testing.assert_allclose(back.boxes, index.take(order).boxes, rtol=1e-9, atol=1e-9)

    def test_other_classes_are_not_mixed(self, config, tmp_path_factory):
        out = tmp_path_factory.mktemp("out") / "set"
        write_yolo(read_yolo(config, "val"), out)
        write_config(config.parent, "train: images/train\nnames: [cat, hen]\n")
        with pytest.raises(DataError, match="other classes"):
            write_yolo(read_yolo(config, "train"), out)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=3, max_size=9))
def test_a_polygon_lies_in_its_box(points):
    x1, y1, x2, y2 = _corners([value for point in points for value in point])
    assert all(x1 <= x <= x2 and y1 <= y <= y2 for x, y in points)
    assert any(x == x1 for x, _ in points)
    assert any(y == y2 for _, y in points)


@pytest.mark.skipif(not COCO256.is_file(), reason="shared/data/coco256 is not beside this checkout")
def test_coco256():
    index = read_yolo(COCO256, "train")
    assert (len(index), index.num_boxes) == (128, 929)
    assert [p.kind for p in index.problems] == ["image-without-label"] * 2


CAT, DOG = "0 0.5 0.5 0.2 0.4\n", "1 0.25 0.5 0.5 1\n"
FOLDERS = {
    "beside the folders, as Label Studio does": (
        {"images/a.jpg": None, "labels/a.txt": CAT + DOG, "classes.txt": "cat\nsea dog\n",
         "notes.json": '{"categories": [{"id": 0, "name": "cat"}]}'},
        {"train": {"images/a.jpg": ["cat", "sea dog"]}},
    ),
    "beside the labels, as LabelImg does": (
        {"images/train/a é.JPG": None, "labels/train/a é.txt": CAT, "images/val/a é.JPG": None,
         "labels/val/a é.txt": DOG, "labels/train/classes.txt": "cat\nsea dog\n",
         "labels/val/classes.txt": "cat\nsea dog\n"},
        {"train": {"images/train/a é.JPG": ["cat"]}, "val": {"images/val/a é.JPG": ["sea dog"]}},
    ),
    "folders per split": (
        {"train/images/a.jpg": None, "train/labels/a.txt": CAT, "classes.txt": "cat\nsea dog\n",
         "valid/images/a.jpg": None, "valid/labels/a.txt": DOG, "TEST/images/b.jpg": None,
         "TEST/labels/b.txt": ""},
        {"test": {"TEST/images/b.jpg": []}, "train": {"train/images/a.jpg": ["cat"]},
         "val": {"valid/images/a.jpg": ["sea dog"]}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_with_the_names_of_the_classes(tmp_path, monkeypatch, name):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    files, expected = FOLDERS[name]
    root = put_all(tmp_path / "set", files)
    assert recognise(root) == "yolo"
    assert split_names(root) == tuple(expected)
    for split, images in expected.items():
        assert load_dataset(root, split).index.classes == ("cat", "sea dog")
        boxes = {"cat": ("cat", (40, 15, 60, 35)), "sea dog": ("sea dog", (0, 0, 50, 50))}
        read = {image: [boxes[label] for label in labels] for image, labels in images.items()}
        for cwd, path in ((tmp_path, "set"), (root, "."), (tmp_path, root)):
            monkeypatch.chdir(cwd)
            assert contents(path, split) == read
    assert check_dataset(root).problems == ()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"classes.txt": "\n"}, r"classes\.txt: names no class; write one per line"),
        ({"classes.txt": "cat\ncat\n"}, r"classes\.txt: names a class twice; write each"),
        ({"classes.txt": b"\xff\xfe"}, r"classes\.txt: .* cannot be read.*write them in UTF-8"),
        ({"classes.txt": "cat\n", "labels/classes.txt": "dog\n"},
         r"labels/classes\.txt: has other classes than .*classes\.txt; keep one"),
    ],
)  # fmt: skip
def test_broken_names_of_classes(tmp_path, files, says):
    root = put_all(tmp_path / "set", {"images/a.jpg": None, "labels/a.txt": CAT, **files})
    with pytest.raises(DataError, match=says):
        load_dataset(root, "train")
    assert check_dataset(root).problems


def test_classes_with_gaps_and_without_a_name(tmp_path):
    root = put_all(tmp_path / "set", {"images/a.jpg": None, "classes.txt": "cat\ndog\nhen\n"})
    put_all(root, {"labels/a.txt": CAT.replace("0", "2", 1) + CAT.replace("0", "3", 1)})
    index = load_dataset(root, "train").index
    assert (index.classes, index.labels.tolist()) == (("cat", "dog", "hen"), [2])
    assert kinds(index) == [("class-unknown", "a.txt", "line 2", "box left out")]
