"""Recipes: what they refuse, their hash, their way to JSON and back."""

import json
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

import pytest

from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import DataRecipe, Optimisation, Recipe, recipe_from, recipe_hash
from alphaiou.training.recipes import RECIPES
from alphaiou.training.setup import resolve_auto

COMMITTED = Path(__file__).parents[2] / "studies/voc320/records"
FULL = Recipe(
    alpha_schedule=AlphaSchedule(1.0, 3.0, "cosine"),
    loss=LossSpec("ciou", 3.0, 1.0, modifiers=("inner", "wise_v3")),
    data=DataRecipe("somewhere", val="val"),
    augmentation=Augmentation(mosaic=0.0),
    optimisation=Optimisation(accumulate=4),
    select="best",
)


FASTER = {"detector": "fasterrcnn_r50_fpn"}


@pytest.mark.parametrize("recipe", [Recipe(), FULL, *(make() for make in RECIPES.values())])
def test_a_recipe_comes_back_from_json(recipe):
    assert recipe_from(json.loads(json.dumps(asdict(recipe)))) == recipe


def test_a_recipe_of_an_older_version_takes_the_defaults():
    values = asdict(Recipe(epochs=5))
    del values["nms_threshold"]
    values["gone"] = 1
    assert recipe_from(values) == Recipe(epochs=5)


OTHERS = {
    "detector": "yolov5x",
    "loss": LossSpec("iou", 2.0),
    "alpha_schedule": AlphaSchedule(1.0, 3.0),
    "final_box_gain": 0.1,
    "data": DataRecipe("elsewhere"),
    "augmentation": Augmentation(mosaic=0.0),
    "optimisation": Optimisation(lr=0.02),
    "precision": "fp32",
    "select": "best-on-test",
    "objectness": "similarity",
    "rule": "coco",
    "image_size": 320,
    "noise": 0.5,
    "subset": 0.5,
    "nms_threshold": 0.5,
}
#: Of detectors that have them.
RESNETS = {
    "rpn_loss": ("fasterrcnn_r50_fpn", LossSpec("giou")),
    "match_loss": ("detr_r50", LossSpec("giou")),
    "backbone_weights": ("detr_r50", "imagenet"),
    "norm": ("detr_r50", "batch"),
    "backbone_lr_scale": ("detr_r50", 0.5),
    "dropout": ("detr_r50", 0.0),
}


def test_every_field_changes_the_hash():
    base = Recipe(data=DataRecipe(test="test"))
    names = {recipe_hash(base)}
    for one in fields(Recipe):
        if one.name in RESNETS:
            detector, value = RESNETS[one.name]
            changed = replace(base, detector=detector)
            assert recipe_hash(changed) != recipe_hash(replace(changed, **{one.name: value}))
            continue
        value = OTHERS.get(one.name, getattr(base, one.name))
        value = value if one.name in OTHERS else value + 1
        names.add(recipe_hash(replace(base, **{one.name: value})))
    assert len(names) == 1 + len(fields(Recipe)) - len(RESNETS)


def test_every_field_of_the_parts_changes_the_hash():
    others = {
        "optimiser": "adamw",
        "schedule": "steps",
        "decay": "all",
        "nesterov": False,
        "decay_batch": None,
        "momentum": 0.5,
        "warmup_momentum": 0.5,
        "ema_decay": 0.5,
    }
    steps = Optimisation(schedule="steps", warmup_bias_lr=0.0)
    found = [recipe_hash(Recipe()), recipe_hash(Recipe(optimisation=steps))]
    others |= {"drops": (3,), "warmup_bias_lr": 0.001}
    for one in fields(Optimisation):
        if one.name == "schedule":
            continue
        value = others.get(one.name, getattr(steps, one.name))
        if one.name not in others:
            value += 1
        found.append(recipe_hash(Recipe(optimisation=replace(steps, **{one.name: value}))))
    assert len(set(found)) == len(fields(Optimisation)) + 1


def test_a_field_that_is_added_later_leaves_names_alone():
    """A version with more fields: at their defaults the hash is that of today."""

    @dataclass(frozen=True)
    class LaterOptimisation(Optimisation):
        warp: float = 1.0

    @dataclass(frozen=True)
    class LaterRecipe(Recipe):
        optimisation: LaterOptimisation = field(default_factory=LaterOptimisation)
        twist: int = 0

    assert recipe_hash(LaterRecipe()) == recipe_hash(Recipe())
    assert recipe_hash(LaterRecipe(twist=1)) != recipe_hash(Recipe())
    now, later = Optimisation(lr=0.5), LaterOptimisation(lr=0.5)
    assert recipe_hash(LaterRecipe(optimisation=later)) == recipe_hash(Recipe(optimisation=now))
    warped = LaterRecipe(optimisation=LaterOptimisation(lr=0.5, warp=2.0))
    assert recipe_hash(warped) != recipe_hash(Recipe(optimisation=now))


def test_a_part_at_its_own_defaults_is_not_the_default_of_the_recipe():
    spec = LossSpec("iou")
    assert spec != Recipe().loss
    assert recipe_hash(Recipe(loss=spec)) != recipe_hash(Recipe())


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
        ({"norm": "layer"}, "norm must be one of"),
        (
            {"loss": LossSpec("l1")},
            "'l1' is supported by fasterrcnn_r50_fpn only; with yolov5s it must",
        ),
        ({"detector": "detr_r50", "loss": LossSpec("smooth_l1")}, "with detr_r50 it must be one"),
        ({**FASTER, "loss": LossSpec("l1", 3.0)}, "loss.alpha must be 1"),
        (
            {**FASTER, "loss": LossSpec("l1", modifiers=("wise",))},
            "does not support modifiers.*got wise",
        ),
        (
            {"loss": LossSpec("iou", modifiers=("wis",))},
            "loss.modifiers must be one of inner, .*'wis",
        ),
        (
            {"detector": "detr_r50", "match_loss": LossSpec("iou", modifiers=("wise_v3",))},
            r"match_loss.modifiers: Wise\(version=3.*running mean.*take the modifier wise",
        ),
        (
            {"objectness": "similarity", "loss": LossSpec("eiou", modifiers=("inner", "focal"))},
            "objectness='similarity'.*focal in loss.modifiers.*take objectness='iou'",
        ),
        ({**FASTER, "loss": LossSpec("l1"), "alpha_schedule": AlphaSchedule(1, 3)}, "has no α"),
        ({**FASTER, "rpn_loss": LossSpec("l2")}, "rpn_loss.kind must be one of"),
        (
            {**FASTER, "match_loss": LossSpec("giou")},
            "by fasterrcnn_r50_fpn; it is a setting of detr_r50",
        ),
        ({"detector": "detr_r50", "match_loss": LossSpec("l1")}, "match_loss.kind must be one of"),
        (
            {"rpn_loss": LossSpec("giou")},
            "rpn_loss is not supported by yolov5s; it is a setting of fasterrcnn_r50_fpn",
        ),
        (
            {"backbone_weights": "imagenet"},
            "by yolov5s; it is a setting of fasterrcnn_r50_fpn, detr_r50",
        ),
        (
            {**FASTER, "backbone_lr_scale": 1.0},
            "by fasterrcnn_r50_fpn; it is a setting of detr_r50",
        ),
        ({"detector": "detr_r50", "backbone_lr_scale": 0.0}, "backbone_lr_scale must be a finite"),
        ({"dropout": 0.0}, "dropout is not supported by yolov5s; it is a setting of detr_r50"),
        ({"detector": "detr_r50", "dropout": 1.0}, "dropout must be from 0 to below 1, got 1"),
        ({**FASTER, "objectness": "similarity"}, "objectness is not .* setting of yolov5n,"),
        (
            {"detector": "detr_r50", "nms_threshold": 0.5},
            "nms_threshold is not supported by ",
        ),
        ({**FASTER, "norm": "frozen"}, "norm='frozen' needs backbone_weights"),
        ({**FASTER, "norm": "group", "backbone_weights": "imagenet"}, "use auto, frozen or batch"),
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
        (Optimisation, {"optimiser": "adam"}, "optimisation.optimiser must be one of"),
        (Optimisation, {"schedule": "line"}, "optimisation.schedule must be one of"),
        (Optimisation, {"decay": "none"}, "optimisation.decay must be one of"),
        (Optimisation, {"decay_batch": 0}, "optimisation.decay_batch must be at least 1"),
        (Optimisation, {"clip_norm": -1.0}, "optimisation.clip_norm must be at least 0"),
        (Optimisation, {"optimiser": "adamw"}, "warmup_bias_lr must be at most optimisation.lr"),
        (Optimisation, {"drops": (3,)}, "optimisation.drops needs optimisation.schedule='steps'"),
        (
            Optimisation,
            {"drops": (3, 2), "schedule": "steps"},
            "increasing epochs from 1, got \\(3, 2\\)",
        ),
        (Optimisation, {"drops": (0,), "schedule": "steps"}, "epochs from 1"),
        (DataRecipe, {"hold_out": 1.0}, "data.hold_out"),
        (DataRecipe, {"difficult": "maybe"}, "data.difficult"),
    ],
)
def test_parts_refuse_values_out_of_range(part, change, message):
    with pytest.raises(ValueError, match=message):
        part(**change)


def test_modifiers_change_the_hash():
    losses = [LossSpec("iou", modifiers=names) for names in ((), ("wise",), ("wise", "inner"))]
    assert len({recipe_hash(Recipe(loss=loss)) for loss in losses}) == 3


def test_committed_runs_have_the_names_of_their_recipes():
    paths = list(COMMITTED.glob("*.json"))
    assert paths
    for path in paths:
        record = json.loads(path.read_text())
        assert recipe_hash(recipe_from(record["recipe"])) == record["name"] == path.stem


def test_a_loss_is_named_with_its_schedule():
    recipe = Recipe(loss=LossSpec("diou", 3.0, modifiers=("inner",)))
    assert recipe.loss_name == "α-Inner-DIoU (α=3)"
    falling = replace(recipe, alpha_schedule=AlphaSchedule(3.0, 1.0, "cosine"))
    assert falling.loss_name == "α-Inner-DIoU (α 3→1 cosine)"


def test_named_recipes_are_the_papers_but_for_what_they_say():
    paper, voc320 = RECIPES["paper"](), RECIPES["voc320"]()
    assert resolve_auto(replace(paper, data=DataRecipe()), "cuda") == Recipe()
    assert replace(voc320, image_size=640, epochs=300, data=paper.data) == paper
    assert (voc320.image_size, voc320.epochs, voc320.data.test) == (320, 100, "test")


def test_the_recipe_of_detr_is_that_of_its_committed_runs():
    records = map(json.loads, map(Path.read_text, COMMITTED.glob("*.json")))
    recipes = [recipe_from(record["recipe"]) for record in records]
    runs = [recipe for recipe in recipes if recipe.detector == "detr_r50"]
    assert {str(run.loss) for run in runs} == {"giou", "giou:3"}
    for run in runs:
        frozen = {"norm": "frozen", "backbone_lr_scale": 0.1}  # what weights lead to
        told = {name: getattr(run, name) for name in ("loss", "backbone_weights", "evaluate_every")}
        where = {"data": run.data, "precision": run.precision}
        assert replace(RECIPES["voc320-detr"](), **frozen, **told, **where) == run


def test_the_device_decides_the_precision():
    recipe = Recipe(precision="auto")
    assert resolve_auto(recipe, "cpu").precision == "fp32"
    assert resolve_auto(recipe, "cuda").precision == "bf16"
    assert resolve_auto(replace(recipe, precision="fp16"), "cpu").precision == "fp16"
