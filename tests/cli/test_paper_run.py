"""``alphaiou paper list`` and ``alphaiou paper run``."""

from pathlib import Path

import pytest
from rich.console import Console

from alphaiou.cli import main
from alphaiou.cli.paper.options import GridOptions, chosen_grids
from alphaiou.cli.paper.progress import GridProgress
from alphaiou.data.formats.yolo import write_yolo
from alphaiou.data.shapes.dataset import shapes_index
from alphaiou.paper.grids import paper_grids
from alphaiou.paper.scales import quick_scale
from tests.study.made import records_of, write_runs

RESULTS = Path(__file__).parents[2] / "studies/voc320/records"


@pytest.fixture(scope="module")
def no_boxes(tmp_path_factory):
    """A data set in whose images nothing is to be found."""
    root = tmp_path_factory.mktemp("sets") / "empty"
    for split in ("train", "val"):
        write_yolo(shapes_index(split, size=64, length=2, level="plain"), root, images="copy")
    for path in root.glob("labels/*/*.txt"):
        path.write_text("")
    return root


def test_the_list_counts_runs_and_finished_ones(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    results = ["--results", str(RESULTS)]
    assert main(["paper", "list", "--quick", "--data", "voc320", "--epochs", "100", *results]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines}
    assert rows["table1"][-2:] == ["4", "4"]
    assert rows["distribution"][-2:] == ["4", "0"], "whose records do not count what was found"
    assert rows["penalty-alpha"][-2:] == ["9", "1"]
    assert rows["noisy-boxes"][-2:] == ["–", "–"]
    assert "different runs" in lines[-1]


@pytest.mark.parametrize(
    ("wrong", "code", "message"),
    [
        ([], 2, "which grids?"),
        (["table9", "--quick"], 2, "there are table1,"),
        (["table1"], 2, "--quick needs neither"),
        (["table1", "--quick", "--seeds", "0"], 2, "--seeds must be at least 1"),
        (["table1", "--quick", "--workers", "0"], 2, "--workers must be at least 1"),
        (["table1", "--data", "voc", "--select", "best"], 2, "--select best is for --quick"),
        (["table1", "--quick", "--epochs", "9"], 2, "--epochs is for --quick with --data"),
        (["table1", "--quick", "--coco", "x"], 2, "with --quick take --data"),
        (["table1", "--quick", "--only", "SIoU"], 2, "no row has that in its label"),
        (["table1", "--quick", "--data", "/gone"], 1, "/gone: there is no such file or folder"),
        (["table1", "--data", "/gone"], 1, "/gone: there is no such file or folder"),
        (
            ["table1", "--quick", "--data", "voc320", "--epochs", "0"],
            2,
            "epochs must be at least 1",
        ),
        (["table1", "--quick", "--ray", "auto", "--minutes", "1"], 2, "--minutes is for this"),
    ],
)
def test_errors_in_one_line(wrong, code, message, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["paper", "run", *wrong, "--out", str(out)]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not out.exists()


@pytest.mark.slow
def test_runs_that_fail_are_named_at_the_end(no_boxes, tmp_path, capsys):
    options = ["--quick", "--data", str(no_boxes), "--device", "cpu", "--out", str(tmp_path)]
    rows = ["--only", "IoU, box gain ×1", "α-IoU (α=3), box gain ×3"]
    assert main(["paper", "run", "gains", *options, *rows]) == 1
    out = capsys.readouterr().out
    assert "Trained on train and scored on val of empty." in out
    assert "0 runs are finished, 2 to compute" in out
    ends = out[out.rindex("wrote ") :].splitlines()
    assert ends[0] == f"wrote {tmp_path / 'report.html'}"
    assert [line.split(": ")[:3] for line in ends[1:3]] == [
        ["failed", "gains", "IoU, box gain ×1, seed 0"],
        ["failed", "gains", "α-IoU (α=3), box gain ×3, seed 0"],
    ]
    assert "no boxes to train on" in ends[1]


def test_it_prints_the_tables_of_its_grids_as_paper_tables_does(tmp_path, capsys):
    """All runs are finished, so that nothing is computed."""
    grid = paper_grids(quick_scale(), (0, 1, 2))["table1"]
    results = ["--results", str(write_runs(records_of(grid), tmp_path / "finished"))]
    assert main(["paper", "tables", "table1", *results]) == 0
    table = capsys.readouterr().out
    assert table.count("| ") > 20
    assert "°" in table
    command = ["paper", "run", "noisy-boxes", "table1", "--quick", "--seeds", "3", "--out"]
    assert main([*command, str(tmp_path / "runs"), *results]) == 0
    out = capsys.readouterr().out
    assert "0 to compute" in out
    assert table in out
    assert out.count("### ") == 1, "noisy-boxes has no table"
    assert out.index(table) > out.index("noisy-boxes-")


@pytest.mark.slow
def test_rows_can_be_chosen(capsys):
    (grid,) = chosen_grids(["table3"], GridOptions(quick=True, seeds=3, only=("η=0.3",)))
    assert [row.label for row in grid.rows] == [
        "IoU, η=0.3",
        "α-IoU (α=3), η=0.3",
        "DIoU, η=0.3",
        "α-DIoU (α=3), η=0.3",
    ]
    assert grid.seeds == (0, 1, 2)
    (grid,) = chosen_grids(["gains"], GridOptions(quick=True, only=("IoU, box gain ×1", "×0.5")))
    assert [row.label for row in grid.rows if "IoU, box gain ×1" in row.label] == [
        "IoU, box gain ×1"
    ]
    assert all(row.label == "IoU, box gain ×1" or "×0.5" in row.label for row in grid.rows)
    (grid,) = chosen_grids(["table1"], GridOptions(quick=True, only=("α-",)))
    assert [row.baseline for row in grid.rows] == [None, None]


@pytest.mark.slow
def test_noisy_boxes_are_drawn_without_a_run(tmp_path, capsys):
    assert main(["paper", "run", "noisy-boxes", "--quick", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "noisy-boxes-shapes-discs-64.png").read_bytes()[1:4] == b"PNG"
    assert "0 to compute" in capsys.readouterr().out


def test_what_is_said_of_all_runs_is_shown(capsys):
    progress = GridProgress(Console(width=80))
    for _ in range(2):
        progress.report().note("runs [take] turns")
    assert capsys.readouterr().out == "runs [take] turns\n"
