"""Detection in videos: frames in order, one line each, and the video with boxes."""

import json
from fractions import Fraction

import av
import numpy as np
import pytest

from alphaiou._config import to_plain
from alphaiou.cli import main
from alphaiou.data.problems import DataError
from alphaiou.inference.predictor import Predictor
from alphaiou.inference.video import predict_frames, predict_video
from alphaiou.inference.weights import TrainedDetector, save_weights
from tests.inference.responsive import yolov5n
from tests.training.runs import tiny_recipe

CLASSES = ("disc", "triangle", "star", "cross")
FRAMES = 19  # more than a batch


@pytest.fixture(scope="module")
def predictor():
    return Predictor(TrainedDetector(yolov5n(), CLASSES, {}, 64), score=0.1)


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    """A video of changing blocks, with an odd height, without loss."""
    path = tmp_path_factory.mktemp("video") / "blocks.mkv"
    rng = np.random.default_rng(0)
    frames = []
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=Fraction(10))
        stream.width, stream.height, stream.pix_fmt = 64, 47, "bgr0"
        for _ in range(FRAMES):
            blocks = rng.integers(0, 255, (6, 8, 3), dtype=np.uint8)
            frames.append(blocks.repeat(8, axis=0).repeat(8, axis=1)[:47, :64])
            frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(frames[-1]), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path, frames


def test_frames_are_those_of_the_video(video, predictor):
    path, frames = video
    found = list(predict_frames(predictor, path))
    assert [frame.number for frame in found] == list(range(FRAMES))
    assert [frame.seconds for frame in found] == pytest.approx(np.arange(FRAMES) / 10)
    expected = predictor(frames)
    assert sum(map(len, expected)) > FRAMES
    for frame, pixels, one in zip(found, frames, expected, strict=True):
        assert np.array_equal(frame.pixels, pixels)
        assert np.allclose(frame.prediction.boxes, one.boxes, atol=1e-3)
        assert frame.prediction.labels.tolist() == one.labels.tolist()


def test_the_command_writes_lines_and_a_video(video, predictor, tmp_path, monkeypatch, capsys):
    path, frames = video
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe("shapes")
    save_weights(yolov5n(), to_plain(recipe), CLASSES, tmp_path / "best.safetensors")
    command = ["predict", str(path), "--weights", "best.safetensors", "--score", "0.1"]
    assert main([*command, "--out", "out"]) == 0
    expected = predictor(frames)
    lines = [json.loads(line) for line in (tmp_path / "out/blocks.jsonl").read_text().splitlines()]
    assert [line["frame"] for line in lines] == list(range(FRAMES))
    assert lines[7]["seconds"] == 0.7
    for line, one in zip(lines, expected, strict=True):
        assert [box["category_id"] for box in line["detections"]] == one.names
        assert [box["score"] for box in line["detections"]] == pytest.approx(
            one.scores.tolist(), abs=1e-4
        )
    total = sum(map(len, expected))
    assert f"{total:,} detections in {FRAMES} frames" in capsys.readouterr().out
    with av.open(str(tmp_path / "out/blocks.mp4")) as container:
        stream = container.streams.video[0]
        assert stream.average_rate == 10
        drawn = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    assert len(drawn) == FRAMES
    # The boxes are in the frames, despite the losses of the encoder.
    picture = np.asarray(expected[3].draw(frames[3])).astype(int)
    there = drawn[3].astype(int)[:47, :64]
    assert np.abs(there - picture).mean() < 0.5 * np.abs(there - frames[3].astype(int)).mean()
    assert main([*command, "--out", "lines", "--no-drawings"]) == 0
    assert [one.name for one in (tmp_path / "lines").iterdir()] == ["blocks.jsonl"]


def test_a_file_that_is_no_video(tmp_path, predictor):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(DataError, match=r"a\.mp4: cannot be decoded"):
        predict_video(predictor, tmp_path / "a.mp4", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))
    with pytest.raises(DataError, match="there is no such file"):
        list(predict_frames(predictor, tmp_path / "absent.mp4"))
