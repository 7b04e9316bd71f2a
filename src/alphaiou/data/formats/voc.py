"""PASCAL VOC: a devkit of annotations in XML and lists of images."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from xml.parsers import expat
from xml.sax.saxutils import escape

from alphaiou.data.formats.base import (
    CLASS_NAME_REMEDY,
    EXTRAS,
    Collection,
    Format,
    FoundSplit,
    NothingUsableError,
    misnamed,
    read_classes,
    stray_label,
)
from alphaiou.data.formats.files import (
    IMAGE_SUFFIXES,
    FolderImages,
    all_names,
    file_names,
    files_below,
    folders_in,
    image_stems,
    is_folder,
    read_limited,
    reason,
    stays_inside,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.writing import (
    Placing,
    flat_names,
    place_images,
    shortest,
    writing_folder,
)
from alphaiou.data.index import DetectionIndex
from alphaiou.data.problems import DataError, Effect, Problem

# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)
# fmt: on
#: A file beside the years that names the classes, one per line, where they are not VOC's own.
CLASSES_FILE = "classes.txt"
CORNERS = ("xmin", "ymin", "xmax", "ymax")
DEEPEST_NESTING = 32
LARGEST_SIDE = 1 << 24
LARGEST_FILE = 1 << 24
LARGEST_LIST = 1 << 28
LONGEST_NAME = 1 << 10


# --- the devkit -----------------------------------------------------------------------------------


def voc_years(root: Path) -> list[Path]:
    """The folders of a devkit that hold annotations and lists, one per year, in their order.

    Raises:
        DataError: There is none.
    """
    if years := find_years(root):
        return years
    raise DataError(
        f"{root}: is no VOC devkit, which has folders such as VOC2007 "
        "with Annotations, ImageSets/Main and JPEGImages"
    )


def find_years(root: Path) -> list[Path]:
    """The same as ``voc_years``; none if the folder is no devkit."""
    for folder in (root, root / "VOCdevkit"):
        if years := list(filter(_is_year, folders_in(folder))):
            return years
    return [root.resolve()] if _is_year(root) else []


def _is_year(folder: Path) -> bool:
    return is_folder(folder / "Annotations") and is_folder(folder / "ImageSets/Main")


def voc_splits(root: Path) -> tuple[str, ...]:
    """The splits of a devkit: the lists of images of any year, without those of single classes."""
    stems = {stem for year in voc_years(root) for stem in _lists(year)}
    of_a_class = {stem for stem in stems if stem.rpartition("_")[2] in stems - {stem}}
    return tuple(sorted(stems - of_a_class))


def _lists(year: Path) -> dict[str, Path]:
    folder = year / "ImageSets/Main"
    names = sorted(all_names(folder))  # folders too: reading one says what it is
    return {name.removesuffix(".txt"): folder / name for name in names if name.endswith(".txt")}


def _lists_of_split(root: Path, years: list[Path], split: str) -> list[Path]:
    """The lists of a split, of all years or of the year that is part of its name."""
    lists = [_lists(year)[split] for year in years if split in _lists(year)]
    if lists:
        return lists
    of_year, _, rest = split.partition("-")
    for year in years:
        if of_year in (year.name, year.name.removeprefix("VOC")) and rest in _lists(year):
            return [_lists(year)[rest]]
    there = voc_splits(root)
    first = years[0].name.removeprefix("VOC")
    if not there:
        folder = years[0] / "ImageSets/Main"
        raise DataError(f"{folder}: has no lists of images; put {split}.txt there")
    raise DataError(
        f"{root}: has no split {split!r}; there are: {', '.join(there)}; "
        f"of one year alone: {first}-{there[0]} and the like"
    )


# --- reading --------------------------------------------------------------------------------------


def read_voc(root: Path, split: str) -> DetectionIndex:
    """Read one split of a VOC devkit.

    VOC's corners are 1-based and inclusive, so that x 1 to 1 is the whole first pixel: here that is
    0 to 1. All years that have the split are read; ``2007-trainval`` takes one of them. The
    classes are those of ``classes.txt`` where there is one, else VOC's twenty where no other name
    occurs, else the names in all annotations of the devkit, sorted.

    Args:
        root: The folder ``VOCdevkit``, the one it is in, or one year's such as ``VOC2007``.
        split: The name of a list in ``ImageSets/Main``, perhaps with a year before it.

    Raises:
        DataError: It is no devkit, there is no such split, or nothing of the split can be used.
    """
    years = voc_years(root)
    found = Collection("object")
    numbers: dict[str, int] = {}
    read: set[Path] = set()
    lists = _lists_of_split(root, years, split)
    for list_file in lists:
        read |= _read_list(list_file, found, numbers)
    if not len(found):
        message = f"{lists[0]}: lists no image that can be used"
        if not found.problems:
            message += "; write the names of images, one per line"
        raise NothingUsableError(message, found.problems)
    devkit = years[0].parent
    classes = read_classes(devkit / CLASSES_FILE) or _find_classes(years, read, set(numbers))
    return found.index(
        "voc",
        root,
        split,
        images=FolderImages(devkit),
        classes=classes,
        labels={numbers[name]: label for label, name in enumerate(classes) if name in numbers},
        names={number: name for name, number in numbers.items()},
    )


def _read_list(list_file: Path, found: Collection, numbers: dict[str, int]) -> set[Path]:
    """Add the images of one list, and give the annotation files that were read."""
    year = list_file.parents[2]
    pictures = _Pictures(year / "JPEGImages")
    read: set[Path] = set()
    for where, stem in _lines(list_file, found.problems):
        xml = year / "Annotations" / f"{stem}.xml"
        picture = pictures.find(stem)
        if picture is None:
            say(found, f"{pictures.folder / stem}.jpg", "image-missing", "there is no such file")
            continue
        if xml in read:
            say(found, str(list_file), "image-duplicate", f"{stem} is listed again", where=where)
            continue
        read.add(xml)
        read_annotation(xml, picture, picture.relative_to(year.parent).as_posix(), found, numbers)
    return read


def read_annotation(
    xml: Path, picture: Path, name: str, found: Collection, numbers: dict[str, int]
) -> None:
    """Add an image and the objects of its annotation file, or note why not.

    Args:
        xml: The annotation file.
        picture: The image.
        name: The name of the image in the index.
        found: What to add to.
        numbers: The number of each name of a class, which grows.
    """
    from alphaiou.data.images import ImageError, image_size

    try:
        annotation = parse_annotation(read_limited(xml, LARGEST_FILE))
        size = annotation.size or image_size(picture)
    except FileNotFoundError:
        say(found, str(xml), "image-without-label", f"{picture.name} has no annotation file")
    except OSError as error:
        say(found, str(xml), "xml-broken", f"it cannot be read: {reason(error)}")
    except XmlError as error:
        say(found, str(xml), "xml-broken", f"it is no annotation: {error}")
    except ImageError as error:
        say(found, str(picture), error.kind, error.why)
    else:
        found.add_image(name, size, str(xml))
        _add_objects(annotation, str(xml), found, numbers)


def _lines(list_file: Path, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    """The place of each line in a list, and the image it names; a second column is passed over."""
    try:
        text = read_limited(list_file, LARGEST_LIST).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise DataError(
            f"{list_file}: the list cannot be read: {reason(error)}; "
            "put a text file of image names there, or remove it"
        ) from None
    for number, line in enumerate(text.splitlines(), 1):
        name = re.sub(r"\s+-?[01]$", "", line.strip())
        if name and stays_inside(name) and "\0" not in name and len(name) <= LONGEST_NAME:
            yield f"line {number}", name
        elif name:
            detail = f"{name[:80]!r} does not name an image below JPEGImages"
            place = (str(list_file), f"line {number}")
            problems.append(
                Problem(*place, "line-broken", detail, _REMEDIES["line-broken"], "image left out")
            )


def _add_objects(
    annotation: VocAnnotation, xml: str, found: Collection, numbers: dict[str, int]
) -> None:
    if annotation.size is None:
        detail = "it has no usable <size>; the size was taken from the image"
        say(found, xml, "field-missing", detail, effect="kept")
    for place, one in enumerate(annotation.objects, 1):
        if one.lacks:
            detail = "it has no " + ", ".join(f"<{tag}>" for tag in one.lacks)
            say(found, xml, "field-missing", detail, where=f"object {place}", effect="box left out")
            continue
        if not one.name:
            where = f"object {place}"
            say(found, xml, "class-name", "its <name> is empty", where=where, effect="box left out")
            continue
        x1, y1, x2, y2 = one.corners
        number = numbers.setdefault(one.name, len(numbers))
        marks = one.difficult + 2 * one.truncated
        found.add_box((x1 - 1, y1 - 1, x2, y2), number, place, marks)


class _Pictures:
    """Finds images by name without suffix, from one listing of each folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listings: dict[str, dict[str, str]] = {}

    def find(self, stem: str) -> Path | None:
        parent, _, base = stem.rpartition("/")
        if parent not in self.listings:
            names = file_names(self.folder / parent)
            order = {suffix: place for place, suffix in enumerate(reversed(IMAGE_SUFFIXES))}
            found = [name for name in names if PurePosixPath(name).suffix.lower() in order]
            found.sort(key=lambda name: (order[PurePosixPath(name).suffix.lower()], name))
            self.listings[parent] = {name.rpartition(".")[0]: name for name in found}
        name = self.listings[parent].get(base)
        return None if name is None else self.folder / parent / name


def _find_classes(years: list[Path], read: set[Path], names: set[str]) -> tuple[str, ...]:
    """The classes of the whole devkit, so that all its splits have the same labels."""
    files = (path for year in years for path in files_below(year / "Annotations", ".xml"))
    names |= class_names(path for path in files if path not in read)
    names.discard("")
    return VOC_CLASSES if names <= set(VOC_CLASSES) else tuple(sorted(names))


def class_names(files: Iterable[Path]) -> set[str]:
    """The names of the objects in annotation files; those that cannot be read have none."""
    names: set[str] = set()
    for path in files:
        try:
            annotation = parse_annotation(read_limited(path, LARGEST_FILE))
        except (XmlError, OSError):
            continue  # reported when a split with it is read
        names.update(one.name for one in annotation.objects)
    return names


_REMEDIES = {
    "image-missing": "put the image there, or remove it from the list",
    "image-duplicate": "remove the repetition",
    "image-without-label": "put the annotation there, or remove the image from the list",
    "xml-broken": "correct or remove the file",
    "field-missing": "add what is missing",
    "image-unreadable": "replace the image",
    "image-truncated": "copy the image again",
    "class-name": "write the name of the class there",
    "line-broken": "write the name of an image, relative to JPEGImages and without its suffix",
}


def say(
    found: Collection,
    file: str,
    kind: str,
    detail: str,
    *,
    where: str = "",
    effect: Effect = "image left out",
) -> None:
    """Note a problem with its remedy."""
    found.problems.append(Problem(file, where, kind, detail, _REMEDIES[kind], effect))


# --- annotations in XML ---------------------------------------------------------------------------


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


# Where in the document the contents are that matter; parts of objects have boxes elsewhere.
_OF_OBJECT = {("object", tag) for tag in ("name", "difficult", "truncated")} | {
    ("object", "bndbox", corner) for corner in CORNERS
}
_OF_SIZE = {("size", "width"), ("size", "height")}


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


# --- writing --------------------------------------------------------------------------------------


def write_voc(index: DetectionIndex, out: Path, *, images: Placing = "none") -> None:
    """Write an index as a devkit, with full precision: reading it gives the same boxes.

    Images of a devkit keep their year; others go to a folder named after the split, ``VOCtrain``.
    VOC knows no crowds, but difficult objects, which are ignored in the same way: a crowd is
    written as one.

    Args:
        index: What to write.
        out: The folder to make, or to add this split to.
        images: Place the images by hard link, by copy, or not at all.

    Raises:
        DataError: A file is there already with other content, an image cannot be read, or two
            classes have one name, which is all that the layout knows of them.
    """
    for label, why in misnamed(index.classes):
        raise DataError(
            f"{index.root}: the name of class {label} {why}, and the voc layout knows classes by "
            f"their names; {CLASS_NAME_REMEDY}"
        )
    split, targets = _targets(index)
    lists: dict[str, list[str]] = {}
    with writing_folder(out) as folder:
        names = [f"{year}/JPEGImages/{name}" for year, name in targets]
        place_images(index.images, index.files, folder, names, images)
        for image, (year, name) in enumerate(targets):
            stem = name.rpartition(".")[0]
            _write(folder / year / "Annotations" / f"{stem}.xml", _xml(index, image, year, name))
            lists.setdefault(year, []).append(stem)
        for year, stems in lists.items():
            _write(folder / year / f"ImageSets/Main/{split}.txt", "".join(f"{s}\n" for s in stems))
        if index.classes != VOC_CLASSES:
            _write(folder / CLASSES_FILE, "".join(f"{name}\n" for name in index.classes))


def _targets(index: DetectionIndex) -> tuple[str, list[tuple[str, str]]]:
    """The name of the split in the devkit to write, and the year and name of each image."""
    found = [re.fullmatch(r"([^/]+)/JPEGImages/(.+)", name) for name in index.files]
    if index.layout != "voc" or not all(found):
        return index.split, [(f"VOC{index.split}", name) for name in flat_names(index.files)]
    targets = [(match[1], match[2]) for match in found if match]
    prefixes = {f"{year.removeprefix('VOC')}-" for year, _ in targets}
    prefix = next((one for one in prefixes if index.split.startswith(one)), "")
    return index.split.removeprefix(prefix), targets


def _xml(index: DetectionIndex, image: int, year: str, name: str) -> str:
    rows = index.rows(image)
    columns = (
        index.boxes[rows].tolist(),
        index.labels[rows].tolist(),
        (index.difficult[rows] | index.crowd[rows]).tolist(),
        index.truncated[rows].tolist(),
    )
    objects = [
        VocObject(index.classes[label], (x1 + 1, y1 + 1, x2, y2), difficult, truncated)
        for (x1, y1, x2, y2), label, difficult, truncated in zip(*columns, strict=True)
    ]
    width, height = index.sizes[image].tolist()
    return format_annotation(year, name, (width, height), objects)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")


# --- the format -----------------------------------------------------------------------------------


def _recognise(path: Path) -> bool:
    return bool(find_years(path))


def _find(path: Path, split: str) -> FoundSplit:
    years = voc_years(path)
    # The classes may depend on the annotations of other splits.
    contents = [year / part for year in years for part in ("Annotations", "ImageSets/Main")]
    sources = Sources(
        contents=(years[0].parent / CLASSES_FILE, *contents),
        names=tuple(year / "JPEGImages" for year in years),
    )
    return FoundSplit(sources, lambda: read_voc(path, split))


def _stray_labels(path: Path, _: Sequence[DetectionIndex]) -> Iterator[Problem]:
    """Annotations in no list of any task (Main, Layout, Segmentation, ...), or without an image."""
    for year in find_years(path):
        lists = [
            task / name
            for task in folders_in(year / "ImageSets")
            for name in file_names(task)
            if name.endswith(".txt")
        ]
        listed = {name for file in lists for name in _first_words(file)}
        pictures = image_stems(year / "JPEGImages")
        for xml in files_below(year / "Annotations", ".xml"):
            stem = xml.relative_to(year / "Annotations").with_suffix("").as_posix()
            if stem in listed:  # where its image is missing, that is the problem
                continue
            if "/" not in stem and stem not in pictures:
                yield stray_label(xml, "there is no image of this name in JPEGImages")
            else:
                yield stray_label(xml, "no list in ImageSets names it")


def _first_words(path: Path) -> Iterator[str]:
    try:
        text = read_limited(path, LARGEST_LIST).decode("utf-8", "surrogateescape")
    except OSError:  # reported when the split is read
        return
    for line in text.splitlines():
        yield re.sub(r"(\s+-?\d+)+$", "", line.strip())


FORMAT = Format(
    signs="VOC2007 and the like with Annotations, ImageSets/Main and JPEGImages",
    recognise=_recognise,
    splits=voc_splits,
    find=_find,
    write=write_voc,
    stray_labels=_stray_labels,
    lacks={
        "crowd": "crowds, marked difficult instead",
        **{
            name: EXTRAS[name]
            for name in ("areas", "category_ids", "image_ids", "box_ids", "oriented")
        },
    },
)
