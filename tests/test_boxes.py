"""Conversion between box formats, with torchvision as the reference."""

import pytest
import torch

from alphaiou import convert_boxes
from tests.strategies import FORMATS, encode, generic_pairs


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_conversion_is_torchvisions(source, target):
    boxes = encode(generic_pairs(50, seed=1, size=100.0)[0], source)
    expected = pytest.importorskip("torchvision.ops").box_convert(boxes, source, target)
    torch.testing.assert_close(convert_boxes(boxes, source, target), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_conversion_and_back(source, target):
    boxes = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    there = convert_boxes(boxes, source, target)
    assert there.shape == boxes.shape
    assert there.dtype == boxes.dtype
    torch.testing.assert_close(convert_boxes(there, target, source), boxes, rtol=0, atol=1e-14)


def test_conversion_by_hand():
    corners = torch.tensor([1.0, 2.0, 5.0, 4.0])
    assert convert_boxes(corners, "xyxy", "xywh").tolist() == [1, 2, 4, 2]
    assert convert_boxes(corners, "xyxy", "cxcywh").tolist() == [3, 3, 4, 2]
    assert convert_boxes(torch.tensor([3.0, 3, 4, 2]), "cxcywh", "xywh").tolist() == [1, 2, 4, 2]


def test_conversion_does_not_write_into_its_argument():
    boxes = torch.tensor([[1.0, 2.0, 5.0, 4.0]])
    for source in FORMATS:
        for target in FORMATS:
            convert_boxes(boxes, source, target)
    assert boxes.tolist() == [[1, 2, 5, 4]]


@pytest.mark.parametrize("source", FORMATS)
def test_conversion_is_differentiable_and_takes_no_boxes(source):
    boxes = encode(generic_pairs(3, seed=3)[0], source).requires_grad_()
    for target in FORMATS:
        assert torch.autograd.gradcheck(lambda b, t=target: convert_boxes(b, source, t), boxes)
        assert convert_boxes(boxes[:0], source, target).shape == (0, 4)


@pytest.mark.parametrize(
    ("source", "target", "name"), [("xxyy", "xyxy", "source"), ("xyxy", "cxcy", "target")]
)
def test_conversion_refuses_unknown_formats(source, target, name):
    with pytest.raises(ValueError, match=name) as error:
        convert_boxes(torch.zeros(1, 4), source, target)
    message = str(error.value)
    assert {"xxyy": source, "xyxy": target}[source] in message
    assert all(allowed in message for allowed in FORMATS)
