"""The step: what it computes, piece by piece, and that nothing depends on how it is computed."""

import math
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from alphaiou import AlphaIoULoss, AlphaSchedule, Terms
from alphaiou.batch import Targets
from alphaiou.data.pipeline.augment import Augmentation
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.data.shapes.dataset import shapes_dataset
from alphaiou.detectors import build_detector
from alphaiou.training.batches import CachedBatches, StreamedBatches, epoch_order
from alphaiou.training.optimiser import CastWeights
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Optimisation, Recipe
from alphaiou.training.step import StepOptions, TrainingStep, compile_parts
from tests.training.runs import step_of

CPU, ALONE = torch.device("cpu"), Processes()
SIDE = 64


@pytest.fixture(scope="module")
def dataset():
    return shapes_dataset("train", size=SIDE, length=6)


@pytest.fixture(scope="module")
def cache(dataset):
    return build_cache(dataset, SIDE)


def recipe(**changes):
    settings = {"detector": "yolov5n", "image_size": SIDE, "batch_size": 4, "epochs": 3}
    return Recipe(**(settings | {"precision": "fp32"} | changes))


def make_step(cache, recipe, *, loss=None):
    torch.manual_seed(0)
    detector = build_detector("yolov5n", 12, box_loss=loss or AlphaIoULoss("ciou"))
    return step_of(detector, cache, recipe, slots=128)


def trained(step, *, steps=2):
    step.begin_epoch(0)
    for _ in range(steps):
        step()
    return step


def test_the_loss_falls(cache):
    quick = Optimisation(lr=0.03, warmup_steps=0, warmup_epochs=0.0)
    step = make_step(cache, recipe(augmentation=Augmentation.none(), optimisation=quick))
    sums = []
    for _ in range(10):
        trained(step)
        sums.append(step.totals.losses.sum().item())
    assert sums[-1] < 0.98 * sums[0]
    assert int(step.totals.failed_step) == -1
    assert int(step.totals.lost_boxes) == 0


def test_two_trainings_are_equal_to_the_bit(cache):
    first, second = (trained(make_step(cache, recipe())) for _ in range(2))
    for name, tensor in first.state().items():
        assert torch.equal(tensor, second.state()[name]), name


@pytest.mark.slow
def test_a_state_is_all_that_the_next_step_depends_on(cache):
    one, other = trained(make_step(cache, recipe())), make_step(cache, recipe())
    other.load_state({name: tensor.clone() for name, tensor in one.state().items()})
    for step in (one, other):
        step.begin_epoch(1)
        step()
    for name, tensor in one.state().items():
        assert torch.equal(tensor, other.state()[name]), name


def test_the_state_of_another_detector_is_refused(cache):
    step = make_step(cache, recipe())
    with pytest.raises(ValueError, match="another detector"):
        step.load_state({"model.weights": torch.zeros(1)})


def test_weights_cast_at_once_give_what_autocast_gives(cache):
    cast, autocast = (make_step(cache, recipe(precision="bf16")) for _ in range(2))
    autocast.weights = CastWeights(autocast.parameters, None)
    assert len(cast.weights.by_name) > 50
    assert torch.equal(trained(cast).parameters.values, trained(autocast).parameters.values)


def test_the_gradient_is_that_of_plain_autograd(cache):
    step = make_step(cache, recipe())
    step.begin_epoch(0)
    (batch,) = step.batches.draw(torch.tensor(0))
    step._accumulate([batch])
    step.detector.zero_grad()
    sum(step.detector(batch.images, batch.targets).values()).backward()
    for mine, parameter in zip(
        step.parameters.like(step.gradient), step.parameters.views, strict=True
    ):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-6)


def test_pieces_of_a_batch_add_up(cache):
    whole = make_step(cache, recipe())
    halves = make_step(cache, recipe(optimisation=Optimisation(accumulate=2)))
    drawn = []
    for step in (whole, halves):
        step.begin_epoch(0)
        drawn.append(step.batches.draw(torch.tensor(0)))
    (batch,), pieces = drawn
    assert torch.equal(batch.images, torch.cat([piece.images for piece in pieces]))
    assert batch.targets.valid.sum() == sum(piece.targets.valid.sum() for piece in pieces)
    halves._accumulate(pieces)
    both = halves.gradient.clone()
    alone = []
    for piece in pieces:
        halves._accumulate([piece])
        alone.append(halves.gradient.clone())
    torch.testing.assert_close(both, alone[0] + alone[1], rtol=1e-4, atol=1e-6)


def test_a_detector_that_cannot_be_recorded_is_launched(cache):
    detector = build_detector("yolov5n", 12)
    detector.capturable = False
    step = step_of(detector, cache, recipe(), slots=128, capture=True)
    step.record()
    assert trained(step).totals.losses.sum() > 0


def test_a_gradient_is_clipped(cache):
    how = Optimisation(clip_norm=0.01)
    step = trained(make_step(cache, recipe(optimisation=how)), steps=1)
    # Weights decay after that.
    without = step.gradient.clone()
    decayed = step.optimiser.decayed
    decay = how.scaled_decay(step.recipe.batch_size)
    without[:decayed] -= decay * step.parameters.values[:decayed]
    assert without.norm().item() == pytest.approx(0.01, rel=1e-3)


def test_a_scheduled_alpha_moves(cache):
    loss = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    scheduled = recipe(alpha_schedule=AlphaSchedule(1.0, 3.0))
    step = make_step(cache, scheduled, loss=loss)
    seen = []
    for epoch in range(3):
        step.begin_epoch(epoch)
        for _ in range(step.steps_per_epoch):
            step()
            seen.append(step.alphas[0].item())
    assert seen == pytest.approx([1.0, 1.4, 1.8, 2.2, 2.6, 3.0])


@torch.no_grad()
def losses_of_compiled_parts(losses, monkeypatch):
    """The box part of one batch with each loss, and how often its part was compiled."""
    counter = CompileCounter()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=counter))
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(2, 3, SIDE, SIDE, generator=generator)
    targets = Targets(
        torch.tensor([0, 1]),
        torch.tensor([3, 5]),
        torch.tensor([[0.2, 0.2, 0.6, 0.5], [0.4, 0.3, 0.6, 0.9]]) * SIDE,
        torch.tensor([True, True]),
    )
    found = []
    for loss in losses:
        torch.manual_seed(0)
        detector = build_detector("yolov5n", 12, box_loss=loss).train()
        expected = detector(images, targets)["box"]
        detector.compiled_parts = ("loss",)
        given = loss.alpha, loss.penalty_alpha
        compile_parts(detector)
        assert (loss.alpha, loss.penalty_alpha) == given, "the caller's own stays as it is"
        torch.testing.assert_close(detector(images, targets)["box"], expected)
        found.append(expected.item())
    return found, counter.frame_count


@pytest.mark.slow
def test_what_is_compiled_for_some_powers_serves_for_others(monkeypatch):
    powers = ((3.0, None), (2.0, None), (1.0, None), (0.5, 1.0), (0.0, None))
    losses = [AlphaIoULoss("diou", alpha, penalty_alpha=penalty) for alpha, penalty in powers]
    found, compiled = losses_of_compiled_parts(losses, monkeypatch)
    assert len(set(found)) == len(powers)
    assert compiled == 1


def test_a_scheduled_alpha_stays_the_callers_where_parts_are_compiled():
    loss = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0))
    detector = build_detector("yolov5n", 12, box_loss=loss)
    compile_parts(detector)
    assert detector.loss.box_loss.function.alpha is loss.alpha


@pytest.mark.slow
def test_a_loss_without_a_kernel_is_compiled_for_its_power(monkeypatch):
    losses = [AlphaIoULoss("iou", alpha, modifiers=("wise",)) for alpha in (1.0, 3.0)]
    assert losses_of_compiled_parts(losses, monkeypatch)[1] == 2
    own = [AlphaIoULoss(lambda pair: Terms(pair.iou, ()), alpha) for alpha in (1.0, 3.0)]
    assert losses_of_compiled_parts(own, monkeypatch)[1] == 2


@pytest.mark.parametrize(("place", "growth"), [(0, 1.0), (5, 5.0)])
def test_a_box_gain_that_moves_multiplies_the_part_of_the_box(cache, place, growth):
    found = []
    for final in (None, 0.25):
        step = make_step(cache, recipe(final_box_gain=final))  # of six steps
        step.begin_epoch(2)
        step.number.fill_(place)
        step()
        found.append(step.totals.losses)
    assert (found[1] / found[0]).tolist() == pytest.approx([growth, 1.0, 1.0])


class BrokenAfter:
    """A box loss that is fine, and then is no number."""

    def __init__(self, calls):
        self.left = calls

    def __call__(self, pred, target):
        self.left -= 1
        return (pred - target).abs().sum(-1) * (1.0 if self.left >= 0 else math.nan)


def test_a_loss_that_is_no_number_changes_no_weight(cache):
    step = make_step(cache, recipe(), loss=BrokenAfter(3))  # three layers: one good step
    step.begin_epoch(1)
    step()
    before = step.parameters.values.clone()
    step()
    assert int(step.totals.failed_step) == step.steps_per_epoch + 1
    assert torch.equal(step.parameters.values, before)
    step()
    assert torch.equal(step.parameters.values, before)
    assert int(step.totals.failed_step) == step.steps_per_epoch + 1


def test_an_overflow_of_fp16_halves_the_scale_and_is_no_failure(cache):
    step = make_step(cache, recipe(precision="fp16"))
    step.begin_epoch(0)
    step.scale.fill_(2.0**40)
    before, scale = step.parameters.values.clone(), step.scale.item()
    step()
    assert torch.equal(step.parameters.values, before)
    assert step.scale.item() == scale / 2
    assert int(step.totals.failed_step) == -1
    step.scale.fill_(1.0)
    step()
    assert not torch.equal(step.parameters.values, before)


def test_the_scale_of_fp16_is_gone_from_the_gradient(cache):
    gradients = []
    for scale in (2.0**4, 2.0**8):
        step = make_step(cache, recipe(precision="fp16"))
        step.begin_epoch(0)
        step.scale.fill_(scale)
        step()
        gradients.append(step.gradient)
    largest = gradients[0].abs().max().item()
    torch.testing.assert_close(*gradients, rtol=0.01, atol=0.01 * largest)


def test_an_epoch_has_every_image_once_and_the_first_ones_again():
    order = epoch_order(10, 12, seed=3, epoch=1)
    assert sorted(order[:10].tolist()) == list(range(10))
    assert order[10:].tolist() == order[:2].tolist()
    assert order.tolist() != epoch_order(10, 12, seed=3, epoch=2).tolist()
    assert len(epoch_order(3, 8, seed=0, epoch=0)) == 8


def test_streamed_batches_have_the_images_of_cached_ones(cache, dataset):
    """Without mosaic and colours a sample is its own image: then the two are equal."""
    plain = recipe(augmentation=Augmentation.none())
    cached = CachedBatches(cache, plain, slots=64, processes=ALONE, device=CPU)
    settings = {"slots": 64, "processes": ALONE, "device": CPU, "workers": 0}
    streamed = StreamedBatches(dataset, plain, **settings)
    for epoch in (0, 1):
        for batches in (cached, streamed):
            batches.begin_epoch(epoch)
        for place in range(cached.steps):
            (one,), (other,) = (b.draw(torch.tensor(place)) for b in (cached, streamed))
            assert torch.equal(one.images, other.images)
            assert torch.equal(one.targets.boxes, other.targets.boxes)
            assert torch.equal(one.targets.labels, other.targets.labels)


def test_streamed_batches_train(dataset):
    torch.manual_seed(0)
    batches = StreamedBatches(dataset, recipe(), slots=64, processes=ALONE, device=CPU, workers=1)
    step = TrainingStep(
        build_detector("yolov5n", 12),
        batches,
        recipe(),
        steps_per_epoch=batches.steps,
        processes=ALONE,
        options=StepOptions(),
    )
    assert trained(step).totals.losses.sum() > 0


def test_settings_of_the_process_last_as_long_as_a_run(dataset, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    limit = torch._dynamo.config.recompile_limit
    step = TrainingStep(
        build_detector("yolov5n", 12),
        StreamedBatches(dataset, recipe(), slots=64, processes=ALONE, device=CPU, workers=1),
        recipe(),
        steps_per_epoch=1,
        processes=ALONE,
        options=StepOptions(compile=True),
    )

    def settings():
        return torch.backends.cudnn.benchmark, torch._dynamo.config.recompile_limit

    assert settings() == (True, limit)
    with step.process_settings():
        assert settings() == (False, 64)
    assert settings() == (True, limit)
    with pytest.raises(KeyError), step.process_settings():
        raise KeyError
    assert settings() == (True, limit)
