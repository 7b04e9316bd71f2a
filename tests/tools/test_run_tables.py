"""Tables and figures of records of runs, from made records and from the committed ones."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics import relative_improvement
from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.paper.published import TABLE_1_VOC, published_scores
from alphaiou.paper.scales import quick_scale
from alphaiou.study.comparable import comparable_runs, plain_runs
from alphaiou.study.figures import curves_figure
from alphaiou.training.recipe import recipe_from, recipe_hash
from alphaiou.training.recipes import voc320, voc320_detr, voc320_faster_rcnn
from benchmarks.record import read_record
from tests.study.made import made_record
from tools import run_figures
from tools.findings import drawn, findings
from tools.run_tables import (
    NOTHING,
    detector_runs,
    headline_table,
    runs_table,
    speeds_table,
)

RESULTS = Path(__file__).parents[2] / "results" / "voc320"
YOLO = {"detector": "yolov5s", "epochs": 100}


def run(loss, score, recipe=None, **changes):
    """A record with the same score in every column."""
    recipe = replace(recipe or voc320(), loss=LossSpec(*loss), precision="bf16", **changes)
    scores = dict.fromkeys(PAPER_COLUMNS, score)
    return made_record(recipe, score) | {"scores": scores, "memory_bytes": 3 << 30}


def names_of(table):
    """The first cells of the lines of a Markdown table."""
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines]


def test_changes_are_against_the_plain_run_of_the_same_kind():
    runs = [run(("diou", 3.0), 0.3), run(("iou",), 0.2, box_gain=0.1), run(("diou",), 0.2)]
    table = runs_table({"runs": [*runs, run(("iou",), 0.1)]}, **YOLO)
    assert names_of(table) == [
        "IoU",
        "IoU, box gain ×2",
        "– change",
        "DIoU",
        "α-DIoU (α=3)",
        "– change",
        "– change in the paper",
    ]
    lines = table.splitlines()[2:]
    assert "+100%" in lines[2]
    assert "+50.00%" in lines[5]
    assert "+48.31%" in lines[6]


def test_a_table_mixes_no_detectors_lengths_or_noise():
    ours = [run(("iou",), 0.1), run(("iou", 3.0), 0.2)]
    others = [
        run(("iou",), 0.8, detector="yolov5x"),
        run(("iou",), 0.8, epochs=60),
        run(("iou",), 0.8, noise=0.3),
        run(("iou",), 0.8, subset=0.5),
        run(("iou",), 0.8, objectness="similarity"),
        run(("iou",), 0.8, voc320_faster_rcnn(), epochs=100),
    ]
    assert runs_table({"runs": [*others, *ours]}, **YOLO) == runs_table({"runs": ours}, **YOLO)
    assert len(comparable_runs([*others, *ours])) == 1 + len(others)
    assert runs_table({"runs": others}, **YOLO) == NOTHING


def test_where_the_data_lay_and_how_often_they_were_scored_sets_no_runs_apart():
    data = voc320().data
    runs = [
        run(("iou",), 0.1, data=replace(data, path="voc320"), evaluate_every=20),
        run(("iou", 3.0), 0.2, data=replace(data, path="/somewhere/voc320")),
    ]
    assert len(comparable_runs(runs)) == 1


@pytest.mark.parametrize(
    ("recipe", "gain", "times"),
    [
        (voc320_faster_rcnn(), 10.0, ""),
        (voc320_faster_rcnn(), 20.0, ", box gain ×2"),
        (voc320_detr(), 2.0, ""),
        (voc320_detr(), 1.0, ", box gain ×0.5"),
    ],
)
def test_the_gain_is_measured_by_that_of_the_detector(recipe, gain, times):
    (table,) = comparable_runs([run(("giou",), 0.1, recipe, box_gain=gain)])
    assert list(table.rows) == [f"GIoU{times}"]


def test_a_loss_of_deltas_has_a_gain_of_its_own():
    runs = [run(("l1",), 0.1, voc320_faster_rcnn(), box_gain=1.0)]
    runs.append(run(("iou", 3.0), 0.2, voc320_faster_rcnn()))
    (table,) = comparable_runs(runs)
    assert {label: own.cell.baseline for label, own in table.rows.items()} == {
        "l1": None,
        "α-IoU (α=3)": None,
    }


def test_schedules_are_rows_of_their_own():
    schedules = [AlphaSchedule(1.0, 3.0), AlphaSchedule(1.0, 3.0, "cosine")]
    runs = [run(("iou", 3.0), 0.1, alpha_schedule=one) for one in schedules]
    (table,) = comparable_runs([*runs, run(("iou",), 0.1)])
    assert [(label, own.cell.baseline) for label, own in table.rows.items()] == [
        ("IoU", None),
        ("α-IoU (α 1→3 cosine)", "IoU"),
        ("α-IoU (α 1→3)", "IoU"),
    ]


def test_a_gain_that_moves_is_a_row_of_its_own_and_has_no_place_in_headlines():
    runs = [run(("iou",), 0.1), run(("iou",), 0.3, final_box_gain=0.15)]
    (table,) = comparable_runs(runs)
    assert [(label, own.cell.baseline) for label, own in table.rows.items()] == [
        ("IoU", None),
        ("IoU, box gain ×1→3", "IoU"),
    ]
    assert names_of(headline_table({"runs": runs}, **YOLO)) == ["IoU"]


def test_seeds_are_averaged_and_what_they_do_not_decide_is_marked():
    runs = [run(("iou",), 0.2 + seed / 100, seed=seed) for seed in range(3)]
    runs += [run(("iou", 3.0), 0.4 + seed / 100, seed=seed) for seed in range(3)]
    runs += [run(("diou",), 0.5), run(("diou", 3.0), 0.6)]
    table, notes = runs_table({"runs": runs}, **YOLO).split("\n\n")
    assert "| IoU | 21.00 |" in table
    assert "| – change | +95.24% (+90.9 to +100.0) |" in table
    assert "| – change | +20.00%° |" in table
    assert "the mean of 1 to 3 seeds a row" in notes
    assert "° marks" in notes


def test_headlines_have_the_paper_gain_the_best_one_and_what_is_left_of_alpha():
    levels = {0.05: 0.2, 0.1: 0.3, 0.15: 0.25}
    runs = [
        # Rows that do not begin with the same seed.
        run(("iou",), level, box_gain=gain, seed=seed + (gain == 0.05))
        for gain, level in levels.items()
        for seed in range(3)
    ]
    runs += [run(("iou",), 0.9, box_gain=0.2)]  # one seed is not enough
    runs += [run(("iou", 3.0), 0.4 + seed / 100, seed=seed, evaluate_every=5) for seed in range(3)]
    others = [
        run(("iou", 2.0), 0.9),
        run(("giou",), 0.9),
        run(("iou", 3.0), 0.9, alpha_schedule=AlphaSchedule(1.0, 3.0)),
        run(("iou", 3.0), 0.9, noise=0.3),
        run(("iou", 3.0), 0.9, epochs=60),
    ]
    text = headline_table({"runs": [*others, *runs]}, **YOLO)
    table, sentences = text.split("\n\n")
    assert names_of(table) == [
        *("IoU", "IoU, box gain ×2", "– change"),
        *("α-IoU (α=3)", "– change", "– change in the paper"),
    ]
    assert "| – change | +108% (" in table, "against IoU at the paper's gain"
    how, first, *_ = sentences.splitlines()
    assert how.endswith("IoU ×2 of ×1, ×2, ×3; α-IoU (α=3) ×1 of ×1.")
    assert "is better than IoU at its own at AP50 by 11.50 points" in first
    assert "two seeds" in first, "which all rows have"
    assert headline_table({"runs": others}, **YOLO) == NOTHING


def test_headlines_are_of_the_seeds_of_the_usual_gain_where_another_has_more():
    runs = [
        run(("iou", power), 0.2 * power, seed=seed) for power in (1.0, 3.0) for seed in range(2)
    ]
    runs += [run(("iou",), 0.3 + (seed > 1), box_gain=0.1, seed=seed) for seed in range(4)]
    table, _ = headline_table({"runs": runs}, **YOLO).split("\n\n")
    assert [line for line in table.splitlines() if line.startswith("| IoU, box gain ×2 | 30.00 |")]
    assert "α-IoU (α=3)" in names_of(table)


def test_headlines_without_the_usual_gain_have_the_best_one():
    runs = [run(("iou",), 10 * gain, box_gain=gain) for gain in (0.02, 0.04)]
    assert names_of(headline_table({"runs": runs}, **YOLO)) == ["IoU, box gain ×0.8"]


def test_runs_of_another_detector_with_speeds():
    recipe = replace(voc320_faster_rcnn(), epochs=20)
    runs = [run(("iou",), 0.2, recipe), run(("iou", 3.0), 0.3, recipe), run(("iou",), 0.9)]
    text = detector_runs({"runs": runs}, detector="fasterrcnn_r50_fpn")
    title, scores, notes, speeds = text.split("\n\n")
    assert title == "fasterrcnn_r50_fpn on shapes, 320 px, 20 epochs:"
    assert names_of(scores) == ["IoU", "α-IoU (α=3)", "– change"]
    assert "°" not in scores
    assert "one seed each" in notes
    assert speeds.splitlines()[2] == "| IoU | 0 | 320 | 16 | 20 | 123 | 3.0 | a device |"


def test_every_setting_of_a_detector_has_its_tables():
    runs = [run(("giou",), 0.2, voc320_detr(), epochs=epochs) for epochs in (50, 150)]
    text = detector_runs({"runs": runs}, detector="detr_r50")
    assert text.index("150 epochs:") < text.index("50 epochs:", text.index("150 epochs:") + 9)
    assert detector_runs({"runs": []}, detector="detr_r50") == NOTHING


def test_speeds_have_what_was_recorded_and_say_what_it_must_be_read_with():
    recipe = replace(voc320(), detector="yolov5x", epochs=3)
    timed = run(("iou", 3.0), 0.1, recipe) | {"seconds_to_first_step": 45.2}
    text = speeds_table({"runs": [timed, run(("iou",), 0.1)]}, detector="yolov5x")
    assert text.splitlines()[2] == "| α-IoU (α=3) | 0 | 320 | 64 | 3 | 123 | 3.0 | 45 | a device |"
    shared = run(("iou",), 0.1, recipe) | {"notes": ["two at once: images a second of each"]}
    both = speeds_table({"runs": [timed, shared]}, detector="yolov5x")
    assert "| 3.0 | – | a device |" in both
    assert both.endswith("Notes of the records: two at once: images a second of each.")
    assert speeds_table({"runs": []}, detector="yolov5x") == NOTHING


def test_findings_pass_over_runs_of_no_grid():
    recipe = replace(voc320(), data=replace(voc320().data, path="voc320", train="train"))
    yolo = [run(loss, 0.2, recipe, evaluate_every=20) for loss in (("iou",), ("iou", 3.0))]
    others = [
        run(("iou",), 0.1, replace(recipe, detector="yolov5x", epochs=3)),
        run(("giou",), 0.1, replace(voc320_detr(), data=recipe.data)) | {"scores": {}},
        run(("giou", 3.0), 0.1, replace(voc320_detr(), data=recipe.data)),
        *(
            run(loss, 0.1, replace(voc320_faster_rcnn(), data=recipe.data, epochs=20))
            for loss in (("iou",), ("iou", 3.0))
        ),
    ]
    text = findings({"runs": yolo})
    assert "## 100 epochs" in text
    assert findings({"runs": [*others, *yolo]}) == text


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


@pytest.mark.parametrize(
    "unusual",
    [
        {"class_gain": 1.0},
        {"objectness_gain": 4.0},
        {"optimisation": replace(voc320().optimisation, lr=0.02)},
    ],
)
def test_plain_runs_have_the_usual_gains_though_others_are_more(unusual):
    own = [run(("iou",), 0.2), run(("diou",), 0.2)]
    more = [run((kind,), 0.2, **unusual) for kind in ("iou", "diou", "giou")]
    assert list(plain_runs([*own, *more], "yolov5s").rows) == ["IoU", "DIoU"]
    assert plain_runs(more, "yolov5s") is None


def test_curves_have_a_line_a_row():
    table = plain_runs(read_record(RESULTS)["runs"], "yolov5s", 100)
    assert len(table.rows) >= 5
    assert [len(axes.lines) for axes in curves_figure(table.rows).axes] == [len(table.rows)] * 3


def test_figures_are_drawn_of_the_detectors_that_have_curves(tmp_path, capsys):
    folder = tmp_path / "results/voc320"
    folder.mkdir(parents=True)
    unwatched = run(("giou",), 0.2, voc320_detr()) | {"history": [{"epoch": 1, "box": 1.0}]}
    for one in (run(("iou",), 0.2), run(("iou",), 0.2, voc320_faster_rcnn()), unwatched):
        (folder / f"{one['name']}.json").write_text(json.dumps(one))
    assert run_figures.main(tmp_path) == 0
    drawn = {Path(line).stem for line in capsys.readouterr().out.splitlines()}
    assert drawn == {"voc320_curves", "voc320_faster_rcnn_curves"}


@pytest.mark.slow
def test_what_the_findings_show_as_a_picture_is_drawn(tmp_path, capsys):
    recipe = quick_scale(Path("voc320")).recipe()
    gains = [run(("iou",), 0.2, recipe, box_gain=gain) for gain in (0.025, 0.05, 0.1)]
    folder = tmp_path / "results/voc320"
    folder.mkdir(parents=True)
    for one in gains:
        (folder / f"{one['name']}.json").write_text(json.dumps(one))
    assert run_figures.main(tmp_path) == 0
    assert "docs/images/voc320_gains_gain.svg\n" in capsys.readouterr().out
    assert "](images/voc320_gains_gain.svg)" in findings({"runs": gains})
    assert "](images/" not in findings({"runs": gains[:2]}), "which are too few values"
    long = quick_scale(Path("voc320"), epochs=90).recipe()
    longer = [run(("iou",), 0.2, long, box_gain=gain) for gain in (0.025, 0.05, 0.1)]
    assert "α against a larger box gain" in findings({"runs": longer})
    assert "](images/" not in findings({"runs": longer}), "which are not of the budget"
    candidate = run(("iou", 2.0), 0.25, recipe, box_gain=1.5 * 0.05)
    (folder / f"{candidate['name']}.json").write_text(json.dumps(candidate))
    assert run_figures.main(tmp_path) == 0
    assert "docs/images/voc320_beyond.svg\n" in capsys.readouterr().out
    assert "](images/voc320_beyond.svg)" in findings({"runs": [*gains, candidate]})
    assert "voc320_beyond" not in findings({"runs": gains})


def test_the_committed_findings_have_their_pictures():
    record = read_record(RESULTS)
    for name in drawn(record):
        assert (RESULTS.parents[1] / f"docs/images/{name}.svg").is_file(), (
            f"{name}: python -m tools.run_figures"
        )
