"""The pre-registered study: its design, its data, its tables, and its command."""

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.data.dataset import load_dataset
from alphaiou.data.problems import DataError
from alphaiou.inference.evaluation import weights_detections
from alphaiou.inference.kept_detections import STEP, read_kept
from alphaiou.inference.weights import load_weights
from alphaiou.training.optimiser import rate_table
from alphaiou.training.recipe import recipe_hash
from studies.voc320.protocol import (
    COMPARISONS,
    DATA,
    PRIMARY,
    ROWS,
    Protocol,
    chosen_rows,
    main,
    protocol_grid,
    protocol_recipe,
    split_data,
    tables,
)
from tests.studies.drawn import drawn_voc320
from tests.study.made import made_record

ROOT = Path(__file__).parents[2]
GRID = protocol_grid(protocol_recipe())
BY_NAME = dict(zip(ROWS, GRID.rows, strict=True))


# Design


def test_the_design_is_that_of_the_page():
    assert len(GRID.rows) == len({row.label for row in GRID.rows}) == 13
    assert len(list(GRID.recipes())) == 39
    for row in GRID.rows:
        recipe = row.recipe
        assert (recipe.detector.name, recipe.image_size, recipe.select) == ("yolov5s", 320, "last")
        assert recipe.data == DATA
        assert recipe.epochs * recipe.subset == 200
        assert recipe.epochs / recipe.evaluate_every == 10
    gains = {name: row.recipe.box_gain / 0.05 for name, row in BY_NAME.items()}
    assert (gains["iou"], gains["iou-x2"], gains["alpha3"], gains["rising-tuned"]) == (1, 2, 1, 2)
    rising = BY_NAME["rising-tuned"].recipe
    assert (rising.loss.kind, rising.alpha_schedule.start, rising.alpha_schedule.end) == (
        "diou",
        1,
        5,
    )
    targets = {n: (r.recipe.noise, r.recipe.detector.objectness) for n, r in BY_NAME.items()}
    assert targets["noise-alpha3"] == (0.3, "iou")
    assert targets["noise-alpha3-similarity"] == (0.3, "similarity")
    assert COMPARISONS[:PRIMARY] == (("alpha3", "iou"), ("alpha3", "iou-x2"))


def test_a_quarter_of_the_images_takes_as_many_steps():
    whole, part = (BY_NAME[name].recipe for name in ("iou", "quarter-iou"))
    steps = 11_538 // 64, 11_538 // 4 // 64
    tables_of = [rate_table(count, r) for count, r in zip(steps, (whole, part), strict=True)]
    assert len(tables_of[0]) == len(tables_of[1])


def test_rows_are_chosen_by_part_and_by_name():
    assert chosen_rows([]) == list(ROWS)
    assert chosen_rows(["primary"]) == ["iou", "iou-x2", "alpha3"]
    assert chosen_rows(["noise-iou", "iou"]) == ["iou", "noise-iou"]
    with pytest.raises(SystemExit, match=r"'alpha4'.*choose from primary, tuned"):
        chosen_rows(["alpha4"])


# Data


def test_the_test_images_are_split_by_their_subset(tmp_path):
    source = drawn_voc320(tmp_path / "voc320", train=4, test=8)
    whole = json.loads((source / "annotations/test.json").read_text())
    subset = {image["file_name"]: image["subset"] for image in whole["images"]}
    out = split_data(source, tmp_path / "halves")
    sets = {split: load_dataset(out, split) for split in ("train", "val", "test")}
    assert {subset[name] for name in sets["val"].index.files} == {"train"}
    assert {subset[name] for name in sets["test"].index.files} == {"val"}
    assert len(sets["val"]) + len(sets["test"]) == 8
    boxes = sum(sets[split].index.num_boxes for split in ("val", "test"))
    assert boxes == len(whole["annotations"])
    image, target = sets["test"][0]
    assert image.shape[2] == 64
    assert len(target["boxes"])
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.json")}
    split_data(source, out)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.json")} == before


def test_data_that_cannot_be_split_are_rejected(tmp_path):
    with pytest.raises(DataError, match=r"train\.json: there is no such file; --data"):
        split_data(tmp_path / "nothing", tmp_path / "halves")
    source = drawn_voc320(tmp_path / "voc320", train=2, test=2)
    path = source / "annotations/test.json"
    path.write_text(path.read_text().replace('"subset"', '"year"'))
    with pytest.raises(DataError, match=r"test\.json: no image has the subset 'train'"):
        split_data(source, tmp_path / "halves")


# Tables


def made(levels, halves=None):
    """Records of three seeds per row; the score of both endpoints by row."""
    records = {}
    for name, (strict, loose) in levels.items():
        for seed in range(3):
            recipe = replace(BY_NAME[name].recipe, seed=seed)
            record = made_record(recipe, 0.3)
            luck = 0.001 * (seed - 1) + 0.0004 * ((seed + list(ROWS).index(name)) % 3)
            record["scores"] |= {"map75_95": strict + luck, "ap50": loose + luck}
            record["scored_on"] = DATA.test
            on_val = {**record["scores"], "map75_95": (halves or {}).get(name, strict)}
            record["history"] = [{"epoch": recipe.epochs, "box": 1.0, "val": on_val}]
            records[recipe_hash(recipe)] = record
    return records


def lines_of(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


def test_the_endpoints_are_read_from_the_intervals():
    levels = {"iou": (0.14, 0.55), "iou-x2": (0.15, 0.551), "alpha3": (0.16, 0.53)}
    text = tables(GRID, made(levels), list(ROWS))
    assert text.startswith("9 of 39 runs are finished.")
    first, second = lines_of(text, "| primary")
    assert "| superior | " in first
    assert first.endswith("| not shown |")  # AP50 loses 3.6 %
    assert second.split(" | ")[2] == "IoU, box gain ×2"
    assert second.split(" | ")[5] == "superior"
    other = tables(GRID, made({**levels, "alpha3": (0.14, 0.549)}), list(ROWS))
    first, _ = lines_of(other, "| primary")
    assert first.split(" | ")[5] == "not shown"
    assert first.endswith("| non-inferior |")


def test_gains_are_chosen_on_one_half_and_reported_on_the_other():
    levels = {
        "iou": (0.14, 0.55),
        "iou-x2": (0.15, 0.55),
        "alpha3": (0.17, 0.55),
        "alpha3-tuned": (0.16, 0.55),
    }
    # On the selection half IoU is best at twice the gain, α = 3 with tuned gains.
    text = tables(GRID, made(levels, {"alpha3": 0.1}), list(ROWS))
    _, chosen = text.split("### Each loss at the gains that are best on VOC2007 train")
    rows = [line.split(" | ")[0] for line in chosen.splitlines() if line.startswith("| α-")]
    assert rows == ["| α-IoU (α=3), box gain ×2, class gain ×2, objectness gain ×4"]
    assert lines_of(chosen, "| IoU, box gain ×2 |")


def test_tables_without_runs_say_so():
    assert tables(GRID, {}, list(ROWS)) == "0 of 39 runs are finished.\n"


# Command


TRIAL = ("--trial", "--device", "cpu", "--seeds", "0")


def started(*options, out):
    """The command in a process of its own, one training at a time."""
    program = (sys.executable, "-m", "studies.voc320.protocol", *TRIAL, "--out", str(out))
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*program, "--only", "quarter-iou", "--workers", "1", *options],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
def test_a_stopped_study_continues_elsewhere_and_prints_its_tables(tmp_path, capsys):
    source = drawn_voc320(tmp_path / "voc320", train=32, test=16)
    here, there = tmp_path / "here", tmp_path / "there"
    with started("--data", str(source), out=here) as process:
        for line in process.stdout:
            if "epoch 1 of 16" in line:
                process.send_signal(signal.SIGTERM)
                break
        rest = process.stdout.read()
    assert process.returncode == 130
    assert "stopped with checkpoints" in rest
    assert "finished" not in rest

    # Only the folder of the run travels, as between two machines.
    (run,) = (path.parent for path in here.glob("*/last.safetensors"))
    there.mkdir()
    run.rename(there / run.name)
    with started("--data", str(source), out=there) as process:
        rest = process.stdout.read()
    assert process.returncode == 0
    assert re.search(r"resuming after epoch \d+ of 16", rest)
    record = json.loads((there / f"trial/{run.name}.json").read_text())
    assert [entry["epoch"] for entry in record["history"]] == list(range(1, 17))

    # The kept detections are those of the weights on both halves, to the rounding of their boxes.
    kept, trained = there / f"trial/{run.name}.npz", load_weights(there / run.name)
    for split in ("val", "test"):
        dataset = load_dataset(there / DATA.path, split)
        data = read_kept(kept, index=dataset.index).data
        assert len(data.scores) > len(dataset.index)
        found = weights_detections(trained, dataset, rule=record["recipe"]["rule"]).data()
        order = np.lexsort((-found.scores, found.labels, found.images))
        assert np.array_equal(data.images, found.images[order])
        assert np.array_equal(data.labels, found.labels[order])
        np.testing.assert_allclose(data.scores, found.scores[order], rtol=1e-6)
        np.testing.assert_allclose(data.boxes, found.boxes[order], atol=STEP / 2 + 1e-9)
    train = load_dataset(there / DATA.path, "train").index
    with pytest.raises(DataError, match="no detections on the split 'train'"):
        read_kept(kept, index=train)

    # With the kept files alone nothing is left to compute, and the tables can be printed.
    options = Protocol(seeds=(0,), out=tmp_path / "third", keep=there / "trial", trial=True)
    todo = replace(options, data=source, only=("quarter-iou",), device="cpu")
    assert main(todo) == 0
    assert "1 runs are finished, 0 to compute" in capsys.readouterr().out
    assert main(replace(options, tables=True)) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("1 of 13 runs are finished.")
    assert "IoU, box gain ×1, 25% of the images |" in shown
