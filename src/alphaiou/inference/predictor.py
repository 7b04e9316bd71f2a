"""Detect objects with trained weights: images from files, from memory, or of a data set."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from alphaiou._environment import device_kind
from alphaiou._shapes import Float, Int, Int64, UInt8
from alphaiou.batch import FILL
from alphaiou.data.dataset import DetectionDataset
from alphaiou.data.formats.files import IMAGE_SUFFIXES, FolderImages
from alphaiou.data.images import ImageError, decode_image, image_pixels
from alphaiou.data.index import DetectionIndex
from alphaiou.data.pipeline.cache import ImageCache
from alphaiou.data.pipeline.decoding import CachedImage, fit_image
from alphaiou.data.problems import DataError
from alphaiou.detectors import Detector, fold_batch_norm
from alphaiou.detectors.base import check_nms_threshold
from alphaiou.inference.evaluation import detect
from alphaiou.inference.weights import TrainedDetector, load_weights

if TYPE_CHECKING:
    from supervision import Detections as SupervisionDetections

#: The number of images that are decoded and detected at once.
BATCH = 16
#: Starting a process takes about as long as decoding this many images.
IMAGES_WORTH_A_WORKER = 256
#: Detections are looked for down to this score, that of evaluations, to report the highest one.
LEAST_SCORE = 0.001
#: The minimum score of a detection by default.
SCORE = 0.25

#: An image: a file, an opened image, an array (height, width, 3) of uint8, or a tensor
#: (3, height, width) of uint8 or of floats in [0, 1].
AnyImage = str | Path | Image.Image | np.ndarray | Tensor
Pixels = UInt8[Tensor, "3 height width"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The detections of one image, best first.

    Attributes:
        name: The name of the image in COCO results: its file name, its number in a COCO data set,
            or its position among the images of a call.
        boxes: ``xyxy`` in pixels of the original image, turned upright.
        scores: The score of each box.
        labels: The class of each box, as a position in ``classes``.
        classes: The name of each label.
        path: The file of the image, if it has one.
        problem: The reason why the image is unreadable, or "".
        highest: The highest score of all detections, also of those below the minimum; 0 if none
            has a score of at least ``LEAST_SCORE``.

    Examples:
        >>> boxes, labels = torch.tensor([[1.0, 2.0, 4.0, 6.0]]), torch.tensor([0])
        >>> found = Prediction("a.jpg", boxes, torch.tensor([0.5]), labels, classes=("cat",))
        >>> len(found), found.names
        (1, ['cat'])
    """

    name: str | int
    boxes: Float[Tensor, "n 4"] = field(default_factory=lambda: torch.zeros(0, 4))
    scores: Float[Tensor, " n"] = field(default_factory=lambda: torch.zeros(0))
    labels: Int[Tensor, " n"] = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    classes: tuple[str, ...] = ()
    path: Path | None = None
    problem: str = ""
    highest: float = 0.0

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def names(self) -> list[str]:
        """The class name of each box."""
        return [self.classes[label] for label in self.labels.tolist()]

    def to_coco(self, categories: Sequence[str | int] | None = None) -> list[dict[str, Any]]:
        """Return the detections as COCO results.

        Args:
            categories: The name, or the number in a data set, of each label; by default the names
                of the classes. pycocotools needs numbers.

        Examples:
            >>> boxes, labels = torch.tensor([[1.0, 2.0, 4.0, 6.0]]), torch.tensor([0])
            >>> found = Prediction("a.jpg", boxes, torch.tensor([0.5]), labels)
            >>> found.to_coco(["cat"])[0]["bbox"]
            [1.0, 2.0, 3.0, 4.0]
        """
        categories = self.classes if categories is None else categories
        columns = (part.tolist() for part in (self.boxes, self.labels, self.scores))
        return [
            {
                "image_id": self.name,
                "category_id": categories[label],
                "bbox": [round(side, 3) for side in (x1, y1, x2 - x1, y2 - y1)],
                "score": round(score, 5),
            }
            for (x1, y1, x2, y2), label, score in zip(*columns, strict=True)
        ]

    def draw(self, image: AnyImage | None = None, *, bgr: bool = False) -> Image.Image:
        """Return the image with the boxes, classes and scores drawn.

        Args:
            image: The image, if it has no file.
            bgr: Whether an array is in the order blue, green, red.
        """
        from alphaiou.inference.drawing import draw_detections

        source = self.path if image is None else image
        if source is None:
            raise ValueError(f"image {self.name!r} has no file; give the image to draw into")
        (place,) = _sources(source, bgr=bgr)
        detections = {"boxes": self.boxes, "scores": self.scores, "labels": self.labels}
        return draw_detections(_read([place], 0), detections, self.classes)

    def to_supervision(self) -> SupervisionDetections:
        """Return the detections for the ``supervision`` package, to draw, track or count them."""
        from supervision import Detections

        return Detections(
            xyxy=self.boxes.numpy(),
            confidence=self.scores.numpy(),
            class_id=self.labels.numpy(),
            data={"class_name": np.array(self.names, dtype=np.str_)},
        )


def load_predictor(
    path: str | Path, *, score: float = SCORE, nms: float | None = None, device: str = "auto"
) -> Predictor:
    """Load trained weights to detect objects from Python.

    Args:
        path: ``best.safetensors`` of a run, or the folder of the run.
        score: The minimum score of a detection.
        nms: The IoU above which NMS removes the box of lower score; by default that of the
            training. DETR has no NMS.
        device: ``cpu``, ``cuda``, or ``auto``, which is CUDA where there is a GPU.

    Raises:
        CheckpointError: If the file does not exist or is not a weights file.
        ValueError: If a threshold is out of range, or the detector has no NMS.

    Examples:
        >>> load_predictor("absent.safetensors")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        alphaiou.inference.weights.CheckpointError: absent.safetensors: there is no such file; ...
    """
    return Predictor(load_weights(Path(path)), score=score, nms=nms, device=device)


class Predictor:
    """A trained detector: images of any size in, boxes in pixels of each image out.

    Images are resized so that the longer side is ``image_size``, and padded to a square, as in
    training. Batches have up to 16 images.

    Args:
        trained: The detector with its weights.
        score: The minimum score of a detection.
        nms: The IoU above which NMS removes the box of lower score; by default that of the
            training.
        device: ``cpu``, ``cuda`` or ``auto``.

    Attributes:
        trained: The detector with its weights.
        classes: The name of each label.
        image_size: The side of the squares in pixels.
        score: The minimum score of a detection.
        device: The device that it runs on.

    Raises:
        ValueError: If a threshold is out of range, or the detector has no NMS.
    """

    def __init__(
        self,
        trained: TrainedDetector,
        *,
        score: float = SCORE,
        nms: float | None = None,
        device: str = "auto",
    ) -> None:
        if not 0.0 <= score <= 1.0:
            raise ValueError(f"score must be from 0 to 1, got {score}")
        self.trained, self.score = trained, score
        self.classes, self.image_size = trained.classes, trained.image_size
        self.device = device_kind(device)
        self.detector = for_inference(trained.detector, score=min(score, LEAST_SCORE), nms=nms)
        self.detector.to(self.device).to(memory_format=torch.channels_last)

    @property
    def nms(self) -> float | None:
        """The IoU threshold of NMS; None for DETR, which has no NMS."""
        return nms_threshold(self.detector)

    def __repr__(self) -> str:
        return (
            f"Predictor({len(self.classes)} classes, image_size={self.image_size}, "
            f"score={self.score:g}, nms={self.nms}, device={self.device!r})"
        )

    def __call__(
        self, images: AnyImage | Sequence[AnyImage], *, bgr: bool = False
    ) -> list[Prediction]:
        """Detect objects in images.

        Args:
            images: One image or several, of any kinds and sizes: paths of files, folders and
                patterns such as ``photos/*.jpg``; PIL images; arrays (height, width, 3) of uint8;
                tensors (3, height, width) of uint8, or of floats in [0, 1], which are rounded to 8
                bits. Arrays and tensors may have a batch dimension in front.
            bgr: Whether arrays are in the order blue, green, red, as OpenCV reads them.

        Returns:
            One prediction per image, in order.

        Raises:
            DataError: If a file does not exist or cannot be decoded, or an array or tensor has
                another shape or type.
        """
        sources = list(_sources(images, bgr=bgr))
        paths = [source for source in sources if isinstance(source, Path)]
        names = iter(image_names(paths))
        predictions = []
        for row, (source, found) in enumerate(
            zip(sources, self._detect(partial(_read, sources), len(sources)), strict=True)
        ):
            path = source if isinstance(source, Path) else None
            if found.problem:
                raise DataError(f"{path}: {found.problem}")
            predictions.append(replace(found, name=row if path is None else next(names), path=path))
        return predictions

    def files(self, paths: Sequence[Path], *, workers: int | None = None) -> Iterator[Prediction]:
        """Detect objects in image files, in order; unreadable images are reported, not raised.

        Args:
            paths: The image files.
            workers: The number of decoding processes; by default one per core, or 0 for few
                images.
        """
        found = self._detect(partial(_read, paths), len(paths), workers)
        for path, name, prediction in zip(paths, image_names(paths), found, strict=True):
            yield replace(prediction, name=name, path=path)

    def dataset(
        self, dataset: DetectionDataset, *, workers: int | None = None
    ) -> Iterator[Prediction]:
        """Detect objects in the images of a data set, in order; arguments as ``files``."""
        index = dataset.index
        names: Sequence[str | int] = image_names([Path(name) for name in index.files])
        if index.layout == "coco":
            names = index.image_ids.tolist()
        found = self._detect(partial(_read_row, dataset), len(index), workers)
        for file, name, prediction in zip(index.files, names, found, strict=True):
            yield replace(prediction, name=name, path=Path(index.images.where(file)))

    def _detect(
        self, read: Callable[[int], Pixels], count: int, workers: int | None = None
    ) -> Iterator[Prediction]:
        """Yield the detections of each image, or why it cannot be read."""
        loader = torch.utils.data.DataLoader(
            _Squares(read, count, self.image_size),
            batch_size=None,
            num_workers=worker_count(count) if workers is None else workers,
            pin_memory=self.device == "cuda",
        )
        precision = self.trained.precision if self.device == "cuda" else "fp32"
        for cache, problems in loader:
            rows = torch.arange(len(cache), device=self.device)
            detections = detect(self.detector, cache.to(self.device), rows, precision=precision)
            for problem, image in zip(problems, detections, strict=True):
                if problem:
                    yield Prediction("", classes=self.classes, problem=problem)
                    continue
                scores = image["scores"]
                kept = scores >= self.score
                boxes, labels = image["boxes"][kept].cpu(), image["labels"][kept].cpu()
                highest = float(scores.max()) if len(scores) else 0.0
                yield Prediction(
                    "", boxes, scores[kept].cpu(), labels, classes=self.classes, highest=highest
                )


def for_inference(detector: Detector, *, score: float, nms: float | None = None) -> Detector:
    """Return a copy with folded batch norms and other thresholds.

    Args:
        detector: The detector.
        score: The minimum score of a detection.
        nms: The IoU threshold of NMS; by default that of the detector.

    Raises:
        ValueError: If the threshold is out of range, or the detector has no NMS.
    """
    folded = fold_batch_norm(detector)
    folded.set_least_score(score)
    if nms is not None:
        check_nms_threshold(nms)
        if nms_threshold(folded) is None:
            raise ValueError(f"nms={nms}: this detector has no NMS; leave the threshold out")
        folded.postprocess = replace(folded.postprocess, nms_threshold=nms)
    return folded


def nms_threshold(detector: Detector) -> float | None:
    """Return the IoU threshold of a detector's NMS; None if it has none."""
    postprocess = getattr(detector, "postprocess", None)
    return None if postprocess is None else float(postprocess.nms_threshold)


# --- where images come from -----------------------------------------------------------------------


def find_images(places: Iterable[str]) -> list[Path]:
    """Expand files, folders and patterns to a list of unique image paths, in order.

    Folders are searched recursively.

    Raises:
        DataError: If a file or folder does not exist or contains no image.
    """
    found: dict[Path, None] = {}
    for place in places:
        here = _images_at(place)
        if not here:
            raise DataError(f"{place}: there is no such file, or no image in it")
        found |= dict.fromkeys(here)
    return list(found)


def _images_at(place: str) -> list[Path]:
    path = Path(place)
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if _is_image(one))
    if path.exists():
        return [path]
    names = sorted(glob.glob(place, recursive=True))  # noqa: PTH207 - it may be absolute
    matches = map(Path, names)
    return [one for one in matches if _is_image(one)]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and path.is_file()


def image_names(paths: Sequence[Path]) -> list[str]:
    """Return the names of images: the file name, with folders if several files have that name.

    Examples:
        >>> image_names([Path("a/1.jpg"), Path("a/2.jpg"), Path("b/2.jpg")])
        ['1.jpg', 'a/2.jpg', 'b/2.jpg']
    """
    often = Counter(path.name for path in paths)
    return [path.name if often[path.name] == 1 else path.as_posix() for path in paths]


def category_keys(classes: Sequence[str], index: DetectionIndex) -> list[str | int]:
    """Return how COCO results name the classes: as a COCO data set does, else by name."""
    keys = dict(zip(index.classes, index.category_ids.tolist(), strict=True))
    return [keys.get(name, name) if index.layout == "coco" else name for name in classes]


def _sources(images: AnyImage | Sequence[AnyImage], *, bgr: bool) -> Iterator[Path | Pixels]:
    """Yield the file or the pixels of each image."""
    single = isinstance(images, str | Path | Image.Image | np.ndarray | Tensor)
    for number, image in enumerate([images] if single else images):  # type: ignore[arg-type]
        if isinstance(image, str | Path):
            yield from find_images([str(image)])
        elif isinstance(image, Image.Image):
            yield image_pixels(image)
        elif isinstance(image, np.ndarray):
            yield from _of_array(image, number, bgr=bgr)
        elif isinstance(image, Tensor):
            yield from _of_tensor(image, number)
        else:
            raise DataError(
                f"images[{number}]: is a {type(image).__name__}; give a path, a PIL image, an "
                "array or a tensor"
            )


def _of_array(array: np.ndarray, number: int, *, bgr: bool) -> Iterator[Pixels]:
    if array.dtype != np.uint8 or array.ndim not in (3, 4) or array.shape[-1] != 3:
        raise DataError(
            f"images[{number}]: an array must be uint8 of shape (height, width, 3), got "
            f"{array.dtype} of shape {array.shape}"
        )
    if 0 in array.shape[-3:-1]:
        raise DataError(f"images[{number}]: the image is empty, its shape is {array.shape}")
    rgb = np.ascontiguousarray(array[..., ::-1] if bgr else array)
    for pixels in rgb if rgb.ndim == 4 else [rgb]:
        # A copy if read-only, as torch warns about arrays that it must not write to.
        yield torch.from_numpy(pixels if pixels.flags.writeable else pixels.copy()).permute(2, 0, 1)


def _of_tensor(tensor: Tensor, number: int) -> Iterator[Pixels]:
    usable = tensor.dtype == torch.uint8 or tensor.is_floating_point()
    if not usable or tensor.ndim not in (3, 4) or tensor.shape[-3] != 3:
        raise DataError(
            f"images[{number}]: a tensor must be uint8, or floats in [0, 1], of shape "
            f"(3, height, width), got {tensor.dtype} of shape {tuple(tensor.shape)}"
        )
    if 0 in tensor.shape[-2:]:
        raise DataError(f"images[{number}]: the image is empty, its shape is {tuple(tensor.shape)}")
    pixels = tensor.detach().cpu()
    if pixels.is_floating_point():
        if len(pixels) and not 0.0 <= float(pixels.min()) <= float(pixels.max()) <= 1.0:
            raise DataError(f"images[{number}]: floats must be from 0 to 1; divide by 255")
        pixels = (pixels * 255).round().to(torch.uint8)
    yield from pixels if pixels.ndim == 4 else [pixels]


def _read(sources: Sequence[Path | Pixels], row: int) -> Pixels:
    """Return the pixels of an image.

    Raises:
        DataError: If the file cannot be read or decoded.
    """
    source = sources[row]
    if isinstance(source, Tensor):
        return source
    return decode_image(FolderImages(Path(), anywhere=True).read(str(source)), str(source))


def _read_row(dataset: DetectionDataset, row: int) -> Pixels:
    return dataset[row][0]


class _Squares(torch.utils.data.Dataset[tuple[ImageCache, list[str]]]):
    """Batches of images, resized and padded to squares, and the problem of each image or "".

    An unreadable image is an empty square.
    """

    def __init__(self, read: Callable[[int], Pixels], count: int, side: int) -> None:
        self.read, self.side = read, side
        self.parts = torch.split(torch.arange(count), BATCH) if count else ()

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, part: int) -> tuple[ImageCache, list[str]]:
        rows: Int64[Tensor, " images"] = self.parts[part]
        images, problems = zip(*map(self._fitted, rows.tolist()), strict=True)
        count = len(images)
        empty = torch.full((self.side, self.side, 3), FILL, dtype=torch.uint8)
        pixels = [empty if image.pixels is None else image.pixels for image in images]
        cache = ImageCache(
            pixels=torch.stack(pixels),
            sizes=torch.tensor([image.size for image in images], dtype=torch.int32),
            scales=torch.tensor([image.scale for image in images]),
            boxes=torch.zeros(count, 1, 4),
            labels=torch.zeros(count, 1, dtype=torch.int64),
            counts=torch.zeros(count, dtype=torch.int64),
            image_ids=rows,
        )
        return cache, list(problems)

    def _fitted(self, row: int) -> tuple[CachedImage, str]:
        try:
            return fit_image(self.read(row), self.side, row), ""
        except DataError as error:
            why = error.why if isinstance(error, ImageError) else str(error)
            return CachedImage(row, None), why


def worker_count(images: int) -> int:
    """Return the number of decoding processes that some images are worth; 0 for few."""
    return min(os.cpu_count() or 1, images // IMAGES_WORTH_A_WORKER)
