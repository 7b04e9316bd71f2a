import pytest

from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset, split_names
from alphaiou.data.formats.registry import recognise
from alphaiou.data.problems import DataError
from tests.data.formats.layouts import contents, kinds, put, put_all

HEADER = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
CAT, DOG = ("cat", (40, 15, 60, 35)), ("sea dog", (0, 0, 50.5, 50))
ROWS = (
    "1.jpg,100,50,cat,40,15,60,35\n2 é.PNG,100,50,sea dog,0,0,50.5,50\n1.jpg,100,50,cat,0,0,9,9\n"
)
#: The images are in the order of their first rows.
READ = {"1.jpg": [CAT, ("cat", (0, 0, 9, 9))], "2 é.PNG": [DOG]}
SETS = {
    "TensorFlow": (
        {"train_labels.csv": HEADER + ROWS, "test_labels.csv": HEADER + ROWS,
         **{"images/1.jpg": None, "images/2 é.PNG": None}},
        {split: {f"images/{k}": v for k, v in READ.items()} for split in ("test", "train")},
    ),
    "Roboflow": (
        {"train/_annotations.csv": HEADER + ROWS, "valid/_annotations.csv": HEADER + ROWS,
         **{f"{split}/{name}": None for split in ("train", "valid") for name in READ}},
        {split: {f"{folder}/{k}": v for k, v in READ.items()}
         for split, folder in (("train", "train"), ("val", "valid"))},
    ),
    "RetinaNet": (
        {"annotations.csv": "/data/imgs/1.jpg,40,15,60,35,cat\n/data/imgs/2 é.PNG,0,0,50.5,50,"
         "sea dog\n/data/imgs/1.jpg,0,0,9,9,cat\n/data/imgs/3.jpg,,,,,\n",
         "classes.csv": "cat,0\nsea dog,1\n",
         **{"imgs/1.jpg": None, "imgs/2 é.PNG": None, "imgs/3.jpg": None}},
        {"train": {**{f"imgs/{k}": v for k, v in READ.items()}, "imgs/3.jpg": []}},
    ),
    "Kaggle": (
        {"train.csv": "image,xmin,ymin,xmax,ymax,label\na.jpg,40,15,60,35,cat\n"
         "b.jpg,0,0,50.5,50,sea dog\n", "TRAIN/a.jpg": None, "TRAIN/b.jpg": None,
         "TEST/a.jpg": None, "TEST/b.jpg": None},
        {"train": {"TRAIN/a.jpg": [CAT], "TRAIN/b.jpg": [DOG]}},
    ),
    "a column for the split": (
        {"boxes.csv": "split;Image_Path;X1;Y1;X2;Y2;Label\ntrain;img/1.jpg;40;15;60;35;cat\n"
         "VALID;img\\2.jpg;0;0;50.5;50;sea dog\n", "img/1.jpg": None, "img/2.jpg": None},
        {"train": {"img/1.jpg": [CAT]}, "val": {"img/2.jpg": [DOG]}},
    ),
    "of Windows, with a byte order mark": (
        {"labels.CSV": ("\ufeff" + HEADER + ROWS).replace("\n", "\r\n").encode(),
         "1.jpg": None, "2 é.PNG": None},
        {"train": READ},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", SETS)
def test_published_forms(tmp_path, monkeypatch, name):
    files, expected = SETS[name]
    root = put_all(tmp_path / "set", files)
    assert recognise(root) == "csv"
    assert split_names(root) == tuple(expected)
    for split, read in expected.items():
        for _ in range(2):  # read, and from the cache
            assert contents(root, split) == read
        dataset = load_dataset(root, split)
        assert dataset.index.classes == ("cat", "sea dog")
        assert dataset[0][0].shape == (3, 50, 100)
    assert check_dataset(root).problems == ()
    monkeypatch.chdir(root)
    assert list(contents(".", "train")) == list(expected["train"])


def test_the_file_itself(tmp_path):
    root = put_all(tmp_path / "set", SETS["TensorFlow"][0])
    assert recognise(root / "train_labels.csv") == "csv"
    assert contents(root / "train_labels.csv", "train") == contents(root, "train")


def test_classes_by_number_may_have_gaps(tmp_path):
    root = put_all(tmp_path / "set", {"a.csv": "1.jpg,1,1,9,9,cat\n", "1.jpg": None})
    put(root / "classes.csv", "hen,7\ncat,30\n")
    assert load_dataset(root, "train").index.classes == ("hen", "cat")


def test_problems_name_file_and_line(tmp_path):
    rows = (
        "1.jpg,100,50,cat,one,15,60,35", "1.jpg,100,50,cat,60,15,40,35", "1.jpg,100,50,,1,1,5,5",
        "1.jpg,100,50", ",100,50,cat,1,1,5,5", "1.jpg,100,50,cat,200,15,260,35",
        "1.jpg,100,50,cat,,15,61,35", "2.jpg,,,cat,1,1,5,5", "3.jpg,100,50,cat,1,1,5,5",
        "4.jpg,,,cat,1,1,5,5", "images/1.jpg,100,50,cat,1,1,5,5", "1.jpg,100,50,cat,inf,1,5,5",
    )  # fmt: skip
    root = put_all(tmp_path / "set", {"1.jpg": None, "2.jpg": None, "4.jpg": b"no image"})
    put(root / "a.csv", HEADER + "\n".join(rows) + "\n")
    index = load_dataset(root, "train").index
    box, lost = "box left out", "image left out"
    assert sorted(kinds(index)) == [
        ("box-flat", "a.csv", "line 3", box),
        ("box-nan", "a.csv", "line 13", box),
        ("box-nan", "a.csv", "line 2", box),
        ("box-nan", "a.csv", "line 8", box),
        ("box-outside", "a.csv", "line 7", box),
        ("class-name", "a.csv", "line 4", box),
        ("image-duplicate", "a.csv", "line 12", lost),
        ("image-missing", "3.jpg", "", lost),
        ("image-unreadable", "4.jpg", "", lost),
        ("line-broken", "a.csv", "line 5", box),
        ("line-broken", "a.csv", "line 6", box),
    ]
    assert all(problem.remedy for problem in index.problems)


BROKEN = {
    "filename,xmin,ymin,width,height,class\n1.jpg,1,1,5,5,cat\n": "has no column xmax and no col",
    "filename,width,height,xmin,ymin,xmax,ymax\n1.jpg,9,9,1,1,5,5\n": "has no column class; a tab",
    HEADER + "1.jpg,100,50,cat,0.1,0.2,0.5,0.6\n": "xmin, ymin, xmax, ymax: are fractions.*multip",
    HEADER + "1.jpg,100,50,cat,1,1,5,5," + "x" * 200_000 + "\n": "line 2: is no row of a CSV file",
    HEADER.encode() + b"1.jpg,100,50,\xff,1,1,5,5\n": "is not UTF-8; save it as CSV in UTF-8",
    HEADER: r"has no split 'train'; there are: none",
    HEADER + "../../../etc/passwd,9,9,cat,1,1,5,5\n": "none of the images .*the first: .*passwd",
    HEADER + "/etc/passwd,9,9,cat,1,1,5,5\n": "none of the images can be used; the first: .*passwd",
    HEADER + "a" * 3000 + ",9,9,cat,1,1,5,5\n": "none of the images can be used; the first",
    HEADER + "a\0b,9,9,cat,1,1,5,5\n": "none of the images can be used; the first|is no row",
}


@pytest.mark.parametrize("content", BROKEN)
def test_what_is_broken_names_file_and_remedy(tmp_path, content):
    root = put_all(tmp_path / "set", {"1.jpg": None, "boxes.csv": content})
    assert recognise(root) == "csv"
    with pytest.raises(DataError, match=BROKEN[content]):
        load_dataset(root, "train")
    report = check_dataset(root)
    assert report.problems
    assert all(problem.remedy for problem in report.problems)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("cat,1\ndog,2,3\n", "needs a name and a number per row"),
        ("cat,one\n", "needs a name and a number per row"),
        ("cat,1\ncat,2\n", "needs a name and a number per row"),
        (b"\xff,1\n", "is not UTF-8"),
    ],
)
def test_broken_classes(tmp_path, content, says):
    root = put_all(tmp_path / "set", {"a.csv": "1.jpg,1,1,9,9,cat\n", "1.jpg": None})
    put(root / "classes.csv", content)
    with pytest.raises(DataError, match=rf"classes\.csv: {says}"):
        load_dataset(root, "train")


def test_a_table_of_something_else_is_no_data_set(tmp_path):
    put(tmp_path / "set/scores.csv", "epoch,loss\n1,2\n")
    with pytest.raises(DataError, match="no data set of a known layout"):
        recognise(tmp_path / "set")
    with pytest.raises(DataError, match=r"scores\.csv: is no table of boxes; the columns are"):
        load_dataset(tmp_path / "set/scores.csv", "train")
