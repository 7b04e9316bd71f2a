import json
import multiprocessing
import re
from pathlib import Path

import numpy as np
import pytest
import tyro

from alphaiou.cli import UsageError, main
from alphaiou.cli.data.convert import DataConvert, run_data_convert
from alphaiou.cli.data.noise import DataNoise, run_data_noise
from alphaiou.cli.data.stats import DataStats, run_data_stats
from alphaiou.cli.data.subset import DataSubset, run_data_subset
from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import load_dataset
from alphaiou.data.noise import clean_iou, perturb_index, write_noisy_set
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.data.subset import subset_index

LAYOUTS = ("voc", "coco", "yolo")
COMMANDS = {
    "convert": (DataConvert, run_data_convert),
    "noise": (DataNoise, run_data_noise),
    "stats": (DataStats, run_data_stats),
    "subset": (DataSubset, run_data_subset),
}


def run(name, *arguments):
    """Parse and run, as the program does."""
    kind, function = COMMANDS[name]
    options = [str(argument) for argument in arguments]
    return function(tyro.cli(kind, args=options, config=(tyro.conf.FlagCreatePairsOff,)))


def content(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("ALPHAIOU_CACHE", "")


@pytest.fixture(scope="module", params=LAYOUTS)
def source(request, tmp_path_factory):
    """A small set with the splits train and val, in each layout."""
    out = tmp_path_factory.mktemp(request.param) / "set"
    splits = [shapes_index(split, size=64, length=8) for split in ("train", "val")]
    convert_splits(splits, request.param, out)
    return out


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    out = tmp_path_factory.mktemp("coco") / "set"
    convert_splits([shapes_index("train", size=64, length=8)], "coco", out)
    return out


class TestNoise:
    def test_the_written_set_is_what_perturb_index_gives(self, source, tmp_path, capsys):
        assert run("noise", source, "--rate", 0.3, "--seed", 4, "--out", tmp_path / "noisy") == 0
        clean = load_dataset(source, "train").index
        noisy = load_dataset(tmp_path / "noisy", "train").index
        expected = perturb_index(clean, 0.3, 4)
        assert noisy.layout == clean.layout
        np.testing.assert_allclose(noisy.boxes, expected.boxes, rtol=0, atol=1e-9)
        np.testing.assert_allclose(noisy.areas, expected.areas, rtol=1e-9)
        assert list(noisy.labels) == list(clean.labels)
        iou = clean_iou(noisy, clean)
        output = capsys.readouterr().out
        assert f"{iou.by_image:.4f}" in output
        assert f"{iou.by_box:.4f}" in output
        assert "0.833 at 0.1, 0.710 at 0.2, 0.613 at 0.3" in output
        record = json.loads((tmp_path / "noisy/noise.json").read_text())
        assert (record["rate"], record["seed"], record["splits"]) == (0.3, 4, ["train"])
        assert record["mean_iou"]["train"]["by_image"] == pytest.approx(iou.by_image, abs=1e-9)

    def test_clean_annotations_are_beside(self, source, tmp_path):
        run("noise", source, "--rate", 0.3, "--out", tmp_path / "noisy")
        run("noise", source, "--rate", 0, "--out", tmp_path / "rate0")
        annotations = {
            name: text
            for name, text in content(tmp_path / "rate0").items()
            if not name.startswith("clean/") and not name.endswith((".png", "noise.json"))
        }
        beside = content(tmp_path / "noisy/clean")
        assert {name: beside[name] for name in annotations if name in beside} == annotations

    def test_twice_is_once_and_another_rate_is_refused(self, coco, tmp_path, capsys):
        out = tmp_path / "noisy"
        arguments = ("noise", coco, "--out", out, "--rate")
        run(*arguments, 0.2)
        before = content(out)
        capsys.readouterr()
        assert run(*arguments, 0.2) == 0
        assert "is there already" in capsys.readouterr().out
        assert content(out) == before
        with pytest.raises(DataError, match=r"was made with rate 0\.2, not 0\.3; write to another"):
            run(*arguments, 0.3)
        with pytest.raises(DataError, match="was made with seed 0, not 1"):
            run(*arguments, 0.2, "--seed", 1)
        assert content(out) == before

    @pytest.mark.slow
    def test_another_process_writes_the_same_bytes(self, coco, tmp_path):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            pool.apply(_write_noisy, (coco, tmp_path / "there"))
        _write_noisy(coco, tmp_path / "here")
        assert content(tmp_path / "there") == content(tmp_path / "here")

    def test_the_layout_can_be_chosen(self, source, tmp_path):
        clean = perturb_index(load_dataset(source, "train").index, 0.2, 0)
        for layout in LAYOUTS:
            out = tmp_path / layout
            run("noise", source, "--rate", 0.2, "--out", out, "--layout", layout)
            noisy = load_dataset(out, "train").index
            assert noisy.layout == layout
            np.testing.assert_allclose(noisy.boxes, clean.boxes, rtol=0, atol=1e-9)

    def test_noise_on_noise_is_refused(self, source, tmp_path):
        noisy = tmp_path / "noisy"
        run("noise", source, "--rate", 0.1, "--out", noisy, "--images", "copy")
        with pytest.raises(DataError, match=r"has noise already \(rate 0\.1, seed 0"):
            run("noise", noisy, "--rate", 0.1, "--out", tmp_path / "twice")
        for inner in noisy.rglob("*.json"), noisy.rglob("data.yaml"):
            for path in inner:
                if "clean" not in path.parts and path.name != "noise.json":
                    with pytest.raises(DataError, match="has noise already"):
                        run("noise", path, "--rate", 0.1, "--out", tmp_path / "twice")
        assert run("noise", noisy, "--rate", 0.1, "--out", tmp_path / "twice", "--force") == 0

    @pytest.mark.parametrize("rate", [-0.1, 1, "nan"])
    def test_a_rate_out_of_range_is_refused(self, coco, tmp_path, rate):
        with pytest.raises(UsageError, match="--rate: rate must be at least 0 and below 1"):
            run("noise", coco, "--rate", rate, "--out", tmp_path / "noisy")
        assert list(tmp_path.iterdir()) == []

    def test_fewer_than_no_pictures_are_refused(self, coco, tmp_path):
        with pytest.raises(UsageError, match="--pictures -1"):
            run("noise", coco, "--rate", 0.1, "--pictures", -1, "--out", tmp_path / "out")

    @pytest.mark.slow
    def test_pictures(self, coco, tmp_path):
        out = tmp_path / "noisy"
        run("noise", coco, "--rate", 0.3, "--out", out, "--images", "none", "--pictures", 3)
        assert (out / "pictures/noisy_boxes.png").stat().st_size > 10_000

    def test_shapes_needs_no_files(self, tmp_path):
        splits = [shapes_index("val", size=64, length=3)]
        made = write_noisy_set(splits, 0.3, 0, tmp_path / "noisy", "coco")
        assert made.written
        assert load_dataset(tmp_path / "noisy", "val").index.num_boxes == splits[0].num_boxes


class TestSubset:
    def test_the_written_part_is_what_subset_index_gives(self, source, tmp_path, capsys):
        run("subset", source, "--fraction", 0.5, "--seed", 2, "--out", tmp_path / "half")
        whole = load_dataset(source, "train").index
        part = load_dataset(tmp_path / "half", "train").index
        expected = subset_index(whole, 0.5, 2)
        assert [Path(name).stem for name in part.files] == [
            Path(name).stem for name in expected.files
        ]
        np.testing.assert_allclose(part.boxes, expected.boxes, rtol=0, atol=1e-9)
        assert "4 of 8 images" in capsys.readouterr().out
        assert not part.problems

    def test_twice_is_once_and_another_fraction_is_refused(self, source, tmp_path, capsys):
        arguments = ("subset", source, "--out", tmp_path / "part", "--fraction")
        run(*arguments, 0.25)
        before = content(tmp_path / "part")
        run(*arguments, 0.25)
        assert "is there already" in capsys.readouterr().out
        with pytest.raises(DataError, match=r"was made with fraction 0\.25, not 0\.5"):
            run(*arguments, 0.5)
        assert content(tmp_path / "part") == before

    @pytest.mark.parametrize("fraction", [0, 1.5, 0.01])
    def test_a_fraction_out_of_range_is_refused(self, coco, tmp_path, fraction):
        with pytest.raises(UsageError, match="--fraction"):
            run("subset", coco, "--fraction", fraction, "--out", tmp_path / "part")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["noise", "subset", "convert"])
def test_a_folder_that_cannot_be_made(coco, tmp_path, name):
    """The message names the folder, and nothing is left behind."""
    (tmp_path / "file").write_text("")
    own = {"noise": ("--rate", 0.1), "subset": ("--fraction", 0.5), "convert": ("--to", "voc")}
    for out, why in (("file", "is a file"), ("file/sub", "cannot be made")):
        with pytest.raises(DataError, match=rf"{out}: .*{why}"):
            run(name, coco, *own[name], "--out", tmp_path / out)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


class TestConvert:
    @pytest.mark.parametrize("to", LAYOUTS)
    def test_all_splits_go(self, source, tmp_path, to):
        assert run("convert", source, "--to", to, "--out", tmp_path / "set") == 0
        for split in ("train", "val"):
            before = load_dataset(source, split).index
            after = load_dataset(tmp_path / "set", split).index
            np.testing.assert_allclose(after.boxes, before.boxes, rtol=0, atol=1e-9)
            assert after.layout == to

    def test_one_split_without_images(self, source, tmp_path):
        out = tmp_path / "set"
        run("convert", source, "--to", "coco", "--out", out, "--split", "val", "--images", "none")
        assert sorted(content(out)) == ["annotations/val.json", "conversion.json"]

    def test_what_is_lost_is_said_and_boxes_can_be_left_out(self, coco, tmp_path, capsys):
        marked = tmp_path / "marked"
        boxes = json.loads((coco / "annotations/train.json").read_text())
        for number, box in enumerate(boxes["annotations"]):
            box["iscrowd"], box["difficult"] = int(number < 2), int(number == 3)
        convert_splits([load_dataset(coco, "train").index], "coco", marked)
        (marked / "annotations/train.json").write_text(json.dumps(boxes))
        run("convert", marked, "--to", "yolo", "--out", tmp_path / "yolo")
        output = re.sub(r"\s+", " ", capsys.readouterr().out)
        assert "train: not held by the yolo layout: 2 crowd marks" in output
        assert "1 difficult marks" in output
        run("convert", marked, "--to", "yolo", "--out", tmp_path / "less", "--without", "crowd")
        assert "2 crowd boxes left out" in capsys.readouterr().out
        total = len(boxes["annotations"])
        assert load_dataset(tmp_path / "yolo", "train").index.num_boxes == total
        assert load_dataset(tmp_path / "less", "train").index.num_boxes == total - 2


class TestStats:
    def test_a_folder_that_cannot_be_made_is_said_before_the_tables(self, coco, tmp_path, capsys):
        (tmp_path / "file").write_text("")
        with pytest.raises(UsageError, match=r"--out .*file/sub: the folder cannot be created"):
            run("stats", coco, "--out", tmp_path / "file/sub")
        assert "median" not in capsys.readouterr().out

    def test_tables_pictures_and_numbers(self, coco, tmp_path, capsys):
        assert run("stats", coco, "--out", tmp_path / "stats") == 0
        index = load_dataset(coco, "train").index
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["boxes", str(index.num_boxes)] in rows
        stats = json.loads((tmp_path / "stats/train/stats.json").read_text())
        assert stats["boxes"] == index.num_boxes
        assert [
            "hexagon",
            *(str(stats["classes"][4][what]) for what in ("boxes", "images")),
        ] in rows
        assert (tmp_path / "stats/train/boxes.png").is_file()
        assert (tmp_path / "stats/train/classes.png").is_file()


def _write_noisy(source, out):
    write_noisy_set([load_dataset(source, "train").index], 0.3, 0, out, "coco")


@pytest.mark.parametrize("split", ["val", "valid"])
def test_every_command_takes_valid_for_val(tmp_path, source, split, capsys):
    for name, options in (
        ("convert", ("--to", "coco")),
        ("noise", ("--rate", 0.1, "--pictures", 0)),
        ("subset", ("--fraction", 0.5)),
        ("stats", ()),
    ):
        out = tmp_path / name
        assert run(name, source, "--split", split, "--out", out, *options) == 0
        if name != "stats":
            assert len(load_dataset(out, "val")) == (4 if name == "subset" else 8)
    assert (tmp_path / "stats/val/stats.json").is_file()
    assert main(["data", "check", str(source), "--split", split]) == 0
    assert "split val): 8 images" in capsys.readouterr().out
