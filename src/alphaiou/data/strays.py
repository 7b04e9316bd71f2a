"""Label files that belong to no image: what a reader never comes across."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from alphaiou.data.image_files import file_names, read_limited
from alphaiou.data.index import DetectionIndex, Layout
from alphaiou.data.problems import DataError, Problem
from alphaiou.data.yolo import LARGEST_LIST, label_path
from alphaiou.data.yolo_config import IMAGE_SUFFIXES


def stray_labels(root: Path, layout: Layout, indexes: Sequence[DetectionIndex]) -> list[Problem]:
    """The label files of a data set that no image uses, in the order of their paths.

    Args:
        root: The data set.
        layout: Its layout. COCO's annotations of unknown images are found by its reader.
        indexes: The splits that were read.
    """
    finders: dict[Layout, Callable[[], Iterator[Problem]]] = {
        "voc": lambda: _voc(root),
        "yolo": lambda: _yolo(indexes),
    }
    return sorted(finders[layout]()) if layout in finders else []


def _voc(root: Path) -> Iterator[Problem]:
    """Annotations in no list of any task (Main, Layout, Segmentation, ...), or without an image."""
    from alphaiou.data.voc import voc_years

    try:
        years = voc_years(root)
    except DataError:  # said already
        return
    for year in years:
        listed = {name for path in year.glob("ImageSets/*/*.txt") for name in _first_words(path)}
        pictures = _stems(year / "JPEGImages")
        for xml in (year / "Annotations").rglob("*.xml"):
            stem = xml.relative_to(year / "Annotations").with_suffix("").as_posix()
            if "/" not in stem and stem not in pictures:
                yield _stray(xml, "there is no image of this name in JPEGImages")
            elif stem not in listed:
                yield _stray(xml, "no list in ImageSets names it")


def _yolo(indexes: Sequence[DetectionIndex]) -> Iterator[Problem]:
    """Label files beside those of the images, for which the folder of images has no image."""
    folders = {
        Path(os.path.dirname(index.images.where(name)))  # noqa: PTH120 - a Path an image is slow
        for index in indexes
        for name in index.files
    }
    for folder in folders:
        labels = label_path(folder / "image.jpg").parent
        pictures = _stems(folder)
        for name in file_names(labels):
            stem, dot, suffix = name.rpartition(".")
            # Labelling tools put the names of the classes there.
            if dot and suffix == "txt" and name != "classes.txt" and stem not in pictures:
                yield _stray(labels / name, f"there is no image of this name in {folder}")


def _stray(file: Path, detail: str) -> Problem:
    remedy = "add the image, or remove the file"
    return Problem(str(file), "", "label-without-image", detail, remedy, "file left out")


def _first_words(path: Path) -> Iterator[str]:
    try:
        text = read_limited(path, LARGEST_LIST).decode("utf-8", "surrogateescape")
    except OSError:  # said when the split is read
        return
    for line in text.splitlines():
        yield re.sub(r"(\s+-?\d+)+$", "", line.strip())


def _stems(folder: Path) -> set[str]:
    names = (name.rpartition(".") for name in file_names(folder))
    return {stem for stem, dot, suffix in names if f"{dot}{suffix}".lower() in IMAGE_SUFFIXES}
