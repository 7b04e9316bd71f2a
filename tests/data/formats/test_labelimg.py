import shutil

import pytest

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.registry import recognise
from alphaiou.data.problems import DataError
from tests.data.formats.layouts import contents, kinds, put, put_all

BOX = (
    "<object><name>{}</name><pose>Unspecified</pose><truncated>{}</truncated>"
    "<difficult>{}</difficult><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax>"
    "<ymax>{}</ymax></bndbox></object>"
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))


def xml(*boxes, filename="IMG_0001.JPG", root="annotation"):
    """A file as LabelImg writes it, with the path of the machine it was made on."""
    objects = "".join(BOX.format(name, 0, 0, *corners) for name, *corners in boxes)
    return (
        f"<{root}><folder>Downloads</folder><filename>{filename}</filename>"
        f"<path>C:\\Users\\me\\Downloads\\{filename}</path>"
        "<source><database>Unknown</database></source>"
        "<size><width>100</width><height>50</height><depth>3</depth></size>"
        f"<segmented>0</segmented>{objects}</{root}>"
    )


APPLE, PEAR = ("apple", 11, 6, 30, 20), ("pear", 1, 1, 100, 50)
#: The corners that are 1-based and inclusive in the file.
READ = {"apple": ("apple", (10, 5, 30, 20)), "pear": ("pear", (0, 0, 100, 50))}
SHAPES = {
    "together": ("a.jpg", "a.xml"),
    "sister folders": ("images/a.jpg", "annotations/a.xml"),
    "capitals": ("Images/a.JPG", "Annotations/a.XML"),
    "deep": ("data/all/pictures/a.png", "data/all/voc/xmls/a.xml"),
    "the same folders below": ("images/cam 1/a.jpeg", "labels/cam 1/a.xml"),
    "labels of yolo's name": ("images/a.jpg", "labels/a.xml"),
    "other letters": ("bilder/grün é.jpg", "xml/grün é.xml"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_images_and_annotations_together_or_in_sister_folders(tmp_path, shape):
    image, annotation = SHAPES[shape]
    put_all(tmp_path / "set", {image: None, annotation: xml(APPLE, PEAR)})
    assert recognise(tmp_path / "set") == "labelimg"
    assert split_names(tmp_path / "set") == ("train",)
    for _ in range(2):  # read, and from the cache
        assert contents(tmp_path / "set", "train") == {image: [READ["apple"], READ["pear"]]}
    dataset = load_dataset(tmp_path / "set", "train")
    assert dataset.index.classes == ("apple", "pear")
    assert dataset[0][0].shape == (3, 50, 100)
    assert check_dataset(tmp_path / "set").problems == ()


@pytest.mark.parametrize(
    ("train", "val", "test"),
    [
        ("TRAIN", "VALID", "TEST"),
        ("images/train", "images/val", "images/test"),
        ("train_zip/train", "valid_zip/valid", "test_zip/test"),
        ("train_images", "val_images", "test_images"),
    ],
)
def test_folders_named_like_a_split_are_splits(tmp_path, train, val, test):
    root = put_all(
        tmp_path / "set",
        {
            **{f"{train}/1.jpg": None, f"{train}/1.xml": xml(APPLE)},
            **{f"{val}/1.jpg": None, f"{val}/1.xml": xml(PEAR)},
            **{f"{test}/1.jpg": None, f"{test}/1.xml": xml()},
        },
    )
    assert split_names(root) == ("test", "train", "val")
    assert contents(root, "train") == {f"{train}/1.jpg": [READ["apple"]]}
    assert contents(root, "valid") == {f"{val}/1.jpg": [READ["pear"]]}
    assert contents(root, "test") == {f"{test}/1.jpg": []}
    for split in ("train", "val", "test"):  # the labels are the same in all splits
        assert load_dataset(root, split).index.classes == ("apple", "pear")
    with pytest.raises(DataError, match=r"no split 'holdout'; there are: .*train"):
        load_dataset(root, "holdout")


@pytest.mark.parametrize("first", ["train/annotations", "annotations/train"])
def test_equal_names_in_train_and_test(tmp_path, first):
    files = {}
    for split, box in (("train", APPLE), ("test", PEAR)):
        files[f"{split}/images/1.jpg"] = None
        files[first.replace("train", split) + "/1.xml"] = xml(box)
    root = put_all(tmp_path / "set", files)
    assert contents(root, "train") == {"train/images/1.jpg": [READ["apple"]]}
    assert contents(root, "test") == {"test/images/1.jpg": [READ["pear"]]}


def test_the_image_may_tell_the_split(tmp_path):
    root = put_all(
        tmp_path / "set",
        {
            **{"images/train/1.jpg": None, "annotations/1.xml": xml(APPLE)},
            **{"images/test/2.jpg": None, "annotations/2.xml": xml(PEAR)},
        },
    )
    assert contents(root, "train") == {"images/train/1.jpg": [READ["apple"]]}
    assert contents(root, "test") == {"images/test/2.jpg": [READ["pear"]]}


def test_the_stem_counts_not_the_filename(tmp_path):
    root = put_all(
        tmp_path / "set",
        {
            **{"1.jpg": None, "1.xml": xml(APPLE, filename="2.jpg")},
            **{"2.jpg": None, "2.xml": xml(PEAR, filename="../../1")},
        },
    )
    assert contents(root, "train") == {"1.jpg": [READ["apple"]], "2.jpg": [READ["pear"]]}


def test_the_folder_of_the_annotations_may_be_named(tmp_path, monkeypatch):
    root = put_all(tmp_path / "set", {"images/1.jpg": None, "xmls/1.xml": xml(APPLE)})
    assert contents(root / "xmls", "train") == {"images/1.jpg": [READ["apple"]]}
    monkeypatch.chdir(root / "xmls")
    assert contents(".", "train") == {"images/1.jpg": [READ["apple"]]}


def test_a_list_of_classes_counts(tmp_path):
    root = put_all(tmp_path / "set", {"1.jpg": None, "1.xml": xml(APPLE, PEAR)})
    put(root / "classes.txt", "pear\nplum\n")
    index = load_dataset(root, "train").index
    assert index.classes == ("pear", "plum")
    assert kinds(index) == [("class-unknown", "1.xml", "object 1", "box left out")]


def test_the_classes_of_voc_are_not_added(tmp_path):
    root = put_all(tmp_path / "set", {"1.jpg": None, "1.xml": xml(("cat", 1, 1, 9, 9))})
    assert load_dataset(root, "train").index.classes == ("cat",)


def test_copies_of_a_mac_and_hidden_files_do_not_count(tmp_path):
    root = put_all(tmp_path / "set", {"a/1.jpg": None, "a/1.xml": xml(APPLE)})
    put_all(root, {"__MACOSX/a/._1.xml": "\0", "a/._1.jpg": "x", ".idea/misc.xml": "<project/>"})
    assert check_dataset(root).problems == ()
    assert list(contents(root, "train")) == ["a/1.jpg"]


def test_a_devkit_is_voc_still(tmp_path):
    year = tmp_path / "set/VOC2007"
    put_all(year, {"JPEGImages/1.jpg": None, "Annotations/1.xml": xml(APPLE)})
    assert recognise(tmp_path / "set") == "labelimg"
    put(year / "ImageSets/Main/train.txt", "1\n")
    assert recognise(tmp_path / "set") == "voc"


def test_what_has_no_partner_is_reported_once(tmp_path):
    root = put_all(
        tmp_path / "set",
        {
            **{"images/1.jpg": None, "xml/1.xml": xml(APPLE)},
            **{"images/not annotated.jpg": None, "docs/logo.png": None},
            "xml/no image.xml": xml(APPLE),
            **{"old/1.xml": xml(PEAR)},
            **{"cam1/3.jpg": None, "cam2/3.jpg": None, "xml/3.xml": xml(APPLE)},
            "xml/broken.xml": "<annotation>",
            "images/broken.jpg": None,
        },
    )
    report = check_dataset(root)
    assert sorted(kinds(report)) == [
        ("image-duplicate", "1.xml", "", "image left out"),
        ("image-missing", "3.xml", "", "image left out"),
        ("image-missing", "no image.xml", "", "image left out"),
        ("image-without-label", "not annotated.jpg", "", "image left out"),
        ("xml-broken", "broken.xml", "", "image left out"),
    ]
    assert all(problem.remedy for problem in report.problems)
    assert [split.images for split in report.splits] == [1]
    shutil.rmtree(root / "images")
    with pytest.raises(DataError, match=r"train: of \d annotation files none"):
        load_dataset(root, "train")
