"""What the commands on data sets share: options, opening splits, reporting what was done."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.data.formats.registry import FILE_LAYOUTS, FORMATS, WRITABLE_LAYOUTS

if TYPE_CHECKING:
    from rich.console import Console

    from alphaiou.data.index import DetectionIndex

    FileLayout = str
    WritableLayout = str
else:  # the choices of options
    FileLayout = Literal[FILE_LAYOUTS]
    WritableLayout = Literal[WRITABLE_LAYOUTS]

#: The data set that a command reads.
SetPath = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(
        metavar="PATH",
        help="The data set: a folder, an annotation file, or shapes, which is drawn.",
    ),
]

#: The splits of it, all of them by default.
AllSplits = Annotated[
    tuple[str, ...],
    tyro.conf.arg(
        metavar="SPLIT ...", help="Splits to take.", help_behavior_hint="(default: all of them)"
    ),
]

#: The layout of a set that is made of another one.
NewLayout = Annotated[
    WritableLayout | None,
    tyro.conf.DisallowNone,
    tyro.conf.arg(help="The layout to write.", help_behavior_hint="(default: that of PATH)"),
]

#: What becomes of the images.
NewImages = Annotated[
    Literal["link", "copy", "none"],
    tyro.conf.arg(
        help="How the images get there: hard links (copies where that cannot be), copies, or not."
    ),
]


def open_splits(path: str, names: Sequence[str], console: Console) -> list[DetectionIndex]:
    """Read splits of a data set, all of them if none is named, and say what was found."""
    from alphaiou.data.dataset import load_dataset, split_names
    from alphaiou.data.problems import left_out

    splits = [load_dataset(path, name).index for name in (names or split_names(path))]
    for index in splits:
        console.print(str(index), highlight=False, soft_wrap=True)
        if left_out(index.problems):  # how many and why is in the log
            console.print(f"alphaiou data check {path} lists what was left out", soft_wrap=True)
    return splits


def layout_to_write(splits: Sequence[DetectionIndex], wanted: str | None) -> str:
    """The layout asked for, else that of the input; COCO where that cannot be written."""
    if wanted is not None:
        return wanted
    layout = splits[0].layout
    return layout if FORMATS[layout].written else "coco"


def say_written(console: Console, out: Path, *, written: bool) -> None:
    """Say whether a folder was written, or left as it was because it was the same."""
    text = f"wrote {out}" if written else f"{out} is there already, made the same way: left as is"
    console.print(text, highlight=False, soft_wrap=True)
