"""The data sets of a run: splits that are found, held out, cut, perturbed, refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.data.formats.coco import write_coco
from alphaiou.data.formats.voc import write_voc
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.training.loop import Execution, fit
from alphaiou.training.recipe import DataRecipe, Recipe
from alphaiou.training.setup import hold_out, resolve_splits, run_sets, training_index
from tests.training.runs import tiny_recipe, write_shapes

VOC_SAMPLE = Path(__file__).parents[2] / "../shared/data/voc-sample"
AUTO = DataRecipe(train="auto", val="auto", test="auto")
WRITERS = {"coco": write_coco, "voc": write_voc, "yolo": write_yolo}


def names(data):
    return data.train, data.val, data.test


def written(folder, layout, *splits):
    for split in splits:
        index = replace(shapes_index("val", size=64, length=3), split=split)
        WRITERS[layout](index, folder, images="copy")
    return replace(AUTO, path=str(folder))


@pytest.mark.parametrize("layout", WRITERS)
def test_the_usual_splits_of_every_layout_are_found(tmp_path, layout):
    data = written(tmp_path / "set", layout, "train", "val", "test")
    assert names(resolve_splits(data)) == ("train", "val", "test")
    recipe = tiny_recipe(data.path)
    sets = run_sets(replace(recipe, data=resolve_splits(data)))
    assert [len(one) for one in (sets.train, sets.val, sets.test)] == [3, 3, 3]


def test_trainval_is_taken_whole_unless_the_best_weights_are_chosen_on_val(tmp_path):
    data = written(tmp_path / "set", "voc", "train", "val", "trainval", "test")
    assert names(resolve_splits(data)) == ("trainval", None, "test")
    assert names(resolve_splits(data, "best")) == ("train", "val", "test")


def test_years_and_other_spellings(tmp_path):
    data = written(tmp_path / "set", "coco", "train2017", "val2017")
    assert names(resolve_splits(data)) == ("train2017", "val2017", None)
    data = written(tmp_path / "other", "coco", "train", "valid")
    assert names(resolve_splits(data)) == ("train", "val", None)


def test_what_is_named_stays_and_a_share_held_out_is_no_val(tmp_path):
    data = written(tmp_path / "set", "coco", "train", "val", "test")
    assert names(resolve_splits(replace(data, train="test"))) == ("test", "val", None)
    assert names(resolve_splits(replace(data, hold_out=0.5))) == ("train", None, "test")
    given = replace(data, train="a", val="b", test=None)
    assert resolve_splits(given) == given


def test_the_only_split_is_trained_on_and_several_strange_ones_are_listed(tmp_path):
    data = written(tmp_path / "set", "coco", "everything")
    assert names(resolve_splits(data)) == ("everything", None, None)
    data = written(tmp_path / "set", "coco", "more")
    with pytest.raises(DataError, match=r"set data.train to one of: everything, more"):
        resolve_splits(data)


def test_held_out_images_are_no_training_images():
    index = shapes_index("train", size=64, length=40)
    kept, held = hold_out(index, 0.25, seed=0)
    assert (len(kept), len(held)) == (30, 10)
    assert not {*kept.files} & {*held.files}
    assert {*hold_out(index, 0.25, seed=1)[1].files} != {*held.files}


@pytest.mark.slow
def test_training_boxes_are_cut_and_perturbed_and_scored_ones_are_not():
    recipe = Recipe(data=DataRecipe("shapes-plain-64", val="val"), noise=0.3, subset=0.01, seed=3)
    sets = run_sets(recipe)
    clean = run_sets(replace(recipe, noise=0.0))
    assert len(sets.train) == 20
    assert list(sets.train.index.files) == list(clean.train.index.files)
    assert not np.array_equal(sets.train.index.boxes, clean.train.index.boxes)
    assert np.array_equal(sets.val.index.boxes, clean.val.index.boxes)
    assert len(sets.val) == 500
    assert any("subset of 20 images (0.01, seed 3)" in note for note in sets.notes)
    assert any("noise of rate 0.3 (seed 3)" in note for note in sets.notes)


def test_crowds_and_difficult_boxes_are_not_trained_on():
    index = shapes_index("train", size=64, length=10)
    crowd, difficult = np.zeros((2, index.num_boxes), dtype=bool)
    crowd[:2], difficult[1:5] = True, True
    index = replace(index, crowd=crowd, difficult=difficult)
    dropped, notes = training_index(index, Recipe())
    assert dropped.num_boxes == index.num_boxes - 5
    assert len(dropped) == 10
    assert notes == ["5 boxes not trained on (2 crowds, 3 difficult)"]
    kept, _ = training_index(index, Recipe(data=DataRecipe(difficult="keep")))
    assert kept.num_boxes == index.num_boxes - 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train": "absent"}, "absent.*train, val"),
        ({"val": "absent"}, "absent.*train, val"),
        ({"path": "/no/such/place"}, "no such file or folder"),
    ],
)
def test_sets_that_are_not_there_are_named(tmp_path, change, message):
    recipe = tiny_recipe(write_shapes(tmp_path / "set"))
    with pytest.raises(DataError, match=message):
        run_sets(replace(recipe, data=replace(recipe.data, **change)))


def test_an_empty_set_and_one_without_boxes(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "set"))
    path = tmp_path / "set/annotations/train.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"annotations": []}))
    with pytest.raises(DataError, match="no boxes to train on in split 'train'"):
        run_sets(recipe)
    path.write_text(json.dumps(content | {"annotations": [], "images": []}))
    with pytest.raises(DataError, match="train"):
        run_sets(recipe)


def test_splits_of_other_classes_are_refused(tmp_path):
    write_coco(shapes_index("train", size=64, length=2), tmp_path / "set", images="copy")
    plain = shapes_index("val", size=64, length=2, level="plain")
    write_coco(plain, tmp_path / "set", images="copy")
    recipe = tiny_recipe(str(tmp_path / "set"), data={"val": "val"})
    with pytest.raises(DataError, match="classes of 'val' differ from those of 'train'"):
        run_sets(recipe)


def lacking(folder, lost, kind="missing"):
    """A set of twenty training images and three for val, without some of the former."""
    for split, length in (("train", 20), ("val", 3)):
        write_coco(shapes_index(split, size=64, length=length), folder, images="copy")
    content = json.loads((folder / "annotations/train.json").read_text())
    for image in content["images"][:lost]:
        path = next(folder.rglob(image["file_name"]))
        if kind == "missing":
            path.unlink()
        else:  # the header stays: only decoding shows it
            path.write_bytes(path.read_bytes()[:-40])
    return tiny_recipe(str(folder), data={"val": "val"})


def test_a_set_that_lacks_many_images_is_refused_and_names_one(tmp_path):
    recipe = lacking(tmp_path / "set", 2)
    with pytest.raises(DataError, match=r"2 of the 20 images of split 'train' cannot be used, "):
        run_sets(recipe, 0.05)
    assert len(run_sets(recipe, 0.1).train) == 18
    assert len(run_sets(recipe).train) == 18  # a finished run is looked at on what there is
    assert len(run_sets(lacking(tmp_path / "one", 1), 0.05).train) == 19


def test_images_that_are_missing_where_a_run_is_scored_count_too(tmp_path):
    recipe = lacking(tmp_path / "set", 2)
    turned = replace(recipe.data, train="val", val="train")
    with pytest.raises(DataError, match="2 of the 20 images of split 'train' cannot be used"):
        run_sets(replace(recipe, data=turned), 0.05)


def test_an_image_listed_twice_is_not_missing(tmp_path):
    data = written(tmp_path / "set", "voc", "train")
    (listed,) = (tmp_path / "set").rglob("ImageSets/Main/train.txt")
    listed.write_text(2 * listed.read_text())
    recipe = tiny_recipe(data.path)
    sets = run_sets(replace(recipe, data=resolve_splits(data)), 0.0)
    assert "3 images left out (3 image-duplicate)" in "".join(sets.notes)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["missing", "cut off"])
def test_a_training_refuses_unless_told(tmp_path, kind):
    recipe = lacking(tmp_path / "set", 2, kind)
    with pytest.raises(DataError, match=r"2 of the 20 images of split 'train'.*--missing 1"):
        fit(recipe, tmp_path / "runs", execution=Execution(device="cpu"))
    record = fit(recipe, tmp_path / "runs", execution=Execution(device="cpu", missing=0.1))
    assert any("2 images left out" in note for note in record["notes"])


def test_a_share_that_is_none_is_refused():
    with pytest.raises(ValueError, match="missing must be from 0 to 1, got 5"):
        Execution(missing=5)


def test_a_real_devkit():
    if not VOC_SAMPLE.is_dir():
        pytest.skip(f"{VOC_SAMPLE} is not there")
    data = resolve_splits(replace(AUTO, path=str(VOC_SAMPLE)))
    assert data.train in ("train", "trainval")
    assert len(run_sets(Recipe(data=data)).train) > 0
