"""Detectors that train with any box loss, with torchvision's interface.

Each detector is a folder with the same modules: ``network`` (the detector and its network),
``targets`` (the assignment of ground truth to predictions) and ``loss``. ``build_detector`` builds
a detector by name.
"""

from alphaiou.batch import Targets
from alphaiou.detectors.base import (
    Detections,
    Detector,
    PostProcess,
    Target,
    batch_targets,
)
from alphaiou.detectors.registry import DETECTORS, build_detector
from alphaiou.detectors.yolov5.network import YOLOv5, fold_batch_norm

__all__ = [
    "DETECTORS",
    "Detections",
    "Detector",
    "PostProcess",
    "Target",
    "Targets",
    "YOLOv5",
    "batch_targets",
    "build_detector",
    "fold_batch_norm",
]
