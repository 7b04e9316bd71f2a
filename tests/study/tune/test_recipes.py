"""``alphaiou tune`` on tiny trainings of drawn images."""

import shlex
from dataclasses import replace

import pytest
import tyro

from alphaiou._config import ConfigError
from alphaiou.cli.train import _recipe
from alphaiou.cli.train_options import options_of
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.study.tune import Settings, loss_space, tune_recipe
from alphaiou.study.tune.recipes import split_recipes, tuned
from alphaiou.study.tune.search import Plan
from alphaiou.training.recipe import DataRecipe, Recipe, recipe_hash
from alphaiou.training.recipes import quick
from alphaiou.training.record import read_record
from benchmarks.tiny import CPU, IOU, tiny_recipe, write_shapes

BASE = Recipe(loss=LossSpec("ciou", 3.0, 1.0))


@pytest.mark.parametrize(
    ("val", "test", "search", "final"),
    [
        ("val", "test", ("val", None, 0.0), (None, "test", 0.0)),
        ("val", None, (None, None, 0.2), (None, "val", 0.2)),
        (None, "test", (None, None, 0.2), (None, "test", 0.2)),
        (None, None, (None, None, 0.2), (None, None, 0.2)),
    ],
)
def test_trials_never_see_the_final_split(val, test, search, final):
    made = split_recipes(replace(BASE, data=DataRecipe(val=val, test=test)))
    assert [(r.data.val, r.data.test, r.data.hold_out) for r in made] == [search, final]


def test_settings_change_what_they_name_and_nothing_else():
    assert tuned(BASE, Settings()) == BASE
    assert tuned(BASE, Settings({"lr": 1.0, "box_gain": 1.0})) == BASE
    changed = tuned(BASE, Settings({"alpha": 2.0, "lr": 0.5, "box_gain": 2.0}, seed=3, match=1.5))
    expected = replace(
        BASE,
        loss=LossSpec("ciou", 2.0),
        box_gain=0.15,
        optimisation=replace(BASE.optimisation, lr=0.005),
        seed=3,
    )
    assert changed == expected
    scheduled = tuned(BASE, Settings({"kind": "iou", "alpha": 2.0, "schedule": "linear"}))
    assert scheduled.alpha_schedule == AlphaSchedule(1.0, 2.0)
    first = tuned(BASE, Settings({"kind": "iou", "alpha": 2.0, "schedule": "linear"}), first=True)
    assert first.loss == LossSpec("iou")
    constant = replace(BASE, alpha_schedule=AlphaSchedule(1.0, 3.0))
    assert tuned(constant, Settings({"schedule": "constant"})).alpha_schedule is None
    assert tuned(constant, Settings({"lr": 1.0})) == constant


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (
            replace(quick(), data=DataRecipe(test="test"), select="best-on-test"),
            "looks at the test set",
        ),
        (replace(quick(), final_box_gain=0.1), "final_box_gain cannot be tuned"),
    ],
)
def test_recipes_that_cannot_be_tuned_are_rejected(recipe, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        tune_recipe(recipe, loss_space(), Plan(tmp_path, execution=CPU))


def test_plans_are_checked():
    for name, least in (("trials", 1), ("best", 1), ("seeds", 0)):
        with pytest.raises(ConfigError, match=f"{name} must be at least {least}, got -1"):
            Plan(CPU, **{name: -1})


@pytest.fixture(scope="module")
def tuned_study(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    data = write_shapes(folder / "data", train=4, val=2, test=2)
    recipe = tiny_recipe(data, loss=IOU, epochs=2, data={"val": "val", "test": "test"})
    plan = Plan(folder / "study", 3, seeds=1, best=1, workers=0, execution=CPU)
    return folder / "study", tune_recipe(recipe, loss_space(["iou"]), plan)


@pytest.mark.slow
def test_a_study_of_trainings(tuned_study):
    folder, result = tuned_study
    assert [trial.state for trial in result.trials] == ["complete"] * 3
    assert result.trials[0].label.startswith("IoU, box gain 0.05, class gain 0.5, obj")
    assert {"ap50", "map75_95"} <= result.trials[0].scores.keys()
    for trial in result.trials:
        record = read_record(folder / trial.run / "record.json")
        assert (record["scored_on"], record["recipe"]["data"]["test"]) == ("val", None)
    finals = [read_record(path) for path in folder.glob("*/record.json")]
    assert sum(record["scored_on"] == "test" for record in finals) == len(result.table.rows)
    assert (folder / "tuning.md").read_text() == result.markdown()


@pytest.mark.slow
def test_the_command_repeats_the_winner(tuned_study):
    """Its recipe is that of a run in the folder, which it therefore finds finished."""
    folder, result = tuned_study
    program, command, *arguments = shlex.split(result.command)
    assert (program, command) == ("alphaiou", "train")
    options = tyro.cli(options_of(arguments), args=arguments)
    record = read_record(folder / recipe_hash(_recipe(options)) / "record.json")
    assert record["scored_on"] == "test"
