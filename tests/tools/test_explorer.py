"""Records as the page shows them, and the files that are built from them."""

import os
import webbrowser
from dataclasses import replace
from pathlib import Path

import pytest
from scipy import stats

from alphaiou._config import to_plain
from alphaiou.cli import main
from alphaiou.explorer import explorer_page
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS
from alphaiou.training.recipe import recipe_hash
from alphaiou.training.recipes import voc320, voc320_faster_rcnn
from tools import explorer as build
from tools.explorer import summarise

ROOT = Path(__file__).parents[2]


def made_record(score, seed=0, loss="iou", **changes):
    recipe = replace(voc320(), loss=LossSpec.parse(loss), seed=seed, **changes)
    return {"record": "run", "name": recipe_hash(recipe)} | {
        "recipe": to_plain(recipe),
        "scores": dict.fromkeys(PAPER_COLUMNS, score),
        "scored_on": "test",
    }


def change_of(run, score):
    return run["changes"][PAPER_COLUMNS.index(score)]


def test_the_files_are_what_the_records_say():
    assert build.main(["--check"], ROOT) == 0, "run python -m tools.explorer"


def test_what_is_out_of_date_is_named_and_written(tmp_path, capsys):
    assert build.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err.count("is out of date") == 1
    assert build.main([], tmp_path) == 0
    assert build.main(["--check"], tmp_path) == 0
    assert (tmp_path / build.RESULTS).read_text() == "[]\n"
    assert build.main(["--nonsense"], tmp_path) == 2


def test_titles_tell_the_committed_settings_apart():
    from alphaiou.study.records import load_records

    titles = [table["title"] for table in summarise(load_records([ROOT / build.RECORDS]).values())]
    assert len(titles) == len(set(titles)) > 0


def test_a_setting_in_which_nothing_is_compared_is_left_out():
    """The page would have nothing to draw of it."""
    rows = [made_record(0.2, box_gain=gain, class_gain=1.0) for gain in (0.1, 0.2)]
    assert summarise(rows) == []
    (table,) = summarise([*rows, made_record(0.2, class_gain=1.0)])
    assert len(table["runs"]) == 3


def test_a_title_says_which_gains_are_unusual():
    faster = replace(voc320().optimisation, lr=0.02)
    changes = {"class_gain": 1.0, "objectness_gain": 4.0, "optimisation": faster}
    records = [made_record(0.2, loss=loss, **changes) for loss in ("iou", "iou:2", "iou:3")]
    records += [made_record(0.2, loss=loss) for loss in ("iou", "iou:2", "iou:3")]
    titles = {table["title"] for table in summarise(records)}
    (usual,) = (title for title in titles if "×" not in title)
    assert titles == {usual, f"{usual}, class gain ×2, objectness gain ×4, learning rate ×2"}
    records = [
        {
            "record": "run",
            "name": str(loss),
            "recipe": to_plain(replace(voc320_faster_rcnn(), loss=loss)),
            "scores": dict.fromkeys(PAPER_COLUMNS, 0.2),
            "scored_on": "test",
        }
        for loss in (LossSpec("iou"), LossSpec("iou", 2.0), LossSpec("iou", 3.0))
    ]
    (table,) = summarise(records)
    assert "×" not in table["title"], "its rate is its own"


def test_seeds_are_paired_and_give_an_interval():
    base, better = [0.2, 0.24, 0.22], [0.25, 0.26, 0.29]
    records = [made_record(score, seed) for seed, score in enumerate(base)]
    records += [made_record(score, seed, "iou:3") for seed, score in enumerate(better)]
    records.append(made_record(0.9, 7, "iou:3"))  # no partner: in the mean, not in the change
    records.append(made_record(0.3, 0, "iou:2"))
    (table,) = summarise(records)
    plain, _, powered = table["runs"]
    assert (plain["name"], plain["alpha"], plain["changes"]) == ("IoU", 1.0, None)
    assert (powered["name"], powered["alpha"], powered["seeds"]) == ("α-IoU (α=3)", 3.0, 4)
    map_ = PAPER_COLUMNS.index("map")
    assert (plain["scores"][map_], powered["scores"][map_]) == pytest.approx((22, 42.5))
    mean, *ends = change_of(powered, "ap95")
    differences = [b - a for a, b in zip(base, better, strict=True)]
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert mean == pytest.approx(100 * sum(differences) / 3, abs=0.005)
    assert ends == pytest.approx([100 * low, 100 * high], abs=0.0051)


def test_one_seed_gives_a_change_and_no_interval():
    losses = ("iou:2", "iou:3")
    (table,) = summarise([made_record(0.2), *(made_record(0.3, loss=loss) for loss in losses)])
    assert [change_of(run, "map") for run in table["runs"][1:]] == [[10.0], [10.0]]


def test_a_kind_without_its_baseline_has_no_change():
    losses = ("giou:3", "iou:2", "iou:3")
    (table,) = summarise([made_record(0.2), *(made_record(0.3, loss=loss) for loss in losses)])
    changed = {run["name"] for run in table["runs"] if run["changes"]}
    assert (len(table["runs"]), changed) == (4, {"α-IoU (α=2)", "α-IoU (α=3)"})


def test_only_constant_powers_and_plain_losses_at_other_gains_are_shown():
    """The rest is in the docs: the page ships with the package and stays small."""
    records = [
        made_record(0.2),
        made_record(0.3, box_gain=0.1),
        made_record(0.3, loss="iou:3"),
        made_record(0.3, loss="iou:3", box_gain=0.1),
        made_record(0.4, loss="iou:3", alpha_schedule=AlphaSchedule(start=1.0, end=3.0)),
        made_record(0.5, loss="iou:3:1"),
        made_record(0.5, loss="iou+wise:3"),
    ]
    (table,) = summarise(records)
    runs = {run["name"]: run for run in table["runs"]}
    assert runs.keys() == {"IoU", "IoU, box gain ×2", "α-IoU (α=3)"}
    assert [run["alpha"] for run in runs.values()] == [1.0, None, 3.0]
    assert change_of(runs["IoU, box gain ×2"], "map") == [10.0]


def test_the_committed_summary_is_small():
    assert (ROOT / build.RESULTS).stat().st_size <= 11_000


def test_other_data_make_other_tables():
    records = [made_record(0.2, box_gain=gain) for gain in (0.05, 0.1, 0.15)]
    records += [made_record(0.1, loss=loss, noise=0.3) for loss in ("iou", "iou:2", "iou:3")]
    clean, noisy = summarise(records)
    assert (len(clean["runs"]), len(noisy["runs"])) == (3, 3)
    assert noisy["title"] == f"{clean['title']}, noise 0.3"


def test_what_has_nothing_beside_it_or_no_scores_is_left_out():
    assert summarise([made_record(0.2), made_record(0.3, detector="yolov5x", epochs=3)]) == []
    without = made_record(0.2, loss="iou:3") | {"scores": {"map": 0.2, "ap95": None}}
    assert summarise([made_record(0.2), without]) == []


def test_every_detector_has_its_usual_gain():
    own = {"detector": "fasterrcnn_r50_fpn", "box_gain": 10.0}
    losses = ("iou:2", "iou:3")
    powered = [made_record(0.3, loss=loss, **own) for loss in losses]
    (table,) = summarise([made_record(0.2, **own), *powered])
    assert [run["name"] for run in table["runs"]] == ["IoU", "α-IoU (α=2)", "α-IoU (α=3)"]
    assert change_of(table["runs"][1], "map") == [10.0]


def test_explore_writes_the_page(tmp_path, capsys):
    path = tmp_path / "deep/explorer.html"
    assert main(["explore", "--no-open", "--out", str(path)]) == 0
    assert path.read_text("utf-8") == explorer_page()
    assert capsys.readouterr().out == f"wrote {path}\n"


def test_explore_says_what_stands_in_the_way(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["explore", "--no-open", "--out", str(tmp_path / "file/page.html")]) == 1
    assert "file" in capsys.readouterr().err


@pytest.mark.skipif(os.name != "posix", reason="the browser of this test is a shell script")
def test_explore_opens_a_browser(tmp_path, monkeypatch):
    """The only browser there is here writes down what it is shown."""
    script = tmp_path / "browser"
    script.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/seen\n')
    script.chmod(0o755)
    monkeypatch.setattr(webbrowser, "_browsers", {})
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    webbrowser.register("writer", None, webbrowser.GenericBrowser([str(script), "%s"]))
    page = tmp_path / "page.html"
    assert main(["explore", "--out", str(page)]) == 0
    assert (tmp_path / "seen").read_text().strip() == page.as_uri()


def test_explore_without_a_browser_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    assert main(["explore", "--out", str(tmp_path / "page.html")]) == 0
    assert "open the file" in capsys.readouterr().out
