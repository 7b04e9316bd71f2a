"""The detector under torchvision's contract: training, detecting, batching."""

import pytest
import torch

from alphaiou import AlphaIoULoss
from alphaiou.detectors import DETECTORS, build_detector
from alphaiou.detectors.base import batch_images, batch_targets
from alphaiou.detectors.yolov5.network import ANCHORS, yolov5


def target(*boxes, label=0):
    boxes = torch.tensor(boxes, dtype=torch.float32).reshape(-1, 4)
    return {"boxes": boxes, "labels": torch.full((len(boxes),), label)}


def test_training_gives_losses_and_gradients():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 3, box_loss=AlphaIoULoss("ciou"))
    images = [torch.rand(3, 40, 64), torch.rand(3, 64, 50)]
    losses = model(images, [target((4, 4, 30, 30), (20, 8, 60, 36)), target()])
    assert list(losses) == ["box", "objectness", "class"]
    sum(losses.values()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
    assert all(head.weight.grad.abs().sum() > 0 for head in model.network.head)


def test_images_without_any_box_train():
    model = build_detector("yolov5n", 3)
    losses = model(torch.rand(2, 3, 64, 64), [target(), target()])
    assert losses["box"] == 0
    assert losses["class"] == 0
    sum(losses.values()).backward()


def test_targets_at_fixed_shapes_are_the_same():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 3)
    targets = [target((4, 4, 30, 30), label=1), target((9, 9, 60, 60), (0, 0, 12, 9), label=2)]
    images = torch.rand(2, 3, 64, 64)
    model(images, targets)  # the running means of batch norm do not enter in training
    expected, got = model(images, targets), model(images, batch_targets(targets, slots=11))
    for name, part in expected.items():
        assert got[name].item() == pytest.approx(part.item(), rel=1e-6)


@pytest.mark.slow
def test_overfits_one_box():
    torch.manual_seed(1)
    model = build_detector("yolov5n", 2, box_gain=0.5)
    image = torch.zeros(1, 3, 64, 64)
    image[..., 12:44, 20:52] = torch.tensor([0.9, 0.2, 0.1])[:, None, None]
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    for _ in range(100):
        optimizer.zero_grad()
        sum(model(image, [target((20, 12, 52, 44), label=1)]).values()).backward()
        optimizer.step()
        schedule.step()
    # With the means of this very batch: those that batch norm keeps need more steps than these.
    (best,) = model.postprocess(model.predict(model.network(image)), [(64, 64)])
    assert best["labels"][0] == 1
    assert best["boxes"][0].tolist() == pytest.approx([20, 12, 52, 44], abs=1)


@torch.no_grad()
def test_detections_are_in_their_image_and_sorted():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 4).eval()
    model.set_least_score(1e-7)
    for found, (height, width) in zip(
        model([torch.rand(3, 40, 64), torch.rand(3, 64, 50)]), [(40, 64), (64, 50)], strict=True
    ):
        assert 0 < len(found["boxes"]) <= 300
        assert len(found["boxes"]) == len(found["scores"]) == len(found["labels"])
        assert found["boxes"].min() >= 0
        assert found["boxes"][:, 2].max() <= width
        assert found["boxes"][:, 3].max() <= height
        assert (found["scores"].diff() <= 0).all()
        assert set(found["labels"].tolist()) <= set(range(4))


@torch.no_grad()
def test_prediction_decodes_as_published():
    """xy = 2σ − 0.5 + cell, wh = (2σ)²·anchor; the score is objectness times class."""
    model = build_detector("yolov5n", 2)
    outputs = [torch.zeros(1, 64 // s, 96 // s, 3, 7) for s in (8, 16, 32)]
    outputs[1][0, 2, 3, 1] = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, 0.0, 3.0])
    boxes, scores = model.predict(outputs)
    row = 8 * 12 * 3 + (2 * 6 + 3) * 3 + 1
    sigma = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, 0.0, 3.0], dtype=torch.float64).sigmoid()
    x, y = ((2 * sigma[i].item() - 0.5 + cell) * 16 for i, cell in ((0, 3), (1, 2)))
    w, h = ((2 * sigma[i].item()) ** 2 * side for i, side in ((2, 62), (3, 45)))
    assert boxes.shape == (1, 3 * (96 + 24 + 6), 4)
    assert boxes[0, row].tolist() == pytest.approx([x - w / 2, y - h / 2, x + w / 2, y + h / 2])
    assert scores[0, row].tolist() == pytest.approx((sigma[4] * sigma[5:]).tolist())


@torch.no_grad()
def test_bytes_are_numbers_from_0_to_1():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 2).eval()
    model.set_least_score(1e-7)
    image = torch.randint(256, (1, 3, 64, 64), dtype=torch.uint8)
    as_bytes, as_floats = model(image)[0], model([image[0] / 255])[0]
    torch.testing.assert_close(as_bytes["boxes"], as_floats["boxes"])


def test_batching_pads_with_grey_to_the_right_and_below():
    batch = batch_images([torch.ones(3, 20, 40), torch.zeros(3, 33, 10)], multiple=32)
    assert batch.shape == (2, 3, 64, 64)
    assert (batch[0, :, :20, :40] == 1).all()
    assert batch[0, :, 20:].unique().tolist() == pytest.approx([114 / 255])
    assert batch[1, :, :, 10:].unique().tolist() == pytest.approx([114 / 255])


def test_mixed_precision_trains():
    torch.manual_seed(0)
    model = build_detector("yolov5n", 3)
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(torch.rand(2, 3, 64, 64), [target((4, 4, 30, 30)), target()])
    assert all(loss.dtype == torch.float32 for loss in losses.values())
    sum(losses.values()).backward()


def test_anchors_are_saved_with_the_weights():
    anchors = torch.rand(3, 3, 2) * 50 + 1
    model = yolov5("yolov5n", 3, anchors=anchors)
    other = build_detector("yolov5n", 3)
    assert other.anchors.tolist() == [[list(map(float, a)) for a in layer] for layer in ANCHORS]
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.anchors, anchors)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: build_detector("yolov6", 3), f"detector must be one of {', '.join(DETECTORS)}"),
        (lambda: build_detector("yolov5n", 0), "num_classes must be at least 1, got 0"),
        (lambda: build_detector("yolov5n", 3)(torch.rand(1, 3, 32, 32)), "targets must be given"),
        (lambda: batch_targets([target((0, 0, 1, 1))], slots=0), "slots=0 is less than the 1"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()
