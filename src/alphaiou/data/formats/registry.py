"""The data set formats, one line each: everything that lists or opens them reads this table."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from alphaiou.data.formats.files import exists, is_file, is_image, names_below, open_file
from alphaiou.data.problems import DataError

if TYPE_CHECKING:
    from alphaiou.data.formats.base import Format


class Entry(NamedTuple):
    """What the commands list about a format without importing its module.

    Attributes:
        module: The module whose ``FORMAT`` is the :class:`~alphaiou.data.formats.base.Format`.
        written: Whether data sets can be written in this format.
        drawn: Whether a word stands for the data set, which has no files.
        searched: Whether its files may lie anywhere below a folder. It is considered only for data
            sets that have none of the other layouts.
        variant_of: The layout whose data sets have the same files: where both fit, it is this one.
    """

    module: str
    written: bool = True
    drawn: bool = False
    searched: bool = False
    variant_of: str = ""


FORMATS = {
    "voc": Entry("alphaiou.data.formats.voc"),
    "coco": Entry("alphaiou.data.formats.coco"),
    "yolo": Entry("alphaiou.data.formats.yolo"),
    "yolo-obb": Entry("alphaiou.data.formats.yolo_obb", variant_of="yolo"),
    "dota": Entry("alphaiou.data.formats.dota"),
    "darknet": Entry("alphaiou.data.formats.darknet", written=False),
    "labelimg": Entry("alphaiou.data.formats.labelimg", written=False, searched=True),
    "cvat": Entry("alphaiou.data.formats.cvat", written=False, searched=True),
    "csv": Entry("alphaiou.data.formats.csv_rows", written=False, searched=True),
    "shapes": Entry("alphaiou.data.shapes.dataset", written=False, drawn=True),
}
#: The layouts that files can have, and those that can be written.
FILE_LAYOUTS = tuple(name for name, entry in FORMATS.items() if not entry.drawn)
WRITABLE_LAYOUTS = tuple(name for name, entry in FORMATS.items() if entry.written)


def get_format(layout: str) -> Format:
    """The format of a layout, by its name.

    Examples:
        >>> get_format("yolo").lacks["crowd"]
        'crowd marks'
    """
    _check_name(layout)
    found: Format = import_module(FORMATS[layout].module).FORMAT
    return found


def recognise(path: str | Path, layout: str | None = None) -> str:
    """The name of the layout of a data set.

    Args:
        path: As for :func:`alphaiou.data.dataset.load_dataset`.
        layout: The expected layout. It is checked, and needed where the files fit more than one.

    Raises:
        DataError: The data set has no known layout, more than one, or another than expected.
    """
    root = Path(path)
    if layout is not None:
        _check_name(layout)
        if FORMATS[layout].drawn:
            return layout
    drawn = {name: get_format(name) for name, entry in FORMATS.items() if entry.drawn}
    # Only a bare word stands for a drawn set: a folder of that name is ./shapes.
    if layout is None and str(path) == root.name:
        for name, format_ in drawn.items():
            if format_.recognise(root):
                return name
    if not exists(root):
        words = "; ".join(format_.signs for format_ in drawn.values())
        raise DataError(f"{path}: there is no such file or folder; sets that need none are {words}")
    if layout is not None and get_format(layout).recognise(root):
        return layout
    found = _candidates(root)
    if layout is not None:
        other = f"; it looks like {' or '.join(found)}" if found else ""
        signs = get_format(layout).signs
        raise DataError(f"{root}: is not of the {layout} layout, which has {signs}{other}")
    if (not found or is_file(root)) and (other := unreadable(root)):
        raise DataError(f"{root}: {other}")
    if not found:
        signs = "; ".join(f"{name}: {get_format(name).signs}" for name in FILE_LAYOUTS)
        raise DataError(f"{root}: is no data set of a known layout; looked for {signs}")
    if len(found) > 1:
        raise DataError(
            f"{path}: could be {' or '.join(found)}; choose with layout={found[0]!r}, "
            "or name the file rather than the folder"
        )
    return found[0]


def _candidates(root: Path) -> list[str]:
    """The layouts that files may be of."""
    for searched in (False, True):
        names = [name for name in FILE_LAYOUTS if FORMATS[name].searched == searched]
        if found := [name for name in names if get_format(name).recognise(root)]:
            general = {FORMATS[name].variant_of for name in found}
            return [name for name in found if name not in general]
    return []


_FIFTYONE = (
    "convert it with FiftyOne (https://docs.voxel51.com): fiftyone convert --input-type "
    "fiftyone.types.{} --output-type fiftyone.types.COCODetectionDataset"
)
#: Layouts that cannot be read: what tells them, in the name or at the start of a file, and how to
#: convert them.
UNREADABLE: tuple[tuple[str, str, bytes, str], ...] = (
    (
        "TFRecord",
        r".*(\.tfrecords?|\.tfrec|\.record)(-\d+-of-\d+)?",
        rb"",
        "export it from the labelling tool as COCO or Pascal VOC, or "
        + _FIFTYONE.format("TFObjectDetectionDataset"),
    ),
    (
        "Label Studio",
        r".*\.json",
        rb'\A\s*\[(?=[\s\S]*"(annotations|completions)"\s*:\s*\[)'
        rb'(?=[\s\S]*"(result|data|task)"\s*:)(?![\s\S]*"categories")',
        "export it from Label Studio as COCO or YOLO, with the images",
    ),
    (
        "VGG Image Annotator (VIA)",
        r".*\.(json|csv)",
        rb'"_via_img_metadata"|"regions"\s*:|region_shape_attributes',
        "export it from VIA as COCO: Annotation, Export Annotations (COCO format)",
    ),
    (
        "LabelMe",
        r".*\.json",
        rb'"shapes"\s*:\s*\[',
        "convert it to COCO with labelme2coco",
    ),
    (
        "KITTI",
        r".*\.txt",
        rb"^[A-Za-z_]+( -?[\d.]+){14,15}\s*$",
        _FIFTYONE.format("KITTIDetectionDataset"),
    ),
)
#: How many files are looked into, and how many bytes of each, to recognise them.
FILES_SNIFFED, BYTES_SNIFFED = 200, 1 << 13


def unreadable(root: Path) -> str:
    """Which known layout a data set has that cannot be read, and how to convert it; else empty."""
    names = [root.name] if is_file(root) else names_below(root)
    folder = root.parent if is_file(root) else root
    for name in [name for name in names if not is_image(name)][:FILES_SNIFFED]:
        start: bytes | None = None
        for title, pattern, content, remedy in UNREADABLE:
            if not re.fullmatch(pattern, name, re.IGNORECASE):
                continue
            if content and start is None:
                start = _start(folder / name)
            if not content or re.search(content, start or b"", re.MULTILINE):
                return f"is of the {title} layout (such as {name}), which cannot be read; {remedy}"
    return ""


def _start(path: Path) -> bytes:
    try:
        with open_file(path) as file:
            return file.read(BYTES_SNIFFED)
    except OSError:
        return b""


def _check_name(layout: str) -> None:
    if layout not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"layout {layout!r}: there is no such layout; take one of {known}")
