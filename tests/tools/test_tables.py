from pathlib import Path

import pytest

from alphaiou.metrics.columns import PAPER_COLUMNS
from benchmarks.record import load_record
from tests.records import fuzz_record, losses_record
from tools import loss_tables
from tools.data_tables import evaluation_table, noise_table, readings_table
from tools.tables import TABLES, setup_line
from tools.training_tables import framework_runs_table

NOISE = Path(__file__).parents[2] / "studies/noise/voc320.json"


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


def test_damage_table():
    record = load_record(Path(__file__).parents[2] / "benchmarks/damage-cpu.json")
    head, *lines = cells_of(TABLES["damage"](record))
    assert [line[0] for line in lines] == ["VOC", "COCO", "YOLO"]
    assert len(head) == len(lines[0]) == 6
    tried, *outcomes = (sum(int(line[column]) for line in lines) for column in range(1, 6))
    assert tried == len(record["rows"]) == sum(outcomes)


def test_setup_line():
    assert setup_line(losses_record()) == (
        "NVIDIA H200 (a copy in memory: 4,290 GB/s); python 3.12.1, alphaiou 0.1, torch 2.11; "
        "2026-01-02."
    )
    stopped = setup_line(fuzz_record() | {"complete": False, "device_type": "cpu"})
    assert "16 threads" in stopped
    assert "stopped" in stopped


def test_fuzz_tables():
    _, ours, theirs = cells_of(loss_tables.fuzz_table(fuzz_record()))
    assert ours == ["CIoU", "2,000", "0", "0", "800", "0", "0", "360"]
    assert theirs == ["CIoU, torchvision", "1,000", "70", "150", "400", "20", "50", "2.5e+24"]
    _, total, _ = cells_of(loss_tables.fuzz_total_table(fuzz_record()))
    assert total == ["ours, 1 losses, α from 0 to 10", "2,000", "0", "0", "800", "0", "0"]
    _, agreement = cells_of(loss_tables.agreement_table(fuzz_record()))
    assert agreement == ["CIoU", "50%", "1e-06", "3e-05", "2e-03", "–", "0.3%", "0.9%"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1234.4, "1,234"), (123.4, "123"), (12.34, "12.3"), (1.234, "1.23"), (0.01234, "0.0123")],
)
def test_figures(value, text):
    assert loss_tables.figures(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.45, "0.45×"), (9.96, "10.0×"), (44, "44×")]
)
def test_times(value, text):
    assert loss_tables.times(value) == text


def detectors_record():
    """As benchmarks/detectors.py writes it, with a step that failed."""
    theirs = {"contender": "detr_r50, transformers", "ms_per_step": 80.0, "memory_gib": 5.0}
    ours = {"contender": "detr_r50, ours", "ms_per_step": 32.0, "memory_gib": 4.0}
    ours |= {"parts_ms": {"augmentation": 0.5, "forward, loss and backward": 30.0}}
    rows = [{"contender": "fasterrcnn_r50_fpn, torchvision", "error": "out of memory"}]
    rows += [row | {"images_per_second": 16e3 / row["ms_per_step"]} for row in (theirs, ours)]
    return {"device": "NVIDIA H200", "versions": {"torch": "2.11"}, "rows": rows}


def test_steps_of_detectors_beside_those_of_others():
    table = TABLES["detectors"](detectors_record())
    assert cells_of(table)[1:] == [
        ["fasterrcnn_r50_fpn", "torchvision", "failed", "–", "–", "–"],
        ["detr_r50", "transformers", "80.0", "200", "–", "5.0"],
        ["detr_r50", "ours", "32.0", "500", "2.5×", "4.0"],
    ]
    parts = TABLES["detectors-parts"](detectors_record())
    assert cells_of(parts)[1] == ["detr_r50", "0.50 ms", "30.00 ms", "1.50 ms"]
    assert setup_line(detectors_record()) == "NVIDIA H200; torch 2.11."


def test_tables_of_the_simulation(tmp_path):
    head = "loss,mean_iou,share_iou_over_0.5,total_error\n"
    (tmp_path / "near.csv").write_text(head + "iou,0.5,0.25,1234.4\nciou:3:1,0.75,1,2\n")
    record = load_record(tmp_path / "near.csv")
    assert TABLES["simulation"](record).splitlines() == [
        "| loss | mean IoU | IoU > 0.5 | total error |",
        "| --- | ---: | ---: | ---: |",
        "| IoU | 0.500 | 25.0% | 1,234 |",
        "| α-CIoU (α=3, α₂=1) | 0.750 | 100.0% | 2 |",
    ]
    for name in ("published", "equal-slope", "near-equal-slope"):
        (tmp_path / f"{name}.csv").write_text(head + "iou,0.125,0,1\nciou:3:1,1,0,1\n")
    lines = TABLES["simulation-variants"](load_record(tmp_path)).splitlines()
    assert lines[2:] == [
        "| IoU | 0.125 | 0.125 | 0.500 | 0.125 |",
        "| α-CIoU (α=3, α₂=1) | 1.000 | 1.000 | 0.750 | 1.000 |",
    ]


def test_a_table_of_scoring_times_leaves_a_gap_where_nothing_was_measured():
    record = {"rows": [{"what": "ours", "seconds": 0.25, "collect_seconds": 0.1}]}
    assert evaluation_table(record).endswith("| ours | 0.25 s | 0.1 s | – |")


def noise_record():
    def row(reading, split, rate, seed, by_image):
        found = {"reading": reading, "split": split, "rate": rate, "seed": seed}
        return found | {"by_image": by_image, "by_box": by_image - 0.1, "paper": 0.8}

    rows = [
        row("moved", "train", 0.1, 0, 0.80),
        row("moved", "test", 0.1, 0, 0.60),
        row("moved", "train", 0.1, 1, 0.82),
        row("moved", "test", 0.1, 1, 0.60),
        row("clipped", "train", 0.1, 0, 0.50),
    ]
    return {"splits": {"train": {"images": 30}, "test": {"images": 10}}, "rows": rows}


def test_seeds_and_splits_are_averaged():
    head, line = cells_of(noise_table(noise_record()))
    together = (0.75 * 0.80 + 0.25 * 0.60, 0.75 * 0.82 + 0.25 * 0.60)
    both = f"{sum(together) / 2:.4f} ± 0.0075"
    assert line == ["0.1", "0.800", both, "0.8100 ± 0.0100", "0.7100 ± 0.0100"]
    assert len(head) == len(line)


def test_readings_stand_below_the_paper():
    head, *lines = cells_of(readings_table(noise_record()))
    assert head == ["reading", "η = 0.1"]
    assert lines == [["*the paper*", "0.800"], ["moved", "0.800"], ["clipped", "0.500"]]


def test_the_committed_record_is_within_a_few_thousandths_of_the_paper():
    _, *lines = cells_of(noise_table(load_record(NOISE)))
    assert [line[0] for line in lines] == ["0.1", "0.2", "0.3"]
    for _, paper, both, *_ in lines:
        assert float(both.split()[0]) == pytest.approx(float(paper), abs=0.002)


def framework_run(score, *, own):
    return {
        "framework": "ultralytics",
        "version": "8.4",
        "model": "yolov8n.yaml",
        "data": "voc320",
        "train_images": 11538,
        "test_images": 5008,
        "loss": {"own": own, "kind": "ciou", "alpha": 1.0 if own else 3.0, "penalty_alpha": None},
        "settings": {"imgsz": 320, "batch": 64, "epochs": 3, "seed": 0, "box": 7.5}
        | {"optimizer": "AdamW"},
        "scores": dict.fromkeys(PAPER_COLUMNS, score),
        "side_by_side": 2,
        "device": "NVIDIA H200",
        "versions": {"torch": "2.11"},
        "history": [{"epoch": e, "seconds": s} for e, s in ((1, 60.0), (2, 9.0), (3, 11.0))],
    }


def test_a_table_of_trainings_starts_with_the_loss_of_the_framework():
    table = framework_runs_table(
        {"runs": [framework_run(0.3, own=False), framework_run(0.2, own=True)]}
    )
    head, _, own, ours, change, blank, circumstances = table.splitlines()
    assert head == "| loss | AP50 | AP75 | AP85 | AP95 | mAP | mAP75:95 |"
    assert own == f"| CIoU, its own |{' 20.00 |' * 6}"
    assert ours == f"| α-CIoU (α=3) |{' 30.00 |' * 6}"
    assert change.count("+50.00%") == 6
    assert not blank
    assert "on 11,538 images of voc320: 3 epochs at 320 px, batch 64, AdamW" in circumstances
    assert circumstances.endswith(
        "NVIDIA H200, torch 2.11, 2 trainings side by side, 11.0 s an epoch."
    )


def test_quality_fuzz_table():
    row = {"entries": 1000, "nonfinite_values": 2, "nonfinite_gradients": 0, "value_error": None}
    rows = [row | {"kind": name} for name in ("vfl", "qfl", "mal", "ia_bce")]
    rows.append(row | {"kind": "mal", "nonfinite_gradients": 3, "value_error": 2e-6})
    _, vfl, _, mal, ia_bce = cells_of(loss_tables.quality_fuzz_table({"rows": rows}))
    assert vfl == ["VFL", "1,000", "2", "0", "0"]
    assert mal == ["MAL", "2,000", "4", "3", "2e-06"]
    assert ia_bce[0] == "IA-BCE"


def test_tables_of_mmyolo_and_mmrotate():
    record = load_record(Path(__file__).parents[2] / "benchmarks/mmyolo-mmrotate-cpu.json")
    lines = [cells_of(TABLES[name](record))[1:] for name in ("mmyolo", "mmrotate")]
    assert sum(map(len, lines)) == len(record["rows"])
    for row in record["rows"]:
        assert row["calls"] >= row["iterations"]
        # At the kink of SIoU, which exactly aligned centres meet, the gradients differ.
        assert row["call_loss"] < 1e-5
        assert row.get("call_gradient_float64", 0.0) < 1e-5 or row["kind"] == "siou"
    for row in record["formulas"]:
        assert row["difference"] < 1e-7
