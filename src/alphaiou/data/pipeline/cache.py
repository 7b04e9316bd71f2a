"""A cache of all images of a data set, decoded and resized once, as one array in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from alphaiou._shapes import Float, Float32, Int32, Int64, UInt8
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.decoding import CachedImage, decode_slabs
from alphaiou.data.problems import DataError, Problem

if TYPE_CHECKING:
    from alphaiou.data.dataset import DetectionDataset


#: The share of free memory that pixels may use; on a GPU the network needs the rest.
DEVICE_SHARE = 0.5
HOST_SHARE = 0.7


class TooLargeError(DataError):
    """The images of a data set do not fit in memory; they can be streamed."""


def choose_device(
    num_bytes: int, device: torch.device, memory_limit: int | None = None
) -> torch.device:
    """Return the given device if it has enough memory, else the host.

    Args:
        num_bytes: The number of bytes to store.
        device: The preferred device.
        memory_limit: The number of bytes that may be used; by default a share of the free memory.

    Raises:
        TooLargeError: If the bytes do not fit in host memory either.

    Examples:
        >>> choose_device(1000, torch.device("cpu"))
        device(type='cpu')
    """
    host = torch.device("cpu")
    share = HOST_SHARE if device.type == "cpu" else DEVICE_SHARE
    limit = share * free_memory(device) if memory_limit is None else memory_limit
    if num_bytes <= limit:
        return device
    if device.type != "cpu":
        limit = HOST_SHARE * free_memory(host)
    if num_bytes > limit:
        raise TooLargeError(
            f"the images take {num_bytes / 2**30:.1f} GiB once decoded, more than the "
            f"{limit / 2**30:.1f} GiB that may be used; use a smaller image_size, or stream them"
        )
    return host


def free_memory(device: torch.device) -> float:
    """Return the free bytes of a device; infinity if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.exists():
        return float("inf")
    lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])


@dataclass(frozen=True, eq=False)
class ImageCache:
    """Images of one padded size and their boxes, as arrays.

    Attributes:
        pixels: RGB; each image lies in the top left corner of its square, padded with ``FILL``.
        sizes: Width and height of each image within its square; 0 if unreadable.
        scales: The factors from the original size to ``sizes`` in x and y, which differ slightly
            because sizes are rounded to whole pixels.
        boxes: ``xyxy`` in pixels of the resized image, clipped to it; 0 beyond ``counts``.
        labels: The class of each box.
        counts: The number of boxes of each image.
        image_ids: The number of each image in the data set.
        problems: Problems with the pixels; images that they leave out have no row.
    """

    pixels: UInt8[Tensor, "images side side 3"]
    sizes: Int32[Tensor, "images 2"]
    scales: Float32[Tensor, "images 2"]
    boxes: Float32[Tensor, "images most 4"]
    labels: Int64[Tensor, "images most"]
    counts: Int64[Tensor, " images"]
    image_ids: Int64[Tensor, " images"]
    problems: tuple[Problem, ...] = ()

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def side(self) -> int:
        """The side of the squares."""
        return self.pixels.shape[1]

    def gather(self, rows: Int64[Tensor, " some"], device: torch.device | str) -> ImageCache:
        """Copy the images of one batch to a device that cannot hold the whole cache.

        Args:
            rows: The rows of the images, on the device of the cache.
            device: The target device; copies from pinned memory do not block.
        """
        return self._each(lambda tensor: _move(tensor[rows], device))

    def parts(
        self, rows: Int64[Tensor, " some"], batch_size: int, device: torch.device | str
    ) -> Iterator[ImageCache]:
        """Yield some images on a device in batches."""
        for chosen in torch.split(rows.to(self.pixels.device), batch_size):
            yield self.gather(chosen, device)

    def to(self, device: torch.device | str) -> ImageCache:
        """Return the cache on a device."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> ImageCache:
        """Return the cache in pinned memory, from which copies to a GPU do not block."""
        return self._each(Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> ImageCache:
        tensors = {name: value for name, value in vars(self).items() if name != "problems"}
        changed: dict[str, Any] = {name: change(tensor) for name, tensor in tensors.items()}
        return replace(self, **changed)


class DecodedImages(NamedTuple):
    """The pixels of a data set, independent of its boxes.

    Attributes:
        pixels: The readable images.
        rows: The positions of the readable images in the data set.
        images: The loading result of every image, including unreadable ones.
    """

    pixels: UInt8[Tensor, "rows side side 3"]
    rows: list[int]
    images: list[CachedImage]


def build_cache(
    dataset: DetectionDataset,
    image_size: int,
    *,
    device: torch.device | str = "cpu",
    memory_limit: int | None = None,
    workers: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ImageCache:
    """Decode every image of a data set once, its longer side resized to ``image_size``.

    The pixels are stored on the device if they fit, else in pinned host memory (see
    ``cache.pixels.device``). Unreadable images are left out and listed in ``cache.problems``.

    Args:
        dataset: The images and boxes.
        image_size: The side of the squares, an even number.
        device: The device of the training.
        memory_limit: The number of bytes that the pixels may use on the device; by default half of
            the free memory.
        workers: The number of decoding processes; by default one per core, or 0 for few images.
        on_progress: A callback, called with the number of decoded images.

    Raises:
        DataError: If the pixels do not fit in memory, or no image can be read.

    Examples:
        >>> from alphaiou.data.shapes.dataset import shapes_dataset
        >>> cache = build_cache(shapes_dataset("val", size=96, length=3), 64)
        >>> tuple(cache.pixels.shape), len(cache.problems)
        ((3, 64, 64, 3), 0)
    """
    decoded = decode_images(
        dataset,
        image_size,
        device=device,
        memory_limit=memory_limit,
        workers=workers,
        on_progress=on_progress,
    )
    return make_cache(dataset.index, decoded.rows, decoded.pixels, decoded.images)


def decode_images(
    dataset: DetectionDataset,
    image_size: int,
    *,
    device: torch.device | str = "cpu",
    memory_limit: int | None = None,
    workers: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> DecodedImages:
    """Decode the pixels for ``build_cache``, with the same arguments.

    Raises:
        DataError: If the pixels do not fit in memory, or no image can be read.
    """
    check_side(image_size)
    place = choose_device(len(dataset) * image_size**2 * 3, torch.device(device), memory_limit)
    pixels = torch.empty(
        (len(dataset), image_size, image_size, 3),
        dtype=torch.uint8,
        device=place,
        pin_memory=place.type == "cpu" and torch.device(device).type == "cuda",
    )
    images: list[CachedImage] = []
    kept: list[int] = []
    for slab, loaded in decode_slabs(dataset, image_size, workers):
        readable = [number for number, image in enumerate(loaded) if image.readable]
        shown = slab if len(readable) == len(loaded) else slab[readable]
        pixels[len(kept) : len(kept) + len(shown)].copy_(shown)
        kept += [loaded[number].row for number in readable]
        images += loaded
        if on_progress is not None:
            on_progress(len(images))
    if not kept:
        raise DataError(f"{dataset.index.root}: no image of the split can be read")
    return DecodedImages(pixels[: len(kept)], kept, images)


def make_cache(
    index: DetectionIndex,
    rows: Sequence[int],
    pixels: UInt8[Tensor, "rows side side 3"],
    images: Sequence[CachedImage],
    *,
    most: int | None = None,
) -> ImageCache:
    """Build the cache of some images of a data set from their pixels.

    Args:
        index: The whole data set.
        rows: The positions of the images in the data set.
        pixels: The pixels of the images.
        images: The loading results of the images and of any unreadable ones.
        most: The number of box slots per image; by default the maximum number of boxes.
    """
    by_row = {image.row: image for image in images}
    part = index.take(rows)
    device = pixels.device
    scales = np.array([by_row[row].scale for row in rows], dtype=np.float64).reshape(-1, 2)
    sizes = np.array([by_row[row].size for row in rows], dtype=np.int32).reshape(-1, 2)
    boxes, labels = _padded_boxes(part, scales, sizes, most)
    return ImageCache(
        pixels=pixels,
        sizes=torch.from_numpy(sizes).to(device),
        scales=torch.from_numpy(scales.astype(np.float32)).to(device),
        boxes=torch.from_numpy(boxes).to(device),
        labels=torch.from_numpy(labels).to(device),
        counts=torch.from_numpy(np.diff(part.offsets) * (sizes[:, 0] > 0)).to(device),
        image_ids=torch.from_numpy(part.image_ids).to(device),
        problems=tuple(image.problem for image in images if image.problem is not None),
    )


def letterbox_batch(
    cache: ImageCache, rows: Int64[Tensor, " batch"]
) -> UInt8[Tensor, "batch 3 side side"]:
    """Return some images as an evaluation batch in the ``channels_last`` format.

    Images are centred in their squares, as in training without a mosaic.
    """
    place = torch.arange(cache.side, device=cache.pixels.device)
    # What wraps around is padding.
    columns, lines = ((place - margins(cache, rows)[:, axis, None]) % cache.side for axis in (0, 1))
    return cache.pixels[rows[:, None, None], lines[:, :, None], columns[:, None]].permute(
        0, 3, 1, 2
    )


def margins(cache: ImageCache, rows: Int64[Tensor, " batch"]) -> Int32[Tensor, "batch 2"]:
    """Return the padding left of and above images that are centred in their squares."""
    return (cache.side - cache.sizes[rows]) // 2


def to_original(
    boxes: Float[Tensor, "*boxes 4"], scale: Float[Tensor, "#*boxes 2"]
) -> Float[Tensor, "*boxes 4"]:
    """Convert boxes from pixels of the cache to pixels of the original image.

    Args:
        boxes: ``xyxy``.
        scale: The row of ``cache.scales`` of their image.

    Examples:
        >>> to_original(torch.tensor([[0.0, 0, 16, 8]]), torch.tensor([[0.5, 0.25]]))
        tensor([[ 0.,  0., 32., 32.]])
    """
    return boxes / torch.cat([scale, scale], dim=-1)


def check_side(image_size: int) -> None:
    """Reject image sizes that are not divisible by two.

    Raises:
        ValueError: If the side is odd or too small.
    """
    if image_size < 2 or image_size % 2:
        raise ValueError(f"image_size must be an even number of at least 2, got {image_size!r}")


def _move(tensor: Tensor, device: torch.device | str) -> Tensor:
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def _padded_boxes(
    part: DetectionIndex,
    scales: np.ndarray,
    sizes: np.ndarray,
    most: int | None,
) -> tuple[Float32[np.ndarray, "images most 4"], Int64[np.ndarray, "images most"]]:
    """Return the boxes in pixels of the resized images, clipped, one row per image."""
    counts = np.diff(part.offsets)
    most = max(int(counts.max(initial=1)), most or 1)
    boxes = np.zeros((len(part), most, 4), dtype=np.float32)
    labels = np.zeros((len(part), most), dtype=np.int64)
    image = part.image_of_box()
    slot = np.arange(part.num_boxes) - np.repeat(part.offsets[:-1], counts)
    scaled = part.boxes * np.tile(scales, 2)[image]
    boxes[image, slot] = scaled.clip(0, np.tile(sizes, 2)[image])
    labels[image, slot] = part.labels
    return boxes, labels
