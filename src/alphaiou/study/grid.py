"""Grids of runs: the rows of a table, each a recipe that is run with every seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from alphaiou.training.recipe import Recipe


@dataclass(frozen=True)
class Row:
    """One row of a table: a recipe, run with several seeds.

    Attributes:
        label: The row's name, unique in its grid.
        recipe: The run; its seed is replaced by each of the grid's.
        baseline: The label of its baseline, if it has one.
        published: What the paper prints for it, by score, as fractions of one.
    """

    label: str
    recipe: Recipe
    baseline: str | None = None
    published: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """A table or figure of the paper, or a control beside it.

    Attributes:
        name: How the command line calls it.
        title: What it shows, in a line.
        rows: Its rows.
        seeds: Every row is run once with each.
        differs: How it differs from the paper, in sentences; printed with every result.
        place: Where it is in the paper; empty if it is not.
        pictures: Whether it needs what the detectors find, and not their scores alone.
        found_shares: The shares of found objects that it compares in place of average precision.
        beside: Rows of another grid that its pictures show too, if they were run.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    seeds: tuple[int, ...] = (0,)
    differs: tuple[str, ...] = ()
    place: str = ""
    pictures: bool = False
    found_shares: tuple[str, ...] = ()
    beside: tuple[Row, ...] = ()

    def recipes(self) -> Iterator[tuple[Row, Recipe]]:
        """Every run; all rows of one seed come before the next seed."""
        for seed in self.seeds:
            for row in self.rows:
                yield row, replace(row.recipe, seed=seed)
