"""The XML file that VOC has for an image: parsed safely, and written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

DEEPEST_NESTING = 32
LARGEST_SIDE = 1 << 24
CORNERS = ("xmin", "ymin", "xmax", "ymax")

# Where in the document the contents are that matter; parts of objects have boxes elsewhere.
_OF_OBJECT = {("object", tag) for tag in ("name", "difficult", "truncated")} | {
    ("object", "bndbox", corner) for corner in CORNERS
}
_OF_SIZE = {("size", "width"), ("size", "height")}


class XmlError(ValueError):
    """The file is no annotation; the message says why and at which line."""


class VocObject(NamedTuple):
    """One object as it is written: 1-based inclusive corners, NaN where that is no number."""

    name: str
    corners: tuple[float, ...]
    difficult: bool = False
    truncated: bool = False
    lacks: tuple[str, ...] = ()


class VocAnnotation(NamedTuple):
    """The objects of an image, and its width and height where the file says them."""

    size: tuple[int, int] | None
    objects: list[VocObject]


def parse_annotation(data: bytes) -> VocAnnotation:
    """Parse one annotation file; no entity is expanded, nothing else is opened.

    Only an object's own box counts: its parts have boxes too.

    Raises:
        XmlError: It is no XML, too deep, declares a document type, or is another
            document than an annotation.

    Examples:
        >>> cat = parse_annotation(b"<annotation><object><name>cat</name></object></annotation>")
        >>> cat.objects[0].name, cat.objects[0].lacks
        ('cat', ('bndbox',))
    """
    collector = _Collector()
    try:
        collector.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise XmlError(str(error)) from None
    except XmlError as error:
        raise XmlError(f"{error}, line {collector.parser.CurrentLineNumber}") from None
    except (LookupError, ValueError) as error:  # encodings that Python does not know
        raise XmlError(f"its encoding is unknown: {error}") from None
    return collector.annotation


class _Collector:
    """Listens to the parser, and keeps the few elements that matter by where they are."""

    def __init__(self) -> None:
        self.annotation = VocAnnotation(None, [])
        self.path: list[str] = []
        self.text: list[str] = []
        self.size: dict[str, str] = {}
        self.object: dict[str, str] = {}
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartDoctypeDeclHandler = self.refuse
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.text.append

    def refuse(self, *_: object) -> None:
        raise XmlError("it declares a document type, which is refused since it can expand entities")

    def start(self, tag: str, _: object) -> None:
        if not self.path and tag != "annotation":
            raise XmlError(f"its outermost element is <{tag}>, not <annotation>")
        self.path.append(tag)
        if len(self.path) > DEEPEST_NESTING:
            raise XmlError("its elements are nested too deeply")
        self.text.clear()

    def end(self, tag: str) -> None:
        place = tuple(self.path[1:])
        if place in _OF_OBJECT:
            self.object.setdefault(tag, self.content())
        elif place in _OF_SIZE:
            self.size.setdefault(tag, self.content())
        elif place == ("object",):
            self.annotation.objects.append(_object(self.object))
            self.object = {}
        elif not place:
            self.annotation = self.annotation._replace(size=_size(self.size))
        self.path.pop()
        self.text.clear()

    def content(self) -> str:
        return "".join(self.text).strip()


def _object(fields: dict[str, str]) -> VocObject:
    lacks = tuple(tag for tag in ("name", *CORNERS) if tag not in fields)
    if lacks[-4:] == CORNERS:
        lacks = (*lacks[:-4], "bndbox")
    return VocObject(
        name=fields.get("name", ""),
        corners=tuple(number(fields.get(tag, "")) for tag in CORNERS),
        difficult=fields.get("difficult") in ("1", "true"),
        truncated=fields.get("truncated") in ("1", "true"),
        lacks=lacks,
    )


def _size(fields: dict[str, str]) -> tuple[int, int] | None:
    width, height = number(fields.get("width", "")), number(fields.get("height", ""))
    if not (1 <= width <= LARGEST_SIDE and 1 <= height <= LARGEST_SIDE):
        return None
    return int(width), int(height)


def number(text: str | bytes) -> float:
    """The number that a text is, NaN if it is none.

    Examples:
        >>> number("7.5"), number("seven")
        (7.5, nan)
    """
    try:
        return float(text)
    except ValueError:
        return math.nan


def format_annotation(
    folder: str, filename: str, size: tuple[int, int], objects: Sequence[VocObject]
) -> str:
    """The XML of one image, in the order of elements of the devkit.

    Examples:
        >>> cat = VocObject("cat", (1.0, 1.0, 7.5, 9.0))
        >>> text = format_annotation("VOC2007", "1.jpg", (10, 10), [cat])
        >>> parse_annotation(text.encode()).objects == [cat]
        True
    """
    lines = [
        "<annotation>",
        f"\t<folder>{escape(folder)}</folder>",
        f"\t<filename>{escape(filename)}</filename>",
        f"\t<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>",
        "\t<segmented>0</segmented>",
    ]
    for one in objects:
        corners = zip(CORNERS, one.corners, strict=True)
        lines += [
            "\t<object>",
            f"\t\t<name>{escape(one.name)}</name>",
            "\t\t<pose>Unspecified</pose>",
            f"\t\t<truncated>{one.truncated:d}</truncated>",
            f"\t\t<difficult>{one.difficult:d}</difficult>",
            "\t\t<bndbox>",
            *(f"\t\t\t<{tag}>{shortest(value)}</{tag}>" for tag, value in corners),
            "\t\t</bndbox>",
            "\t</object>",
        ]
    return "\n".join((*lines, "</annotation>", ""))


def shortest(value: float) -> str:
    """The shortest text that reads back as the same number.

    Examples:
        >>> shortest(48.0), shortest(0.1)
        ('48', '0.1')
    """
    return str(int(value)) if value.is_integer() else repr(value)
