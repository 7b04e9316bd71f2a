"""What a study has found: the best configurations, the hyperparameters that matter, the front."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna

from alphaiou._files import write_file
from alphaiou.inference.tables import cell, markdown
from alphaiou.metrics.columns import PAPER_COLUMNS, column_title, read_score
from alphaiou.study.statistics import Interval, Model, compare, fit
from alphaiou.study.tables import (
    StudyTable,
    TableRow,
    change_notes,
    markdown_lines,
    seeds_note,
    table_csv,
)
from alphaiou.study.tune.space import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from alphaiou.study.tune.journal import TrialJournal
    from alphaiou.study.tune.search import Objective, Plan

#: The two scores between which α trades off.
LOOSE, TIGHT = "ap50", "map75_95"
#: Fewer complete trials say nothing about the importance of a hyperparameter.
LEAST_TRIALS = 8
CHOSEN = (
    "The trials were chosen on the held-out split with one seed; the seeds here are others, which "
    "the choice has not seen."
)
#: The scores by row and seed.
Scores = Mapping[str, Mapping[int, Mapping[str, float]]]


@dataclass(frozen=True)
class Rows:
    """The configurations that are repeated.

    Attributes:
        values: The hyperparameters by label.
        baseline: The label of the baseline; empty if there is none.
        matched: That of the best loss at equal gradient scale.
        winner: That of the best trial.
    """

    values: Mapping[str, dict[str, Value]] = field(default_factory=dict)
    baseline: str = ""
    matched: str = ""
    winner: str = ""


@dataclass(frozen=True)
class TrialResult:
    """How a trial has ended.

    Attributes:
        number: Its number.
        state: ``complete``, ``pruned``, ``failed``, or ``running`` in another process.
        values: Its hyperparameters.
        label: Its settings in words.
        score: The score on the held-out split; None unless it is complete.
        scores: All scores there.
        run: The name of its run.
    """

    number: int
    state: str
    values: Mapping[str, Value]
    label: str
    score: float | None
    scores: Mapping[str, float]
    run: str


@dataclass(frozen=True)
class Share:
    """How much of the change of the winner another row has.

    Attributes:
        share: The change of the loss at equal gradient scale over that of the winner.
        interval: The 95 % interval; None if the change of the winner may be zero.
    """

    share: float
    interval: Interval | None


@dataclass(frozen=True)
class Tuning:
    """The result of a study.

    Attributes:
        score: The score that was maximised.
        trials: All trials, in order.
        importance: The importance of each hyperparameter for the score; they sum to 1.
        front: The numbers of the trials that no other one beats in both AP50 and mAP75:95.
        winner: The best trial.
        command: How to repeat its training.
        rows: The settings of the rows of the table, in words.
        table: The best configurations with several seeds, if they were repeated.
        share: How much of the winner's change the equal gradient scale alone explains.
        matches: The factor of the box gain of the loss of each of these rows.
    """

    score: str
    trials: Sequence[TrialResult]
    importance: Mapping[str, float]
    front: Sequence[int]
    winner: TrialResult | None
    command: str = ""
    rows: Mapping[str, str] = field(default_factory=dict)
    table: StudyTable | None = None
    share: Share | None = None
    matches: Mapping[str, float] = field(default_factory=dict)

    def markdown(self) -> str:
        """The result as Markdown."""
        parts = [self._summary(), *self._configurations(), *self._importances(), *self._front()]
        if self.command:
            parts.append(f"## The winner again\n\n    {self.command}")
        return "\n\n".join(parts) + "\n"

    def _summary(self) -> str:
        counts = dict.fromkeys(("complete", "pruned", "failed", "running"), 0)
        for trial in self.trials:
            counts[trial.state] += 1
        listed = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        lines = [f"# Tuning of {column_title(self.score)}", f"Trials: {listed}."]
        if self.winner is not None and self.winner.score is not None:
            lines[1] += (
                f" The best is trial {self.winner.number} with {100 * self.winner.score:.2f} % on "
                f"the held-out split: {self.winner.label}."
            )
        return "\n\n".join(lines)

    def _configurations(self) -> list[str]:
        if self.table is None:
            return []
        settings = "\n".join(f"- {label}: {text}" for label, text in self.rows.items())
        notes = "\n".join(f"- {note}" for note in (*self.table.notes, *self._share_note()))
        title = "## The best configurations"
        return ["\n\n".join((title, settings, markdown_lines(self.table), notes))]

    def _share_note(self) -> list[str]:
        if self.share is None:
            return []
        if self.share.interval is None:
            return [
                "The difference between the winner and the baseline is not significant, so there "
                "is no share of it that equal gradient scale would explain."
            ]
        low, high = 100 * self.share.interval.low, 100 * self.share.interval.high
        return [
            f"The loss of the winner at equal gradient scale, with nothing else tuned, has "
            f"{100 * self.share.share:.0f} % (95 % interval {low:.0f} to {high:.0f}) of the "
            f"winner’s change of {column_title(self.score)}."
        ]

    def _importances(self) -> list[str]:
        if not self.importance:
            return []
        lines = [[name, f"{100 * value:.0f} %"] for name, value in self.importance.items()]
        return ["## Importance", markdown(["hyperparameter", "importance"], lines, left=1)]

    def _front(self) -> list[str]:
        if not self.front:
            return []
        heads = ["trial", column_title(LOOSE), column_title(TIGHT), "settings"]
        by_number = {trial.number: trial for trial in self.trials}
        lines = [
            [str(n), cell(by_number[n].scores[LOOSE]), cell(by_number[n].scores[TIGHT]), ""]
            for n in self.front
        ]
        for line, number in zip(lines, self.front, strict=True):
            line[-1] = by_number[number].label
        title = f"## {column_title(LOOSE)} against {column_title(TIGHT)}"
        return [
            title,
            "No trial beats one of these in both, on the held-out split.",
            markdown(heads, lines, left=1),
        ]

    def as_dict(self) -> dict[str, Any]:
        """The result as plain values."""
        plain = asdict(self)
        plain["table"] = None if self.table is None else table_csv(self.table)
        return plain

    def write(self, folder: Path) -> None:
        """Write the result as ``tuning.md`` and ``tuning.json``, the table as ``tuning.csv``."""
        write_file(folder / "tuning.md", self.markdown())
        write_file(
            folder / "tuning.json", json.dumps(self.as_dict(), indent=1, ensure_ascii=False) + "\n"
        )
        if self.table is not None:
            write_file(folder / "tuning.csv", table_csv(self.table))


# From trials to results


def tuning_of(
    objective: Objective, journal: TrialJournal, plan: Plan, rows: Rows, scores: Scores
) -> Tuning:
    """The result of a study.

    Args:
        objective: What was tuned.
        journal: Its trials.
        plan: How it was computed.
        rows: The configurations that were repeated.
        scores: Their scores.
    """
    trials = [_trial(trial, objective, plan) for trial in journal.all() if trial.params]
    best = best_trials(journal, 1)
    winner = next((trial for trial in trials for one in best if one.number == trial.number), None)
    tuning = Tuning(
        plan.score,
        trials,
        importance_of(journal.study),
        pareto_front({t.number: (t.scores[LOOSE], t.scores[TIGHT]) for t in trials if _both(t)}),
        winner,
    )
    if winner is None:
        return tuning
    # The first run of the winner's row: the command finds it finished.
    first = objective.settings(winner.values, plan.seed + bool(plan.seeds), final=True)
    settings = {
        label: objective.settings(values, plan.seed, final=True)
        for label, values in rows.values.items()
    }
    columns = _columns(plan.score, scores)
    models = {
        column: fit(
            (label, seed, read_score(own, column))
            for label, by_seed in scores.items()
            for seed, own in by_seed.items()
        )
        for column in columns
    }
    return Tuning(
        *(tuning.score, tuning.trials, tuning.importance, tuning.front, winner),
        command=objective.command(first),
        rows={label: objective.label(own) for label, own in settings.items()},
        table=_table(columns, models, rows, scores) if columns else None,
        share=_share(models[plan.score], rows) if plan.score in models else None,
        matches={label: own.match for label, own in settings.items()},
    )


def best_trials(journal: TrialJournal, count: int) -> list[FrozenTrial]:
    """The best complete trials; those with the same run count once."""
    complete = [trial for trial in journal.all() if trial.state.name == "COMPLETE"]
    found: dict[str, FrozenTrial] = {}
    for trial in sorted(complete, key=lambda one: (-float(one.value or 0), one.number)):
        found.setdefault(trial.user_attrs["run"], trial)
    return list(found.values())[:count]


def _trial(trial: FrozenTrial, objective: Objective, plan: Plan) -> TrialResult:
    names = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    return TrialResult(
        trial.number,
        names.get(trial.state.name, "running"),
        dict(trial.params),
        objective.label(objective.settings(trial.params, plan.seed, final=False)),
        trial.value if trial.state.name == "COMPLETE" else None,
        dict(trial.user_attrs.get("scores", {})),
        str(trial.user_attrs.get("run", "")),
    )


def _both(trial: TrialResult) -> bool:
    return {LOOSE, TIGHT} <= trial.scores.keys()


def importance_of(study: optuna.Study) -> dict[str, float]:
    """The importance of each hyperparameter, by PED-ANOVA over the complete trials.

    It compares the values of the best trials with those of all: what the search varied counts, not
    what could be varied.
    """
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < LEAST_TRIALS or len({trial.value for trial in complete}) == 1:
        return {}
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(value) for name, value in found.items()}


def pareto_front(points: Mapping[int, tuple[float, float]]) -> list[int]:
    """The keys of the points that no other one beats in both values, by the first value.

    Examples:
        >>> pareto_front({0: (0.7, 0.2), 1: (0.8, 0.3), 2: (0.9, 0.1), 3: (0.8, 0.3)})
        [2, 1, 3]
    """
    kept = {
        key: point
        for key, point in points.items()
        if not any(
            other[0] >= point[0] and other[1] >= point[1] and other != point
            for other in points.values()
        )
    }
    return sorted(kept, key=lambda key: (-kept[key][0], -kept[key][1], key))


def _columns(score: str, scores: Scores) -> list[str]:
    """The columns of the table: those that every run has."""
    every = [own for by_seed in scores.values() for own in by_seed.values()]
    wanted = list(dict.fromkeys((score, *PAPER_COLUMNS))) if every else []
    return [column for column in wanted if all(column in own for own in every)]


def _table(
    columns: Sequence[str], models: Mapping[str, Model], rows: Rows, scores: Scores
) -> StudyTable:
    others = [label for label in scores if label != rows.baseline]
    baselines = dict.fromkeys(others, rows.baseline) if rows.baseline else {}
    changes = {column: compare(models[column], baselines) for column in columns}
    table = tuple(
        TableRow(
            label,
            baselines.get(label),
            tuple(by_seed),
            {c: {s: read_score(own, c) for s, own in by_seed.items()} for c in columns},
            {c: changes[c][label] for c in columns if label in changes[c]},
        )
        for label, by_seed in scores.items()
    )
    notes = (f"{seeds_note(table)} {CHOSEN}", *change_notes(table))
    return StudyTable("tune", "The best configurations", tuple(columns), table, notes)


def _share(model: Model, rows: Rows) -> Share | None:
    """The share of the winner's change that its loss has at equal gradient scale."""
    labels = {rows.baseline, rows.matched, rows.winner}
    if not labels <= set(model.rows) or rows.winner == rows.baseline:
        return None
    share, interval = model.share(rows.matched, rows.winner, rows.baseline)
    return Share(share, interval) if math.isfinite(share) else None
