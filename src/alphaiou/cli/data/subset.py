"""``alphaiou data subset``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from alphaiou.cli.data.opening import NewImages, NewLayout, SetPath
from alphaiou.cli.options import NewFolder


@dataclass(frozen=True)
class DataSubset:
    """Write a seeded part of a data set; smaller parts lie inside larger ones."""

    path: SetPath

    fraction: float
    """Share of the images to take, such as 0.25."""

    out: NewFolder

    seed: int = 0
    """Another seed takes other images."""

    split: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SPLIT ...")] = ("train",)
    """Splits to take a part of; others are not written."""

    layout: NewLayout = None

    images: NewImages = "link"


def run_data_subset(command: DataSubset) -> int:
    """Write the part, and say how many images it has."""
    from rich.console import Console

    from alphaiou.cli import UsageError
    from alphaiou.cli.data.opening import layout_to_write, open_splits, say_written
    from alphaiou.data.problems import DataError
    from alphaiou.data.subset import write_subset

    if not 0 < command.fraction <= 1:
        raise UsageError(f"--fraction {command.fraction:g}: must be above 0 and at most 1")
    console = Console()
    splits = open_splits(command.path, command.split, console)
    layout = layout_to_write(splits, command.layout)
    try:
        parts, written = write_subset(
            splits, command.fraction, command.seed, command.out, layout, images=command.images
        )
    except DataError:
        raise
    except ValueError as error:
        raise UsageError(f"--fraction: {error}") from None
    for whole, part in zip(splits, parts, strict=True):
        console.print(
            f"{part.split}: {len(part):,} of {len(whole):,} images, {part.num_boxes:,} boxes "
            f"(fraction {command.fraction:g}, seed {command.seed})",
            highlight=False,
            soft_wrap=True,
        )
    say_written(console, command.out, written=written)
    return 0
