"""The detector interface: torchvision's inputs and outputs, with static shapes in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float, Int, Shaped
from alphaiou.batch import FILL, Targets
from alphaiou.detectors.ops.nms import keep_best

#: The precision of a network; auto is bf16 on a GPU, else fp32.
Precision = Literal["auto", "bf16", "fp16", "fp32"]
#: The autocast dtype of each precision; none for fp32.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Mean and standard deviation of the colours of ImageNet.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: The number of candidates per image in the first NMS pass, which is nearly always sufficient.
FIRST_CANDIDATES = 512
Target = dict[str, Tensor]
Detections = dict[str, Tensor]
Images = Sequence[Shaped[Tensor, "3 _height _width"]] | Shaped[Tensor, "batch 3 height width"]
#: One box for all classes, or one per class.
Boxes = Float[Tensor, "batch n 4"] | Float[Tensor, "batch n classes 4"]


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
    #: Score threshold and NMS, for detectors that use them.
    postprocess: PostProcess

    def lr_scale(self, name: str) -> float:
        """Return the learning-rate factor of a parameter."""
        return 1.0

    def fit_boxes(self, sizes: Float[Tensor, "boxes 2"], *, seed: int) -> None:
        """Adapt the detector to the widths and heights of the training boxes, in pixels."""

    def set_least_score(self, score: float) -> None:
        """Set the minimum score of a detection."""
        self.postprocess = replace(self.postprocess, score_threshold=score)


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
        classes, every = all_scores.shape[2], all_scores[0].numel()
        most = min(most, every)
        scores, place = _best(all_scores.flatten(1), most)
        labels = place % classes
        row = place if all_boxes.ndim == 4 else place // classes
        boxes = all_boxes.flatten(1, -2).gather(1, row[..., None].expand(-1, -1, 4))
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
