"""The assignment of boxes to predictions, against a loop and by hand."""

import pytest
import torch

from alphaiou.batch import Targets
from alphaiou.detectors.yolov5.network import ANCHORS, STRIDES
from alphaiou.detectors.yolov5.targets import assign
from tests.detectors import oracle

ROWS, COLUMNS, BATCH = 64, 96, 3


def random_targets(count, generator, size=(512, 768), spare=3):
    """Boxes of all sizes, some on borders, centres on cell borders and middles, spare slots."""
    height, width = size
    sides = 2 ** (1 + 8 * torch.rand(count, 2, generator=generator, dtype=torch.float64))
    centres = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    centres = centres * torch.tensor([width, height])
    centres[::5] = (centres[::5] / 16).floor() * 16  # a border of cells of two layers
    centres[1::7] = (centres[1::7] / 8).floor() * 8 + 4  # the middle of a cell
    if count > 4:
        centres[2], centres[3], centres[4] = (
            torch.tensor(corner, dtype=torch.float64)
            for corner in ((0.0, 0.0), (width, height), (width - 1e-9, 3.0))
        )
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], dim=1)
    boxes = torch.cat([boxes, torch.full((spare, 4), float("nan"), dtype=torch.float64)])
    return Targets(
        image_of_box=torch.randint(BATCH, (count + spare,), generator=generator),
        labels=torch.randint(5, (count + spare,), generator=generator),
        boxes=boxes,
        valid=torch.arange(count + spare) < count,
    )


def as_tuples(targets):
    return [
        (image, label, box)
        for image, label, box, valid in zip(*(part.tolist() for part in targets), strict=True)
        if valid
    ]


def as_pairs(positives, grid, anchors=3):
    """What was assigned, in the words of the oracle."""
    rows, columns = grid
    pairs = []
    for row_of, box, label, valid in zip(
        positives.predictions.tolist(),
        positives.boxes.tolist(),
        positives.labels.tolist(),
        positives.valid.tolist(),
        strict=True,
    ):
        if valid:
            place, anchor = divmod(row_of, anchors)
            place, column = divmod(place, columns)
            image, row = divmod(place, rows)
            pairs.append((image, row, column, anchor, tuple(box), label))
    return pairs


@pytest.mark.parametrize("layer", range(3))
@pytest.mark.parametrize("count", [0, 1, 30, 300])
def test_is_that_of_a_loop(layer, count):
    targets = random_targets(count, torch.Generator().manual_seed(count))
    stride, anchors = STRIDES[layer], torch.tensor(ANCHORS[layer], dtype=torch.float64)
    grid = (512 // stride, 768 // stride)
    got = sorted(as_pairs(assign(targets, anchors, stride=stride, grid=grid), grid))
    expected = sorted(oracle.positives(as_tuples(targets), ANCHORS[layer], stride, *grid))
    assert [pair[:4] + pair[5:] for pair in got] == [pair[:4] + pair[5:] for pair in expected]
    for mine, theirs in zip(got, expected, strict=True):
        assert mine[4] == pytest.approx(theirs[4], abs=1e-9)
    assert count < 30 or len(got) > count


def test_by_hand():
    """A box of 20 × 24 pixels about (44, 66) on stride 8: cell (5, 8), right and up."""
    targets = Targets(
        image_of_box=torch.tensor([1]),
        labels=torch.tensor([4]),
        boxes=torch.tensor([[36.0, 53.0, 56.0, 77.0]]),
        valid=torch.tensor([True]),
    )
    positives = assign(targets, torch.tensor(ANCHORS[0]).float(), stride=8, grid=(20, 20))
    assert sorted(as_pairs(positives, (20, 20))) == [
        (1, row, column, anchor, (5.75 - column, 8.125 - row, 2.5, 3.0), 4)
        for row, column in ((7, 5), (8, 5), (8, 6))
        for anchor in (0, 1, 2)
    ]


def test_a_box_four_times_the_anchor_does_not_match():
    def matches(width):
        targets = Targets(
            image_of_box=torch.tensor([0]),
            labels=torch.tensor([0]),
            boxes=torch.tensor([[100.0, 100.0, 100.0 + width, 113.0]]),
            valid=torch.tensor([True]),
        )
        return assign(targets, torch.tensor([[10.0, 13.0]]), stride=8, grid=(40, 40)).valid.any()

    assert [bool(matches(width)) for width in (2.4, 2.6, 10.0, 39.9, 40.0, 41.0)] == [
        False, True, True, True, False, False,
    ]  # fmt: skip


def test_every_prediction_can_reach_its_box():
    """The decoded centre of a cell goes from -0.5 to 1.5 cells."""
    targets = random_targets(200, torch.Generator().manual_seed(3))
    positives = assign(targets, torch.tensor(ANCHORS[1]).float(), stride=16, grid=(32, 48))
    offsets = positives.boxes[positives.valid][:, :2]
    assert offsets.min() >= -0.5
    assert offsets.max() <= 1.5


def test_is_one_graph_of_fixed_shapes():
    anchors = torch.tensor(ANCHORS[0], dtype=torch.float64)
    compiled = torch.compile(assign, fullgraph=True, backend="eager")
    targets = random_targets(20, torch.Generator().manual_seed(0))
    expected = assign(targets, anchors, stride=8, grid=(64, 96))
    for mine, theirs in zip(
        compiled(targets, anchors, stride=8, grid=(64, 96)), expected, strict=True
    ):
        torch.testing.assert_close(mine, theirs, equal_nan=True)
        assert len(mine) == 9 * len(targets.boxes)
