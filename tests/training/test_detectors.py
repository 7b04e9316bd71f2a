"""Every detector in the loop: its step, and its way from a recipe to a record."""

import math
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from alphaiou import AlphaIoULoss
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.data.shapes.dataset import shapes_dataset
from alphaiou.detectors.faster_rcnn.backbone import WeightsError
from alphaiou.detectors.faster_rcnn.network import faster_rcnn
from alphaiou.inference.weights import load_weights
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.optimiser import CastWeights
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import DataRecipe, recipe_from
from alphaiou.training.recipes import detr as detr_recipe
from alphaiou.training.recipes import faster_rcnn as faster_rcnn_recipe
from alphaiou.training.recipes import voc320_detr, voc320_faster_rcnn
from alphaiou.training.record import loss_parts
from tests.detectors.detr.models import small_detr
from tests.training.runs import assert_same_bits, step_of, train, write_shapes

CPU, ALONE, SIDE, CLASSES = torch.device("cpu"), Processes(), 64, 12
RECIPES = {"faster_rcnn": voc320_faster_rcnn, "detr": voc320_detr}


def small_faster_rcnn():
    return faster_rcnn(
        CLASSES,
        AlphaIoULoss("giou", 3.0),
        backbone="resnet18",
        image_size=SIDE,
        pre_nms=50,
        post_nms=40,
        roi_samples=32,
        head_width=32,
    )


SMALL = {
    "faster_rcnn": small_faster_rcnn,
    "detr": partial(small_detr, num_labels=CLASSES, dropout=0.1),
}
every = pytest.mark.parametrize("name", SMALL)


@pytest.fixture(scope="module")
def cache():
    return build_cache(shapes_dataset("train", size=SIDE, length=4), SIDE)


def recipe_of(name, **changes):
    recipe = RECIPES[name]()
    how = replace(recipe.optimisation, warmup_steps=1, **changes.pop("optimisation", {}))
    settings = {"image_size": SIDE, "batch_size": 2, "precision": "fp32", "optimisation": how}
    return replace(recipe, **(settings | changes))


def make_step(name, cache, **changes):
    torch.manual_seed(0)
    detector, recipe = SMALL[name](), recipe_of(name, **changes)
    return step_of(detector, cache, recipe)


def trained(step, *, epoch=0):
    step.begin_epoch(epoch)
    for _ in range(step.steps_per_epoch):
        step()
    return step


@pytest.mark.slow
@every
def test_a_state_is_all_that_the_next_step_depends_on(name, cache):
    one, other = trained(make_step(name, cache)), make_step(name, cache)
    assert one.totals.losses.shape == (len(one.detector.loss_names),)
    before = one.parameters.values.clone()
    other.load_state({key: tensor.clone() for key, tensor in one.state().items()})
    for step in (one, other):
        trained(step, epoch=1)
    assert not torch.equal(one.parameters.values, before)
    assert_same_bits(one.state(), other.state())
    assert int(one.totals.failed_step) == -1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epochs"), [("faster_rcnn", 3), ("detr", 20)])
def test_the_loss_falls(name, epochs, cache):
    changes = {"epochs": epochs, "optimisation": {"ema_decay": 0.0}}
    step = make_step(name, cache, augmentation=Augmentation.none(), **changes)
    totals = [trained(step, epoch=epoch).totals.losses.sum().item() for epoch in range(epochs)]
    assert totals[-1] < 0.9 * totals[0]
    assert torch.equal(step.average.parameters.values, step.parameters.values), "ema_decay is 0"


@pytest.mark.slow
@every
def test_weights_cast_at_once_give_what_autocast_gives(name, cache):
    cast, autocast = (make_step(name, cache, precision="bf16") for _ in range(2))
    autocast.weights = CastWeights(autocast.parameters, None)
    assert len(cast.weights.by_name) > 20
    assert torch.equal(trained(cast).parameters.values, trained(autocast).parameters.values)


@every
def test_the_gradient_is_that_of_plain_autograd(name, cache):
    step = make_step(name, cache)
    step.begin_epoch(0)
    (batch,) = step.batches.draw(torch.tensor(0))
    torch.manual_seed(1)
    step._accumulate([batch])
    step.detector.zero_grad()
    torch.manual_seed(1)
    sum(step.detector(batch.images, batch.targets).values()).backward()
    for mine, parameter in zip(
        step.parameters.like(step.gradient), step.parameters.views, strict=True
    ):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@every
def test_the_loss_of_a_batch_is_the_mean_of_its_pieces(name, cache):
    whole, halved = make_step(name, cache), make_step(name, cache, optimisation={"accumulate": 2})
    halved.begin_epoch(0)
    pieces = halved.batches.draw(torch.tensor(0))
    torch.manual_seed(1)
    parts = halved._accumulate(pieces)
    torch.manual_seed(1)
    alone = [whole._accumulate([piece]) for piece in pieces]
    torch.testing.assert_close(parts, (alone[0] + alone[1]) / 2)
    torch.manual_seed(1)
    gradients = []
    for piece in pieces:
        whole._accumulate([piece])
        gradients.append(whole.gradient.clone())
    torch.testing.assert_close(halved.gradient, sum(gradients) / 2, rtol=1e-4, atol=1e-6)


def test_the_backbone_of_detr_learns_slower(cache):
    step = make_step("detr", cache)
    scales = step.parameters.like(step.optimiser.lr_scales)
    for name, scale in zip(step.parameters.names, scales, strict=True):
        assert (scale == (0.1 if ".backbone." in name else 1.0)).all(), name


class StoppedError(Exception):
    """Somebody has pulled the plug."""


def stop_in_the_second_epoch(epoch, step, steps):
    if epoch == 1:
        raise StoppedError


@pytest.mark.slow
@every
def test_from_a_recipe_to_a_record_with_a_stop_on_the_way(name):
    # Not in tmp_path: that keeps gigabytes of weights for later.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        data = DataRecipe(write_shapes(folder / "data", train=1, val=1), val="val")
        size = {"image_size": 32, "batch_size": 1, "norm": "group"}  # too few for batch norms
        recipe = recipe_of(name, data=data, epochs=2, **size)
        with pytest.raises(StoppedError):
            fit(
                recipe,
                folder / "runs",
                execution=Execution(device="cpu", checkpoint_seconds=0.0),
                report=Report(stepped=stop_in_the_second_epoch),
            )
        record, said = train(recipe, folder / "runs", checkpoint_seconds=1e9)
        assert "resuming after epoch 1 of 2" in said
        trained = load_weights(folder / "runs" / record["name"])
    assert recipe_from(trained.recipe) == recipe
    assert len(record["history"]) == 2
    assert 0.0 <= record["scores"]["map"] <= 1.0
    names = trained.detector.loss_names
    for entry in record["history"]:
        assert list(entry)[1 : 1 + len(names)] == list(names)
        assert list(loss_parts(entry)) == list(names)
        assert all(math.isfinite(entry[part]) for part in names)
    trained.detector.set_least_score(2.0)
    (found,) = trained.detector(torch.zeros(1, 3, SIDE, SIDE, dtype=torch.uint8))
    assert len(found["boxes"]) == 0


@pytest.mark.parametrize("make", [faster_rcnn_recipe, detr_recipe])
def test_weights_of_the_backbone_are_needed_for_training_alone(make):
    recipe = replace(make(), backbone_weights="/no/such/file.pth")
    with pytest.raises(WeightsError, match=r"/no/such/file\.pth: there is no such file"):
        recipe.detector.build(3)
    detector = recipe.detector.build(3, pretrained=False)
    assert "FrozenBatchNorm2d" in {type(module).__name__ for module in detector.modules()}


def test_a_recipe_says_how_fast_the_backbone_of_detr_learns_and_what_is_dropped():
    fresh = replace(detr_recipe(), backbone_weights="none")
    assert fresh.detector.build(3).backbone_lr_scale == 1.0
    other = replace(fresh.detector, backbone_lr_scale=0.5, dropout=0.0).build(3)
    assert other.backbone_lr_scale == 0.5
    assert other.network.model.config.dropout == 0.0
