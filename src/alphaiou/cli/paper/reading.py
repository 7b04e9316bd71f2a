"""Which records are meant: the options of the commands that compute nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from alphaiou.cli.paper.list import RESULTS, RUNS

if TYPE_CHECKING:
    from alphaiou.paper.choice import Study


@dataclass(frozen=True)
class RecordOptions:
    """Grids, and where their records are; the scale is read off the records."""

    grids: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[GRID ...]")
    ] = ()
    """Names from alphaiou paper list; all that have runs unless given."""

    results: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="[DIR ...]")] = (RUNS, RESULTS)
    """Folders with records of runs."""

    data: Annotated[Path | None, tyro.conf.arg(metavar="DATASET")] = None
    """The data set of quick runs; the one with the most records unless given."""

    epochs: Annotated[int | None, tyro.conf.arg(metavar="EPOCHS")] = None
    """The epochs of quick runs; unless given 60, or those with the most records."""


def study_of(command: RecordOptions) -> Study:
    """The grids and the records that a command is about.

    Raises:
        UsageError: There is no such grid.
        RecordError: There are no records, or one is damaged.
    """
    from alphaiou.cli import UsageError
    from alphaiou.paper.choice import open_study

    try:
        return open_study(command.grids, command.results, data=command.data, epochs=command.epochs)
    except ValueError as error:
        raise UsageError(str(error)) from None
