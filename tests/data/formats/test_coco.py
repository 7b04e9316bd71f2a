import contextlib
import copy
import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pycocotools.coco import COCO

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats import json_stream
from alphaiou.data.formats.coco import read_coco, write_coco
from alphaiou.data.formats.files import FolderImages, TarImages
from alphaiou.data.formats.registry import recognise
from alphaiou.data.problems import DataError, left_out
from tests.data.formats.layouts import contents, put_all
from tests.data.made_index import NoImages, made_index, random_index

VOC320 = Path(__file__).parents[3] / "../shared/data/voc320"
BOX_ARRAYS = ("boxes", "labels", "box_ids", "areas", "crowd", "difficult", "truncated")
ARRAYS = (*BOX_ARRAYS, "offsets", "sizes", "image_ids", "category_ids")


def document():
    return {
        "info": {"year": 2017},
        "images": [
            {"id": 7, "file_name": "b.jpg", "width": 100, "height": 50},
            {"id": 3, "file_name": "a.jpg", "width": 60, "height": 60, "license": 1},
            {"id": 9, "file_name": "empty.jpg", "width": 10, "height": 20},
        ],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 90, "bbox": [1, 2, 30.5, 40], "iscrowd": 1,
             "segmentation": {"counts": [1, 2], "size": [3, 4]}},
            {"id": 2, "image_id": 7, "category_id": 5, "bbox": [0.1, 0.2, 3, 4], "area": 7.5,
             "iscrowd": 0, "segmentation": [[1.0, 2.0, 3.0, 4.0]]},
            {"id": 5, "image_id": 3, "category_id": 5, "bbox": [2, 2, 3, 3], "difficult": 1,
             "truncated": True},
        ],
        "categories": [{"id": 90, "name": "dog"}, {"id": 5, "name": "cat", "supercategory": "x"}],
    }  # fmt: skip


def read(doc, tmp_path, images=None):
    path = tmp_path / "x.json"
    path.write_text(doc if isinstance(doc, str) else json.dumps(doc))
    return read_coco(path, "train", images or NoImages())


def reported(index):
    return [(p.kind, p.where, p.effect) for p in index.problems]


def assert_same(one, other):
    for name in ARRAYS:
        first, second = getattr(one, name), getattr(other, name)
        assert first.dtype == second.dtype, name
        np.testing.assert_array_equal(first, second, err_msg=name)
    assert list(one.files) == list(other.files)
    assert one.classes == other.classes


def test_a_file_as_it_should_be(tmp_path):
    index = read(document(), tmp_path)
    assert index.classes == ("cat", "dog")
    assert index.category_ids.tolist() == [5, 90]
    assert list(index.files) == ["b.jpg", "a.jpg", "empty.jpg"]
    assert index.image_ids.tolist() == [7, 3, 9]
    assert index.sizes.tolist() == [[100, 50], [60, 60], [10, 20]]
    assert index.offsets.tolist() == [0, 1, 3, 3]
    assert index.box_ids.tolist() == [2, 1, 5]
    assert index.labels.tolist() == [0, 1, 0]
    assert index.boxes.tolist() == [[0.1, 0.2, 3.1, 4.2], [1, 2, 31.5, 42], [2, 2, 5, 5]]
    assert index.areas.tolist() == [7.5, 30.5 * 40, 9]
    assert index.crowd.tolist() == [False, True, False]
    assert index.difficult.tolist() == index.truncated.tolist() == [False, False, True]
    assert index.problems == ()
    assert (index.layout, index.split) == ("coco", "train")


@pytest.mark.parametrize(
    "order", [("annotations", "categories", "images"), ("categories", "annotations", "images")]
)
def test_the_order_of_the_lists_plays_no_role(tmp_path, order):
    doc = document()
    assert_same(read({key: doc[key] for key in order}, tmp_path), read(doc, tmp_path))


def test_the_size_of_blocks_plays_no_role(tmp_path, monkeypatch):
    doc = document()
    doc["annotations"][1]["bbox"] = [0, 0, float("nan"), 3]
    whole = read(doc, tmp_path)
    monkeypatch.setattr(json_stream, "BLOCK_BYTES", 50)
    pieces = read(doc, tmp_path)
    assert_same(whole, pieces)
    assert whole.problems == pieces.problems


def test_the_columns_of_an_index_are_its_own(tmp_path):
    """A view would keep the whole table alive."""
    index = read(document(), tmp_path)
    for name in ARRAYS:
        assert getattr(index, name).base is None or getattr(index, name).base.dtype.names is None


numbers = st.floats(0, 400) | st.integers(0, 400)
extents = st.floats(0.5, 300) | st.integers(1, 300)


@st.composite
def coco_documents(draw):
    ids = draw(st.lists(st.integers(-5, 2**40), unique=True, min_size=1, max_size=6))
    categories = draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=4))
    count = draw(st.integers(0, 12))
    annotations = []
    for number in draw(st.permutations(range(1, count + 1))):
        x, y, w, h = draw(st.tuples(numbers, numbers, extents, extents))
        one = {
            "id": number,
            "image_id": draw(st.sampled_from(ids)),
            "category_id": draw(st.sampled_from(categories)),
            "bbox": [x, y, w, h],
            "iscrowd": draw(st.sampled_from([0, 1])),
            "area": draw(st.floats(0, 1e6)),
        }
        annotations.append(one)
    images = [
        {"id": number, "file_name": f"{number}.jpg", "width": 1000, "height": 900} for number in ids
    ]
    names = [{"id": number, "name": f"class {number}"} for number in categories]
    return {"images": images, "annotations": annotations, "categories": names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("coco")


def assert_agrees_with_pycocotools(index, path):
    with contextlib.redirect_stdout(io.StringIO()):
        oracle = COCO(str(path))
    assert index.category_ids.tolist() == sorted(oracle.cats)
    assert list(index.classes) == [oracle.cats[i]["name"] for i in sorted(oracle.cats)]
    assert index.image_ids.tolist() == list(oracle.imgs)
    for image, number in enumerate(index.image_ids.tolist()):
        rows, expected = index.rows(image), oracle.imgToAnns.get(number, [])
        assert index.files[image] == oracle.imgs[number]["file_name"]
        assert index.box_ids[rows].tolist() == [one["id"] for one in expected]
        assert index.areas[rows].tolist() == [one["area"] for one in expected]
        assert index.crowd[rows].tolist() == [bool(one["iscrowd"]) for one in expected]
        own_ids = index.category_ids[index.labels[rows]].tolist()
        assert own_ids == [one["category_id"] for one in expected]
        corners = [[x, y, x + w, y + h] for x, y, w, h in (one["bbox"] for one in expected)]
        assert index.boxes[rows].tolist() == corners


@given(coco_documents())
def test_agrees_with_pycocotools(folder, doc):
    index = read(doc, folder)
    assert_agrees_with_pycocotools(index, folder / "x.json")
    assert not left_out(index.problems)


@given(coco_documents())
def test_written_and_read_again_nothing_has_changed(tmp_path_factory, doc):
    folder = tmp_path_factory.mktemp("round")
    index = read(doc, folder)
    write_coco(index, folder / "out")
    again = read_coco(folder / "out/annotations/train.json", "train", NoImages())
    assert_same(index, again)
    write_coco(again, folder / "twice")
    first, second = (
        (folder / one / "annotations/train.json").read_bytes() for one in ("out", "twice")
    )
    assert first == second
    assert_agrees_with_pycocotools(again, folder / "out/annotations/train.json")


def test_boxes_of_other_layouts_survive_to_the_last_bits(tmp_path):
    index = random_index(200)
    write_coco(index, tmp_path / "out")
    again = read_coco(tmp_path / "out/annotations/train.json", "train", NoImages())
    np.testing.assert_allclose(again.boxes, index.boxes, rtol=0, atol=1e-12)
    assert again.areas.tolist() == index.areas.tolist()


def test_difficult_and_truncated_are_written_where_there_are_any(tmp_path):
    index = read(document(), tmp_path)
    write_coco(index, tmp_path / "out")
    again = read_coco(tmp_path / "out/annotations/train.json", "train", NoImages())
    assert_same(index, again)
    plain = index.drop_boxes(index.difficult)
    write_coco(plain, tmp_path / "plain")
    assert "difficult" not in (tmp_path / "plain/annotations/train.json").read_text()


def test_writing_places_images_and_two_splits_share_a_folder(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a.jpg", "b.jpg", "empty.jpg"):
        (source / name).write_bytes(name.encode())
    index = read(document(), tmp_path, FolderImages(source))
    write_coco(index, tmp_path / "out", images="link")
    assert (tmp_path / "out/images/train/b.jpg").samefile(source / "b.jpg")
    path = tmp_path / "x.json"
    write_coco(read_coco(path, "val", FolderImages(source)), tmp_path / "out", images="copy")
    assert (tmp_path / "out/images/val/b.jpg").read_bytes() == b"b.jpg"
    assert not (tmp_path / "out/images/val/b.jpg").samefile(source / "b.jpg")
    assert sorted(p.name for p in (tmp_path / "out/annotations").iterdir()) == [
        "train.json",
        "val.json",
    ]
    with pytest.raises(DataError, match="already"):
        write_coco(index.take([0]), tmp_path / "out")


def test_names_that_lead_out_of_the_folder_are_not_followed(tmp_path):
    index = made_index([[[0, 0, 5, 5]], []], names=["../../up.jpg", "ok.jpg"])
    write_coco(index, tmp_path / "out")
    written = json.loads((tmp_path / "out/annotations/train.json").read_text())
    assert [one["file_name"] for one in written["images"]] == ["up.jpg", "ok.jpg"]


def test_missing_images_are_left_out_with_their_boxes(tmp_path):
    (tmp_path / "b.jpg").touch()
    (tmp_path / "empty.jpg").touch()
    index = read(document(), tmp_path, FolderImages(tmp_path))
    assert list(index.files) == ["b.jpg", "empty.jpg"]
    assert index.num_boxes == 1
    assert reported(index) == [("image-missing", "", "image left out")]
    assert "image id 3 of x.json and its boxes (2)" in index.problems[0].detail
    assert index.problems[0].file == str(tmp_path / "a.jpg")


def test_sizes_that_are_not_there_are_read_from_the_images(tmp_path):
    doc = document()
    del doc["images"][0]["width"]
    doc["images"][1]["height"] = 0
    doc["images"][2]["height"] = None
    Image.new("RGB", (100, 50)).save(tmp_path / "b.jpg")
    Image.new("RGB", (61, 60)).save(tmp_path / "a.jpg")
    (tmp_path / "empty.jpg").write_bytes(b"no image")
    index = read(doc, tmp_path, FolderImages(tmp_path))
    assert index.sizes.tolist() == [[100, 50], [61, 60]]
    assert reported(index) == [
        ("field-missing", "image id 7", "kept"),
        ("field-missing", "image id 3", "kept"),
        ("image-unreadable", "image id 9", "image left out"),
    ]


def changed(place, value):
    """The document with one value replaced; a value of ... removes it."""
    doc = copy.deepcopy(document())
    *path, last = place
    inner = doc
    for step in path:
        inner = inner[step]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return doc


NAN, INF = float("nan"), float("inf")
BOX, PICTURE, KIND = ("annotations", 1), ("images", 0), ("categories", 0)
BOX_OUT, IMAGE_OUT = "box left out", "image left out"
UNKNOWN_IMAGE = ("id-unknown", BOX_OUT)
FAULTS = [
    ((*BOX, "bbox"), [NAN, 1, 2, 3], [("box-nan", BOX_OUT)]),
    ((*BOX, "bbox"), [1, 1, INF, 3], [("box-nan", BOX_OUT)]),
    ((*BOX, "bbox"), [-INF, 1, INF, 3], [("box-nan", BOX_OUT)]),
    ((*BOX, "bbox"), [1e308, 1, 1e308, 3], [("box-nan", BOX_OUT)]),
    ((*BOX, "bbox"), [10**400, 1, 2, 3], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [1, 1, 0, 3], [("box-flat", BOX_OUT)]),
    ((*BOX, "bbox"), [1, 1, 2, -3], [("box-flat", BOX_OUT)]),
    ((*BOX, "bbox"), [100, 1, 2, 3], [("box-outside", BOX_OUT)]),
    ((*BOX, "bbox"), [99, 1, 2, 3], [("box-past-border", "kept")]),
    ((*BOX, "bbox"), [1, 1, 2], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [1, 2, 3, 4, 5], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), ["1", "2", "3", "4"], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [None, 2, 3, 4], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [True, 2, 3, 4], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), [[1], 2, 3, 4], [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), "1 2 3 4", [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), {"x": 1}, [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), None, [("field-wrong", BOX_OUT)]),
    ((*BOX, "bbox"), ..., [("field-missing", BOX_OUT)]),
    ((*BOX, "id"), ..., [("field-missing", BOX_OUT)]),
    ((*BOX, "id"), "two", [("field-wrong", BOX_OUT)]),
    ((*BOX, "id"), 10**30, [("field-wrong", BOX_OUT)]),
    ((*BOX, "id"), NAN, [("field-wrong", BOX_OUT)]),
    ((*BOX, "id"), 1.5, [("field-wrong", BOX_OUT)]),
    ((*BOX, "id"), 1, [("id-duplicate", "kept")]),
    ((*BOX, "image_id"), ..., [("field-missing", BOX_OUT)]),
    ((*BOX, "image_id"), "7", [("field-wrong", BOX_OUT)]),
    ((*BOX, "image_id"), 8, [UNKNOWN_IMAGE]),
    ((*BOX, "image_id"), -(2**63), [UNKNOWN_IMAGE]),
    ((*BOX, "category_id"), 6, [("class-unknown", BOX_OUT)]),
    ((*BOX, "category_id"), [5], [("field-wrong", BOX_OUT)]),
    ((*BOX, "area"), -1, [("field-wrong", "kept")]),
    ((*BOX, "area"), INF, [("field-wrong", "kept")]),
    ((*BOX, "area"), "big", [("field-wrong", BOX_OUT)]),
    ((*BOX, "iscrowd"), "no", [("field-wrong", BOX_OUT)]),
    (BOX, 5, [("field-wrong", BOX_OUT)]),
    (BOX, None, [("field-wrong", BOX_OUT)]),
    (BOX, [], [("field-wrong", BOX_OUT)]),
    (BOX, "box", [("field-wrong", BOX_OUT)]),
    (BOX, {}, [("field-missing", BOX_OUT)]),
    ((*PICTURE, "id"), 3, [("id-duplicate", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "id"), "7", [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "id"), ..., [("field-missing", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "file_name"), ..., [("field-missing", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "file_name"), 12, [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "file_name"), "\ud800.jpg", [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "file_name"), "a.jpg", [("image-duplicate", "kept")]),
    ((*PICTURE, "width"), "100", [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "width"), 2**40, [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    ((*PICTURE, "width"), NAN, [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    (PICTURE, [7, "b.jpg"], [("field-wrong", IMAGE_OUT), UNKNOWN_IMAGE]),
    (("categories", 1), 5, [("field-wrong", "kept"), ("class-unknown", BOX_OUT)]),
    (("categories", 1, "name"), ..., [("field-missing", "kept"), ("class-unknown", BOX_OUT)]),
    (("categories", 1, "id"), 90, [("id-duplicate", "kept"), ("class-unknown", BOX_OUT)]),
]  # fmt: skip


FAULT_NAMES = [f"{place[-1]}={str(value)[:20]}" for place, value, _ in FAULTS]


@pytest.mark.parametrize(("place", "value", "expected"), FAULTS, ids=FAULT_NAMES)
def test_faults_are_named_and_the_rest_is_read(tmp_path, place, value, expected):
    doc = changed(place, value)
    doc["annotations"].pop()  # a box of the category and image that are changed is enough
    index = read(doc, tmp_path)
    assert [(p.kind, p.effect) for p in index.problems] == expected
    for problem in index.problems:
        assert problem.file == str(tmp_path / "x.json")
        assert problem.where
        assert problem.detail
        assert problem.remedy
    lost = sum(effect == BOX_OUT for _, effect in expected)
    assert index.num_boxes == 2 - lost
    assert np.isfinite(index.areas).all()


@pytest.mark.parametrize("value", [7.0, 7])
def test_whole_numbers_may_be_written_as_floats(tmp_path, value):
    index = read(changed((*PICTURE, "id"), value), tmp_path)
    assert index.problems == ()
    assert index.image_ids.tolist() == [7, 3, 9]


def test_boxes_with_the_same_fault_are_one_problem(tmp_path):
    doc = document()
    boxes = [{"id": i, "image_id": 77, "category_id": 1, "bbox": [0, 0, 1, 1]} for i in range(9)]
    boxes += [
        {"id": 99, "image_id": 1, "category_id": 1, "bbox": [i, 0, 3, 3]} for i in range(1, 8)
    ]
    doc["annotations"] += boxes
    found = read(doc, tmp_path).problems
    counts = {(problem.kind, problem.where): problem.count for problem in found}
    assert counts["id-unknown", "annotation id 0"] == 9
    assert counts["id-duplicate", "annotation id 99"] == 6


def test_places_are_told_by_id_or_by_position(tmp_path):
    doc = document()
    doc["annotations"][0]["bbox"] = "?"
    doc["annotations"][2] = "?"
    assert [p.where for p in read(doc, tmp_path).problems] == ["annotation id 1", "annotations[2]"]


def test_backslashes_in_names_are_slashes(tmp_path):
    index = read(changed((*PICTURE, "file_name"), "train\\b.jpg"), tmp_path)
    assert index.files[0] == "train/b.jpg"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"images": []}',
        '{"images": 3}',
        '{"images":[],"annotations":{},"categories":[]}',
        '{"images":[],"annotations":[{"id":]}',
    ],
)
def test_files_that_are_no_coco_are_one_error(tmp_path, text):
    with pytest.raises(DataError, match=r"x\.json"):
        read(text, tmp_path)


class LostImages(NoImages):
    """Images that are all listed and cannot be read."""

    def read(self, name):
        raise DataError(f"{name}: cannot be read")


def test_random_damage_is_a_problem_or_an_error(tmp_path):
    rng = random.Random(1)
    text = json.dumps(document()).encode()
    path = tmp_path / "x.json"
    outcomes = {"error": 0, "problems": 0, "sound": 0}
    for _ in range(600):
        damaged = bytearray(text)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(damaged))
            junk = rng.choice(
                [b'"', b"{", b"]", b",", b"NaN", b"-", b"1e999", b"\xff", b"null", b"9"]
            )
            damaged[place : place + rng.randint(0, 3)] = junk
        path.write_bytes(damaged[: rng.choice([len(damaged), len(damaged), rng.randrange(900)])])
        try:
            index = read_coco(path, "train", LostImages())
        except DataError as error:
            outcomes["error"] += str(path) in str(error)
        else:
            assert np.isfinite(index.boxes).all()
            assert index.offsets[-1] == index.num_boxes
            outcomes["problems" if index.problems else "sound"] += 1
    assert min(outcomes.values()) > 10, outcomes
    assert sum(outcomes.values()) == 600, "an error does not name the file"


@pytest.mark.parametrize(
    ("split", "images", "boxes", "difficult"),
    [("train", 11_538, 31_556, 4_110), ("test", 5_008, 15_655, 3_054)],
)
def test_voc320(split, images, boxes, difficult):
    if not VOC320.exists():
        pytest.skip("needs shared/data/voc320 beside the checkout")
    path = VOC320 / "annotations" / f"{split}.json"
    index = read_coco(path, split, TarImages(tuple(sorted(VOC320.glob(f"{split}-*.tar")))))
    assert (len(index), index.num_boxes, index.difficult.sum()) == (images, boxes, difficult)
    assert not left_out(index.problems)
    assert_agrees_with_pycocotools(index, path)


def coco_text(*names, indent=None):
    """The same two boxes in each image, with a polygon and a mask, which do not count."""
    shapes = ([[40, 15, 60, 15, 60, 35]], {"counts": [0, 9], "size": [50, 100]})
    boxes = [(1, [40, 15, 20, 20]), (9, [0, 0, 50.5, 50])]
    annotations = [
        {"id": 10 * image + place, "image_id": image, "category_id": category, "bbox": box,
         "area": 1.0, "iscrowd": place, "segmentation": shapes[place]}
        for image in range(1, len(names) + 1)
        for place, (category, box) in enumerate(boxes)
    ]  # fmt: skip
    images = [
        {"id": number, "license": 1, "file_name": name, "height": 50, "width": 100}
        for number, name in enumerate(names, 1)
    ]
    categories = [{"id": 9, "name": "sea dog", "supercategory": ""}, {"id": 1, "name": "cat"}]
    content = {"info": {"year": "2024"}, "licenses": [{"id": 1}], "categories": categories}
    content |= {"images": images, "annotations": annotations}
    return json.dumps(content, indent=indent)


NEAR = {
    "Roboflow": (
        {"train/_annotations.coco.json": ["1.jpg"], "train/1.jpg": None,
         "valid/_annotations.coco.json": ["1.jpg"], "valid/1.jpg": None},
        {"train": ["train/1.jpg"], "val": ["valid/1.jpg"]},
    ),
    "one folder": (
        {"_annotations.coco.json": ["1.jpg", "b/2 é.PNG"], "1.jpg": None, "b/2 é.PNG": None},
        {"train": ["1.jpg", "b/2 é.PNG"]},
    ),
    "files above the folders": (
        {"train.json": ["1.jpg"], "TEST/1.jpg": None, "TRAIN/1.jpg": None, "test.json": ["1.jpg"]},
        {"test": ["TEST/1.jpg"], "train": ["TRAIN/1.jpg"]},
    ),
    "files of a year": (
        {"instances_train2017.json": ["1.jpg"], "instances_val2017.json": ["1.jpg"],
         "train2017/1.jpg": None, "images/val2017/1.jpg": None},
        {"train2017": ["train2017/1.jpg"], "val2017": ["images/val2017/1.jpg"]},
    ),
    "FiftyOne": ({"labels.json": ["1.jpg"], "data/1.jpg": None}, {"train": ["data/1.jpg"]}),
    "Label Studio": (
        {"result.json": ["images/1.jpg"], "images/1.jpg": None}, {"train": ["images/1.jpg"]}
    ),
    "CVAT": (
        {"annotations/instances_default.json": ["1.jpg"], "images/default/1.jpg": None},
        {"default": ["images/default/1.jpg"]},
    ),
    "in the folder of a split": (
        {"train/annotations.json": ["1.jpg"], "train/images/1.jpg": None,
         "val/my labels.json": ["1.jpg"], "val/1.jpg": None},
        {"train": ["train/images/1.jpg"], "val": ["val/1.jpg"]},
    ),
    "any name": (
        {"cells_train_coco.json": ["1.jpg"], "img/1.jpg": None, "package.json": '{"name": "x"}'},
        {"cells_train": ["img/1.jpg"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_files_beside_or_above_the_images(tmp_path, monkeypatch, name):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    files, expected = NEAR[name]
    files = {n: coco_text(*c) if isinstance(c, list) else c for n, c in files.items()}
    root = put_all(tmp_path / "set", files)
    assert recognise(root) == "coco"
    assert split_names(root) == tuple(expected)
    for split, images in expected.items():
        for _ in range(2):  # read, and from the cache
            index = load_dataset(root, split).index
            paths = [Path(index.images.where(name)).resolve() for name in index.files]
            assert paths == [(root / name).resolve() for name in images]
            assert index.classes == ("cat", "sea dog")
            assert index.problems == ()
            read = list(contents(root, split).values())
            assert read == [[("cat", (40, 15, 60, 35)), ("sea dog", (0, 0, 50.5, 50))]] * len(
                images
            )
            assert index.crowd.tolist() == [False, True] * len(images)
    assert check_dataset(root).problems == ()


def test_an_indented_file_is_recognised_by_its_keys(tmp_path):
    root = put_all(tmp_path / "set", {"x.json": coco_text("1.jpg", indent=4), "1.jpg": None})
    assert recognise(root) == "coco"
    assert len(contents(root, "x")) == 1
