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
    "Terms": "losses",
    "Wise": "losses",
    "alpha_iou_loss": "losses",
    "box_iou": "losses.similarity",
    "build_detector": "detectors",
    "convert_boxes": "boxes",
    "load_dataset": "data.dataset",
    "pairwise_iou": "losses.similarity",
    "perturb_boxes": "data.noise",
}
_MODULES = ("boxes", "losses", "properties")

__all__ = [*sorted((*_PUBLIC, *_MODULES)), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:  # noqa: ANN401
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
