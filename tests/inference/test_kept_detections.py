"""Files of kept detections: what they hold, their size, and what they reject."""

from dataclasses import replace

import numpy as np
import pytest

from alphaiou.data.problems import DataError
from alphaiou.inference.detection_files import targets_of
from alphaiou.inference.kept_detections import STEP, open_detections, read_kept, write_kept
from alphaiou.metrics import score
from tests.data.made_index import random_index


def found_in(index, count=200):
    """Random detections in the images of an index."""
    random = np.random.default_rng(0)
    corners, sizes = random.random((2, count, 2))
    return replace(
        targets_of(index),
        images=random.integers(0, len(index), count),
        boxes=np.concatenate([40 * corners, 50 * sizes], axis=1),
        labels=random.integers(0, len(index.classes), count),
        scores=random.random(count).astype(np.float32).astype(np.float64),
    )


@pytest.fixture
def index():
    return random_index(8, seed=1)


def test_what_is_read_is_what_was_written(index, tmp_path):
    data, path = found_in(index), tmp_path / "d.npz"
    write_kept(path, {"val": data}, classes=index.classes, rule="coco")
    kept = read_kept(path)
    assert (kept.classes, kept.rule, kept.split) == (tuple(index.classes), "coco", "val")
    order = np.lexsort((-data.scores, data.labels, data.images))
    np.testing.assert_allclose(kept.data.boxes, data.boxes[order], atol=STEP / 2)
    for name in ("images", "labels", "scores"):
        assert np.array_equal(getattr(kept.data, name), getattr(data, name)[order])
    for name in ("image_ids", "target_images", "target_boxes", "target_labels", "target_areas"):
        assert np.array_equal(getattr(kept.data, name), getattr(data, name))
    assert np.array_equal(kept.data.crowd, data.crowd)
    assert path.stat().st_size < 4000 + 20 * len(data.scores)  # names and objects, detections


def test_a_data_set_gives_the_objects_of_a_file_without(index, tmp_path):
    data, path = found_in(index), tmp_path / "d.npz"
    splits = {"other": data, index.split: data}
    write_kept(path, splits, classes=index.classes, rule="coco", with_objects=False)
    rounded = replace(data, boxes=np.round(data.boxes / STEP) * STEP)
    shuffled = index.take(np.random.default_rng(0).permutation(len(index)))
    for images in (index, shuffled):
        found = score(open_detections(path, images), index.classes).as_dict()
        assert found == pytest.approx(score(rounded, index.classes).as_dict(), nan_ok=True)
    with pytest.raises(DataError, match="kept without the objects; give the data set with --data"):
        read_kept(path)
    with pytest.raises(DataError, match="no detections on the split 'third'; it has other, "):
        read_kept(path, "third")


def test_images_that_were_not_read_are_not_scored(index, tmp_path):
    part = index.take(np.arange(len(index) - 1))
    path = tmp_path / "d.npz"
    write_kept(path, {index.split: found_in(part)}, classes=index.classes, rule="coco")
    assert np.array_equal(open_detections(path, index).image_ids, part.image_ids)


def test_other_images_and_classes_are_rejected(index, tmp_path):
    path = tmp_path / "d.npz"
    write_kept(path, {index.split: found_in(index)}, classes=index.classes, rule="coco")
    with pytest.raises(DataError, match="on other images than those of the split"):
        read_kept(path, index=index.take(np.arange(1)))
    with pytest.raises(DataError, match="its classes are not those of"):
        read_kept(path, index=replace(index, classes=tuple(reversed(index.classes))))


@pytest.mark.parametrize("content", [b"", b"[]", b"PK\x03\x04 and nothing more"])
def test_a_damaged_file_is_rejected(index, tmp_path, content):
    path = tmp_path / "d.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"d\.npz: this is no file of kept detections"):
        read_kept(path, index=index)


def test_a_run_without_the_file_says_what_to_do(index, tmp_path):
    with pytest.raises(DataError, match="were not kept; train with --keep-detections, or score"):
        open_detections(tmp_path, index)
