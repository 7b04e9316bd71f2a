"""The detector interface: torchvision's inputs and outputs, with static shapes in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from alphaiou._config import Config, ConfigError
from alphaiou._shapes import Float, Int, Shaped
from alphaiou.batch import FILL, Targets
from alphaiou.boxes import check_choice
from alphaiou.detectors.ops.nms import keep_best
from alphaiou.losses.functional import check_alphas
from alphaiou.losses.kinds import kinds_of
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.pair_loss import BoxLoss
from alphaiou.losses.spec import LossSpec, check_modifiers
from alphaiou.numerics import check_number

Kind = TypeVar("Kind", bound="Detector")
#: The precision of a network; auto is bf16 on a GPU, else fp32.
Precision = Literal["auto", "bf16", "fp16", "fp32"]
#: The norms of a ResNet: frozen batch norms, trained batch norms, or group norms.
Norm = Literal["frozen", "batch", "group"]
#: The autocast dtype of each precision; none for fp32.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Mean and standard deviation of the colours of ImageNet.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: The number of candidates per image in the first NMS pass, which is nearly always sufficient.
FIRST_CANDIDATES = 512
#: The place of a row among those of its class, and the class; None for rows of no class.
ClassRow = tuple[int, int | None]
Target = dict[str, Tensor]
Detections = dict[str, Tensor]
Images = Sequence[Shaped[Tensor, "3 _height _width"]] | Shaped[Tensor, "batch 3 height width"]
#: One box for all classes, or one per class.
Boxes = Float[Tensor, "batch n 4"] | Float[Tensor, "batch n classes 4"]


class PaddedDetections(NamedTuple):
    """The detections of a batch, best first; empty slots are at the end.

    Attributes:
        boxes: ``xyxy`` in pixels; 0 in empty slots.
        scores: The score of each box; 0 in empty slots.
        labels: The class of each box; -1 in empty slots.
    """

    boxes: Float[Tensor, "batch slots 4"]
    scores: Float[Tensor, "batch slots"]
    labels: Int[Tensor, "batch slots"]


class Detector(nn.Module):
    """Base class of detectors.

    In training, ``detector(images, targets)`` returns a dictionary of losses to sum, in the order
    of ``loss_names``. In evaluation, ``detector(images)`` returns ``boxes`` (``xyxy`` in pixels of
    the image), ``scores`` and ``labels`` of each image, best first. Training with a uint8 batch and
    ``Targets`` has static shapes and no host synchronisation.
    """

    #: The names of the parts of the loss.
    loss_names: ClassVar[tuple[str, ...]]
    #: The submodules that are compiled separately.
    compiled_parts: ClassVar[tuple[str, ...]] = ("",)
    #: The submodules whose weights are not cast together with the others for half precision: those
    #: that compute in fp32, and those that are used more than once, whose gradients are summed in
    #: fp32.
    cast_later: ClassVar[tuple[str, ...]] = ()
    #: Whether a training step can be captured as a CUDA graph.
    capturable: ClassVar[bool] = True
    #: Whether the loss is a sum over the images rather than a mean.
    sums_over_images: ClassVar[bool] = False
    #: The batch size in evaluation.
    images_at_once: ClassVar[int] = 64
    #: How the names of the parameters of the backbone begin.
    backbone_prefixes: ClassVar[tuple[str, ...]] = ()
    #: Score threshold and NMS, for detectors that use them.
    postprocess: PostProcess
    #: The names of the batch norms that keep their statistics in training.
    frozen_norms: tuple[str, ...] = ()

    def predictions(self, images: Images) -> tuple[Boxes, Float[Tensor, "batch n classes"]]:
        """Return all boxes, ``xyxy`` in pixels, and their scores for each class, before NMS."""
        raise NotImplementedError

    def detect_padded(
        self, images: Shaped[Tensor, "batch 3 height width"], *, candidates: int
    ) -> PaddedDetections:
        """Return the detections of a batch with static shapes and no host synchronisation.

        Args:
            images: uint8, or floats in [0, 1].
            candidates: The maximum number of boxes per image that enter NMS, the best ones.
        """
        size = (images.shape[-2], images.shape[-1])
        return self.postprocess.padded(self.predictions(images), size, candidates)

    def lr_scale(self, name: str) -> float:
        """Return the learning-rate factor of a parameter."""
        return 1.0

    def fit_boxes(self, sizes: Float[Tensor, "boxes 2"], *, seed: int) -> None:
        """Adapt the detector to the widths and heights of the training boxes, in pixels."""

    def set_least_score(self, score: float) -> None:
        """Set the minimum score of a detection."""
        self.postprocess = replace(self.postprocess, score_threshold=score)

    def translated(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a state dict of another implementation with the names of this one.

        Raises:
            ValueError: If it is of another architecture; the message says which tensor.
        """
        return dict(tensors)

    def class_rows(self, name: str, rows: int) -> list[ClassRow] | None:
        """Return what each row of a tensor is for, or None if its rows are not those of classes.

        Args:
            name: The name of the tensor.
            rows: The number of its rows, which depends on the number of classes.
        """
        return None

    def freeze(self, prefixes: Sequence[str]) -> None:
        """Freeze parameters, and the statistics of batch norms that are frozen as a whole.

        Args:
            prefixes: How the names of the parameters begin, or ``backbone``.

        Raises:
            ConfigError: If a prefix fits no parameter, or nothing is left to train.
        """
        parameters = dict(self.named_parameters())
        for prefix in prefixes:
            begins = self.backbone_prefixes if prefix == "backbone" else (prefix,)
            matching = [name for name in parameters if name.startswith(begins)]
            if not matching:
                parts = dict.fromkeys(".".join(name.split(".")[:2]) for name in parameters)
                raise ConfigError(
                    f"freeze: no parameter begins with {prefix!r}; use backbone, or the first part "
                    f"of a name: {', '.join(parts)}"
                )
            for name in matching:
                parameters[name].requires_grad = False
        if prefixes and not any(parameter.requires_grad for parameter in parameters.values()):
            raise ConfigError(f"freeze: {' '.join(prefixes)} leaves nothing to train")
        self.frozen_norms = tuple(
            name
            for name, module in self.named_modules()
            if isinstance(module, _BatchNorm)
            and module.affine
            and not any(parameter.requires_grad for parameter in module.parameters())
        )
        self.train(self.training)

    def train(self: Kind, mode: bool = True) -> Kind:
        """Set training or evaluation mode; frozen batch norms stay in evaluation mode."""
        super().train(mode)
        for name in self.frozen_norms:
            self.get_submodule(name).eval()
        return self


# --- configuration --------------------------------------------------------------------------------


class DetectorConfig(Config, frozen=True, kw_only=True, tag_field="name"):
    """Base class of the settings of a detector; its tag is the name of the detector.

    Attributes:
        box_gain: The weight of the box loss.
    """

    box_gain: float

    #: Box losses that only this detector supports, by name: functions of its own box coding.
    delta_losses: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        check_number("box_gain", self.box_gain)

    @property
    def name(self) -> str:
        """The name of the detector."""
        return str(self.__struct_config__.tag)

    @property
    def pretrained_backbone(self) -> bool:
        """Whether the settings name weights of the backbone."""
        return False

    def check_untrained(self) -> None:
        """Reject settings that need weights if neither the backbone nor the detector has any."""

    def build(
        self,
        num_classes: int,
        box_loss: BoxLoss | str | None = None,
        *,
        image_size: int | None = None,
        pretrained: bool = True,
    ) -> Detector:
        """Build the detector with random weights.

        Args:
            num_classes: The number of classes; labels are 0 to ``num_classes - 1``.
            box_loss: An ``AlphaIoULoss``, or a function from predicted and target boxes to one
                value per pair, or one of ``delta_losses``; by default that of the detector.
            image_size: The longer side of the images in pixels, for detectors that depend on it.
            pretrained: Whether to load the pretrained weights that the settings name. Pass False if
                all weights are loaded from a file afterwards.
        """
        raise NotImplementedError

    def box_loss(
        self, spec: LossSpec, schedule: AlphaSchedule | None = None
    ) -> BoxLoss | str | None:
        """Return a box loss as ``build`` takes it."""
        return spec.kind if spec.kind in self.delta_losses else spec.module(schedule)

    def check_loss(self, field: str, spec: LossSpec) -> None:
        """Reject a loss that this detector does not support; the message names the field."""
        if spec.kind not in self.delta_losses:
            check_choice(f"{field}.kind", spec.kind, (*kinds_of(), *self.delta_losses))
            check_modifiers(f"{field}.modifiers", spec.modifiers)
            try:
                check_alphas(spec.alpha, spec.penalty_alpha)
            except ValueError as error:
                raise ValueError(f"{field}.{error}") from None
        elif (spec.alpha, spec.penalty_alpha) != (1.0, None):
            raise ValueError(f"{field}.kind={spec.kind!r} has no power; {field}.alpha must be 1")
        elif spec.modifiers:
            raise ValueError(
                f"{field}.kind={spec.kind!r} does not support modifiers; {field}.modifiers must be "
                f"empty, got {' '.join(spec.modifiers)}"
            )


class ResNetConfig(DetectorConfig, frozen=True, kw_only=True):
    """Base class of the settings of detectors with a ResNet-50.

    Attributes:
        backbone_weights: The weights of the ResNet: none, imagenet, or a file.
        norm: The norms of the ResNet: frozen batch norms, trained batch norms, or group norms; auto
            is frozen with pretrained weights, else group.
    """

    backbone_weights: str = "none"
    norm: Literal["auto", "frozen", "batch", "group"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("norm", self.norm, ("auto", "frozen", "batch", "group"))
        if self.backbone_weights == "imagenet" and self.norm == "group":
            raise ValueError(
                "norm='group' does not support backbone_weights='imagenet', which have batch "
                "norms; use auto, frozen or batch"
            )

    @property
    def pretrained_backbone(self) -> bool:
        """Whether the settings name weights of the backbone."""
        return self.backbone_weights != "none"

    def check_untrained(self) -> None:
        """Reject frozen norms if neither the backbone nor the detector has weights."""
        if self.norm == "frozen" and not self.pretrained_backbone:
            raise ValueError(
                "norm='frozen' needs backbone_weights, or weights to start from: random norms must "
                "be trained; use auto, batch or group"
            )

    @property
    def chosen_norm(self) -> Norm:
        """The norms, with ``auto`` resolved."""
        if self.norm == "auto":
            return "group" if self.backbone_weights == "none" else "frozen"
        return self.norm

    @property
    def weights_source(self) -> Literal["imagenet"] | Path | None:
        """Where the weights of the ResNet come from."""
        if self.backbone_weights in ("none", "imagenet"):
            return "imagenet" if self.backbone_weights == "imagenet" else None
        return Path(self.backbone_weights)


def check_nms_threshold(value: float) -> None:
    """Reject an IoU threshold outside (0, 1]."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"nms_threshold must be above 0 and up to 1, got {value}")


# --- batches --------------------------------------------------------------------------------------


def batch_targets(targets: Sequence[Target], *, slots: int | None = None) -> Targets:
    """Collate the targets of several images.

    Args:
        targets: ``boxes`` (``xyxy`` in pixels) and ``labels`` (from 0) of each image.
        slots: The number of slots; by default the number of boxes.

    Examples:
        >>> target = {"boxes": torch.tensor([[0.0, 0.0, 9.0, 9.0]]), "labels": torch.tensor([2])}
        >>> batch_targets([target, target], slots=3).valid
        tensor([ True,  True, False])
    """
    counts = [len(target["boxes"]) for target in targets]
    total = sum(counts)
    slots = total if slots is None else slots
    if total > slots:
        raise ValueError(f"slots={slots} is less than the {total} boxes of these images")
    boxes = torch.cat([target["boxes"].reshape(-1, 4) for target in targets])
    labels = torch.cat([target["labels"] for target in targets])
    images = torch.arange(len(targets)).repeat_interleave(torch.tensor(counts)).to(labels.device)
    spare = slots - total
    return Targets(
        image_of_box=nn.functional.pad(images, (0, spare)),
        labels=nn.functional.pad(labels, (0, spare)),
        boxes=nn.functional.pad(boxes, (0, 0, 0, spare)),
        valid=torch.arange(slots, device=labels.device) < total,
    )


def batch_images(images: Images, *, multiple: int) -> Shaped[Tensor, "batch 3 height width"]:
    """Collate images into one batch, padded with grey on the right and below.

    Args:
        images: A batch, or images of any sizes; uint8, or floats in [0, 1].
        multiple: Height and width of the batch are multiples of this.

    Returns:
        The batch: uint8 if all images are uint8, else floats in [0, 1].

    Examples:
        >>> batch_images([torch.zeros(3, 30, 40, dtype=torch.uint8)], multiple=32).shape
        torch.Size([1, 3, 32, 64])
    """
    if isinstance(images, Tensor):
        return _pad(images, images.shape[-2], images.shape[-1], multiple)
    if any(image.is_floating_point() for image in images):
        images = [in_unit(image) for image in images]
    height = max(image.shape[-2] for image in images)
    width = max(image.shape[-1] for image in images)
    return torch.stack([_pad(image, height, width, multiple) for image in images])


def in_unit(
    images: Shaped[Tensor, "*batch 3 height width"],
) -> Float[Tensor, "*batch 3 height width"]:
    """Convert uint8 images to floats in [0, 1]; floats are returned unchanged."""
    return images if images.is_floating_point() else images.float() / 255


def _pad(image: Tensor, height: int, width: int, multiple: int) -> Tensor:
    below = -(-height // multiple) * multiple - image.shape[-2]
    right = -(-width // multiple) * multiple - image.shape[-1]
    if not below and not right:
        return image
    grey = FILL / 255 if image.is_floating_point() else FILL
    return nn.functional.pad(image, (0, right, 0, below), value=grey)


# --- from predictions to detections ---------------------------------------------------------------


@dataclass(frozen=True)
class PostProcess:
    """Score threshold, class-wise NMS, and the best detections of each image.

    A box is a candidate for every class whose score exceeds the threshold; a detector may predict
    one box per class.

    Attributes:
        score_threshold: The minimum score.
        nms_threshold: The IoU above which NMS removes the box of lower score.
        max_detections: The maximum number of detections per image.
        max_candidates: The maximum number of boxes per image that enter NMS, the best ones.
    """

    score_threshold: float = 0.001
    nms_threshold: float = 0.6
    max_detections: int = 300
    max_candidates: int = 30_000

    def __call__(
        self,
        predictions: tuple[Boxes, Float[Tensor, "batch n classes"]],
        sizes: Sequence[tuple[int, int]],
    ) -> list[Detections]:
        """Return the detections of each image, best first, clipped to its height and width."""
        boxes, scores = predictions
        found: list[Detections] = [{}] * len(sizes)
        waiting, most = list(range(len(sizes))), FIRST_CANDIDATES
        while waiting:
            most = min(most, self.max_candidates)
            own_sizes = [sizes[image] for image in waiting]
            some, short = self._detect(boxes[waiting], scores[waiting], own_sizes, most)
            for image, detections in zip(waiting, some, strict=True):
                found[image] = detections
            waiting, most = [waiting[image] for image in short], 8 * most
        return found

    def _detect(
        self,
        all_boxes: Boxes,
        all_scores: Float[Tensor, "batch n classes"],
        sizes: Sequence[tuple[int, int]],
        most: int,
    ) -> tuple[list[Detections], list[int]]:
        """Return the detections among the best candidates, and the images that may have more.

        Boxes that NMS keeps among the best candidates are also kept among all of them, so an image
        is finished once it has the maximum number of detections.
        """
        every = all_scores[0].numel()
        most = min(most, every)
        boxes, scores, labels = _candidates(all_boxes, all_scores, most)
        above = scores > self.score_threshold
        kept = keep_best(boxes, labels, above, self.nms_threshold)
        kept &= kept.cumsum(1) <= self.max_detections
        counts = kept.sum(1).tolist()
        image, rank = kept.nonzero(as_tuple=True)
        clipped = _clip(boxes[image, rank], image, sizes)
        parts = (clipped, scores[image, rank], labels[image, rank])
        detections = [
            {"boxes": box, "scores": score, "labels": label}
            for box, score, label in zip(*(torch.split(p, counts) for p in parts), strict=True)
        ]
        if most == min(every, self.max_candidates):
            return detections, []
        short = above[:, -1].tolist()
        return detections, [i for i, n in enumerate(counts) if short[i] and n < self.max_detections]

    def padded(
        self,
        predictions: tuple[Boxes, Float[Tensor, "batch n classes"]],
        size: tuple[int, int],
        candidates: int,
    ) -> PaddedDetections:
        """Return the detections of a batch with static shapes, whatever the number of predictions.

        They are those of a call with ``max_candidates=candidates``.
        """
        all_boxes, all_scores = predictions
        # There are enough rows for the candidates, and no shape depends on which are fewer.
        spare = -(-candidates // all_scores.shape[2])
        all_scores = nn.functional.pad(all_scores, (0, 0, 0, spare), value=-1.0)
        all_boxes = nn.functional.pad(all_boxes, (0, 0) * (all_boxes.ndim - 2) + (0, spare))
        boxes, scores, labels = _candidates(all_boxes, all_scores, candidates)
        above = scores > self.score_threshold
        kept = keep_best(boxes, labels, above, self.nms_threshold)
        slots = min(self.max_detections, candidates)
        rank = torch.arange(candidates, device=kept.device).expand(kept.shape)
        row = rank.where(kept, candidates).sort(dim=1).values[:, :slots]
        found = row < candidates
        row = row.clamp(max=candidates - 1)
        boxes = boxes.gather(1, row[..., None].expand(-1, -1, 4)).clamp(min=0)
        height, width = size
        limits = [boxes.new_full((1,), side) for side in (width, height)] * 2
        return PaddedDetections(
            boxes.minimum(torch.cat(limits)).where(found[..., None], 0.0),
            scores.gather(1, row).where(found, 0.0),
            labels.gather(1, row).where(found, -1),
        )


def _candidates(
    all_boxes: Boxes, all_scores: Float[Tensor, "batch n classes"], most: int
) -> tuple[Float[Tensor, "batch most 4"], Float[Tensor, "batch most"], Int[Tensor, "batch most"]]:
    """Return the boxes, scores and classes of the best candidates, best first."""
    classes = all_scores.shape[2]
    scores, place = _best(all_scores.flatten(1), most)
    row = place if all_boxes.ndim == 4 else place // classes
    boxes = all_boxes.flatten(1, -2).gather(1, row[..., None].expand(-1, -1, 4))
    return boxes, scores, place % classes


def _best(
    scores: Float[Tensor, "batch n"], most: int
) -> tuple[Float[Tensor, "batch most"], Int[Tensor, "batch most"]]:
    """Return the best scores of each image and their positions; ties in order of position."""
    place = scores.topk(most, dim=1).indices.sort(dim=1).values
    best, order = scores.gather(1, place).sort(dim=1, descending=True, stable=True)
    return best, place.gather(1, order)


def _clip(
    boxes: Float[Tensor, "n 4"], image: Int[Tensor, " n"], sizes: Sequence[tuple[int, int]]
) -> Float[Tensor, "n 4"]:
    limits = torch.tensor([(w, h, w, h) for h, w in sizes], device=boxes.device).to(boxes)
    return boxes.clamp(min=0).minimum(limits[image])
