"""Which grids are meant: the options that all of ``alphaiou paper`` share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from alphaiou.paper.scales import Scale
    from alphaiou.study.grid import Grid


@dataclass(frozen=True)
class GridOptions:
    """What the grids are made of.

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

    only: tuple[str, ...] = ()
    """Only the rows of these labels, or that have one of these words in theirs, such as η=0.3."""


def scale_of(options: GridOptions) -> Scale:
    """How large the grids are."""
    from alphaiou.cli import UsageError
    from alphaiou.errors import AlphaIoUError
    from alphaiou.paper.scales import BUDGET, paper_scale, quick_scale

    if options.epochs is not None and not (options.quick and options.data):
        raise UsageError("--epochs is for --quick with --data; the other lengths are fixed")
    if not options.quick:
        return paper_scale(options.data, options.coco)
    if options.coco is not None:
        raise UsageError("--coco is for the paper's own scale; with --quick take --data")
    try:
        return quick_scale(options.data, BUDGET if options.epochs is None else options.epochs)
    except AlphaIoUError:  # about the data, not about what was typed
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


def chosen_grids(names: Sequence[str], options: GridOptions) -> list[Grid]:
    """The grids of these names, or all.

    Raises:
        UsageError: There is no such grid, or no such row.
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
    # A whole label means its own row, not also those whose labels begin with it.
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
