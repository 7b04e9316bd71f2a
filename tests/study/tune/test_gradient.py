"""Losses at equal gradient scale, against closed forms and float64."""

import pytest
import torch

from alphaiou._config import ConfigError
from alphaiou.detectors.detr.config import DETRConfig
from alphaiou.detectors.faster_rcnn.config import FasterRCNNConfig
from alphaiou.losses.spec import LossSpec
from alphaiou.study.tune import gradient
from alphaiou.study.tune.gradient import GradientMatch, first_pairs, match_of, mean_gradient
from benchmarks.tiny import CPU, tiny_recipe, write_shapes

IOU = LossSpec("iou")


def moved(overlap, side=2.0):
    """Unit-aspect boxes shifted so that the IoU is known: (1 − s) / (1 + s)."""
    target = torch.tensor([[0.0, 0.0, side, side]])
    shift = side * (1 - overlap) / (1 + overlap)
    return target + torch.tensor([shift, 0.0, shift, 0.0]), target


@pytest.mark.parametrize("overlap", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("alpha", [0.5, 1.0, 3.0])
def test_the_gradient_of_a_power_is_that_of_its_closed_form(overlap, alpha):
    pred, target = moved(overlap)
    factor = GradientMatch(pred, target, IOU)(LossSpec("iou", alpha))
    assert factor == pytest.approx(1 / (alpha * overlap ** (alpha - 1)), rel=1e-5)


def test_the_size_of_the_boxes_does_not_count():
    means = [mean_gradient(IOU, *moved(0.5, side)) for side in (0.1, 1.0, 500.0)]
    assert means == pytest.approx([means[0]] * 3, rel=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(64, 2, generator=generator, dtype=torch.float64) * 10
    target = torch.cat([corner, corner + 1 + 4 * torch.rand(64, 2, dtype=torch.float64)], 1)
    pred = target + 0.2 * torch.rand(64, 4, generator=generator, dtype=torch.float64)
    for loss in (IOU, LossSpec("ciou", 2.5), LossSpec("giou", 0.7)):
        function, step = loss.function(), 1e-6
        parts = []
        for side in range(4):
            move = torch.zeros(4, dtype=torch.float64)
            move[side] = step
            parts.append((function(pred + move, target) - function(pred - move, target)) / 2 / step)
        sizes = (target[:, 2:] - target[:, :2]).repeat(1, 2)
        expected = (torch.stack(parts, 1) * sizes).norm(dim=1).mean()
        # CIoU holds the weight of its aspect term constant, which differences do not.
        tolerance = 1e-6 if loss.kind != "ciou" else 0.02
        assert mean_gradient(loss, pred, target) == pytest.approx(float(expected), rel=tolerance)


def test_the_baseline_is_matched_to_itself_and_a_loss_without_gradient_is_rejected():
    apart = torch.tensor([[0.0, 0.0, 1.0, 1.0]]), torch.tensor([[5.0, 5.0, 6.0, 6.0]])
    match = GradientMatch(*apart, LossSpec("giou"))
    assert match(LossSpec("giou")) == 1.0
    with pytest.raises(ConfigError, match="IoU has no gradient on the boxes"):
        match(IOU)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("drawn"), train=8, val=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("detector", "loss"),
    [
        ("yolov5n", IOU),
        (FasterRCNNConfig(norm="group"), IOU),
        (DETRConfig(norm="group"), LossSpec("giou")),
    ],
    ids=["yolov5n", "faster_rcnn", "detr"],
)
def test_the_pairs_are_those_of_the_first_batches(drawn, tmp_path, monkeypatch, detector, loss):
    monkeypatch.setattr(gradient, "BATCHES", 1)
    pred, target = first_pairs(tiny_recipe(drawn, detector=detector, loss=loss), tmp_path, CPU)
    assert len(pred) == len(target) > 0
    assert bool((target[:, 2:] > target[:, :2]).all())
    assert bool(pred.isfinite().all())


@pytest.mark.slow
def test_a_match_is_kept_in_a_file(drawn, tmp_path, monkeypatch):
    monkeypatch.setattr(gradient, "BATCHES", 2)
    recipe = tiny_recipe(drawn, loss=IOU)
    first = match_of(recipe, tmp_path / "pairs.safetensors", CPU)
    again = match_of(recipe, tmp_path / "pairs.safetensors", CPU)
    assert torch.equal(first.pred, again.pred)
    assert first(LossSpec("iou", 3.0)) == again(LossSpec("iou", 3.0)) != 1.0


@pytest.mark.slow
def test_a_loss_of_deltas_cannot_be_matched(drawn, tmp_path):
    detector = FasterRCNNConfig(norm="group")
    recipe = tiny_recipe(drawn, detector=detector, loss=LossSpec("l1"))
    with pytest.raises(ConfigError, match="is not a loss of boxes"):
        first_pairs(recipe, tmp_path, CPU)
