"""Runs that were made twice."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.study.records import record_paths
from alphaiou.training.recipe import Recipe, recipe_from
from benchmarks.record import read_record
from tests.study.made import made_record
from tools.repeats import (
    EARLIER,
    other_seed_scatter,
    repeats,
    repeats_table,
    seed_scatter,
)
from tools.run_tables import NOTHING

RESULTS = Path(__file__).parents[2] / "results" / "voc320"
YOLO = {"detector": "yolov5s", "epochs": 60}


def run(alpha, seed, score):
    recipe = replace(Recipe(), loss=LossSpec("iou", alpha), seed=seed, epochs=60, precision="bf16")
    return made_record(recipe, 0.5) | {"scores": dict.fromkeys(PAPER_COLUMNS, score)}


def twice(first, again):
    """Records of IoU and α-IoU: scores by α, seed by seed."""
    runs = (
        [run(alpha, seed, score) for alpha, row in own.items() for seed, score in enumerate(row)]
        for own in (first, again)
    )
    earlier, later = runs
    return {"runs": later, "folders": {EARLIER: {"runs": earlier, "folders": {}}}}


def rows(table, name):
    """The numbers of a line of a Markdown table, without their intervals."""
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [text.split(" (")[0] for text in line.removesuffix(" |").split(" | ")[1:]]


FIRST = {1.0: [0.40, 0.42, 0.41], 3.0: [0.44, 0.45, 0.47]}
AGAIN = {1.0: [0.41, 0.40, 0.41], 3.0: [0.47, 0.45, 0.46]}


def test_changes_of_the_first_of_the_second_and_of_both():
    table = repeats_table(twice(FIRST, AGAIN), **YOLO)
    mean = {alpha: (np.array(FIRST[alpha]) + AGAIN[alpha]) / 2 for alpha in FIRST}
    for name, own in (("first", FIRST), ("again", AGAIN), ("mean of both", mean)):
        change = np.mean(own[3.0]) / np.mean(own[1.0]) - 1
        (text,) = set(rows(table, f"α-IoU (α=3), {name}"))
        assert text.rstrip("°") == f"{100 * change:+.2f}%"
    assert [line.split(" | ")[0] for line in table.splitlines()[2:5]] == [
        f"| α-IoU (α=3), {name}" for name in ("first", "again", "mean of both")
    ]


def test_scatter_of_a_seed_and_between_seeds():
    found = repeats(twice(FIRST, AGAIN), **YOLO)
    pairs = np.array([[FIRST[alpha], AGAIN[alpha]] for alpha in FIRST])
    within, between = pairs.var(1, ddof=1).mean() ** 0.5, pairs.var(2, ddof=1).mean() ** 0.5
    assert seed_scatter(found, "ap75") == pytest.approx(within)
    assert other_seed_scatter(found, "ap75") == pytest.approx(between)
    table = repeats_table(twice(FIRST, AGAIN), **YOLO)
    assert set(rows(table, "the same seed again")) == {f"{100 * within:.2f}"}
    assert set(rows(table, "another seed")) == {f"{100 * between:.2f}"}


def test_one_seed_has_no_scatter_between_seeds():
    once = {alpha: row[:1] for alpha, row in FIRST.items()}
    table = repeats_table(twice(once, AGAIN), **YOLO)
    assert set(rows(table, "another seed")) == {"–"}
    assert set(rows(table, "the same seed again")) != {"–"}


def test_runs_that_were_made_once_are_left_out():
    record = twice(FIRST, {**AGAIN, 4.0: [0.5, 0.5, 0.5]})
    assert repeats_table(record, **YOLO) == repeats_table(twice(FIRST, AGAIN), **YOLO)
    gone = twice({**FIRST, 4.0: [0.5, 0.5, 0.5]}, AGAIN)
    assert repeats_table(gone, **YOLO) == repeats_table(twice(FIRST, AGAIN), **YOLO)


def test_a_score_that_one_of_the_two_does_not_have_has_no_mean():
    record = twice(FIRST, AGAIN)
    for made in record["runs"]:
        made["scores"]["ap95"] = None
    place = PAPER_COLUMNS.index("ap95")
    assert rows(repeats_table(record, **YOLO), "α-IoU (α=3), mean of both")[place] == "–"
    for made in record["runs"]:
        del made["scores"]["ap95"]
    assert rows(repeats_table(record, **YOLO), "α-IoU (α=3), mean of both")[place] == "–"


def test_without_earlier_runs_there_is_nothing_to_say():
    assert repeats_table({"runs": [run(1.0, 0, 0.4)], "folders": {}}, **YOLO) == NOTHING
    assert repeats_table(twice(FIRST, AGAIN), detector="yolov5s", epochs=100) == NOTHING


def test_the_committed_runs_were_made_twice():
    found = repeats(read_record(RESULTS), **YOLO)
    assert {label: sorted(own.runs) for label, own in found.again.items()} == {
        label: [0, 1, 2] for label in ("IoU", "α-IoU (α=3)", "DIoU", "α-DIoU (α=3)")
    }
    for label, own in found.first.items():
        for seed, made in own.runs.items():
            other = found.again[label].runs[seed]
            assert recipe_from(made["recipe"]) == recipe_from(other["recipe"])
            assert made["history"] != other["history"]


def test_other_tables_are_made_of_the_later_records():
    paths = record_paths([RESULTS])
    earlier = list((RESULTS / EARLIER).glob("*.json"))
    assert earlier
    assert all(paths[path.stem] == RESULTS / path.name for path in earlier)
