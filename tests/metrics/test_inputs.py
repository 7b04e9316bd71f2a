"""What detectors and data sets hand over: every kind of array, and every mistake."""

import numpy as np
import pytest
import torch

from alphaiou.metrics import DetectionScores

BOXES = [[0.0, 0.0, 10.0, 10.0], [5.0, 5.0, 9.0, 9.0]]


def prediction(**changes):
    whole = {
        "boxes": torch.tensor(BOXES),
        "scores": torch.tensor([0.9, 0.5]),
        "labels": torch.tensor([0, 1]),
    }
    return whole | changes


def target(**changes):
    return {"boxes": torch.tensor(BOXES), "labels": torch.tensor([0, 1])} | changes


def read_only(array):
    array.flags.writeable = False
    return array


CASTS = {
    "numpy": lambda value: value.numpy(),
    "lists": lambda value: value.tolist(),
    "half": lambda value: value.half() if value.is_floating_point() else value.int(),
    "bfloat16": lambda value: value.bfloat16() if value.is_floating_point() else value.short(),
    "double": lambda value: value.double() if value.is_floating_point() else value.to(torch.uint8),
    "read-only": lambda value: read_only(value.numpy()),
    "reversed": lambda value: value.numpy()[::-1].copy()[::-1],
    "gradients": lambda v: v.clone().requires_grad_() if v.is_floating_point() else v,
    "not contiguous": lambda value: torch.stack([value, value], -1)[..., 0],
}


@pytest.mark.parametrize("name", CASTS)
def test_arrays_of_every_kind(name):
    expected, found = DetectionScores(2), DetectionScores(2)
    expected.update([prediction()], [target()])
    cast = CASTS[name]
    entries = ({k: cast(v) for k, v in e.items()} for e in (prediction(), target()))
    found.update(*([entry] for entry in entries))
    assert found.compute().as_dict() == pytest.approx(expected.compute().as_dict(), nan_ok=True)
    np.testing.assert_array_equal(found.data().boxes, expected.data().boxes)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_on_several_devices():
    scores = DetectionScores(2)
    on_device = {key: value.cuda() for key, value in prediction().items()}
    scores.update([on_device, prediction()], [target(), target()])
    assert scores.compute().map == pytest.approx(1.0)


@pytest.mark.parametrize("empty", [torch.zeros(0, 4), torch.zeros(0), np.zeros((0, 4)), []])
def test_images_without_boxes(empty):
    scores = DetectionScores(2)
    nothing = {"boxes": empty, "labels": torch.zeros(0), "scores": torch.zeros(0)}
    scores.update([nothing, prediction(), nothing], [target(), nothing, nothing])
    found = scores.compute()
    assert (found.num_images, found.num_targets, found.num_detections) == (3, 2, 2)
    assert found.map == 0


def test_nothing_at_all():
    found = DetectionScores(2).compute()
    assert np.isnan(found.map)
    assert np.isnan(list(found.as_dict().values())).all()
    assert found.num_images == 0
    scores = DetectionScores(2)
    scores.update([], [])
    assert len(scores) == 0


def test_an_image_id_may_be_a_tensor():
    scores = DetectionScores(2)
    numbers = [torch.tensor([7]), torch.tensor(3), np.int64(5), 1]
    scores.update([prediction()] * 4, [target(image_id=number) for number in numbers])
    assert scores.data().image_ids.tolist() == [7, 3, 5, 1]


NAN, INF = float("nan"), float("inf")
PREDICTION_FAULTS = {
    r"predictions\[1\]\['scores'\]\[0\] is not finite: nan": {"scores": torch.tensor([NAN, 0.5])},
    r"predictions\[1\]\['boxes'\]\[1\] is not finite": {
        "boxes": torch.tensor([BOXES[0], [0.0, 0, INF, 1]])
    },
    r"predictions\[1\]\['boxes'\]\[1\] must be x1 y1 x2 y2": {
        "boxes": torch.tensor([BOXES[0], [9.0, 9, 5, 10]])
    },
    r"predictions\[1\]\['labels'\]\[1\] must be 0 to 1: 2": {"labels": torch.tensor([0, 2])},
    r"predictions\[1\]\['labels'\]\[0\] must be 0 to 1: -1": {"labels": torch.tensor([-1, 1])},
    "predictions: labels must be integers, not float64": {"labels": torch.tensor([0.0, 1.5])},
    r"predictions\[1\]: 2 boxes, but 1 values of 'scores'": {"scores": torch.tensor([0.5])},
    r"predictions\[1\]\['boxes'\] must be \(n, 4\), not \(2, 5\)": {"boxes": torch.zeros(2, 5)},
    r"predictions\[1\]\['boxes'\] must be \(n, 4\), not \(4,\)": {"boxes": torch.ones(4)},
    r"predictions\[1\]\['scores'\] must be \(n,\), not \(2, 1\)": {"scores": torch.ones(2, 1)},
    r"predictions\[1\]\['scores'\] is not an array of numbers": {"scores": ["high", "low"]},
    r"predictions\[1\]\['boxes'\] is not an array of numbers": {"boxes": [[1, 2], [1, 2, 3, 4]]},
    r"predictions\[1\]\['scores'\] must be \(n,\), not \(\)": {"scores": torch.tensor(0.5)},
}
TARGET_FAULTS = {
    r"targets\[1\]\['labels'\]\[0\] must be 0 to 1: 5": {"labels": torch.tensor([5, 0])},
    r"targets\[1\]\['area'\]\[1\] is not finite": {"area": torch.tensor([1.0, NAN])},
    r"targets\[0\] has no 'area', but others have": {"area": torch.tensor([1.0, 2.0])},
    r"targets\[1\]: 2 boxes, but 3 values of 'iscrowd'": {"iscrowd": torch.zeros(3)},
    r"targets\[0\] has no 'image_id', but others have": {"image_id": 4},
    r"targets\[1\]\['image_id'\] must be a single integer: 'a'": {"image_id": "a"},
}


@pytest.mark.parametrize("message", PREDICTION_FAULTS)
def test_wrong_predictions(message):
    scores = DetectionScores(2)
    with pytest.raises(ValueError, match=message):
        scores.update([prediction(), prediction(**PREDICTION_FAULTS[message])], [target()] * 2)
    assert len(scores) == 0


@pytest.mark.parametrize("message", TARGET_FAULTS)
def test_wrong_targets(message):
    change = TARGET_FAULTS[message]
    whole = {} if "others have" in message else {"area": torch.ones(2), "iscrowd": torch.ones(2)}
    if "image_id" in change and whole:
        whole["image_id"] = 9
    scores = DetectionScores(2)
    with pytest.raises(ValueError, match=message):
        scores.update([prediction()] * 2, [target(**whole), target(**whole | change)])
    assert len(scores) == 0


def test_missing_fields_and_images():
    scores = DetectionScores(2)
    with pytest.raises(ValueError, match=r"predictions\[0\] has no 'scores'; it has boxes, labels"):
        scores.update([target()], [target()])
    with pytest.raises(ValueError, match="2 predictions, but 1 targets"):
        scores.update([prediction()] * 2, [target()])


def test_every_image_counts_once():
    scores = DetectionScores(2)
    scores.update([prediction()], [target(image_id=7)])
    for numbers in ([7], [8, 8]):
        with pytest.raises(ValueError, match=f"image_id {numbers[0]} was given before"):
            scores.update([prediction()] * len(numbers), [target(image_id=n) for n in numbers])
    with pytest.raises(ValueError, match="some targets have one and others do not"):
        scores.update([prediction()], [target()])
    assert len(scores) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give num_classes or classes"),
        ({"num_classes": 2, "classes": ("a", "b")}, "give num_classes or classes"),
        ({"num_classes": 0}, "at least one class"),
        ({"classes": ()}, "at least one class"),
        ({"num_classes": 2, "rule": "kitti"}, "'kitti' is not known; use one of coco, paper, voc"),
        ({"num_classes": 2, "max_detections": 0}, "max_detections=0 must be at least 1"),
        ({"num_classes": 2, "iou_thresholds": (0.5, 0.5)}, "must rise"),
        ({"num_classes": 2, "iou_thresholds": ()}, "must rise"),
        ({"num_classes": 2, "iou_thresholds": (0.0, 0.5)}, "must rise"),
    ],
)
def test_wrong_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        DetectionScores(**arguments)
