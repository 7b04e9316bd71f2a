"""Images to show, and those where two detectors differ, from made-up detections on shapes."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from alphaiou.data.dataset import load_dataset
from alphaiou.study.detections import (
    RunDetections,
    choose_differing,
    choose_examples,
    compare_detections,
    differences_path,
    draw_example,
    keep_differences,
    read_differences,
    tally,
)
from alphaiou.study.records import load_records, record_paths
from alphaiou.study.report import report_page
from alphaiou.training.recipe import recipe_hash
from tests.study.made import records_of, table1, write_runs


@pytest.fixture(scope="module")
def index():
    return load_dataset("shapes-plain-96", "val").index


def detections(index, row, keep=None, false=0):
    """Some of the objects of an image, found exactly, and boxes on nothing in a corner."""
    rows = index.rows(row)
    boxes = torch.as_tensor(index.boxes[rows])[:keep].float()
    labels = torch.as_tensor(index.labels[rows])[:keep].long()
    corner = torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(false, 1)
    return {
        "boxes": torch.cat([boxes, corner]),
        "labels": torch.cat([labels, torch.zeros(false, dtype=torch.long)]),
        "scores": torch.linspace(0.9, 0.5, len(boxes) + false),
    }


def test_objects_found_and_boxes_on_nothing_are_counted(index):
    row = int(np.argmax(np.diff(index.offsets)))
    objects = len(index.labels[index.rows(row)])
    assert objects > 1
    assert tally(detections(index, row), index, row) == (objects, 0)
    assert tally(detections(index, row, keep=1, false=2), index, row) == (1, 2)
    assert tally(detections(index, row, keep=0), index, row) == (0, 0)
    wrong = detections(index, row)
    wrong["labels"] = wrong["labels"] + 1
    assert tally(wrong, index, row) == (0, objects)
    twice = {key: torch.cat([own, own]) for key, own in detections(index, row).items()}
    assert tally(twice, index, row) == (objects, objects)  # an object is found once


def test_images_that_differ_most_come_first():
    first = np.array([[1, 0], [1, 3], [2, 0], [0, 0], [1, 1], [1, 0]])
    second = np.array([[1, 0], [1, 0], [0, 0], [2, 0], [2, 5], [1, 2]])
    chosen = choose_differing(first, second, np.arange(6))
    assert chosen == {"more": [3], "cleaner": [1], "worse": [2, 5]}
    assert choose_differing(first, second, np.array([0, 5]))["more"] == []


@pytest.fixture(scope="module")
def compared(index, tmp_path_factory):
    """The second detector finds everything, but for one image; the first the half."""
    folder = tmp_path_factory.mktemp("second")
    rows = range(len(index))
    first = RunDetections("paper", index, [detections(index, row, keep=1) for row in rows])
    best = int(np.flatnonzero(np.diff(index.offsets) == 1)[0])
    found = [detections(index, row, false=int(row == best)) for row in rows]
    return best, folder, compare_detections(first, RunDetections("paper", index, found), folder)


def test_each_kind_has_its_images(compared):
    best, folder, kinds = compared
    assert [len(pairs) for pairs in kinds.values()] == [3, 0, 1]
    for theirs, ours in kinds["more"]:
        assert len(ours["found"]) == len(ours["objects"]) > len(theirs["found"])
        assert (folder / ours["picture"]).is_file()
    ((_, worse),) = kinds["worse"]
    assert worse["picture"] == f"examples/{best:06d}.png"


def test_an_image_without_objects_can_be_drawn(index, tmp_path):
    empty = int(np.argmin(np.diff(index.offsets)))
    found = detections(index, empty, keep=0, false=1)
    example = draw_example(index, empty, found, tmp_path)
    assert example.found[0].iou == 0


def test_the_page_shows_what_was_kept(compared, tmp_path):
    grid = table1(seeds=(0,))
    write_runs(records_of(grid), tmp_path)
    names = [recipe_hash(recipe) for _, recipe in grid.recipes()]
    first, second = (tmp_path / name for name in names)
    assert read_differences(first, second) is None
    assert keep_differences(first, second) is None  # there are no weights
    _, folder, kinds = compared
    (folder / "examples").rename(second / "examples")
    differences_path(first, second).write_text(json.dumps(kinds))
    (_, ours), *_ = read_differences(first, second)["more"]
    assert json.dumps(asdict(ours)) == json.dumps(kinds["more"][0][1])
    page = report_page([grid], load_records([tmp_path]), record_paths([tmp_path]), title="t")
    assert "Pictures where IoU and α-IoU (α=3) differ" in page
    assert "α-IoU (α=3) finds objects that IoU does not" in page
    assert "Dotted, and counted as elsewhere" in page
    assert page.count("data:image/png") == 4


def test_examples_are_spread_over_images_with_objects():
    index = load_dataset("shapes-plain-64", "train").index.take(range(200))
    chosen = choose_examples(index, 6)
    assert len(chosen) == 6
    assert chosen == sorted(set(chosen))
    assert all(len(index.boxes[index.rows(row)]) for row in chosen)
    assert choose_examples(index.take(chosen[:2]), 6) == [0, 1]
