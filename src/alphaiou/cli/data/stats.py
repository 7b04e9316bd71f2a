"""``alphaiou data stats``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.data.opening import AllSplits, SetPath
from alphaiou.cli.options import NewFolder

if TYPE_CHECKING:
    from rich.table import Table

    from alphaiou.data.stats import DatasetStats, SizeCounts, Spread

#: Classes that the terminal shows; the pictures and stats.json have more.
SHOWN_CLASSES = 100


@dataclass(frozen=True)
class DataStats:
    """Count and measure the boxes of a data set.

    Prints tables and writes to --out, in a folder for each split:
    - boxes.png, .svg     sizes, aspect ratios, boxes per image, centres
    - classes.png, .svg   boxes of each class
    - stats.json          all numbers
    - pictures.png, .svg  some images with their boxes, with --draw
    """

    path: SetPath

    split: AllSplits = ()

    out: NewFolder = Path("runs/stats")

    draw: Annotated[int, tyro.conf.arg(metavar="N")] = 0
    """How many images of each split to draw with their boxes."""


def run_data_stats(command: DataStats) -> int:
    """Print the tables, and write the pictures and the numbers."""
    from rich.console import Console

    from alphaiou._files import write_file
    from alphaiou.cli import UsageError
    from alphaiou.cli.data.opening import open_splits
    from alphaiou.cli.options import make_folder
    from alphaiou.data.figures import save_labels_figure, save_stats_figures
    from alphaiou.data.stats import dataset_stats

    if command.draw < 0:
        raise UsageError(f"--draw {command.draw}: must be 0 or more")
    console = Console()
    splits = open_splits(command.path, command.split, console)
    make_folder(command.out)
    all_stats = [dataset_stats(index) for index in splits]
    for table in (_overview(all_stats), _spreads(all_stats), _classes(all_stats)):
        console.print(table)
    for index, stats in zip(splits, all_stats, strict=True):
        folder = command.out / index.split
        write_file(folder / "stats.json", stats.to_json())
        paths = [folder / "stats.json", *save_stats_figures(index, stats, folder)]
        if command.draw:
            paths += save_labels_figure(index, command.draw, folder / "pictures")
        for path in paths:
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _overview(all_stats: Sequence[DatasetStats]) -> Table:
    """A row for each count, a column for each split."""
    from alphaiou.data.stats import REFERENCE_SIDE

    rows = {
        "images": [f"{stats.images:,}" for stats in all_stats],
        "  without boxes": [f"{stats.images_without_boxes:,}" for stats in all_stats],
        "boxes": [f"{stats.boxes:,}" for stats in all_stats],
        "  crowds": [f"{stats.crowd:,}" for stats in all_stats],
        "  difficult": [f"{stats.difficult:,}" for stats in all_stats],
        "  truncated": [f"{stats.truncated:,}" for stats in all_stats],
        "small / medium / large": [_shares(stats.sizes) for stats in all_stats],
        f"  images scaled to {REFERENCE_SIDE} px": [
            _shares(stats.sizes_at_reference) for stats in all_stats
        ],
    }
    table = _table("", [stats.split for stats in all_stats])
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _spreads(all_stats: Sequence[DatasetStats]) -> Table:
    """A row for each quantity and split."""
    table = _table("split", ["mean", "min", "25 %", "median", "75 %", "max"], "quantity")
    quantities = {
        "boxes per image": "boxes_per_image",
        "image width, px": "image_width",
        "image height, px": "image_height",
        "box width, px": "box_width",
        "box height, px": "box_height",
        "√(share of image)": "relative_size",
        "width / height": "aspect_ratio",
    }
    for name, field in quantities.items():
        for place, stats in enumerate(all_stats):
            cells = _cells(getattr(stats, field))
            table.add_row("" if place else name, stats.split, *cells)
    return table


def _classes(all_stats: Sequence[DatasetStats]) -> Table:
    """A row for each class, the most frequent of the first split on top."""
    columns = [f"{stats.split} {what}" for stats in all_stats for what in ("boxes", "images")]
    table = _table("class", columns)
    counts = [{one.name: one for one in stats.classes} for stats in all_stats]
    ranked = sorted(all_stats[0].classes, key=lambda one: -one.boxes) if all_stats else []
    for one in ranked[:SHOWN_CLASSES]:
        found = [of_split.get(one.name) for of_split in counts]
        cells = [f"{number:,}" for c in found for number in ((c.boxes, c.images) if c else (0, 0))]
        table.add_row(one.name, *cells)
    if len(ranked) > SHOWN_CLASSES:
        table.caption = f"{len(ranked) - SHOWN_CLASSES:,} rarer classes are in stats.json"
    return table


def _table(first: str, numbers: Sequence[str], *texts: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in (*texts, first):
        table.add_column(name, no_wrap=True)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _cells(spread: Spread | None) -> list[str]:
    from dataclasses import astuple

    return ["–"] * 6 if spread is None else [_number(value) for value in astuple(spread)]


def _number(value: float) -> str:
    """With three figures, two where a third would not fit into the table."""
    return f"{value:.2g}" if 0 < abs(value) < 0.01 else f"{value:,.3g}"


def _shares(sizes: SizeCounts) -> str:
    total = sizes.small + sizes.medium + sizes.large
    if not total:
        return "–"
    return " / ".join(f"{count / total:.0%}" for count in (sizes.small, sizes.medium, sizes.large))
