"""YOLOv5 v4.0: the detector, its network and its blocks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from alphaiou._shapes import Float, Shaped
from alphaiou.batch import Targets
from alphaiou.boxes import check_choice
from alphaiou.detectors.base import (
    ClassRow,
    Detections,
    Detector,
    Images,
    PostProcess,
    Target,
    batch_images,
    batch_targets,
    in_unit,
)
from alphaiou.detectors.ops.norm_silu import norm_silu
from alphaiou.detectors.yolov5.anchors import fit_anchors
from alphaiou.detectors.yolov5.loss import Objectness, Predictions, YOLOv5Loss, decode
from alphaiou.detectors.yolov5.state_dict import BACKBONE, class_rows, translated
from alphaiou.losses import AlphaIoULoss
from alphaiou.losses.pair_loss import BoxLoss

#: Depth and width multiples.
SIZES = {
    "yolov5n": (0.33, 0.25),
    "yolov5s": (0.33, 0.50),
    "yolov5m": (0.67, 0.75),
    "yolov5l": (1.00, 1.00),
    "yolov5x": (1.33, 1.25),
}
STRIDES = (8, 16, 32)
#: Width and height of the anchors in pixels, for images of 640 pixels.
ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
Features = Float[Tensor, "batch _channels _height _width"]
AnyModule = TypeVar("AnyModule", bound=nn.Module)


def yolov5(
    name: str,
    num_classes: int,
    box_loss: BoxLoss | None = None,
    *,
    box_gain: float = 0.05,
    objectness_gain: float = 1.0,
    class_gain: float = 0.5,
    objectness: Objectness = "iou",
    objectness_alpha: float = 1.0,
    anchors: Float[Tensor, "3 3 2"] | None = None,
    postprocess: PostProcess | None = None,
) -> YOLOv5:
    """YOLOv5 with random weights.

    Args:
        name: One of ``SIZES``.
        num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
        box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes in ``cxcywh``
            to one value per pair; α-IoU with α = 3 by default.
        box_gain: The weight of the box part of the loss.
        objectness_gain: The weight of the objectness part for images of 640 pixels; it is scaled
            with their area.
        class_gain: The weight of the class part for 80 classes; it is scaled with their number.
        objectness: The objectness target of positives: ``iou``, or ``similarity`` (one minus the
            box loss) as in the published code of the paper.
        objectness_alpha: The power of that target; 0 teaches 1 for every positive.
        anchors: Width and height of the three anchors of each of three layers, in pixels; those of
            YOLOv5 by default.
        postprocess: Score threshold, NMS, and the number of detections.

    Examples:
        >>> sum(parameter.numel() for parameter in yolov5("yolov5s", 80).parameters())
        7276605
    """
    check_choice("name", name, tuple(SIZES))
    if num_classes < 1:
        raise ValueError(f"num_classes must be at least 1, got {num_classes}")
    depth, width = SIZES[name]
    return YOLOv5(
        YOLOv5Network(num_classes, depth=depth, width=width),
        YOLOv5Loss(
            num_classes,
            AlphaIoULoss() if box_loss is None else box_loss,
            box_gain=box_gain,
            objectness_gain=objectness_gain,
            class_gain=class_gain,
            objectness=objectness,
            objectness_alpha=objectness_alpha,
        ),
        postprocess=postprocess or PostProcess(),
        anchors=anchors,
    )


class YOLOv5(Detector):
    """YOLOv5 with torchvision's interface: losses in training, detections in evaluation.

    In training, ``model(images, targets)`` returns the losses ``box``, ``objectness`` and ``class``
    to sum. In evaluation, ``model(images)`` returns ``boxes`` (``xyxy`` in pixels of the image),
    ``scores`` and ``labels`` of each image, best first. Images are a batch or a list of any sizes,
    uint8 or floats in [0, 1]; they are not resized.
    """

    anchors: Tensor
    #: The parts that are compiled separately: the network does not depend on the loss, so that its
    #: kernels are reused when training with another loss.
    compiled_parts = ("network", "loss")
    loss_names = ("box", "objectness", "class")
    sums_over_images = True
    backbone_prefixes = BACKBONE

    def __init__(
        self,
        network: YOLOv5Network,
        loss: YOLOv5Loss,
        *,
        postprocess: PostProcess,
        anchors: Float[Tensor, "3 3 2"] | None = None,
    ) -> None:
        super().__init__()
        self.network, self.loss, self.postprocess = network, loss, postprocess
        default = torch.tensor(ANCHORS, dtype=torch.float32)
        self.register_buffer("anchors", default if anchors is None else anchors.float())

    def forward(
        self, images: Images, targets: Sequence[Target] | Targets | None = None
    ) -> dict[str, Tensor] | list[Detections]:
        """Return losses in training, detections in evaluation."""
        if not self.training:
            sizes = [(image.shape[-2], image.shape[-1]) for image in images]
            return self.postprocess(self.predictions(images), sizes)
        batch = batch_images(images, multiple=STRIDES[-1])
        if targets is None:
            raise ValueError("targets must be given in training; call model.eval() to detect")
        if not isinstance(targets, Targets):
            targets = batch_targets(targets)
        losses: dict[str, Tensor] = self.loss(self.network(batch), targets, self.anchors, STRIDES)
        return losses

    def predictions(
        self, images: Images
    ) -> tuple[Float[Tensor, "batch n 4"], Float[Tensor, "batch n classes"]]:
        """Return all boxes, ``xyxy`` in pixels, and their scores for each class, before NMS."""
        return self.predict(self.network(batch_images(images, multiple=STRIDES[-1])))

    def fit_boxes(self, sizes: Float[Tensor, "boxes 2"], *, seed: int) -> None:
        """Fit new anchors to the boxes if too few boxes match the current ones."""
        self.anchors.copy_(fit_anchors(sizes, self.anchors, seed=seed))

    def translated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a state dict of YOLOv5 v4.0 with the names of this detector."""
        return translated(tensors, STRIDES)

    def class_rows(self, name: str, rows: int) -> list[ClassRow] | None:
        """Return what each row of a tensor of the head is for."""
        return class_rows(name, rows)

    def predict(
        self, outputs: Sequence[Predictions]
    ) -> tuple[Float[Tensor, "batch n 4"], Float[Tensor, "batch n classes"]]:
        """Return the box of every prediction, ``xyxy`` in pixels, and its score for each class."""
        boxes, scores = [], []
        for output, anchors, stride in zip(outputs, self.anchors, STRIDES, strict=True):
            raw = output.float()
            rows, columns = raw.shape[1:3]
            y, x = torch.meshgrid(
                torch.arange(rows, device=raw.device),
                torch.arange(columns, device=raw.device),
                indexing="ij",
            )
            corner = torch.stack([x, y], dim=-1)[:, :, None]
            box = decode(raw[..., :4], anchors / stride)
            centre, half = (box[..., :2] + corner) * stride, box[..., 2:] * (stride / 2)
            boxes.append(torch.cat([centre - half, centre + half], dim=-1).flatten(1, 3))
            scores.append((raw[..., 4:5].sigmoid() * raw[..., 5:].sigmoid()).flatten(1, 3))
        return torch.cat(boxes, dim=1), torch.cat(scores, dim=1)


class YOLOv5Network(nn.Module):
    """The network: backbone, path aggregation and head, with raw predictions on three layers."""

    def __init__(self, num_classes: int, *, depth: float, width: float) -> None:
        super().__init__()
        c1, c2, c3, c4, c5 = (math.ceil(c * width / 8) * 8 for c in (64, 128, 256, 512, 1024))
        n3, n9 = (max(round(n * depth), 1) for n in (3, 9))
        self.stem = Focus(3, c1)
        self.down2, self.stage2 = Conv(c1, c2, 3, 2), C3(c2, c2, n3)
        self.down3, self.stage3 = Conv(c2, c3, 3, 2), C3(c3, c3, n9)
        self.down4, self.stage4 = Conv(c3, c4, 3, 2), C3(c4, c4, n9)
        self.down5, self.pool5 = Conv(c4, c5, 3, 2), SPP(c5)
        self.stage5 = C3(c5, c5, n3, shortcut=False)

        self.narrow5, self.merge4 = Conv(c5, c4), C3(2 * c4, c4, n3, shortcut=False)
        self.narrow4, self.out3 = Conv(c4, c3), C3(2 * c3, c3, n3, shortcut=False)
        self.shrink3, self.out4 = Conv(c3, c3, 3, 2), C3(2 * c3, c4, n3, shortcut=False)
        self.shrink4, self.out5 = Conv(c4, c4, 3, 2), C3(2 * c4, c5, n3, shortcut=False)

        self.channels = num_classes + 5
        outputs = len(ANCHORS[0]) * self.channels
        heads = [nn.Conv2d(channels, outputs, 1) for channels in (c3, c4, c5)]
        for head, stride in zip(heads, STRIDES, strict=True):
            _set_prior(head, stride, num_classes)
        self.head = nn.ModuleList(heads)

    def forward(
        self, images: Shaped[Tensor, "batch 3 height width"]
    ) -> list[Float[Tensor, "batch _rows _columns anchors channels"]]:
        """Return the predictions at strides 8, 16 and 32; images are uint8 or floats in [0, 1]."""
        x3 = self.stage3(self.down3(self.stage2(self.down2(self.stem(in_unit(images))))))
        x4 = self.stage4(self.down4(x3))
        x5 = self.stage5(self.pool5(self.down5(x4)))

        n5 = self.narrow5(x5)
        n4 = self.narrow4(self.merge4(torch.cat([doubled(n5), x4], dim=1)))
        p3 = self.out3(torch.cat([doubled(n4), x3], dim=1))
        p4 = self.out4(torch.cat([self.shrink3(p3), n4], dim=1))
        p5 = self.out5(torch.cat([self.shrink4(p4), n5], dim=1))
        return [self._predicted(*one) for one in zip((p3, p4, p5), self.head, strict=True)]

    def _predicted(self, x: Features, head: nn.Module) -> Predictions:
        assert isinstance(head, nn.Conv2d)
        # In channels-last memory this is a view.
        last = convolve(x, head).permute(0, 2, 3, 1)
        predictions: Tensor = last.unflatten(-1, (-1, self.channels))  # type: ignore[no-untyped-call]
        return predictions


@torch.no_grad()
def _set_prior(head: nn.Conv2d, stride: int, num_classes: int) -> None:
    """Initialise biases for about 8 objects per image of 640 pixels and rare classes."""
    assert head.bias is not None
    bias = head.bias.view(-1, num_classes + 5)
    bias[:, 4] += math.log(8 / (640 / stride) ** 2)
    bias[:, 5:] += math.log(0.6 / (num_classes - 0.99))


# --- blocks ---------------------------------------------------------------------------------------


class Conv(nn.Module):
    """A convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.03)

    def forward(self, x: Features, plus: Features | None = None) -> Features:
        """Apply the block and add other features, if given."""
        return norm_silu(convolve(x, self.conv), self.norm, plus)


class Focus(nn.Module):
    """Stack each 2×2 block of pixels as channels, followed by a convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = Conv(4 * inputs, outputs, kernel=3)

    def forward(self, x: Features) -> Features:
        """Compute features at half the image size."""
        halved: Tensor = self.conv(nn.functional.pixel_unshuffle(x, 2))
        return halved


class Bottleneck(nn.Module):
    """A 1×1 and a 3×3 convolution, with an optional residual connection."""

    def __init__(self, channels: int, *, shortcut: bool) -> None:
        super().__init__()
        self.shortcut = shortcut
        self.first, self.second = Conv(channels, channels), Conv(channels, channels, kernel=3)

    def forward(self, x: Features) -> Features:
        """Apply the block; the number of channels is unchanged."""
        y: Tensor = self.second(self.first(x), plus=x if self.shortcut else None)
        return y


class C3(nn.Module):
    """A CSP block: one of two halves passes through bottlenecks before both are merged."""

    def __init__(self, inputs: int, outputs: int, repeats: int, *, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.halves = Conv(inputs, 2 * half)
        self.blocks = nn.Sequential(*(Bottleneck(half, shortcut=shortcut) for _ in range(repeats)))
        self.join = Conv(2 * half, outputs)

    def forward(self, x: Features) -> Features:
        """Apply the block; the size of the features is unchanged."""
        through, past = self.halves(x).chunk(2, dim=1)
        # A convolution of a slice would copy it in the forward and in the backward pass.
        joined: Tensor = self.join(torch.cat([self.blocks(through.clone()), past], dim=1))
        return joined


class SPP(nn.Module):
    """Spatial pyramid pooling: concatenated maxima over windows of 1, 5, 9 and 13.

    Pooling over 5 twice equals pooling over 9, and three times equals 13, so three small poolings
    replace the large ones in a fraction of the time. Pooling also separates into rows and columns.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = Conv(channels, channels // 2)
        self.pool = nn.Sequential(
            nn.MaxPool2d((1, 5), stride=1, padding=(0, 2)),
            nn.MaxPool2d((5, 1), stride=1, padding=(2, 0)),
        )
        self.join = Conv(channels // 2 * 4, channels)

    def forward(self, x: Features) -> Features:
        """Apply the block; the number of channels is unchanged."""
        pyramid: list[Tensor] = [self.narrow(x)]
        for _ in range(3):
            pyramid.append(self.pool(pyramid[-1]))
        joined: Tensor = self.join(torch.cat(pyramid, dim=1))
        return joined


class _Doubled(torch.autograd.Function):
    """Nearest-neighbour upsampling by two.

    The gradient sums the four cells. The gradient of the compiler would scatter them one by one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401 - as torch wants it
        return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        return nn.functional.avg_pool2d(gradient, 2, divisor_override=1)


def doubled(x: Features) -> Features:
    """Return the features at twice the size."""
    larger: Tensor = _Doubled.apply(x)
    return larger


def convolve(x: Features, conv: nn.Conv2d) -> Features:
    """A convolution whose input and output channels are padded to multiples of eight on CUDA.

    The fast kernels support only such numbers. For the 12 channels of an image's 2×2 blocks, or the
    75 of a head for 20 classes, cuDNN would pad copies first or use slow kernels.
    """
    fits = conv.in_channels % 8 == conv.out_channels % 8 == 0
    convolved: Tensor = convolve_in_eights(x, conv) if x.is_cuda and not fits else conv(x)
    return convolved


def convolve_in_eights(x: Features, conv: nn.Conv2d) -> Features:
    """Apply the convolution as part of one whose channels are multiples of eight."""
    more_in, more_out = -conv.in_channels % 8, -conv.out_channels % 8
    weight = nn.functional.pad(conv.weight, (0, 0, 0, 0, 0, more_in, 0, more_out))
    bias = None if conv.bias is None else nn.functional.pad(conv.bias, (0, more_out))
    wider = nn.functional.pad(x, (0, 0, 0, 0, 0, more_in))
    wide = nn.functional.conv2d(wider, weight, bias, conv.stride, conv.padding)
    return wide[:, : conv.out_channels]


# --- inference ------------------------------------------------------------------------------------


def fold_batch_norm(model: AnyModule) -> AnyModule:
    """Return a copy for inference with each batch norm folded into its convolution.

    Examples:
        >>> folded = fold_batch_norm(Conv(3, 8, kernel=3))
        >>> sum(p.numel() for p in folded.parameters())
        224
    """
    folded = deepcopy(model).eval()
    for module in folded.modules():
        if isinstance(module, Conv) and isinstance(module.norm, nn.BatchNorm2d):
            module.conv = fuse_conv_bn_eval(module.conv, module.norm)
            module.norm = nn.Identity()
    return folded
