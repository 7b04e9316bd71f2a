"""The backbone of Faster R-CNN: a ResNet with a feature pyramid, and its pretrained weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torchvision.models import get_model, get_model_weights
from torchvision.models.detection.backbone_utils import BackboneWithFPN
from torchvision.ops import FrozenBatchNorm2d
from torchvision.ops.feature_pyramid_network import LastLevelMaxPool

from alphaiou.boxes import check_choice
from alphaiou.errors import AlphaIoUError

Norm = Literal["frozen", "batch", "group"]
ResNet = Literal["resnet18", "resnet34", "resnet50", "resnet101"]
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "frozen": FrozenBatchNorm2d,
    "batch": nn.BatchNorm2d,
    "group": partial(nn.GroupNorm, 32),
}
#: The stages that can be frozen, from the input upwards.
STAGES = (("conv1", "bn1"), ("layer1",), ("layer2",), ("layer3",), ("layer4",))
#: The number of stages that are frozen together with frozen norms.
FROZEN_STAGES = 2
CHANNELS = 256
#: The prefix of the backbone in the state dict of a Faster R-CNN.
BODY = "backbone.body."


class WeightsError(AlphaIoUError):
    """The weights of a backbone do not exist or do not fit."""


def resnet_fpn(
    name: ResNet,
    *,
    weights: Literal["imagenet"] | Path | None,
    norm: Norm | None,
    frozen_stages: int | None,
) -> BackboneWithFPN:
    """A ResNet with a feature pyramid of 256 channels at strides 4 to 64.

    Args:
        name: The ResNet.
        weights: The ImageNet weights of torchvision, a file with the state dict of a ResNet or a
            Faster R-CNN, or none.
        norm: Frozen batch norms (``frozen``), trained batch norms (``batch``), or group norms, also
            in the pyramid (``group``). By default frozen with weights, else group.
        frozen_stages: The number of frozen stages of five, from the input upwards; by default 2
            with weights and frozen norms, else 0.

    Raises:
        WeightsError: If the weights do not exist or do not fit.
    """
    check_choice("backbone", name, get_args(ResNet))
    norm = norm or ("group" if weights is None else "frozen")
    check_choice("norm", norm, get_args(Norm))
    frozen = _frozen_stages(frozen_stages, norm, trained=weights is not None)
    body = get_model(name, weights=None, norm_layer=NORMS[norm])
    if weights is not None:
        _load(body, name, weights, norm)
    for part in sum(STAGES[:frozen], ()):
        body.get_submodule(part).requires_grad_(requires_grad=False)
    return BackboneWithFPN(
        body,
        {f"layer{number + 1}": str(number) for number in range(4)},
        [body.fc.in_features // 8 * 2**number for number in range(4)],
        CHANNELS,
        extra_blocks=LastLevelMaxPool(),
        norm_layer=NORMS[norm] if norm == "group" else None,
    )


def _frozen_stages(asked: int | None, norm: Norm, *, trained: bool) -> int:
    if asked is None:
        return FROZEN_STAGES if trained and norm == "frozen" else 0
    if not 0 <= asked <= len(STAGES):
        raise ValueError(f"frozen_stages must be from 0 to {len(STAGES)}, got {asked}")
    if asked and norm == "batch":
        raise ValueError(
            "frozen_stages must be 0 with norm='batch', whose statistics are updated; use "
            "norm='frozen'"
        )
    return asked


def _load(body: nn.Module, name: str, weights: Literal["imagenet"] | Path, norm: Norm) -> None:
    tensors = _download(name) if weights == "imagenet" else _body_of(_read(Path(weights)))
    expected = body.state_dict()
    # The classifier and the batch counters of the norms are not needed.
    needed = [key for key in expected if not key.startswith("fc.") and "num_batches" not in key]
    bad = next((key for key in needed if not _fits(expected[key], tensors.get(key))), None)
    extra = [key for key in tensors if key not in expected and "num_batches" not in key]
    if bad is not None or extra:
        lack = f"{bad} is missing or has another shape" if bad else f"it has no {extra[0]}"
        remedy = "norm='frozen' or 'batch'" if norm == "group" else f"weights of {name}"
        raise WeightsError(
            f"{weights}: does not fit {name} with norm={norm!r}: {lack}; take {remedy}"
        )
    body.load_state_dict({key: tensors[key] for key in needed}, strict=False)


def _fits(expected: Tensor, loaded: Tensor | None) -> bool:
    return loaded is not None and loaded.shape == expected.shape


def _body_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the backbone of Faster R-CNN weights; other weights are returned unchanged."""
    body = {key.removeprefix(BODY): value for key, value in tensors.items() if key.startswith(BODY)}
    return body or tensors


def _download(name: str) -> dict[str, Tensor]:
    weights = get_model_weights(name).IMAGENET1K_V1
    try:
        tensors: dict[str, Tensor] = weights.get_state_dict(progress=False, check_hash=True)
    except (OSError, RuntimeError) as error:
        raise WeightsError(
            f"{weights.url}: cannot be loaded ({error}); fetch it elsewhere and give the path of "
            "the file as backbone_weights"
        ) from error
    return tensors


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise WeightsError(
            f"{path}: there is no such file; backbone_weights must be a .pth or .safetensors file "
            "of a torchvision ResNet or a Faster R-CNN, or 'imagenet'"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(tensors, dict):
            raise TypeError(f"holds a {type(tensors).__name__}")
        return {key: value for key, value in tensors.items() if isinstance(value, Tensor)}
    except Exception as error:
        raise WeightsError(
            f"{path}: holds no state dict ({type(error).__name__}); save one by "
            "torch.save(resnet.state_dict(), path)"
        ) from error
