"""Records: written whole, read back, and refused with a remedy when they are damaged or edited."""

import json
import math
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from alphaiou import KINDS, alpha_iou_loss
from alphaiou._config import to_plain
from alphaiou.inference.weights import WEIGHTS
from alphaiou.losses.spec import LossSpec
from alphaiou.training.recipe import (
    SCHEMA,
    DataRecipe,
    Recipe,
    recipe_from,
    recipe_hash,
    without_added,
)
from alphaiou.training.recipes import RECIPES
from alphaiou.training.record import (
    RECORD,
    RecordError,
    check_same_recipe,
    file_digest,
    finished_record,
    peak_memory,
    read_record,
    record_digest,
    run_record,
    throughput,
    upgraded,
    write_record,
)
from benchmarks.tiny import edited, places

COMMITTED = sorted((Path(__file__).parents[2] / "studies/voc320/records").rglob("*.json"))
RECIPE = Recipe(epochs=2)


def entry(seconds, images):
    return {"seconds": seconds, "images_per_second": images / seconds}


def made_record(**changes):
    facts = {
        "scores": {"map": 0.5, "ap95": math.nan},
        "scored_on": "val",
        "best": {"epoch": 2, "map": 0.5, "on": "val"},
        "notes": ["a note"],
        "device": torch.device("cpu"),
        "data": {"annotations": "a", "image_sizes": "b", "image_times": "c"},
        "weights": "d",
    }
    history = [{"epoch": 1, "box": 0.5, "val": {"map": math.nan}} | entry(1.0, 10)]
    return run_record(RECIPE, history, **(facts | changes))


def test_the_first_epoch_does_not_count_for_the_pace():
    assert throughput([entry(10.0, 100), entry(1.0, 100), entry(3.0, 100)]) == pytest.approx(50.0)
    assert throughput([entry(10.0, 100)]) == pytest.approx(10.0)


def test_what_is_not_defined_is_null(tmp_path):
    record = made_record()
    path = write_record(record, tmp_path / "run")
    written = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert written["history"][0]["val"]["map"] is None
    assert written["scores"]["ap95"] is None
    assert written["name"] == recipe_hash(RECIPE)
    assert finished_record(tmp_path / "run", RECIPE) == written == record
    assert [one.name for one in (tmp_path / "run").iterdir()] == [RECORD]


def test_a_record_says_what_it_was_made_with():
    record = made_record()
    assert record["made"]["version"] == record["versions"]["alphaiou"]
    commit = record["made"]["commit"]
    if (Path(__file__).parents[2] / ".git").exists():
        head = subprocess.check_output(("git", "rev-parse", "HEAD"), text=True).strip()
        assert commit.rstrip("+") == head
    else:
        assert commit is None
    assert record["made"]["date"].endswith("+00:00")
    assert (record["schema"], record["weights"]) == (SCHEMA, "d")


def test_a_run_that_is_not_finished_has_none(tmp_path):
    assert finished_record(tmp_path, RECIPE) is None
    assert finished_record(tmp_path / "absent", RECIPE) is None


def test_a_record_from_before_a_field_was_added_is_of_the_same_run(tmp_path):
    record = made_record()
    del record["recipe"]["patience"]
    record["digest"] = record_digest(record)
    write_record(record, tmp_path)
    assert finished_record(tmp_path, RECIPE) == record
    other = replace(RECIPE, select="best", evaluate_every=1, data=DataRecipe(val="val"))
    with pytest.raises(RecordError, match="patience is None, not 3"):
        check_same_recipe(tmp_path / RECORD, record["recipe"], replace(other, patience=3))


@pytest.mark.parametrize(
    "content",
    [
        *("", '{"record": "run"', "[]", '{"record": "bench"}', "\x00", '{"record": "run"}'),
        '{"record": "run", "schema": 2}',
        '{"record": "run", "schema": 99}',
        '{"record": "run", "schema": null}',
        '{"record": "run", "recipe": 3}',
        '{"record": "run", "recipe": {}}',
        '{"record": "run", "recipe": {"detector": "yolov5s", "loss": 3}, "versions": {}}',
        "[" * 100_000,
        '{"record": ' * 100_000,
    ],
)
def test_a_damaged_record_is_named_with_the_remedy(tmp_path, content):
    (tmp_path / RECORD).write_text(content)
    with pytest.raises(RecordError, match=rf"{RECORD} is .*rm .*{RECORD}"):
        finished_record(tmp_path, RECIPE)


def test_a_record_that_is_no_text(tmp_path):
    (tmp_path / RECORD).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match="is damaged"):
        finished_record(tmp_path, RECIPE)


@pytest.mark.parametrize("remove", [False, True])
def test_an_edited_record_is_refused_whatever_was_edited(tmp_path, remove):
    record = made_record()
    assert {path[0] for path in places(record)} == record.keys()
    for path in places(record):
        write_record(edited(record, path, remove=remove), tmp_path)
        with pytest.raises(RecordError, match=r"changed after the run|damaged|is not the record"):
            read_record(tmp_path / RECORD)


def test_the_record_of_another_run_is_refused_with_the_fields_that_differ(tmp_path):
    write_record(made_record(), tmp_path)
    asked = replace(RECIPE, loss=LossSpec("giou", 2.0), box_gain=0.1)
    with pytest.raises(RecordError) as refused:
        finished_record(tmp_path, asked)
    message = str(refused.value)
    assert "detector.box_gain is 0.05, not 0.1" in message
    assert "loss.kind is 'iou', not 'giou'" in message
    assert "loss.alpha is 3.0, not 2.0" in message
    assert message.count(" is ") == 4, "the file and the three fields"
    assert f"rm -r {tmp_path}" in message


def test_a_forged_record_has_its_own_name_and_not_that_of_another_run(tmp_path):
    forged = made_record() | {"scores": {"map": 0.99}}
    forged["recipe"] = to_plain(replace(RECIPE, loss=LossSpec("giou")))
    write_record(forged | {"digest": record_digest(forged)}, tmp_path)
    with pytest.raises(RecordError, match="its recipe has another name"):
        read_record(tmp_path / RECORD)


def test_weights_that_are_not_those_of_the_record_are_refused(tmp_path):
    (tmp_path / WEIGHTS).write_bytes(b"weights")
    write_record(made_record(weights=file_digest(tmp_path / WEIGHTS)), tmp_path)
    assert finished_record(tmp_path, RECIPE)["scored_on"] == "val"
    (tmp_path / WEIGHTS).write_bytes(b"other weights")
    with pytest.raises(RecordError, match=rf"{WEIGHTS} is not the file that"):
        finished_record(tmp_path, RECIPE)
    (tmp_path / WEIGHTS).unlink()  # to save space, say
    assert finished_record(tmp_path, RECIPE)["scored_on"] == "val"


# --- earlier records ------------------------------------------------------------------------------


def flat(values, path=""):
    """Every value of a nested recipe by its last name, and by its path within a part."""
    for key, value in values.items():
        if isinstance(value, dict) and key != "detector":
            yield from flat(value, f"{key}.")
        elif key == "detector":
            yield key, value["name"]
            yield from flat({k: v for k, v in value.items() if k != "name"})
        else:
            yield f"{path}{key}", value


def test_every_committed_record_keeps_its_meaning():
    layouts = set()
    assert len(COMMITTED) > 170
    for path in COMMITTED:
        old, new = json.loads(path.read_text()), read_record(path)
        layouts.add((*sorted(old), *sorted(old["recipe"])))
        assert new.keys() - old.keys() <= {"schema", "made", "data", "weights"}
        for name in old.keys() - {"name", "recipe"}:
            assert new[name] == old[name]
        assert new["name"] == recipe_hash(recipe_from(new["recipe"]))
        named = {"detector": {"name": old["recipe"]["detector"]}}
        before = dict(flat(old["recipe"] | named))
        after = dict(flat(new["recipe"]))
        for field in before.keys() & after.keys():
            assert after[field] == before[field], (path.name, field)
        # What is gone are settings of other detectors; what is new is what runs did without it.
        assert before.keys() - after.keys() <= {
            *("objectness_gain", "class_gain", "objectness", "rpn_loss", "match_loss", "norm"),
            *("backbone_weights", "backbone_lr_scale", "dropout", "nms_threshold"),
        }
    assert len(layouts) == 5


def test_an_upgraded_record_is_upgraded_once():
    for path in COMMITTED[::20]:
        once = upgraded(json.loads(path.read_text()))
        assert upgraded(once | {"digest": ""}) == once | {"digest": ""}


def test_todays_defaults_do_not_change_what_earlier_records_say():
    """The layout with the fewest fields: the others are what runs did without them."""
    old = min((json.loads(path.read_text()) for path in COMMITTED), key=lambda r: len(r["recipe"]))
    recipe = recipe_from(upgraded(old)["recipe"])
    assert recipe.final_box_gain is None
    assert recipe.loss.modifiers == ()
    assert recipe.detector.nms_threshold == old["recipe"]["nms_threshold"]
    assert recipe.optimisation.schedule == "cosine"
    assert recipe.optimisation.optimiser == "sgd"


def test_shape_iou_of_the_first_edition_keeps_its_scale():
    """Its scale was 1; today's runs have 0, another loss and so another name."""
    old = min((json.loads(path.read_text()) for path in COMMITTED), key=lambda r: len(r["recipe"]))
    values = {**old["recipe"], "loss": {**old["recipe"]["loss"], "kind": "shape_iou"}}
    recipe = recipe_from(upgraded(old | {"recipe": values})["recipe"])
    assert recipe.loss.shape_scale == 1.0
    today = replace(recipe, loss=LossSpec("shape_iou", recipe.loss.alpha))
    assert recipe_hash(today) != recipe_hash(recipe)
    assert "shape_scale" not in without_added(to_plain(today))["loss"]
    pred, target = torch.tensor([[0.0, 0, 3, 9]]), torch.tensor([[1.0, 1, 5, 9]])
    kind = partial(KINDS["shape_iou"], scale=1.0)
    expected = alpha_iou_loss(pred, target, kind=kind, alpha=recipe.loss.alpha)
    assert recipe.loss.module()(pred, target) == expected
    assert recipe.loss.function()(pred, target) == expected
    assert today.loss.module()(pred, target) != expected
    assert "Shape-IoU (scale 1)" in recipe.loss.display_name
    with pytest.raises(ValueError, match="shape_scale is a setting of shape_iou"):
        LossSpec("ciou", shape_scale=1.0)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_makes_a_record_that_is_read(tmp_path, name):
    recipe = RECIPES[name]()
    record = made_record() | {"recipe": to_plain(recipe), "name": recipe_hash(recipe)}
    record = json.loads(json.dumps(record))
    write_record(record | {"digest": record_digest(record)}, tmp_path)
    assert recipe_from(finished_record(tmp_path, recipe)["recipe"]) == recipe


@pytest.mark.slow
def test_the_memory_of_this_process_is_counted():
    before = peak_memory(torch.device("cpu"))
    kept = torch.ones(before // 4 + 50_000_000)  # 200 MB more than ever before
    assert peak_memory(torch.device("cpu")) - before > 150_000_000
    assert kept[-1] == 1
