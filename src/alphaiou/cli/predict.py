"""``alphaiou predict``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.cli.options import Workers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from alphaiou.inference.predictor import PredictedImage
    from alphaiou.inference.weights import TrainedDetector


@dataclass(frozen=True)
class Predict:
    """Detect objects in images with trained weights.

    Writes to --out:
    - predictions.json   detections in COCO's format, for alphaiou eval
    - drawings/          each image with boxes, classes and scores

    predictions.json identifies images by file name and classes by name.

    Unreadable images are reported and skipped; the exit code is then 1.
    """

    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES ...")]
    """Files, folders or patterns such as 'photos/*.jpg'."""

    weights: Path
    """best.safetensors of a run, or the folder of the run."""

    score: float = 0.25
    """Minimum score of a detection; use 0.001 for alphaiou eval."""

    no_drawings: bool = False
    """Write predictions.json only."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on."""

    workers: Workers = None
    """Number of processes that decode images."""

    out: Path = Path("runs/predict")
    """Folder to write to."""


def run_predict(command: Predict) -> int:
    """Detect objects in every image, write the detections, and report unreadable images."""
    import json

    from rich.console import Console

    from alphaiou._files import write_file
    from alphaiou.cli import UsageError
    from alphaiou.inference.predictor import as_coco, find_images
    from alphaiou.inference.weights import load_weights

    if not command.images:
        raise UsageError("alphaiou predict: give at least one image, folder or pattern")
    if not 0.0 <= command.score <= 1.0:
        raise UsageError(f"--score {command.score}: must be from 0 to 1")
    trained = load_weights(command.weights)
    paths = find_images(command.images)
    command.out.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    console = Console()
    images = _predict(command, trained, paths, console)
    detections = [entry for image in images for entry in as_coco(image, trained.classes)]
    path = command.out / "predictions.json"
    write_file(path, json.dumps(detections, indent=1, ensure_ascii=False) + "\n")
    unreadable = _say_unreadable(images, console)
    read = len(images) - unreadable
    _say(console, f"{len(detections):,} detections in {read:,} images")
    _say(console, f"wrote {path}")
    if read and not command.no_drawings:
        _say(console, f"wrote {command.out / 'drawings'}/")
    return 1 if unreadable else 0


def _predict(
    command: Predict, trained: TrainedDetector, paths: Sequence[Path], console: Console
) -> list[PredictedImage]:
    from rich.progress import track

    from alphaiou._environment import device_kind
    from alphaiou.data.formats.writing import flat_names
    from alphaiou.inference.drawing import draw_detections, save_drawing
    from alphaiou.inference.predictor import predict_images

    images = []
    names = flat_names(path.as_posix() for path in paths)
    predicted = predict_images(
        trained,
        paths,
        score=command.score,
        device=device_kind(command.device),
        workers=command.workers,
    )
    shown = track(
        zip(predicted, names, strict=True),
        "images",
        len(paths),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for image, name in shown:
        images.append(image)
        if image.found is not None and not command.no_drawings:
            picture = draw_detections(image.path, image.found, trained.classes)
            save_drawing(picture, command.out / "drawings" / name)
    return images


def _say_unreadable(images: Sequence[PredictedImage], console: Console) -> int:
    """Print the images that could not be read and return their number."""
    unreadable = [image for image in images if image.found is None]
    for image in unreadable:
        _say(console, f"{image.path}: {image.problem}")
    if unreadable:
        _say(console, f"{len(unreadable):,} of {len(images):,} images could not be read")
    return len(unreadable)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
