"""Score threshold, NMS and limits, against torchvision image by image."""

import pytest
import torch
from torchvision.ops import batched_nms, clip_boxes_to_image

from alphaiou.detectors import base
from alphaiou.detectors.base import PostProcess


def random_predictions(batch=5, count=150, classes=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    corner = torch.rand(batch, count, 2, generator=generator) * 180 - 20
    sides = torch.rand(batch, count, 2, generator=generator) * 90 + 1
    scores = torch.rand(batch, count, classes, generator=generator) ** 4
    return torch.cat([corner, corner + sides], dim=-1), scores


def reference(boxes, scores, settings, size):
    place, label = (scores > settings.score_threshold).nonzero(as_tuple=True)
    score, box = scores[place, label], boxes[place]
    best = score.argsort(descending=True, stable=True)[: settings.max_candidates]
    score, box, label = score[best], box[best], label[best]
    kept = batched_nms(box, score, label, settings.nms_threshold)[: settings.max_detections]
    return clip_boxes_to_image(box[kept], size), score[kept], label[kept]


@pytest.mark.parametrize("first", [3, 60, 100_000])
@pytest.mark.parametrize(
    "settings",
    [
        PostProcess(),
        PostProcess(0.3, 0.5, max_detections=7),
        PostProcess(0.05, 0.3, max_candidates=40),
        PostProcess(0.99999),
    ],
)
def test_is_that_of_each_image_alone(settings, first, monkeypatch):
    monkeypatch.setattr(base, "FIRST_CANDIDATES", first)
    boxes, scores = random_predictions()
    scores[2] = 0.0  # an image without candidates among the others
    sizes = [(150, 200)] * 5
    for image, found in enumerate(settings((boxes, scores), sizes)):
        expected = reference(boxes[image], scores[image], settings, sizes[image])
        for mine, theirs in zip(found.values(), expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


def test_nothing_found_is_empty():
    boxes, scores = random_predictions(batch=2)
    found = PostProcess(1.0)((boxes, scores), [(150, 200)] * 2)
    assert [tuple(one["boxes"].shape) for one in found] == [(0, 4), (0, 4)]
    assert found[0]["labels"].dtype == torch.int64


def test_one_box_counts_for_several_classes():
    boxes = torch.tensor([[[1.0, 1.0, 9.0, 9.0]]])
    found = PostProcess(0.1)((boxes, torch.tensor([[[0.5, 0.05, 0.7]]])), [(10, 10)])[0]
    assert found["labels"].tolist() == [2, 0]
    assert found["scores"].tolist() == pytest.approx([0.7, 0.5])
