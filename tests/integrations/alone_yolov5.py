"""YOLOv5 of the package, called as its documentation says; nothing of it is looked into."""

import os
import tempfile
from pathlib import Path

import pytest
import torch

from alphaiou import alpha_iou_loss, convert_boxes

os.environ |= {
    "YOLO_CONFIG_DIR": tempfile.mkdtemp(prefix="ultralytics-"),
    "YOLO_OFFLINE": "true",
    "YOLO_AUTOINSTALL": "false",
}
yolov5 = pytest.importorskip("yolov5", reason="pip install 'yolov5>=7.0'")
from yolov5.models.yolo import Model
from yolov5.utils import loss as yolo_loss
from yolov5.utils.metrics import bbox_iou

from alphaiou.integrations.yolov5 import restore_box_loss, use_box_loss

HYPERPARAMETERS = {"box": 0.05, "obj": 1.0, "cls": 0.5, "cls_pw": 1.0, "obj_pw": 1.0} | {
    "fl_gamma": 0.0,
    "anchor_t": 4.0,
    "label_smoothing": 0.0,
}
TARGETS = torch.tensor(
    [[0, 1, 0.5, 0.5, 0.4, 0.4], [0, 2, 0.3, 0.3, 0.3, 0.2], [1, 0, 0.6, 0.5, 0.5, 0.3]]
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = Model(f"{Path(yolov5.__file__).parent}/models/yolov5n.yaml", ch=3, nc=5).train()
    model.hyp = HYPERPARAMETERS
    return model


def step(model, targets=TARGETS):
    """The three losses, boxes, objectness and classes, and the gradient of one weight."""
    torch.manual_seed(0)
    model.zero_grad()
    total, parts = yolo_loss.ComputeLoss(model)(model(torch.rand(2, 3, 64, 64)), targets)
    total.sum().backward()
    return parts.detach(), model.model[-1].m[0].weight.grad.clone()


def test_ciou_with_its_own_objectness_changes_nothing(model):
    own = step(model)
    with use_box_loss("ciou", objectness_from_loss=True) as handle:
        torch.testing.assert_close(step(model), own, rtol=1e-4, atol=1e-6)
        assert handle.called
    assert torch.equal(step(model)[0], own[0])


def test_the_objectness_learns_the_plain_iou_whatever_the_power(model):
    own, _ = step(model)
    objectness = []
    for text in ("ciou", "ciou:3", "iou:5"):
        with use_box_loss(text):
            parts, gradient = step(model)
        objectness.append(parts[1])
        assert gradient.isfinite().all()
        assert torch.equal(parts[2], own[2])
    assert torch.equal(objectness[0], objectness[1])
    assert torch.equal(objectness[1], objectness[2])
    with use_box_loss("iou", objectness_from_loss=True):
        torch.testing.assert_close(step(model)[0][1], objectness[0])
    with use_box_loss("iou:5", objectness_from_loss=True):
        assert step(model)[0][1] < objectness[0]


def test_power_and_weight_reach_the_box_loss_alone(model):
    with use_box_loss("ciou:3"):
        once, _ = step(model)
    with use_box_loss("ciou:3", weight=2.0):
        twice, _ = step(model)
    torch.testing.assert_close(twice, once * torch.tensor([2.0, 1.0, 1.0]))


def test_no_objects_give_a_loss_without_a_call(model):
    with use_box_loss("ciou:3") as handle:
        parts, gradient = step(model, TARGETS[:0])
        assert (parts[0], handle.called) == (0, False)
    assert gradient.isfinite().all()


def test_values_are_those_of_yolov5():
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(50, 4, generator=generator) + 0.5
    pred = target + 0.1 * torch.rand(50, 4, generator=generator)
    own = bbox_iou(pred, target, CIoU=True)
    with use_box_loss("ciou"):
        found = yolo_loss.bbox_iou(pred, target, CIoU=True)
        assert found.squeeze().shape == (50,)
    assert found.shape == own.shape
    torch.testing.assert_close((1.0 - found).mean(), (1.0 - own).mean(), rtol=1e-5, atol=1e-6)
    corners = [convert_boxes(boxes, "cxcywh", "xyxy") for boxes in (pred, target)]
    iou = 1 - alpha_iou_loss(*corners, alpha=1.0)
    torch.testing.assert_close(found.squeeze().detach(), iou)


def test_the_second_is_refused_and_all_comes_back():
    own = yolo_loss.bbox_iou
    use_box_loss("ciou:3")
    with pytest.raises(ValueError, match=r"yolov5\.utils\.loss\.bbox_iou already"):
        use_box_loss("iou")
    restore_box_loss()
    assert yolo_loss.bbox_iou is own
