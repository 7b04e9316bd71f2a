"""Detect objects in videos, frame by frame: an annotated video and one JSON line per frame."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from alphaiou._files import replacing
from alphaiou._shapes import UInt8
from alphaiou.data.problems import DataError
from alphaiou.inference.predictor import BATCH, Prediction, Predictor

VIDEO_SUFFIXES = (".mp4", ".mov", ".m4v", ".mkv", ".webm", ".avi")
#: Frames per second of an annotated video if the video does not say its own.
FRAME_RATE = Fraction(25)
#: The bits per pixel and frame of an annotated video.
BITS_PER_PIXEL = 0.25


class Frame(NamedTuple):
    """A frame of a video.

    Attributes:
        number: Its position, from 0; also the name of its prediction.
        seconds: Its time.
        pixels: The frame.
        prediction: Its detections.
    """

    number: int
    seconds: float
    pixels: UInt8[np.ndarray, "height width 3"]
    prediction: Prediction


def is_video(path: str | Path) -> bool:
    """Return whether a name is that of a video.

    Examples:
        >>> is_video("street.MP4"), is_video("street.jpg")
        (True, False)
    """
    return Path(path).suffix.lower() in VIDEO_SUFFIXES


def predict_frames(predictor: Predictor, path: str | Path) -> Iterator[Frame]:
    """Detect objects in the frames of a video, of which only one batch is in memory.

    Args:
        predictor: The detector.
        path: The video.

    Raises:
        DataError: If the file does not exist, or is not a video that FFmpeg decodes.
    """
    frames = _decoded(Path(path))
    while batch := list(islice(frames, BATCH)):
        predictions = predictor([pixels for _, _, pixels in batch])
        for (number, seconds, pixels), found in zip(batch, predictions, strict=True):
            yield Frame(number, seconds, pixels, replace(found, name=number))


def predict_video(
    predictor: Predictor, path: str | Path, folder: Path, *, drawing: bool = True
) -> tuple[int, int]:
    """Write the detections of a video, ``NAME.jsonl``, and the video with boxes, ``NAME.mp4``.

    A line has the number of the frame, its time in seconds, and its detections as COCO results.

    Args:
        predictor: The detector.
        path: The video.
        folder: The folder to write to.
        drawing: Whether to write the video.

    Returns:
        The numbers of frames and of detections.

    Raises:
        DataError: If the file does not exist, or is not a video that FFmpeg decodes.
    """
    path = Path(path)
    frames, detections = 0, 0
    with ExitStack() as files:
        lines = files.enter_context(replacing(folder / f"{path.stem}.jsonl"))
        writer = None
        for frame in predict_frames(predictor, path):
            results = frame.prediction.to_coco()
            entry = {
                "frame": frame.number,
                "seconds": round(frame.seconds, 6),
                "detections": [
                    {name: value for name, value in one.items() if name != "image_id"}
                    for one in results
                ],
            }
            lines.write((json.dumps(entry, ensure_ascii=False) + "\n").encode())
            frames, detections = frames + 1, detections + len(results)
            if not drawing:
                continue
            if writer is None:
                file = files.enter_context(replacing(folder / f"{path.stem}.mp4"))
                writer = files.enter_context(_Writer(file, frame.pixels, _frame_rate(path)))
            writer.add(np.asarray(frame.prediction.draw(frame.pixels)))
    return frames, detections


def _decoded(path: Path) -> Iterator[tuple[int, float, UInt8[np.ndarray, "height width 3"]]]:
    """Yield the number, the time and the pixels of each frame."""
    import av

    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    number = 0
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise DataError(f"{path}: has no video")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            for number, frame in enumerate(container.decode(stream)):
                rate = stream.average_rate or FRAME_RATE
                seconds = float(number / rate) if frame.time is None else frame.time
                yield number, seconds, frame.to_ndarray(format="rgb24")
    except av.FFmpegError as error:
        raise DataError(
            f"{path}: cannot be decoded after frame {number} ({error}); copy the file again, or "
            "convert it with FFmpeg"
        ) from None


def _frame_rate(path: Path) -> Fraction:
    import av

    with av.open(str(path)) as container:
        return container.streams.video[0].average_rate or FRAME_RATE


class _Writer:
    """Write frames as MPEG-4, whose encoder every build of FFmpeg has."""

    def __init__(self, file: Any, first: np.ndarray, rate: Fraction) -> None:  # noqa: ANN401
        import av

        self.container = av.open(file, "w", format="mp4")
        self.stream = self.container.add_stream("mpeg4", rate=rate)
        height, width = first.shape[:2]
        # Chroma has half the resolution, so sides are even.
        self.stream.width, self.stream.height = width + width % 2, height + height % 2
        self.stream.pix_fmt = "yuv420p"
        self.stream.bit_rate = int(BITS_PER_PIXEL * width * height * rate)

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self.container.mux(self.stream.encode())
        self.container.close()

    def add(self, pixels: UInt8[np.ndarray, "height width 3"]) -> None:
        """Write a frame; one of another size is scaled to that of the first."""
        from av import VideoFrame

        frame = VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        wanted = self.stream.width, self.stream.height
        if (frame.width, frame.height) != wanted:
            frame = frame.reformat(*wanted)
        self.container.mux(self.stream.encode(frame))
