"""RF-DETR of the real package, trained from random weights on drawn images."""

from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch.nn.functional import interpolate

from alphaiou import AlphaIoULoss, convert_boxes, load_dataset, quality_loss
from alphaiou.losses import QUALITY_LOSSES

pytest.importorskip("rfdetr", reason="RF-DETR is not installed: pip install 'rfdetr>=1.11'")
from alphaiou.integrations._patching import UnsupportedVersionError
from alphaiou.integrations.rfdetr import NAME, restore_box_loss, use_box_loss, use_quality_loss

# isort: split
from rfdetr.config import RFDETRNanoConfig, TrainConfig
from rfdetr.models import build_criterion_from_config, build_model_from_config, lwdetr
from rfdetr.models import criterion as criteria
from rfdetr.utilities import box_ops
from rfdetr.utilities.tensors import NestedTensor

SIDE = 64
CONFIG = {
    "num_classes": 12,
    "pretrain_weights": "none.pth",  # is not read here: the weights are random
    "device": "cpu",
    "resolution": SIDE,
    "positional_encoding_size": SIDE // 16,
    "num_queries": 12,
    "num_select": 12,
    "group_detr": 2,
    "out_feature_indexes": [1, 2],
}
OWN = box_ops.elementwise_generalized_box_iou


@pytest.fixture(autouse=True)
def own_loss_at_the_end():
    yield
    restore_box_loss()
    assert box_ops.elementwise_generalized_box_iou is OWN
    assert lwdetr.SetCriterion is criteria.SetCriterion


@cache
def batches(count=4, size=2):
    """Drawn images, and targets as the criterion takes them."""
    dataset, found = load_dataset("shapes", "train"), []
    for step in range(count):
        rows = [dataset[step * size + i] for i in range(size)]
        images = [interpolate(image[None] / 255, size=(SIDE, SIDE)) for image, _ in rows]
        targets = [
            {
                "boxes": convert_boxes(target["boxes"], "xyxy", "cxcywh") / image.shape[-1],
                "labels": target["labels"],
            }
            for image, target in rows
        ]
        mask = torch.zeros(size, SIDE, SIDE, dtype=torch.bool)
        found.append((NestedTensor(torch.cat(images), mask), targets))
    return found


def build(**changes):
    torch.manual_seed(0)
    configs = RFDETRNanoConfig(**CONFIG | changes), TrainConfig(dataset_dir=".", output_dir=".")
    return build_model_from_config(*configs).train(), build_criterion_from_config(*configs)[0]


def train(box_loss=None, quality=None, **options):
    """The losses of each step of a training, by name."""
    with nullcontext() if quality is None else use_quality_loss(quality):
        model, criterion = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    steps = []
    with nullcontext() if box_loss is None else use_box_loss(box_loss, **options):
        for images, targets in batches():
            losses = criterion(model(images, targets), targets)
            total = sum(losses[name] * factor for name, factor in criterion.weight_dict.items())
            optimizer.zero_grad()
            total.backward()
            optimizer.step()
            steps.append({name: loss.item() for name, loss in losses.items()})
    return steps


@pytest.fixture(scope="module")
def own_steps():
    return train()


def test_a_training_with_giou_is_the_one_it_was(own_steps):
    for ours, own in zip(train("giou"), own_steps, strict=True):
        assert ours == pytest.approx(own, rel=1e-5, abs=1e-6)


def test_another_loss_changes_every_giou_and_in_the_first_step_nothing_else(own_steps):
    steps = train("giou:3")
    changed = {name for name, loss in steps[0].items() if loss != own_steps[0][name]}
    assert changed == {name for name in own_steps[0] if name.startswith("loss_giou")}
    assert len(changed) == 3  # the last layer, the auxiliary one, the encoder
    assert steps[-1]["loss_bbox"] != own_steps[-1]["loss_bbox"]


def outputs_and_targets():
    """Outputs whose boxes have a gradient of their own."""
    generator = torch.Generator().manual_seed(1)
    boxes = 0.2 + 0.6 * torch.rand(2, 12, 4, generator=generator)
    logits = torch.randn(2, 12, 12, generator=generator)
    outputs = {"pred_boxes": boxes.requires_grad_(), "pred_logits": logits}
    return outputs, batches()[0][1]


def test_value_weight_and_gradient_are_those_of_the_loss():
    _, criterion = build(group_detr=1)
    outputs, targets = outputs_and_targets()
    indices = criterion.matcher(outputs, targets, group_detr=1)
    pred = torch.cat([outputs["pred_boxes"][i, s] for i, (s, _) in enumerate(indices)])
    target = torch.cat([t["boxes"][c] for t, (_, c) in zip(targets, indices, strict=True)])
    loss = AlphaIoULoss("diou", 3.0, box_format="cxcywh", reduction="sum")
    expected = 2 * loss(pred, target) / len(target)
    with use_box_loss("diou:3", weight=2.0):
        found = criterion(outputs, targets)["loss_giou"]
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(v, outputs["pred_boxes"])[0] for v in (found, expected)]
    torch.testing.assert_close(*gradients)


def test_no_boxes_and_bfloat16():
    _, criterion = build(group_detr=1)
    outputs, targets = outputs_and_targets()
    none = [{"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}] * 2
    with use_box_loss("ciou:3"):
        empty = criterion(outputs, none)["loss_giou"]
        assert empty == 0
        assert torch.autograd.grad(empty, outputs["pred_boxes"])[0].abs().sum() == 0
        with torch.autocast("cpu", torch.bfloat16):
            outputs["pred_boxes"] = outputs["pred_boxes"].bfloat16()
            assert criterion(outputs, targets)["loss_giou"].isfinite()


def test_the_losses_it_compiles_take_the_loss_too():
    """What RF-DETR compiles when it is told to; the graph alone, without code for a processor."""
    boxes = torch.rand(2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    arguments = (
        torch.zeros(2, 2, 5, 12),
        boxes,
        torch.tensor([[0, 1], [0, 1]]),
        torch.tensor([[3, 4], [2, 0]]),
        torch.tensor([[7, 1], [7, 1]]),
        boxes.flip(0)[:, 0, :2],
        torch.ones(2, 2),
        torch.tensor([1, 1]),
        torch.tensor(2.0),
        0.25,
    )
    function = criteria._batched_detection_loss_tensors
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    before = compiled(*arguments)
    with use_box_loss("giou:3"):
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
        assert not torch.equal(compiled(*arguments)[2], before[2])
    torch.testing.assert_close(compiled(*arguments), before)


def test_it_says_what_it_changed_and_the_second_is_refused():
    handle = use_box_loss(AlphaIoULoss("giou", 3.0), weight=2.0)
    assert repr(handle).endswith(f"penalty_alpha=None) × 2 in rfdetr.utilities.box_ops.{NAME}>")
    with pytest.raises(ValueError, match="already has a box loss"):
        use_box_loss("iou")
    handle.restore()
    assert box_ops.elementwise_generalized_box_iou is OWN


def test_a_version_without_the_place_is_refused(monkeypatch):
    with monkeypatch.context() as patch:
        patch.delattr(box_ops, NAME)
        with pytest.raises(UnsupportedVersionError, match=r"box_ops.*knows rfdetr 1\.11"):
            use_box_loss("giou")


# --- quality losses -------------------------------------------------------------------------------


def test_a_training_with_ia_bce_is_the_one_it_was(own_steps):
    for ours, own in zip(train(quality="ia_bce"), own_steps, strict=True):
        assert ours == pytest.approx(own, rel=1e-4, abs=1e-5)


def test_another_quality_loss_changes_every_class_loss_and_in_the_first_step_nothing_else(
    own_steps,
):
    steps = train(quality="mal:2")
    changed = {name for name, loss in steps[0].items() if loss != own_steps[0][name]}
    assert changed == {name for name in own_steps[0] if name.startswith("loss_ce")}
    assert len(changed) == 3
    both = train("giou:3", quality="mal:2")
    changed = {name for name, loss in both[0].items() if loss != own_steps[0][name]}
    assert changed == {name for name in own_steps[0] if name.startswith(("loss_ce", "loss_giou"))}


def test_objects_that_only_fill_up_do_not_count():
    """RF-DETR pads the objects of a batch to a fixed number and marks those that are real."""
    _, own = build(group_detr=1)
    with use_quality_loss("ia_bce"):
        _, criterion = build(group_detr=1)
    outputs, targets = outputs_and_targets()
    padded = []
    for target in targets:
        count = len(target["labels"])
        filler = torch.full((8 - count, 4), 0.5), torch.zeros(8 - count, dtype=torch.int64)
        padded.append(
            {
                "boxes": torch.cat([target["boxes"], filler[0]]),
                "labels": torch.cat([target["labels"], filler[1]]),
                "valid": torch.arange(8) < count,
            }
        )
    indices = criterion.matcher(outputs, padded, group_detr=1)
    # On CUDA, what computes all layers at once with IA-BCE inside serves this very class alone.
    assert type(criterion) is not criteria.SetCriterion
    arguments = outputs, padded, indices, torch.tensor(3.0)
    assert criterion._matched_valid_mask(padded, indices) is not None
    found, expected = (each.loss_labels(*arguments) for each in (criterion, own))
    torch.testing.assert_close(found, expected)


def test_vfl_and_qfl_are_those_that_rfdetr_has():
    """Its varifocal loss differentiates p^γ; its position-supervised one is QFL without a share."""
    generator = torch.Generator().manual_seed(3)
    logits = (3 * torch.randn(2, 9, 5, generator=generator)).requires_grad_()
    iou = torch.rand(2, 9, 5, generator=generator) * (
        torch.rand(2, 9, 5, generator=generator) < 0.3
    )
    free = replace(QUALITY_LOSSES["vfl"], hold_weight=False)
    for kind, theirs in (
        (free, criteria.sigmoid_varifocal_loss(logits, iou, torch.tensor(4.0))),
        ("qfl", criteria.position_supervised_loss(logits, iou, torch.tensor(4.0), alpha=-1)),
    ):
        ours = quality_loss(logits, iou, kind=kind, reduction="mean", avg_factor=4.0 * 9)
        torch.testing.assert_close(ours, theirs)
        gradients = [torch.autograd.grad(loss, logits)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(*gradients)


def test_a_quality_loss_says_what_it_changed_and_the_second_is_refused():
    handle = use_quality_loss("vfl:2", weight=3.0)
    place = "rfdetr.models.lwdetr.SetCriterion"
    assert repr(handle) == f"<QualityLoss(kind='vfl', alpha=2.0, gamma=2.0) × 3 in {place}>"
    with pytest.raises(ValueError, match="already has"):
        use_quality_loss("vfl")
    handle.restore()
    assert lwdetr.SetCriterion is criteria.SetCriterion
