"""The backbone of Faster R-CNN: norms, what is frozen, and weights from elsewhere."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torchvision.models import resnet18
from torchvision.ops import FrozenBatchNorm2d

from alphaiou.detectors.faster_rcnn.backbone import WeightsError, resnet_fpn
from alphaiou.errors import AlphaIoUError


def build(weights=None, norm=None, frozen_stages=None, name="resnet18"):
    return resnet_fpn(name, weights=weights, norm=norm, frozen_stages=frozen_stages)


def kinds_of_norm(model):
    norms = (FrozenBatchNorm2d, nn.BatchNorm2d, nn.GroupNorm)
    return {type(module) for module in model.modules() if isinstance(module, norms)}


@pytest.fixture(scope="module")
def trained():
    torch.manual_seed(0)
    model = resnet18(weights=None)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return model.eval()


def test_five_levels_of_256_channels():
    found = build()(torch.zeros(1, 3, 64, 128))
    sides = [(16, 32), (8, 16), (4, 8), (2, 4), (1, 2)]
    assert [tuple(level.shape) for level in found.values()] == [(1, 256, *side) for side in sides]


def test_without_weights_everything_learns():
    model = build()
    assert kinds_of_norm(model) == {nn.GroupNorm}
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert kinds_of_norm(model.fpn) == {nn.GroupNorm}
    assert kinds_of_norm(build(norm="batch")) == {nn.BatchNorm2d}


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_weights_of_a_file(suffix, trained, tmp_path):
    path = tmp_path / f"resnet{suffix}"
    if suffix == ".pth":
        torch.save(trained.state_dict(), path)
    else:
        save_file(trained.state_dict(), path)
    model = build(path)
    assert kinds_of_norm(model) == {FrozenBatchNorm2d}
    images = torch.rand(1, 3, 64, 64)
    stem = trained.maxpool(trained.relu(trained.bn1(trained.conv1(images))))
    expected = trained.layer4(trained.layer3(trained.layer2(trained.layer1(stem))))
    torch.testing.assert_close(model.body(images)["3"], expected, rtol=1e-4, atol=1e-4)


def test_weights_of_a_faster_rcnn(tmp_path):
    from alphaiou.detectors.faster_rcnn.network import faster_rcnn

    donor = faster_rcnn(3, "l1", backbone="resnet18", norm="batch")
    save_file(donor.state_dict(), tmp_path / "detector.safetensors")
    body = build(tmp_path / "detector.safetensors", norm="batch").body
    for name, tensor in donor.backbone.body.state_dict().items():
        assert torch.equal(body.state_dict()[name], tensor), name


@pytest.mark.parametrize(
    ("norm", "frozen_stages", "still"),
    [
        (None, None, ("conv1", "layer1")),
        ("frozen", 0, ()),
        ("frozen", 3, ("conv1", "layer1", "layer2")),
        ("batch", None, ()),
        ("frozen", 5, ("conv1", "layer1", "layer2", "layer3", "layer4")),
    ],
)
def test_which_stages_learn(norm, frozen_stages, still, trained, tmp_path):
    path = tmp_path / "resnet.pth"
    torch.save(trained.state_dict(), path)
    model = build(path, norm, frozen_stages)
    for name, parameter in model.body.named_parameters():
        assert parameter.requires_grad == (name.split(".")[0] not in still), name
    assert all(parameter.requires_grad for parameter in model.fpn.parameters())


def test_weights_of_imagenet_are_torchvisions(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(trained.state_dict(), folder / "resnet18-f37072fd.pth")
    model = build("imagenet")
    torch.testing.assert_close(model.body.conv1.weight, trained.conv1.weight)


def test_weights_that_cannot_be_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens
    with pytest.raises(
        WeightsError, match=r"resnet18-f37072fd\.pth: cannot be loaded .* give the path"
    ):
        build("imagenet")


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("none.pth", None, {}, "there is no such file; backbone_weights must be a .pth or .safe"),
        ("text.pth", b"no weights", {}, r"text.pth: holds no state dict \(\w+\); save one by"),
        ("text.safetensors", b"no", {}, r"text.safetensors: holds no state dict \(\w+\)"),
        ("list.pth", [1, 2], {}, r"list.pth: holds no state dict \(TypeError\)"),
        ("part.pth", {"conv1.weight": torch.zeros(64, 3, 7, 7)}, {}, "bn1.weight is missing or"),
        ("whole.pth", "trained", {"name": "resnet50"}, "take weights of resnet50"),
        ("whole.pth", "trained", {"name": "resnet34"}, "take weights of resnet34"),
        ("whole.pth", "trained", {"norm": "group"}, "it has no bn1.running_mean; take norm='froz"),
    ],
)
def test_files_that_cannot_be_used(name, content, options, message, trained, tmp_path):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(trained.state_dict() if content == "trained" else content, path)
    with pytest.raises(AlphaIoUError, match=message) as error:
        build(path, **options)
    assert str(path) in str(error.value)


def test_weights_of_a_deeper_net_do_not_fit_a_shallower_one(tmp_path):
    path = tmp_path / "deeper.pth"
    torch.save(build(name="resnet34", norm="batch").body.state_dict(), path)
    with pytest.raises(WeightsError, match=r"it has no layer1\.2\.conv1\.weight"):
        build(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "vgg"}, "backbone must be one of resnet18, resnet34, resnet50, resnet101; got"),
        ({"norm": "layer"}, "norm must be one of frozen, batch, group; got 'layer'"),
        ({"frozen_stages": 6}, "frozen_stages must be from 0 to 5, got 6"),
        ({"frozen_stages": 1, "norm": "batch"}, "frozen_stages must be 0 with norm='batch'"),
    ],
)
def test_wrong_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)
