"""Detectors that train with any box loss, under torchvision's contract."""

from alphaiou.detectors.build import DETECTORS, build_detector
from alphaiou.detectors.contract import Detections, Detector, Target, TargetBatch, batch_targets
from alphaiou.detectors.postprocess import PostProcess
from alphaiou.detectors.yolov5 import YOLOv5
from alphaiou.detectors.yolov5_layers import fold_batch_norm

__all__ = [
    "DETECTORS",
    "Detections",
    "Detector",
    "PostProcess",
    "Target",
    "TargetBatch",
    "YOLOv5",
    "batch_targets",
    "build_detector",
    "fold_batch_norm",
]
