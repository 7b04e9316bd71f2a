"""What goes into a detector and comes out of it: torchvision's way, and at fixed shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

if TYPE_CHECKING:
    from alphaiou.detectors.postprocess import PostProcess

#: The value of pixels beside a picture that is smaller than its batch, of 255.
PADDING = 114

Target = dict[str, Tensor]
Detections = dict[str, Tensor]
Images = Sequence[Shaped[Tensor, "3 _height _width"]] | Shaped[Tensor, "batch 3 height width"]


class TargetBatch(NamedTuple):
    """The boxes of a batch of images in a number of slots that does not depend on the data.

    Attributes:
        images: Which image of the batch each is in.
        labels: The class of each, from 0.
        boxes: ``xyxy`` in pixels of the batched images.
        valid: Whether the slot holds a box; what the others hold does not matter.
    """

    images: Int[Tensor, " slots"]
    labels: Int[Tensor, " slots"]
    boxes: Float[Tensor, "slots 4"]
    valid: Bool[Tensor, " slots"]


class Detector(nn.Module):
    """What the training loop knows of a detector; a subclass says where it differs.

    ``detector(images, targets)`` in training gives losses, to be summed, in the order of
    ``loss_names``; ``detector(images)`` in evaluation gives ``boxes`` (``xyxy`` in pixels of the
    image), ``scores`` and ``labels`` of each image, best first. In training at fixed shapes, with
    a batch of bytes and a ``TargetBatch``, nothing waits for the host.
    """

    #: The parts of the loss.
    loss_names: ClassVar[tuple[str, ...]]
    #: The submodules that are worth compiling by themselves.
    compiled_parts: ClassVar[tuple[str, ...]] = ("",)
    #: The submodules whose weights are not cast with all others before a step of half precision:
    #: those that compute in fp32, and those that are used more than once, whose gradients add up in
    #: fp32.
    cast_later: ClassVar[tuple[str, ...]] = ()
    #: Whether a training step may be recorded as a CUDA graph.
    capturable: ClassVar[bool] = True
    #: Whether the loss grows with the number of images, or is a mean over them.
    sums_over_images: ClassVar[bool] = False
    #: How many images it is worth looking at together in evaluation.
    images_at_once: ClassVar[int] = 64
    #: Thresholds of score and NMS, where there are such.
    postprocess: PostProcess

    def lr_scale(self, name: str) -> float:
        """The share of the learning rate that a parameter learns with."""
        return 1.0

    def fit_boxes(self, sizes: Float[Tensor, "boxes 2"], *, seed: int) -> None:
        """Adapt to widths and heights in pixels of the boxes of the training, before it begins."""

    def set_least_score(self, score: float) -> None:
        """Detect nothing that has a lower score."""
        self.postprocess = replace(self.postprocess, score_threshold=score)


def batch_targets(targets: Sequence[Target], *, slots: int | None = None) -> TargetBatch:
    """The targets of some images in one batch.

    Args:
        targets: For each image ``boxes`` ``xyxy`` in pixels and ``labels`` from 0.
        slots: How many slots; as many as there are boxes unless given.

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
    return TargetBatch(
        images=nn.functional.pad(images, (0, spare)),
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
    grey = PADDING / 255 if image.is_floating_point() else PADDING
    return nn.functional.pad(image, (0, right, 0, below), value=grey)
