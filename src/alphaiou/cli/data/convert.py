"""``alphaiou data convert``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class DataConvert:
    """Write a data set in another layout.

    Boxes keep their exact place. What the layout cannot hold is counted and said: YOLO has no
    crowds, difficult or truncated objects, VOC no crowds, and neither has numbers or areas.
    """

    path: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """The data set: a folder, an annotation file, or shapes."""

    to: Literal["voc", "coco", "yolo"]
    """The layout to write."""

    out: Path
    """Folder to write to."""

    split: tuple[str, ...] = ()
    """Splits to convert; all of them unless given."""

    without: tuple[Literal["crowd", "difficult"], ...] = ()
    """Leave these boxes out."""

    images: Literal["link", "copy", "none"] = "link"
    """How the images get there: by hard link (a copy where that cannot be), copied, or not."""


def run_data_convert(command: DataConvert) -> int:
    """Convert the splits, and say what was lost."""
    from rich.console import Console

    from alphaiou.cli.data.opening import open_splits, say_written
    from alphaiou.data.convert import convert_splits, lost_in

    console = Console()
    splits = open_splits(command.path, command.split, console)
    for mark in command.without:
        for place, index in enumerate(splits):
            marked = getattr(index, mark)
            splits[place] = index.drop_boxes(marked)
            console.print(f"{index.split}: {marked.sum():,} {mark} boxes left out", highlight=False)
    written = convert_splits(splits, command.to, command.out, images=command.images)
    for index in splits:
        lost = lost_in(index, command.to)
        if lost:
            text = ", ".join(f"{count:,} {what}" for what, count in lost.items())
            console.print(
                f"{index.split}: not held by the {command.to} layout: {text}",
                highlight=False,
                soft_wrap=True,
            )
    say_written(console, command.out, written=written)
    return 0
