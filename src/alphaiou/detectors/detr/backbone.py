"""The ResNet of DETR: its norms, which of its parts are trained, and pretrained weights."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm

from alphaiou._shapes import Float
from alphaiou.boxes import check_choice

Norm = Literal["frozen", "batch", "group"]
#: Parts that keep the weights they were given, where norms do.
FROZEN = ("embedder.", "encoder.stages.0.")


class FrozenBatchNorm2d(nn.Module):
    """A batch norm whose numbers stay what they are; its output has the precision of its input.

    The one of transformers has an output in fp32 where the network computes in half of that.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        for name in ("weight", "running_var"):
            self.register_buffer(name, torch.ones(channels))
        for name in ("bias", "running_mean"):
            self.register_buffer(name, torch.zeros(channels))

    def forward(
        self, x: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch channels rows columns"]:
        """Features to features."""
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "frozen": FrozenBatchNorm2d,
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, 32),
}


def prepare_backbone(
    backbone: nn.Module, *, weights: Literal["imagenet"] | Path | None, norm: Norm
) -> None:
    """Set the norms and weights of a ResNet of transformers, and which of its parts are trained.

    With frozen norms the first convolution and the first of four stages do not learn, as in DETR;
    with others everything does. (transformers freezes all stages of its own ResNets.)

    Args:
        backbone: The ResNet.
        weights: Those of torchvision for ImageNet, a file of the like, or none.
        norm: Batch norms that do not learn, that do, or group norms.

    Raises:
        WeightsError: The weights are not there or do not fit.
    """
    check_choice("norm", norm, get_args(Norm))
    replace_norms(backbone, NORMS[norm])
    if weights is not None:
        from alphaiou.detectors.faster_rcnn.backbone import resnet_fpn

        donor = resnet_fpn("resnet50", weights=weights, norm=norm, frozen_stages=0).body
        renamed = {name_in_transformers(key): value for key, value in donor.state_dict().items()}
        backbone.load_state_dict(renamed)
    for name, parameter in backbone.named_parameters():
        parameter.requires_grad_(norm != "frozen" or not name.startswith(FROZEN))


def replace_norms(module: nn.Module, make: Callable[[int], nn.Module]) -> None:
    """Put other norms in the place of batch norms, frozen or not, with fresh weights."""
    for name, child in module.named_children():
        running_mean = getattr(child, "running_mean", None)
        if isinstance(running_mean, Tensor):
            module.add_module(name, make(len(running_mean)))
        else:
            replace_norms(child, make)


def name_in_transformers(name: str) -> str:
    """What transformers calls a tensor of torchvision's ResNet.

    Examples:
        >>> name_in_transformers("layer1.0.downsample.1.weight")
        'encoder.stages.0.layers.0.shortcut.normalization.weight'
    """
    kinds = {"conv": "convolution", "bn": "normalization", "0": "convolution", "1": "normalization"}
    if stem := re.fullmatch(r"(conv|bn)1\.(\w+)", name):
        return f"embedder.embedder.{kinds[stem[1]]}.{stem[2]}"
    pattern = r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.(\d))\.(\w+)"
    found = re.fullmatch(pattern, name)
    if found is None:
        raise ValueError(f"{name!r} is no tensor of torchvision's ResNet")
    stage, block, kind, number, shortcut, tensor = found.groups()
    block_name = f"encoder.stages.{int(stage) - 1}.layers.{block}"
    if shortcut is not None:
        return f"{block_name}.shortcut.{kinds[shortcut]}.{tensor}"
    return f"{block_name}.layer.{int(number) - 1}.{kinds[kind]}.{tensor}"
