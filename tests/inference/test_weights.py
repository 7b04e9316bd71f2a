"""Weights files: a detector comes back from what its file says alone, from any version's file."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from alphaiou import AlphaIoULoss
from alphaiou._config import to_plain
from alphaiou.detectors import build_detector
from alphaiou.detectors.faster_rcnn.config import FasterRCNNConfig
from alphaiou.inference.weights import CheckpointError, load_weights, read_tensors, save_weights
from alphaiou.losses.module import AlphaSchedule
from alphaiou.training.recipe import Recipe, recipe_from

#: A recipe as the first edition wrote it.
RECIPE = """
{"detector": "yolov5s", "loss": {"kind": "diou", "alpha": 1.0, "penalty_alpha": null,
"modifiers": []}, "alpha_schedule": null, "data": {"path": "voc320", "train": "train", "val":
null, "test": "test", "hold_out": 0.0, "difficult": "drop"}, "image_size": 320, "batch_size":
64, "epochs": 60, "seed": 0, "box_gain": 0.075, "final_box_gain": null, "objectness_gain": 1.0,
"class_gain": 0.5, "objectness": "iou", "rpn_loss": null, "match_loss": null,
"backbone_weights": "none", "norm": "auto", "backbone_lr_scale": null, "dropout": 0.1, "noise":
0.0, "subset": 1.0, "augmentation": {"mosaic": 1.0, "scale": 0.5, "translate": 0.1, "hue":
0.015, "saturation": 0.7, "value": 0.4, "flip": 0.5, "fill": 114, "min_side": 2.0,
"min_area_share": 0.1, "max_aspect": 20.0}, "optimisation": {"optimiser": "sgd", "lr": 0.01,
"schedule": "cosine", "final_lr": 0.2, "drops": [], "drop_factor": 0.1, "momentum": 0.937,
"nesterov": true, "weight_decay": 0.0005, "decay_batch": 64, "decay": "weights", "clip_norm":
0.0, "warmup_epochs": 3.0, "warmup_steps": 1000, "warmup_bias_lr": 0.1, "warmup_momentum": 0.8,
"ema_decay": 0.9999, "ema_growth": 2000.0, "accumulate": 1}, "precision": "bf16",
"evaluate_every": 12, "select": "last", "rule": "paper", "nms_threshold": 0.6}
"""
CLASSES = ["ä", "b", "c"]

MODELS = {
    "yolov5n": {"box_gain": 0.1, "objectness_gain": 2.0},
    "fasterrcnn_r50_fpn": {"norm": "group", "image_size": 64},
    "detr_r50": {"norm": "group"},
}


def first_edition_file(path, detector, recipe):
    """A file as the first edition wrote it."""
    tensors = {name: one.contiguous() for name, one in detector.state_dict().items()}
    facts = {"recipe": recipe, "classes": CLASSES}
    save_file(tensors, path, metadata={"facts": json.dumps(facts)})


def recorded_recipe(**changes):
    return json.loads(RECIPE) | changes


def test_todays_files_hold_the_configuration_of_the_detector(tmp_path):
    recipe = Recipe(detector=FasterRCNNConfig(norm="group", nms_threshold=0.25), image_size=64)
    detector = recipe.detector.build(3, image_size=64)
    save_weights(detector, to_plain(recipe), CLASSES, tmp_path / "best.safetensors")
    trained = load_weights(tmp_path)
    assert_same_detector(trained.detector, detector)
    assert trained.detector.postprocess == detector.postprocess
    assert trained.detector.postprocess.nms_threshold == 0.25
    assert (trained.image_size, trained.precision) == (64, "bf16")
    assert recipe_from(trained.recipe) == recipe


def assert_same_detector(one, other):
    expected = other.state_dict()
    assert one.state_dict().keys() == expected.keys()
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("name", MODELS)
def test_a_file_of_the_first_edition(tmp_path, name):
    torch.manual_seed(0)
    detector = build_detector(name, 3, **MODELS[name])
    recipe = recorded_recipe(detector=name, image_size=64, backbone_weights="none")
    first_edition_file(tmp_path / "best.safetensors", detector, recipe)
    trained = load_weights(tmp_path)
    assert_same_detector(trained.detector, detector)
    assert not trained.detector.training
    assert trained.classes == ("ä", "b", "c")
    assert (trained.image_size, trained.precision) == (64, recipe["precision"])
    assert trained.recipe == recipe
    if name != "detr_r50":
        nms = recipe["nms_threshold"]
        detector.postprocess = replace(detector.postprocess, nms_threshold=nms)
        assert trained.detector.postprocess == detector.postprocess
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        (found,), (expected,) = trained.detector(images), detector.eval()(images)
    assert torch.equal(found["scores"], expected["scores"])
    assert torch.equal(found["boxes"], expected["boxes"])


def test_a_first_file_that_lacks_later_fields(tmp_path):
    detector = build_detector("yolov5n", 3)
    recipe = {"detector": "yolov5n", "loss": {"kind": "iou", "alpha": 3.0}, "image_size": 64}
    first_edition_file(tmp_path / "best.safetensors", detector, recipe)
    trained = load_weights(tmp_path)
    assert_same_detector(trained.detector, detector)
    assert trained.detector.postprocess == detector.postprocess


def test_the_state_of_a_loss_comes_back(tmp_path):
    loss = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0), modifiers=("wise_v3",))
    detector = build_detector("yolov5n", 3, box_loss=loss)
    loss.alpha.fill_(2.5)
    recipe = recorded_recipe(
        detector="yolov5n",
        loss={"kind": "iou", "alpha": 1.0, "penalty_alpha": None, "modifiers": ["wise_v3"]},
        alpha_schedule={"start": 1.0, "end": 3.0, "shape": "linear"},
    )
    save_weights(detector, recipe, CLASSES, tmp_path / "best.safetensors")
    assert_same_detector(load_weights(tmp_path).detector, detector)
    facts = read_tensors(tmp_path / "best.safetensors").facts
    assert facts == {"recipe": recipe, "classes": CLASSES}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"detector": "yolov9"}, "yolov9"), ({"detector": "yolov5s"}, "size mismatch|Error")],
)
def test_a_file_that_does_not_fit_is_named(tmp_path, changes, reason):
    first_edition_file(
        tmp_path / "best.safetensors", build_detector("yolov5n", 3), recorded_recipe(**changes)
    )
    with pytest.raises(CheckpointError, match=rf"does not fit this version.*({reason})"):
        load_weights(tmp_path)
