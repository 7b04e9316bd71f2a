"""The backbone of Faster R-CNN: a ResNet with a feature pyramid, and weights from elsewhere."""

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
#: From the images upwards; what can be frozen.
STAGES = (("conv1", "bn1"), ("layer1",), ("layer2",), ("layer3",), ("layer4",))
CHANNELS = 256
#: What the names of the backbone begin with among the weights of a Faster R-CNN.
BODY = "backbone.body."


class WeightsError(AlphaIoUError):
    """Weights of a backbone do not exist or do not fit."""


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
        weights: Those of torchvision for ImageNet, a file of the like or of a Faster R-CNN, or
            none.
        norm: Batch norms that do not learn (``frozen``), that do (``batch``), or group norms, in
            the pyramid too (``group``). Unless given: frozen ones with weights, else group norms.
        frozen_stages: How many of the five stages do not learn, from the images upwards; unless
            given, 2 with weights and frozen norms, else 0.

    Raises:
        WeightsError: The weights are not there or do not fit.
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
        return 2 if trained and norm == "frozen" else 0
    if not 0 <= asked <= len(STAGES):
        raise ValueError(f"frozen_stages must be from 0 to {len(STAGES)}, got {asked}")
    if asked and norm == "batch":
        raise ValueError(
            "frozen_stages must be 0 with norm='batch', whose means go on learning; take "
            "norm='frozen'"
        )
    return asked


def _load(body: nn.Module, name: str, weights: Literal["imagenet"] | Path, norm: Norm) -> None:
    tensors = _download(name) if weights == "imagenet" else _body_of(_read(Path(weights)))
    own = body.state_dict()
    # The classifier has no use here, and the number of batches seen by a norm need not be known.
    needed = [key for key in own if not key.startswith("fc.") and "num_batches" not in key]
    bad = next((key for key in needed if not _fits(own[key], tensors.get(key))), None)
    extra = [key for key in tensors if key not in own and "num_batches" not in key]
    if bad is not None or extra:
        lack = f"{bad} is missing or has another shape" if bad else f"it has no {extra[0]}"
        remedy = "norm='frozen' or 'batch'" if norm == "group" else f"weights of {name}"
        raise WeightsError(
            f"{weights}: does not fit {name} with norm={norm!r}: {lack}; take {remedy}"
        )
    body.load_state_dict({key: tensors[key] for key in needed}, strict=False)


def _fits(own: Tensor, found: Tensor | None) -> bool:
    return found is not None and found.shape == own.shape


def _body_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The backbone among the weights of a Faster R-CNN; other weights as they are."""
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
