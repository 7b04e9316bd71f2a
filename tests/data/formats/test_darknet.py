import pytest

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.registry import recognise
from alphaiou.data.problems import DataError
from tests.data.formats.layouts import contents, kinds, put, put_all

CAT, DOG = "0 0.5 0.5 0.2 0.4\n", "1 0.25 0.5 0.5 1\n"
READ = {CAT: ("cat", (40, 15, 60, 35)), DOG: ("sea dog", (0, 0, 50, 50))}
NAMES = "cat\nsea dog\n"
#: As CVAT exports it, as "YOLO 1.1": paths from a folder data that is not there.
CVAT = {
    "obj.data": "classes = 2\ntrain = data/train.txt\nnames = data/obj.names\nbackup = backup/\n",
    "obj.names": NAMES,
    "train.txt": "data/obj_train_data/1.jpg\ndata/obj_train_data/deep/2.PNG\n",
    **{"obj_train_data/1.jpg": None, "obj_train_data/1.txt": CAT + DOG},
    **{"obj_train_data/deep/2.PNG": None, "obj_train_data/deep/2.txt": ""},
}
#: As darknet's own instructions have it: everything in data, run from the folder above.
DARKNET = {
    "data/obj.data": "classes= 2\ntrain  = data/train.txt\nvalid  = data/test.txt\n"
    "names = data/obj.names\nbackup = backup/\n",
    "data/obj.names": NAMES,
    "data/train.txt": "data/obj/1.jpg\n",
    "data/test.txt": "data/obj/2.jpg\n",
    **{"data/obj/1.jpg": None, "data/obj/1.txt": CAT},
    **{"data/obj/2.jpg": None, "data/obj/2.txt": DOG},
}
#: As Roboflow exports it, as "YOLO Darknet".
ROBOFLOW = {
    **{"train/1_jpg.rf.0a.jpg": None, "train/1_jpg.rf.0a.txt": CAT},
    **{"train/_darknet.labels": NAMES, "valid/_darknet.labels": NAMES},
    **{"valid/1_jpg.rf.0a.jpg": None, "valid/1_jpg.rf.0a.txt": DOG},
}
#: As LabelImg saves it in its YOLO mode.
LABELIMG = {"1.jpg": None, "1.txt": CAT, "classes.txt": NAMES, "2 é.jpg": None, "2 é.txt": DOG}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))


SETS = [
    (CVAT, "", {"train": {"obj_train_data/1.jpg": [CAT, DOG], "obj_train_data/deep/2.PNG": []}}),
    (CVAT, "obj.data", {"train": {"obj_train_data/1.jpg": [CAT, DOG],
                                  "obj_train_data/deep/2.PNG": []}}),
    (DARKNET, "data", {"train": {"obj/1.jpg": [CAT]}, "val": {"obj/2.jpg": [DOG]}}),
    (ROBOFLOW, "", {"train": {"train/1_jpg.rf.0a.jpg": [CAT]},
                    "val": {"valid/1_jpg.rf.0a.jpg": [DOG]}}),
    (LABELIMG, "", {"train": {"1.jpg": [CAT], "2 é.jpg": [DOG]}}),
]  # fmt: skip


@pytest.mark.parametrize(("files", "path", "expected"), SETS)
def test_published_forms(tmp_path, monkeypatch, files, path, expected):
    root = put_all(tmp_path / "set", files) / path
    assert recognise(root) == "darknet"
    assert split_names(root) == tuple(expected)
    for split, images in expected.items():
        read = {name: [READ[line] for line in lines] for name, lines in images.items()}
        for _ in range(2):  # read, and from the cache
            assert contents(root, split) == read
        dataset = load_dataset(root, split)
        assert dataset.index.classes == ("cat", "sea dog")
        assert dataset[0][0].shape == (3, 50, 100)
    assert check_dataset(root).problems == ()
    monkeypatch.chdir(root if root.is_dir() else root.parent)
    here = "." if root.is_dir() else root.name
    assert list(contents(here, "train")) == list(expected["train"])


def test_labels_in_a_sister_folder(tmp_path):
    root = put_all(tmp_path / "set", CVAT | {"train.txt": "images/1.jpg\n", "images/1.jpg": None})
    put(root / "labels/1.txt", DOG)
    assert contents(root / "obj.data", "train") == {"images/1.jpg": [READ[DOG]]}


def test_lists_beside_the_images_give_the_splits(tmp_path):
    root = put_all(tmp_path / "set", LABELIMG | {"train.txt": "1.jpg\n", "test.txt": "2 é.jpg\n"})
    assert split_names(root) == ("train", "test")
    assert contents(root, "test") == {"2 é.jpg": [READ[DOG]]}


def test_classes_with_gaps_unlabelled_and_missing_images(tmp_path):
    root = put_all(tmp_path / "set", CVAT)
    put(root / "obj.names", "".join(f"class {n}\n" for n in range(9)))
    put(root / "obj.data", CVAT["obj.data"].replace("2", "9"))
    put(root / "obj_train_data/1.txt", "7 0.5 0.5 0.2 0.4\n9 0.5 0.5 1 1\n")
    (root / "obj_train_data/deep/2.txt").unlink()
    put(root / "train.txt", CVAT["train.txt"] + "data/obj_train_data/3.jpg\n" + CVAT["train.txt"])
    index = load_dataset(root, "train").index
    assert [index.classes[label] for label in index.labels] == ["class 7"]
    assert kinds(index) == [
        ("image-without-label", "2.txt", "", "kept"),
        ("image-missing", "3.jpg", "", "image left out"),
        ("image-duplicate", "train.txt", "line 4", "image left out"),
        ("image-duplicate", "train.txt", "line 5", "image left out"),
        ("class-unknown", "1.txt", "line 2", "box left out"),
    ]


BROKEN = {
    ("obj.data", "classes = 2\ntrain = train.txt\n"): r"obj\.data: names: is not there; write",
    ("obj.data", "names = obj.names\n"): r"obj\.data: train: is not there; write the list",
    ("obj.data", "names = no.names\ntrain = train.txt\n"): r"obj\.data: names: there is no no\.nam",
    ("obj.data", "names = obj.names\ntrain = no.txt\n"): r"obj\.data: train: there is no no\.txt",
    ("obj.data", CVAT["obj.data"].replace("2", "3")): r"obj\.data: classes: is '3', but obj\.names",
    ("obj.data", b"names = obj.names\ntrain = \xff\n"): r"obj\.data: cannot be read",
    ("obj.names", b"\xff\xfe"): r"obj\.names: .* cannot be read.*write them in UTF-8",
    ("obj.names", "\n"): r"obj\.names: names no class; write one",
    ("obj.names", "cat\ncat\n"): r"obj\.names: line 2 is 'cat' again; give each class",
    ("obj.names", "cat\n\ndog\n"): r"obj\.names: line 2 is empty; give each class",
    ("train.txt", "data/no.jpg\n"): r"train: of 1 images none can be used; the first: .*no\.jpg",
    ("train.txt", "\n"): r"train: of 0 images none can be used",
}


@pytest.mark.parametrize(("file", "content"), BROKEN)
def test_what_is_broken_names_file_field_and_remedy(tmp_path, file, content):
    root = put_all(tmp_path / "set", CVAT)
    put(root / file, content or b"")
    with pytest.raises(DataError, match=BROKEN[file, content]):
        load_dataset(root, "train", layout="darknet")
    with pytest.raises(DataError, match="has no split 'test'; there are: train"):
        load_dataset(put_all(tmp_path / "other", CVAT), "test")
