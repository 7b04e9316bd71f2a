"""CVAT for images 1.1: XML files that hold the annotations of many images."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from xml.parsers import expat

from alphaiou.data.formats.base import (
    Collection,
    Format,
    FoundSplit,
    ListedImages,
    NothingUsableError,
)
from alphaiou.data.formats.files import (
    FolderImages,
    is_file,
    is_folder,
    open_file,
    place_by_name,
    reason,
    top_folder,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.labelimg import has_root, xml_files
from alphaiou.data.formats.splits import file_split, folder_split, split_name
from alphaiou.data.formats.voc import DEEPEST_NESTING, LARGEST_SIDE, XmlError, number
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import BrokenFileError, DataError, Effect, Problem

_CORNERS = ("xtl", "ytl", "xbr", "ybr")
#: Shapes that have no extent of their own, or not that of an object.
_NO_BOXES = ("polyline", "points", "cuboid", "skeleton")
_SHAPES = ("box", "polygon", "ellipse", "mask", *_NO_BOXES)


class _Shape(NamedTuple):
    """A shape of an image: 0-based half-open corners, and what is wrong with it, if anything."""

    line: int
    label: str
    corners: tuple[float, float, float, float]
    wrong: str = ""


@dataclass
class _Image:
    """An element ``<image>``."""

    line: int
    name: str
    size: tuple[int, int] | None
    subset: str
    shapes: list[_Shape] = field(default_factory=list)


class _Document:
    """Listens to the parser, and keeps the images and the names of the labels.

    Attributes:
        images: The images in their order.
        labels: The labels of the task in their order; those of parts of skeletons too.
    """

    def __init__(self, path: Path) -> None:
        self.images: list[_Image] = []
        self.labels: list[str] = []
        self.path: list[str] = []
        self.text: list[str] = []
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text.append
        try:
            with open_file(path) as file:
                self.parser.ParseFile(file)
        except expat.ExpatError as error:
            raise BrokenFileError(f"{path}: is no XML: {error}; export it again") from None
        except XmlError as error:
            line = self.parser.CurrentLineNumber
            raise BrokenFileError(f"{path}: line {line}: {error}") from None
        except OSError as error:
            raise BrokenFileError(
                f"{path}: cannot be read: {reason(error)}; put an annotations.xml there"
            ) from None
        except (LookupError, ValueError) as error:  # encodings that Python does not know
            raise BrokenFileError(
                f"{path}: its encoding is unknown: {error}; write it in UTF-8"
            ) from None

    def refuse(self, *_: object) -> None:
        raise XmlError("declares a document type, which can expand entities; remove it")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        if not self.path and tag != "annotations":
            raise XmlError(f"the outermost element is <{tag}>, not <annotations>; export it again")
        self.path.append(tag)
        self.text.clear()
        if len(self.path) > DEEPEST_NESTING:
            raise XmlError("elements are nested too deeply; export it again")
        parents = self.path[:-1]
        if parents == ["annotations"] and tag == "track":
            raise XmlError("it is CVAT for video; export the task as CVAT for images 1.1")
        if parents == ["annotations"] and tag == "image":
            self.images.append(_image(self.parser.CurrentLineNumber, attributes))
        elif parents == ["annotations", "image"] and tag in _SHAPES:
            shape = _shape(self.parser.CurrentLineNumber, tag, attributes)
            self.images[-1].shapes.append(shape)

    def end(self, _: str) -> None:
        if self.path[1:2] == ["meta"] and self.path[-3:] == ["labels", "label", "name"]:
            self.labels.append("".join(self.text).strip())
        self.path.pop()
        self.text.clear()


def _image(line: int, attributes: dict[str, str]) -> _Image:
    width, height = (number(attributes.get(name, "")) for name in ("width", "height"))
    known = 1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE
    size = (int(width), int(height)) if known else None
    return _Image(line, attributes.get("name", ""), size, attributes.get("subset", ""))


def _shape(line: int, tag: str, attributes: dict[str, str]) -> _Shape:
    label = attributes.get("label", "")
    nowhere = (math.nan,) * 4
    if tag in _NO_BOXES:
        return _Shape(line, label, nowhere, f"a <{tag}> has no box")
    needed = {
        "box": _CORNERS,
        "polygon": ("points",),
        "ellipse": ("cx", "cy", "rx", "ry"),
        "mask": ("left", "top", "width", "height"),
    }[tag]
    if lacking := [name for name in ("label", *needed) if not attributes.get(name)]:
        return _Shape(line, label, nowhere, f"<{tag}> has no {' and no '.join(lacking)}")
    if tag == "polygon":
        pairs = [pair.split(",") for pair in attributes["points"].split(";")]
        if any(len(pair) != 2 for pair in pairs):
            return _Shape(line, label, nowhere, "the points of a <polygon> are not x,y;x,y;...")
        x, y = ([number(pair[axis]) for pair in pairs] for axis in (0, 1))
        known = not math.isnan(sum(x) + sum(y))
        return _Shape(line, label, (min(x), min(y), max(x), max(y)) if known else nowhere)
    a, b, c, d = (number(attributes[name]) for name in needed)
    if tag == "ellipse":
        a, b, c, d = a - c, b - d, a + c, b + d
    elif tag == "mask":
        c, d = a + c, b + d
    return _Shape(line, label, _turned((a, b, c, d), number(attributes.get("rotation") or "0")))


def _turned(
    box: tuple[float, float, float, float], degrees: float
) -> tuple[float, float, float, float]:
    """The upright box around a box that is turned about its centre."""
    if degrees == 0 or not math.isfinite(degrees):
        return box
    x1, y1, x2, y2 = box
    cosine, sine = (abs(f(math.radians(degrees))) for f in (math.cos, math.sin))
    half_width = ((x2 - x1) * cosine + (y2 - y1) * sine) / 2
    half_height = ((x2 - x1) * sine + (y2 - y1) * cosine) / 2
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    return x - half_width, y - half_height, x + half_width, y + half_height


# --- reading --------------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    """The annotation files of a data set."""
    if is_file(path):
        return [path]
    return [file for file in xml_files(path) if has_root(file, b"annotations")]


def _split_of(image: _Image, file: Path, root: Path) -> str:
    if image.subset:
        return split_name(image.subset)
    inside = file.relative_to(root).as_posix() if file != root else file.name
    return folder_split(inside) or file_split(file.stem, file.parent.name)


def read_cvat(path: Path, split: str) -> DetectionIndex:
    """Read one split.

    CVAT's coordinates are distances from the left and upper border of the image, as here: ``xtl`` 0
    and ``xbr`` 1 are the whole first pixel. Of polygons, ellipses, masks and turned boxes the
    upright box around them counts; polylines, points, cuboids and skeletons are left out and
    reported. The classes are the labels of the task, in their order, as far as a file lists them.

    Args:
        path: The file ``annotations.xml``, or the folder.
        split: The subset of the images; where they have none, ``train``, or the name of the folder.

    Raises:
        DataError: A file cannot be used, there is no such split, or it has no usable image.
    """
    base = Path(os.path.abspath(path.parent if is_file(path) else path))  # noqa: PTH100
    found = Collection("line")
    numbers: dict[str, int] = {}
    labels: dict[str, None] = {}
    listed = False
    images_of = ListedImages(base, found)
    for file in _files(path):
        document = _Document(file)
        labels |= dict.fromkeys(document.labels)
        images = [image for image in document.images if _split_of(image, file, path) == split]
        if not document.labels:
            every = (shape.label for image in document.images for shape in image.shapes)
            labels |= dict.fromkeys(sorted(set(every) - {""}))
        places = {
            subset: place_by_name(
                file, [image.name for image in images if image.subset == subset], subset, split
            )
            for subset in dict.fromkeys(image.subset for image in images)
        }
        for image in images:
            listed = True
            if not image.name:
                found.problems.append(_problem(file, image.line, "<image> has no name", "image"))
            elif images_of.add(places[image.subset][image.name], image.size, file, image.line):
                _add_shapes(file, image, found, numbers)
    if not listed:
        there = ", ".join(cvat_splits(path)) or "none"
        raise DataError(f"{path}: has no split {split!r}; there are: {there}")
    if not len(found):
        message = f"{path}: {split}: none of the images can be used"
        raise NothingUsableError(message, found.problems)
    classes = tuple(labels)
    return found.index(
        "cvat",
        path,
        split,
        images=FolderImages(base, anywhere=True),
        classes=classes,
        labels={numbers[name]: label for label, name in enumerate(classes) if name in numbers},
        names={number: name for name, number in numbers.items()},
    )


def _add_shapes(file: Path, image: _Image, found: Collection, numbers: dict[str, int]) -> None:
    if image.size is None:
        detail = f"{image.name} has no usable width and height; those of the image are used"
        found.problems.append(_problem(file, image.line, detail, ""))
    for shape in image.shapes:
        if shape.wrong:
            found.problems.append(_problem(file, shape.line, shape.wrong, "box"))
            continue
        label = numbers.setdefault(shape.label, len(numbers))
        found.add_box(shape.corners, label, shape.line)


def _problem(file: Path, line: int, detail: str, lost: Literal["", "box", "image"]) -> Problem:
    remedies = {
        "": "export the task again",
        "box": "draw a rectangle, or remove the shape",
        "image": "export the task again",
    }
    effects: dict[str, Effect] = {"": "kept", "box": "box left out", "image": "image left out"}
    return Problem(
        str(file), f"line {line}", "field-missing", detail, remedies[lost], effects[lost]
    )


# --- the format -----------------------------------------------------------------------------------


def cvat_splits(path: Path) -> tuple[str, ...]:
    """The splits of a data set."""
    documents = ((file, _Document(file)) for file in _files(path))
    return tuple(
        sorted({_split_of(image, file, path) for file, doc in documents for image in doc.images})
    )


def _recognise(path: Path) -> bool:
    if is_file(path):
        return path.suffix.lower() == ".xml" and has_root(path, b"annotations")
    return is_folder(path) and bool(_files(path))


def _find(path: Path, split: str) -> FoundSplit:
    tops = dict.fromkeys([path, *(top_folder(file) for file in _files(path))])
    return FoundSplit(Sources(tuple(tops)), lambda: read_cvat(path, split))


FORMAT = Format(
    signs="annotations.xml of CVAT for images 1.1, with its images",
    recognise=_recognise,
    splits=cvat_splits,
    find=_find,
    broken_kind="xml-broken",
)
