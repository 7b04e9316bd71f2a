"""Exported detectors: their detections are those of the detector, in order."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torchvision.ops import batched_nms, box_iou

from alphaiou._config import to_plain
from alphaiou.cli import main
from alphaiou.data.dataset import load_dataset
from alphaiou.data.images import decode_image
from alphaiou.data.pipeline.decoding import fit_image
from alphaiou.detectors.base import batch_targets
from alphaiou.detectors.ops.nms import keep_best
from alphaiou.inference.export import (
    METADATA,
    PRECISIONS,
    ExportError,
    ExportOptions,
    export_detector,
    export_program,
    keep_best_of_all,
    metadata,
    write_program,
)
from alphaiou.inference.predictor import Predictor, for_inference
from alphaiou.inference.weights import TrainedDetector, load_weights, save_weights
from alphaiou.training.recipes import RECIPES
from tests.inference import responsive

CLASSES = ("disc", "triangle", "star", "cross")
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "examples/onnx_numpy.py"
PHOTOS = ROOT / "../shared/data/coco256/images"
SIDE = 64
#: The least size of files that take several.
LEAST = 96
FORMATS = ("pt2", "onnx")  # in this order, as write_program wants it
#: The minimum scores, at which images have some detections each.
SCORES = {"yolov5": 0.01, "faster_rcnn": 0.4, "detr": 0.35}
#: Random weights have detections whose scores differ by less than fp32 is precise; a runtime that
#: adds in another order may return these in another order.
TIES = {"yolov5": 0.0, "faster_rcnn": 1e-5, "detr": 1e-5}


@pytest.fixture(scope="session")
def trained_yolov5n():
    """YOLOv5n, trained on eight drawn images."""
    torch.manual_seed(0)
    recipe = RECIPES["quick"]()
    detector = recipe.detector.build(len(CLASSES), recipe.loss.module())
    dataset = load_dataset(f"shapes-plain-{SIDE}", "train")
    drawn = [dataset[row] for row in range(40)]
    square = [pair for pair in drawn if pair[0].shape == (3, SIDE, SIDE)][:8]
    images = torch.stack([pixels for pixels, _ in square])
    targets = batch_targets([target for _, target in square])
    for norm in detector.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.momentum = 0.1  # the training is too short for slower statistics
    steps, lr = 150, 5e-3
    optimizer = torch.optim.AdamW(detector.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        sum(detector(images, targets).values()).backward()
        optimizer.step()
        schedule.step()
    return detector.eval()


@torch.no_grad()
def faster_rcnn():
    """A random Faster R-CNN that moves boxes about as far as a trained one.

    Further, fp32 differs by more than 0.001 px from one runtime to another.
    """
    detector = responsive.faster_rcnn()
    detector.rpn.head.bbox_pred.weight *= 0.1
    detector.roi_heads.box_predictor.bbox_pred.weight *= 0.25
    return detector


class Exported:
    """A detector of this package and its two files, of any batch and image size."""

    def __init__(self, name, detector, folder):
        self.name = name
        self.trained = TrainedDetector(detector, CLASSES, {"detector": {"name": name}}, LEAST)
        self.options = ExportOptions(
            score=SCORES[name], dynamic_batch=True, dynamic_size=True, candidates=512
        )
        self.detector = for_inference(self.trained.detector, score=SCORES[name])
        self.facts = metadata(self.trained, self.options)
        program = export_program(self.trained, self.options)
        self.paths = {kind: folder / f"{name}.{kind}" for kind in FORMATS}
        for kind, path in self.paths.items():
            write_program(program, path, self.facts | {"format": kind})
        self.session = onnxruntime.InferenceSession(self.paths["onnx"])
        self.module = torch.export.load(self.paths["pt2"]).module()

    def run(self, kind, images):
        if kind == "onnx":
            outputs = self.session.run(None, {"images": images.numpy()})
            return [torch.from_numpy(output) for output in outputs]
        with torch.no_grad():
            return list(self.module(images))

    @torch.no_grad()
    def expected(self, images):
        return self.detector(images)

    def assert_same(self, kind, images):
        """Compare the detections of a file with ours, in order; return their number."""
        tie = TIES[self.name] if kind == "onnx" else 0.0
        return assert_same(self.run(kind, images), self.expected(images), tie=tie)


@pytest.fixture(scope="session", params=SCORES)
def exported(request, tmp_path_factory):
    if request.param == "yolov5":
        detector = request.getfixturevalue("trained_yolov5n")
    else:
        detector = {"faster_rcnn": faster_rcnn, "detr": responsive.detr}[request.param]()
    return Exported(request.param, detector, tmp_path_factory.mktemp("export"))


def drawn_images(count, height, width):
    """Images of the drawn set in a frame of grey."""
    dataset = load_dataset(f"shapes-plain-{SIDE}", "val")
    images = torch.full((count, 3, height, width), 114, dtype=torch.uint8)
    for number in range(count):
        pixels = dataset[number][0][:, :height, :width]
        images[number, :, : pixels.shape[1], : pixels.shape[2]] = pixels
    return images


def assert_same(outputs, expected, *, tie=0.0):
    """Compare padded outputs with detections, in order; return the number of detections.

    Detections whose scores differ by at most ``tie`` may change places, and no others.
    """
    boxes, scores, labels = outputs
    assert labels.dtype == torch.int64
    for image, one in enumerate(expected):
        count = len(one["scores"])
        assert (scores[image] > 0).tolist() == [True] * count + [False] * (len(scores[0]) - count)
        assert not boxes[image, count:].any()
        assert set(labels[image, count:].tolist()) <= {-1}
        same = (one["scores"][:, None] - one["scores"]).abs() <= tie
        same |= torch.eye(count, dtype=torch.bool)
        same &= (boxes[image, :count] - one["boxes"][:, None]).abs().amax(-1) <= 1e-3
        same &= (scores[image, :count] - one["scores"][:, None]).abs() <= 1e-4
        same &= labels[image, :count] == one["labels"][:, None]
        ours, theirs = linear_sum_assignment(same.numpy(), maximize=True)
        assert same[ours, theirs].all(), f"image {image}: {same.any(1).logical_not().nonzero()}"
    return sum(len(one["scores"]) for one in expected)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_any_batch_and_size(exported, kind):
    found = 0
    for count, height, width in [(1, 96, 96), (3, 96, 96), (3, 96, 128), (1, 160, 96)]:
        found += exported.assert_same(kind, drawn_images(count, height, width))
    assert found > 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_fifty_photos(exported, kind):
    if not PHOTOS.is_dir():
        pytest.skip(f"{PHOTOS} with real images is not here")
    paths = sorted(PHOTOS.rglob("*.webp"))[:50]
    squares = [fit_image(decode_image(path.read_bytes()), LEAST).pixels for path in paths]
    found = 0
    for batch in torch.split(torch.stack(squares).permute(0, 3, 1, 2), 25):
        found += exported.assert_same(kind, batch)
    assert found > 50


@pytest.mark.slow
def test_metadata(exported):
    properties = exported.session.get_modelmeta().custom_metadata_map
    assert json.loads(properties["names"]) == {
        "0": "disc",
        "1": "triangle",
        "2": "star",
        "3": "cross",
    }
    for name in ("score", "nms_threshold", "image_size", "dynamic_size"):
        assert json.loads(properties[name]) == exported.facts[name]
    extra = {METADATA: ""}
    torch.export.load(exported.paths["pt2"], extra_files=extra)
    stored = json.loads(extra[METADATA])
    assert stored == json.loads(json.dumps(exported.facts | {"format": "pt2"}))


@pytest.mark.slow
def test_an_image_without_detections(tmp_path):
    """The file takes one image of the training size, and all slots are empty."""
    trained = TrainedDetector(responsive.yolov5n(), CLASSES, {}, SIDE)
    images = drawn_images(1, SIDE, SIDE)
    path = export_detector(trained, tmp_path / "a.onnx", ExportOptions(score=1.0, candidates=64))
    session = onnxruntime.InferenceSession(path)
    assert [tensor.shape for tensor in session.get_inputs()] == [[1, 3, SIDE, SIDE]]
    boxes, scores, labels = session.run(None, {"images": images.numpy()})
    assert boxes.shape == (1, 64, 4)
    assert not boxes.any()
    assert not scores.any()
    assert (labels == -1).all()


@pytest.mark.slow
def test_the_command_and_the_program_of_ten_lines(trained_yolov5n, tmp_path, capsys):
    """examples/onnx_numpy.py prints the detections of the predictor, and imports no torch."""
    recipe = replace(RECIPES["quick"](), image_size=SIDE)
    save_weights(trained_yolov5n, to_plain(recipe), CLASSES, tmp_path / "best.safetensors")
    score = SCORES["yolov5"]
    assert main(["export", str(tmp_path), "--score", str(score)]) == 0
    assert "best.onnx (" in capsys.readouterr().out
    # Of this size, which needs no resizing, all programs see the same pixels.
    image = drawn_images(1, 40, SIDE)[0].permute(1, 2, 0).contiguous().numpy()
    np.save(tmp_path / "photo.npy", image)
    code = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "assert not {'torch', 'alphaiou', 'PIL'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", code, PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (expected,) = Predictor(load_weights(tmp_path / "best.safetensors"), score=score)(image)
    assert len(expected) > 0
    found = torch.tensor(json.loads(done.stdout), dtype=torch.float32)
    assert found[:, 0].tolist() == expected.labels.tolist()
    torch.testing.assert_close(found[:, 1], expected.scores, atol=1e-4, rtol=0)
    # The program does not clip boxes to the image, of which the padding shows nothing.
    boxes = found[:, 2:].clamp(min=0).minimum(torch.tensor([SIDE, 40, SIDE, 40]))
    torch.testing.assert_close(boxes, expected.boxes, atol=1e-3, rtol=0)


@pytest.mark.slow
def test_smaller_weights(trained_yolov5n, tmp_path):
    """fp16 and int8 files are smaller, and their scores near to those of fp32."""
    trained = TrainedDetector(trained_yolov5n, CLASSES, {}, SIDE)
    images = drawn_images(1, SIDE, SIDE).numpy()
    program = export_program(trained, ExportOptions(nms=False))
    results, sizes = {}, {}
    for precision in PRECISIONS:
        path = tmp_path / f"{precision}.onnx"
        write_program(
            program, path, metadata(trained, ExportOptions(precision=precision, nms=False))
        )
        results[precision] = onnxruntime.InferenceSession(path).run(None, {"images": images})
        sizes[precision] = path.stat().st_size
    with torch.no_grad():
        expected = trained.detector.predictions(torch.from_numpy(images))
    for one, other in zip(results["fp32"], expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(one), other, atol=1e-3, rtol=0)
    assert sizes["fp16"] < 0.6 * sizes["fp32"]
    assert sizes["int8"] < 0.4 * sizes["fp32"]
    highest = results["fp32"][1].max()
    for precision, error in (("fp16", 0.02), ("int8", 0.2)):
        difference = np.abs(results[precision][1] - results["fp32"][1])
        assert 0 < difference.max() < error * highest


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_smaller_weights_with_nms(trained_yolov5n, precision, tmp_path):
    """The best detection of an image that the detector was trained on is that of the detector."""
    trained = TrainedDetector(trained_yolov5n, CLASSES, {}, SIDE)
    options = ExportOptions(precision=precision, score=SCORES["yolov5"], candidates=512)
    path = export_detector(trained, tmp_path / "a.onnx", options)
    pixels = load_dataset(f"shapes-plain-{SIDE}", "train")[0][0]
    images = fit_image(pixels, SIDE).pixels.permute(2, 0, 1)[None]
    (boxes,), (scores,), (labels,) = onnxruntime.InferenceSession(path).run(
        None, {"images": images.numpy()}
    )
    with torch.no_grad():
        (expected,) = for_inference(trained.detector, score=SCORES["yolov5"])(images)
    assert labels[0] == expected["labels"][0]
    assert abs(scores[0] - expected["scores"][0]) < 0.1
    overlap = box_iou(torch.from_numpy(boxes[:1]), expected["boxes"][:1])
    assert overlap > 0.9


def test_one_call_of_nms_solves_many_problems():
    generator = torch.Generator().manual_seed(0)
    corner, sides = torch.rand(2, 3, 200, 2, generator=generator) * 50
    boxes = torch.cat([corner, corner + sides], dim=-1)
    groups = torch.randint(4, (3, 200), generator=generator)
    valid = torch.rand(3, 200, generator=generator) < 0.7
    kept = keep_best_of_all(boxes, groups, valid, 0.5)
    assert torch.equal(kept, keep_best(boxes, groups, valid, 0.5))
    for problem in range(3):
        rows = valid[problem].nonzero().flatten()
        ranks = torch.arange(len(rows), 0, -1).double()
        own = batched_nms(boxes[problem, rows].double(), ranks, groups[problem, rows], 0.5)
        assert kept[problem].nonzero().flatten().tolist() == sorted(rows[own].tolist())
    assert 0.2 < kept.sum() / valid.sum() < 0.9
    nothing = torch.zeros_like(valid)
    assert not keep_best_of_all(boxes, groups, nothing, 0.5).any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "onnx", "score": 1.5}, "score must be from 0 to 1"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"format": "pt2", "precision": "int8"}, "use fp32 for pt2"),
        ({"format": "tflite"}, "onnx, pt2"),
    ],
)
def test_options_that_cannot_be_exported(options, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(**options)


def test_options_that_detr_does_not_support():
    trained = TrainedDetector(responsive.detr(), CLASSES, {}, SIDE)
    with pytest.raises(ExportError, match="has no NMS"):
        export_program(trained, ExportOptions(nms_threshold=0.5))
    with pytest.raises(ExportError, match="int8 is for YOLOv5; use fp32 for DETR"):
        export_program(trained, ExportOptions(precision="int8"))


def test_the_command_rejects(tmp_path, capsys):
    assert main(["export", str(tmp_path), "--format", "pt2"]) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main(["export", str(tmp_path), "--precision", "fp16", "--format", "pt2"]) == 1
    assert "use fp32 for pt2" in capsys.readouterr().err
