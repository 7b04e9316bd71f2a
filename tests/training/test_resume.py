"""Runs are equal to the bit: twice, and however often they are killed."""

import json
import random
import signal
import time

import pytest

from alphaiou.inference.weights import WEIGHTS, CheckpointError
from alphaiou.training.recipe import recipe_hash
from tests.training.runs import (
    assert_same_bits,
    tensors,
    tiny_recipe,
    train,
    train_in_process,
    write_shapes,
)

pytestmark = pytest.mark.slow

KILLS = 10


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    path = write_shapes(tmp_path_factory.mktemp("data"))
    return tiny_recipe(path, epochs=20, data={"val": "val"}, evaluate_every=6, select="best")


@pytest.fixture(scope="module")
def undisturbed(recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    process = train_in_process(recipe, folder)
    process.join()
    assert process.exitcode == 0
    return folder


def test_two_runs_are_equal_to_the_bit(recipe, undisturbed, tmp_path):
    record, _ = train(recipe, tmp_path)
    assert_same_bits(tensors(tmp_path), tensors(undisturbed))
    name = f"{record['name']}/{WEIGHTS}"
    assert (tmp_path / name).read_bytes() == (undisturbed / name).read_bytes()


def kill(process, folder, epochs, delay):
    """Kill -9 some seconds after so many more checkpoints; without a delay, during the next."""
    written, last = None, 0
    while process.is_alive():
        now = [path.stat().st_mtime_ns for path in folder.glob("*/last.safetensors")]
        if written is None:
            written = now
        last += now != written
        written = now
        if delay is None and any(folder.glob("*/.last.safetensors.*.part")):
            break
        if delay is not None and last >= epochs:
            time.sleep(delay)
            break
        time.sleep(0.0002)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def test_killed_at_ten_moments_a_run_ends_as_if_it_had_not_been(recipe, undisturbed, tmp_path):
    moments = random.Random(0)
    for number in range(KILLS):
        process = train_in_process(recipe, tmp_path)
        # Some while a checkpoint is written, the others anywhere: in reading, steps, scoring.
        delay = None if number % 3 == 0 else moments.uniform(0.0, 0.5)
        assert kill(process, tmp_path, number % 2, delay), "it was over before it could be killed"
    record, said = train(recipe, tmp_path)
    assert any("resuming after epoch" in line for line in said)
    assert len(record["history"]) == recipe.epochs
    assert_same_bits(tensors(tmp_path), tensors(undisturbed))
    assert_same_bits(tensors(tmp_path, WEIGHTS), tensors(undisturbed, WEIGHTS))


def test_a_finished_run_is_not_computed_again(recipe, undisturbed):
    before = (undisturbed / recipe_hash(recipe) / "record.json").stat().st_mtime_ns
    record, said = train(recipe, undisturbed)
    assert said == [f"{undisturbed / record['name']} is finished already"]
    assert (undisturbed / record["name"] / "record.json").stat().st_mtime_ns == before


def stopped_run(recipe, folder):
    """A run that was killed after its first checkpoint."""
    assert kill(train_in_process(recipe, folder), folder, 1, 0.0)
    return folder / recipe_hash(recipe)


def test_data_that_changed_are_noticed(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=50)
    stopped_run(recipe, tmp_path / "runs")
    annotations = tmp_path / "data/annotations/train.json"
    content = json.loads(annotations.read_text())
    content["annotations"][0]["bbox"][0] += 1
    annotations.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"the data have changed.*rm -r"):
        train(recipe, tmp_path / "runs")


def test_a_damaged_checkpoint_is_named_with_the_way_back(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=50)
    run = stopped_run(recipe, tmp_path / "runs")
    last = run / "last.safetensors"
    last.write_bytes(last.read_bytes()[:1000])
    with pytest.raises(
        CheckpointError, match=r"not a complete safetensors file.*to (start|resume)"
    ):
        train(recipe, tmp_path / "runs")


def test_two_processes_do_not_train_the_same_run(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=200)
    process = train_in_process(recipe, tmp_path / "runs")
    try:
        while not any((tmp_path / "runs").glob("*/last.safetensors")):
            assert process.is_alive()
            time.sleep(0.01)
        with pytest.raises(CheckpointError, match="another process is training this run"):
            train(recipe, tmp_path / "runs")
    finally:
        process.kill()
        process.join()
