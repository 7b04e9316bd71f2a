"""Collecting by batch, merging across processes, and keeping the state."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from alphaiou.metrics import RULES, DetectionScores
from tests.metrics.made_data import as_batches, make

ROOT = Path(__file__).parents[2]


def collect(data, **settings):
    scores = DetectionScores(3, **settings)
    for batch in as_batches(data):
        scores.update(*batch)
    return scores


def assert_equal(one, other):
    assert one.as_dict() == pytest.approx(other.as_dict(), rel=0, abs=0, nan_ok=True)
    np.testing.assert_array_equal(one.precision, other.precision)
    assert one.num_images == other.num_images
    assert one.num_detections == other.num_detections


@pytest.mark.parametrize("rule", RULES)
def test_batches_in_any_order_and_size_give_the_same(rule):
    data = make(4, images=9, kind="whole")
    expected = collect(data, rule=rule).compute()
    for size in (1, 4, 9):
        scores = DetectionScores(3, rule=rule)
        for batch in reversed(list(as_batches(data, size))):
            scores.update(*batch)
        assert_equal(scores.compute(), expected)
    assert 0 < expected.map < 1


@pytest.mark.parametrize("numbered", [True, False])
def test_merge_is_as_if_one_had_seen_all(numbered):
    batches = list(as_batches(make(5, images=8, kind="whole"), 2))
    if not numbered:
        for _, targets in batches:
            for target in targets:
                del target["image_id"]
    whole, parts = DetectionScores(3), [DetectionScores(3), DetectionScores(3), DetectionScores(3)]
    for number, batch in enumerate(batches):
        whole.update(*batch)
        parts[number // 2].update(*batch)
    parts[0].merge(parts[1])
    parts[0].merge(parts[2])  # has seen nothing
    assert len(parts[0]) == 8
    assert_equal(parts[0].compute(), whole.compute())


def test_what_cannot_be_merged():
    scores = collect(make(6))
    with pytest.raises(ValueError, match="cannot merge: rule is 'coco' here and 'voc' there"):
        scores.merge(DetectionScores(3, rule="voc"))
    with pytest.raises(ValueError, match="cannot merge: classes"):
        scores.merge(DetectionScores(2))
    with pytest.raises(ValueError, match="was given before"):
        scores.merge(collect(make(6)))
    assert len(scores) == 4


@pytest.mark.parametrize("settings", [{}, {"rule": "voc07", "max_detections": 5}])
def test_the_state_survives_a_file(settings, tmp_path):
    scores = collect(make(7), **settings, iou_thresholds=(0.5, 0.75))
    np.savez(tmp_path / "state.npz", **scores.state())
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        again = DetectionScores.from_state(state)
    assert_equal(again.compute(), scores.compute())
    assert again.max_detections == scores.max_detections
    more = make(8, image_ids=np.arange(1000, 1004))
    for collector in (scores, again):
        collector.merge(collect(more, **settings, iou_thresholds=(0.5, 0.75)))
    assert_equal(again.compute(), scores.compute())


def test_memory_is_that_of_the_arrays():
    scores = collect(make(9, images=50, targets=100, detections=1000))
    held = sum(array.nbytes for array in vars(scores.data()).values())
    assert held == 50 * 8 + 100 * (8 + 32 + 8 + 8 + 1 + 1) + 1000 * (8 + 32 + 8 + 8)


PROCESS = """
import json
import pathlib
import sys
import torch.distributed as distributed
from alphaiou.metrics import DetectionScores
from tests.metrics.made_data import as_batches, make

rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
scores = DetectionScores(3)
for batch in list(as_batches(make(11, images=10, kind="whole"), 2))[1 - rank :: 2]:
    scores.update(*batch)
merged = scores.gather()
assert len(merged) == 10 and len(scores) < 10
pathlib.Path(f"{out}{rank}.json").write_text(json.dumps(merged.compute().as_dict()))
distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_gather_over_two_processes(tmp_path):
    out = tmp_path / "scores"
    command = [sys.executable, "-c", PROCESS]
    processes = [
        subprocess.Popen([*command, str(rank), tmp_path / "store", out], cwd=ROOT)
        for rank in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    texts = {Path(f"{out}{rank}.json").read_text() for rank in range(2)}
    assert len(texts) == 1
    expected = collect(make(11, images=10, kind="whole")).compute().as_dict()
    assert json.loads(texts.pop()) == pytest.approx(expected, rel=0, abs=0, nan_ok=True)
