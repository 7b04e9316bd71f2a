"""Grids of runs: the cells of a table, each a recipe for every seed, and what the paper prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from alphaiou.training.recipe import Recipe


@dataclass(frozen=True)
class Cell:
    """One row of a table: a recipe, run with several seeds.

    Attributes:
        label: The row's name, unique in its grid.
        recipe: The run; its seed is replaced by each of the grid's.
        baseline: The label of the row that it is compared with, if any.
        published: What the paper prints for it, by score, as fractions of one.
        to_beat: Whether it is among those of which a search has to beat the best.
    """

    label: str
    recipe: Recipe
    baseline: str | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    to_beat: bool = False


@dataclass(frozen=True)
class Grid:
    """A table or figure of the paper, or a control beside it.

    Attributes:
        name: How the command line calls it.
        title: What it shows, in a line.
        cells: Its rows.
        seeds: Every cell is run once with each.
        differs: What is not as in the paper, in sentences; printed with every result.
        place: Where the paper has it; empty for what it has not.
        pictures: Whether it needs what the detectors find, and not their scores alone.
        found_shares: The shares of found objects that it compares in place of average precision.
        beside: Rows of another grid that its pictures show too, if they were run.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...] = (0,)
    differs: tuple[str, ...] = ()
    place: str = ""
    pictures: bool = False
    found_shares: tuple[str, ...] = ()
    beside: tuple[Cell, ...] = ()

    @property
    def searches(self) -> bool:
        """Whether it looks for what is better than the best of some rows.

        Its rows are compared with that one, and drawn by what they give for what they gain.
        """
        return any(cell.to_beat for cell in self.cells)

    def recipes(self) -> Iterator[tuple[Cell, Recipe]]:
        """Every run, all cells of a seed before the next seed: comparisons are whole early."""
        for seed in self.seeds:
            for cell in self.cells:
                yield cell, replace(cell.recipe, seed=seed)
