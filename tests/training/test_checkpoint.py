"""Checkpoints: the last two of a run, and errors that name the remedy."""

import math

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
    assert load_checkpoint(tmp_path, pytest.fail) is None
    save_checkpoint(checkpoint(3), tmp_path / "run")
    loaded = load_checkpoint(tmp_path / "run", pytest.fail)
    assert loaded.facts == {"epoch": 3}
    assert torch.equal(loaded.tensors["weights"], checkpoint(3).tensors["weights"])
    assert loaded.tensors["steps"].dtype == torch.int64


def test_the_one_before_is_kept_and_nothing_else(tmp_path):
    for value in (1, 2, 3):
        save_checkpoint(checkpoint(value), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LAST, PREVIOUS]
    (tmp_path / LAST).unlink()
    (tmp_path / PREVIOUS).rename(tmp_path / LAST)
    assert load_checkpoint(tmp_path, pytest.fail).facts == {"epoch": 2}


def damaged(tmp_path, change):
    """What is loaded of two checkpoints after a change of the last one, and the messages."""
    for value in (1, 2):
        save_checkpoint(checkpoint(value), tmp_path)
    change(tmp_path / LAST)
    messages = []
    return load_checkpoint(tmp_path, messages.append), messages


@pytest.mark.parametrize("size", [0, 1, 7, 100, -1])
def test_instead_of_a_truncated_file_the_previous_one_is_used(tmp_path, size):
    loaded, messages = damaged(tmp_path, lambda path: path.write_bytes(path.read_bytes()[:size]))
    assert loaded.facts == {"epoch": 1}
    (message,) = messages
    assert f"{LAST} is not a complete safetensors file" in message
    assert message.endswith(f"resuming from {tmp_path / PREVIOUS}")


def flip(place):
    def change(path):
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)

    return change


def test_instead_of_a_file_with_a_flipped_byte_the_previous_one_is_used(tmp_path):
    save_checkpoint(checkpoint(2), tmp_path)
    size = (tmp_path / LAST).stat().st_size
    for place in range(size):
        loaded, (message,) = damaged(tmp_path, flip(place))
        assert loaded.facts == {"epoch": 1}, place
        assert str(tmp_path / LAST) in message


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_instead_of_values_that_are_not_finite_the_previous_ones_are_used(tmp_path, value):
    save_checkpoint(checkpoint(1), tmp_path)
    weights = checkpoint(2).tensors["weights"].clone()
    weights[0, 0, 0, 0] = value
    save_checkpoint(Checkpoint({"weights": weights}, {"epoch": 2}), tmp_path)
    messages = []
    assert load_checkpoint(tmp_path, messages.append).facts == {"epoch": 1}
    assert "weights has values that are not finite" in messages[0]


def test_without_a_sound_one_the_way_back_is_to_start_again(tmp_path):
    (tmp_path / LAST).write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=rf"{LAST}.*to start again: rm -r {tmp_path}"):
        load_checkpoint(tmp_path, pytest.fail)
    (tmp_path / PREVIOUS).write_bytes(b"nonsense")
    with pytest.raises(CheckpointError, match=rf"{LAST}.*{PREVIOUS}.*rm -r {tmp_path}"):
        load_checkpoint(tmp_path, pytest.fail)


def test_what_a_killed_process_had_begun_is_removed(tmp_path):
    save_checkpoint(checkpoint(1), tmp_path)
    (tmp_path / f".{LAST}.0123abcd.part").write_bytes(b"half")
    with locked(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [LAST]
