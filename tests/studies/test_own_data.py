"""The study of small data sets: its archive, its runs, and the detections of Ultralytics."""

import argparse
import json
import tarfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from alphaiou.data.convert import convert_splits
from alphaiou.data.dataset import load_dataset
from alphaiou.inference.detection_files import load_detections
from studies.own_data import study


@pytest.fixture
def root(tmp_path):
    """The archive of two drawn data sets, unpacked."""
    for name, splits in {"voc": ("train", "test"), "coco": ("train", "val")}.items():
        indices = [load_dataset("shapes-plain-64", split).index for split in splits]
        convert_splits([i.take(range(8)) for i in indices], "yolo", tmp_path / name, images="copy")
    archive = tmp_path / "sets.tar"
    places = {"voc320": str(tmp_path / "voc"), "coco256": str(tmp_path / "coco")}
    study.pack(argparse.Namespace(**places, archive=archive))
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    return tmp_path / "small-sets"


def options(root, **given):
    values = {"data_root": root, "device": "cpu", "epochs": 1, "seeds": [0], "only": "", "jobs": 1}
    values |= {"out": root.parent / "records", "work": root.parent / "work"}
    return argparse.Namespace(**(values | given))


def test_the_archive_has_both_sets_with_a_training_and_a_test_split(root):
    for name, source, splits in (
        ("voc320-300", "voc", ("train", "test")),
        ("coco256", "coco", ("train", "val")),
    ):
        for split, original in zip(study.SPLITS, splits, strict=True):
            before = load_dataset(root.parent / source, original).index
            packed = load_dataset(root / name, split).index
            np.testing.assert_allclose(packed.boxes, before.boxes, atol=1e-3)
            np.testing.assert_array_equal(packed.labels, before.labels)


def test_both_frameworks_share_epochs_batch_and_image_size(root):
    jobs = study.all_jobs(options(root, seeds=[0, 1], epochs=None))
    assert len(jobs) == 8
    for data in study.SETS:
        common = {(job.epochs, job.batch_size, job.image_size) for job in jobs if job.data == data}
        assert common == {(200, 8, 64)}
    assert [job.name for job in study.all_jobs(options(root, only="coco256-ultra"))] == [
        "coco256-ultralytics-0"
    ]


@pytest.mark.slow
def test_a_run_is_scored_and_not_repeated_and_another_run_is_not_taken_for_it(root):
    given = options(root, only="coco256-alphaiou")
    assert study.run(given) == 0
    path = given.out / "coco256-alphaiou-0.json"
    record = json.loads(path.read_text())
    assert record["images"] == {"train": 8, "test": 8}
    assert set(record["scores"]["test"]) >= {"ap50", "map"}
    assert record["seconds_per_image"] > 0
    assert len(record["epoch_seconds"]) == 1
    (job,) = study.all_jobs(given)
    assert study.is_finished(job, given)
    with pytest.raises(SystemExit, match="of other settings"):
        study.is_finished(study.Job(**(asdict(job) | {"epochs": 2})), given)


def test_detections_of_ultralytics_score_1_where_they_are_the_ground_truth(root, tmp_path):
    results = pytest.importorskip("ultralytics.engine.results")
    index = load_dataset(root / "coco256", "test").index
    names = dict(enumerate(index.classes))
    found = []
    for image, file in enumerate(index.files):
        rows = index.rows(image)
        boxes, labels = index.boxes[rows], index.labels[rows]
        columns = torch.tensor(np.column_stack([boxes, np.ones(len(boxes)), labels]))
        width, height = index.sizes[image].tolist()
        pixels = np.zeros((height, width, 3), dtype=np.uint8)
        result = results.Results(pixels, path=file, names=names, boxes=columns)
        found += study.entries(Path(file), result)
    path = tmp_path / "found.json"
    path.write_text(json.dumps(found))
    assert len(load_detections(path, index).boxes) == len(index.boxes)
    assert study.scored(path, index)["map"] == pytest.approx(1.0, abs=1e-3)
    path.write_text(json.dumps([{**entry, "category_id": names[0]} for entry in found]))
    assert study.scored(path, index)["map"] < 0.9
