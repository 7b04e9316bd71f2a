"""The first batch can be looked at before the training, without any effect on it."""

import pytest
import torch

from alphaiou.training.batches import StreamedBatches, first_batch
from alphaiou.training.loop import Execution, Report, fit
from alphaiou.training.processes import Processes
from alphaiou.training.setup import run_sets
from tests.training.runs import assert_same_bits, tensors, tiny_recipe, write_shapes


@pytest.fixture
def recipe(tmp_path):
    return tiny_recipe(write_shapes(tmp_path / "data"), epochs=1)


def test_it_is_the_first_batch_of_the_training_which_stays_the_same(recipe, tmp_path):
    seen, said = [], []

    def prepared(batches, classes):
        state = torch.get_rng_state()
        seen.append(first_batch(batches))
        assert torch.equal(torch.get_rng_state(), state)
        assert len(classes) == 4
        drawn = type(batches).draw

        def draw(place):  # what the training itself draws
            said.append(drawn(batches, place))
            return said[-1]

        batches.draw = draw

    execution = Execution(device="cpu", checkpoint_seconds=0.0)
    report = Report(prepared=prepared)
    record = fit(recipe, tmp_path / "looked", execution=execution, report=report)
    other = fit(recipe, tmp_path / "plain", execution=execution)
    assert_same_bits(seen[0].tensors(), said[0][0].tensors())
    assert record["weights"] == other["weights"]
    assert_same_bits(tensors(tmp_path / "looked"), tensors(tmp_path / "plain"))
    assert record["history"][0]["box"] == other["history"][0]["box"]


def test_streamed(recipe):
    dataset = run_sets(recipe).train
    batches = StreamedBatches(
        dataset, recipe, slots=64, processes=Processes(), device=torch.device("cpu"), workers=0
    )
    batches.begin_epoch(0)
    expected = batches.draw(torch.tensor(0))[0]
    batches.workers = 2
    assert_same_bits(first_batch(batches).tensors(), expected.tensors())
    assert batches.workers == 2
