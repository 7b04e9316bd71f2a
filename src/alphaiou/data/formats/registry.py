"""The data set formats, one line each: everything that lists or opens them reads this table."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from alphaiou.data.problems import DataError

if TYPE_CHECKING:
    from alphaiou.data.formats.base import Format


class Entry(NamedTuple):
    """What the commands list about a format without importing its module.

    Attributes:
        module: The module whose ``FORMAT`` is the :class:`~alphaiou.data.formats.base.Format`.
        written: Whether data sets can be written in this format.
        drawn: Whether a word stands for the data set, which has no files.
    """

    module: str
    written: bool = True
    drawn: bool = False


FORMATS = {
    "voc": Entry("alphaiou.data.formats.voc"),
    "coco": Entry("alphaiou.data.formats.coco"),
    "yolo": Entry("alphaiou.data.formats.yolo"),
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
    if not root.exists():
        words = "; ".join(format_.signs for format_ in drawn.values())
        raise DataError(f"{path}: there is no such file or folder; sets that need none are {words}")
    found = [name for name in FILE_LAYOUTS if get_format(name).recognise(root)]
    if layout in found:
        return layout
    if layout is not None:
        other = f"; it looks like {' or '.join(found)}" if found else ""
        signs = get_format(layout).signs
        raise DataError(f"{root}: is not of the {layout} layout, which has {signs}{other}")
    if not found:
        signs = "; ".join(f"{name}: {get_format(name).signs}" for name in FILE_LAYOUTS)
        raise DataError(f"{root}: is no data set of a known layout; looked for {signs}")
    if len(found) > 1:
        raise DataError(
            f"{path}: could be {' or '.join(found)}; choose with layout={found[0]!r}, "
            "or name the file rather than the folder"
        )
    return found[0]


def _check_name(layout: str) -> None:
    if layout not in FORMATS:
        known = ", ".join(FORMATS)
        raise DataError(f"layout {layout!r}: there is no such layout; take one of {known}")
