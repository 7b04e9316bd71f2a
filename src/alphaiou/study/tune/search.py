"""The search: trials one after another, then the best configurations with several seeds."""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from alphaiou._config import ConfigError
from alphaiou.study.pool import (
    BUSY_SECONDS,
    Ended,
    FunctionJob,
    Job,
    RunKilledError,
    RunStoppedError,
    busy_note,
)
from alphaiou.study.runner import Pool, make_pool
from alphaiou.study.tune.gradient import GradientMatch
from alphaiou.study.tune.journal import Claim, Sampler, TrialJournal
from alphaiou.study.tune.result import Rows, Scores, Tuning, best_trials, tuning_of
from alphaiou.study.tune.space import FACTORS, Settings, Space, Value, first_trials
from alphaiou.training.checkpoint import RunBusyError
from alphaiou.training.loop import Execution, Report, TrainingFailedError

#: Called with an epoch and its scores on the held-out split.
ReportScores = Callable[[int, Mapping[str, float]], None]
#: A training function: it takes the settings and a function to report scores; it returns the final
#: scores.
TrainFunction = Callable[[Settings, ReportScores], Mapping[str, float]]


class Objective(Protocol):
    """What is tuned: it makes the run of some settings, and reads its scores."""

    def facts(self) -> Mapping[str, Any]:
        """What decides the scores beside the hyperparameters, as plain values."""

    def baseline(self, values: Mapping[str, Value]) -> dict[str, Value] | None:
        """The hyperparameters of the baseline; with some values, all others are its own."""

    def settings(self, values: Mapping[str, Value], seed: int, *, final: bool) -> Settings:
        """The settings of a training with some hyperparameters."""

    def job(self, settings: Settings, *, asks: bool) -> Job:
        """The run of some settings."""

    def steps(self) -> int | None:
        """The last epoch, whose scores are the final ones; None if it is not known."""

    def scores(self, job: Job) -> Mapping[str, float]:
        """The scores of a finished run."""

    def label(self, settings: Settings) -> str:
        """The settings in a few words."""

    def command(self, settings: Settings) -> str:
        """How to repeat a training."""


@dataclass(frozen=True)
class TuneReport:
    """Listens to a study; by default nobody does.

    Attributes:
        note: Called with remarks.
        begun: Called with the number of a trial and its settings in words.
        ended: Called with the number of a trial and how it ended.
    """

    note: Callable[[str], None] = lambda _: None
    begun: Callable[[int, str], None] = lambda _number, _label: None
    ended: Callable[[int, str], None] = lambda _number, _outcome: None


@dataclass(frozen=True)
class Plan:
    """How a study is computed.

    Attributes:
        folder: The folder of the study.
        trials: The number of trials, those of earlier calls included.
        score: The score to maximise on the held-out split.
        seed: The seed of the sampler and of all trials.
        sampler: ``tpe``, or ``random`` as its baseline.
        best: The number of best configurations that are repeated.
        seeds: The number of seeds with which they are repeated.
        workers: Trainings at a time: per GPU, or on the CPU; 0 trains in this process.
        ray: The address of a Ray cluster that trains instead of this machine.
        execution: How each training is computed.
        data: The paths of data sets on every machine of the cluster, by their names.
    """

    folder: Path
    trials: int = 30
    score: str = "map"
    seed: int = 0
    sampler: Sampler = "tpe"
    best: int = 3
    seeds: int = 3
    workers: int | None = None
    ray: str | None = None
    execution: Execution = Execution()
    data: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in {"trials": 1, "best": 1, "seeds": 0, "seed": 0}.items():
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def pool(self, jobs: Iterable[Job], most: int, listener: Callable[[int], Report]) -> Pool:
        """The pool that computes runs, of which the next may depend on those that have ended."""
        if self.workers == 0 and self.ray is None:
            return SerialPool(jobs, self.execution, listener)
        return make_pool(
            jobs,
            most,
            execution=self.execution,
            workers=self.workers,
            ray=self.ray,
            data=self.data,
            listener=listener,
            one_by_one=True,
        )


@dataclass
class SerialPool:
    """Runs in this process, one at a time.

    Attributes:
        jobs: The runs; the next one is drawn when the last one has ended.
        execution: How each run is computed.
        report: Gives the listener to the events of a run, by its number.
    """

    jobs: Iterable[Job]
    execution: Execution
    report: Callable[[int], Report]

    def run(self) -> Generator[Ended, None, None]:
        """Compute them, and yield each that has ended; those of other processes come last."""
        rest, busy = enumerate(self.jobs), deque[tuple[int, Job]]()
        while True:
            following = next(rest, None)
            if following is None and not busy:
                return
            waits = following is None
            number, job = busy.popleft() if following is None else following
            try:
                job.do(self.execution, self.report(number))
            except RunBusyError:
                self.report(number).note(busy_note(job.folder / job.name))
                busy.append((number, job))
                time.sleep(BUSY_SECONDS if waits else 0)
            except (RunStoppedError, TrainingFailedError) as error:
                yield number, error
            else:
                yield number, None


def tune(
    train: TrainFunction,
    space: Space,
    folder: Path,
    *,
    match: GradientMatch | None = None,
    baseline: Mapping[str, Value] | None = None,
    trials: int = 30,
    score: str = "map",
    seed: int = 0,
    sampler: Sampler = "tpe",
    best: int = 3,
    seeds: int = 3,
    workers: int = 0,
    ray: str | None = None,
    report: TuneReport = TuneReport(),
) -> Tuning:
    """Tune a training function of your own.

    Stopped or killed and called again, it goes on. Several processes may work on one folder. The
    function is called with settings and with a function to report the scores of an epoch, which
    ends the training if the trial is pruned. It must score on the held-out split that
    ``settings.split`` names: ``val`` in the search, and ``test`` for the final scores, which no
    choice has seen. An undefined score (NaN) fails the trial; an error ends the study, and the
    trial goes on at the next call.

    Args:
        train: The training function. With ``workers``, it must be importable.
        space: The hyperparameters, such as ``loss_space(["iou", "ciou"])``.
        folder: The folder of the study.
        match: Matches the mean gradients of the losses; ``settings.factor("box_gain")`` then
            includes its factor.
        baseline: The values of the baseline, to which the best configurations are compared; by
            default those of the first kind with α = 1 and factors of 1.
        trials: The number of trials, those of earlier calls included.
        score: The score to maximise.
        seed: The seed of the sampler and of all trials.
        sampler: ``tpe``, or ``random`` as its baseline.
        best: The number of best configurations that are repeated with other seeds.
        seeds: The number of those seeds; 0 repeats none.
        workers: Trainings at a time in processes of their own; 0 trains in this process.
        ray: The address of a Ray cluster that trains instead of this machine.
        report: Listens to the study.

    Raises:
        TuneError: The study in the folder is another one.

    Examples:
        >>> from alphaiou.study.tune import loss_space
        >>> def train(settings, report):
        ...     for epoch in (1, 2):
        ...         score = 0.5 - (settings.loss.alpha - 2) ** 2 / 100
        ...         report(epoch, {"map": score * epoch / 2})
        ...     return {"map": score}
        >>> result = tune(train, loss_space(only=["alpha"]), Path("study"), trials=8, seeds=0)
        >>> len(result.trials), result.trials[0].values
        (8, {'alpha': 1.0})
    """
    plan = Plan(folder, trials, score, seed, sampler, best, seeds, workers, ray)
    if baseline is None:
        baseline = next(first_trials(space), None)
    return run_study(FunctionObjective(train, folder, match, baseline), space, plan, report)


@dataclass(frozen=True)
class FunctionObjective:
    """A training function.

    Attributes:
        train: The function.
        folder: Its runs have folders below this one.
        match: Matches the gradients of the losses.
        usual: The values of the baseline.
    """

    train: TrainFunction
    folder: Path
    match: GradientMatch | None = None
    usual: Mapping[str, Value] | None = None

    def facts(self) -> Mapping[str, Any]:
        """The name of the function."""
        return {"function": getattr(self.train, "__qualname__", type(self.train).__name__)}

    def baseline(self, values: Mapping[str, Value]) -> dict[str, Value] | None:
        """The values that were given for it."""
        return None if self.usual is None else {**self.usual, **values}

    def settings(self, values: Mapping[str, Value], seed: int, *, final: bool) -> Settings:
        """The values, and the match of their loss."""
        settings = Settings(dict(values), seed, "test" if final else "val")
        if self.match is None:
            return settings
        return replace(settings, match=self.match(settings.first_loss))

    def job(self, settings: Settings, *, asks: bool) -> FunctionJob:
        """A call of the function."""
        return FunctionJob(settings.name, self.folder.absolute(), self.train, settings, asks)

    def steps(self) -> None:
        """Known by the function alone."""

    def scores(self, job: Job) -> Mapping[str, float]:
        """What the function returned."""
        scores: dict[str, float] = json.loads((job.folder / job.name / job.result).read_text())
        return scores

    def label(self, settings: Settings) -> str:
        """Every value."""
        named = ((name, settings.values[name]) for name in settings.values)
        return ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in named
        )

    def command(self, settings: Settings) -> str:
        """The settings as Python."""
        return f"train({settings!r}, report)"


# The search


def run_study(objective: Objective, space: Space, plan: Plan, report: TuneReport) -> Tuning:
    """Compute the trials that are missing, repeat the best ones, and write the result.

    Args:
        objective: What is tuned.
        space: The hyperparameters.
        plan: How the study is computed.
        report: Listens to it.
    """
    facts = {"score": plan.score, **objective.facts()}
    journal = TrialJournal(
        plan.folder, space, facts, trials=plan.trials, seed=plan.seed, sampler=plan.sampler
    )
    search(objective, journal, plan, report)
    rows = rows_of(objective, journal, plan) if plan.seeds else Rows()
    scores = repeat(objective, rows, plan, report)
    tuning = tuning_of(objective, journal, plan, rows, scores)
    tuning.write(plan.folder)
    return tuning


def search(objective: Objective, journal: TrialJournal, plan: Plan, report: TuneReport) -> None:
    """Compute trials until the study has as many as planned, also those of processes that end."""
    while True:
        _trials(objective, journal, plan, report)
        if not journal.others_run():
            return
        time.sleep(BUSY_SECONDS)  # another process computes the last trials


def _trials(objective: Objective, journal: TrialJournal, plan: Plan, report: TuneReport) -> None:
    """Compute trials until none can be begun."""
    claims: list[Claim] = []
    jobs: list[Job] = []

    def settings_of(claim: Claim) -> Settings:
        return objective.settings(claim.values, plan.seed, final=False)

    def drawn() -> Iterator[Job]:
        while (claim := journal.claim()) is not None:
            claims.append(claim)
            jobs.append(objective.job(settings_of(claim), asks=True))
            report.begun(claim.number, objective.label(settings_of(claim)))
            yield jobs[-1]

    def listener(number: int) -> Report:
        claim = claims[number]

        def epoch_done(entry: dict[str, Any]) -> None:
            score = (entry.get("val") or {}).get(plan.score)
            if score is None or entry["epoch"] == objective.steps():
                return
            if not claim.report(entry["epoch"], score):
                raise RunStoppedError(f"trial {claim.number} is pruned")

        return Report(note=report.note, epoch_done=epoch_done)

    pool = plan.pool(drawn(), plan.trials, listener)
    try:
        with closing(pool.run()) as ends:
            for number, error in ends:
                claim, job = claims[number], jobs[number]
                if error is None:
                    scores = objective.scores(job)
                    journal.complete(claim, job.name, scores, plan.score)
                    outcome = f"{plan.score} {scores.get(plan.score, math.nan):.4f}"
                else:
                    outcome = _end(journal, claim, job.name, error)
                report.ended(claim.number, outcome)
    finally:  # what has not ended is left to the next call
        for claim in claims:
            claim.lock.close()


def _end(journal: TrialJournal, claim: Claim, run: str, error: Exception | None) -> str:
    """Note how a trial without scores has ended; return it in words.

    Raises:
        Exception: The error of the run, if it says nothing of the trial.
    """
    if isinstance(error, RunStoppedError):
        journal.prune(claim, run)
        return "pruned"
    if isinstance(error, TrainingFailedError) and not isinstance(error, RunKilledError):
        journal.fail(claim, run, str(error))
        return f"failed: {error}"
    assert error is not None
    raise error


# The best configurations


def rows_of(objective: Objective, journal: TrialJournal, plan: Plan) -> Rows:
    """What is repeated: the baseline, the best loss at equal gradient scale, the best trials.

    A configuration that is there twice is one row.
    """
    best = best_trials(journal, plan.best)
    baseline = objective.baseline({})
    if not best:
        return Rows()
    wanted = {f"trial {trial.number}": dict(trial.params) for trial in best}
    winner, values = next(iter(wanted.items()))
    if baseline is not None:
        loss = {name: value for name, value in values.items() if name not in FACTORS}
        matched = objective.baseline(loss) or {}
        wanted = {"baseline": baseline, "equal gradient": matched, **wanted}
    names: dict[str, str] = {}  # the label of each run
    label_of = {}
    for label, own in wanted.items():
        run = objective.job(objective.settings(own, plan.seed, final=True), asks=False).name
        label_of[label] = names.setdefault(run, label)
    rows = {label: own for label, own in wanted.items() if label_of[label] == label}
    roles = {name: label_of.get(name, "") for name in ("baseline", "equal gradient")}
    return Rows(rows, roles["baseline"], roles["equal gradient"], label_of[winner])


def repeat(objective: Objective, rows: Rows, plan: Plan, report: TuneReport) -> Scores:
    """Train configurations with several new seeds, and score them on the final split.

    Returns:
        The scores by row and seed.
    """
    seeds = range(plan.seed + 1, plan.seed + 1 + plan.seeds)
    wanted = [
        (label, seed, objective.job(objective.settings(values, seed, final=True), asks=False))
        for seed in seeds
        for label, values in rows.values.items()
    ]
    jobs = [job for _, _, job in wanted]
    pool = plan.pool(jobs, len(jobs), lambda _: Report(note=report.note))
    with closing(pool.run()) as ends:
        for number, error in ends:
            if isinstance(error, RunKilledError) or not isinstance(
                error, TrainingFailedError | None
            ):
                raise error
            if error is not None:
                report.note(f"{wanted[number][0]}, seed {wanted[number][1]}, failed: {error}")
    scores: dict[str, dict[int, Mapping[str, float]]] = {label: {} for label in rows.values}
    for label, seed, job in wanted:
        if (job.folder / job.name / job.result).exists():
            scores[label][seed] = objective.scores(job)
    return scores
