"""COCO: a JSON file of images, annotations and categories, and images in folders or tar files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import numpy as np

from alphaiou._shapes import Bool, Float64, Int64
from alphaiou.data.formats.base import (
    CLASS_NAME_REMEDY,
    EXTRAS,
    Format,
    FoundSplit,
    check_boxes,
    misnamed,
)
from alphaiou.data.formats.files import (
    FolderImages,
    ImageFiles,
    TarImages,
    all_names,
    file_names,
    folders_in,
    image_folders,
    is_file,
    open_file,
    stays_inside,
)
from alphaiou.data.formats.index_cache import Sources
from alphaiou.data.formats.json_stream import Run, parse_run, stream_arrays
from alphaiou.data.formats.splits import file_split
from alphaiou.data.formats.writing import Placing, flat_names, place_images, writing_folder
from alphaiou.data.index import DetectionIndex, Strings
from alphaiou.data.problems import BrokenFileError, DataError, Effect, Problem

#: The name of the file beside the images of a split, as Roboflow exports it.
BESIDE_IMAGES = "_annotations.coco.json"
# COCO's own folder of annotations also has files with no boxes, or not those of all objects.
NOT_BOXES = re.compile(r"(captions|image_info|panoptic|person_keypoints|stuff)_.*")
ROWS_AT_ONCE = 1 << 16
#: The names of annotation files beside folders of images; others are known by their keys.
_USUAL_NAME = re.compile(r"(?i)_annotations\.coco\.json|instances_.*\.json")
#: How many bytes at both ends of a file are searched for the keys of COCO.
SNIFFED = 1 << 14
#: With more files in a folder, there is one per image, which is not COCO.
MOST_SNIFFED = 50
#: How many places are listed in a message.
SHOWN_PLACES = 8


# --- files of a data set --------------------------------------------------------------------------


def annotation_files(root: Path) -> dict[str, Path]:
    """The annotation file of each split under a folder; none if it is no COCO data set.

    They are in ``annotations``, beside the images of a split, or beside the folders of images.
    """
    folder = root / "annotations"
    # Folders and dangling links too: opening one says what it is.
    stems = sorted(Path(name).stem for name in all_names(folder) if name.lower().endswith(".json"))
    files = {
        stem.removeprefix("instances_"): folder / f"{stem}.json"
        for stem in stems
        if not NOT_BOXES.fullmatch(stem)
    }
    others = {}
    for place in (*(one for one in folders_in(root) if one != folder), root):
        there = _files_of_boxes(place)
        for path in there:
            name = place.name if place != root and len(there) == 1 else file_split(path.stem)
            others[path.stem if name in others else name] = path
    return others | files


def _files_of_boxes(folder: Path) -> list[Path]:
    """The annotation files in a folder that has other files too."""
    names = sorted(name for name in all_names(folder) if name.lower().endswith(".json"))
    return [
        folder / name
        for name in names
        if not NOT_BOXES.fullmatch(Path(name).stem)
        and (
            _USUAL_NAME.fullmatch(name)
            or (len(names) <= MOST_SNIFFED and _looks_like_coco(folder / name))
        )
    ]


def _looks_like_coco(path: Path) -> bool:
    """Whether the keys of a COCO file are at the start or at the end of a file."""
    try:
        with open_file(path) as file:
            text = file.read(SNIFFED)
            file.seek(max(0, file.seek(0, 2) - SNIFFED))
            text += file.read()
    except OSError:
        return False
    return sum(re.search(rb'"%s"\s*:\s*\[' % key.encode(), text) is not None for key in LISTS) > 1


def find_annotations(root: Path, split: str) -> Path:
    """The annotation file of a split: ``root`` itself if it is a file.

    The year may be left out: ``train`` finds ``instances_train2017.json`` where there is one year.

    Raises:
        DataError: There is none, or more than one; the message lists the splits there are.
    """
    if is_file(root):
        return root
    files = annotation_files(root)
    if split in files:
        return files[split]
    of_years = [name for name in files if re.fullmatch(re.escape(split) + r"\d{4}", name)]
    if len(of_years) == 1:
        return files[of_years[0]]
    looked_for = (
        f"annotations/{split}.json, annotations/instances_{split}.json, "
        f"annotations/instances_{split}2017.json, {split}/{BESIDE_IMAGES}"
    )
    problem = "more than one year has the split" if of_years else "there is no split"
    raise DataError(
        f"{root}: {problem} {split!r} (looked for {looked_for}); "
        f"the splits are: {', '.join(files) or 'none'}"
    )


def find_images(annotations: Path, split: str) -> FolderImages | TarImages:
    """Where the images of an annotation file are: tar shards or a folder near it.

    Of the places there are, the one that has most of the first images of the file.

    Raises:
        DataError: None of them is anywhere; the message lists the places.
    """
    names = first_names(annotations)
    places = list(_places(annotations, split))
    absent = [len(place.missing(names)) for place in places]
    if names and min(absent) == len(names):
        looked_in = ", ".join(map(_describe, places[:SHOWN_PLACES]))
        raise DataError(
            f"{annotations}: its images ({names[0]} and so on) were not found; "
            f"put them into one of {looked_in}, or into images/{split}/ beside it"
        )
    return places[absent.index(min(absent))]


def _places(annotations: Path, split: str) -> Iterator[FolderImages | TarImages]:
    """The places that exist, the most particular first."""
    beside = annotations.parent
    top = beside.parent if beside.name.lower() == "annotations" else beside
    stem = annotations.stem.removeprefix("instances_")
    for folder in (top, top / "images"):
        for name in dict.fromkeys((split, stem)):
            if shards := _shards(folder, name):
                yield TarImages(shards)
    for folder in image_folders(annotations, split, stem):
        yield FolderImages(folder)


def _shards(folder: Path, name: str) -> tuple[Path, ...]:
    """The tar files of a split by number: ``train.tar``, ``train-0.tar``, ``train-1.tar``, ..."""
    numbered = re.compile(re.escape(name) + r"(?:-(\d+))?\.tar")
    found = [match for file in file_names(folder) if (match := numbered.fullmatch(file))]
    found.sort(key=lambda match: (int(match[1] or -1), match[0]))
    return tuple(folder / match[0] for match in found)


def _describe(place: FolderImages | TarImages) -> str:
    if isinstance(place, FolderImages):
        return f"{place.root}/"
    return ", ".join(map(str, place.shards))


# --- elements of the file, and their tables -------------------------------------------------------


Id = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Pixels = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Flag = bool | int | None


class CocoImage(msgspec.Struct, gc=False):
    """An element of ``images``; the fields that are not used are passed over."""

    id: Id
    file_name: str
    width: Pixels | None = None
    height: Pixels | None = None


class CocoAnnotation(msgspec.Struct, gc=False):
    """An element of ``annotations``, with the two fields of VOC that converted sets have."""

    id: Id
    image_id: Id
    category_id: Id
    bbox: tuple[float, float, float, float]
    area: float | None = None
    iscrowd: Flag = None
    difficult: Flag = None
    truncated: Flag = None


class CocoCategory(msgspec.Struct, gc=False):
    """An element of ``categories``."""

    id: Id
    name: str


@dataclass(frozen=True)
class _List:
    """One of the lists: what its elements are, and what it costs if one cannot be used."""

    singular: str
    element: type[msgspec.Struct]
    decoder: msgspec.json.Decoder[list[Any]]
    cost: Effect


LISTS = {
    "images": _List("image", CocoImage, msgspec.json.Decoder(list[CocoImage]), "image left out"),
    "annotations": _List(
        "annotation", CocoAnnotation, msgspec.json.Decoder(list[CocoAnnotation]), "box left out"
    ),
    "categories": _List("category", CocoCategory, msgspec.json.Decoder(list[CocoCategory]), "kept"),
}
IMAGE_ROW = np.dtype([("id", "i8"), ("size", "i4", 2)])
BOX_ROW = np.dtype(
    [
        ("id", "i8"),
        ("image_id", "i8"),
        ("category_id", "i8"),
        ("bbox", "f8", 4),
        ("area", "f8"),  # NaN where there is none
        ("flags", "?", 3),  # crowd, difficult, truncated
    ]
)


@dataclass
class CocoTables:
    """What a COCO file holds, as found, and what is wrong in it.

    Attributes:
        path: The file.
        images: Id and size (width, height) of each image; sizes of 0 where there are none.
        names: The ``file_name`` of each image, with forward slashes.
        boxes: The annotations.
        categories: The categories.
        problems: What has been found to be wrong.
    """

    path: Path
    images: np.ndarray
    names: list[str]
    boxes: np.ndarray
    categories: list[CocoCategory]
    problems: list[Problem]

    @classmethod
    def empty(cls, path: Path) -> CocoTables:
        """The tables of a file, before anything is read."""
        return cls(path, np.zeros(0, IMAGE_ROW), [], np.zeros(0, BOX_ROW), [], [])

    def say(
        self,
        where: str,
        kind: str,
        detail: str,
        remedy: str,
        effect: Effect = "kept",
        *,
        count: int = 1,
    ) -> None:
        """Add to the problems."""
        self.problems.append(Problem(str(self.path), where, kind, detail, remedy, effect, count))


def read_tables(path: Path) -> CocoTables:
    """Read the three lists of a COCO file, in whatever order they come.

    Raises:
        DataError: The file is no JSON, or lacks one of the lists.
    """
    tables = CocoTables.empty(path)
    image_rows, box_rows = [tables.images], [tables.boxes]
    counts: dict[str, int] = {}
    for run in stream_arrays(path, LISTS):
        elements = _decode(run, tables, counts.get(run.key, 0))
        counts[run.key] = counts.get(run.key, 0) + len(elements)
        usable = [element for element in elements if element is not None]
        if run.key == "images":
            tables.names += map(_name, usable)
            image_rows.append(_image_rows(usable))
        elif run.key == "annotations":
            box_rows.append(_box_rows(usable))
        else:
            tables.categories += usable
    if absent := [f'"{key}"' for key in LISTS if key not in counts]:
        raise BrokenFileError(
            f"{path}: there is no list {' and no list '.join(absent)}; a COCO file of boxes has "
            '"images", "annotations" and "categories"'
        )
    tables.images, tables.boxes = np.concatenate(image_rows), np.concatenate(box_rows)
    return tables


def first_names(path: Path) -> list[str]:
    """The file names of the first images, as many as are decoded at once, and not the boxes."""
    for run in stream_arrays(path, ["images"]):
        elements = _decode(run, CocoTables.empty(path), 0)
        if names := [_name(element) for element in elements if element is not None]:
            return names
    return []


def _name(image: CocoImage) -> str:
    return image.file_name.replace("\\", "/")


def _image_rows(images: Sequence[CocoImage]) -> np.ndarray:
    return np.array([(i.id, (i.width or 0, i.height or 0)) for i in images], dtype=IMAGE_ROW)


def _box_rows(boxes: Sequence[CocoAnnotation]) -> np.ndarray:
    rows = np.empty(len(boxes), dtype=BOX_ROW)
    for name in ("id", "image_id", "category_id"):
        rows[name] = [getattr(box, name) for box in boxes]
    rows["bbox"] = np.array([box.bbox for box in boxes], dtype=np.float64).reshape(-1, 4)
    rows["area"] = np.array([box.area for box in boxes], dtype=np.float64)  # None becomes NaN
    flags = [(box.iscrowd, box.difficult, box.truncated) for box in boxes]
    rows["flags"] = np.array(flags, dtype=bool).reshape(-1, 3)  # None becomes False
    return rows


def _decode(run: Run, tables: CocoTables, first: int) -> list[Any]:
    """The elements of a run; None for one that cannot be used, which is then said."""
    try:
        return LISTS[run.key].decoder.decode(run.text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        elements = parse_run(tables.path, run)
    return [
        _convert(element, f"{run.key}[{first + place}]", LISTS[run.key], tables)
        for place, element in enumerate(elements)
    ]


def _convert(element: object, where: str, kind: _List, tables: CocoTables) -> msgspec.Struct | None:
    """One element of a run that is not all as it should be; None if it cannot be used."""
    if isinstance(element, dict):
        # 7.0 is an id: some tools write every number like that.
        element = {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in element.items()
        }
        if isinstance(element.get("id"), int):
            where = f"{kind.singular} id {element['id']}"
    field = ""
    try:
        converted = msgspec.convert(element, kind.element)
        if isinstance(converted, CocoImage):
            field = "file_name"
            converted.file_name.encode()
        elif isinstance(converted, CocoCategory):
            field = "name"
            converted.name.encode()
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        problem = "field-missing" if "missing required field" in str(error) else "field-wrong"
        tables.say(where, problem, _in_words(error, field), "correct it in the file", kind.cost)
        return None
    return converted


def _in_words(error: Exception, field: str) -> str:
    """The message of the decoder in the words of the file."""
    if isinstance(error, UnicodeEncodeError):
        return f'"{field}" holds half of a surrogate pair'
    message, _, place = str(error).partition(" - at ")
    name = place.strip("`").removeprefix("$.")
    message = message.replace("`", "").replace("Object missing required field ", "there is no ")
    message = message.replace("Expected", "expected")
    return f'"{name}": {message}' if name else message


# --- reading --------------------------------------------------------------------------------------


def read_coco(annotations: Path, split: str, images: ImageFiles) -> DetectionIndex:
    """Read a COCO file, in memory for its boxes rather than for its text.

    Labels count the categories from 0 in the order of their ids. Images keep the order of the
    file, and so do the boxes of an image.

    Args:
        annotations: The JSON file.
        split: The name that the split is to have.
        images: Where the images are.

    Raises:
        DataError: The file is no JSON, lacks one of the three lists, or has no image to use.
    """
    tables = read_tables(annotations)
    category_ids, classes = _classes(tables)
    usable = _usable_images(tables, images)
    if tables.problems and not len(usable):
        raise DataError(f"{annotations}: no image can be used; the first: {tables.problems[0]}")
    rows, image_of_box, labels = _usable_boxes(tables, usable, category_ids)
    found, corners = tables.boxes[rows], _corners(tables.boxes["bbox"][rows])
    counts = np.bincount(image_of_box, minlength=len(usable))
    return DetectionIndex(
        layout="coco",
        root=annotations,
        split=split,
        classes=classes,
        category_ids=category_ids,
        images=images,
        files=Strings.pack([tables.names[image] for image in usable]),
        image_ids=tables.images["id"][usable],
        sizes=tables.images["size"][usable],
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        boxes=corners,
        labels=labels,
        box_ids=found["id"].copy(),
        areas=found["area"].copy(),
        crowd=found["flags"][:, 0].copy(),
        difficult=found["flags"][:, 1].copy(),
        truncated=found["flags"][:, 2].copy(),
        problems=tuple(tables.problems),
    )


def _corners(bbox: Float64[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 4"]:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate([bbox[:, :2], bbox[:, :2] + bbox[:, 2:]], axis=1)


def _classes(tables: CocoTables) -> tuple[Int64[np.ndarray, " classes"], tuple[str, ...]]:
    """The ids of the categories in ascending order, and their names."""
    names: dict[int, str] = {}
    for category in tables.categories:
        if category.id in names:
            detail = f"{category.name!r} has the id of {names[category.id]!r}, which is used"
            where = f"category id {category.id}"
            tables.say(where, "id-duplicate", detail, "give each category an id of its own")
        names.setdefault(category.id, category.name)
    ids = sorted(names)
    for place, why in misnamed([names[one] for one in ids]):
        detail, remedy = f'"name" {why}', CLASS_NAME_REMEDY
        tables.say(f"category id {ids[place]}", "class-name", detail, remedy)
    return np.array(ids, dtype=np.int64), tuple(names[one] for one in ids)


def _usable_images(tables: CocoTables, images: ImageFiles) -> Int64[np.ndarray, " usable"]:
    """The rows of the images that are there once, whose file is there and whose size is known."""
    ids, names = tables.images["id"], tables.names
    usable = np.ones(len(ids), dtype=bool)
    with_boxes, counts = np.unique(tables.boxes["image_id"], return_counts=True)
    boxes_of = dict(zip(with_boxes.tolist(), counts.tolist(), strict=True))

    def leave_out(row: int, kind: str, detail: str, remedy: str) -> None:
        usable[row] = False
        tables.say(f"image id {ids[row]}", kind, detail, remedy, "image left out")

    for row in np.flatnonzero(_repeated(ids)).tolist():
        detail = f"{names[row]} has the id of an image before it"
        leave_out(row, "id-duplicate", detail, "give each image an id of its own")
    for row in images.missing(names):
        if usable[row]:
            count = boxes_of.get(int(ids[row]), 0)
            detail = f"there is no such file; image id {ids[row]} of {tables.path.name} and its "
            detail += f"boxes ({count}) go with it"
            remedy = "fetch the image, or remove it from the file"
            problem = Problem(
                images.where(names[row]), "", "image-missing", detail, remedy, "image left out"
            )
            usable[row] = False
            tables.problems.append(problem)
    for row in np.flatnonzero(usable & (tables.images["size"] <= 0).any(axis=1)).tolist():
        wrong = "width {} and height {}".format(*tables.images["size"][row])
        size = _size_of_file(images, names[row])
        if size is None:
            detail = f"{wrong}, and {images.where(names[row])} does not say either"
            leave_out(row, "image-unreadable", detail, "write its width and height into the file")
        else:
            tables.images["size"][row] = size
            detail = f"{wrong}; the image itself is {size[0]} by {size[1]}, which is used"
            remedy = "write its width and height into the file"
            tables.say(f"image id {ids[row]}", "field-missing", detail, remedy)
    _say_shared_files(tables, usable)
    return np.flatnonzero(usable)


def _size_of_file(images: ImageFiles, name: str) -> tuple[int, int] | None:
    from alphaiou.data.images import image_size

    try:
        return image_size(images.read(name))
    except DataError:
        return None


def _say_shared_files(tables: CocoTables, usable: Bool[np.ndarray, " images"]) -> None:
    first: dict[str, int] = {}
    for row in np.flatnonzero(usable).tolist():
        name, number = tables.names[row], int(tables.images["id"][row])
        if first.setdefault(name, number) != number:
            detail = f"{name} is also image id {first[name]}"
            remedy = "put the boxes of a file under one image"
            tables.say(f"image id {number}", "image-duplicate", detail, remedy)


def _usable_boxes(
    tables: CocoTables, images: Int64[np.ndarray, " usable"], category_ids: Int64[np.ndarray, " c"]
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"], np.ndarray]:
    """The rows of the boxes to keep, by image; the position of their image, and their label."""
    table, path = tables.boxes, str(tables.path)
    ids = table["id"]
    astray = np.flatnonzero(_find(tables.images["id"], table["image_id"]) < 0)
    for row, count in _counted(table["image_id"], astray):
        tables.say(
            f"annotation id {ids[row]}",
            "id-unknown",
            f"its image id {table['image_id'][row]} is not among the images that can be read"
            + (
                f", nor is that of {count - 1:,} more boxes with this image id" if count > 1 else ""
            ),
            "correct the id, or add the image",
            "box left out",
            count=count,
        )
    for row, count in _counted(ids, np.flatnonzero(_repeated(ids))):
        detail = f"the id is used {count + 1:,} times"
        remedy = "give each annotation an id of its own"
        tables.say(f"annotation id {ids[row]}", "id-duplicate", detail, remedy, count=count)
    _complete_areas(tables)
    image_of_box = _find(tables.images["id"][images], table["image_id"])
    rows = np.flatnonzero(image_of_box >= 0)
    image_of_box = image_of_box[rows]
    numbers = table["category_id"][rows]
    labels = _find(category_ids, numbers)
    unknown = labels < 0
    labels[unknown] = -1 - np.unique(numbers[unknown], return_inverse=True)[1].reshape(-1)
    kept, problems = check_boxes(
        _corners(table["bbox"][rows]),
        labels.astype(np.int32),
        image_of_box,
        tables.images["size"][images],
        lambda row: (path, f"annotation id {ids[rows[row]]}"),
        class_name=lambda row: f"category id {numbers[row]}",
    )
    tables.problems += problems
    order = np.argsort(image_of_box[kept], kind="stable")
    return rows[kept][order], image_of_box[kept][order], labels[kept][order].astype(np.int32)


def _complete_areas(tables: CocoTables) -> None:
    """Width times height where no area is given, or none that can be one."""
    table = tables.boxes
    with np.errstate(over="ignore", invalid="ignore"):
        own = table["bbox"][:, 2] * table["bbox"][:, 3]
    impossible = np.isinf(table["area"]) | (table["area"] < 0)
    for row, count in _counted(table["area"], np.flatnonzero(impossible)):
        detail = f'"area" is {table["area"][row]:g}; width times height is used'
        detail += f", and so for {count - 1:,} more boxes" if count > 1 else ""
        remedy = "write the area in pixels, or leave the field out"
        where = f"annotation id {table['id'][row]}"
        tables.say(where, "field-wrong", detail, remedy, count=count)
    table["area"] = np.where(impossible | np.isnan(table["area"]), own, table["area"])


def _find(ids: Int64[np.ndarray, " n"], wanted: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
    """The first position of each number in ``ids``; -1 where it is not there."""
    if len(ids) == 0:
        return np.full(len(wanted), -1)
    order = np.argsort(ids, kind="stable")
    place = np.searchsorted(ids, wanted, sorter=order).clip(max=len(ids) - 1)
    return np.where(ids[order[place]] == wanted, order[place], -1)


def _repeated(ids: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Whether a number is there before."""
    repeated: Bool[np.ndarray, " n"] = _find(ids, ids) != np.arange(len(ids))
    return repeated


def _counted(values: np.ndarray, rows: Int64[np.ndarray, " m"]) -> list[tuple[int, int]]:
    """Of rows with the same value: the first of them, and their number; in the order of rows."""
    _, first, counts = np.unique(values[rows], return_index=True, return_counts=True)
    return sorted(zip(rows[first].tolist(), counts.tolist(), strict=True))


# --- writing --------------------------------------------------------------------------------------


def write_coco(index: DetectionIndex, out: Path, *, images: Placing = "none") -> None:
    """Write an index as ``annotations/<split>.json``, and its images to ``images/<split>/``.

    Reading the file gives the same boxes, ids, areas and flags, to the last bit for boxes that came
    from a COCO file. The names of images stay, or lose their folders if they come from another
    layout. The same index gives the same bytes.

    Args:
        index: What to write.
        out: The folder to make, or to add this split to.
        images: Place the images by hard link, by copy, or not at all.

    Raises:
        DataError: A file is there already with other content, or an image cannot be read.
    """
    names = list(index.files)
    if index.layout != "coco" or not all(map(stays_inside, names)):
        names = flat_names(names)
    with writing_folder(out) as folder:
        place_images(index.images, index.files, folder / "images" / index.split, names, images)
        path = folder / "annotations" / f"{index.split}.json"
        path.parent.mkdir()
        with path.open("wb") as file:
            file.write(b"{")
            _write_list(file, "images", _image_elements(index, names))
            file.write(b",\n")
            _write_list(file, "annotations", _annotation_elements(index))
            file.write(b",\n")
            _write_list(file, "categories", _category_elements(index))
            file.write(b"}\n")


def _write_list(file: BinaryIO, key: str, elements: Iterable[dict[str, object]]) -> None:
    """One element a line, so that files can be compared; each goes as soon as it is there."""
    file.write(b'"%s":[' % key.encode())
    encode = msgspec.json.Encoder().encode
    for number, element in enumerate(elements):
        file.write(b",\n" if number else b"\n")
        file.write(encode(element))
    file.write(b"]")


def _image_elements(index: DetectionIndex, names: list[str]) -> Iterator[dict[str, object]]:
    rows = zip(index.image_ids.tolist(), names, index.sizes.tolist(), strict=True)
    for number, name, (width, height) in rows:
        yield {"id": number, "file_name": name, "width": width, "height": height}


def _annotation_elements(index: DetectionIndex) -> Iterator[dict[str, object]]:
    columns = {
        "id": index.box_ids,
        "image_id": index.image_ids[index.image_of_box()],
        "category_id": index.category_ids[index.labels],
        "bbox": _extents(index.boxes),
        "area": index.areas,
        "iscrowd": index.crowd.astype(int),
    }
    columns |= {
        name: flags.astype(int)
        for name, flags in (("difficult", index.difficult), ("truncated", index.truncated))
        if flags.any()  # fields of VOC's: a set that has none of them is plain COCO
    }
    for start in range(0, index.num_boxes, ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        for values in zip(*(column[rows].tolist() for column in columns.values()), strict=True):
            yield dict(zip(columns, values, strict=True))


def _category_elements(index: DetectionIndex) -> Iterator[dict[str, object]]:
    for number, name in zip(index.category_ids.tolist(), index.classes, strict=True):
        yield {"id": number, "name": name}


def _extents(boxes: Float64[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 4"]:
    """From corners to x, y, width and height, such that adding them gives the same corners."""
    low, high = boxes[:, :2], boxes[:, 2:]
    extent = high - low
    # The rounded difference may miss the corner by a bit; one of its neighbours then does not.
    for neighbour in (np.nextafter(extent, np.inf), np.nextafter(extent, -np.inf)):
        better = (low + extent != high) & (low + neighbour == high)
        extent = np.where(better, neighbour, extent)
    return np.concatenate([low, extent], axis=1)


# --- the format -----------------------------------------------------------------------------------


def _recognise(path: Path) -> bool:
    return path.suffix.lower() == ".json" if is_file(path) else bool(annotation_files(path))


def _splits(path: Path) -> tuple[str, ...]:
    return (
        (file_split(path.stem, path.parent.name),) if is_file(path) else (*annotation_files(path),)
    )


def _find_split(path: Path, split: str) -> FoundSplit:
    annotations = find_annotations(path, split)
    images = find_images(annotations, split)
    folders = (images.root,) if isinstance(images, FolderImages) else ()
    shards = images.shards if isinstance(images, TarImages) else ()
    # The names of the annotation files count: a new one may be a better match for the split.
    sources = Sources((annotations, *shards), (annotations.parent, *folders))
    return FoundSplit(sources, lambda: read_coco(annotations, split, images))


FORMAT = Format(
    signs="a COCO .json file, in annotations, beside the images or beside their folders",
    recognise=_recognise,
    splits=_splits,
    find=_find_split,
    write=write_coco,
    lacks={"oriented": EXTRAS["oriented"]},
    broken_kind="json-broken",
)
