"""The loss in MMEngine's registry, as a configuration of MMDetection names and calls it."""

import subprocess
import sys

import pytest
import torch
from torch.nn.functional import interpolate
from torchvision.ops import complete_box_iou_loss, distance_box_iou_loss, generalized_box_iou_loss

from alphaiou import alpha_iou_loss, load_dataset

pytest.importorskip("mmengine", reason="MMEngine is not installed: pip install 'mmengine>=0.10'")
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS, Registry
from mmengine.runner import Runner

from alphaiou.integrations.mmengine import AlphaIoULoss
from alphaiou.oriented import set_angle_range

TRUTH = {
    "giou": generalized_box_iou_loss,
    "diou": distance_box_iou_loss,
    "ciou": complete_box_iou_loss,
}


def pairs(count=20):
    generator = torch.Generator().manual_seed(count)
    corner, size = (50 * torch.rand(count, 2, generator=generator) for _ in range(2))
    target = torch.cat([corner, corner + size + 1], dim=1)
    pred = target + torch.rand(count, 4, generator=generator)
    return pred.requires_grad_(), target


@pytest.mark.parametrize("kind", TRUTH)
def test_weight_factor_and_reduction_against_torchvision(kind):
    pred, target = pairs()
    weight = torch.rand(20)
    loss = AlphaIoULoss(kind, 1.0, loss_weight=2.0)
    losses = 2 * TRUTH[kind](pred, target) * weight
    for expected, options in (
        (losses.mean(), {}),
        (losses.sum() / 7, {"avg_factor": 7}),
        (losses.sum() / 0.5, {"avg_factor": torch.tensor(0.5)}),
        (losses.sum(), {"reduction_override": "sum"}),
        (losses, {"avg_factor": 7, "reduction_override": "none"}),
    ):
        ours = loss(pred, target, weight, **options)
        torch.testing.assert_close(ours, expected)
        gradients = (
            torch.autograd.grad(value.sum(), pred, retain_graph=True) for value in (ours, expected)
        )
        torch.testing.assert_close(*gradients)


def test_the_weights_of_coordinates_count_by_their_mean():
    pred, target = pairs()
    weight = torch.rand(20, 4)
    loss = AlphaIoULoss("iou", 3.0, reduction="sum")
    expected = alpha_iou_loss(pred, target, kind="iou", alpha=3.0, weight=weight.mean(1))
    torch.testing.assert_close(loss(pred, target, weight), expected.sum())


@pytest.mark.parametrize("shape", [(20,), (20, 4)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_weights_of_zero_give_a_zero_with_a_gradient(shape, reduction):
    pred, target = pairs()
    loss = AlphaIoULoss("ciou", 3.0, reduction=reduction)(pred, target, torch.zeros(shape))
    assert loss.abs().sum() == 0
    assert torch.autograd.grad(loss.sum(), pred)[0].abs().sum() == 0


def oriented_pairs(count=20):
    generator = torch.Generator().manual_seed(count)
    center, sides = (50 * torch.rand(count, 2, generator=generator) + 1 for _ in range(2))
    target = torch.cat([center, sides, 3 * torch.rand(count, 1, generator=generator)], dim=1)
    return target + torch.rand(count, 5, generator=generator), target


@pytest.mark.parametrize("kind", ["probiou", "giou"])
def test_oriented_boxes_in_each_range_of_angles_of_mmrotate(kind):
    config = {"type": "AlphaIoULoss", "kind": kind, "alpha": 2.0, "box_format": "cxcywhr"}
    loss = MODELS.build(config)
    pred, target = oriented_pairs()
    weight = torch.rand(20, 5)
    options = {"kind": kind, "alpha": 2.0, "box_format": "cxcywhr"}
    expected = (alpha_iou_loss(pred, target, **options) * weight.mean(1)).sum() / 7
    for angle_range in ("oc", "le90", "le135"):
        written = set_angle_range(pred, angle_range).requires_grad_()
        value = loss(written, set_angle_range(target, angle_range), weight, avg_factor=7.0)
        torch.testing.assert_close(value, expected)
        zero = loss(written, target, torch.zeros(20, 5))
        assert zero == 0
        assert torch.autograd.grad(zero, written)[0].abs().sum() == 0


def test_decoded_boxes_beside_deltas_are_the_boxes_of_the_loss():
    """As heads of MMRotate with loss_bbox_type="kfiou" call their loss."""
    pred, target = oriented_pairs()
    deltas = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    pred.requires_grad_()
    weight = torch.rand(20, 5)
    loss = AlphaIoULoss("kfiou", 3.0, box_format="cxcywhr")
    given = {"pred_decode": pred, "targets_decode": target}
    value = loss(deltas, deltas, weight, avg_factor=7.0, **given)
    assert value == loss(pred, target, weight, avg_factor=7.0)
    assert torch.autograd.grad(value, pred)[0].abs().sum() > 0


def test_oriented_boxes_without_their_format_are_refused_with_the_remedy():
    pred, target = oriented_pairs()
    with pytest.raises(ValueError, match=r"need box_format='cxcywhr'.* has 'xyxy'"):
        AlphaIoULoss("probiou")(pred, target)


def test_no_boxes_give_a_zero_with_a_gradient():
    pred, target = pairs(0)
    for factor in (None, 1.0, 0.0, torch.tensor(0.0)):
        loss = AlphaIoULoss("giou", 3.0)(pred, target, torch.zeros(0, 4), avg_factor=factor)
        assert loss == 0
        loss.backward()


def test_targets_that_are_no_boxes_are_warned_about_once_with_the_remedy():
    _, target = pairs()
    deltas = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    loss = AlphaIoULoss("giou", 3.0)
    with pytest.warns(UserWarning, match=r"targets .* no boxes.*reg_decoded_bbox=True"):
        loss(deltas + 0.1, deltas, avg_factor=20)
    loss(deltas + 0.1, deltas, avg_factor=20)  # a second warning would fail the test
    weight = torch.zeros(20, 4)
    fresh = AlphaIoULoss("giou", 3.0)
    fresh(target, deltas, weight)  # what does not count may hold anything
    fresh(target, target)
    centred = AlphaIoULoss("giou", 3.0, box_format="cxcywh")
    centred(target, torch.cat([target[:, 2:], target[:, :2]], dim=1))


def test_a_factor_with_a_sum_and_unknown_reductions_are_refused():
    pred, target = pairs()
    with pytest.raises(ValueError, match="avg_factor needs reduction='mean'"):
        AlphaIoULoss(reduction="sum")(pred, target, avg_factor=3.0)
    with pytest.raises(ValueError, match="reduction_override"):
        AlphaIoULoss()(pred, target, reduction_override="max")
    with pytest.raises(AssertionError, match="reduction_override"):  # as MMDetection's own tests
        AlphaIoULoss()(pred, target, reduction_override=True)
    with pytest.raises(ValueError, match="reduction must be"):
        AlphaIoULoss(reduction="max")
    with pytest.raises(ValueError, match="loss_weight"):
        AlphaIoULoss(loss_weight=-1.0)


def test_the_similarity_beside_the_loss_has_no_gradient_and_no_power():
    pred, target = pairs()
    loss = AlphaIoULoss("ciou", 3.0, loss_weight=0.05, return_iou=True)
    value, similarity = loss(pred, target)
    assert value.requires_grad
    torch.testing.assert_close(similarity, 1 - complete_box_iou_loss(pred, target).detach())
    assert not similarity.requires_grad


def test_a_registry_below_finds_it_by_its_name_as_mmdetections_does():
    below = Registry("model", parent=MODELS, scope="detection_toolbox")
    config = {"type": "AlphaIoULoss", "kind": "diou", "alpha": 2.0, "loss_weight": 5.0}
    loss = below.build(config)
    assert isinstance(loss, AlphaIoULoss)
    assert (loss.loss.kind, loss.loss.alpha, loss.loss_weight) == ("diou", 2.0, 5.0)


@pytest.mark.slow
def test_a_configuration_file_imports_it_in_a_fresh_process(tmp_path):
    """As the processes of a distributed launch do: each reads the configuration."""
    (tmp_path / "config.py").write_text(
        'custom_imports = dict(imports=["alphaiou.integrations.mmengine"])\n'
        'loss_bbox = dict(type="AlphaIoULoss", kind="giou", alpha=3.0, reduction="sum")\n'
    )
    code = (
        "from mmengine.config import Config\nfrom mmengine.registry import MODELS\n"
        "print(MODELS.build(Config.fromfile('config.py').loss_bbox))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "kind='giou', alpha=3.0" in done.stdout


@MODELS.register_module()
class TorchvisionGIoU(torch.nn.Module):
    """Torchvision's loss, called as MMDetection calls its own."""

    def forward(self, pred, target, weight, avg_factor):
        return (generalized_box_iou_loss(pred, target) * weight).sum() / avg_factor


@MODELS.register_module()
class OneBoxDetector(BaseModel):
    """Finds one box in an image: a model of MMEngine with a loss from its configuration."""

    def __init__(self, loss_bbox):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 4), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(4)
        )
        self.layers(torch.zeros(1, 3, 32, 32))
        self.loss_bbox = MODELS.build(loss_bbox)
        self.steps = []

    def forward(self, images, boxes, mode):
        assert mode == "loss"
        centre, size = self.layers(images).sigmoid().chunk(2, dim=1)
        pred = torch.cat([centre - size / 2, centre + size / 2], dim=1)
        weight = torch.ones(len(boxes))
        loss = self.loss_bbox(pred, boxes, weight=weight, avg_factor=len(boxes))
        self.steps.append(loss.item())
        return {"loss_bbox": loss}


@pytest.fixture(scope="module")
def drawn():
    """Small drawn images, each with the first of its boxes, from 0 to 1."""
    dataset = load_dataset("shapes", "train")
    rows = [dataset[i] for i in range(16)]
    return [
        (interpolate(image[None] / 255, size=(32, 32))[0], target["boxes"][0] / image.shape[-1])
        for image, target in rows
    ]


def train(loss_bbox, drawn, folder):
    """The losses of two epochs under MMEngine's own runner."""
    runner = Runner(
        model={"type": "OneBoxDetector", "loss_bbox": loss_bbox},
        work_dir=str(folder),
        train_dataloader={
            "dataset": drawn,
            "batch_size": 4,
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "collate_fn": {"type": "default_collate"},
        },
        train_cfg={"by_epoch": True, "max_epochs": 2},
        optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}},
        randomness={"seed": 0},
        experiment_name=f"{folder.name}-{len(loss_bbox)}",
        log_level="ERROR",
        default_hooks={"checkpoint": None, "logger": None},
    )
    runner.train()
    return runner.model.steps


def test_a_training_with_giou_is_torchvisions_and_another_loss_is_not(drawn, tmp_path):
    own = train({"type": "TorchvisionGIoU"}, drawn, tmp_path / "own")
    ours = train(Config({"type": "AlphaIoULoss", "kind": "giou", "alpha": 1.0}), drawn, tmp_path)
    assert len(own) == 8
    assert ours == pytest.approx(own, rel=1e-5)
    assert sum(own[4:]) < sum(own[:4])
    cubed = train({"type": "AlphaIoULoss", "kind": "giou", "alpha": 3.0}, drawn, tmp_path / "3")
    assert cubed != pytest.approx(own, rel=1e-2)
