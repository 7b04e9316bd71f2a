"""Tables and figures of records of runs, from made records and from the committed ones."""

from pathlib import Path

import pytest

from alphaiou.experiments.bench.record import read_record
from alphaiou.experiments.published import TABLE_1_VOC, published_scores
from alphaiou.experiments.run_figures import curves_figure
from alphaiou.experiments.run_tables import runs_table
from alphaiou.metrics import relative_improvement
from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.training.recipe import recipe_from, recipe_hash

RESULTS = Path(__file__).parents[1] / "results" / "voc320"


def run(kind, alpha, score, gain=0.05):
    recipe = {"detector": "yolov5s", "box_gain": gain, "loss": {"kind": kind, "alpha": alpha}}
    history = [{"epoch": e, "test": dict.fromkeys(PAPER_COLUMNS, score * e / 2)} for e in (1, 2)]
    return {"recipe": recipe, "scores": dict.fromkeys(PAPER_COLUMNS, score), "history": history}


def test_changes_are_against_the_plain_run_of_the_same_kind():
    runs = [run("diou", 3.0, 0.3), run("iou", 1.0, 0.2, gain=0.1), run("diou", 1.0, 0.2)]
    lines = runs_table({"runs": [*runs, run("iou", 1.0, 0.1)]}).splitlines()[2:]
    names = [line.split(" | ")[0].removeprefix("| ") for line in lines]
    assert names == [
        "IoU",
        "IoU, box gain ×2",
        "– change",
        "DIoU",
        "α-DIoU (α=3)",
        "– change",
        "– change in the paper",
    ]
    assert "+100%" in lines[2]
    assert "+50.00%" in lines[5]
    assert "+48.31%" in lines[6]


@pytest.mark.parametrize(
    ("loss", "base", "printed"),
    [("iou:3", "iou:1", (-0.24, 1.27, 8.81, 55.56)), ("diou:3", "diou:1", (0.18, 2.54, 10.23))],
)
def test_published_scores_give_the_published_improvements(loss, base, printed):
    ours, before = published_scores("yolov5s", loss), published_scores("yolov5s", base)
    for name, percent in zip(PAPER_COLUMNS, printed, strict=False):
        improvement = 100 * relative_improvement(ours[name], before[name])
        assert improvement == pytest.approx(percent, abs=0.006)


def test_nothing_is_published_for_other_losses():
    assert published_scores("yolov5s", "siou:3") is None
    assert all(len(row) == len(PAPER_COLUMNS) for row in TABLE_1_VOC["yolov5s"].values())


def test_committed_runs_are_named_by_their_recipes():
    paths = sorted(RESULTS.glob("*.json"))
    assert len(paths) >= 5
    for path in paths:
        record = read_record(path)
        assert record["name"] == path.stem == recipe_hash(recipe_from(record["recipe"]))


def test_curves_have_a_line_a_run():
    figure = curves_figure(read_record(RESULTS))
    assert [len(axes.lines) for axes in figure.axes] == [len(list(RESULTS.glob("*.json")))] * 3
