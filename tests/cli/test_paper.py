"""``alphaiou paper tables``, ``plots`` and ``report`` on made runs and on the committed ones."""

import re
from pathlib import Path

import pytest
import tyro

from alphaiou.cli import UsageError
from alphaiou.cli.paper.plots import PaperPlots, run_paper_plots
from alphaiou.cli.paper.report import PaperReport, run_paper_report
from alphaiou.cli.paper.tables import PaperTables, run_paper_tables
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from alphaiou.paper.study import open_study, scale_of_records
from alphaiou.study.records import RecordError
from tests.study.made import records_of, write_runs

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


def test_grids_and_seeds_are_those_of_the_records(drawn):
    study = open_study((), [drawn])
    names = [grid.name for grid in study.grids]
    assert "table1" in names
    assert "table3" not in names  # which has no run
    assert {grid.seeds for grid in study.grids} == {(0, 1)}


def test_the_scale_is_that_of_most_records():
    def record(path, epochs, detector="yolov5s"):
        return {"recipe": {"detector": detector, "epochs": epochs, "data": {"path": path}}}

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


@pytest.mark.parametrize("command", [PaperTables, PaperPlots, PaperReport])
def test_help_fits_80_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    name = re.sub("^Paper", "", command.__name__).lower()
    with pytest.raises(SystemExit):
        tyro.cli(command, prog=f"alphaiou paper {name}", args=["--help"])
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
