"""Recipes: what they refuse, their hash, their way to JSON and back."""

import json
from dataclasses import asdict, replace

import pytest

from alphaiou.data.augment import Augmentation
from alphaiou.experiments.recipes import RECIPES
from alphaiou.losses.schedule import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import DataRecipe, Optimisation, Recipe, recipe_from, recipe_hash
from alphaiou.training.settle import settle

FULL = Recipe(
    alpha_schedule=AlphaSchedule(1.0, 3.0, "cosine"),
    loss=LossSpec("ciou", 3.0, 1.0),
    data=DataRecipe("somewhere", val="val"),
    augmentation=Augmentation(mosaic=0.0),
    optimisation=Optimisation(accumulate=4),
    select="best",
)


@pytest.mark.parametrize("recipe", [Recipe(), FULL, *(make() for make in RECIPES.values())])
def test_a_recipe_comes_back_from_json(recipe):
    assert recipe_from(json.loads(json.dumps(asdict(recipe)))) == recipe


def test_a_recipe_of_an_older_version_takes_the_defaults():
    values = asdict(Recipe(epochs=5))
    del values["nms_threshold"]
    values["gone"] = 1
    assert recipe_from(values) == Recipe(epochs=5)


def test_every_field_changes_the_hash():
    changes = [
        {"detector": "yolov5x"},
        {"loss": LossSpec("iou", 2.0)},
        {"data": DataRecipe("elsewhere")},
        {"optimisation": Optimisation(lr=0.02)},
        {"seed": 1},
        {"precision": "fp32"},
        {"alpha_schedule": AlphaSchedule(1.0, 3.0)},
    ]
    names = {recipe_hash(replace(Recipe(), **change)) for change in changes}
    assert len(names | {recipe_hash(Recipe())}) == len(changes) + 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"detector": "yolov9"}, "detector must be one of.*yolov5s"),
        ({"loss": LossSpec("cioux")}, "loss.kind must be one of"),
        ({"loss": LossSpec("ciou", -1.0)}, "loss.alpha"),
        ({"loss": LossSpec("ciou", float("nan"))}, "loss.alpha"),
        ({"image_size": 100}, "multiple of 32"),
        ({"image_size": 0}, "image_size must be at least 1"),
        ({"batch_size": 0}, "batch_size"),
        ({"epochs": -1}, "epochs must be at least 1, got -1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"box_gain": -1.0}, "box_gain"),
        ({"noise": 1.0}, "noise must be from 0 to below 1"),
        ({"subset": 0.0}, "subset must be above 0"),
        ({"subset": 1.5}, "subset must be above 0"),
        ({"nms_threshold": 0.0}, "nms_threshold"),
        ({"precision": "fp8"}, "precision"),
        ({"rule": "mine"}, "rule"),
        ({"evaluate_every": -1}, "evaluate_every"),
        ({"select": "best"}, "needs data.val or data.hold_out"),
        ({"select": "best-on-test"}, "needs data.test"),
        ({"batch_size": 6, "optimisation": Optimisation(accumulate=4)}, "multiple of"),
    ],
)
def test_values_out_of_range_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**change)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        (Optimisation, {"lr": -0.1}, "optimisation.lr must be at least 0"),
        (Optimisation, {"lr": float("nan")}, "optimisation.lr"),
        (Optimisation, {"momentum": 1.0}, "optimisation.momentum must be below 1"),
        (Optimisation, {"accumulate": 0}, "optimisation.accumulate must be at least 1"),
        (DataRecipe, {"hold_out": 1.0}, "data.hold_out"),
        (DataRecipe, {"difficult": "maybe"}, "data.difficult"),
    ],
)
def test_parts_refuse_values_out_of_range(part, change, message):
    with pytest.raises(ValueError, match=message):
        part(**change)


def test_named_recipes_are_the_papers_but_for_what_they_say():
    paper, voc320 = RECIPES["paper"](), RECIPES["voc320"]()
    assert settle(replace(paper, data=DataRecipe()), "cuda") == Recipe()
    assert replace(voc320, image_size=640, epochs=300, data=paper.data) == paper
    assert (voc320.image_size, voc320.epochs, voc320.data.test) == (320, 100, "test")


def test_the_device_decides_the_precision():
    recipe = Recipe(precision="auto")
    assert settle(recipe, "cpu").precision == "fp32"
    assert settle(recipe, "cuda").precision == "bf16"
    assert settle(replace(recipe, precision="fp16"), "cpu").precision == "fp16"
