import pytest

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.registry import recognise
from alphaiou.data.problems import DataError
from tests.data.formats.layouts import contents, kinds, put, put_all

META = (
    "<version>1.1</version><meta><task><id>7</id><name>Road</name><size>2</size>"
    "<mode>annotation</mode><labels><label><name>tram</name><color>#fa3253</color>"
    "<type>any</type><attributes><attribute><name>line</name></attribute></attributes></label>"
    "<label><name>car</name><type>any</type><attributes></attributes></label></labels>"
    "<owner><username>me</username></owner></task><dumped>2024-01-01</dumped></meta>"
)
CAR = (
    '<box label="car" source="manual" occluded="0" xtl="10.50" ytl="5.00" xbr="30.25" ybr="20.00" '
    'z_order="0">\n<attribute name="parked">true</attribute></box>\n'
)
TRAM = '<box label="tram" occluded="1" xtl="0" ytl="0" xbr="100" ybr="50" z_order="0"></box>\n'
READ = {CAR: ("car", (10.5, 5, 30.25, 20)), TRAM: ("tram", (0, 0, 100, 50))}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))


def image(name, *shapes, more="", size='width="100" height="50"', number=0):
    return f'<image id="{number}" name="{name}" {more} {size}>\n{"".join(shapes)}</image>\n'


def document(*images, meta=META):
    head = '<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n'
    return f"{head}{meta}\n{''.join(images)}</annotations>\n"


SETS = {
    "task": (
        {
            "annotations.xml": document(image("1.jpg", CAR, TRAM), image("b/2 é.PNG")),
            **{"images/1.jpg": None, "images/b/2 é.PNG": None},
        },
        {"train": {"images/1.jpg": [CAR, TRAM], "images/b/2 é.PNG": []}},
    ),
    "project": (
        {
            "annotations.xml": document(
                image("1.jpg", CAR, more='subset="Train"'),
                image("1.jpg", TRAM, more='subset="Validation"'),
            ),
            **{"images/Train/1.jpg": None, "images/Validation/1.jpg": None},
            "images/Test/1.jpg": None,
        },
        {"train": {"images/Train/1.jpg": [CAR]}, "val": {"images/Validation/1.jpg": [TRAM]}},
    ),
    "a folder per split": (
        {
            **{"TRAIN/annotations.xml": document(image("1.jpg", CAR)), "TRAIN/images/1.jpg": None},
            **{"TEST/annotations.xml": document(image("1.jpg", TRAM)), "TEST/images/1.jpg": None},
        },
        {"test": {"TEST/images/1.jpg": [TRAM]}, "train": {"TRAIN/images/1.jpg": [CAR]}},
    ),
    "images together with the file": (
        {"annotations.xml": document(image("data/1.jpg", CAR)), "1.jpg": None},
        {"train": {"1.jpg": [CAR]}},
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_published_forms(tmp_path, monkeypatch, name):
    files, expected = SETS[name]
    root = put_all(tmp_path / "set", files)
    assert recognise(root) == "cvat"
    assert split_names(root) == tuple(expected)
    for split, images in expected.items():
        read = {name: [READ[one] for one in shapes] for name, shapes in images.items()}
        for _ in range(2):  # read, and from the cache
            assert contents(root, split) == read
        dataset = load_dataset(root, split)
        assert dataset.index.classes == ("tram", "car")  # in the order of the task
        assert dataset[0][0].shape == (3, 50, 100)
    assert check_dataset(root).problems == ()
    monkeypatch.chdir(root)
    assert list(contents(".", "train")) == list(expected["train"])


def test_the_file_itself(tmp_path):
    root = put_all(tmp_path / "set", SETS["task"][0])
    assert recognise(root / "annotations.xml") == "cvat"
    assert contents(root / "annotations.xml", "train") == contents(root, "train")


def test_boxes_around_other_shapes(tmp_path):
    shapes = {
        '<polygon label="car" points="20.00,10.00;40.00,5.00;30.50,25.00"/>': (
            20,
            5,
            40,
            25,
        ),
        '<ellipse label="car" cx="50" cy="25" rx="10" ry="5"/>': (40, 20, 60, 30),
        '<mask label="car" rle="1, 2" left="7" top="8" width="3" height="4"/>': (7, 8, 10, 12),
        '<box label="car" xtl="40" ytl="20" xbr="60" ybr="30" rotation="90.0"/>': (45, 15, 55, 35),
        '<box label="car" xtl="40" ytl="20" xbr="60" ybr="30" rotation="360"/>': (40, 20, 60, 30),
    }
    root = put_all(tmp_path / "set", {"1.jpg": None})
    put(root / "annotations.xml", document(image("1.jpg", *shapes)))
    assert contents(root, "train") == {"1.jpg": [("car", box) for box in shapes.values()]}


def test_without_labels_of_the_task_the_names_are_sorted(tmp_path):
    root = put_all(tmp_path / "set", {"1.jpg": None})
    put(root / "annotations.xml", document(image("1.jpg", TRAM, CAR), meta=""))
    assert load_dataset(root, "train").index.classes == ("car", "tram")


def test_problems_name_file_and_line(tmp_path):
    root = put_all(tmp_path / "set", {"1.jpg": None, "3.jpg": None, "4.jpg": b"no image"})
    shapes = (
        '<points label="car" points="1,1"/>',
        '<box xtl="1" ytl="1" xbr="5" ybr="5"/>',
        '<box label="car" xtl="1" ytl="1"/>',
        '<box label="car" xtl="one" ytl="1" xbr="5" ybr="5"/>',
        '<box label="bus" xtl="1" ytl="1" xbr="5" ybr="5"/>',
        '<box label="car" xtl="9" ytl="1" xbr="5" ybr="5"/>',
        '<polygon label="car" points="1;2;3"/>',
        '<polygon label="car" points="1,a;2,2;3,4"/>',
        '<tag label="car"></tag>',
    )
    images = (
        image("1.jpg", *(f"{shape}\n" for shape in shapes)),
        image("2.jpg", CAR),
        image("1.jpg", CAR),
        image(""),
        image("3.jpg", size=""),
        image("4.jpg", size='width="0" height="x"'),
    )
    put(root / "annotations.xml", document(*images))
    index = load_dataset(root, "train").index
    box, lost = "box left out", "image left out"
    assert kinds(index) == [
        ("field-missing", "annotations.xml", "line 5", box),
        ("field-missing", "annotations.xml", "line 6", box),
        ("field-missing", "annotations.xml", "line 7", box),
        ("field-missing", "annotations.xml", "line 11", box),
        ("image-missing", "2.jpg", "", lost),
        ("image-duplicate", "annotations.xml", "line 19", lost),
        ("field-missing", "annotations.xml", "line 23", lost),
        ("field-missing", "annotations.xml", "line 25", "kept"),
        ("image-unreadable", "4.jpg", "", lost),
        ("box-nan", "annotations.xml", "line 8", box),
        ("class-unknown", "annotations.xml", "line 9", box),
        ("box-flat", "annotations.xml", "line 10", box),
        ("box-nan", "annotations.xml", "line 12", box),
    ]
    assert index.num_boxes == 0
    assert all(problem.remedy for problem in index.problems)


BROKEN = {
    document().replace("</annotations>", ""): r"annotations\.xml: is no XML: .*; export it again",
    "<annotations/>" * 2: r"annotations\.xml: is no XML: .*; export it again",
    "<!DOCTYPE a [<!ENTITY x 'y'>]><annotations>&x;</annotations>": "line 1: declares a document",
    document("<track id='0' label='car'></track>"): "line 4: it is CVAT for video; export the task",
    f"<annotations>{'<a>' * 99}": "line 1: elements are nested too deeply",
    '<?xml version="1.0" encoding="klingon"?><annotations/>': "its encoding is unknown|is no XML",
    document(): r"has no split 'train'; there are: none",
    document(image("../../x.jpg", CAR)): r"none of the images can be used; the first: .*x\.jpg",
    document(image("/etc/passwd", CAR)): r"none of the images can be used; the first: .*passwd",
    document(image("a" * 3000, CAR)): r"none of the images can be used; the first",
}


@pytest.mark.parametrize("content", BROKEN)
def test_what_is_broken_names_file_and_remedy(tmp_path, content):
    root = put_all(tmp_path / "set", {"images/1.jpg": None, "annotations.xml": content})
    assert recognise(root) == "cvat"
    with pytest.raises(DataError, match=BROKEN[content]):
        load_dataset(root, "train")
    report = check_dataset(root)
    assert report.problems
    assert all(problem.remedy for problem in report.problems)
