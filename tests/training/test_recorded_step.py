"""The step as a CUDA graph: replayed it computes what it computes when it is called."""

import pytest
import torch

from alphaiou import AlphaIoULoss
from alphaiou.data.pipeline.cache import build_cache
from alphaiou.data.shapes.dataset import shapes_dataset
from alphaiou.detectors import build_detector
from alphaiou.training.recipe import Recipe
from tests.detectors.detr.models import small_detr
from tests.training.runs import step_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
SIDE = 64


def make_step(detector, *, capture):
    cache = build_cache(shapes_dataset("train", size=SIDE, length=6), SIDE).to(torch.device("cuda"))
    recipe = Recipe(image_size=SIDE, batch_size=2, epochs=3, precision="fp32")
    return step_of(detector, cache, recipe, capture=capture)


def loss_of(step):
    """What a step adds to each part of the loss."""
    step.totals.losses.zero_()
    step()
    return step.totals.losses.clone()


def test_a_recorded_step_learns_as_one_that_is_called():
    found = []
    for capture in (False, True):
        torch.manual_seed(0)
        detector = build_detector("yolov5n", 12, box_loss=AlphaIoULoss("ciou", 3.0))
        step = make_step(detector, capture=capture)
        step.record()
        step.begin_epoch(0)
        found.append(torch.stack([loss_of(step) for _ in range(3)]))
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    assert not torch.equal(found[1][0], found[1][1]), "the batches of an epoch differ"


@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_a_recorded_step_draws_new_dropout_masks(rate):
    step = make_step(small_detr(num_labels=12, dropout=rate), capture=True)
    step.begin_epoch(0)
    batch = step.batches.draw(step.number)
    step.batches.draw = lambda place: batch
    step.record()
    kept = {name: tensor.clone() for name, tensor in step.state().items()}
    first = loss_of(step)
    step.load_state(kept)
    assert torch.allclose(loss_of(step), first, rtol=1e-4) == (rate == 0.0)
