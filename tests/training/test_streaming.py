"""Images that fit in no memory: the same training and the same scores, streamed."""

import pytest
import torch

from alphaiou.data.pipeline import cache as cache_memory
from alphaiou.data.pipeline.cache import TooLargeError, build_cache
from alphaiou.data.pipeline.stream import StreamedImages
from alphaiou.data.shapes.dataset import shapes_dataset
from alphaiou.detectors import build_detector
from alphaiou.inference.evaluation import evaluate
from alphaiou.training.loop import fit
from alphaiou.training.recipe import DataRecipe, Recipe
from alphaiou.training.setup import Execution, Report, box_sizes, box_slots

SIDE = 64


def tiny(**changes):
    settings = {"detector": "yolov5n", "image_size": SIDE, "batch_size": 4, "epochs": 1}
    data = DataRecipe("shapes", val=None, test=None)
    return Recipe(**(settings | {"precision": "fp32", "data": data, "subset": 0.004} | changes))


@pytest.mark.slow
def test_scores_are_those_of_the_cache():
    torch.manual_seed(0)
    dataset = shapes_dataset("val", size=SIDE, length=7)
    detector = build_detector("yolov5n", 12).eval()
    for head in detector.network.head:  # objectness that finds something in an untrained network
        head.bias.data.view(3, -1)[:, 4] += 4.0
    options = {"rule": "coco", "precision": "fp32", "batch_size": 3}
    cached = evaluate(detector, dataset.index, build_cache(dataset, SIDE), **options)
    streamed = evaluate(detector, dataset.index, StreamedImages(dataset, SIDE, 0), **options)
    assert cached.num_detections == streamed.num_detections > 0
    assert cached.as_dict() == pytest.approx(streamed.as_dict(), nan_ok=True)


@pytest.mark.slow
def test_what_fits_nowhere_is_streamed_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_memory, "free_memory", lambda _: 1000.0)
    notes = []
    record = fit(
        tiny(),
        tmp_path,
        execution=Execution(device="cpu", workers=0),
        report=Report(note=notes.append),
    )
    assert len(record["history"]) == 1
    assert any("train is streamed" in note for note in notes)
    with pytest.raises(TooLargeError, match="image_size"):
        fit(tiny(seed=1), tmp_path, execution=Execution(device="cpu", images="memory"))


def test_sizes_and_slots_come_from_the_index():
    index = shapes_dataset("train", size=128, length=9).index
    sizes = torch.from_numpy(box_sizes(index, SIDE))
    cache = build_cache(shapes_dataset("train", size=128, length=9), SIDE)
    there = torch.arange(cache.boxes.shape[1]) < cache.counts[:, None]
    cached = (cache.boxes[..., 2:] - cache.boxes[..., :2])[there]
    torch.testing.assert_close(sizes.float(), cached, rtol=0.02, atol=0.5)
    most = int(cache.counts.max())
    assert box_slots(index, tiny(batch_size=64)) == min(4 * most * 64, int(8 * 64 * 33 / 9))
    assert box_slots(index, tiny(batch_size=1)) == 4 * most
