"""The ResNet backbone of DETR: norms, frozen stages, and pretrained weights."""

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
#: The stages that are frozen together with frozen norms.
FROZEN = ("embedder.", "encoder.stages.0.")


class FrozenBatchNorm2d(nn.Module):
    """A frozen batch norm whose output has the precision of its input.

    The frozen norm of transformers returns fp32 in a half-precision network.
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
        """Normalise features."""
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias)


NORMS: dict[str, Callable[[int], nn.Module]] = {
    "frozen": FrozenBatchNorm2d,
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, 32),
}


def prepare_backbone(
    backbone: nn.Module, *, weights: Literal["imagenet"] | Path | None, norm: Norm
) -> None:
    """Set the norms, the weights and the frozen stages of a ResNet of transformers.

    With frozen norms, the first convolution and the first of four stages are frozen, as in DETR.
    With other norms, everything is trained. (transformers freezes all stages of its ResNets.)

    Args:
        backbone: The ResNet.
        weights: The ImageNet weights of torchvision, a file with a state dict, or none.
        norm: Frozen batch norms, trained batch norms, or group norms.

    Raises:
        WeightsError: If the weights do not exist or do not fit.
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
    """Replace all batch norms, frozen or not, by new norms."""
    for name, child in module.named_children():
        running_mean = getattr(child, "running_mean", None)
        if isinstance(running_mean, Tensor):
            module.add_module(name, make(len(running_mean)))
        else:
            replace_norms(child, make)


def name_in_transformers(name: str) -> str:
    """Translate the name of a tensor of torchvision's ResNet to transformers.

    Examples:
        >>> name_in_transformers("layer1.0.downsample.1.weight")
        'encoder.stages.0.layers.0.shortcut.normalization.weight'
    """
    kinds = {"conv": "convolution", "bn": "normalization", "0": "convolution", "1": "normalization"}
    if stem := re.fullmatch(r"(conv|bn)1\.(\w+)", name):
        return f"embedder.embedder.{kinds[stem[1]]}.{stem[2]}"
    pattern = r"layer(\d)\.(\d+)\.(?:(conv|bn)(\d)|downsample\.(\d))\.(\w+)"
    match = re.fullmatch(pattern, name)
    if match is None:
        raise ValueError(f"{name!r} is not a tensor of torchvision's ResNet")
    stage, block, kind, number, shortcut, tensor = match.groups()
    block_name = f"encoder.stages.{int(stage) - 1}.layers.{block}"
    if shortcut is not None:
        return f"{block_name}.shortcut.{kinds[shortcut]}.{tensor}"
    return f"{block_name}.layer.{int(number) - 1}.{kinds[kind]}.{tensor}"
