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

    from alphaiou.data.dataset import DetectionDataset
    from alphaiou.inference.predictor import Prediction, Predictor
    from alphaiou.inference.weights import TrainedDetector


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Detect objects in images and videos with trained weights.

    Of a data set: alphaiou predict --data PATH --split test --weights FILE.

    Writes to --out:
    - predictions.json   detections in COCO's format, for alphaiou eval
    - drawings/          each image with boxes, classes and scores
    - NAME.jsonl, .mp4   of a video: one line per frame, and the video with boxes

    predictions.json identifies images by file name and classes by name.

    Those of a COCO data set are identified by their numbers.

    Unreadable images are reported and skipped; the exit code is then 1.
    """

    images: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="[IMAGES ...]", help_behavior_hint=""),
    ] = ()
    """Images, folders, patterns such as 'photos/*.jpg', or videos."""

    weights: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """best.safetensors of a run, or the folder of the run."""

    data: Annotated[
        str | None,
        tyro.conf.DisallowNone,
        tyro.conf.arg(metavar="PATH", help_behavior_hint=""),
    ] = None
    """Data set whose images to take: a folder, an annotation file, or shapes."""

    split: Annotated[str, tyro.conf.arg(metavar="SPLIT")] = "val"
    """Split of the data set."""

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
    from alphaiou.data.dataset import load_dataset
    from alphaiou.inference.predictor import category_keys, find_images, load_predictor
    from alphaiou.inference.video import is_video

    if bool(command.images) == (command.data is not None):
        raise UsageError("alphaiou predict: give images, folders or patterns, or --data PATH")
    if not 0.0 <= command.score <= 1.0:
        raise UsageError(f"--score {command.score}: must be from 0 to 1")
    predictor = load_predictor(command.weights, score=command.score, device=command.device)
    console = Console()
    videos = [place for place in command.images if is_video(place)]
    if videos:
        _predict_videos(command, predictor, videos, console)
        if len(videos) == len(command.images):
            return 0
    source: Sequence[Path] | DetectionDataset
    categories: Sequence[str | int] = predictor.classes
    if command.data is None:
        source = find_images(place for place in command.images if place not in videos)
    else:
        source = load_dataset(command.data, command.split)
        categories = category_keys(predictor.classes, source.index)
    command.out.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    images = _predict(command, predictor, source, console)
    detections = [entry for image in images for entry in image.to_coco(categories)]
    path = command.out / "predictions.json"
    write_file(path, json.dumps(detections, indent=1, ensure_ascii=False) + "\n")
    unreadable = _say_unreadable(images, console)
    read = len(images) - unreadable
    if detections or not read:
        _say(console, f"{len(detections):,} detections in {read:,} images")
    else:
        highest = [image.highest for image in images]
        _say(console, _why_nothing(command.score, highest, read, predictor.trained))
    _say(console, f"wrote {path}")
    if read and not command.no_drawings:
        _say(console, f"wrote {command.out / 'drawings'}/")
    return 1 if unreadable else 0


def _predict_videos(
    command: Predict, predictor: Predictor, videos: Sequence[str], console: Console
) -> None:
    from alphaiou.inference.video import predict_video

    for video in videos:
        with console.status(f"detecting objects in {video}"):
            frames, detections = predict_video(
                predictor, video, command.out, drawing=not command.no_drawings
            )
        _say(console, f"{video}: {detections:,} detections in {frames:,} frames")
        _say(console, f"wrote {command.out / Path(video).stem}.jsonl")
        if frames and not command.no_drawings:
            _say(console, f"wrote {command.out / Path(video).stem}.mp4")


def _why_nothing(
    score: float, highest: Sequence[float], images: int, trained: TrainedDetector
) -> str:
    """Explain that nothing was detected: the threshold, the highest score and the training."""
    from alphaiou.inference.predictor import LEAST_SCORE

    best = max(highest)
    found = f"the highest score is {best:.2g}" if best else f"no score reaches {LEAST_SCORE:g}"
    text = f"0 detections above {score:g} in {images:,} images; {found}."
    if not trained.epochs:
        return text
    length = f"{trained.epochs:,} epoch{'s' * (trained.epochs != 1)}"
    if trained.images is not None:
        length += f" on {trained.images:,} image{'s' * (trained.images != 1)}"
    remedy = "train longer, or lower --score" if best else "train longer"
    return f"{text} The weights were trained for {length}; {remedy}"


def _predict(
    command: Predict,
    predictor: Predictor,
    source: Sequence[Path] | DetectionDataset,
    console: Console,
) -> list[Prediction]:
    from rich.progress import track

    from alphaiou.data.dataset import DetectionDataset
    from alphaiou.data.formats.writing import flat_names
    from alphaiou.inference.drawing import save_drawing

    if isinstance(source, DetectionDataset):
        _say(console, str(source))
        names = flat_names(source.index.files)
        predicted = predictor.dataset(source, workers=command.workers)
    else:
        names = flat_names(path.as_posix() for path in source)
        predicted = predictor.files(source, workers=command.workers)
    shown = track(
        zip(predicted, names, strict=True),
        "images",
        len(source),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    images = []
    for row, (image, name) in enumerate(shown):
        images.append(image)
        if not (image.problem or command.no_drawings):
            pixels = source[row][0] if isinstance(source, DetectionDataset) else None
            save_drawing(image.draw(pixels), command.out / "drawings" / name)
    return images


def _say_unreadable(images: Sequence[Prediction], console: Console) -> int:
    """Print the images that could not be read and return their number."""
    unreadable = [image for image in images if image.problem]
    for image in unreadable:
        _say(console, f"{image.path}: {image.problem}")
    if unreadable:
        _say(console, f"{len(unreadable):,} of {len(images):,} images could not be read")
    return len(unreadable)


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
