"""DETR with a ResNet-50 as it is built: its size, its names, its weights from elsewhere."""

from functools import cache

import pytest
import torch
from torchvision.models import resnet50
from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
from transformers.models.detr.modeling_detr import DetrFrozenBatchNorm2d

from alphaiou import AlphaIoULoss
from alphaiou.detectors.detr.backbone import (
    FrozenBatchNorm2d,
    name_in_transformers,
    prepare_backbone,
)
from alphaiou.detectors.detr.network import PRETRAINED_LR_SCALE, detr
from alphaiou.detectors.faster_rcnn.backbone import WeightsError
from tests.detectors.detr.models import fresh_small_model


@cache
def pretrained_kind():
    return detr(91, AlphaIoULoss("giou"), norm="frozen")


@cache
def fresh_kind():
    torch.manual_seed(0)
    return detr(20)


@cache
def torchvision_resnet():
    """With batch norms that have seen something."""
    torch.manual_seed(0)
    resnet = resnet50(weights=None)
    with torch.no_grad():
        for name, tensor in resnet.state_dict().items():
            if name.endswith(("running_mean", "bias")):
                tensor.normal_(0, 0.1)
            elif name.endswith("running_var") or ("bn" in name and name.endswith("weight")):
                tensor.uniform_(0.5, 1.5)
    return resnet.eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    torch.save(torchvision_resnet().state_dict(), path)
    return path


def learning(module):
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def test_it_has_the_parameters_of_the_published_one():
    """41,302,368 is what DETR's training says of its R50 for COCO's 91 numbers of classes."""
    assert learning(pretrained_kind()) == 41_302_368


def test_its_names_are_those_of_transformers():
    config = DetrConfig(backbone_config=ResNetConfig(out_features=["stage4"]), num_labels=91)
    with torch.device("meta"):
        model = DetrForObjectDetection(config)
    mine, theirs = pretrained_kind().network.model.state_dict(), model.state_dict()
    assert {name: t.shape for name, t in mine.items()} == {n: t.shape for n, t in theirs.items()}
    assert {name.split(".")[0] for name in pretrained_kind().state_dict()} == {"network"}


@torch.no_grad()
def test_weights_of_a_resnet_give_its_features(weights):
    detector = detr(3, AlphaIoULoss("giou"), backbone_weights=weights).eval()
    backbone, resnet = detector.network.model.model.backbone.model, torchvision_resnet()
    images = torch.rand(1, 3, 64, 96)
    expected = resnet.maxpool(resnet.relu(resnet.bn1(resnet.conv1(images))))
    for stage in (resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4):
        expected = stage(expected)
    (features,) = backbone(images).feature_maps
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    fixed = {name for name, p in backbone.named_parameters() if not p.requires_grad}
    assert fixed == {
        name
        for name, _ in backbone.named_parameters()
        if name.startswith(("embedder.", "encoder.stages.0."))
    }


def test_what_has_learnt_before_learns_slower(weights):
    name = "network.model.model.backbone.model.encoder.stages.1.layers.0.layer.0.convolution.weight"
    for detector, expected in (
        (pretrained_kind(), PRETRAINED_LR_SCALE),
        (fresh_kind(), 1.0),
        (detr(3, norm="batch", backbone_weights=weights), PRETRAINED_LR_SCALE),
    ):
        assert name in dict(detector.named_parameters())
        assert detector.lr_scale(name) == expected
        assert detector.lr_scale("network.model.model.input_projection.weight") == 1.0


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_what_is_fresh_learns(norm):
    model = fresh_small_model()
    prepare_backbone(model.model.backbone.model, weights=None, norm=norm)
    assert learning(model) == sum(p.numel() for p in model.parameters())
    kinds = {"batch": torch.nn.BatchNorm2d, "group": torch.nn.GroupNorm}
    norms = [m for m in model.model.backbone.modules() if isinstance(m, kinds[norm])]
    convolutions = [m for m in model.model.backbone.modules() if isinstance(m, torch.nn.Conv2d)]
    assert len(norms) == len(convolutions) > 0


@torch.no_grad()
def test_frozen_norms_are_those_of_transformers():
    mine, theirs = FrozenBatchNorm2d(8), DetrFrozenBatchNorm2d(8)
    for tensor in theirs.buffers():
        tensor.uniform_(0.5, 2.0)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 8, 5, 6)
    torch.testing.assert_close(mine.train()(x), theirs(x))
    half = mine(x.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), theirs(x), rtol=0.02, atol=0.02)


def test_first_weights_are_the_published_ones():
    model = fresh_kind().network.model
    assert model.model.query_position_embeddings.weight.std().item() == pytest.approx(1, rel=0.02)
    layer = model.model.decoder.layers[2]
    for weight, fan in (
        (layer.self_attn.q_proj.weight, 4 * 256),  # one of three in a matrix of 256 to 768
        (layer.encoder_attn.o_proj.weight, 2 * 256),
        (layer.mlp.fc1.weight, 256 + 2048),
    ):
        assert weight.abs().max().item() == pytest.approx((6 / fan) ** 0.5, rel=1e-3)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="num_classes must be at least 1, got 0"):
        detr(0)
    with pytest.raises(ValueError, match="norm must be one of frozen, batch, group; got 'layer'"):
        detr(3, norm="layer")
    with pytest.raises(WeightsError, match="there is no such file"):
        detr(3, backbone_weights=tmp_path / "absent.pth")
    with pytest.raises(ValueError, match="targets must be given in training"):
        pretrained_kind().train()(torch.zeros(1, 3, 32, 32))
    with pytest.raises(ValueError, match=r"'fc.weight' is not a tensor"):
        name_in_transformers("fc.weight")
