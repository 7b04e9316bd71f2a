"""``alphaiou paper tables``, ``plots`` and ``report`` on made runs and on the committed ones."""

import re
from pathlib import Path

import pytest

from alphaiou.cli import UsageError, main
from alphaiou.cli.paper.options import GridOptions, chosen_grids
from alphaiou.cli.paper.plots import PaperPlots, run_paper_plots
from alphaiou.cli.paper.report import PaperReport, run_paper_report
from alphaiou.cli.paper.tables import PaperTables, run_paper_tables
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.problems import DataError
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.paper.study import open_study, scale_of_records
from alphaiou.study.records import RecordError
from alphaiou.study.tables import study_table
from tests.study.made import records_of, split_run, write_runs

RESULTS = Path(__file__).parents[2] / "studies/voc320/records"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Two seeds of the quick table on drawn shapes."""
    grid = paper_grids(quick_scale(), seeds=(0, 1))["table1"]
    return write_runs(records_of(grid), tmp_path_factory.mktemp("drawn"))


def test_tables_of_the_committed_runs(capsys):
    assert run_paper_tables(PaperTables(("table1",), (RESULTS,), epochs=100)) == 0
    out = capsys.readouterr().out
    assert "| α-IoU (α=3) | 62.98 |" in out
    assert "| – change in the paper | -0.24% |" in out
    assert "YOLOv5 from scratch in 100 epochs" in out


@pytest.mark.slow
@pytest.mark.parametrize(("how", "ending"), [("md", "md"), ("csv", "csv"), ("latex", "tex")])
def test_tables_are_written_and_the_same_again(drawn, tmp_path, how, ending):
    for part in "ab":
        run_paper_tables(PaperTables((), (drawn,), out=tmp_path / part, format=how))
    first, second = (sorted((tmp_path / part).iterdir()) for part in "ab")
    assert f"table1.{ending}" in [path.name for path in first]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


@pytest.mark.slow
def test_plots_and_report_are_written(drawn, tmp_path, capsys):
    assert run_paper_plots(PaperPlots(("table1",), (drawn,), out=tmp_path / "plots")) == 0
    assert (tmp_path / "plots/table1-curves.svg").is_file()
    assert run_paper_report(PaperReport((), (drawn,), out=tmp_path / "page")) == 0
    page = (tmp_path / "page/report.html").read_text(encoding="utf-8")
    assert "says nothing about the paper" in page
    assert f"wrote {tmp_path / 'page/report.html'}" in capsys.readouterr().out


@pytest.fixture(scope="module")
def three_splits(tmp_path_factory):
    """The grid of gains with scores on val and test, of a data set that has both."""
    folder = tmp_path_factory.mktemp("chosen")
    for split, length in (("train", 2), ("val", 1), ("test", 1)):
        index = shapes_index(split, size=64, length=length, level="plain")
        write_yolo(index, folder / "mine", images="copy")
    grid = paper_grids(quick_scale(folder / "mine"), seeds=(0, 1))["gains"]
    records = {}
    for name, run in records_of(grid).items():
        gain, power = (
            round(run["recipe"]["detector"]["box_gain"], 4),
            run["recipe"]["loss"]["alpha"],
        )
        level = 0.3 + 0.01 * run["recipe"]["seed"] + 0.02 * power
        val = [level + 0.1 * (gain == 0.15)] * 60  # best at three times the gain, test at once
        records[name] = split_run(run, val, [level + 0.1 * (gain == 0.05)] * 60, 60)
    return write_runs(records, folder / "runs"), folder / "mine"


def test_a_gain_is_chosen_on_val_and_its_scores_are_on_test(three_splits, capsys):
    runs, data = three_splits
    options = ["gains", "--results", str(runs), "--data", str(data)]
    assert main(["paper", "tables", *options, "--choose", "map75_95"]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^\| ([^–|]*) \| ([\d.]+) \|", out, re.MULTILINE)
    assert rows == [("IoU, box gain ×3", "32.50"), ("α-IoU (α=3), box gain ×3", "36.50")]
    assert "best of 4 rows of its loss by mAP75:95 on val; the scores are on test" in out
    assert main(["paper", "tables", *options, "--choose", "map", "--per", "kind"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^\| ([^–|]*) \| [\d.]+ \|", out, re.MULTILINE) == [
        "α-IoU (α=3), box gain ×3"
    ]


def test_runs_whose_weights_are_the_best_on_val_have_grids_of_their_own(three_splits, tmp_path):
    _, data = three_splits
    (best,), (last,) = (
        chosen_grids(["table1"], GridOptions(True, data, select=select))
        for select in ("best", "last")
    )
    assert {row.recipe.select for row in best.rows} == {"best"}
    assert "The weights that score best on val are scored on test" in " ".join(best.differs)
    records = records_of(best)
    for record in records.values():
        record |= {"scored_on": "test", "selected": {"epoch": 3, "map": 0.5, "on": "val"}}
    study = open_study(("table1",), [write_runs(records, tmp_path)], data=data)
    assert study.grids[0].rows == best.rows != last.rows
    notes = study_table(study.grids[0], study.records).notes
    assert not any("favours" in note for note in notes)


def test_the_best_weights_need_a_split_to_choose_them_on():
    with pytest.raises(DataError, match="voc320: there is no val split to select the best weights"):
        chosen_grids((), GridOptions(True, Path("voc320"), select="best"))


def test_what_cannot_be_chosen(drawn):
    with pytest.raises(UsageError, match=r"--choose must be one of ap50, .*map75_95; got 'map75'"):
        run_paper_tables(PaperTables((), (drawn,), choose="map75"))
    with pytest.raises(RecordError, match="needs runs with scores on val and on test"):
        run_paper_tables(PaperTables(("table1",), (drawn,), choose="map"))


def test_grids_and_seeds_are_those_of_the_records(drawn):
    study = open_study((), [drawn])
    names = [grid.name for grid in study.grids]
    assert "table1" in names
    assert "table3" not in names  # which has no run
    assert {grid.seeds for grid in study.grids} == {(0, 1)}


def test_the_scale_is_that_of_most_records():
    def record(path, epochs, detector="yolov5s"):
        return {
            "recipe": {"detector": {"name": detector}, "epochs": epochs, "data": {"path": path}}
        }

    runs = [record("voc320", 60), record("voc320", 60), record("voc320", 100)]
    assert scale_of_records(runs).recipe().epochs == 60
    assert scale_of_records(runs, epochs=100).recipe().epochs == 100
    # The budget of the project comes first, even where other lengths were tried more often.
    assert scale_of_records([*runs, *[record("voc320", 30)] * 3]).recipe().epochs == 60
    assert scale_of_records([*runs[2:], *[record("voc320", 30)] * 3]).recipe().epochs == 30
    assert (
        scale_of_records([*runs, record("voc320", 12, "fasterrcnn_r50_fpn")] * 3).recipe().epochs
        == 60
    )
    assert scale_of_records([record("voc", 300), *runs[:0]]).name == "paper"
    assert scale_of_records([record("shapes-discs-64", 9)]).name == "shapes"
    assert scale_of_records([record("shapes-discs-64", 9)], data=Path("x/voc320")).name == "voc320"


def test_a_grid_that_is_not_there(drawn):
    with pytest.raises(UsageError, match=r"no grid 'tabel1'; there are table1, "):
        run_paper_tables(PaperTables(("tabel1",), (drawn,)))


def test_no_records(tmp_path):
    with pytest.raises(RecordError, match="paper run --quick makes some"):
        run_paper_report(PaperReport((), (tmp_path,), out=tmp_path / "page"))
    assert not (tmp_path / "page").exists()
