"""Weights to start from: of earlier runs with other classes, and of other implementations."""

import re
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torchvision.models import resnet50
from torchvision.models.detection import fasterrcnn_resnet50_fpn
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

from alphaiou import AlphaIoULoss
from alphaiou._config import to_plain
from alphaiou.detectors import build_detector
from alphaiou.detectors.base import PostProcess
from alphaiou.detectors.detr.backbone import name_in_transformers
from alphaiou.detectors.detr.network import detr
from alphaiou.detectors.faster_rcnn.network import faster_rcnn
from alphaiou.inference.start_weights import read_start_weights, start_from
from alphaiou.inference.weights import Checkpoint, CheckpointError, save_weights, write_tensors
from alphaiou.losses.module import AlphaSchedule
from alphaiou.training.recipe import Recipe

CLASSES = ("cat", "dog", "eel")
DETECTORS = {
    "yolov5n": {},
    "fasterrcnn_r50_fpn": {"norm": "group"},
    "detr_r50": {"norm": "group"},
}
#: The layers with rows per class.
HEADS = {
    "yolov5n": [f"network.head.{layer}" for layer in range(3)],
    "fasterrcnn_r50_fpn": [
        f"roi_heads.box_predictor.{name}" for name in ("cls_score", "bbox_pred")
    ],
    "detr_r50": ["network.model.class_labels_classifier"],
}


def built(name, classes=CLASSES, seed=0, **settings):
    torch.manual_seed(seed)
    return build_detector(name, len(classes), **(DETECTORS[name] | settings)).eval()


def saved(name, path, classes=CLASSES, **settings):
    """A detector whose weights are in a file of this project."""
    detector = built(name, classes, seed=1, **settings)
    recipe = Recipe(detector=name, **DETECTORS[name])
    save_weights(detector, to_plain(recipe), classes, path / "best.safetensors")
    return detector


def per_class(name, key, tensor):
    """The rows of each class, and the others, taken apart by hand."""
    if name == "yolov5n":
        rows = tensor.unflatten(0, (3, -1))
        return rows[:, 5:].movedim(1, 0), rows[:, :5]
    if name == "detr_r50":
        return tensor[:-1], tensor[-1:]
    rows = tensor.unflatten(0, (-1, 4 if "bbox_pred" in key else 1))
    return rows[1:], rows[:1]


@torch.no_grad()
def detections(detector, seed=0):
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(seed))
    return detector.eval()(images)


def assert_same_detections(got, expected, **tolerance):
    for mine, theirs in zip(got, expected, strict=True):
        assert len(mine["boxes"]) > 0
        for part in ("scores", "boxes", "labels"):
            torch.testing.assert_close(mine[part], theirs[part], **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_weights_of_a_run_are_taken_as_they_are(tmp_path, name):
    before = saved(name, tmp_path)
    detector = built(name)
    note = start_from(detector, read_start_weights(tmp_path), name, CLASSES)
    count = sum("num_batches" not in key for key in before.state_dict())
    assert note == f"taken {count} of {count} tensors from {tmp_path / 'best.safetensors'}"
    for one in (before, detector):
        if name != "detr_r50":
            one.postprocess = PostProcess(0.0, 0.6, max_detections=50)
    assert_same_detections(detections(detector), detections(before), rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", DETECTORS)
def test_classes_of_the_same_name_keep_their_rows(tmp_path, name):
    before = saved(name, tmp_path).state_dict()
    classes = ("ant", "eel", "cat", "bee", "cow")
    detector, fresh = built(name, classes), built(name, classes).state_dict()
    note = start_from(detector, read_start_weights(tmp_path), name, classes)
    heads = [f"{layer}.{part}" for layer in HEADS[name] for part in ("weight", "bias")]
    assert "taken but for the classes ant, bee, cow: " + ", ".join(heads[:4]) in note
    assert "new" not in note
    for key, tensor in detector.state_dict().items():
        if key not in heads:
            if "num_batches" not in key:
                assert torch.equal(tensor, before[key]), key
            continue
        (got, rest), (old, old_rest), (random, _) = (
            per_class(name, key, one) for one in (tensor, before[key], fresh[key])
        )
        assert torch.equal(rest, old_rest), key
        for place, known in enumerate(classes):
            from_file = known in CLASSES
            expected = old[CLASSES.index(known)] if from_file else random[place]
            assert torch.equal(got[place], expected), (key, known)


def test_the_loss_starts_anew(tmp_path):
    loss = AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0), modifiers=("wise_v3",))
    before = saved("yolov5n", tmp_path, box_loss=loss)
    loss.alpha.fill_(2.5)
    later = built("yolov5n", box_loss=AlphaIoULoss("iou", AlphaSchedule(1.0, 3.0)))
    start_from(later, read_start_weights(tmp_path), "yolov5n", CLASSES)
    assert later.loss.box_loss.function.alpha == 1.0
    assert torch.equal(later.network.stem.conv.conv.weight, before.network.stem.conv.conv.weight)


# --- other implementations -----------------------------------------------------------------------


def with_statistics(model, images):
    """The model after its batch norms have seen some images: features are of usual size."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    model.train()(images)
    return model.eval()


def seen_images():
    return torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def torchvision_model():
    torch.manual_seed(0)
    model = fasterrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=4,
        min_size=64,
        max_size=64,
        box_score_thresh=0.0,
    )
    with_statistics(model.backbone, model.transform(list(seen_images()))[0].tensors)
    return model.eval()


def earlier_names(tensors):
    """As in the published file, which torchvision before 0.13 wrote."""
    renamed = {}
    for key, tensor in tensors.items():
        earlier = re.sub(r"(fpn\.\w+_blocks\.\d+)\.0\.", r"\1.", key)
        if "num_batches" not in key:
            renamed[earlier.replace("rpn.head.conv.0.0.", "rpn.head.conv.")] = tensor
    return renamed


def write_file(tensors, path):
    if path.suffix == ".safetensors":
        save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path)
    else:
        torch.save(tensors, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "norm", "today"),
    [
        ("a.safetensors", "batch", True),
        ("a.pth", "frozen", True),
        ("a.pth", "batch", False),
        ("a.safetensors", "frozen", False),
    ],
)
@torch.no_grad()
def test_faster_rcnn_of_torchvision(tmp_path, torchvision_model, file, norm, today):
    tensors = torchvision_model.state_dict()
    if not today:
        tensors = earlier_names(tensors)
        torchvision_model.load_state_dict(tensors, strict=True)  # torchvision knows these names
    path = write_file(tensors, tmp_path / file)
    torch.manual_seed(1)
    mine = faster_rcnn(3, AlphaIoULoss("ciou"), norm=norm).eval()
    note = start_from(mine, read_start_weights(path), "fasterrcnn_r50_fpn", CLASSES)
    assert note == f"taken 295 of 295 tensors from {path}"
    mine.postprocess = PostProcess(0.0, 0.5, max_detections=100)
    images = seen_images().double()
    expected = deepcopy(torchvision_model).double()(list(images))
    for got, one in zip(mine.double()(images), expected, strict=True):
        assert len(one["boxes"]) > 20
        one["labels"] -= 1
        rows = [
            torch.cat([it["boxes"], 1e3 * it["scores"][:, None], 1e3 * it["labels"][:, None]], 1)
            for it in (got, one)
        ]
        distances = torch.cdist(*rows)  # scores that are equal but for rounding may change places
        assert distances.amin(0).max() < 0.02
        assert distances.amin(1).max() < 0.02
    more = faster_rcnn(5, AlphaIoULoss("ciou"), norm=norm)
    note = start_from(more, read_start_weights(path), "fasterrcnn_r50_fpn", "abcde")
    assert "taken 291 of 295 tensors" in note
    assert "taken but for the classes a, b, c, d and 1 more: roi_heads.box_predictor" in note


def timm_names(tensors):
    """As in the published file: the backbone with the names of torchvision's ResNet."""
    with torch.device("meta"):
        resnet = resnet50(weights=None).state_dict()
    names = {
        name_in_transformers(key): key
        for key in resnet
        if not key.startswith("fc.") and "num_batches" not in key
    }
    start = "model.backbone.conv_encoder.model."
    return {
        start + names[key.removeprefix(start)] if key.startswith(start) else key: tensor
        for key, tensor in tensors.items()
    }


@pytest.fixture(scope="module")
def transformers_model():
    torch.manual_seed(0)
    config = DetrConfig(backbone_config=ResNetConfig(out_features=["stage4"]), num_labels=3)
    model = DetrForObjectDetection(config)
    with torch.no_grad():
        for key, tensor in model.state_dict().items():
            if key.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif tensor.ndim == 1 and "bias" in key:
                tensor.normal_(0, 0.1)
        model.class_labels_classifier.weight.mul_(30)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("names", ["model", "saved", "published"])
@torch.no_grad()
def test_detr_of_transformers(tmp_path, transformers_model, names):
    path = tmp_path / "model.safetensors"
    if names == "model":
        write_file(transformers_model.state_dict(), path)
    else:
        transformers_model.save_pretrained(tmp_path)
    if names == "published":
        write_file(timm_names(read_start_weights(path).tensors), path)
    torch.manual_seed(1)
    mine = detr(3, norm="frozen").eval()
    note = start_from(mine, read_start_weights(path), "detr_r50", CLASSES)
    count = len(transformers_model.state_dict())
    assert note == f"taken {count} of {count} tensors from {path}"
    image = torch.rand(1, 3, 64, 96)
    pixels = (image - mine.network.mean) / mine.network.deviation
    outputs = transformers_model(pixels)
    scores, labels = outputs.logits.softmax(-1)[0, :, :-1].max(-1)
    order = scores.argsort(descending=True)
    (found,) = mine(image)
    torch.testing.assert_close(found["scores"], scores[order], rtol=1e-4, atol=1e-5)
    assert (found["labels"] == labels[order]).float().mean() > 0.95
    centres = outputs.pred_boxes[0, order, :2] * torch.tensor([96, 64])
    halves = outputs.pred_boxes[0, order, 2:] * torch.tensor([48, 32])
    expected = torch.cat([centres - halves, centres + halves], dim=1)
    expected = expected.clamp(min=0).minimum(torch.tensor([96, 64, 96, 64]))
    torch.testing.assert_close(found["boxes"], expected, rtol=1e-3, atol=1e-2)


#: The layers of the published table with parameters, in its order.
YOLO_LAYERS = (*range(11), 13, 14, 17, 18, 20, 21, 23, 24)


def published_names(detector):
    """The state dict of a detector as that of YOLOv5 v4.0, in the published order of layers."""
    tensors = {}
    for number, layer in zip(YOLO_LAYERS, detector.network.children(), strict=True):
        for key, tensor in layer.state_dict().items():
            name = f"model.{number}.{published_name(number, key)}"
            if "halves." in name:
                halves = tensor.chunk(2) if tensor.ndim else (tensor, tensor)
                for place, half in zip("12", halves, strict=True):
                    tensors[name.replace("halves", f"cv{place}")] = half.clone()
            else:
                tensors[name] = tensor
    tensors["model.0.conv.conv.weight"] = by_pixel(tensors["model.0.conv.conv.weight"])
    strides = torch.tensor([8.0, 16.0, 32.0])[:, None, None]
    tensors["model.24.anchors"] = detector.anchors / strides
    tensors["model.24.anchor_grid"] = detector.anchors.view(3, 1, 3, 1, 1, 2)
    return tensors


def published_name(number, key):
    name = key.replace("norm.", "bn.")
    name = re.sub(r"^blocks\.(\d+)\.first", r"m.\1.cv1", name)
    name = re.sub(r"^blocks\.(\d+)\.second", r"m.\1.cv2", name)
    name = re.sub(r"^narrow", "cv1", name)
    name = re.sub(r"^join", "cv2" if number == 8 else "cv3", name)
    return f"m.{name}" if number == 24 else name


def by_pixel(weight):
    """From the order of ``pixel_unshuffle`` to the colours of each of four pixels in turn."""
    order = [
        colour * 4 + row * 2 + column
        for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))
        for colour in range(3)
    ]
    return weight[:, order]


def test_the_order_of_pixels_is_that_of_slices():
    image, weight = torch.rand(1, 3, 8, 6), torch.rand(4, 12, 1, 1)
    sliced = [image[..., row::2, column::2] for row, column in ((0, 0), (1, 0), (0, 1), (1, 1))]
    torch.testing.assert_close(
        torch.conv2d(torch.cat(sliced, dim=1), by_pixel(weight)),
        torch.conv2d(torch.nn.functional.pixel_unshuffle(image, 2), weight),
    )


@torch.no_grad()
def test_yolov5_of_version_4(tmp_path):
    before = built("yolov5n", seed=1)
    with_statistics(before.network, torch.rand(4, 3, 64, 64))
    before.anchors.mul_(1.5)
    path = write_file(published_names(before), tmp_path / "a.safetensors")
    detector = built("yolov5n")
    note = start_from(detector, read_start_weights(path), "yolov5n", CLASSES)
    assert "taken 262 of 262 tensors" in note
    for key, tensor in before.state_dict().items():
        if "num_batches" not in key:
            torch.testing.assert_close(detector.state_dict()[key], tensor, msg=key)
    for one in (before, detector):
        one.postprocess = PostProcess(0.0, 0.6, max_detections=50)
    assert_same_detections(detections(detector), detections(before), rtol=0, atol=1e-5)
    other = built("yolov5n", "abcde")
    note = start_from(other, read_start_weights(path), "yolov5n", "abcde")
    assert "taken 256 of 262 tensors" in note
    assert "taken but for the classes a, b, c, d and 1 more: network.head.0.weight" in note
    half = {key: tensor.half() for key, tensor in published_names(before).items()}
    write_file(half, path)
    start_from(detector, read_start_weights(path), "yolov5n", CLASSES)
    assert detector.network.stem.conv.conv.weight.dtype == torch.float32


# --- what does not fit ---------------------------------------------------------------------------


def test_files_that_are_no_weights(tmp_path):
    def refused(path, message):
        with pytest.raises(CheckpointError, match=re.escape(str(path)) + message):
            read_start_weights(path)

    refused(tmp_path / "absent.pth", ": there is no such file; weights must be a run folder")
    refused(tmp_path, "/best.safetensors: there is no such file")
    (tmp_path / "text.safetensors").write_text("no")
    refused(tmp_path / "text.safetensors", " is not a complete safetensors file")
    torch.save(Recipe(), tmp_path / "pickle.pt")
    refused(tmp_path / "pickle.pt", ": holds no state dict .*nothing else is unpickled")
    torch.save({"epoch": 3}, tmp_path / "number.pt")
    refused(tmp_path / "number.pt", ": holds no state dict")
    write_file({"a": torch.tensor([float("nan")])}, tmp_path / "nan.safetensors")
    refused(tmp_path / "nan.safetensors", ".* a has values that are not finite")


def test_a_training_state_is_not_taken(tmp_path):
    path = tmp_path / "last.safetensors"
    write_tensors(Checkpoint({"model.a": torch.zeros(1)}, {"recipe": {}}), path)
    with pytest.raises(CheckpointError, match=r"is the state of a training; use best\.safetensors"):
        read_start_weights(path)


class Danger:
    def __reduce__(self):
        return Path.touch, (Path("executed"),)


def test_code_in_a_file_is_not_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Danger()}, "bad.pth")
    with pytest.raises(CheckpointError, match="nothing else is unpickled"):
        read_start_weights(Path("bad.pth"))
    assert not Path("executed").exists()


def refuses(detector, path, name, message, classes=CLASSES):
    before = {key: tensor.clone() for key, tensor in detector.state_dict().items()}
    with pytest.raises(CheckpointError, match=message):
        start_from(detector, read_start_weights(path), name, classes)
    for key, tensor in detector.state_dict().items():
        assert torch.equal(tensor, before[key]), key


def test_weights_of_another_detector(tmp_path):
    saved("yolov5n", tmp_path)
    with torch.device("meta"):
        larger = build_detector("yolov5s", 3)
    with pytest.raises(
        CheckpointError, match="of yolov5n, not of yolov5s; give --detector yolov5n"
    ):
        start_from(larger, read_start_weights(tmp_path), "yolov5s", CLASSES)
    tensors = published_names(built("yolov5n"))
    path = write_file(tensors, tmp_path / "n.safetensors")
    small = build_detector("yolov5s", 3)
    refuses(small, path, "yolov5s", r"only 4 of 262 tensors do; network.stem.conv.conv.weight has ")
    write_file(tensors | {"model.25.conv.weight": torch.zeros(1)}, path)
    refuses(built("yolov5n"), path, "yolov5n", "model.25.conv.weight is no tensor of YOLOv5 v4.0")
    write_file(tensors | {"model.1.conv.bias": torch.zeros(32)}, path)
    refuses(built("yolov5n"), path, "yolov5n", "its batch norms are folded")
    del tensors["model.2.cv2.conv.weight"]
    write_file(tensors, path)
    refuses(built("yolov5n"), path, "yolov5n", "one half of .*stage2.* is missing")
    write_file(tensors | {"model.0.conv.conv.weight": torch.zeros(16, 3, 6, 6)}, path)
    refuses(built("yolov5n"), path, "yolov5n", r"the first convolution has the shape \(16, 3, 6, 6")


@pytest.mark.slow
def test_other_norms_are_noticed(tmp_path):
    """Their weights and biases have the same names and shapes."""
    name = "fasterrcnn_r50_fpn"
    with_batch = faster_rcnn(3, AlphaIoULoss(), norm="batch")
    path = write_file(with_batch.state_dict(), tmp_path / "batch.safetensors")
    refuses(built(name), path, name, "has batch norms, and the .* has group norms; set norm to fro")
    saved(name, tmp_path)
    refuses(with_batch, tmp_path, name, "has no batch norms, and the detector has; set norm to gro")


def test_frozen_parameters_must_be_in_the_file(tmp_path):
    saved("yolov5n", tmp_path)
    detector = built("yolov5n", ("cat", "cow"))
    detector.freeze(["network.head.1"])
    refuses(
        detector, tmp_path, "yolov5n", "network.head.1.weight is frozen", classes=("cat", "cow")
    )
    detector = built("yolov5n", ("cat", "dog"))
    detector.freeze(["network.head.1"])
    start_from(detector, read_start_weights(tmp_path), "yolov5n", ("cat", "dog"))


def test_damaged_names_of_classes(tmp_path):
    saved("yolov5n", tmp_path)
    weights = replace(read_start_weights(tmp_path), classes=("cat",))
    with pytest.raises(CheckpointError, match="damaged: it has 1 names of classes for 3 classes"):
        start_from(built("yolov5n"), weights, "yolov5n", CLASSES)
