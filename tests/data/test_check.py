import json
import re
import zlib
from pathlib import Path

import pytest
from PIL import Image

from alphaiou.cli import main
from alphaiou.cli.data.check import DataCheck, run_data_check
from alphaiou.data.check import check_dataset
from alphaiou.data.dataset import load_dataset
from alphaiou.data.pipeline.decoding import load_image
from alphaiou.data.problems import DataError
from benchmarks.damage import png
from tests.data.formats import test_voc, test_yolo

SHARED = Path(__file__).parents[3] / "shared/data"
CAT = test_voc.box_xml("cat", 1, 1, 9, 9)

pytestmark = pytest.mark.filterwarnings(
    "ignore:The image decoding and encoding capabilities:DeprecationWarning"
)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


@pytest.fixture
def voc(tmp_path):
    year = tmp_path / "voc/VOC2007"
    for stem in ("a", "b"):
        test_voc.add_image(year, stem, test_voc.SIZE + CAT)
    test_voc.add_list(year, "train", "a\n")
    test_voc.add_list(year, "trainval", "a\nb\n")
    return year


@pytest.fixture
def yolo(tmp_path):
    root = tmp_path / "yolo"
    test_yolo.add_image(root, "images/train/a.jpg", "0 0.5 0.5 0.5 0.5\n")
    test_yolo.add_image(root, "images/val/b.jpg", "")
    test_yolo.write_config(root)
    return root


@pytest.fixture
def coco(tmp_path):
    root = tmp_path / "coco"
    test_yolo.add_image(root, "images/train/a.jpg")
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 50}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 5, 5]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
    (root / "annotations").mkdir()
    (root / "annotations/train.json").write_text(json.dumps(content))
    return root


def found(report):
    return sorted((p.kind, Path(p.file).name) for p in report.problems)


@pytest.mark.parametrize("layout", ["voc", "yolo", "coco"])
@pytest.mark.parametrize("decode", [True, False])
def test_a_clean_set(request, tmp_path, layout, decode):
    request.getfixturevalue(layout)
    report = check_dataset(tmp_path / layout, decode=decode)
    assert report.ok
    assert report.problems == ()
    assert report.layout == layout
    assert all(split.images for split in report.splits)


@pytest.mark.parametrize("layout", ["voc", "yolo", "coco"])
def test_images_that_are_not_what_they_should_be(request, layout, tmp_path):
    request.getfixturevalue(layout)
    (path,) = (tmp_path / layout).rglob("a.jpg")
    Image.effect_noise((100, 50), 50).save(path)
    whole = path.read_bytes()

    path.write_bytes(whole[: len(whole) * 2 // 3])
    report = check_dataset(tmp_path / layout)
    assert found(report) == [("image-truncated", "a.jpg")]
    assert not report.ok

    path.write_bytes(b"not an image")
    assert ("image-unreadable", "a.jpg") in found(check_dataset(tmp_path / layout, decode=False))


def test_pixels_that_end_early_in_a_whole_file(yolo):
    """Checks and trainings report the image, rather than filling it with black."""
    (yolo / "images/train/a.jpg").write_bytes(png(100, 50, zlib.compress(b"\0" + b"x" * 300)))
    assert found(check_dataset(yolo)) == [("image-truncated", "a.jpg")]
    image = load_image(load_dataset(yolo, "train"), 0, side=32)
    assert image.pixels is None
    assert image.problem.kind == "image-truncated"


@pytest.mark.parametrize("layout", ["voc", "coco"])
def test_sizes_that_disagree(request, layout, tmp_path):
    request.getfixturevalue(layout)
    (path,) = (tmp_path / layout).rglob("a.jpg")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (100, 50)).save(path, exif=exif)
    report = check_dataset(tmp_path / layout)
    assert found(report) == [("image-size", "a.jpg")]
    assert "50 x 100, its annotation says 100 x 50" in report.problems[0].detail
    assert "EXIF" in report.problems[0].detail


def test_voc_labels_that_nothing_uses(voc):
    test_voc.add_image(voc, "unlisted", test_voc.SIZE)
    test_voc.add_image(voc, "segmentation", test_voc.SIZE)
    (voc / "ImageSets/Segmentation").mkdir()
    (voc / "ImageSets/Segmentation/train.txt").write_text("segmentation\n")
    test_voc.add_image(voc, "no-image", test_voc.SIZE)
    (voc / "JPEGImages/no-image.jpg").unlink()
    report = check_dataset(voc)
    assert found(report) == [
        ("label-without-image", "no-image.xml"),
        ("label-without-image", "unlisted.xml"),
    ]


def test_a_missing_image_is_counted_once(voc, coco, yolo):
    test_voc.add_list(voc, "train", "a\nb\n")
    annotations = coco / "annotations"
    content = json.loads((annotations / "train.json").read_text())
    content["images"].append({"id": 2, "file_name": "b.jpg", "width": 100, "height": 50})
    (annotations / "train.json").write_text(json.dumps(content))
    test_yolo.add_image(coco, "images/train/b.jpg")
    (annotations / "trainval.json").write_bytes((annotations / "train.json").read_bytes())
    test_yolo.add_image(yolo, "images/train/b.jpg", "")
    (yolo / "train.txt").write_text("images/train/a.jpg\nimages/train/b.jpg\n")
    (yolo / "data.yaml").write_text("train: train.txt\ntrainval: train.txt\nnames: [cat, dog]\n")
    for root in (voc.parent, coco, yolo):
        (path,) = root.rglob("a.jpg")
        path.unlink()
        report = check_dataset(root)
        assert found(report) == [("image-missing", "a.jpg")]
        assert report.counts == {"image-missing": 1}


def test_yolo_labels_that_nothing_uses(yolo):
    (yolo / "labels/train/stray.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    (yolo / "labels/train/classes.txt").write_text("cat\ndog\n")
    for split in (None, "train"):
        assert found(check_dataset(yolo, split)) == [("label-without-image", "stray.txt")]
    assert found(check_dataset(yolo, "val")) == []


@pytest.mark.parametrize(
    ("names", "wrong"),
    [
        (["cat", "cat"], "is 'cat', as that of class 0 is"),
        (["cat", ""], "is empty"),
        (["cat", " "], "is empty"),
    ],
)
def test_classes_without_a_name_of_their_own(yolo, coco, names, wrong):
    test_yolo.write_config(yolo, f"train: images/train\nnames: {json.dumps(names)}\n")
    path = coco / "annotations/train.json"
    content = json.loads(path.read_text())
    content["categories"] = [{"id": number, "name": name} for number, name in enumerate(names, 1)]
    path.write_text(json.dumps(content))
    for root, file, field in ((yolo, yolo / "data.yaml", "names"), (coco, path, '"name"')):
        (problem,) = check_dataset(root).problems
        assert (problem.kind, problem.file, problem.effect) == ("class-name", str(file), "kept")
        assert field in f"{problem.where} {problem.detail}"
        assert problem.detail.endswith(wrong)
        assert problem.remedy == "give each class a name of its own"


def test_an_object_with_an_empty_name(voc):
    test_voc.add_image(voc, "a", test_voc.SIZE + CAT + test_voc.box_xml("", 1, 1, 9, 9))
    (problem,) = check_dataset(voc).problems
    assert (problem.kind, problem.where) == ("class-name", "object 2")
    assert problem.file == str(voc / "Annotations/a.xml")
    assert problem.detail == "its <name> is empty"


@pytest.mark.parametrize("content", ["", "\n \n", None])
def test_a_list_of_classes_that_names_none(voc, content):
    path = voc.parent / "classes.txt"
    if content is None:
        path.symlink_to("nowhere")
    else:
        path.write_text(content)
    for problem in check_dataset(voc).problems:
        assert (problem.kind, problem.file) == ("split-unusable", str(path))
        assert "write" in problem.remedy
    assert not check_dataset(voc).ok


def replace_by_folder(path):
    path.unlink()
    path.mkdir()
    return path


def test_a_list_that_is_a_folder(voc, coco, yolo):
    lists = [
        replace_by_folder(voc / f"ImageSets/Main/{name}.txt") for name in ("train", "trainval")
    ]
    found = [one for one in check_dataset(voc).problems if one.kind == "split-unusable"]
    assert [problem.file for problem in found] == [str(path) for path in lists]
    assert found[0].detail == "the list cannot be read: is not a regular file"
    assert found[0].remedy == "put a text file of image names there, or remove it"
    annotations = replace_by_folder(coco / "annotations/train.json")
    (problem,) = check_dataset(coco).problems
    assert (problem.file, problem.detail) == (
        str(annotations),
        "cannot be read: is not a regular file",
    )
    test_yolo.write_config(yolo, "train: train.txt\nnames: [cat]\n")
    (yolo / "train.txt").mkdir()
    problem = check_dataset(yolo).problems[0]
    assert problem.file == str(yolo / "train.txt")
    assert problem.detail == "the list cannot be read: is not a regular file"
    assert problem.remedy == "put a text file of image paths there"


def test_a_folder_without_images(yolo):
    (yolo / "images/train/a.jpg").unlink()
    problem = check_dataset(yolo).problems[0]
    assert problem.file == str(yolo / "data.yaml")
    assert problem.detail == f"train: there is no image in {yolo / 'images/train'}"
    assert problem.remedy == "put images there, or correct the entry"


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("what", ["loop", "folder", "dangling link"])
def test_an_image_that_is_something_else(tmp_path, monkeypatch, cached, what, voc, coco, yolo):
    """It is a finding, and the other images are read."""
    if cached:
        monkeypatch.setenv("ALPHAIOU_CACHE", str(tmp_path / "cache"))
    for root in (voc.parent, coco, yolo):
        (path,) = root.rglob("a.jpg")
        path.rename(path.with_name("c.jpg"))
        if what == "folder":
            path.mkdir()
        else:
            path.symlink_to(path if what == "loop" else path.with_name("nowhere"))
    content = (coco / "annotations/train.json").read_text().replace("}]", "}, MORE]", 1)
    more = '{"id": 2, "file_name": "c.jpg", "width": 100, "height": 50}'
    (coco / "annotations/train.json").write_text(content.replace("MORE", more))
    test_voc.add_list(voc, "trainval", "a\nb\n")
    for root in (voc.parent, coco, yolo):
        report = check_dataset(root)
        about = [problem for problem in report.problems if "a.jpg" in str(problem)]
        assert {"image-missing", "image-unreadable"} & {problem.kind for problem in about}
        assert report.splits


def test_what_is_only_worth_knowing_is_no_failure(yolo):
    (yolo / "labels/train/a.txt").unlink()
    report = check_dataset(yolo)
    assert found(report) == [("image-without-label", "a.txt")]
    assert report.ok


def test_overlapping_splits_are_said_once(voc):
    (voc / "Annotations/a.xml").write_text("<annotation>")
    report = check_dataset(voc)
    assert report.counts == {"xml-broken": 1, "split-unusable": 1}  # all of train is that file


def test_a_broken_file_is_a_finding_too(yolo, coco):
    (yolo / "data.yaml").write_text("names: [")
    (coco / "annotations/train.json").write_text('{"images": [')
    assert [kind for kind, _ in found(check_dataset(yolo))] == ["yaml-broken"]
    assert [kind for kind, _ in found(check_dataset(coco))] == ["json-broken"]


def test_findings_are_not_logged_as_well(voc, caplog):
    (voc / "Annotations/a.xml").write_text("<annotation>")
    assert not check_dataset(voc).ok
    assert not caplog.records


def test_every_kind_is_documented():
    root = Path(__file__).parents[2]
    named = r'"((?:box|class|image|label|xml|json|yaml|csv|line|field|id|split)-[a-z-]+)"'
    sources = (root / "src/alphaiou/data").rglob("*.py")
    kinds = {kind for path in sources for kind in re.findall(named, path.read_text())}
    page = (root / "docs/data.md").read_text()
    table = page.partition("| kind |")[2].partition("\n\n")[0]
    documented = {
        kind
        for line in table.splitlines()[2:]
        for kind in re.findall("`([a-z-]+)`", line.split("|")[1])
    }
    assert documented == kinds


def test_a_finding_about_a_file_names_it_once_with_its_remedy(yolo, coco):
    (coco / "annotations/train.json").write_text('{"images": [')
    (broken,) = check_dataset(coco).problems
    assert broken.file == str(coco / "annotations/train.json")
    assert broken.file not in broken.detail
    assert broken.remedy.startswith("restore the file")
    (yolo / "images/train").rename(yolo / "images/elsewhere")
    (absent,) = check_dataset(yolo).problems
    assert (absent.kind, absent.file) == ("split-unusable", str(yolo / "data.yaml"))
    assert absent.remedy == "correct the entry, or the field path"


def test_a_split_without_usable_images_lists_all_of_them(yolo):
    (yolo / "images/train/a.jpg").write_bytes(b"no")
    expected = [("image-unreadable", "a.jpg"), ("split-unusable", "data.yaml")]
    assert found(check_dataset(yolo)) == found(check_dataset(yolo, "train")) == expected


def test_no_such_set_or_split(voc, tmp_path):
    with pytest.raises(DataError, match="nowhere"):
        check_dataset(tmp_path / "nowhere")
    with pytest.raises(DataError, match="'tets'"):
        check_dataset(voc, "tets")


def test_the_report_does_not_depend_on_the_threads(voc):
    for number in range(30):
        test_voc.add_image(voc, f"x{number}", test_voc.SIZE)
        if number % 3:
            (voc / f"JPEGImages/x{number}.jpg").write_bytes(b"no")
    test_voc.add_list(voc, "many", "".join(f"x{number}\n" for number in range(30)))
    seen = []
    one = check_dataset(voc, workers=1, on_progress=lambda done, total: seen.append((done, total)))
    assert one == check_dataset(voc, workers=7)
    assert one.counts["image-unreadable"] == 20
    assert seen == [(done, 32) for done in range(1, 33)]


class TestCommand:
    def test_exit_codes(self, voc, capsys):
        assert run_data_check(DataCheck(str(voc))) == 0
        assert "nothing is wrong" in capsys.readouterr().out
        (voc / "JPEGImages/a.jpg").write_bytes(b"no")
        assert run_data_check(DataCheck(str(voc))) == 1
        out = capsys.readouterr().out
        assert "image-unreadable: 1" in out
        assert str(voc / "JPEGImages/a.jpg") in out

    def test_json(self, voc, capsys):
        (voc / "JPEGImages/a.jpg").write_bytes(b"no")
        assert run_data_check(DataCheck(str(voc), json=True)) == 1
        report = json.loads(capsys.readouterr().out)
        assert report["counts"] == {"image-unreadable": 1}
        assert report["ok"] is False
        assert report["layout"] == "voc"
        assert [split["split"] for split in report["splits"]] == ["train", "trainval"]
        problem = report["problems"][0]
        assert problem["file"] == str(voc / "JPEGImages/a.jpg")
        assert all(problem[field] for field in ("kind", "detail", "remedy", "effect"))

    def test_only_the_first_of_a_kind_unless_all(self, voc, capsys):
        flat = [test_voc.box_xml("cat", x, 1, x - 1, 9) for x in range(1, 9)]
        test_voc.add_image(voc, "a", test_voc.SIZE + CAT + "".join(flat))
        run_data_check(DataCheck(str(voc)))
        assert "… and 3 more; --all" in capsys.readouterr().out
        run_data_check(DataCheck(str(voc), all=True))
        assert capsys.readouterr().out.count("has no width or no height") == 8

    def test_identical_boxes_are_one_finding(self, voc, capsys):
        test_voc.add_image(voc, "a", test_voc.SIZE + CAT * 1000)
        assert run_data_check(DataCheck(str(voc), json=True)) == 1
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert (problem["kind"], problem["count"]) == ("box-duplicate", 999)
        assert "is there 1,000 times" in problem["detail"]

    @pytest.mark.parametrize("damage", ["no set", "no such split", "unreadable"])
    def test_a_fatal_error_is_json_too(self, voc, capsys, tmp_path, damage):
        path, split = (tmp_path / "none", None) if damage == "no set" else (voc, "tets")
        if damage == "unreadable":
            (voc / "ImageSets/Main/tets.txt").symlink_to(voc / "ImageSets/Main/tets.txt")
        assert main(["data", "check", str(path), "--json", *(["--split", split] if split else [])])
        fatal = json.loads(capsys.readouterr().out)
        assert str(path) in fatal["error"]
        assert fatal["ok"] is False
        run_data_check(DataCheck(str(voc), json=True))
        sound = json.loads(capsys.readouterr().out)
        assert sound["error"] is None
        assert set(fatal) == set(sound)

    def test_file_names_cannot_reach_the_terminal(self, voc, capsys):
        evil = "\x1b]0;evil\x07\udcff[red]"
        try:
            (voc / "Annotations" / f"{evil}.xml").write_text("<annotation/>")
        except OSError:
            pytest.skip("this file system takes no such names")
        assert run_data_check(DataCheck(str(voc))) == 1
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "[red].xml" in out


@pytest.mark.parametrize("name", ["voc-sample", "coco256"])
def test_real_data_has_nothing_wrong(name):
    if not (SHARED / name).is_dir():
        pytest.skip(f"shared/data/{name} is not beside this checkout")
    report = check_dataset(SHARED / name)
    assert report.ok
    assert len(report.problems) == {"voc-sample": 0, "coco256": 2}[name]
