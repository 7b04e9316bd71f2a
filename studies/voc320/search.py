"""Is anything better than IoU at its best box gain, at every IoU threshold?

A larger box gain brings IoU part of what a power brings. A candidate therefore has to beat IoU at
the gain that is best for it, not at the gain of the paper. A candidate that changes more than its
loss and its box gain is also compared with IoU under the same settings: otherwise their effect
would be taken for that of the power.

``python -m studies.voc320.search DATASET [FOLDER]`` runs the grid on a copy of voc320.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from alphaiou.detectors.yolov5.config import YOLOv5Config
from alphaiou.detectors.yolov5.loss import Objectness
from alphaiou.losses.module import AlphaSchedule
from alphaiou.losses.spec import LossSpec
from alphaiou.metrics.columns import columns_of
from alphaiou.paper.grids import GAINS, row_at_gain
from alphaiou.paper.scales import Scale, quick_scale
from alphaiou.study.grid import Grid, Row
from alphaiou.study.records import RowRuns, RunRecord, comparable_rows, grid_runs
from alphaiou.study.runner import run_grid
from alphaiou.study.selection import scored_split, select
from alphaiou.study.statistics import Change, compare, fit_rows
from alphaiou.study.tables import StudyTable, table_of
from alphaiou.training.recipe import Recipe
from alphaiou.training.recipes import other_factors, with_box_gain

NAME = "beyond"
THRESHOLDS = columns_of("threshold")
#: The score by which a gain is chosen.
CHOSEN_BY = "map75_95"
#: By how much a candidate has to be better, relative to the best IoU.
WANTED = {"map75_95": 0.06, "ap95": 0.5}
#: The labels of the baselines: IoU at several box gains.
BASELINES = tuple(f"IoU, box gain ×{gain:g}" for gain in GAINS)

Changes = Mapping[str, Change]


@dataclass(frozen=True)
class Candidate:
    """A choice of loss, α and its course, and gains.

    Attributes:
        loss: As ``LossSpec.parse`` reads it.
        gain: Times the usual box gain.
        to_alpha: What α moves to during the training.
        to_gain: What the box gain moves to, times the usual one.
        class_gain: Times the usual gain of the classes.
        objectness_gain: Times the usual gain of objectness.
        lr: Times the usual learning rate.
        objectness: What objectness learns.
    """

    loss: str
    gain: float = 1.0
    to_alpha: float | None = None
    to_gain: float | None = None
    class_gain: float = 1.0
    objectness_gain: float = 1.0
    lr: float = 1.0
    objectness: Objectness = "iou"

    def recipe(self, usual: Recipe) -> Recipe:
        """The usual recipe with this choice, at the usual box gain still."""
        loss, end = LossSpec.parse(self.loss), self.to_alpha
        assert isinstance(usual.detector, YOLOv5Config)
        return replace(
            usual,
            loss=loss,
            alpha_schedule=None if end is None else AlphaSchedule(loss.alpha, end),
            final_box_gain=None if self.to_gain is None else self.to_gain * usual.box_gain,
            detector=replace(
                usual.detector,
                class_gain=self.class_gain * usual.detector.class_gain,
                objectness_gain=self.objectness_gain * usual.detector.objectness_gain,
                objectness=self.objectness,
            ),
            optimisation=replace(usual.optimisation, lr=self.lr * usual.optimisation.lr),
        )


#: The likeliest come first, as a grid is run in order for as long as there is time.
CANDIDATES: tuple[Candidate, ...] = (
    # Classes and objectness that count more, since a larger box gain takes from both; IoU with the
    # same gains is the control.
    Candidate("diou", 2.0, to_alpha=5.0, class_gain=2.0, objectness_gain=4.0),
    *(Candidate("iou", gain, class_gain=2.0, objectness_gain=4.0) for gain in (4.0, 3.0, 6.0)),
    Candidate("iou:3", 2.0, class_gain=2.0, objectness_gain=4.0),
    # All gains at twice their size are nearly twice the learning rate.
    Candidate("iou", 2.0, lr=2.0),
    Candidate("diou", 1.5, to_alpha=5.0, lr=2.0),
    Candidate("diou", 2.5, to_alpha=5.0, class_gain=2.0, objectness_gain=3.0),
    Candidate("diou", 1.5, to_alpha=5.0, class_gain=1.5, objectness_gain=3.0),
    *(
        Candidate(loss, gain, to_alpha, class_gain=classes, objectness_gain=objects)
        for classes, objects in ((1.0, 2.0), (2.0, 2.0), (2.0, 1.0))
        for loss, gain, to_alpha in (("diou", 1.5, 5.0), ("iou", 2.0, None))
    ),
    # Or either grows late, or α goes with a smaller gain. IoU with a gain that grows is the
    # control: what the rise does without a power.
    Candidate("iou", to_alpha=5.0),
    Candidate("iou", to_alpha=3.0),
    Candidate("iou", 1.5, to_alpha=3.0),
    Candidate("iou:5", 0.75),
    Candidate("iou", 0.75, to_alpha=10.0),
    Candidate("diou", to_alpha=5.0),
    Candidate("diou", to_alpha=5.0, to_gain=2.0),
    Candidate("iou", to_gain=3.0),
    Candidate("iou", to_alpha=3.0, to_gain=2.0),
    Candidate("diou", 1.5, to_alpha=5.0),
    # The gain falls as α rises: the gradient at an IoU of .8 stays about the same.
    Candidate("diou", 2.0, to_alpha=5.0, to_gain=1.0),
    # A penalty whose power stays small, so that boxes that lie badly still learn.
    *(Candidate("ciou:1:0.5", gain, to_alpha=5.0) for gain in (1.0, 1.5)),
    *(Candidate("eiou", gain, to_alpha=5.0) for gain in (1.0, 1.5)),
    Candidate("iou:2", 1.5),
    Candidate("iou:10", 0.5),
    Candidate("iou", 2.0, to_alpha=3.0),
    Candidate("iou:3", to_alpha=1.0),
    Candidate("iou:3", objectness="similarity"),
    # What other grids have anyway.
    *(Candidate(f"iou:{alpha}") for alpha in (2, 3, 4, 5, 10)),
    *(Candidate(f"{kind}:3") for kind in ("diou", "giou", "ciou", "eiou", "siou", "iou+wise_v3")),
    *(Candidate(f"{kind}:3:{power}") for kind in ("giou", "diou", "ciou") for power in (0.5, 1)),
    *(Candidate(f"{kind}:3", 2.0) for kind in ("iou", "diou")),
)


def search_grid(scale: Scale, seeds: Sequence[int] = (0,)) -> Grid:
    """IoU at several box gains and all candidates, the most promising first."""
    usual = scale.recipe()
    choices = (*(Candidate("iou", gain) for gain in GAINS), *CANDIDATES)
    title = "Is anything better than IoU at its best gain, at every threshold?"
    rows = tuple(_row(choice, usual) for choice in choices)
    return Grid(NAME, title, rows, seeds=tuple(seeds), differs=scale.differs)


def _row(choice: Candidate, usual: Recipe) -> Row:
    recipe = choice.recipe(usual)
    row = row_at_gain(recipe, choice.gain, BASELINES[GAINS.index(1.0)])
    label = ", ".join([row.label, *other_factors(recipe, usual)])
    return replace(row, label=label, published={})


def search_table(grid: Grid, records: Mapping[str, RunRecord]) -> StudyTable:
    """All rows as changes against IoU at its best gain, the best first."""
    runs = grid_runs(grid, records)
    comparable = comparable_rows(runs, records)
    columns = (*THRESHOLDS, CHOSEN_BY)
    return table_of(grid, against_best(runs, comparable), columns, comparable, as_changes=True)


def against_best(
    rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> dict[str, RowRuns]:
    """The rows, compared with plain IoU at its best gain: that first, then the best of them.

    Changes are estimated from the ``comparable`` rows, by default from the rows themselves.
    """
    best = best_baseline(rows)
    if best is None:
        return dict(rows)
    label = best.row.label
    changes = changes_against(best, rows, comparable)
    ranks = {name: rank(changes.get(name, {})) for name in rows}
    rows = {**rows, label: best}
    return {
        name: replace(
            rows[name], row=replace(rows[name].row, baseline=None if name == label else label)
        )
        for name in sorted(rows, key=lambda name: (name != label, ranks[name]))
    }


def exchanges(
    rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> Mapping[str, Changes]:
    """What each row changes against plain IoU at its best gain; nothing where none is a candidate.

    IoU at its other gains is among them: what is given up for what without a power.
    """
    best = best_baseline(rows)
    candidates = [own for label, own in rows.items() if own.runs and label not in BASELINES]
    if best is None or not candidates:
        return {}
    return changes_against(best, rows, comparable)


def best_baseline(rows: Mapping[str, RowRuns]) -> RowRuns | None:
    """IoU at its best gain; None where it was not run."""
    found = [rows[label] for label in BASELINES if label in rows and rows[label].runs]
    return at_best_gain(found) if found else None


def at_best_gain(line: Sequence[RowRuns]) -> RowRuns:
    """The one of several gains that scores best on ``val``, with its scores on ``test``.

    Runs that were scored on one split only are chosen by their scores on that.
    """
    run = next(iter(line[0].runs.values()))
    (best,) = (
        select(line, CHOSEN_BY, by=lambda _: None)
        or select(
            line, CHOSEN_BY, by=lambda _: None, on=scored_split(run), report=scored_split(run)
        )
    ).values()
    return best


def by_loss(rows: Mapping[str, RowRuns]) -> dict[Recipe, list[RowRuns]]:
    """The rows that differ in nothing but the gain, by what they have in common."""
    lines: dict[Recipe, list[RowRuns]] = {}
    for own in rows.values():
        if own.runs:
            # Of the seeds a cell's recipe has one; how often a run was scored changes nothing.
            recipe = with_box_gain(own.row.recipe, 1.0, own.row.recipe.final_box_gain)
            alike = replace(recipe, seed=0, evaluate_every=0)
            lines.setdefault(alike, []).append(own)
    return lines


def changes_against(
    best: RowRuns, rows: Mapping[str, RowRuns], comparable: Mapping[str, RowRuns] | None = None
) -> Mapping[str, Changes]:
    """The changes of each row at each threshold and at what is wanted."""
    rows, label = {**rows, best.row.label: best}, best.row.label
    found: dict[str, dict[str, Change]] = {}
    for column in dict.fromkeys((*THRESHOLDS, *WANTED)):
        changes = compare(fit_rows(comparable or rows, column), dict.fromkeys(rows, label))
        for name in rows:
            if name in changes:
                found.setdefault(name, {})[column] = changes[name]
    return found


def rank(changes: Changes) -> tuple[int, float]:
    """Those that are above at the most thresholds come first, of these the highest."""
    above = sum(changes[c].difference > 0 for c in THRESHOLDS if c in changes)
    return -above, -changes[CHOSEN_BY].relative if changes else 0.0


def main(arguments: Sequence[str]) -> None:
    """Run the grid on a data set."""
    if len(arguments) not in (1, 2):
        raise SystemExit("usage: python -m studies.voc320.search DATASET [FOLDER]")
    data, *out = map(Path, arguments)
    scale = quick_scale(data)
    run_grid([search_grid(scale)], out[0] if out else Path("runs/voc320"), data=scale.places)


if __name__ == "__main__":
    main(sys.argv[1:])
