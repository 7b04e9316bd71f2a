"""The recipe that is chosen from the data: what follows from what, and what is announced."""

from dataclasses import replace

import pytest

from alphaiou.detectors.registry import detector_config
from alphaiou.losses.spec import LossSpec
from alphaiou.training.auto import (
    FEWEST_STEPS,
    LARGEST_OBJECTNESS_GAIN,
    auto_recipe,
    too_short,
)
from alphaiou.training.recipe import DataRecipe, recipe_hash
from alphaiou.training.recipes import ANY_DATA
from tests.training.runs import train, write_shapes

DRAWN = replace(ANY_DATA, path="shapes-plain-96")


def test_settings_follow_from_images_and_steps():
    chosen = auto_recipe(DRAWN, "cpu", subset=0.15)
    recipe, how = chosen.recipe, chosen.recipe.optimisation
    assert (recipe.image_size, recipe.batch_size, recipe.detector.name) == (96, 16, "yolov5n")
    assert chosen.steps == recipe.epochs * 19  # 300 images
    assert how.warmup_steps == pytest.approx(chosen.steps / 10, abs=1)
    assert how.warmup_epochs == 0
    assert how.ema_growth == pytest.approx(chosen.steps / 5, abs=1)
    assert (recipe.data.train, recipe.data.val, recipe.data.hold_out) == ("train", "val", 0.0)
    assert recipe.precision == "fp32"
    # What the losses of objectness and classes count for: as with 640 pixels, as with 20 classes.
    assert recipe.detector.objectness_gain == LARGEST_OBJECTNESS_GAIN < (640 / 96) ** 2
    larger = auto_recipe(DataRecipe("shapes-plain-96"), "cpu", image_size=320).recipe
    assert larger.detector.objectness_gain == pytest.approx(4.0)
    assert recipe.detector.class_gain * 4 / 80 == pytest.approx(0.125)


def test_more_images_have_fewer_epochs_and_no_longer_warm_up():
    sets = [auto_recipe(DRAWN, "cpu", subset=share) for share in (0.05, 0.4, 1.0)]
    epochs = [one.recipe.epochs for one in sets]
    assert epochs == sorted(epochs, reverse=True)
    assert len(set(epochs)) > 1
    long = auto_recipe(DRAWN, "cpu", epochs=1000).recipe
    assert (long.optimisation.warmup_steps, long.optimisation.ema_growth) == (1000, 2000)
    assert [str(one.recipe.loss) for one in sets] == ["ciou"] * 3
    assert str(long.loss) == "ciou:3"


def test_what_is_given_stays_and_the_rest_follows():
    given = {"epochs": 7, "batch_size": 4, "image_size": 64, "detector": "yolov5s"}
    given["loss"] = LossSpec("giou", 2.0)
    chosen = auto_recipe(DRAWN, "cpu", **given)
    recipe = chosen.recipe
    assert (recipe.epochs, recipe.batch_size, recipe.image_size) == (7, 4, 64)
    assert (recipe.detector.name, recipe.loss) == ("yolov5s", LossSpec("giou", 2.0))
    assert chosen.steps == 7 * 500
    assert len(chosen.reasons) == 1, "the steps alone were chosen"


@pytest.mark.parametrize("name", ["fasterrcnn_r50_fpn", "detr_r50"])
def test_other_detectors_keep_their_gains(name):
    chosen = auto_recipe(DRAWN, "cpu", detector=name)
    assert chosen.recipe.box_gain == detector_config(name).box_gain
    assert chosen.recipe.detector.backbone_weights == "none"
    assert chosen.recipe.optimisation.drops == ()


def test_a_share_is_held_out_where_there_is_nothing_to_score_on(tmp_path):
    path = write_shapes(tmp_path / "alone", train=20, val=0)
    chosen = auto_recipe(replace(ANY_DATA, path=path), "cpu", epochs=1, image_size=64)
    assert chosen.recipe.data.hold_out == 0.2
    assert chosen.recipe.select == "best"
    assert "20% of 'train' held out" in chosen.reasons[0]
    record, said = train(chosen.recipe, tmp_path / "runs")
    assert record["scored_on"] == "0.2 of train, held out"
    assert any("4 training images held out" in line for line in said)
    own = replace(ANY_DATA, path=path, hold_out=0.5)
    assert auto_recipe(own, "cpu").recipe.data.hold_out == 0.5


def test_a_training_that_is_too_short_is_announced():
    short = auto_recipe(DRAWN, "cpu", epochs=3, subset=0.05)
    assert short.steps == 3 * 7
    message = too_short(short.steps, short.recipe)
    assert "this training has 21 steps" in message
    assert f"--epochs 72 has {FEWEST_STEPS}" in message
    long = auto_recipe(DRAWN, "cpu", epochs=72, subset=0.05)
    assert too_short(long.steps, long.recipe) is None


def test_the_same_data_have_the_same_recipe():
    first, second = (auto_recipe(DRAWN, "cpu").recipe for _ in range(2))
    assert recipe_hash(first) == recipe_hash(second)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"batch_size": -1}, "batch_size must be at least 1"),
        ({"subset": 0.0}, "subset must be above 0"),
        ({"image_size": 100}, "multiple of 32"),
        ({"detector": "yolov9"}, "detector must be one of"),
    ],
)
def test_wrong_numbers(given, message):
    with pytest.raises(ValueError, match=message):
        auto_recipe(DataRecipe("shapes-plain-96"), "cpu", **given)
