"""Records of runs as tables: each loss, what it changes, and what the paper says it changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from alphaiou.inference.tables import markdown
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.comparison import PAPER_COLUMNS
from alphaiou.study.comparable import ComparableRuns, comparable_runs, plain_runs, run_label
from alphaiou.study.records import CellRuns, RunRecord, at_shared_seeds
from alphaiou.study.tables import (
    HEADLINES,
    INTERVAL_NOTE,
    MARK,
    MARK_NOTE,
    PaperTable,
    TableRow,
    markdown_lines,
    seeds_note,
    table_row,
)
from alphaiou.training.recipe import Recipe, recipe_from
from alphaiou.training.recipes import gain_factor, is_constant
from benchmarks.record import Record
from studies.voc320.best import at_best_gain, best_against_best, by_loss

NOTHING = "*There is no record of such a run yet.*"
#: Those of Table 1.
HEADLINE_LOSSES = tuple(map(LossSpec.parse, ("iou", "iou:3", "diou", "diou:3")))
#: In the notes of records: what images a second and memory have to be read with.
CAVEAT = "images a second"


def runs_table(record: Record, *, detector: str, epochs: int) -> str:
    """The losses of a detector after so many epochs with clean boxes; means where seeds differ.

    Args:
        record: A folder of runs, as ``read_record`` gives it.
        detector: Its name in recipes.
        epochs: How long it was trained.
    """
    rows = _rows(_plain_cells(record, detector, epochs))
    if not rows:
        return NOTHING
    return "\n\n".join([_scores(rows), *([_notes(rows)] if _has_seeds(rows) else [])])


def headline_table(record: Record, *, detector: str, epochs: int) -> str:
    """The losses of Table 1 at the paper's gain and at their best one, and what α adds at these.

    All have the same seeds; a cell with fewer of them is not one yet.

    Args:
        record: A folder of runs, as ``read_record`` gives it.
        detector: Its name in recipes.
        epochs: How long it was trained.
    """
    found = _plain_cells(record, detector, epochs)
    losses = {label: own for label, own in found.items() if _is_headline(own)}
    if not losses:
        return NOTHING
    usual = [own for own in losses.values() if _has_usual_gain(own)]
    seeds = max(len(own.runs) for own in usual or losses.values())
    whole = at_shared_seeds([own for own in losses.values() if len(own.runs) >= seeds])
    cells = {own.cell.label: own for own in whole}
    best = [at_best_gain(line) for line in by_loss(cells).values()]
    rows = _rows({label: o for label, o in cells.items() if _has_usual_gain(o) or o in best})
    sentences = "\n".join(f"- {sentence}" for sentence in best_against_best(cells, HEADLINES))
    return "\n\n".join(filter(None, [_scores(rows), sentences]))


def _plain_cells(record: Record, detector: str, epochs: int) -> Mapping[str, CellRuns]:
    table = plain_runs(record["runs"], detector, epochs)
    return table.rows if table else {}


def _is_headline(own: CellRuns) -> bool:
    recipe = own.cell.recipe
    return recipe.loss in HEADLINE_LOSSES and is_constant(recipe)


def _has_usual_gain(own: CellRuns) -> bool:
    return gain_factor(own.cell.recipe) == 1


def detector_runs(record: Record, *, detector: str) -> str:
    """All runs of a detector: a table of scores and one of speeds for each setting."""
    parts: list[str] = []
    for table in _of_detector(record, detector):
        rows = _rows(table.rows)
        parts += [f"{table.title}:", _scores(rows), _notes(rows), _speeds(table.runs)]
    return "\n\n".join(parts) or NOTHING


def speeds_table(record: Record, *, detector: str) -> str:
    """How fast a detector was trained and in how much memory, a line a run."""
    runs = [run for table in _of_detector(record, detector) for run in table.runs]
    return _speeds(runs) if runs else NOTHING


def _of_detector(record: Record, detector: str) -> list[ComparableRuns]:
    return [t for t in comparable_runs(record["runs"]) if t.setting.detector == detector]


def _rows(cells: Mapping[str, CellRuns]) -> tuple[TableRow, ...]:
    """The rows of a table; levels in the paper are of other data, so its changes alone stay."""
    rows = (table_row(cells, label, PAPER_COLUMNS) for label in cells)
    return tuple(replace(row, published={}) for row in rows)


def _has_seeds(rows: Iterable[TableRow]) -> bool:
    return any(len(row.seeds) > 1 for row in rows)


def _scores(rows: tuple[TableRow, ...]) -> str:
    text = markdown_lines(PaperTable("runs", "", PAPER_COLUMNS, rows, ()))
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
