"""Fine-tuning: a run starts where the weights are, and what is frozen stays there."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from alphaiou._config import ConfigError
from alphaiou.detectors import build_detector
from alphaiou.inference.weights import CheckpointError, load_weights, read_tensors, write_tensors
from alphaiou.training.checkpoint import LAST
from alphaiou.training.loop import _restore
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import RecordError
from alphaiou.training.setup import Execution, Report, RunContext, prepare
from tests.training.runs import (
    easy_images,
    learning_recipe,
    tensors,
    tiny_recipe,
    train,
    write_shapes,
)

BACKBONE = ("stem", "down2", "stage2", "down3", "stage3", "down4", "stage4", "down5", "pool5")
BACKBONE = (*BACKBONE, "stage5")


def prepared(recipe, folder):
    context = RunContext(Execution(), Report(), Processes(), torch.device("cpu"))
    return prepare(recipe, Path(folder), context)


# --- frozen parameters ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("yolov5n", {}, tuple(f"network.{part}." for part in BACKBONE)),
        ("fasterrcnn_r50_fpn", {"norm": "batch"}, ("backbone.body.",)),
        ("detr_r50", {"norm": "batch"}, ("network.model.model.backbone.",)),
    ],
)
def test_the_backbone_of_each_detector_can_be_frozen(name, settings, expected):
    detector = build_detector(name, 3, **settings)
    detector.freeze(["backbone"])
    frozen = {key for key, one in detector.named_parameters() if not one.requires_grad}
    assert frozen == {key for key, _ in detector.named_parameters() if key.startswith(expected)}
    assert 0 < len(frozen) < len(list(detector.parameters()))
    detector.train()
    for key, module in detector.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.training == (not key.startswith(expected)), key


def test_norms_that_are_frozen_in_part_go_on():
    detector = build_detector("yolov5n", 3)
    detector.freeze(["network.stem.conv.conv", "network.down2.norm.bias"])
    detector.train()
    assert detector.network.stem.conv.norm.training
    assert detector.network.down2.norm.training
    assert not detector.network.stem.conv.conv.weight.requires_grad
    assert detector.eval().network.down2.norm.training is False


def test_names_that_freeze_nothing_or_everything():
    detector = build_detector("yolov5n", 3)
    with pytest.raises(ConfigError, match=r"begins with '10'; use backbone, or .* network.stem"):
        detector.freeze(["10"])
    with pytest.raises(ConfigError, match="freeze: network leaves nothing to train"):
        detector.freeze(["network"])


@pytest.mark.parametrize("optimiser", ["sgd", "adamw"])
def test_what_is_frozen_does_not_move(tmp_path, optimiser):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=2)
    how = replace(recipe.optimisation, optimiser=optimiser, weight_decay=0.1, warmup_bias_lr=0.0)
    recipe = replace(recipe, optimisation=how)
    train(recipe, tmp_path / "first")
    (source,) = (tmp_path / "first").iterdir()
    start = read_tensors(source / "best.safetensors").tensors
    tuned = replace(recipe, weights=str(source), freeze=("backbone", "network.head.0"), seed=1)
    train(tuned, tmp_path / "second")
    frozen = (*(f"network.{part}." for part in BACKBONE), "network.head.0.")
    state = tensors(tmp_path / "second", LAST)
    moved = []
    for key, before in start.items():
        for part in ("model", "ema"):
            after = state[f"{part}.{key}"]
            if key.startswith(frozen) and "num_batches" not in key:
                assert torch.equal(after, before), (part, key)
            elif not torch.equal(after, before):
                moved.append(key)
    assert any("running_mean" in key for key in moved)
    assert any("head.1.weight" in key for key in moved)


# --- where a run starts --------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_starts_where_its_weights_are(tmp_path):
    """The same few images again, after sixty epochs of them."""
    data = easy_images(tmp_path / "data", 4)
    recipe = learning_recipe(data, epochs=60)
    first, _ = train(recipe, tmp_path / "first")
    (source,) = (tmp_path / "first").iterdir()
    short = replace(recipe, epochs=1, seed=1)
    tuned = replace(short, weights=str(source))

    # As in training: another order in memory rounds otherwise.
    trained = load_weights(source).detector.to(memory_format=torch.channels_last)
    run = prepared(tuned, tmp_path / "prepared")
    images = torch.randint(256, (4, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        expected = trained(images)
        for detector in (run.step.average.model, deepcopy(run.step.detector).eval()):
            for mine, theirs in zip(detector(images), expected, strict=True):
                assert len(theirs["scores"]) > 0
                for part, tensor in theirs.items():
                    assert torch.equal(mine[part], tensor), part

    scratch, _ = train(short, tmp_path / "scratch")
    record, said = train(tuned, tmp_path / "tuned")
    parts = ("box", "objectness", "class")
    before, after = (sum(one["history"][0][part] for part in parts) for one in (scratch, record))
    assert after < 0.75 * before
    file = source / "best.safetensors"
    note = f"taken 262 of 262 tensors from {file}"
    assert note in said
    assert note in record["notes"]
    assert record["weights_from"] == first["weights"]
    assert scratch["weights_from"] is None


def test_a_run_on_other_classes_starts(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=1)
    record, _ = train(recipe, tmp_path / "first")
    source = tmp_path / "first" / record["name"] / "best.safetensors"
    content = read_tensors(source)
    names = ["zebra", *content.facts["classes"][1:]]
    renamed = replace(content, facts={**content.facts, "classes": names})
    write_tensors(renamed, tmp_path / "other.safetensors")
    tuned = replace(recipe, weights=str(tmp_path / "other.safetensors"))
    record, _ = train(tuned, tmp_path / "second")
    (note,) = (line for line in record["notes"] if "taken" in line)
    assert f"taken but for the classes {content.facts['classes'][0]}: network.head.0." in note


def test_backbone_weights_are_not_loaded_twice(tmp_path):
    """They would be downloaded, and overwritten."""
    recipe = Recipe(detector="fasterrcnn_r50_fpn", backbone_weights=str(tmp_path / "absent.pth"))
    detector = recipe.detector.build(3, pretrained=False)
    frozen = {key for key, one in detector.named_parameters() if not one.requires_grad}
    assert {".".join(key.split(".")[:3]) for key in frozen} == {
        "backbone.body.conv1",
        "backbone.body.layer1",
    }
    other = Recipe(detector="detr_r50", backbone_weights=str(tmp_path / "absent"), norm="batch")
    detector = other.detector.build(3, pretrained=False)
    assert detector.lr_scale("network.model.model.backbone.model.embedder") == 0.1


def test_mistakes_are_found_before_the_images_are_read(tmp_path):
    recipe = tiny_recipe(str(tmp_path / "no-data"), weights=str(tmp_path / "absent.pth"))
    with pytest.raises(CheckpointError, match=r"absent\.pth: there is no such file"):
        prepared(recipe, tmp_path)


# --- weights that change -------------------------------------------------------------------------


def test_weights_that_changed_are_noticed(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=1)
    train(recipe, tmp_path / "first")
    source = tmp_path / "first" / recipe_hash(recipe) / "best.safetensors"
    tuned = replace(recipe, weights=str(source), seed=1)
    record, _ = train(tuned, tmp_path / "runs")
    folder = tmp_path / "runs" / recipe_hash(tuned)
    assert train(tuned, tmp_path / "runs")[0] == record

    (folder / "record.json").unlink()  # as if it had been stopped after its last checkpoint
    run = prepared(tuned, folder)
    _restore(run, read_tensors(folder / LAST))
    assert len(run.history) == 1
    again, said = train(tuned, tmp_path / "runs")
    assert "resuming after epoch 1 of 1" in said
    assert again["weights_from"] == record["weights_from"]

    content = read_tensors(source)
    content.tensors["network.head.0.bias"].add_(1.0)
    write_tensors(content, source)
    message = rf"{folder}.*since .* the weights that .* started from have changed.*rm -r {folder}"
    with pytest.raises(RecordError, match=message):
        train(tuned, tmp_path / "runs")
    (folder / "record.json").unlink()
    with pytest.raises(CheckpointError, match=message):
        train(tuned, tmp_path / "runs")


def test_a_finished_run_outlives_its_first_weights(tmp_path):
    recipe = tiny_recipe(write_shapes(tmp_path / "data"), epochs=1)
    train(recipe, tmp_path / "first")
    source = tmp_path / "first" / recipe_hash(recipe) / "best.safetensors"
    tuned = replace(recipe, weights=str(source), seed=1)
    record, _ = train(tuned, tmp_path / "runs")
    source.unlink()
    again, said = train(tuned, tmp_path / "runs")
    assert again == record
    assert any(f"{source} is gone and cannot be compared" in line for line in said)
