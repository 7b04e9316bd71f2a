"""Detectors by name: which there are, what each can be told, and what it refuses."""

import subprocess
import sys

import pytest

from alphaiou import AlphaIoULoss
from alphaiou.detectors import DETECTORS, Detector, build_detector
from alphaiou.detectors.base import PostProcess
from alphaiou.detectors.registry import settings_of

NAMES = ("yolov5n", "yolov5s", "yolov5m", "yolov5l", "yolov5x", "fasterrcnn_r50_fpn", "detr_r50")
SETTINGS = {
    "box_gain": 7.0,
    "objectness_gain": 2.0,
    "class_gain": 3.0,
    "objectness": "similarity",
    "rpn_loss": AlphaIoULoss("giou"),
    "match_loss": AlphaIoULoss("giou"),
    "norm": "batch",
    "image_size": 320,
    "postprocess": PostProcess(0.5, 0.25),
}


def test_the_names():
    assert DETECTORS == NAMES


@pytest.mark.parametrize("name", ["yolov5n", "fasterrcnn_r50_fpn", "detr_r50"])
def test_a_detector_takes_its_own_settings_and_no_others(name):
    own = {key: value for key, value in SETTINGS.items() if key in settings_of(name)}
    detector = build_detector(name, 3, box_loss=AlphaIoULoss("diou"), **own)
    assert isinstance(detector, Detector)
    assert detector.loss_names
    if "postprocess" in own:
        assert detector.postprocess == own["postprocess"]
    for key in SETTINGS.keys() - own.keys():
        with pytest.raises(ValueError, match=f"{name} does not support {key}; its settings"):
            build_detector(name, 3, **{key: SETTINGS[key]})


def test_settings_reach_the_losses():
    yolo = build_detector("yolov5n", 3, box_gain=7.0, objectness="similarity")
    assert yolo.loss.objectness == "similarity"
    faster = build_detector("fasterrcnn_r50_fpn", 3, box_gain=7.0, rpn_loss="smooth_l1")
    assert faster.roi_loss.box_loss.weight == 7.0
    assert faster.rpn_loss.box_loss.turn == 1 / 9


@pytest.mark.parametrize("name", ["yolov5n", "detr_r50"])
def test_losses_of_deltas_are_for_faster_rcnn(name):
    with pytest.raises(ValueError, match=f"fasterrcnn_r50_fpn only, not by {name}"):
        build_detector(name, 3, box_loss="l1")


@pytest.mark.slow
def test_yolov5_needs_neither_torchvision_nor_transformers():
    code = "import sys, alphaiou.detectors as d; d.build_detector('yolov5n', 3);"
    code += "assert not {'torchvision', 'transformers', 'scipy'} & sys.modules.keys()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
