"""Detection from Python: what a predictor takes, and what its predictions convert to."""

import json

import numpy as np
import pytest
import supervision
import torch
from PIL import Image
from pycocotools.coco import COCO

import alphaiou
from alphaiou._config import to_plain
from alphaiou.data.dataset import load_dataset
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.data.problems import DataError
from alphaiou.detectors import fold_batch_norm
from alphaiou.inference.evaluation import detect
from alphaiou.inference.predictor import Predictor
from alphaiou.inference.weights import load_weights, save_weights
from tests.inference.responsive import yolov5n
from tests.training.runs import tiny_recipe, write_shapes

CLASSES = ("disc", "triangle", "star", "cross")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of several sizes with a detector that detects something everywhere."""
    folder = tmp_path_factory.mktemp("predictor")
    write_shapes(folder / "data", train=1, val=3)
    rng = np.random.default_rng(0)
    for number, (width, height) in enumerate([(64, 48), (31, 90), (120, 40)]):
        blocks = rng.integers(0, 255, (height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
        pixels = blocks.repeat(8, axis=0).repeat(8, axis=1)[:height, :width]
        Image.fromarray(pixels).save(folder / f"{number}.png")
    recipe = tiny_recipe("shapes")
    save_weights(yolov5n(), to_plain(recipe), CLASSES, folder / "best.safetensors")
    return folder


@pytest.fixture(scope="module")
def predictor(folder):
    return alphaiou.load_predictor(folder, score=0.1)


@pytest.fixture(scope="module")
def paths(folder):
    return sorted(folder.glob("*.png"))


def same(found, expected):
    assert len(found) == len(expected) > 0
    assert sum(map(len, expected)) > 10
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.boxes, other.boxes, atol=1e-3, rtol=0)
        torch.testing.assert_close(one.scores, other.scores, atol=1e-5, rtol=0)
        assert one.labels.tolist() == other.labels.tolist()


def test_detections_are_those_of_an_evaluation(folder, predictor):
    dataset = load_dataset(folder / "data", "val")
    trained = load_weights(folder)
    cache = build_cache(dataset, trained.image_size)
    folded = fold_batch_norm(trained.detector)
    expected = detect(folded, cache, torch.arange(len(dataset)), precision="fp32")
    found = predictor([folder / "data/images/val" / name for name in dataset.index.files])
    assert sum(len(one["scores"]) for one in expected) > 10
    for one, other in zip(found, expected, strict=True):
        kept = other["scores"] >= 0.1
        torch.testing.assert_close(one.boxes, other["boxes"][kept], atol=1e-3, rtol=0)
        torch.testing.assert_close(one.scores, other["scores"][kept], atol=1e-5, rtol=0)
        assert one.labels.tolist() == other["labels"][kept].tolist()
        assert one.highest == pytest.approx(other["scores"].max().item(), abs=1e-5)
        assert one.names == [CLASSES[label] for label in one.labels.tolist()]


def test_files_images_arrays_and_tensors_of_any_size(folder, paths, predictor):
    expected = predictor([str(path) for path in paths])
    assert [one.name for one in expected] == ["0.png", "1.png", "2.png"]
    assert [one.path for one in expected] == paths
    pictures = [Image.open(path) for path in paths]
    arrays = [np.asarray(picture) for picture in pictures]
    tensors = [torch.tensor(array).permute(2, 0, 1) for array in arrays]
    for images in (
        pictures,
        arrays,
        tensors,
        [tensor / 255 for tensor in tensors],
        [paths[0], pictures[1], arrays[2]],
        str(folder / "*.png"),
    ):
        same(predictor(images), expected)
    same(predictor([array[..., ::-1] for array in arrays], bgr=True), expected)
    assert [one.name for one in predictor([arrays[0], paths[1], arrays[2]])] == [0, "1.png", 2]
    for one, picture in zip(expected, pictures, strict=True):
        assert (one.boxes.amax(dim=0) <= torch.tensor([*picture.size] * 2) + 1e-3).all()


def test_colours_matter(paths, predictor):
    array = np.asarray(Image.open(paths[0]))
    rgb, bgr = predictor(array)[0], predictor(array, bgr=True)[0]
    assert abs(rgb.highest - bgr.highest) > 0.01


def test_a_batch_and_one_image(paths, predictor):
    array = np.asarray(Image.open(paths[0]))
    batch = np.stack([array, array[::-1]])
    expected = predictor(list(batch))
    same(predictor(batch), expected)
    same(predictor(torch.tensor(batch).permute(0, 3, 1, 2)), expected)
    same(predictor(array), expected[:1])
    same(predictor(paths[0]), expected[:1])
    assert predictor([]) == []


def test_more_images_than_a_batch(paths, predictor):
    arrays = [np.asarray(Image.open(path)) for path in paths] * 6
    found = predictor(arrays)
    assert len(found) == 18
    same(found[15:], predictor(arrays[:3]))


def test_a_photo_lies_as_it_was_taken(tmp_path, paths, predictor):
    """As of a file, the boxes of an opened photo are in the upright image."""
    picture = Image.open(paths[0])
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.rotate(90, expand=True).save(tmp_path / "turned.png", exif=exif)
    expected = predictor(picture)
    same(predictor(tmp_path / "turned.png"), expected)
    same(predictor(Image.open(tmp_path / "turned.png")), expected)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        ("absent.jpg", "absent.jpg: there is no such file"),
        (np.zeros((4, 4, 3), np.float32), "must be uint8 of shape"),
        (np.zeros((3, 4, 4), np.uint8), r"shape \(height, width, 3\), got uint8 of shape \(3, 4"),
        (np.zeros((0, 4, 3), np.uint8), "the image is empty"),
        (torch.zeros(4, 4, 3), r"of shape \(3, height, width\), got torch.float32"),
        (torch.zeros(3, 4, 4, dtype=torch.int64), "got torch.int64"),
        (torch.full((3, 4, 4), 255.0), "floats must be from 0 to 1; divide by 255"),
        (7, "is a int; give a path"),
    ],
)
def test_images_that_cannot_be_taken(predictor, image, message):
    with pytest.raises(DataError, match=message):
        predictor([image])


def test_a_file_that_is_no_image(tmp_path, paths, predictor):
    broken = tmp_path / "a.jpg"
    broken.write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a\.jpg: is not an image of a known format"):
        predictor([paths[0], broken])
    found = list(predictor.files([broken, paths[0]]))
    assert found[0].problem.startswith("is not an image")
    assert len(found[0]) == 0
    same(found[1:], predictor(paths[:1]))


def test_thresholds(folder, paths):
    loose = alphaiou.load_predictor(folder, score=0.0, nms=1.0)
    every = loose(paths)
    strict = alphaiou.load_predictor(folder, score=float(every[0].scores[2]), nms=1.0)
    assert len(strict(paths)[0]) == 3
    fewer = alphaiou.load_predictor(folder, score=0.0, nms=0.05)(paths)
    assert 0 < len(fewer[0]) < len(every[0])
    assert (loose.nms, loose.score, loose.image_size, loose.classes) == (1.0, 0.0, 64, CLASSES)
    default = alphaiou.load_predictor(folder, score=1.0)
    assert repr(default) == "Predictor(4 classes, image_size=64, score=1, nms=0.6, device='cpu')"
    assert len(default(paths)[0]) == 0
    assert default(paths)[0].highest == pytest.approx(every[0].scores[0].item())
    for wrong in ({"score": 1.1}, {"nms": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            alphaiou.load_predictor(folder, **wrong)


def test_supervision(paths, predictor):
    found = predictor(paths[0])[0]
    detections = found.to_supervision()
    assert isinstance(detections, supervision.Detections)
    assert len(detections) == len(found) > 0
    assert np.array_equal(detections.xyxy, found.boxes.numpy())
    assert np.array_equal(detections.confidence, found.scores.numpy())
    assert np.array_equal(detections.class_id, found.labels.numpy())
    assert detections["class_name"].tolist() == found.names
    empty = alphaiou.load_predictor(paths[0].parent, score=1.0)(paths[0])[0]
    assert len(empty.to_supervision()) == 0


def test_coco_results(tmp_path, folder, predictor):
    dataset = load_dataset(folder / "data", "val")
    categories = dataset.index.category_ids.tolist()
    results = [entry for one in predictor.dataset(dataset) for entry in one.to_coco(categories)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    truth = COCO(str(folder / "data/annotations/val.json"))
    assert len(truth.loadRes(str(tmp_path / "results.json")).anns) == len(results) > 10


def test_drawings(paths, predictor):
    found = predictor(paths[0])[0]
    drawing = np.asarray(found.draw())
    original = np.asarray(Image.open(paths[0]))
    assert drawing.shape == original.shape
    assert not np.array_equal(drawing, original)
    assert np.array_equal(np.asarray(found.draw(original)), drawing)
    assert np.array_equal(np.asarray(found.draw(original[..., ::-1], bgr=True)), drawing)
    with pytest.raises(ValueError, match="has no file"):
        predictor(original)[0].draw()


@pytest.mark.slow
def test_a_detector_without_nms():
    from alphaiou.detectors.detr.network import detr
    from alphaiou.inference.weights import TrainedDetector

    detector = detr(2, encoder_layers=1, decoder_layers=1).eval()
    trained = TrainedDetector(detector, ("a", "b"), {}, 64)
    with pytest.raises(ValueError, match="has no NMS"):
        Predictor(trained, nms=0.5)
    predictor = Predictor(trained, score=0.0)
    assert predictor.nms is None
    (found,) = predictor(torch.zeros(3, 40, 64, dtype=torch.uint8))
    assert len(found) == 100
