"""Committed runs as tables for README and docs.

Runs whose recipes differ only in the box loss, its gain and the seed form one grid; its rows are
looked up and compared like those of any study.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance

from alphaiou.detectors.registry import FASTER_RCNN
from alphaiou.detectors.yolov5.config import YOLOv5Config
from alphaiou.inference.tables import cell, markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title
from alphaiou.paper.published import loss_key, published_scores
from alphaiou.study.grid import Grid, Row
from alphaiou.study.records import (
    RowRuns,
    RunRecord,
    by_name,
    comparable_rows,
    grid_runs,
)
from alphaiou.study.tables import (
    StudyTable,
    TableRow,
    markdown_lines,
    table_rows,
)
from alphaiou.training.recipe import Recipe, recipe_from
from alphaiou.training.recipes import (
    at_default_gain,
    gain_factor,
    gain_name,
    is_constant,
    learns_similarity,
    other_factors,
    without_power,
)
from benchmarks.record import Record
from studies.voc320.search import at_best_gain, by_loss

NOTHING = "*There is no record of such a run yet.*"
#: The order of the kinds in a table; others follow by name.
KINDS = ("l1", "smooth_l1", "iou", "giou", "diou", "ciou")
#: The losses of the paper's Table 1.
HEADLINE_LOSSES = tuple(map(LossSpec.parse, ("iou", "iou:3", "diou", "diou:3")))
#: The folder beside the records with earlier records of the same runs.
EARLIER = "earlier"
#: Runs, by detector and epochs, that were scored with each image in a corner of its square and not
#: in the middle. Their scores cannot be compared with the others.
IN_CORNER = {("yolov5s", 100), (FASTER_RCNN, 12)}

Rows = Mapping[str, RowRuns]


# --- records as grids -----------------------------------------------------------------------------


def grids_of(runs: Iterable[RunRecord]) -> list[Grid]:
    """The grids that some runs form, those with the most rows first."""
    settings: dict[Recipe, list[Recipe]] = {}
    for run in runs:
        recipe: Recipe = recipe_from(run["recipe"])
        settings.setdefault(_setting(recipe), []).append(recipe)
    grids = [_grid(setting, recipes) for setting, recipes in settings.items()]
    return sorted(grids, key=lambda grid: (-len(grid.rows), grid.title))


def rows_of(grid: Grid, runs: Iterable[RunRecord]) -> dict[str, RowRuns]:
    """The runs of each row of a grid."""
    return grid_runs(grid, by_name(runs))


def runs_of(record: Record) -> list[RunRecord]:
    """The runs of a folder of records, then the earlier ones with the same recipes.

    Those that were scored in the corner are left out.
    """
    return [run for run in (*record["runs"], *_earlier(record)) if not is_in_corner(run)]


def is_in_corner(run: RunRecord) -> bool:
    """Whether a run was scored with its images in a corner."""
    recipe = run["recipe"]
    what = recipe["detector"]["name"], recipe["epochs"]
    return Path(recipe["data"]["path"]).name == "voc320" and what in IN_CORNER


def _earlier(record: Record) -> list[RunRecord]:
    runs: list[RunRecord] = record.get("folders", {}).get(EARLIER, {"runs": []})["runs"]
    return runs


def plain_grid(runs: Iterable[RunRecord], detector: str, epochs: int | None = None) -> Grid | None:
    """The largest grid of a detector with clean boxes, all images and default settings.

    Args:
        runs: The records to look in.
        detector: Its name in recipes.
        epochs: The length of the training; any length unless given.
    """
    usual = Recipe()
    for grid in grids_of(runs):
        recipe = grid.rows[0].recipe
        if recipe.detector.name != detector or epochs not in (None, recipe.epochs):
            continue
        if learns_similarity(recipe) or _unusual(recipe):
            continue
        if (recipe.noise, recipe.subset) == (usual.noise, usual.subset):
            return grid
    return None


def run_label(recipe: Recipe) -> str:
    """The loss of a run, with its schedule and its gain if they are not the default.

    Examples:
        >>> run_label(Recipe(box_gain=0.1))
        'α-IoU (α=3), box gain ×2'
    """
    gain = gain_name(recipe)
    return recipe.loss_name if gain == "×1" else f"{recipe.loss_name}, box gain {gain}"


def _setting(recipe: Recipe) -> Recipe:
    """The recipe without what may differ within a grid; where the data lie changes no result."""
    recipe = at_default_gain(replace(recipe, loss=LossSpec("iou"), alpha_schedule=None))
    data = replace(recipe.data, path=Path(recipe.data.path).name)
    return replace(recipe, data=data, seed=0, evaluate_every=0)


def _grid(setting: Recipe, recipes: Iterable[Recipe]) -> Grid:
    by_label: dict[str, Recipe] = {}
    ordered = sorted(recipes, key=_order)
    for recipe in ordered:
        by_label.setdefault(run_label(recipe), recipe)
    rows = tuple(_row(label, recipe, by_label) for label, recipe in by_label.items())
    seeds = tuple(sorted({recipe.seed for recipe in ordered}))
    return Grid("runs", _title(setting), rows, seeds=seeds)


def _title(recipe: Recipe) -> str:
    """What was trained on what, for how long."""
    parts = [
        f"{recipe.detector.name} on {recipe.data.path}",
        f"{recipe.image_size} px",
        f"{recipe.epochs} epochs",
    ]
    if recipe.noise:
        parts.append(f"noise {recipe.noise:g}")
    if recipe.subset < 1:
        parts.append(f"{recipe.subset:.0%} of the images")
    if learns_similarity(recipe):
        parts.append("objectness by similarity")
    return ", ".join([*parts, *_unusual(recipe)])


def _unusual(recipe: Recipe) -> list[str]:
    """The gains and rates that differ from the paper's YOLOv5; other detectors have none."""
    return other_factors(recipe, Recipe()) if isinstance(recipe.detector, YOLOv5Config) else []


def _row(label: str, recipe: Recipe, others: Mapping[str, Recipe]) -> Row:
    """A row; its baseline is the same kind with α = 1 at the default gain, if that was run."""
    baseline = run_label(at_default_gain(without_power(recipe)))
    known = baseline in others and baseline != label
    return Row(label, recipe, baseline if known else None, _published(recipe))


def _published(recipe: Recipe) -> dict[str, float]:
    """What the paper prints for a run with clean boxes and all images."""
    usual = is_constant(recipe) and gain_factor(recipe) == 1
    if not usual or recipe.noise or recipe.subset < 1:
        return {}
    return published_scores(recipe.detector.name, loss_key(recipe.loss)) or {}


def _order(recipe: Recipe) -> tuple[object, ...]:
    loss = recipe.loss
    place = KINDS.index(loss.kind) if loss.kind in KINDS else len(KINDS)
    powers = loss.alpha, -1.0 if loss.penalty_alpha is None else loss.penalty_alpha
    schedule = str(recipe.alpha_schedule or "")
    gains = gain_factor(recipe), recipe.final_box_gain or 0.0
    return place, loss.kind, loss.modifiers, *powers, schedule, *gains, recipe.seed


# --- the table of the README ----------------------------------------------------------------------


def headline_table(record: Record, *, detector: str, epochs: int) -> str:
    """The losses of Table 1 at the default gain and at the best one.

    Changes are those of the model of all comparable runs, and so are the scores beside them: the
    level of a row at the seeds of its baseline.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    found = _plain_rows(record, detector, epochs)
    losses = [own for own in found.values() if _is_headline(own.row.recipe)]
    if not losses:
        return NOTHING
    usual = [own for own in losses if _has_default_gain(own)]
    seeds = max(len(own.runs) for own in usual or losses)
    rows = {own.row.label: own for own in losses if len(own.runs) >= seeds}
    best = {own.row.label for own in map(at_best_gain, by_loss(rows).values())}
    lines = tuple(
        _at_seeds_of_baseline(row)
        for row in _table_rows(rows, record)
        if row.label in best or _has_default_gain(rows[row.label])
    )
    return markdown_lines(StudyTable("headline", "", PAPER_COLUMNS, lines, ()))


def _at_seeds_of_baseline(row: TableRow) -> TableRow:
    levels = {
        column: dict.fromkeys(row.seeds, row.changes[column].score)
        if column in row.changes
        else scores
        for column, scores in row.scores.items()
    }
    return replace(row, scores=levels)


def _plain_rows(record: Record, detector: str, epochs: int) -> Rows:
    grid = plain_grid(record["runs"], detector, epochs)
    return rows_of(grid, runs_of(record)) if grid else {}


def _is_headline(recipe: Recipe) -> bool:
    return recipe.loss in HEADLINE_LOSSES and is_constant(recipe)


def _has_default_gain(own: RowRuns) -> bool:
    return gain_factor(own.row.recipe) == 1


def _table_rows(runs: Rows, record: Record) -> tuple[TableRow, ...]:
    """The rows of a table; the paper's levels are of other data, so only its changes stay."""
    comparable = comparable_rows(runs, by_name(runs_of(record)))
    rows = table_rows(runs, PAPER_COLUMNS, comparable)
    return tuple(replace(row, published={}) for row in rows)


# --- runs that were repeated ----------------------------------------------------------------------


def repeats(record: Record, detector: str, epochs: int) -> dict[str, Rows]:
    """The runs that were made twice: the first ones, the second ones, and both.

    A seed fixes the first weights and the order of the images, but not the order in which a GPU
    adds. Two runs with the same recipe and seed therefore differ.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    first = {run["name"]: run for run in _earlier(record)}
    again = {run["name"]: run for run in record["runs"] if run["name"] in first}
    kept = {
        "first": [first[name] for name in again],
        "again": list(again.values()),
        "both": [*again.values(), *(first[name] for name in again)],
    }
    grid = plain_grid(again.values(), detector, epochs)
    return {name: rows_of(grid, runs) for name, runs in kept.items()} if grid else {}


def repeats_table(record: Record, *, detector: str, epochs: int) -> str:
    """The changes of each loss in the first runs, the second and both.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    found = repeats(record, detector, epochs)
    if not found:
        return NOTHING
    table = StudyTable("repeats", "", PAPER_COLUMNS, _changes(found), (), as_changes=True)
    return markdown_lines(table)


def scatter_table(record: Record, *, detector: str, epochs: int) -> str:
    """The standard deviation of the scores of repeated runs, and of runs with other seeds.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    found = repeats(record, detector, epochs)
    if not found:
        return NOTHING
    head = ["standard deviation in points", *map(column_title, PAPER_COLUMNS)]
    scatters = {"the same seed again": same_seed_scatter, "another seed": other_seed_scatter}
    lines = [
        [name, *(cell(scatter(found, column)) for column in PAPER_COLUMNS)]
        for name, scatter in scatters.items()
    ]
    return markdown(head, lines, left=1)


def same_seed_scatter(found: Mapping[str, Rows], column: str) -> float:
    """The standard deviation of a score between runs of the same recipe with the same seed."""
    pairs = zip(*(_by_row(found[name], column) for name in ("first", "again")), strict=True)
    return _scatter(two for rows in pairs for two in zip(*rows, strict=True))


def other_seed_scatter(found: Mapping[str, Rows], column: str) -> float:
    """The same between runs with different seeds; NaN where no row has two."""
    return _scatter(
        scores for name in ("first", "again") for scores in _by_row(found[name], column)
    )


def _scatter(groups: Iterable[Sequence[float]]) -> float:
    """The standard deviation within groups of at least two values."""
    variances = [variance(values) for values in groups if len(values) > 1]
    return math.sqrt(fmean(variances)) if variances else math.nan


def _by_row(rows: Rows, column: str) -> list[list[float]]:
    """The scores of each row, in the order of the seeds."""
    return [[value for _, value in sorted(own.scores(column).items())] for own in rows.values()]


def _changes(found: Mapping[str, Rows]) -> tuple[TableRow, ...]:
    """The rows with a baseline: the first runs, the second and both together."""
    tables = {name: table_rows(rows, PAPER_COLUMNS) for name, rows in found.items()}
    return tuple(
        replace(row, label=f"{row.label}, {name}")
        for same in zip(*tables.values(), strict=True)
        for name, row in zip(tables, same, strict=True)
        if row.baseline
    )
