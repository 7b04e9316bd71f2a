"""The registry of detectors: configurations by name, what each supports, and what it rejects."""

import subprocess
import sys
from dataclasses import fields, replace

import msgspec
import pytest

from alphaiou._config import to_plain
from alphaiou.detectors import DETECTORS, Detector, build_detector
from alphaiou.detectors.base import DetectorConfig
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.registry import (
    SETTINGS,
    AnyDetectorConfig,
    detector_config,
    earlier_settings,
    nested_settings,
)
from alphaiou.detectors.yolov5.config import YOLOv5nConfig
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipes import RECIPES

NAMES = ("yolov5n", "yolov5s", "yolov5m", "yolov5l", "yolov5x", "fasterrcnn_r50_fpn", "detr_r50")
CHANGES = {
    "box_gain": 7.0,
    "objectness_gain": 2.0,
    "class_gain": 3.0,
    "objectness": "similarity",
    "objectness_alpha": 2.0,
    "rpn_loss": LossSpec("smooth_l1"),
    "match_loss": LossSpec("diou"),
    "backbone_weights": "a-file.pth",
    "norm": "batch",
    "backbone_lr_scale": 0.5,
    "dropout": 0.0,
    "nms_threshold": 0.25,
}


def settings_of(name):
    return {item.name for item in fields(DETECTORS[name])}


def test_the_names():
    assert tuple(DETECTORS) == NAMES
    assert CHANGES.keys() == SETTINGS


def test_every_detector_has_a_named_recipe():
    named = {type(recipe().detector).__mro__[1] for recipe in RECIPES.values()}
    for config in DETECTORS.values():
        assert config.__mro__[1] in named


@pytest.mark.parametrize("name", ["yolov5n", "fasterrcnn_r50_fpn", "detr_r50"])
def test_a_detector_takes_its_own_settings_and_no_others(name):
    own = {key: value for key, value in CHANGES.items() if key in settings_of(name)}
    config = detector_config(name, **own)
    for key, value in own.items():
        assert getattr(config, key) == value
        assert value != getattr(DETECTORS[name](), key)
    detector = replace(config, **({"backbone_weights": "none"} if "norm" in own else {})).build(3)
    assert isinstance(detector, Detector)
    assert detector.loss_names
    if "nms_threshold" in own:
        assert detector.postprocess.nms_threshold == 0.25
    for key in CHANGES.keys() - own.keys():
        with pytest.raises(ValueError, match=f"{key} is not supported by {name}; it is a setting"):
            build_detector(name, 3, **{key: CHANGES[key]})


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_comes_back_from_plain_values(name):
    own = {key: value for key, value in CHANGES.items() if key in settings_of(name)}
    config = detector_config(name, **own)
    plain = to_plain(config)
    assert plain["name"] == config.name == name
    assert msgspec.convert(plain, AnyDetectorConfig) == config
    assert isinstance(config, DetectorConfig)


def test_settings_reach_the_losses():
    yolo = build_detector("yolov5n", 3, box_gain=7.0, objectness="similarity")
    assert yolo.loss.objectness == "similarity"
    faster = build_detector("fasterrcnn_r50_fpn", 3, box_gain=7.0, rpn_loss=LossSpec("smooth_l1"))
    assert faster.roi_loss.box_loss.weight == 7.0
    assert faster.rpn_loss.box_loss.turn == 1 / 9
    matched = build_detector(DETRConfig(box_gain=7.0, match_loss=LossSpec("diou")), 3)
    assert matched.loss.weights["box"] == 7.0
    assert matched.loss.match_loss.function.kind == "diou"


def test_a_configuration_has_its_settings_itself():
    with pytest.raises(ValueError, match="box_gain: set the fields of the configuration"):
        build_detector(YOLOv5nConfig(), 3, box_gain=1.0)


@pytest.mark.parametrize("name", ["yolov5n", "detr_r50"])
def test_losses_of_deltas_are_for_faster_rcnn(name):
    with pytest.raises(ValueError, match=f"box_loss='l1' is not supported by {name}"):
        build_detector(name, 3, box_loss="l1")


def test_flat_settings_are_those_of_the_detector():
    flat = {"detector": "detr_r50", "dropout": 0.0, "seed": 1}
    assert nested_settings(flat) == {"detector": {"name": "detr_r50", "dropout": 0.0}, "seed": 1}
    with pytest.raises(ValueError, match="class_gain is not supported by detr_r50"):
        nested_settings(flat | {"class_gain": 0.5})
    every = flat | {"class_gain": 0.5, "box_gain": 0.05}
    earlier = nested_settings(earlier_settings(every))["detector"]
    assert earlier.keys() == settings_of("detr_r50") | {"name"}
    assert (earlier["dropout"], earlier["box_gain"]) == (0.0, 0.05)


@pytest.mark.slow
def test_yolov5_needs_neither_torchvision_nor_transformers():
    code = "import sys, alphaiou.detectors as d; d.build_detector('yolov5n', 3);"
    code += "assert not {'torchvision', 'transformers', 'scipy'} & sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
