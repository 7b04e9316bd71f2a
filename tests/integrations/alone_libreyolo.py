"""LibreYOLO's YOLOv9 from random weights, and the box loss of its RF-DETR."""

import pytest
import torch

pytest.importorskip("libreyolo", reason="pip install 'libreyolo>=1.6'")
from libreyolo.models.rfdetr import box_ops
from libreyolo.models.yolo9 import loss as yolo9_loss
from libreyolo.models.yolo9.nn import LibreYOLO9Model

from alphaiou.integrations.libreyolo import restore_box_loss, use_box_loss

TARGETS = torch.tensor(
    [
        [[1, 0.1, 0.1, 0.5, 0.5], [2, 0.5, 0.3, 0.9, 0.9]],
        [[0, 0.2, 0.3, 0.8, 0.7], [0, 0.0, 0.0, 0.0, 0.0]],
    ]
)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LibreYOLO9Model(config="t", nb_classes=5).train()


def step(model):
    """The losses of one batch by name, and the largest gradient."""
    torch.manual_seed(0)
    model.zero_grad()
    losses = model(torch.rand(2, 3, 64, 64), targets=TARGETS)
    losses["total_loss"].backward()
    return {name: float(value) for name, value in losses.items()}


def test_ciou_changes_nothing_and_a_power_the_boxes_alone(model):
    own = step(model)
    assert own["box_loss"] > 0
    with use_box_loss("ciou") as handle:
        assert step(model) == pytest.approx(own, rel=1e-5)
        assert handle.called
    with use_box_loss("ciou:3"):
        changed = step(model)
    assert {name for name in own if changed[name] != own[name]} == {
        "box",
        "box_loss",
        "total_loss",
    }
    with use_box_loss("ciou:3", weight=2.0):
        assert step(model)["box_loss"] == pytest.approx(2 * changed["box_loss"], rel=1e-5)
    assert step(model) == own


def test_the_giou_of_rfdetr():
    target = torch.rand(50, 4).sort(-1).values
    pred = (target + 0.1 * torch.rand(50, 4)).requires_grad_()
    own = box_ops.paired_generalized_box_iou(pred, target)
    with use_box_loss("giou"):
        found = box_ops.paired_generalized_box_iou(pred, target)
    torch.testing.assert_close(found, own, rtol=1e-5, atol=1e-5)


def test_the_second_is_refused_and_all_comes_back():
    own = yolo9_loss.calculate_iou
    use_box_loss("ciou:3")
    with pytest.raises(ValueError, match=r"yolo9\.loss\.calculate_iou.* already"):
        use_box_loss("iou")
    restore_box_loss()
    assert yolo9_loss.calculate_iou is own
