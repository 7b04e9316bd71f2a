"""Recipes: what they refuse, their hash, their way to JSON and back."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest

from alphaiou._config import ConfigError, to_plain
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.registry import detector_config
from alphaiou.detectors.yolov5.config import YOLOv5nConfig
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training import recipe as module
from alphaiou.training.recipe import (
    DataRecipe,
    Optimisation,
    Recipe,
    read_recipe,
    recipe_from,
    recipe_hash,
    write_recipe,
)
from alphaiou.training.recipes import RECIPES, with_settings
from alphaiou.training.record import RecordError, check_same_recipe, read_record
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
def test_a_recipe_comes_back_from_json_and_from_yaml(recipe, tmp_path):
    assert recipe_from(json.loads(json.dumps(to_plain(recipe)))) == recipe
    write_recipe(recipe, tmp_path / "recipe.yaml")
    assert read_recipe(tmp_path / "recipe.yaml") == recipe


def test_fields_that_are_not_given_have_their_defaults():
    assert recipe_from({"epochs": 5}) == Recipe(epochs=5)
    assert recipe_from({"detector": "detr_r50"}) == Recipe(detector=DETRConfig())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epohcs: 5", "epohcs is not a field; did you mean epochs?"),
        ("optimisation: {lr: 0.1, momentun: 0}", "optimisation.momentun .* mean momentum?"),
        ("augmentation: {mosiac: 0}", "augmentation.mosiac is not a field; did you mean mosaic?"),
        ("loss: {kind: iou, alhpa: 3}", "loss.alhpa is not a field; did you mean alpha?"),
        ("alpha_schedule: {start: 1, ende: 3}", "alpha_schedule.ende .* did you mean end?"),
        ("detector: {name: yolov5s, clas_gain: 1}", "detector.clas_gain .* mean class_gain?"),
        ("detector: {name: detr_r5}", "detector.name 'detr_r5' is unknown; did you mean detr_r50?"),
        ("detector: {box_gain: 1}", "detector.name None is unknown; choose from yolov5n"),
        ("detector: yolov5y", "detector must be one of yolov5n"),
        ("detector: yolov5s\ndropout: 0", "dropout is not supported by yolov5s; .* of detr_r50"),
        ("loss: cioux:3", "kind must be one of"),
        ("epochs: many", "epochs: expected int, got str"),
        ("epochs: 2.5", "epochs: expected int, got float"),
        ("data: {difficult: maybe}", "data.difficult must be one of drop, keep; got 'maybe'"),
        ("data: shapes", "data: expected object, got str"),
        ("image_size: 100", "image_size must be a multiple of 32, got 100"),
        ("noise: .nan", "noise must be from 0 to below 1"),
        ("- 1", "must contain fields"),
        ("", "must contain fields"),
        ("a: [", "not valid YAML"),
        ("[" * 3000, "not valid YAML"),
    ],
)
def test_a_file_with_a_mistake_is_named_with_the_field(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"mine.yaml: .*{message}"):
        read_recipe(path)


def test_a_file_may_be_as_short_as_a_command(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("detector: yolov5n\nclass_gain: 2\nloss: ciou:3\noptimisation: {lr: 1e-3}\n")
    expected = Recipe(
        detector=YOLOv5nConfig(class_gain=2.0),
        loss=LossSpec("ciou", 3.0),
        optimisation=Optimisation(lr=0.001),
    )
    assert read_recipe(path) == expected
    assert recipe_hash(read_recipe(path)) == recipe_hash(expected)


def test_recipes_of_the_first_edition_still_build():
    recipe = Recipe(detector="yolov5n", box_gain=0.1, objectness_gain=20.0, class_gain=4.0)
    assert recipe.detector == YOLOv5nConfig(box_gain=0.1, objectness_gain=20.0, class_gain=4.0)
    assert recipe.box_gain == 0.1
    matched = replace(recipe, detector="detr_r50", match_loss=LossSpec("diou"), dropout=0.0)
    assert matched.detector == DETRConfig(match_loss=LossSpec("diou"), dropout=0.0)
    assert replace(matched, box_gain=3.0).detector.match_loss == LossSpec("diou")
    assert [item.name for item in fields(recipe)][:2] == ["detector", "loss"]


OTHERS = {
    "detector": "yolov5x",
    "loss": LossSpec("iou", 2.0),
    "alpha_schedule": AlphaSchedule(1.0, 3.0),
    "final_box_gain": 0.1,
    "data": DataRecipe("elsewhere", val="val"),
    "augmentation": Augmentation(mosaic=0.0),
    "optimisation": Optimisation(lr=0.02),
    "precision": "fp32",
    "select": "best-on-test",
    "rule": "coco",
    "weights": "other.safetensors",
    "freeze": ("backbone",),
    "image_size": 320,
    "noise": 0.5,
    "subset": 0.5,
}
DETECTOR_OTHERS = {
    "objectness": "similarity",
    "objectness_alpha": 2.0,
    "nms_threshold": 0.25,
    "rpn_loss": LossSpec("giou"),
    "match_loss": LossSpec("giou"),
    "backbone_weights": "imagenet",
    "norm": "batch",
    "backbone_lr_scale": 0.5,
    "dropout": 0.0,
}


def test_every_field_changes_the_hash():
    data = DataRecipe(val="val", test="test")
    base = Recipe(data=data, select="best", evaluate_every=1, weights="some.safetensors")
    names = {recipe_hash(base)}
    for item in fields(Recipe):
        value = OTHERS.get(item.name, getattr(base, item.name))
        value = value if item.name in OTHERS else value + 1
        names.add(recipe_hash(replace(base, **{item.name: value})))
    assert len(names) == 1 + len(fields(Recipe))


@pytest.mark.parametrize("name", ["yolov5n", "fasterrcnn_r50_fpn", "detr_r50"])
def test_every_setting_of_a_detector_changes_the_hash(name):
    base = detector_config(name)
    names = {recipe_hash(Recipe(detector=base))}
    for item in fields(base):
        value = getattr(base, item.name)
        value = DETECTOR_OTHERS[item.name] if item.name in DETECTOR_OTHERS else value + 1
        names.add(recipe_hash(Recipe(detector=replace(base, **{item.name: value}))))
    assert len(names) == 1 + len(fields(base))


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


def test_what_is_frozen_has_weights():
    for start in ({"weights": "a.pth"}, {"backbone_weights": "imagenet"}):
        assert Recipe(**FASTER, **start, norm="frozen", freeze=("backbone",)).freeze


def test_equal_recipes_have_equal_names():
    assert Recipe(noise=0, optimisation=Optimisation(lr=1)) == Recipe(
        noise=0.0, optimisation=Optimisation(lr=1.0)
    )
    assert recipe_hash(Recipe(noise=0)) == recipe_hash(Recipe(noise=0.0))
    assert recipe_hash(Recipe(loss=LossSpec("iou", 3))) == recipe_hash(Recipe())


class LaterOptimisation(Optimisation, frozen=True):
    warp: float = 1.0


class LaterRecipe(Recipe, frozen=True, kw_only=True):
    optimisation: LaterOptimisation = LaterOptimisation()
    twist: int = 0


def test_a_field_that_is_added_later_leaves_names_alone(monkeypatch):
    """A version with more fields: with what runs did before, the hash is that of today."""
    assert recipe_hash(LaterRecipe()) != recipe_hash(Recipe()), "it is not known to be later"
    monkeypatch.setitem(module.ADDED, "optimisation.warp", 1.0)
    monkeypatch.setitem(module.ADDED, "twist", 0)
    assert recipe_hash(LaterRecipe()) == recipe_hash(Recipe())
    assert recipe_hash(LaterRecipe(twist=1)) != recipe_hash(Recipe())
    now, later = Optimisation(lr=0.5), LaterOptimisation(lr=0.5)
    assert recipe_hash(LaterRecipe(optimisation=later)) == recipe_hash(Recipe(optimisation=now))
    warped = LaterRecipe(optimisation=LaterOptimisation(lr=0.5, warp=2.0))
    assert recipe_hash(warped) != recipe_hash(Recipe(optimisation=now))


def test_the_power_of_the_objectness_target_was_added_and_leaves_names_alone():
    plain = to_plain(Recipe())
    before = {**plain, "detector": {**plain["detector"]}}
    assert before["detector"].pop("objectness_alpha") == 1.0
    assert recipe_from(before) == Recipe()
    check_same_recipe(Path("run/record.json"), before, Recipe())
    powered = with_settings(Recipe(), objectness_alpha=2.0)
    assert recipe_hash(powered) != recipe_hash(Recipe())
    with pytest.raises(RecordError, match=r"detector\.objectness_alpha is None, not 2\.0"):
        check_same_recipe(Path("run/record.json"), before, powered)


def test_a_changed_default_changes_the_hash():
    class Slower(Optimisation, frozen=True):
        lr: float = 0.005

    class Changed(Recipe, frozen=True, kw_only=True):
        optimisation: Slower = Slower()

    assert recipe_hash(Changed()) != recipe_hash(Recipe())
    assert recipe_hash(Changed(optimisation=Slower(lr=0.01))) == recipe_hash(Recipe())


def test_the_names_of_runs_are_those_of_this_layout():
    """These names may change with SCHEMA alone: runs are found by them."""
    assert recipe_hash(Recipe()) == "17bcc55c3783"
    assert recipe_hash(Recipe(detector="detr_r50", dropout=0.0)) == "63d19cce3149"


def test_values_before_the_added_fields_have_the_same_name_and_are_the_same_recipe():
    values = to_plain(Recipe())
    for name in ("weights", "freeze"):
        del values[name]
    assert recipe_from(values) == Recipe()
    check_same_recipe(Path("run/record.json"), values, Recipe())
    with pytest.raises(RecordError, match=r"weights is None, not 'a\.safetensors'"):
        check_same_recipe(Path("run/record.json"), values, Recipe(weights="a.safetensors"))


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
        ({"patience": -1}, "patience must be at least 0"),
        ({"patience": 5}, "patience needs select='best', a validation split .* select='last'"),
        (
            {"patience": 5, "select": "best", "data": DataRecipe(val="val")},
            "evaluate_every of at least 1, got .*evaluate_every=0",
        ),
        ({"batch_size": 6, "optimisation": Optimisation(accumulate=4)}, "multiple of"),
        ({**FASTER, "norm": "layer"}, "norm must be one of"),
        (
            {"loss": LossSpec("l1")},
            "'l1' is supported by fasterrcnn_r50_fpn only, not by yolov5s",
        ),
        ({"detector": "detr_r50", "loss": LossSpec("smooth_l1")}, "only, not by detr_r50"),
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
        ({**FASTER, "norm": "frozen"}, "norm='frozen' needs backbone_weights, or weights to start"),
        ({"freeze": ("backbone",)}, "freeze needs weights: random parameters must be trained"),
        ({"freeze": ("",), "weights": "a.pth"}, "freeze must hold no empty names"),
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
    records = map(read_record, COMMITTED.glob("*.json"))
    recipes = [recipe_from(record["recipe"]) for record in records]
    runs = [recipe for recipe in recipes if recipe.detector.name == "detr_r50"]
    assert {str(run.loss) for run in runs} == {"giou", "giou:3"}
    for run in runs:
        weights = run.detector.backbone_weights
        frozen = {"backbone_weights": weights, "norm": "frozen", "backbone_lr_scale": 0.1}
        where = {"data": run.data, "precision": run.precision}
        named = replace(RECIPES["voc320-detr"](), **frozen, **where)
        assert replace(named, loss=run.loss, evaluate_every=run.evaluate_every) == run


def test_the_device_decides_the_precision():
    recipe = Recipe(precision="auto")
    assert resolve_auto(recipe, "cpu").precision == "fp32"
    assert resolve_auto(recipe, "cuda").precision == "bf16"
    assert resolve_auto(replace(recipe, precision="fp16"), "cpu").precision == "fp16"
