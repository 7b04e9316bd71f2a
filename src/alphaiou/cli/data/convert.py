"""``alphaiou data convert``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from alphaiou.cli.data.opening import AllSplits, NewImages, SetPath, WritableLayout
from alphaiou.cli.options import NewFolder


@dataclass(frozen=True)
class DataConvert:
    """Write a data set in another layout.

    Boxes keep their exact place. What the new layout cannot hold is counted.
    """

    path: SetPath

    to: WritableLayout
    """The layout to write."""

    out: NewFolder

    split: AllSplits = ()

    without: Annotated[
        tuple[Literal["crowd", "difficult"], ...],
        tyro.conf.arg(help_behavior_hint="(default: leave out none)"),
    ] = ()
    """Boxes to leave out."""

    images: NewImages = "link"


def run_data_convert(command: DataConvert) -> int:
    """Convert the splits, and say what was lost."""
    from rich.console import Console

    from alphaiou.cli.data.opening import open_splits, say_written
    from alphaiou.data.convert import convert_splits
    from alphaiou.data.formats.registry import get_format

    console = Console()
    splits = open_splits(command.path, command.split, console)
    for mark in command.without:
        for place, index in enumerate(splits):
            marked = getattr(index, mark)
            splits[place] = index.drop_boxes(marked)
            console.print(f"{index.split}: {marked.sum():,} {mark} boxes left out", highlight=False)
    written = convert_splits(splits, command.to, command.out, images=command.images)
    for index in splits:
        lost = get_format(command.to).lost(index)
        if lost:
            text = ", ".join(f"{count:,} {what}" for what, count in lost.items())
            console.print(
                f"{index.split}: not held by the {command.to} layout: {text}",
                highlight=False,
                soft_wrap=True,
            )
    say_written(console, command.out, written=written)
    return 0
