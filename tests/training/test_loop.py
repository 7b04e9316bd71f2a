"""The loop from a recipe to a record: what it learns, keeps, refuses and says."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from alphaiou._environment import device_name
from alphaiou.inference.evaluation import evaluate
from alphaiou.inference.weights import WEIGHTS, CheckpointError, load_weights, read_tensors
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.training.loop import Execution, Report, TrainingFailedError, fit
from alphaiou.training.recipe import Optimisation, recipe_from
from alphaiou.training.record import RECORD
from tests.training.runs import (
    assert_same_bits,
    easy_images,
    learning_recipe,
    tensors,
    tiny_recipe,
    train,
    write_shapes,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_shapes(tmp_path_factory.mktemp("data"), test=2)


@pytest.mark.slow
def test_overfits_four_images(tmp_path):
    path = easy_images(tmp_path / "data", 4)
    recipe = learning_recipe(path, epochs=380, seed=1, data={"val": "train"})
    record, _ = train(recipe, tmp_path / "runs", checkpoint_seconds=1e9)
    assert record["scores"]["map"] > 0.85
    assert record["scores"]["ap50"] == pytest.approx(1.0)
    assert record["history"][-1]["box"] < 0.5 * record["history"][0]["box"]


def test_the_record_says_what_was_run(data, tmp_path):
    recipe = tiny_recipe(data, epochs=2, data={"val": "val", "test": "test"}, evaluate_every=1)
    record, said = train(recipe, tmp_path)
    written = json.loads((tmp_path / record["name"] / RECORD).read_text())
    assert recipe_from(written["recipe"]) == recipe
    assert written["name"] == record["name"] == Path(record["name"]).name
    assert written["scored_on"] == "test"
    assert written["selected"] == "last"
    assert [entry["epoch"] for entry in written["history"]] == [1, 2]
    for entry in written["history"]:
        assert entry["val"].keys() == written["scores"].keys()
        assert "test" not in entry, "scored at the end alone"
        assert entry["seconds"] > 0
        assert entry["memory_bytes"] > 10**8
    assert written["device"] == device_name(torch.device("cpu"))
    assert written["threads"] == 1
    assert torch.__version__.startswith(written["versions"]["torch"])
    assert any("split test): 2 images" in line for line in said)
    assert written["notes"][0] == said[0]


def test_the_weights_make_a_detector(data, tmp_path):
    recipe = tiny_recipe(data, epochs=1)
    record, _ = train(recipe, tmp_path)
    trained = load_weights(tmp_path / record["name"])
    assert recipe_from(trained.recipe) == recipe
    assert len(trained.classes) == 4
    average = {
        name.removeprefix("ema."): tensor
        for name, tensor in tensors(tmp_path).items()
        if name.startswith("ema.")
    }
    for name, tensor in trained.detector.state_dict().items():
        assert torch.equal(tensor, average[name]), name
    assert not trained.detector.training


@pytest.mark.parametrize("which", ["nothing", "checkpoint", "strange", "no weights"])
def test_weights_that_cannot_be_used(data, tmp_path, which):
    record, _ = train(tiny_recipe(data, epochs=1), tmp_path)
    run = tmp_path / record["name"]
    path, message = {
        "nothing": (tmp_path / "absent", "there is no such file"),
        "checkpoint": (run / "last.safetensors", f"use {WEIGHTS} in the same folder"),
        "strange": (run / RECORD, "not a complete safetensors file"),
        "no weights": (tmp_path, "there is no such file"),
    }[which]
    with pytest.raises(CheckpointError, match=message):
        load_weights(path)


def test_alpha_moves_along_its_schedule(data, tmp_path):
    schedule = AlphaSchedule(1.0, 3.0)
    train(tiny_recipe(data, epochs=2, alpha_schedule=schedule), tmp_path / "moving")
    kept = tensors(tmp_path / "moving")
    (alpha,) = (kept[name] for name in kept if name.startswith("model.") and "alpha" in name)
    assert alpha.item() == 3.0
    train(tiny_recipe(data, epochs=2), tmp_path / "fixed")
    assert not torch.equal(kept["velocity"], tensors(tmp_path / "fixed")["velocity"])


@pytest.mark.slow
def test_a_running_mean_is_part_of_the_state(data, tmp_path):
    recipe = tiny_recipe(data, loss=LossSpec.parse("iou+wise_v3:3"))
    record, _ = train(recipe, tmp_path / "undisturbed")

    def stop(entry):
        if entry["epoch"] == 2:
            raise KeyboardInterrupt

    execution = Execution(device="cpu", checkpoint_seconds=0.0)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, tmp_path / "stopped", execution=execution, report=Report(epoch_done=stop))
    _, said = train(recipe, tmp_path / "stopped")
    assert "resuming after epoch 2 of 3" in said
    undisturbed = tensors(tmp_path / "undisturbed")
    assert_same_bits(tensors(tmp_path / "stopped"), undisturbed)
    means = {name: mean for name, mean in undisturbed.items() if name.endswith("mean_loss")}
    assert sorted(name.split(".")[0] for name in means) == ["ema", "model"]
    assert len({mean.item() for mean in means.values()} | {1.0}) == 3, "both have moved"
    detector = load_weights(tmp_path / "undisturbed" / record["name"]).detector
    (mean,) = (own for name, own in detector.named_buffers() if name.endswith("mean_loss"))
    assert mean == next(own for name, own in means.items() if name.startswith("ema"))
    assert all("mean_loss" not in name for name, _ in detector.named_parameters())


@pytest.mark.parametrize(("select", "on"), [("best", "val"), ("best-on-test", "test")])
def test_the_best_weights_are_kept_and_the_record_says_on_what(data, tmp_path, select, on):
    recipe = tiny_recipe(
        data, epochs=3, data={"val": "val", "test": "test"}, evaluate_every=1, select=select
    )
    record, _ = train(recipe, tmp_path)
    scores = [entry[on]["map"] for entry in record["history"]]
    other = {"val": "test", "test": "val"}[on]
    assert not any(other in entry for entry in record["history"]), "it was not looked at"
    assert record["selected"]["on"] == on
    assert record["selected"]["map"] == max(scores)
    assert record["selected"]["epoch"] == 1 + scores.index(max(scores))
    assert record["scored_on"] == "test"
    told = any("chosen on the test set" in note for note in record["notes"])
    assert told == (select == "best-on-test")


def test_a_share_held_out_is_scored(data, tmp_path):
    recipe = tiny_recipe(data, epochs=1, data={"hold_out": 0.5}, select="best")
    record, said = train(recipe, tmp_path)
    assert record["scored_on"] == "0.5 of train, held out"
    assert "2 training images held out for validation" in said


def test_nothing_to_score_is_no_error(data, tmp_path):
    record, _ = train(tiny_recipe(data, epochs=1), tmp_path)
    assert record["scores"] == {}
    assert record["scored_on"] == ""


def test_images_that_cannot_be_read_are_counted(tmp_path):
    path = write_shapes(tmp_path / "data", train=5)
    image = next((tmp_path / "data/images/train").iterdir())
    image.write_bytes(image.read_bytes()[:200])
    record, said = train(tiny_recipe(path, epochs=1), tmp_path / "runs", missing=0.2)
    assert any(image.name in line and "cut off" in line for line in said)
    assert "train: 1 image left out (1 image-truncated)" in record["notes"]


#: Warm-up gives the first step a learning rate of 0 and the second a huge one: the first epoch, of
#: two steps, is sound, and the first step of the second is not.
EXPLODING = Optimisation(lr=1e18, warmup_steps=10, warmup_epochs=0.0)


def test_a_loss_that_is_not_finite_stops_with_the_batch_saved(data, tmp_path):
    recipe = tiny_recipe(data, epochs=3, optimisation=EXPLODING)
    with pytest.raises(TrainingFailedError) as caught:
        train(recipe, tmp_path)
    message = str(caught.value)
    assert "not finite at step 1 of epoch 2" in message
    assert "last.safetensors" in message
    assert "optimisation.lr" in message
    (path,) = tmp_path.glob("*/failed-step-2.safetensors")
    assert str(path) in message
    batch = read_tensors(path)
    assert batch.facts == {"epoch": 2, "step": 1}
    assert batch.tensors["0.images"].shape == (2, 3, 64, 64)
    kept = tensors(tmp_path)
    assert all(tensor.isfinite().all() for tensor in kept.values())
    assert not list(tmp_path.glob(f"*/{RECORD}"))
    with pytest.raises(TrainingFailedError, match="step 1 of epoch 2"):
        train(recipe, tmp_path)
    calm = replace(recipe, optimisation=replace(EXPLODING, lr=0.01))
    assert math.isfinite(train(calm, tmp_path)[0]["history"][-1]["box"])


def test_the_failing_batch_is_the_one_of_the_step(data, tmp_path):
    recipe = tiny_recipe(data, epochs=2, optimisation=EXPLODING)
    with pytest.raises(TrainingFailedError):
        train(recipe, tmp_path)
    (path,) = tmp_path.glob("*/failed-step-2.safetensors")
    first = read_tensors(path).tensors
    path.unlink()
    with pytest.raises(TrainingFailedError):
        train(recipe, tmp_path)
    second = read_tensors(path).tensors
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_without_an_epoch_before_it_no_checkpoint_is_promised(data, tmp_path):
    recipe = tiny_recipe(data, batch_size=1, optimisation=EXPLODING)
    with pytest.raises(TrainingFailedError) as caught:
        train(recipe, tmp_path)
    assert "step 3 of epoch 1" in str(caught.value)
    assert "checkpoint before" not in str(caught.value)
    assert not list(tmp_path.glob("*/last.safetensors"))


def test_runs_of_one_process_share_decoded_images(data, tmp_path):
    decoded = {}
    execution = Execution(device="cpu", decoded=decoded)
    clean = tiny_recipe(data, epochs=1, data={"val": "val"})
    first = fit(clean, tmp_path, execution=execution)
    before = list(decoded.values())
    second = fit(replace(clean, noise=0.2), tmp_path, execution=execution)
    assert [id(one) for one in decoded.values()] == [id(one) for one in before]
    assert second["history"] != first["history"]
    alone = fit(replace(clean, noise=0.2), tmp_path / "alone", execution=Execution(device="cpu"))
    assert [e["box"] for e in alone["history"]] == [e["box"] for e in second["history"]]


def test_the_test_set_is_watched_where_nothing_is_selected(data, tmp_path):
    recipe = tiny_recipe(data, epochs=2, data={"test": "test"}, evaluate_every=1)
    record = fit(recipe, tmp_path, execution=Execution(device="cpu"))
    assert [entry["test"]["map"] for entry in record["history"]][-1] == record["scores"]["map"]
    assert record["selected"] == "last"


@pytest.mark.parametrize(("select", "expected"), [("last", 0.2), ("best-on-test", 0.3)])
def test_what_its_epoch_has_scored_is_not_scored_again(
    data, tmp_path, monkeypatch, select, expected
):
    # Three epochs learn nothing that could be told apart, so the precisions are given.
    precisions = iter([0.1, 0.3, 0.2])

    def scored(*arguments, **options):
        found = evaluate(*arguments, **options)
        return replace(found, class_ap=np.full_like(found.class_ap, next(precisions)))

    monkeypatch.setattr("alphaiou.training.loop.evaluate", scored)
    recipe = tiny_recipe(data, epochs=3, data={"test": "test"}, evaluate_every=1, select=select)
    record, _ = train(recipe, tmp_path)
    assert record["scores"]["map"] == pytest.approx(expected)


def test_a_run_leaves_the_settings_of_the_process_alone(data, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    seen = []
    report = Report(stepped=lambda *_: seen.append(torch.backends.cudnn.benchmark))
    fit(tiny_recipe(data, epochs=1), tmp_path, execution=Execution(device="cpu"), report=report)
    assert set(seen) == {False}, "on the CPU cuDNN has no algorithms to try"
    assert torch.backends.cudnn.benchmark
