"""Runs are equal to the bit: twice, and however often they are killed."""

import json
import os
import random
import signal
import time
from dataclasses import replace

import pytest

from alphaiou.inference.weights import (
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    read_tensors,
    write_tensors,
)
from alphaiou.losses.spec import LossSpec
from alphaiou.training.checkpoint import LAST
from alphaiou.training.loop import RECIPE, Execution, Report, fit
from alphaiou.training.recipe import read_recipe, recipe_hash
from alphaiou.training.record import RecordError
from benchmarks.tiny import kill, stopped_run
from tests.training.runs import (
    assert_same_bits,
    easy_images,
    learning_recipe,
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on_after_its_last_epoch(recipe, undisturbed, tmp_path, number):
    """No checkpoint is due: the state is saved on the way out."""
    notes = tmp_path / "notes"
    rare = replace(recipe, select="last", evaluate_every=0)
    process = train_in_process(
        rare, tmp_path / "runs", checkpoint_seconds=1e9, notes=notes, interrupt=(7, number)
    )
    process.join(120)
    assert process.exitcode == (1 if number == signal.SIGINT else 143)
    (run,) = (tmp_path / "runs").iterdir()
    assert f"stopped; the same command resumes after epoch 7 of 20 from {run / LAST}" in (
        notes.read_text()
    )
    _, said = train(rare, tmp_path / "runs")
    assert "resuming after epoch 7 of 20" in said
    train(rare, tmp_path / "alone")
    assert_same_bits(tensors(tmp_path / "runs"), tensors(tmp_path / "alone"))


@pytest.fixture(scope="module")
def patient(tmp_path_factory):
    """A recipe with patience, and the record and folder of the same training without."""
    folder = tmp_path_factory.mktemp("patient")
    data = easy_images(folder / "data", 2)
    whole = learning_recipe(data, epochs=200, seed=1, data={"val": "train"}, evaluate_every=5)
    faster = replace(whole.optimisation, lr=0.01, ema_decay=0.5)
    whole = replace(whole, batch_size=4, optimisation=faster, select="best")
    record, _ = train(whole, folder / "whole", checkpoint_seconds=1e9)
    return replace(whole, patience=5), record, folder


def without_times(history):
    return [
        {name: entry[name] for name in entry if name not in ("seconds", "images_per_second")}
        | {"memory_bytes": 0}
        for entry in history
    ]


def stop_of(history, patience):
    """The epoch at which a training stops, and the best one until then."""
    best, score = 0, 0.0
    for entry in history:
        if entry.get("val", {"map": 0.0})["map"] > score:
            best, score = entry["epoch"], entry["val"]["map"]
        elif "val" in entry and score and entry["epoch"] - best >= patience:
            return entry["epoch"], best
    return None


def test_a_training_stops_when_it_no_longer_improves(patient):
    recipe, whole, folder = patient
    stop, best = stop_of(whole["history"], recipe.patience)
    assert stop < recipe.epochs
    assert "stopped" not in whole
    record, said = train(recipe, folder / "runs", checkpoint_seconds=1e9)
    why = (
        f"after epoch {stop} of 200: the mAP on val has not improved since epoch {best} "
        "(patience 5)"
    )
    assert record["stopped"] == why
    assert f"stopped {why}" in said
    # Up to there it is the same training: the learning rate follows all epochs.
    assert without_times(record["history"]) == without_times(whole["history"][:stop])
    assert record["selected"] == {
        "epoch": best,
        "map": whole["history"][best - 1]["val"]["map"],
        "on": "val",
    }
    assert record["scores"] == whole["history"][best - 1]["val"]
    again, said = train(recipe, folder / "runs")
    assert again == record
    assert said == [f"{folder / 'runs' / record['name']} is finished already"]


def test_a_training_with_patience_resumes_equal_to_the_bit(patient, tmp_path):
    recipe, whole, folder = patient
    stop, _ = stop_of(whole["history"], recipe.patience)
    for epochs in (stop - 3, stop - 1):
        process = train_in_process(
            recipe, tmp_path / "runs", notes=tmp_path / "notes", interrupt=(epochs, signal.SIGTERM)
        )
        process.join(120)
        assert process.exitcode == 143
    record, said = train(recipe, tmp_path / "runs", checkpoint_seconds=1e9)
    assert f"resuming after epoch {stop - 1} of 200" in said
    train(recipe, folder / "runs", checkpoint_seconds=1e9)
    for name in (LAST, WEIGHTS):
        assert_same_bits(tensors(tmp_path / "runs", name), tensors(folder / "runs", name))
    # Killed between its last checkpoint and its record, it trains no further epoch.
    (tmp_path / "runs" / record["name"] / "record.json").unlink()
    again, said = train(recipe, tmp_path / "runs")
    assert again["history"] == record["history"]
    assert again["stopped"] == record["stopped"]


def test_interrupted_between_an_epoch_and_its_checkpoint_the_epoch_is_kept(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=3)
    notes = []

    def stop(entry):
        if entry["epoch"] == 2:
            raise KeyboardInterrupt

    execution, report = (
        Execution(device="cpu", checkpoint_seconds=1e9),
        Report(note=notes.append, epoch_done=stop),
    )
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, tmp_path / "runs", execution=execution, report=report)
    assert "resumes after epoch 2 of 3" in notes[-1]
    _, said = train(recipe, tmp_path / "runs")
    assert "resuming after epoch 2 of 3" in said
    train(recipe, tmp_path / "alone")
    assert_same_bits(tensors(tmp_path / "runs"), tensors(tmp_path / "alone"))


def test_interrupted_in_the_first_epoch_nothing_is_left_to_resume(recipe, tmp_path):
    notes = tmp_path / "notes"
    process = train_in_process(
        recipe, tmp_path / "runs", notes=notes, interrupt=(0, signal.SIGTERM)
    )
    process.join(120)
    assert "stopped in the first epoch; the same command starts again" in notes.read_text()
    assert process.exitcode == 143


@pytest.mark.parametrize(
    "change",
    [
        {"history": 3},
        {"history": None},
        {"best": [1]},
        {"recipe": []},
        {"data": {"annotations": 1}},
        {"history": [[]]},
    ],
)
def test_odd_facts_of_a_checkpoint_are_clear_errors(tmp_path_factory, stopped, change):
    recipe, folder = stopped
    last = folder / LAST
    sound = read_tensors(last)
    write_tensors(Checkpoint(sound.tensors, {**sound.facts, **change}), last)
    with pytest.raises(CheckpointError, match=rf"{LAST}: is damaged.*rm -r {folder}"):
        train(recipe, folder.parent)
    write_tensors(sound, last)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A recipe, and the folder of its run, which was killed."""
    folder = tmp_path_factory.mktemp("stopped")
    recipe = tiny_recipe(write_shapes(folder / "data"), epochs=50)
    return recipe, stopped_run(recipe, folder / "runs")


def test_a_finished_run_is_not_computed_again(recipe, undisturbed):
    before = (undisturbed / recipe_hash(recipe) / "record.json").stat().st_mtime_ns
    record, said = train(recipe, undisturbed)
    assert said == [f"{undisturbed / record['name']} is finished already"]
    assert (undisturbed / record["name"] / "record.json").stat().st_mtime_ns == before


def test_data_that_changed_are_noticed(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=50)
    stopped_run(recipe, tmp_path / "runs")
    annotations = tmp_path / "data/annotations/train.json"
    content = json.loads(annotations.read_text())
    content["annotations"][0]["bbox"][0] += 1
    annotations.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"the annotations have changed.*rm -r"):
        train(recipe, tmp_path / "runs")


def change_size(path):
    path.write_bytes(path.read_bytes() + b" ")


def change_time(path):
    os.utime(path, (1.0, 1.0))


def test_images_that_changed_are_noticed(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=3)
    run = stopped_run(replace(recipe, epochs=50), tmp_path / "runs")
    image = next((tmp_path / "data/images/train").iterdir())
    change_size(image)
    with pytest.raises(CheckpointError, match=rf"{LAST}: .* changed in size .*rm -r {run}"):
        train(replace(recipe, epochs=50), tmp_path / "runs")


def test_image_files_with_other_times_are_noted(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=30)
    stopped_run(recipe, tmp_path / "runs")
    change_time(next((tmp_path / "data/images/train").iterdir()))
    record, said = train(recipe, tmp_path / "runs")
    note = "image files have other times, but the same sizes"
    assert any(note in line for line in record["notes"])
    assert any(note in line for line in said)


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=50)
    run = stopped_run(recipe, tmp_path / "runs")
    other = replace(recipe, seed=7, loss=LossSpec("giou"))
    run.rename(tmp_path / "runs" / recipe_hash(other))
    with pytest.raises(RecordError, match=rf"{LAST} is of .*loss.kind is 'ciou'.*seed is 0, not 7"):
        train(other, tmp_path / "runs")


def test_data_that_changed_after_a_run_are_noticed(tmp_path):
    path = write_shapes(tmp_path / "data")
    recipe = tiny_recipe(path, epochs=1)
    record, _ = train(recipe, tmp_path / "runs")
    assert train(recipe, tmp_path / "runs")[0] == record
    image = next((tmp_path / "data/images/train").iterdir())
    change_time(image)
    again, said = train(recipe, tmp_path / "runs")
    assert again == record
    assert any("since the training, image files have other times" in line for line in said)
    change_size(image)
    with pytest.raises(RecordError, match="since the training, image files have changed in size"):
        train(recipe, tmp_path / "runs")
    annotations = tmp_path / "data/annotations/train.json"
    content = json.loads(annotations.read_text())
    content["annotations"][0]["bbox"][0] += 1
    annotations.write_text(json.dumps(content))
    with pytest.raises(RecordError, match="since the training, the annotations have changed"):
        train(recipe, tmp_path / "runs")
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    again, said = train(recipe, tmp_path / "runs")
    assert again == record
    assert any("the data cannot be compared" in line for line in said)


def test_the_recipe_in_the_folder_repeats_the_run(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=1)
    record, _ = train(recipe, tmp_path / "runs")
    stored = read_recipe(tmp_path / "runs" / record["name"] / RECIPE)
    assert stored == recipe
    again, _ = train(stored, tmp_path / "again")
    assert again["name"] == record["name"]
    assert again["weights"] == record["weights"], "the same weights, to the bit"
    assert again["scores"] == record["scores"]
    assert again["data"] == record["data"]


def test_a_damaged_checkpoint_costs_the_epochs_since_the_one_before(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=10)
    process = train_in_process(recipe, tmp_path / "runs")
    assert kill(process, tmp_path / "runs", 3, 0.0)
    last = tmp_path / "runs" / recipe_hash(recipe) / LAST
    last.write_bytes(last.read_bytes()[:1000])
    _, said = train(recipe, tmp_path / "runs")
    assert any("not a complete safetensors file" in line for line in said)
    train(recipe, tmp_path / "alone")
    assert_same_bits(tensors(tmp_path / "runs"), tensors(tmp_path / "alone"))


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
