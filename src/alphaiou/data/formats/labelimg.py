"""VOC's XML without the lists of a devkit, as LabelImg writes it and Kaggle has it.

The images are beside their annotations or in a sister folder, at any depth. An annotation belongs
to the image of its own stem: ``<filename>`` and ``<path>`` are often those of another machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from alphaiou.data.formats.base import (
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
    read_classes,
)
from alphaiou.data.formats.files import (
    IMAGE_SUFFIXES,
    FolderImages,
    is_folder,
    is_image,
    names_below,
    open_file,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.splits import folder_split
from alphaiou.data.formats.voc import CLASSES_FILE, class_names, read_annotation
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError, Effect, Problem

#: How many files are looked into, and how many bytes of each, to recognise the layout.
FILES_SNIFFED, BYTES_SNIFFED = 50, 1 << 12
#: The split of annotations outside the folders of splits, where there are such folders.
_NO_SPLIT = "unsorted"


class _Pair(NamedTuple):
    """An annotation file and its images, relative to the data set: one, none, or a choice."""

    xml: str
    images: list[str]


class _Files(NamedTuple):
    """The files of a data set.

    Attributes:
        base: The folder that names are relative to.
        splits: The annotation files of each split.
        unlabelled: Of each split, the images without annotation in folders of images that have one.
    """

    base: Path
    splits: dict[str, list[_Pair]]
    unlabelled: dict[str, list[str]]


def find_files(root: Path) -> _Files:
    """Pair the annotation files under a folder with their images.

    Where the folder holds annotations alone, the images are looked for in the folder above.
    """
    _check_lists(root)
    base, xmls, images = _names(root)
    of_stem: dict[str, list[str]] = {}
    for name in images:
        of_stem.setdefault(PurePosixPath(name).stem, []).append(name)
    pairs: list[tuple[str | None, _Pair]] = []
    for xml in xmls:
        near = _nearest(xml, of_stem.get(PurePosixPath(xml).stem, []))
        split = folder_split(xml) or (folder_split(near[0]) if near else None)
        pairs.append((split, _Pair(xml, near)))
    labelled = {name for _, pair in pairs for name in pair.images}
    folders = {PurePosixPath(name).parent for name in labelled}
    others = [n for n in images if n not in labelled and PurePosixPath(n).parent in folders]
    default = _NO_SPLIT if any(split for split, _ in pairs) else "train"
    files = _Files(base, {}, {})
    for split, pair in pairs:
        files.splits.setdefault(split or default, []).append(pair)
    for name in others:
        files.unlabelled.setdefault(folder_split(name) or default, []).append(name)
    return files


def _check_lists(root: Path) -> None:
    """Refuse a devkit whose lists are damaged: without them its splits would become one."""
    for depth in ("", "*/", "*/*/"):
        for parent in root.glob(f"{depth}ImageSets"):
            lists = parent / "Main"
            if os.path.lexists(lists) and not is_folder(lists):
                raise DataError(
                    f"{lists} is not a folder: it holds the lists of the splits; restore it, or "
                    "remove it to read all images as one split"
                )


def _names(root: Path) -> tuple[Path, list[str], list[str]]:
    """The folder of the data set, and its annotation files and images."""
    names = names_below(root)
    xmls = [name for name in names if name.lower().endswith(".xml")]
    images = list(filter(is_image, names))
    if images or not xmls:
        return root, xmls, images
    folder = Path(os.path.abspath(root))  # noqa: PTH100 - "." has a parent too
    images = list(filter(is_image, names_below(folder.parent)))
    return folder.parent, [f"{folder.name}/{name}" for name in xmls], images


def _nearest(xml: str, images: list[str]) -> list[str]:
    """Of the images of a stem, the one in the folder most like that of an annotation file.

    Those of another split do not count. More than one are equally near.
    """
    split = folder_split(xml)
    able = [name for name in images if split is None or folder_split(name) in (None, split)]
    if not able:
        return []
    nearness = {name: _likeness(xml, name) for name in able}
    most = max(nearness.values())
    near = [name for name in able if nearness[name] == most]
    if len({PurePosixPath(name).parent for name in near}) > 1:
        return near
    return [min(near, key=lambda name: IMAGE_SUFFIXES.index(PurePosixPath(name).suffix.lower()))]


def _likeness(one: str, other: str) -> float:
    """How many folders at the start and at the end of two paths are the same."""
    first, second = (list(PurePosixPath(name).parts[:-1]) for name in (one, other))
    if first == second:
        return float("inf")
    same = 0
    for place in (0, -1):
        while first and second and first[place] == second[place]:
            same += 1
            del first[place], second[place]
    return same


def read_labelimg(root: Path, split: str) -> DetectionIndex:
    """Read one split.

    The corners are VOC's, 1-based and inclusive: they become 0-based and half-open. The classes are
    those of ``classes.txt`` in the folder, else all names in the annotations of all splits, sorted.

    Args:
        root: The folder that holds annotations and images, or annotations alone.
        split: The name of a folder in the path of annotations or images; ``train`` if none is.

    Raises:
        DataError: There is no such split, or nothing of it can be used.
    """
    base, splits, unlabelled = find_files(root)
    if split not in splits:
        there = ", ".join(splits) or "none"
        raise DataError(f"{root}: has no split {split!r}; there are: {there}")
    found = Collection("object")
    numbers: dict[str, int] = {}
    used: dict[str, str] = {}
    for xml, images in splits[split]:
        if problem := _wrong_pair(base, xml, images, used):
            found.problems.append(problem)
            continue
        used[images[0]] = xml
        read_annotation(base / xml, base / images[0], images[0], found, numbers)
    for name in unlabelled.get(split, ()):
        remedy = "annotate it, also if it has no objects, or remove it"
        detail = "it has no annotation file"
        found.problems.append(_problem(base / name, "image-without-label", detail, remedy))
    if not len(found):
        message = f"{root}: {split}: of {len(splits[split])} annotation files none can be used"
        raise NothingUsableError(message, found.problems)
    read = {pair.xml for pair in splits[split]}
    others = [base / p.xml for pairs in splits.values() for p in pairs if p.xml not in read]
    names = (set(numbers) | class_names(others)) - {""}
    classes = read_classes(base / CLASSES_FILE) or tuple(sorted(names))
    return found.index(
        "labelimg",
        root,
        split,
        images=FolderImages(base),
        classes=classes,
        labels={numbers[name]: label for label, name in enumerate(classes) if name in numbers},
        names={number: name for name, number in numbers.items()},
    )


def _wrong_pair(base: Path, xml: str, images: list[str], used: dict[str, str]) -> Problem | None:
    """Why an annotation file does not have exactly one image."""
    stem = PurePosixPath(xml).stem
    if not images:
        detail = f"there is no image {stem}.jpg, .png or the like"
        remedy = "put the image there, or remove the annotation file"
        return _problem(base / xml, "image-missing", detail, remedy)
    if len(images) > 1:
        detail = f"it may belong to {images[0]} or to {images[1]}"
        remedy = "put it beside its image, or into a folder of the same name"
        return _problem(base / xml, "image-missing", detail, remedy)
    if images[0] in used:
        detail = f"{images[0]} has the annotation file {used[images[0]]} already"
        return _problem(base / xml, "image-duplicate", detail, "remove one of the two files")
    return None


def _problem(file: Path, kind: str, detail: str, remedy: str) -> Problem:
    effect: Effect = "image left out"
    return Problem(str(file), "", kind, detail, remedy, effect)


# --- the format -----------------------------------------------------------------------------------


def has_root(path: Path, tag: bytes) -> bool:
    """Whether the outermost element at the start of an XML file is ``tag``, in any encoding."""
    try:
        with open_file(path) as file:
            start = file.read(BYTES_SNIFFED).replace(b"\0", b"")  # UTF-16
    except OSError:
        return False
    found = re.search(rb"<([A-Za-z][^\s>/]*)", start)
    return found is not None and found[1] == tag


def xml_files(root: Path) -> Iterator[Path]:
    """Some of the XML files under a folder."""
    names = [name for name in names_below(root) if name.lower().endswith(".xml")]
    return (root / name for name in names[:FILES_SNIFFED])


def _recognise(path: Path) -> bool:
    return is_folder(path) and any(has_root(file, b"annotation") for file in xml_files(path))


def _find(path: Path, split: str) -> FoundSplit:
    base, _, _ = _names(path)
    return FoundSplit(Sources((base,)), lambda: read_labelimg(path, split))


FORMAT = Format(
    signs="VOC's .xml files beside their images or in a sister folder, without ImageSets",
    recognise=_recognise,
    splits=lambda path: tuple(sorted(find_files(path).splits)),
    find=_find,
)
