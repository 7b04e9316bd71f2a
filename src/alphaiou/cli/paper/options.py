"""The options that the commands of ``alphaiou paper`` share: the grids, and their records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from alphaiou.paper.scales import Scale
    from alphaiou.paper.study import Study
    from alphaiou.study.grid import Grid

#: Where runs are kept, and where their records are looked for.
RUNS = Path("runs/paper")


@dataclass(frozen=True)
class GridOptions:
    """The scale of the grids and their seeds.

    The order of the fields is that of the help.
    """

    quick: bool = False
    """Small enough to be run often: 320 pixels and 60 epochs, or drawn shapes without --data."""

    data: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """The VOC devkit (07 and 12); with --quick voc320, or any data set."""

    coco: Annotated[Path | None, tyro.conf.arg(metavar="PATH")] = None
    """MS COCO 2017, without --quick."""

    seeds: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Every row with seeds 0 to N-1."""

    epochs: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Epochs of YOLOv5 with --quick and --data, 60 unless given."""

    select: Literal["last", "best"] = "last"
    """With --quick: score the last weights, or those that are best on val."""

    only: tuple[str, ...] = ()
    """Only rows with these labels, or with one of these words in their label, such as η=0.3."""


def scale_of(options: GridOptions) -> Scale:
    """The scale that the options ask for."""
    from alphaiou.cli import UsageError
    from alphaiou.errors import AlphaIoUError
    from alphaiou.paper.scales import BUDGET, paper_scale, quick_scale

    if options.epochs is not None and not (options.quick and options.data):
        raise UsageError("--epochs is for --quick with --data; the other lengths are fixed")
    if options.select != "last" and not options.quick:
        raise UsageError("--select best is for --quick; the paper's data have no val split")
    if not options.quick:
        return paper_scale(options.data, options.coco)
    if options.coco is not None:
        raise UsageError("--coco is for the paper's own scale; with --quick take --data")
    try:
        epochs = BUDGET if options.epochs is None else options.epochs
        return quick_scale(options.data, epochs, options.select)
    except AlphaIoUError:  # about the data, not about the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


def chosen_grids(names: Sequence[str], options: GridOptions) -> list[Grid]:
    """The grids of these names, or all.

    Raises:
        UsageError: A grid is unknown, or no row has such a label.
    """
    from alphaiou.cli import UsageError
    from alphaiou.paper.grids import paper_grids

    if options.seeds < 1:
        raise UsageError(f"--seeds must be at least 1, got {options.seeds}")
    known = paper_grids(scale_of(options), range(options.seeds))
    for name in names:
        if name not in known:
            raise UsageError(f"no grid {name!r}; there are {', '.join(known)}")
    grids = [known[name] for name in names or known]
    if not options.only:
        return grids
    kept = [_some_rows(grid, options.only) for grid in grids]
    if not any(grid.rows for grid in kept):
        raise UsageError(f"--only {' '.join(options.only)}: no row has that in its label")
    return kept


def _some_rows(grid: Grid, words: Sequence[str]) -> Grid:
    labels = {row.label for row in grid.rows}
    # A whole label means that row alone, not also rows whose labels begin with it.
    kept = {
        label
        for label in labels
        for word in words
        if label == word or (word not in labels and word in label)
    }
    rows = tuple(row for row in grid.rows if row.label in kept)
    # A row is compared with another one only where that is among them.
    rows = tuple(row if row.baseline in kept else replace(row, baseline=None) for row in rows)
    return replace(grid, rows=rows)


@dataclass(frozen=True)
class RecordOptions:
    """Grids, and the folders of their records; the scale is read from the records."""

    grids: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[GRID ...]")
    ] = ()
    """Names from alphaiou paper list; all that have runs unless given."""

    results: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[DIR ...]")] = (RUNS,)
    """Folders with records of runs."""

    data: Annotated[Path | None, tyro.conf.arg(metavar="DATASET")] = None
    """The data set of quick runs; the one with the most records unless given."""

    epochs: Annotated[int | None, tyro.conf.arg(metavar="EPOCHS")] = None
    """The epochs of quick runs; unless given 60, or those with the most records."""


def study_of(command: RecordOptions) -> Study:
    """The grids and the records that the options ask for.

    Raises:
        UsageError: A grid is unknown.
        RecordError: There are no records, or one is damaged.
    """
    from alphaiou.cli import UsageError
    from alphaiou.paper.study import open_study

    try:
        return open_study(command.grids, command.results, data=command.data, epochs=command.epochs)
    except ValueError as error:
        raise UsageError(str(error)) from None
