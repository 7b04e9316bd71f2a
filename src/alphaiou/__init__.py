"""alphaiou: the power family of IoU losses for bounding-box regression."""

from importlib import import_module
from typing import Any

from alphaiou._version import __version__

#: Where each public name lives. Names are resolved when first used, so importing costs nothing.
_PUBLIC = {
    "KINDS": "losses",
    "MODIFIERS": "losses",
    "AlphaIoULoss": "losses",
    "AlphaSchedule": "losses",
    "DetectionDataset": "data.dataset",
    "DetectionScores": "metrics",
    "PairGeometry": "boxes",
    "QUALITY_LOSSES": "losses",
    "QualityLoss": "losses",
    "ScheduledInner": "losses",
    "Terms": "losses",
    "Wise": "losses",
    "alpha_iou_loss": "losses",
    "box_iou": "losses.similarity",
    "build_detector": "detectors",
    "convert_boxes": "boxes",
    "load_dataset": "data.dataset",
    "load_predictor": "inference.predictor",
    "pairwise_iou": "losses.similarity",
    "perturb_boxes": "data.noise",
    "quality_loss": "losses",
}
_MODULES = ("boxes", "losses", "oriented", "properties")

__all__ = [*sorted((*_PUBLIC, *_MODULES)), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name not in _MODULES and name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = f"{__name__}.{_PUBLIC.get(name, name)}"
    try:
        module = import_module(place)
    except AttributeError as error:
        # Python takes an AttributeError for a missing name and drops it with its traceback.
        raise ImportError(f"{place} cannot be imported: {error}") from error
    return getattr(module, name) if name in _PUBLIC else module


def __dir__() -> list[str]:
    return sorted(__all__)
