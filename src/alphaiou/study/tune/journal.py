"""The trials of a study in one file, shared by all processes of a machine that work on it.

Optuna keeps the trials in its journal, a file to which lines are appended. A trial belongs to the
process that holds the lock on its folder, which ends with the process. The trial of a process that
was killed is therefore found by the next one, and goes on with the same number and settings.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from alphaiou._config import differing_fields
from alphaiou.errors import AlphaIoUError
from alphaiou.study.tune.space import Choice, Space, Value, described, first_trials
from alphaiou.training.batches import seed_of
from alphaiou.training.checkpoint import RunBusyError, locked

Sampler = Literal["tpe", "random"]
JOURNAL, LOCK, TRIALS = "journal.log", "study.lock", "trials"
STUDY = "tune"
#: Trials that are sampled at random before TPE, and those without which nothing is pruned.
RANDOM_TRIALS, FULL_TRIALS = 10, 5
#: The scores of a trial before it may be pruned.
LEAST_SCORES = 2


class TuneError(AlphaIoUError):
    """A study cannot go on; the message names the file and the remedy."""


class _JournalLock(JournalFileOpenLock):
    """A lock on the journal that ends with its process.

    Optuna's own is a file, for which others would wait 30 seconds after a kill. A line that was
    not written to its end is removed, since the next one would be appended to it.
    """

    def __init__(self, journal: Path) -> None:
        self.journal, self.stack = journal, ExitStack()

    def acquire(self) -> bool:
        """Wait for the lock."""
        self.stack.enter_context(exclusive(self.journal.with_name(f"{self.journal.name}.lock")))
        content = self.journal.read_bytes()[-1:]
        if content not in (b"", b"\n"):
            whole = self.journal.read_bytes().rpartition(b"\n")
            os.truncate(self.journal, len(whole[0] + whole[1]))
        return True

    def release(self) -> None:
        """Let others write."""
        self.stack.close()


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait for the lock on a file, which ends with the process."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@dataclass
class Claim:
    """A trial that this process computes.

    Attributes:
        trial: The trial.
        values: Its hyperparameters.
        lock: The lock on its folder, held until the trial has ended.
    """

    trial: Trial
    values: dict[str, Value]
    lock: ExitStack

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self.trial.number

    def report(self, step: int, score: float) -> bool:
        """Add a score to the journal; return whether the trial is worth continuing.

        After a kill, scores that are there already come again and are left as they are.
        """
        study = self.trial.study
        known = study.trials[self.number].intermediate_values
        if step not in known and math.isfinite(score):
            self.trial.report(score, step)
        return len(known) + 1 < LEAST_SCORES or not self.trial.should_prune()


class TrialJournal:
    """The trials of a study.

    Args:
        folder: The folder of the study.
        space: The hyperparameters.
        facts: What else decides the scores, as plain values; the study is of these alone.
        trials: The number of trials, those of earlier calls included.
        seed: The seed of the sampler.
        sampler: TPE, or random numbers.

    Raises:
        TuneError: The study in the folder is another one.
    """

    def __init__(
        self,
        folder: Path,
        space: Space,
        facts: Mapping[str, Any],
        *,
        trials: int,
        seed: int = 0,
        sampler: Sampler = "tpe",
    ) -> None:
        self.folder, self.space, self.trials = folder, space, trials
        self.seed, self.sampler = seed, sampler
        folder.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        path = folder / JOURNAL
        with self._exclusively():
            backend = JournalFileBackend(str(path), _JournalLock(path))
            try:
                self.study = optuna.create_study(
                    storage=JournalStorage(backend),
                    study_name=STUDY,
                    direction="maximize",
                    load_if_exists=True,
                    pruner=optuna.pruners.MedianPruner(FULL_TRIALS),
                )
            except (ValueError, KeyError) as error:
                raise TuneError(
                    f"{path}: is damaged ({error}); to start again: rm -r {folder}"
                ) from None
            self._check({"space": described(space), "seed": seed, "sampler": sampler, **facts})
            for values in first_trials(space):
                self.study.enqueue_trial(values, skip_if_exists=True)

    def _check(self, facts: Mapping[str, Any]) -> None:
        """Note what the study is of, or compare it with what was noted."""
        wanted = json.loads(json.dumps(facts))
        stored = self.study.user_attrs.get("facts")
        if stored is None:
            self.study.set_user_attr("facts", wanted)
        elif stored != wanted:
            changes = "; ".join(differing_fields(stored, wanted)[:3])
            raise TuneError(
                f"{self.folder}: holds another study ({changes}); choose another folder, or remove "
                f"this one: rm -r {self.folder}"
            )

    def _exclusively(self) -> contextlib.AbstractContextManager[None]:
        return exclusive(self.folder / LOCK)

    def claim(self) -> Claim | None:
        """A trial for this process: one that was left behind, or the next; None if there is none.

        The next trial depends on the trials before it and on nothing else, so that a study that was
        killed goes on as it would have.
        """
        with self._exclusively():
            for frozen in self._running():
                lock = self._lock(frozen.number)
                if lock is not None:
                    # Optuna has no other way to continue a trial.
                    return self._claim(Trial(self.study, frozen._trial_id), lock)
            begun = sum(trial.state != TrialState.WAITING for trial in self.all())
            if begun >= self.trials:
                return None
            self.study.sampler = self._sampler(begun)
            trial = self.study.ask()
            lock = self._lock(trial.number)
            if lock is None:
                raise TuneError(
                    f"{self._trial_folder(trial.number)}: is locked by another process, but its "
                    "trial is new; is the folder copied, or the journal removed?"
                )
            return self._claim(trial, lock)

    def _claim(self, trial: Trial, lock: ExitStack) -> Claim:
        values: dict[str, Value] = {}
        for name, item in self.space.items():
            if isinstance(item, Choice):
                values[name] = trial.suggest_categorical(name, item.values)  # type: ignore[assignment]
            else:
                values[name] = trial.suggest_float(name, item.low, item.high, log=item.log)
        return Claim(trial, values, lock)

    def _sampler(self, begun: int) -> optuna.samplers.BaseSampler:
        """The sampler of the next trial, whose seed is its own."""
        seed = seed_of(STUDY, self.seed, begun) % 2**32
        if self.sampler == "random":
            return optuna.samplers.RandomSampler(seed)
        # Trials that others compute count as bad, so that nobody tries the same.
        return optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, constant_liar=True, seed=seed
        )

    def _trial_folder(self, number: int) -> Path:
        return self.folder / TRIALS / f"{number:04}"

    def _lock(self, number: int) -> ExitStack | None:
        """Take the lock of a trial; None if a living process has it."""
        lock = ExitStack()
        try:
            lock.enter_context(locked(self._trial_folder(number)))
        except RunBusyError:
            return None
        return lock

    def complete(self, claim: Claim, run: str, scores: Mapping[str, float], score: str) -> None:
        """Note the scores of a trial; if the one to maximise is undefined, it has failed."""
        known = {name: value for name, value in scores.items() if math.isfinite(value)}
        claim.trial.set_user_attr("scores", known)
        state = TrialState.COMPLETE if score in known else TrialState.FAIL
        self._tell(claim, run, state, known.get(score))

    def prune(self, claim: Claim, run: str) -> None:
        """Note that a trial was ended early."""
        self._tell(claim, run, TrialState.PRUNED)

    def fail(self, claim: Claim, run: str, reason: str) -> None:
        """Note that a trial has failed, such as for a loss that is not finite."""
        claim.trial.set_user_attr("reason", reason)
        self._tell(claim, run, TrialState.FAIL)

    def _tell(self, claim: Claim, run: str, state: TrialState, value: float | None = None) -> None:
        claim.trial.set_user_attr("run", run)
        self.study.tell(claim.trial, value, state=state)
        claim.lock.close()

    def all(self) -> list[FrozenTrial]:
        """Every trial so far."""
        return self.study.get_trials(deepcopy=False)

    def _running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def others_run(self) -> bool:
        """Whether trials are not over, of this process or another."""
        return bool(self._running())
