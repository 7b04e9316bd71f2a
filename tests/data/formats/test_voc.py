import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from alphaiou.data.formats.voc import (
    VOC_CLASSES,
    VocObject,
    format_annotation,
    parse_annotation,
    read_voc,
    voc_splits,
    write_voc,
)
from alphaiou.data.problems import DataError
from tests.data.made_index import made_index, random_index

SAMPLE = Path(__file__).parents[4] / "shared/data/voc-sample"

PERSON_WITH_PARTS = """
<object>
  <name>person</name><pose>Left</pose><truncated>1</truncated><difficult>1</difficult>
  <part><name>head</name>
    <bndbox><xmin>90</xmin><ymin>91</ymin><xmax>92</xmax><ymax>93</ymax></bndbox></part>
  <bndbox><ymin>12</ymin><xmin>8.5</xmin><xmax>20</xmax><ymax>30</ymax></bndbox>
  <part><name>foot</name>
    <bndbox><xmin>94</xmin><ymin>95</ymin><xmax>96</xmax><ymax>97</ymax></bndbox></part>
</object>"""


def box_xml(name, *corners):
    xmin, ymin, xmax, ymax = corners
    return (
        f"<object><name>{name}</name><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>"
        f"<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
    )


SIZE = "<size><width>100</width><height>50</height><depth>3</depth></size>"


def add_image(year, stem, body=SIZE, *, suffix=".jpg"):
    picture = year / "JPEGImages" / f"{stem}{suffix}"
    picture.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (100, 50)).save(picture)
    xml = year / "Annotations" / f"{stem}.xml"
    xml.parent.mkdir(parents=True, exist_ok=True)
    xml.write_text(f"<annotation>{body}</annotation>")


def add_list(year, split, text):
    path = year / "ImageSets/Main" / f"{split}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def devkit(tmp_path):
    """Two years; the second has one more image and a list that the first has not."""
    for year, stems in (("VOC2007", ["000005", "000007"]), ("VOC2012", ["2008_000001"])):
        for stem in stems:
            add_image(tmp_path / year, stem, SIZE + PERSON_WITH_PARTS)
        add_list(tmp_path / year, "trainval", "".join(f"{stem}\n" for stem in stems))
        add_list(tmp_path / year, "person_trainval", "".join(f"{stem}  1\n" for stem in stems))
    add_list(tmp_path / "VOC2012", "val", "2008_000001  -1\n")
    return tmp_path


def kinds(index):
    return [(p.kind, Path(p.file).name, p.where, p.effect) for p in index.problems]


class TestReading:
    def test_corners_marks_and_parts(self, devkit):
        index = read_voc(devkit, "trainval")
        assert list(index.files) == [
            "VOC2007/JPEGImages/000005.jpg",
            "VOC2007/JPEGImages/000007.jpg",
            "VOC2012/JPEGImages/2008_000001.jpg",
        ]
        np.testing.assert_array_equal(index.boxes, [[7.5, 11, 20, 30]] * 3)
        assert index.labels.tolist() == [VOC_CLASSES.index("person")] * 3
        assert index.difficult.all()
        assert index.truncated.all()
        assert index.sizes.tolist() == [[100, 50]] * 3
        assert index.areas.tolist() == [12.5 * 19] * 3
        assert index.classes == VOC_CLASSES
        assert index.problems == ()
        assert index.images.missing(index.files) == []

    @pytest.mark.parametrize(
        ("below", "split", "images"),
        [
            ("", "2007-trainval", 2),
            ("", "VOC2012-trainval", 1),
            ("", "val", 1),
            ("VOC2007", "trainval", 2),
            ("VOC2012", "val", 1),
        ],
    )
    def test_years(self, devkit, below, split, images):
        index = read_voc(devkit / below, split)
        assert len(index) == images
        assert all(name.startswith("VOC20") for name in index.files)
        assert index.images.missing(index.files) == []

    def test_the_folder_that_holds_the_devkit(self, devkit, tmp_path_factory):
        outer = tmp_path_factory.mktemp("outer")
        shutil.copytree(devkit, outer / "VOCdevkit")
        assert len(read_voc(outer, "trainval")) == 3
        assert voc_splits(outer) == ("trainval", "val")

    def test_no_such_split_lists_those_there_are(self, devkit):
        with pytest.raises(DataError, match=r"'test'.*trainval, val; .*2007-train"):
            read_voc(devkit, "test")

    def test_no_devkit(self, tmp_path):
        with pytest.raises(DataError, match="ImageSets/Main"):
            read_voc(tmp_path, "train")

    def test_names_with_spaces_folders_and_other_suffixes(self, devkit):
        year = devkit / "VOC2012"
        add_image(year, "sub/a b", suffix=".png")
        add_list(year, "odd", "sub/a b 1\n\n  2008_000001\n")
        index = read_voc(devkit, "odd")
        assert index.files[0] == "VOC2012/JPEGImages/sub/a b.png"
        assert len(index) == 2


class TestClasses:
    def test_other_names_are_sorted_over_all_splits(self, devkit):
        add_image(devkit / "VOC2007", "zoo", SIZE + box_xml("zebra", 1, 1, 9, 9))
        for split in ("trainval", "val"):
            assert read_voc(devkit, split).classes == ("person", "zebra")

    def test_a_file_may_name_them(self, devkit):
        (devkit / "classes.txt").write_text("dog\nperson\n")
        add_image(devkit / "VOC2012", "2008_000001", SIZE + box_xml("zebra", 1, 1, 9, 9))
        index = read_voc(devkit, "trainval")
        assert index.classes == ("dog", "person")
        assert index.labels.tolist() == [1, 1]
        assert kinds(index) == [("class-unknown", "2008_000001.xml", "object 1", "box left out")]
        assert "zebra" in index.problems[0].detail

    def test_a_class_named_twice(self, devkit):
        (devkit / "classes.txt").write_text("dog\ndog\n")
        with pytest.raises(DataError, match=r"classes\.txt"):
            read_voc(devkit, "trainval")


class TestProblems:
    def test_every_kind_names_its_place(self, devkit):
        year = devkit / "VOC2012"
        add_image(year, "boxes", SIZE + "".join([
            box_xml("cat", 1, 1, 100, 50),
            box_xml("cat", 0, 1, 100, 50),
            box_xml("cat", 101, 1, 120, 50),
            box_xml("cat", 9, 9, 8, 20),
            box_xml("cat", 9, 9, 9, 9),
            box_xml("cat", "x", 9, 9, 9),
            box_xml("cat", "1e400", 9, 9, 9),
            box_xml("cat", 1, 1, 100, 50),
            "<object><name>cat</name></object>",
            "<object><bndbox><xmin>1</xmin></bndbox></object>",
        ]))  # fmt: skip
        add_image(year, "no-size", "")
        add_image(year, "broken", "<object>")
        add_image(year, "no-xml")
        (year / "Annotations/no-xml.xml").unlink()
        add_image(year, "no-image")
        (year / "JPEGImages/no-image.jpg").unlink()
        add_list(
            year, "bad", "boxes\nno-size\nbroken\nno-xml\nno-image\n../../secret\nboxes\n/etc/x\n"
        )
        index = read_voc(devkit, "bad")
        assert kinds(index) == [
            ("field-missing", "boxes.xml", "object 9", "box left out"),
            ("field-missing", "boxes.xml", "object 10", "box left out"),
            ("field-missing", "no-size.xml", "", "kept"),
            ("xml-broken", "broken.xml", "", "image left out"),
            ("image-without-label", "no-xml.xml", "", "image left out"),
            ("image-missing", "no-image.jpg", "", "image left out"),
            ("line-broken", "bad.txt", "line 6", "image left out"),
            ("image-duplicate", "bad.txt", "line 7", "image left out"),
            ("line-broken", "bad.txt", "line 8", "image left out"),
            ("box-past-border", "boxes.xml", "object 2", "kept"),
            ("box-outside", "boxes.xml", "object 3", "box left out"),
            ("box-flat", "boxes.xml", "object 4", "box left out"),
            ("box-nan", "boxes.xml", "object 6", "box left out"),
            ("box-nan", "boxes.xml", "object 7", "box left out"),
            ("box-duplicate", "boxes.xml", "object 8", "kept"),
        ]
        assert all(problem.detail and problem.remedy for problem in index.problems)
        assert index.sizes.tolist() == [[100, 50]] * 2
        np.testing.assert_array_equal(
            index.boxes, [[0, 0, 100, 50], [-1, 0, 100, 50], [8, 8, 9, 9], [0, 0, 100, 50]]
        )

    def test_a_split_without_annotations(self, devkit):
        for path in (devkit / "VOC2012/Annotations").iterdir():
            path.unlink()
        with pytest.raises(DataError, match=r"val\.txt.*no annotation file"):
            read_voc(devkit, "val")

    def test_an_empty_list(self, devkit):
        add_list(devkit / "VOC2007", "none", "\n")
        with pytest.raises(DataError, match=r"none\.txt"):
            read_voc(devkit, "none")


class TestWriting:
    @pytest.mark.parametrize("images", ["link", "copy"])
    def test_a_devkit_comes_back_the_same(self, devkit, tmp_path_factory, images):
        out = tmp_path_factory.mktemp("out") / "set"
        for split in ("trainval", "val"):
            write_voc(read_voc(devkit, split), out, images=images)
        for split in ("trainval", "val"):
            assert_same(read_voc(devkit, split), read_voc(out, split))
        assert voc_splits(out) == ("trainval", "val")

    def test_one_year(self, devkit, tmp_path_factory):
        out = tmp_path_factory.mktemp("out") / "set"
        write_voc(read_voc(devkit, "2007-trainval"), out, images="copy")
        assert_same(read_voc(devkit, "2007-trainval"), read_voc(out, "trainval"))

    def test_other_layouts_boxes_to_a_billionth_and_the_same_bytes(self, tmp_path):
        index = random_index(30)
        for name in ("a", "b"):
            write_voc(index, tmp_path / name)
        assert tree(tmp_path / "a") == tree(tmp_path / "b")
        for image, name in enumerate(index.files):
            xml = tmp_path / "a/VOCtrain/Annotations" / Path(name).with_suffix(".xml").name
            corners = [one.corners for one in parse_annotation(xml.read_bytes()).objects]
            expected = index.boxes[index.rows(image)] + [1, 1, 0, 0]
            np.testing.assert_allclose(np.reshape(corners, (-1, 4)), expected, rtol=0, atol=1e-9)
        assert (tmp_path / "a/classes.txt").read_text() == "cat\ndog\nhen\n"


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_same(one, other):
    assert list(one.files) == list(other.files)
    assert one.classes == other.classes
    for name in ("boxes", "labels", "sizes", "offsets", "difficult", "truncated", "areas"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@given(
    st.text(st.characters(blacklist_categories=["C", "Z"]), min_size=1),
    st.tuples(*[st.floats(allow_nan=False, allow_infinity=False)] * 4),
    st.booleans(),
)
def test_any_name_and_number_survive(name, corners, mark):
    one = VocObject(name, corners, mark, not mark)
    text = format_annotation("VOC", "<&>.jpg", (7, 9), [one])
    annotation = parse_annotation(text.encode())
    assert annotation.size == (7, 9)
    assert annotation.objects == [one]
    assert ET.fromstring(text).findtext("filename") == "<&>.jpg"


@pytest.mark.skipif(
    not SAMPLE.is_dir(), reason="shared/data/voc-sample is not beside this checkout"
)
@pytest.mark.parametrize("split", ["train", "val", "trainval"])
def test_the_sample_agrees_with_elementtree(split):
    index = read_voc(SAMPLE, split)
    expected, labels = [], []
    for name in index.files:
        xml = (SAMPLE / "VOCdevkit" / name.replace("JPEGImages", "Annotations")).with_suffix(".xml")
        for one in ET.parse(xml).getroot().findall("object"):
            box = one.find("bndbox")
            x1, y1, x2, y2 = (float(box.findtext(tag)) for tag in ("xmin", "ymin", "xmax", "ymax"))
            expected.append([x1 - 1, y1 - 1, x2, y2])
            labels.append(one.findtext("name"))
    np.testing.assert_array_equal(index.boxes, expected)
    assert [index.classes[label] for label in index.labels] == labels
    assert index.problems == ()


@pytest.mark.parametrize("classes", [("cat", "cat"), ("cat", "")])
def test_classes_that_names_do_not_tell_apart_are_not_written(tmp_path, classes):
    index = made_index([[[1, 1, 9, 9], [2, 2, 9, 9]]], classes=classes)
    with pytest.raises(DataError, match=r"made: the name of class 1 is .*each class a name"):
        write_voc(index, tmp_path / "out")
    assert not (tmp_path / "out").exists()
