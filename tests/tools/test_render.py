from pathlib import Path

import pytest

from alphaiou.inference import tables as markdown
from benchmarks.record import read_record, write_record
from tests.records import fuzz_record, losses_record
from tools import fuzz_tables, loss_tables, tables
from tools.render import documents, main, rendered

ROOT = Path(__file__).parents[2]
MARK = "<!-- record: benchmarks/losses-cuda.json losses -->"
END = "<!-- end record -->"


def cells_of(table):
    """The cells of a Markdown table, line by line, without the ruler."""
    lines = [line.strip("| ").split(" | ") for line in table.splitlines()]
    assert len({len(line) for line in lines}) == 1
    return [lines[0], *lines[2:]]


def test_losses_table():
    head, small, large = cells_of(loss_tables.losses_table(losses_record()))
    assert head == [
        *("loss", "pairs", "ours, fused", "ours, reference", "textbook, eager"),
        *("textbook, torch.compile", "torchvision", "× torchvision", "× best of others"),
    ]
    numbers = ["0.250 ms", "5.00 ms", "4.00 ms", "1.00 ms", "10.0 ms", "40×", "4.0×"]
    assert small == ["α-CIoU (α=3)", "1,024", *numbers]
    assert large[1:4] == ["4,194,304", "2.00 ms", "40.0 ms"]


def test_losses_table_on_the_device_marks_what_was_queued():
    _, small, _ = cells_of(loss_tables.losses_table(losses_record(), clock="device"))
    assert small[2] == "0.125 ms"
    assert small[6] == "5.00 ms*"


def test_kinds_table_has_every_kind_of_ours():
    head, ciou, shape = cells_of(loss_tables.kinds_table(losses_record()))
    assert head[1] == "wall, 1,024 pairs"
    assert ciou == ["α-CIoU (α=3)", "0.250 ms", "2.00 ms", "1.00 ms", "75%", "36"]
    assert shape[0] == "α-Shape-IoU (α=3)"
    on_cpu = losses_record() | {"device_type": "cpu"}
    assert len(cells_of(loss_tables.kinds_table(on_cpu))[0]) == 4


def test_precision_and_memory_tables():
    _, *lines = cells_of(loss_tables.precision_table(losses_record()))
    assert lines[0] == ["1,024", "fp32", "3", "0.250 ms", "0.125 ms", "75%"]
    _, memory = cells_of(loss_tables.memory_table(losses_record()))
    assert memory == ["α-CIoU (α=3)", *["36"] * 5]


def test_setup_line():
    assert tables.setup_line(losses_record()) == (
        "NVIDIA H200 (a copy in memory: 4,290 GB/s); python 3.12.1, alphaiou 0.1, torch 2.11; "
        "2026-01-02."
    )
    stopped = tables.setup_line(fuzz_record() | {"complete": False, "device_type": "cpu"})
    assert "16 threads" in stopped
    assert "stopped" in stopped


def test_fuzz_tables():
    _, ours, theirs = cells_of(fuzz_tables.fuzz_table(fuzz_record()))
    assert ours == ["CIoU", "2,000", "0", "0", "800", "0", "0", "360"]
    assert theirs == ["CIoU, torchvision", "1,000", "70", "150", "400", "20", "50", "2.5e+24"]
    _, total, _ = cells_of(fuzz_tables.fuzz_total_table(fuzz_record()))
    assert total == ["ours, 1 losses, every α", "2,000", "0", "0", "800", "0", "0"]
    _, agreement = cells_of(fuzz_tables.agreement_table(fuzz_record()))
    assert agreement == ["CIoU", "50%", "1e-06", "3e-05", "2e-03", "–", "0.3%", "0.9%"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.4, "1,234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123")],
)
def test_figures(value, text):
    assert markdown.figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.45, "0.45×"), (9.96, "10.0×"), (44, "44×")]
)
def test_times(value, text):
    assert markdown.times(value) == text


def test_a_block_is_replaced_and_the_rest_is_left_alone(tmp_path):
    write_record(losses_record(), tmp_path / "benchmarks" / "losses-cuda.json")
    text = f"before\n\n{MARK}\nold\n{END}\n\nafter 1 < 2\n"
    new = rendered(text, tmp_path)
    table = loss_tables.losses_table(losses_record())
    assert new == f"before\n\n{MARK}\n{table}\n{END}\n\nafter 1 < 2\n"
    assert rendered(new, tmp_path) == new


def test_an_empty_block_and_one_without_a_record(tmp_path):
    new = rendered(f"{MARK}\n{END}\n", tmp_path)
    missing = "*No record yet: `alphaiou bench losses` writes `benchmarks/losses-cuda.json`.*"
    assert new == f"{MARK}\n{missing}\n{END}\n"
    assert rendered(new, tmp_path) == new


def test_a_script_beside_a_missing_record_is_what_makes_it(tmp_path):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/detectors.py").write_text("")
    mark = "<!-- record: benchmarks/detectors-cuda.json detectors -->"
    assert "`python benchmarks/detectors.py` writes" in rendered(f"{mark}\n{END}\n", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{MARK}\nno end\n", "has no partner"),
        (f"{END}\n", "has no partner"),
        (f"{MARK}\n{MARK}\n{END}\n", "has no partner"),
        (f"<!-- record: benchmarks/x.json -->\n{END}\n", "has no partner"),
        (f"<!-- record: benchmarks/x.json speed -->\n{END}\n", "no table 'speed'; there are setup"),
    ],
)
def test_a_wrong_mark_is_an_error_that_says_what_is_wrong(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        rendered(text, tmp_path)


def test_the_command_writes_and_the_check_tells(tmp_path, capsys):
    write_record(losses_record(), tmp_path / "benchmarks" / "losses-cuda.json")
    for path in (tmp_path / "README.md", tmp_path / "docs" / "a.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{MARK}\n{END}\n")
    assert main(["--check"], tmp_path) == 1
    err = capsys.readouterr().err
    assert "README.md is out of date" in err
    assert "a.md is out of date" in err
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    assert main(["--speed"], tmp_path) == 2
    (tmp_path / "README.md").write_text(f"{MARK}\n")
    assert main([], tmp_path) == 2
    assert "README.md" in capsys.readouterr().err


def test_the_documents_of_this_repository_are_up_to_date(capsys):
    assert documents(ROOT)
    assert main(["--check"], ROOT) == 0, capsys.readouterr().err


def detectors_record():
    """As benchmarks/detectors.py writes it, with a step that failed."""
    theirs = {"contender": "detr_r50, transformers", "ms_per_step": 80.0, "memory_gib": 5.0}
    ours = {"contender": "detr_r50, ours", "ms_per_step": 32.0, "memory_gib": 4.0}
    ours |= {"parts_ms": {"augmentation": 0.5, "forward, loss and backward": 30.0}}
    rows = [{"contender": "fasterrcnn_r50_fpn, torchvision", "error": "out of memory"}]
    rows += [row | {"images_per_second": 16e3 / row["ms_per_step"]} for row in (theirs, ours)]
    return {"device": "NVIDIA H200", "versions": {"torch": "2.11"}, "rows": rows}


def test_steps_of_detectors_beside_those_of_others():
    table = tables.TABLES["detectors"](detectors_record())
    assert cells_of(table)[1:] == [
        ["fasterrcnn_r50_fpn", "torchvision", "failed", "–", "–", "–"],
        ["detr_r50", "transformers", "80.0", "200", "–", "5.0"],
        ["detr_r50", "ours", "32.0", "500", "2.5×", "4.0"],
    ]
    parts = tables.TABLES["detectors-parts"](detectors_record())
    assert cells_of(parts)[1] == ["detr_r50", "0.50 ms", "30.00 ms", "1.50 ms"]
    assert tables.setup_line(detectors_record()) == "NVIDIA H200; torch 2.11."


def test_tables_of_the_simulation(tmp_path):
    head = "loss,mean_iou,share_iou_over_0.5,total_error\n"
    (tmp_path / "near.csv").write_text(head + "iou,0.5,0.25,1234.4\nciou:3:1,0.75,1,2\n")
    record = read_record(tmp_path / "near.csv")
    assert tables.TABLES["simulation"](record).splitlines() == [
        "| loss | mean IoU | IoU > 0.5 | total error |",
        "| --- | ---: | ---: | ---: |",
        "| IoU | 0.500 | 25.0% | 1,234 |",
        "| α-CIoU (α=3, α₂=1) | 0.750 | 100.0% | 2 |",
    ]
    for name in ("published", "equal-slope", "near-equal-slope"):
        (tmp_path / f"{name}.csv").write_text(head + "iou,0.125,0,1\nciou:3:1,1,0,1\n")
    lines = tables.TABLES["simulation-variants"](read_record(tmp_path)).splitlines()
    assert lines[2:] == [
        "| IoU | 0.125 | 0.125 | 0.500 | 0.125 |",
        "| α-CIoU (α=3, α₂=1) | 1.000 | 1.000 | 0.750 | 1.000 |",
    ]


def test_seconds_that_a_row_lacks_are_a_dash():
    record = {"rows": [{"what": "ours", "seconds": 0.25, "collect_seconds": 0.1}]}
    assert tables.evaluation_table(record).endswith("| ours | 0.25 s | 0.1 s | – |")
