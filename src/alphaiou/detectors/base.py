"""The interface of a detector: torchvision's in and out, with static shapes in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from alphaiou._shapes import Float, Int, Shaped
from alphaiou.batch import FILL, Targets
from alphaiou.detectors.ops.nms import keep_best

#: The arithmetic of a network; auto is bf16 on a GPU, fp32 elsewhere.
Precision = Literal["auto", "bf16", "fp16", "fp32"]
#: The types that autocast computes in; none for fp32.
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Mean and standard deviation of the colours of ImageNet.
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: Candidates per image that NMS sees first; nearly always they contain all its detections.
FIRST_CANDIDATES = 512
Target = dict[str, Tensor]
Detections = dict[str, Tensor]
Images = Sequence[Shaped[Tensor, "3 _height _width"]] | Shaped[Tensor, "batch 3 height width"]
#: One box for all classes, or one for each.
Boxes = Float[Tensor, "batch n 4"] | Float[Tensor, "batch n classes 4"]


class Detector(nn.Module):
    """The interface that training and inference use; a subclass overrides what differs.

    ``detector(images, targets)`` in training gives losses, to be summed, in the order of
    ``loss_names``; ``detector(images)`` in evaluation gives ``boxes`` (``xyxy`` in pixels of the
    image), ``scores`` and ``labels`` of each image, best first. In training at fixed shapes, with
    a batch of bytes and ``Targets``, there is no host synchronisation.
    """

    #: The names of the parts of the loss.
    loss_names: ClassVar[tuple[str, ...]]
    #: The submodules that are compiled separately.
    compiled_parts: ClassVar[tuple[str, ...]] = ("",)
    #: The submodules whose weights are not cast with all others before a step of half precision:
    #: those that compute in fp32, and those that are used more than once, whose gradients add up in
    #: fp32.
    cast_later: ClassVar[tuple[str, ...]] = ()
    #: Whether a training step may be recorded as a CUDA graph.
    capturable: ClassVar[bool] = True
    #: Whether the loss is a sum over the images, or else a mean.
    sums_over_images: ClassVar[bool] = False
    #: The batch size in evaluation.
    images_at_once: ClassVar[int] = 64
    #: Thresholds of score and NMS, for detectors that have them.
    postprocess: PostProcess

    def lr_scale(self, name: str) -> float:
        """The factor of the learning rate for a parameter."""
        return 1.0

    def fit_boxes(self, sizes: Float[Tensor, "boxes 2"], *, seed: int) -> None:
        """Adapt to the widths and heights, in pixels, of the training boxes."""

    def set_least_score(self, score: float) -> None:
        """Detect nothing that has a lower score."""
        self.postprocess = replace(self.postprocess, score_threshold=score)


# --- batches --------------------------------------------------------------------------------------


def batch_targets(targets: Sequence[Target], *, slots: int | None = None) -> Targets:
    """The targets of some images in one batch.

    Args:
        targets: For each image ``boxes`` ``xyxy`` in pixels and ``labels`` from 0.
        slots: The number of slots; by default that of the boxes.

    Examples:
        >>> one = {"boxes": torch.tensor([[0.0, 0.0, 9.0, 9.0]]), "labels": torch.tensor([2])}
        >>> batch_targets([one, one], slots=3).valid
        tensor([ True,  True, False])
    """
    counts = [len(target["boxes"]) for target in targets]
    total = sum(counts)
    slots = total if slots is None else slots
    if total > slots:
        raise ValueError(f"slots={slots} are too few for the {total} boxes of these images")
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
    """Images in one batch, grey to the right and below of the smaller ones.

    Args:
        images: A batch, or images of any sizes; bytes, or numbers from 0 to 1.
        multiple: Height and width of the batch are multiples of this.

    Returns:
        The batch: bytes if all images are, else numbers from 0 to 1.

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
    """Bytes as numbers from 0 to 1; such numbers as they are."""
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
    """Score threshold, NMS within each class, and the best detections of each image.

    A box counts once for every class whose score reaches the threshold; a detector may predict one
    box per class.

    Attributes:
        score_threshold: The least score.
        nms_threshold: Of two boxes of a class with a larger IoU, the lower score goes.
        max_detections: The most detections of an image.
        max_candidates: The most boxes of an image that go into NMS, the best ones.
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
        """The detections of each image, best first, clipped to its height and width."""
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
        """The detections among the best candidates, and the images that may have more.

        What NMS keeps of the best candidates it also keeps of all of them, so an image is done once
        it has all its detections.
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
        found = [
            {"boxes": own, "scores": score, "labels": label}
            for own, score, label in zip(*(torch.split(p, counts) for p in parts), strict=True)
        ]
        if most == min(every, self.max_candidates):
            return found, []
        short = above[:, -1].tolist()
        return found, [i for i, n in enumerate(counts) if short[i] and n < self.max_detections]


def _best(
    scores: Float[Tensor, "batch n"], most: int
) -> tuple[Float[Tensor, "batch most"], Int[Tensor, "batch most"]]:
    """The best scores of each image and their places, the earlier place first where they tie."""
    place = scores.topk(most, dim=1).indices.sort(dim=1).values
    best, order = scores.gather(1, place).sort(dim=1, descending=True, stable=True)
    return best, place.gather(1, order)


def _clip(
    boxes: Float[Tensor, "n 4"], image: Int[Tensor, " n"], sizes: Sequence[tuple[int, int]]
) -> Float[Tensor, "n 4"]:
    limits = torch.tensor([(w, h, w, h) for h, w in sizes], device=boxes.device).to(boxes)
    return boxes.clamp(min=0).minimum(limits[image])
