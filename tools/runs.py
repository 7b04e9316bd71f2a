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

from alphaiou.detectors.registry import settings_of
from alphaiou.inference.tables import cell, markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title, read_score
from alphaiou.paper.published import loss_key, published_scores
from alphaiou.study.grid import Grid, Row
from alphaiou.study.records import RowRuns, RunRecord, at_shared_seeds, grid_runs
from alphaiou.study.tables import (
    INTERVAL_NOTE,
    MARK,
    MARK_NOTE,
    StudyTable,
    TableRow,
    markdown_lines,
    seeds_note,
    table_row,
)
from alphaiou.training.recipe import Recipe, recipe_from
from alphaiou.training.recipes import (
    at_default_gain,
    gain_factor,
    gain_name,
    is_constant,
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
#: Notes of records with this text qualify their speed.
CAVEAT = "images a second"
#: The folder beside the records with earlier records of the same runs.
EARLIER = "earlier"

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
    return grid_runs(grid, {run["name"]: run for run in runs})


def plain_grid(runs: Iterable[RunRecord], detector: str, epochs: int | None = None) -> Grid | None:
    """The largest grid of a detector with clean boxes, all images and default settings.

    Args:
        runs: The records to look in.
        detector: Its name in recipes.
        epochs: The length of the training; any length unless given.
    """
    usual = Recipe.noise, Recipe.subset, Recipe.objectness
    for grid in grids_of(runs):
        recipe = grid.rows[0].recipe
        if recipe.detector != detector or epochs not in (None, recipe.epochs):
            continue
        if (recipe.noise, recipe.subset, recipe.objectness) == usual and not _unusual(recipe):
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
        f"{recipe.detector} on {recipe.data.path}",
        f"{recipe.image_size} px",
        f"{recipe.epochs} epochs",
    ]
    if recipe.noise:
        parts.append(f"noise {recipe.noise:g}")
    if recipe.subset < 1:
        parts.append(f"{recipe.subset:.0%} of the images")
    if recipe.objectness != Recipe.objectness:
        parts.append(f"objectness by {recipe.objectness}")
    return ", ".join([*parts, *_unusual(recipe)])


def _unusual(recipe: Recipe) -> list[str]:
    """The gains and rates that differ from the paper's YOLOv5; other detectors have none."""
    return other_factors(recipe, Recipe()) if "class_gain" in settings_of(recipe.detector) else []


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
    return published_scores(recipe.detector, loss_key(recipe.loss)) or {}


def _order(recipe: Recipe) -> tuple[object, ...]:
    loss = recipe.loss
    place = KINDS.index(loss.kind) if loss.kind in KINDS else len(KINDS)
    powers = loss.alpha, -1.0 if loss.penalty_alpha is None else loss.penalty_alpha
    schedule = str(recipe.alpha_schedule or "")
    gains = gain_factor(recipe), recipe.final_box_gain or 0.0
    return place, loss.kind, loss.modifiers, *powers, schedule, *gains, recipe.seed


# --- tables of scores and speeds ------------------------------------------------------------------


def runs_table(record: Record, *, detector: str, epochs: int) -> str:
    """The losses of a detector after so many epochs with clean boxes; means over the seeds.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    rows = _table_rows(_plain_rows(record, detector, epochs))
    if not rows:
        return NOTHING
    return "\n\n".join([_scores(rows), *([_notes(rows)] if _has_seeds(rows) else [])])


def headline_table(record: Record, *, detector: str, epochs: int) -> str:
    """The losses of Table 1 at the default gain and at the best one, over the same seeds.

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
    whole = at_shared_seeds([own for own in losses if len(own.runs) >= seeds])
    rows = {own.row.label: own for own in whole}
    best = [at_best_gain(line) for line in by_loss(rows).values()]
    shown = {label: own for label, own in rows.items() if _has_default_gain(own) or own in best}
    return _scores(_table_rows(shown))


def detector_runs(record: Record, *, detector: str) -> str:
    """All runs of a detector: a table of scores and one of speeds for each setting."""
    parts: list[str] = []
    for grid in _grids_of_detector(record, detector):
        runs = rows_of(grid, record["runs"])
        rows = _table_rows(runs)
        parts += [f"{grid.title}:", _scores(rows), _notes(rows), _speeds(_runs_of(runs))]
    return "\n\n".join(parts) or NOTHING


def speeds_table(record: Record, *, detector: str) -> str:
    """The speed and the memory of each training of a detector."""
    grids = _grids_of_detector(record, detector)
    runs = [run for grid in grids for run in _runs_of(rows_of(grid, record["runs"]))]
    return _speeds(runs) if runs else NOTHING


def _plain_rows(record: Record, detector: str, epochs: int) -> Rows:
    grid = plain_grid(record["runs"], detector, epochs)
    return rows_of(grid, record["runs"]) if grid else {}


def _grids_of_detector(record: Record, detector: str) -> list[Grid]:
    return [grid for grid in grids_of(record["runs"]) if grid.rows[0].recipe.detector == detector]


def _runs_of(rows: Rows) -> list[RunRecord]:
    return [run for own in rows.values() for run in own.runs.values()]


def _is_headline(recipe: Recipe) -> bool:
    return recipe.loss in HEADLINE_LOSSES and is_constant(recipe)


def _has_default_gain(own: RowRuns) -> bool:
    return gain_factor(own.row.recipe) == 1


def _table_rows(runs: Rows) -> tuple[TableRow, ...]:
    """The rows of a table; the paper's levels are of other data, so only its changes stay."""
    rows = (table_row(runs, label, PAPER_COLUMNS) for label in runs)
    return tuple(replace(row, published={}) for row in rows)


def _has_seeds(rows: Iterable[TableRow]) -> bool:
    return any(len(row.seeds) > 1 for row in rows)


def _scores(rows: tuple[TableRow, ...]) -> str:
    text = markdown_lines(StudyTable("runs", "", PAPER_COLUMNS, rows, ()))
    # With one seed every change would be marked, which the words around the table say at once.
    return text if _has_seeds(rows) else text.replace(MARK, "")


def _notes(rows: Sequence[TableRow]) -> str:
    return " ".join([seeds_note(rows), *((MARK_NOTE, INTERVAL_NOTE) if _has_seeds(rows) else ())])


def _speeds(runs: Sequence[RunRecord]) -> str:
    head = ["loss", "seed", "pixels", "batch", "epochs", "images a second", "GiB at the peak"]
    timed = any("seconds_to_first_step" in run for run in runs)
    head += ["seconds to the first step"] * timed + ["on"]
    lines = [_speed(run, timed) for run in runs]
    caveats = dict.fromkeys(note for run in runs for note in run["notes"] if CAVEAT in note)
    notes = [f"Notes of the records: {'; '.join(caveats)}."] if caveats else []
    return "\n\n".join([markdown(head, lines, left=1), *notes])


def _speed(run: RunRecord, timed: bool) -> list[str]:
    recipe: Recipe = recipe_from(run["recipe"])
    sizes = (recipe.seed, recipe.image_size, recipe.batch_size, recipe.epochs)
    line = [run_label(recipe), *map(str, sizes), f"{run['throughput']:,.0f}"]
    line.append(f"{run['memory_bytes'] / 2**30:.1f}")
    if timed:
        seconds = run.get("seconds_to_first_step")
        line.append("–" if seconds is None else f"{seconds:.0f}")
    return [*line, run["device"]]


# --- runs that were repeated ----------------------------------------------------------------------


def repeats(record: Record, detector: str, epochs: int) -> dict[str, Rows]:
    """The runs that were made twice: the first ones, the second ones, and the means of both.

    A seed fixes the first weights and the order of the images, but not the order in which a GPU
    adds. Two runs with the same recipe and seed therefore differ.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    earlier = record["folders"].get(EARLIER, {"runs": []})["runs"]
    first = {run["name"]: run for run in earlier}
    again = {run["name"]: run for run in record["runs"] if run["name"] in first}
    kept = {
        "first": [first[name] for name in again],
        "again": list(again.values()),
        "mean of both": [_mean(first[name], run) for name, run in again.items()],
    }
    grid = plain_grid(again.values(), detector, epochs)
    return {name: rows_of(grid, runs) for name, runs in kept.items()} if grid else {}


def repeats_table(record: Record, *, detector: str, epochs: int) -> str:
    """The changes of each loss in the first runs, the second and both; and the scatter of runs.

    Args:
        record: A folder of runs, as ``load_record`` gives it.
        detector: Its name in recipes.
        epochs: The length of the training.
    """
    found = repeats(record, detector, epochs)
    if not found:
        return NOTHING
    table = StudyTable("repeats", "", PAPER_COLUMNS, _changes(found), (), as_changes=True)
    head = ["standard deviation in points", *map(column_title, PAPER_COLUMNS)]
    scatters = {"the same seed again": same_seed_scatter, "another seed": other_seed_scatter}
    lines = [
        [name, *(cell(scatter(found, column)) for column in PAPER_COLUMNS)]
        for name, scatter in scatters.items()
    ]
    return "\n\n".join([markdown_lines(table), markdown(head, lines, left=1)])


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
    return tuple(
        replace(table_row(rows, label, PAPER_COLUMNS), label=f"{label}, {name}")
        for label, own in found["again"].items()
        if own.row.baseline
        for name, rows in found.items()
    )


def _mean(*runs: RunRecord) -> RunRecord:
    """A record with the means of the scores that all have."""
    shared = set.intersection(*(set(run["scores"]) for run in runs))
    scores = {
        name: fmean(read_score(run["scores"], name) for run in runs) for name in sorted(shared)
    }
    return {**runs[0], "scores": scores}
