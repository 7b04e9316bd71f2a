"""``alphaiou data noise``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.data.opening import NewImages, NewLayout, SetPath
from alphaiou.cli.options import NewFolder

if TYPE_CHECKING:
    from rich.table import Table

    from alphaiou.data.noise import NoisySet


@dataclass(frozen=True)
class DataNoise:
    """Write a data set with the paper's noise on every box.

    Centre and sides move by up to the rate times the side, inside the image.

    It depends on the seed, the image's name and the place among its boxes alone.

    Writes to --out:
    - the noisy splits, in the layout of the input or in --layout
    - clean/       their clean annotations, for audit
    - noise.json   rate, seed, source, mean IoU to the clean boxes
    - pictures/    noisy_boxes.png and .svg, with --pictures
    """

    path: SetPath

    rate: float
    """The rate of the noise, from 0 to below 1; the paper takes 0.1, 0.2 and 0.3."""

    out: NewFolder

    seed: int = 0
    """Seed of the noise."""

    split: Annotated[tuple[str, ...], tyro.conf.arg(metavar="SPLIT ...")] = ("train",)
    """Splits to put noise on; others are not written: test on clean boxes."""

    layout: NewLayout = None

    images: NewImages = "link"

    pictures: int = 0
    """Draw so many images of the first split with clean and with noisy boxes."""

    force: bool = False
    """Add noise to a set that has noise already."""


def run_data_noise(command: DataNoise) -> int:
    """Write the noisy set, and print how far its boxes are from the clean ones."""
    from rich.console import Console

    from alphaiou.cli import UsageError
    from alphaiou.cli.data.opening import layout_to_write, open_splits, say_written
    from alphaiou.data.noise import PAPER_IOU, check_rate, refuse_noisy, write_noisy_set

    try:
        check_rate(command.rate)
    except ValueError as error:
        raise UsageError(f"--rate: {error}") from None
    if command.pictures < 0:
        raise UsageError(f"--pictures {command.pictures}: must be 0 or more")
    if not command.force:
        refuse_noisy(Path(command.path))
    console = Console()
    splits = open_splits(command.path, command.split, console)
    noisy = write_noisy_set(
        splits,
        command.rate,
        command.seed,
        command.out,
        layout_to_write(splits, command.layout),
        images=command.images,
    )
    console.print(_table(noisy, command))
    paper = ", ".join(f"{iou:.3f} at {rate:g}" for rate, iou in PAPER_IOU.items())
    console.print(f"the paper, by image on VOC: {paper}", highlight=False)
    say_written(console, command.out, written=noisy.written)
    if command.pictures > 0:
        from alphaiou.data.figures import save_noise_figure

        pair = splits[0], noisy.splits[0]
        stem = command.out / "pictures" / "noisy_boxes"
        for path in save_noise_figure(*pair, command.rate, command.pictures, stem):
            console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _table(noisy: NoisySet, command: DataNoise) -> Table:
    from rich import box
    from rich.table import Table

    title = f"mean IoU to the clean boxes, rate {command.rate:g}, seed {command.seed}"
    table = Table(title=title, box=box.SIMPLE_HEAD)
    table.add_column("split")
    for name in ("images", "boxes", "by image", "by box"):
        table.add_column(name, justify="right")
    for index, iou in zip(noisy.splits, noisy.ious, strict=True):
        means = (f"{iou.by_image:.4f}", f"{iou.by_box:.4f}")
        table.add_row(index.split, f"{len(index):,}", f"{index.num_boxes:,}", *means)
    return table
