from pathlib import Path

import pytest

from benchmarks.record import read_record
from tools.noise_tables import noise_lines, reading_lines

RECORD = Path(__file__).parents[2] / "studies/noise/voc320.json"


def small_record():
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
    head, lines = noise_lines(small_record())
    together = (0.75 * 0.80 + 0.25 * 0.60, 0.75 * 0.82 + 0.25 * 0.60)
    assert lines == [
        ["0.1", "0.800", f"{sum(together) / 2:.4f} ± 0.0075", "0.8100 ± 0.0100", "0.7100 ± 0.0100"]
    ]
    assert len(head) == len(lines[0])


def test_readings_stand_below_the_paper():
    head, lines = reading_lines(small_record())
    assert head == ["reading", "η = 0.1"]
    assert lines == [["*the paper*", "0.800"], ["moved", "0.800"], ["clipped", "0.500"]]


def test_the_committed_record_is_within_a_few_thousandths_of_the_paper():
    _, lines = noise_lines(read_record(RECORD))
    assert [line[0] for line in lines] == ["0.1", "0.2", "0.3"]
    for _, paper, both, *_ in lines:
        assert float(both.split()[0]) == pytest.approx(float(paper), abs=0.002)
