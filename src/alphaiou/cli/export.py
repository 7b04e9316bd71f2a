"""``alphaiou export``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write trained weights as one ONNX or PyTorch file.

    It takes uint8 images, resized and padded beforehand.

    It returns boxes, scores and labels; docs/export.md shows how to use it.
    """

    weights: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="WEIGHTS")]
    """best.safetensors of a run, or the folder of the run."""

    format: Literal["onnx", "pt2"] = "onnx"
    """File format: onnx, or pt2 for torch.export.load."""

    score: float = 0.25
    """Minimum score of a detection."""

    nms_threshold: Annotated[
        float | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="IOU", help_behavior_hint="(default: that of the training)"),
    ] = None
    """IoU above which NMS removes a box."""

    no_nms: bool = False
    """Return all boxes and their scores for each class instead of detections."""

    batch: int = 1
    """Number of images per batch."""

    dynamic_batch: bool = False
    """Allow any number of images per batch."""

    image_size: Annotated[
        int | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="INT", help_behavior_hint="(default: that of the training)"),
    ] = None
    """Height and width of the images."""

    dynamic_size: bool = False
    """Allow any multiples of 32 as height and width, from 96 on."""

    candidates: int = 4096
    """Maximum number of boxes per image that enter NMS."""

    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """Precision of the weights; fp16 and int8 are for YOLOv5 with --format onnx."""

    out: Annotated[
        Path | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: beside the weights)"),
    ] = None
    """File to write."""


def run_export(command: Export) -> int:
    """Export the weights and print the path and the size of the file."""
    from rich.console import Console

    from alphaiou.inference.export import ExportOptions, export_detector
    from alphaiou.inference.weights import WEIGHTS, load_weights

    options = ExportOptions(
        format=command.format,
        nms=not command.no_nms,
        score=command.score,
        nms_threshold=command.nms_threshold,
        batch=command.batch,
        dynamic_batch=command.dynamic_batch,
        image_size=command.image_size,
        dynamic_size=command.dynamic_size,
        candidates=command.candidates,
        precision=command.precision,
    )
    weights = command.weights / WEIGHTS if command.weights.is_dir() else command.weights
    path = command.out or weights.with_suffix(f".{command.format}")
    trained = load_weights(weights)
    path.parent.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    console = Console()
    with console.status(f"exporting to {path}"):
        export_detector(trained, path, options)
    size = path.stat().st_size / 2**20
    console.print(f"wrote {path} ({size:.1f} MiB)", highlight=False, soft_wrap=True)
    return 0
