"""Find all problems of a data set: in annotations, in images, and labels without an image."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from alphaiou.data.dataset import open_dataset, split_names
from alphaiou.data.formats.base import NothingUsableError
from alphaiou.data.formats.files import ImageFiles
from alphaiou.data.formats.registry import FORMATS, get_format, recognise
from alphaiou.data.images import ImageError, decode_image, image_size
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import BrokenFileError, DataError, Problem


@dataclass(frozen=True)
class SplitSummary:
    """How much of a split can be used."""

    split: str
    images: int
    boxes: int
    classes: int


@dataclass(frozen=True)
class Report:
    """What a check has found.

    Attributes:
        path: The data set.
        layout: Its layout; None in the JSON of a data set whose layout is not known.
        splits: What each split has, of those that can be read at all.
        problems: Every finding, in the order of splits, then of files; each once.
    """

    path: str
    layout: str | None
    splits: tuple[SplitSummary, ...]
    problems: tuple[Problem, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of findings of each kind, the most frequent first."""
        return dict(Counter(problem.kind for problem in self.problems).most_common())

    @property
    def ok(self) -> bool:
        """Whether nothing was found but what is only worth knowing."""
        return all(map(is_informational, self.problems))


def is_informational(problem: Problem) -> bool:
    """Whether a finding is normal: in YOLO's layout no label file means no objects."""
    return problem.kind == "image-without-label" and problem.effect == "kept"


def check_dataset(
    path: str | Path,
    split: str | None = None,
    *,
    layout: str | None = None,
    decode: bool = True,
    workers: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Read a data set, open all its images, and report everything that is wrong.

    Args:
        path: The data set, as for :func:`alphaiou.data.dataset.load_dataset`.
        split: The split to check, all of them by default.
        layout: The layout, where the files could be of more than one.
        decode: Decode every image; otherwise only the headers are read, and an image that is cut
            off after its header goes unnoticed.
        workers: Threads that open images; one per core by default. The report is the same.
        on_progress: Called with the number of images done and the number of all.

    Raises:
        DataError: There is no data set, or the split that was named is not there or is broken.

    Examples:
        >>> check_dataset("shapes", "val", decode=False).ok
        True
    """
    layout = recognise(path, layout)
    problems: list[Problem] = []
    indexes: list[DetectionIndex] = []
    for name in _splits(path, split, layout, problems):
        try:
            index = open_dataset(path, name, layout).index
        except DataError as error:
            if split is not None and not isinstance(error, NothingUsableError):
                raise
            problems += error.problems if isinstance(error, NothingUsableError) else ()
            problems.append(_unusable(path, f"split {name}", layout, error))
            continue
        indexes.append(index)
        problems += index.problems
    problems += _check_images(indexes, decode, workers or os.cpu_count() or 1, on_progress)
    problems += sorted(get_format(layout).stray_labels(Path(path), indexes))
    summaries = (SplitSummary(i.split, len(i), i.num_boxes, len(i.classes)) for i in indexes)
    return Report(str(path), layout, tuple(summaries), _each_once(problems))


def _each_once(problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Splits overlap (trainval holds train): a problem of a file, or a missing image, counts once.

    Annotation files differ in what they say about a missing image.
    """
    first: dict[object, Problem] = {}
    for problem in problems:
        missing = problem.kind == "image-missing"
        first.setdefault((problem.kind, problem.file) if missing else problem, problem)
    return tuple(first.values())


def _splits(
    path: str | Path, split: str | None, layout: str, problems: list[Problem]
) -> Sequence[str]:
    if split is not None:
        return (split,)
    try:
        names = split_names(path, layout=layout)
        if not names:
            raise NothingUsableError(f"{path}: has no splits", ())
    except DataError as error:
        problems.append(_unusable(path, "", layout, error))
        return ()
    return names


def _unusable(path: str | Path, where: str, layout: str, error: DataError) -> Problem:
    """The finding of an error, which reads FILE: REASON; REMEDY."""
    broken = isinstance(error, BrokenFileError)
    kind = get_format(layout).broken_kind if broken else "split-unusable"
    file, _, text = str(error).partition(": ")
    if not os.path.lexists(file):  # it never raises, whatever the name
        file, text = str(path), str(error)
    detail, _, remedy = text.rpartition("; ")
    if not detail:
        detail, remedy = text, "correct the file"
    return Problem(file, where, kind, detail, remedy, "file left out")


def _check_images(
    indexes: Sequence[DetectionIndex],
    decode: bool,
    workers: int,
    on_progress: Callable[[int, int], None] | None,
) -> Iterator[Problem]:
    """Open every image once, in threads: decoding leaves Python's lock to the others."""
    tasks = list(dict.fromkeys(_images(indexes)))
    with warnings.catch_warnings(), ThreadPoolExecutor(workers) as pool:
        warnings.simplefilter("ignore")  # of decoders, about damage that is reported here
        for done, problem in enumerate(pool.map(partial(_check_image, decode=decode), tasks), 1):
            if problem is not None:
                yield problem
            if on_progress is not None:
                on_progress(done, len(tasks))


@dataclass(frozen=True)
class _Image:
    images: ImageFiles
    name: str
    width: int
    height: int


def _images(indexes: Sequence[DetectionIndex]) -> Iterator[_Image]:
    for index in indexes:
        if not FORMATS[index.layout].drawn:  # otherwise there is nothing to open
            for name, (width, height) in zip(index.files, index.sizes.tolist(), strict=True):
                yield _Image(index.images, name, width, height)


def _check_image(image: _Image, *, decode: bool) -> Problem | None:
    where = image.images.where(image.name)
    try:
        data = image.images.read(image.name)
        if decode:
            height, width = decode_image(data, where).shape[1:]
        else:
            width, height = image_size(data, where)
    except ImageError as error:
        remedy = "copy it again, or remove it from the list and its labels"
        return Problem(where, "", error.kind, error.why.removesuffix("; copy it again"), remedy)
    except DataError as error:
        return Problem(where, "", "image-unreadable", str(error), "put a readable image there")
    if (width, height) == (image.width, image.height):
        return None
    detail = f"is {width} x {height}, its annotation says {image.width} x {image.height}"
    if (height, width) == (image.width, image.height):
        detail += ", the size before its EXIF orientation"
    return Problem(where, "", "image-size", detail, "annotate the image as it is, upright")
