"""Grids of runs: each row of a table is a recipe that is run with every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from alphaiou.training.recipe import Recipe


@dataclass(frozen=True)
class Row:
    """One row of a table: a recipe, run with several seeds.

    Attributes:
        label: The row's name, unique in its grid.
        recipe: The run; its seed is replaced by each seed of the grid.
        baseline: The label of its baseline, if it has one.
        published: The scores that the paper prints for it, as fractions of one.
    """

    label: str
    recipe: Recipe
    baseline: str | None = None
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A table or figure: of the paper, a control beside it, or a comparison of losses.

    Attributes:
        name: Its name on the command line and in file names.
        title: What it shows, in one line.
        rows: Its rows.
        seeds: Every row is run once with each.
        differs: How it differs from the paper, in sentences; printed with every result.
        place: Where it is in the paper; empty if it is not.
        pictures: Whether the detections of its runs are kept, and not their scores alone.
        columns: The scores of its table; by default the paper's main ones and all published ones.
        found_shares: The shares of found objects that it compares in place of average precision.
        beside: Rows of another grid that its figures include, if they were run.
        margins: By score, the relative change within which its rows count as equivalent.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    seeds: tuple[int, ...] = (0,)
    differs: tuple[str, ...] = ()
    place: str = ""
    pictures: bool = False
    columns: tuple[str, ...] = ()
    found_shares: tuple[str, ...] = ()
    beside: tuple[Row, ...] = ()
    margins: Mapping[str, float] = field(default_factory=dict)

    @property
    def compared(self) -> tuple[str, ...]:
        """The scores that its runs must have, unless they are undefined."""
        return (*self.columns, *self.found_shares)

    def recipes(self) -> Iterator[tuple[Row, Recipe]]:
        """Every run; all rows of one seed come before the next seed."""
        for seed in self.seeds:
            for row in self.rows:
                yield row, replace(row.recipe, seed=seed)
