"""Checkpoints: the last two of a run, and errors that name the remedy."""

import pytest
import torch

from alphaiou.inference.weights import Checkpoint, CheckpointError
from alphaiou.training.checkpoint import (
    LAST,
    PREVIOUS,
    load_checkpoint,
    locked,
    save_checkpoint,
)


def checkpoint(value):
    weights = torch.full((2, 3, 4, 4), float(value)).to(memory_format=torch.channels_last)
    return Checkpoint({"weights": weights, "steps": torch.tensor(value)}, {"epoch": value})


def test_round_trip(tmp_path):
    assert load_checkpoint(tmp_path) is None
    save_checkpoint(checkpoint(3), tmp_path / "run")
    loaded = load_checkpoint(tmp_path / "run")
    assert loaded.facts == {"epoch": 3}
    assert torch.equal(loaded.tensors["weights"], checkpoint(3).tensors["weights"])
    assert loaded.tensors["steps"].dtype == torch.int64


def test_the_one_before_is_kept_and_nothing_else(tmp_path):
    for value in (1, 2, 3):
        save_checkpoint(checkpoint(value), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAST, PREVIOUS]
    (tmp_path / LAST).unlink()
    (tmp_path / PREVIOUS).rename(tmp_path / LAST)
    assert load_checkpoint(tmp_path).facts == {"epoch": 2}


@pytest.mark.parametrize("size", [0, 1, 7, 100, -1])
def test_a_truncated_file_is_named_with_the_way_back(tmp_path, size):
    save_checkpoint(checkpoint(1), tmp_path)
    save_checkpoint(checkpoint(2), tmp_path)
    data = (tmp_path / LAST).read_bytes()
    (tmp_path / LAST).write_bytes(data[:size])
    with pytest.raises(CheckpointError, match=rf"{LAST}.*mv .*{PREVIOUS}"):
        load_checkpoint(tmp_path)
    (tmp_path / PREVIOUS).replace(tmp_path / LAST)
    assert load_checkpoint(tmp_path).facts == {"epoch": 1}


def test_without_an_older_one_the_way_back_is_to_start_again(tmp_path):
    (tmp_path / LAST).write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match="rm "):
        load_checkpoint(tmp_path)


def test_what_a_killed_process_had_begun_is_removed(tmp_path):
    save_checkpoint(checkpoint(1), tmp_path)
    (tmp_path / f".{LAST}.0123abcd.part").write_bytes(b"half")
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [LAST]
