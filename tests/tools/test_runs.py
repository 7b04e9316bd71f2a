"""Committed runs as tables and figures of the docs, from made records and from real ones."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics import relative_improvement
from alphaiou.metrics.columns import PAPER_COLUMNS
from alphaiou.paper.published import TABLE_1_VOC, published_scores
from alphaiou.paper.scales import quick_scale
from alphaiou.study.figures import curves_chart
from alphaiou.study.records import record_paths
from alphaiou.training.recipe import Recipe, recipe_from, recipe_hash
from alphaiou.training.recipes import voc320, voc320_detr, voc320_faster_rcnn
from benchmarks.record import load_record
from tests.study.made import made_record, write_record
from tools import findings as module
from tools.findings import drawings, grid_tables
from tools.runs import (
    EARLIER,
    NOTHING,
    grids_of,
    headline_table,
    other_seed_scatter,
    plain_grid,
    repeats,
    repeats_table,
    rows_of,
    runs_of,
    same_seed_scatter,
    scatter_table,
)

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies/voc320/records"
YOLO = {"detector": "yolov5s", "epochs": 100}


def run(loss, score, recipe=None, **changes):
    """A record with the same score in every column."""
    recipe = replace(recipe or voc320(), loss=LossSpec(*loss), precision="bf16", **changes)
    scores = dict.fromkeys(PAPER_COLUMNS, score)
    return made_record(recipe, score) | {"scores": scores}


def names_of(table):
    """The first rows of the lines of a Markdown table."""
    lines = [line for line in table.splitlines() if line.startswith("| ")][2:]
    return [line.split(" | ")[0].removeprefix("| ") for line in lines]


def test_changes_are_against_the_plain_run_of_the_same_kind():
    runs = [run(("diou", 3.0), 0.3), run(("iou",), 0.2, box_gain=0.1), run(("diou",), 0.2)]
    table = headline_table({"runs": [*runs, run(("iou",), 0.1)]}, **YOLO)
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
    both = headline_table({"runs": [*others, *ours]}, **YOLO)
    assert both == headline_table({"runs": ours}, **YOLO)
    assert len(grids_of([*others, *ours])) == 1 + len(others)
    assert headline_table({"runs": others}, **YOLO) == NOTHING


def test_runs_that_were_scored_in_the_corner_are_left_out():
    data = replace(voc320().data, path="somewhere/voc320")
    length = {"epochs": 100, "data": data}
    runs = [run(("iou",), 0.1, **length), run(("iou",), 0.1, epochs=60, data=data)]
    runs.append(run(("iou",), 0.1, voc320_faster_rcnn(), epochs=12, data=data))
    runs.append(run(("iou",), 0.1, voc320_faster_rcnn(), epochs=36, data=data))
    assert runs_of({"runs": runs}) == [runs[1], runs[3]]
    every = load_record(RESULTS)
    assert len(runs_of(every)) == len(every["runs"]) + len(every["folders"][EARLIER]["runs"]) - 7


def test_where_the_data_lay_and_how_often_they_were_scored_sets_no_runs_apart():
    data = voc320().data
    runs = [
        run(("iou",), 0.1, data=replace(data, path="voc320"), evaluate_every=20),
        run(("iou", 3.0), 0.2, data=replace(data, path="/somewhere/voc320")),
    ]
    assert len(grids_of(runs)) == 1


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
    (table,) = grids_of([run(("giou",), 0.1, recipe, box_gain=gain)])
    assert [row.label for row in table.rows] == [f"GIoU{times}"]


def test_a_loss_of_deltas_has_a_gain_of_its_own():
    runs = [run(("l1",), 0.1, voc320_faster_rcnn(), box_gain=1.0)]
    runs.append(run(("iou", 3.0), 0.2, voc320_faster_rcnn()))
    (table,) = grids_of(runs)
    assert {row.label: row.baseline for row in table.rows} == {
        "l1": None,
        "α-IoU (α=3)": None,
    }


def test_schedules_are_rows_of_their_own():
    schedules = [AlphaSchedule(1.0, 3.0), AlphaSchedule(1.0, 3.0, "cosine")]
    runs = [run(("iou", 3.0), 0.1, alpha_schedule=one) for one in schedules]
    (table,) = grids_of([*runs, run(("iou",), 0.1)])
    assert [(row.label, row.baseline) for row in table.rows] == [
        ("IoU", None),
        ("α-IoU (α 1→3 cosine)", "IoU"),
        ("α-IoU (α 1→3)", "IoU"),
    ]


def test_a_gain_that_moves_is_a_row_of_its_own_and_has_no_place_in_headlines():
    runs = [run(("iou",), 0.1), run(("iou",), 0.3, final_box_gain=0.15)]
    (table,) = grids_of(runs)
    assert [(row.label, row.baseline) for row in table.rows] == [
        ("IoU", None),
        ("IoU, box gain ×1→3", "IoU"),
    ]
    assert names_of(headline_table({"runs": runs}, **YOLO)) == ["IoU"]


def test_headlines_have_the_paper_gain_the_best_one_and_what_is_left_of_alpha():
    levels = {0.05: 0.2, 0.1: 0.3, 0.15: 0.25}
    runs = [
        # Rows that do not begin with the same seed.
        run(("iou",), level, box_gain=gain, seed=seed + (gain == 0.05))
        for gain, level in levels.items()
        for seed in range(3)
    ]
    runs += [run(("iou",), 0.9, box_gain=0.2)]  # one seed is not enough
    runs += [run(("iou", 3.0), 0.43, seed=seed, evaluate_every=5) for seed in range(3)]
    others = [
        run(("iou", 2.0), 0.9),
        run(("giou",), 0.9),
        run(("iou", 3.0), 0.9, alpha_schedule=AlphaSchedule(1.0, 3.0)),
        run(("iou", 3.0), 0.9, noise=0.3),
        run(("iou", 3.0), 0.9, epochs=60),
    ]
    table = headline_table({"runs": [*others, *runs]}, **YOLO)
    assert names_of(table) == [
        *("IoU", "IoU, box gain ×2", "– change"),
        *("α-IoU (α=3)", "– change", "– change in the paper"),
    ]
    assert "| – change | +115% (" in table, "against IoU at the paper's gain"
    assert headline_table({"runs": others}, **YOLO) == NOTHING


def test_headlines_are_of_the_seeds_of_the_usual_gain_where_another_has_more():
    runs = [
        run(("iou", power), 0.2 * power, seed=seed) for power in (1.0, 3.0) for seed in range(2)
    ]
    runs += [run(("iou",), 0.3 + (seed > 1), box_gain=0.1, seed=seed) for seed in range(4)]
    table = headline_table({"runs": runs}, **YOLO)
    assert [line for line in table.splitlines() if line.startswith("| IoU, box gain ×2 | 30.00 |")]
    assert "α-IoU (α=3)" in names_of(table)


def test_headlines_without_the_usual_gain_have_the_best_one():
    runs = [run(("iou",), 10 * gain, box_gain=gain) for gain in (0.02, 0.04)]
    assert names_of(headline_table({"runs": runs}, **YOLO)) == ["IoU, box gain ×0.8"]


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
        record = load_record(path)
        assert record["name"] == recipe_hash(recipe_from(record["recipe"]))


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
    grid = plain_grid([*own, *more], "yolov5s")
    assert [row.label for row in grid.rows] == ["IoU", "DIoU"]
    assert plain_grid(more, "yolov5s") is None


def test_curves_have_a_line_a_row():
    runs = load_record(RESULTS)["runs"]
    rows = rows_of(plain_grid(runs, "yolov5s", 100), runs)
    assert len(rows) >= 5
    assert [len(axes.lines) for axes in curves_chart(rows).draw().axes] == [len(rows)] * 3


@pytest.mark.slow
def test_grids_are_tables_and_some_of_them_pictures(tmp_path, capsys):
    recipe = quick_scale(Path("voc320")).recipe()
    gains = [run(("iou",), 0.2, recipe, box_gain=gain) for gain in (0.025, 0.05, 0.1)]
    folder = tmp_path / "studies/voc320/records"
    folder.mkdir(parents=True)
    for one in gains:
        write_record(one, folder / f"{one['name']}.json")
    assert module.main(tmp_path) == 0
    assert "docs/images/voc320_gains_gain.svg\n" in capsys.readouterr().out
    assert names_of(grid_tables({"runs": gains})["gains"])[:2] == [
        "IoU, box gain ×0.5",
        "– change",
    ]
    assert drawings({"runs": gains[:2]}) == {}, "two values make no curve"
    candidate = run(("iou", 2.0), 0.25, recipe, box_gain=1.5 * 0.05)
    write_record(candidate, folder / f"{candidate['name']}.json")
    assert module.main(tmp_path) == 0
    assert "docs/images/voc320_beyond.svg\n" in capsys.readouterr().out
    assert "beyond" not in "".join(drawings({"runs": gains}))


def test_the_committed_findings_have_their_pictures():
    page = (ROOT / "docs/findings.md").read_text(encoding="utf-8")
    for name in drawings(load_record(RESULTS)):
        assert (ROOT / f"docs/images/{name}.svg").is_file(), f"{name}: python -m tools.findings"
        assert f"](images/{name}.svg)" in page


# --- runs that were repeated ---------------------------------------------------------------------

REPEATED = {"detector": "yolov5s", "epochs": 60}


def repeated_run(alpha, seed, score):
    recipe = replace(Recipe(), loss=LossSpec("iou", alpha), seed=seed, epochs=60, precision="bf16")
    return made_record(recipe, 0.5) | {"scores": dict.fromkeys(PAPER_COLUMNS, score)}


def twice(first, again):
    """Records of IoU and α-IoU: scores by α, seed by seed."""
    runs = (
        [
            repeated_run(alpha, seed, score)
            for alpha, row in own.items()
            for seed, score in enumerate(row)
        ]
        for own in (first, again)
    )
    earlier, later = runs
    return {"runs": later, "folders": {EARLIER: {"runs": earlier, "folders": {}}}}


def numbers_of(table, name):
    """The numbers of a line of a Markdown table, without their intervals."""
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [text.split(" (")[0] for text in line.removesuffix(" |").split(" | ")[1:]]


FIRST = {1.0: [0.40, 0.42, 0.41], 3.0: [0.44, 0.45, 0.47]}
AGAIN = {1.0: [0.41, 0.40, 0.42], 3.0: [0.47, 0.46, 0.46]}


def test_changes_of_the_first_of_the_second_and_of_both():
    table = repeats_table(twice(FIRST, AGAIN), **REPEATED)
    both = {alpha: FIRST[alpha] + AGAIN[alpha] for alpha in FIRST}
    for name, own in (("first", FIRST), ("again", AGAIN), ("both", both)):
        change = np.mean(own[3.0]) / np.mean(own[1.0]) - 1
        (text,) = set(numbers_of(table, f"α-IoU (α=3), {name}"))
        assert text.rstrip("°") == f"{100 * change:+.2f}%"
    assert [line.split(" | ")[0] for line in table.splitlines()[2:5]] == [
        f"| α-IoU (α=3), {name}" for name in ("first", "again", "both")
    ]


def test_scatter_of_a_seed_and_between_seeds():
    found = repeats(twice(FIRST, AGAIN), **REPEATED)
    pairs = np.array([[FIRST[alpha], AGAIN[alpha]] for alpha in FIRST])
    within, between = pairs.var(1, ddof=1).mean() ** 0.5, pairs.var(2, ddof=1).mean() ** 0.5
    assert same_seed_scatter(found, "ap75") == pytest.approx(within)
    assert other_seed_scatter(found, "ap75") == pytest.approx(between)
    table = scatter_table(twice(FIRST, AGAIN), **REPEATED)
    assert set(numbers_of(table, "the same seed again")) == {f"{100 * within:.2f}"}
    assert set(numbers_of(table, "another seed")) == {f"{100 * between:.2f}"}


def test_one_seed_has_no_scatter_between_seeds():
    once = {alpha: row[:1] for alpha, row in FIRST.items()}
    table = scatter_table(twice(once, AGAIN), **REPEATED)
    assert set(numbers_of(table, "another seed")) == {"–"}
    assert set(numbers_of(table, "the same seed again")) != {"–"}


def test_runs_that_were_made_once_are_left_out():
    record = twice(FIRST, {**AGAIN, 4.0: [0.5, 0.5, 0.5]})
    assert repeats_table(record, **REPEATED) == repeats_table(twice(FIRST, AGAIN), **REPEATED)
    gone = twice({**FIRST, 4.0: [0.5, 0.5, 0.5]}, AGAIN)
    assert repeats_table(gone, **REPEATED) == repeats_table(twice(FIRST, AGAIN), **REPEATED)


def test_a_score_that_one_of_the_two_does_not_have_is_that_of_the_other():
    place = PAPER_COLUMNS.index("ap95")
    for change in (lambda scores: scores.update(ap95=None), lambda scores: scores.pop("ap95")):
        record = twice(FIRST, AGAIN)
        for made in record["runs"]:
            change(made["scores"])
        table = repeats_table(record, **REPEATED)
        first, again, both = (
            numbers_of(table, f"α-IoU (α=3), {name}")[place] for name in ("first", "again", "both")
        )
        assert (again, both) == ("–", first)


def test_headlines_count_repeated_runs_and_all_comparable_ones():
    """The levels are those of six runs; other rows tell how much runs vary."""
    record = twice(FIRST, AGAIN)
    table = headline_table(record, **REPEATED)
    both = {alpha: FIRST[alpha] + AGAIN[alpha] for alpha in FIRST}
    assert f"| IoU | {100 * np.mean(both[1.0]):.2f} |" in table
    assert f"| α-IoU (α=3) | {100 * np.mean(both[3.0]):.2f} |" in table
    change = np.mean(both[3.0]) / np.mean(both[1.0]) - 1
    assert f"| – change | {100 * change:+.2f}% (" in table
    steady = [repeated_run(5.0, seed, 0.45 + 0.01 * (seed == 2)) for seed in range(3)]
    more = headline_table({**record, "runs": [*record["runs"], *steady]}, **REPEATED)
    assert names_of(more) == names_of(table)
    assert more != table, "the intervals"


def test_without_earlier_runs_there_is_nothing_to_say():
    assert (
        repeats_table({"runs": [repeated_run(1.0, 0, 0.4)], "folders": {}}, **REPEATED) == NOTHING
    )
    assert repeats_table(twice(FIRST, AGAIN), detector="yolov5s", epochs=100) == NOTHING


def test_the_committed_runs_were_made_twice():
    found = repeats(load_record(RESULTS), **REPEATED)
    assert {label: sorted(own.runs) for label, own in found["again"].items()} == {
        label: [0, 1, 2] for label in ("IoU", "α-IoU (α=3)", "DIoU", "α-DIoU (α=3)")
    }
    for label, own in found["first"].items():
        for seed, made in own.runs.items():
            other = found["again"][label].runs[seed]
            assert recipe_from(made["recipe"]) == recipe_from(other["recipe"])
            assert made["history"] != other["history"]


def test_other_tables_are_made_of_the_later_records():
    paths = record_paths([RESULTS])
    earlier = list((RESULTS / EARLIER).glob("*.json"))
    assert earlier
    names = [load_record(path)["name"] for path in earlier]
    assert [paths[name] for name in names] == [RESULTS / path.name for path in earlier]
