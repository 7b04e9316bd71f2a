"""The training loop: epochs, evaluation, checkpoints, and the final record."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import torch
from typing_extensions import NotRequired, TypedDict  # those of Python 3.11

from alphaiou._config import to_plain
from alphaiou._environment import device_kind
from alphaiou._files import file_digest
from alphaiou.data.problems import DataError
from alphaiou.errors import AlphaIoUError, TerminatedError
from alphaiou.inference.evaluation import evaluate
from alphaiou.inference.start_weights import weights_file
from alphaiou.inference.weights import (
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    read_tensors,
    save_weights,
    write_tensors,
)
from alphaiou.training.callbacks import Callback
from alphaiou.training.checkpoint import LAST, load_checkpoint, locked, save_checkpoint
from alphaiou.training.processes import launch
from alphaiou.training.recipe import DataRecipe, Recipe, recipe_hash, write_recipe
from alphaiou.training.record import (
    RecordError,
    check_same_recipe,
    finished_record,
    peak_memory,
    run_record,
    write_record,
)
from alphaiou.training.setup import (
    TOUCHED,
    DataDigest,
    Execution,
    Report,
    Run,
    RunContext,
    changed_data,
    data_digest,
    prepare,
    resolve_auto,
)

__all__ = ["Callback", "Execution", "Report", "TrainingFailedError", "fit"]


#: The resolved recipe in the folder of a run; ``alphaiou train --config`` repeats the run.
RECIPE = "recipe.yaml"
CHOSEN_ON_TEST = (
    "the weights are chosen on the test set, as in the paper: its scores are optimistic"
)


class TrainingFailedError(AlphaIoUError):
    """Training cannot continue; the message gives the reason and the files that were saved."""


def fit(
    recipe: Recipe,
    folder: Path,
    *,
    execution: Execution = Execution(),
    report: Report = Report(),
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Train a detector with a recipe and write the record of the run.

    An interrupted run resumes from its last checkpoint and gives the same result. A finished run
    is not repeated.

    Args:
        recipe: The recipe of the run.
        folder: The folder of all runs. A run has its own subfolder, named by its recipe hash.
        execution: Where and how to run.
        report: Callbacks for the progress.
        callbacks: Code of one's own and loggers. They are not called for a run that is finished
            already.

    Returns:
        The record, also written to ``record.json`` in the folder of the run.

    Raises:
        TrainingFailedError: If the loss is not finite.
        DataError: If the data cannot be used.
        CheckpointError: If a checkpoint cannot be read, or is of another recipe or other data.
        RecordError: If the run is finished and its record is damaged, or of another recipe or data.
    """
    recipe = resolve_auto(recipe, device_kind(execution.device))
    run_folder = folder / recipe_hash(recipe)
    finished = finished_record(run_folder, recipe)
    if finished is not None:
        report.note(f"{run_folder} is finished already")
        check_data(finished, run_folder, recipe.data, report.note)
        _check_start(finished, run_folder, recipe, report.note)
        return finished
    processes, device = launch(execution.device, execution.devices, execution.nodes)
    context = RunContext(execution, report if processes.is_first else Report(), processes, device)
    with locked(run_folder) if processes.is_first else nullcontext():
        if processes.count == 1:  # it may have been finished before the lock was free
            finished = finished_record(run_folder, recipe)
            if finished is not None:
                return finished
        if processes.is_first:
            write_recipe(recipe, run_folder / RECIPE)
        run = prepare(recipe, run_folder, context)
        if recipe.select == "best-on-test":
            run.notes.append(CHOSEN_ON_TEST)
            context.report.note(CHOSEN_ON_TEST)
        context.report.prepared(run.step.batches, run.sets.train.index.classes)
        with run.step.process_settings(), _interruptible():
            _resume(run)
            run.callbacks = tuple(callbacks) if processes.is_first else ()
            for callback in run.callbacks:
                callback.on_start(recipe, run_folder, tuple(run.history))
            try:
                while not _is_over(run):
                    _epoch(run, len(run.history))
                return _finish(run)
            except KeyboardInterrupt:
                _save_before_exit(run)
                raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM interrupt the training as Ctrl-C does, so that a checkpoint can be saved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(*_: object) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _save_before_exit(run: Run) -> None:
    """Save the state after the last whole epoch, unless it is saved, and report it."""
    if not run.context.processes.is_first:
        return
    done, last = len(run.history), run.folder / LAST
    if run.unsaved is not None:
        save_checkpoint(run.unsaved, run.folder)
        done = len(run.unsaved.facts["history"])
    with suppress(OSError):  # the listener may have ended
        if last.exists():
            run.context.report.note(
                f"stopped; the same command resumes after epoch {done} of {run.recipe.epochs} "
                f"from {last}"
            )
        else:
            run.context.report.note("stopped in the first epoch; the same command starts again")


def check_data(
    record: Mapping[str, Any],
    folder: Path,
    data: DataRecipe,
    note: Callable[[str], None],
    known: dict[DataRecipe, DataDigest] | None = None,
) -> None:
    """Compare the data of a finished run with what they are now.

    Args:
        record: The record of the run.
        folder: Its folder.
        data: Where its data are now.
        note: Called if nothing but the times of image files differ, or the data cannot be opened.
        known: Digests by data set, to be shared by several runs.

    Raises:
        RecordError: If the annotations or the sizes of image files have changed since.
    """
    if record["data"] is None:  # of an earlier version
        return
    known = {} if known is None else known
    try:
        now = known[data] if data in known else data_digest(data)
    except DataError as error:
        note(f"{folder}: the data cannot be compared with those of the training: {error}")
        return
    known[data] = now
    changed = changed_data(record["data"], now)
    if changed == TOUCHED:
        note(f"{folder}: since the training, {changed}")
    elif changed:
        raise RecordError(
            f"{folder}: since the training, {changed} ({data.path}); restore them, or to "
            f"train again: rm -r {folder}"
        )


def _check_start(
    record: Mapping[str, Any], folder: Path, recipe: Recipe, note: Callable[[str], None]
) -> None:
    """Compare the weights that a finished run started from with what they are now.

    Raises:
        RecordError: If they have changed since.
    """
    if recipe.weights_source is None:
        return
    path = weights_file(recipe.weights_source)
    if not path.is_file():
        note(f"{folder}: {path} is gone and cannot be compared with the weights it started from")
    elif file_digest(path) != record.get("weights_from"):
        raise RecordError(
            f"{folder}: since the training, the weights that it started from have changed "
            f"({path}); restore them, or to train again: rm -r {folder}"
        )


class _Facts(TypedDict):
    """What a checkpoint holds beside its tensors."""

    recipe: dict[str, Any]
    history: list[dict[str, Any]]
    best: dict[str, Any] | None
    data: DataDigest
    weights_from: NotRequired[str | None]


def _resume(run: Run) -> None:
    """Load the last checkpoint, if any."""
    checkpoint = load_checkpoint(run.folder, run.context.report.note)
    if checkpoint is not None:
        _restore(run, checkpoint)
        run.context.report.note(f"resuming after epoch {len(run.history)} of {run.recipe.epochs}")
    run.step.record()


def _restore(run: Run, checkpoint: Checkpoint) -> None:
    path = run.folder / LAST
    again = f"to start again: rm -r {run.folder}"
    try:
        facts = msgspec.convert(dict(checkpoint.facts), _Facts)
    except msgspec.ValidationError as error:
        raise CheckpointError(
            f"{path}: is damaged, or of another version of alphaiou ({error}); {again}"
        ) from None
    check_same_recipe(path, facts["recipe"], run.recipe)
    changed = changed_data(facts["data"], run.sets.digest)
    if changed == TOUCHED:
        run.notes.append(f"after epoch {len(facts['history'])}, {changed}")
        run.context.report.note(run.notes[-1])
    elif changed:
        raise CheckpointError(
            f"{path}: since it was written, {changed} ({run.recipe.data.path}); restore them, or "
            f"{again}"
        )
    if facts.get("weights_from") != run.weights_from:
        raise CheckpointError(
            f"{path}: since it was written, the weights that the training started from have "
            f"changed ({run.recipe.weights}); restore them, or {again}"
        )
    try:
        run.step.load_state(dict(checkpoint.tensors))
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); {again}"
        ) from None
    run.history, run.best = facts["history"], facts["best"]


def _epoch(run: Run, epoch: int) -> None:
    step, steps, start = run.step, run.step.steps_per_epoch, time.perf_counter()
    step.begin_epoch(epoch)
    for number in range(steps):
        step()
        run.context.report.stepped(epoch, number + 1, steps)
    losses = run.context.processes.average(
        step.totals.losses / steps
    ).tolist()  # waits for the device
    seconds = time.perf_counter() - start
    _check_finite(run, epoch)
    entry: dict[str, Any] = {
        "epoch": epoch + 1,
        **dict(zip(step.detector.loss_names, losses, strict=True)),
        "seconds": seconds,
        "images_per_second": steps * run.recipe.batch_size / seconds,
        "memory_bytes": peak_memory(run.context.device),
        "lost_boxes": int(run.context.processes.total(step.totals.lost_boxes)),
    }
    if _is_due(run.recipe, epoch):
        _score(run, entry)
    _keep(run, entry)  # first: an interrupt of the listener saves this epoch too
    run.context.report.epoch_done(entry)
    for callback in run.callbacks:
        callback.on_epoch(entry)
    _save(run)


def _keep(run: Run, entry: dict[str, Any]) -> None:
    """Add an epoch to the history, and take its state as the one to be saved."""
    if run.context.processes.is_first:
        facts: _Facts = {
            "recipe": to_plain(run.recipe),
            "history": [*run.history, entry],
            "best": run.best,
            "data": run.sets.digest,
            "weights_from": run.weights_from,
        }
        run.unsaved = Checkpoint(run.step.state(), dict(facts))
    run.history.append(entry)


def _save(run: Run) -> None:
    """Write a checkpoint, or keep a copy of the state if the last checkpoint is recent.

    It is always written after the last epoch, and if the best weights depend on it.
    """
    done = len(run.history)
    newest = run.best is not None and run.best["epoch"] == done
    recent = time.monotonic() - run.saved_at < run.context.execution.checkpoint_seconds
    if run.unsaved is not None:
        if not recent or newest or _is_over(run):
            save_checkpoint(run.unsaved, run.folder)
            run.unsaved, run.saved_at = None, time.monotonic()
        else:  # the next step changes the tensors; a copy on the GPU would need its memory
            tensors = run.unsaved.tensors.items()
            copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors}
            run.unsaved = Checkpoint(copies, run.unsaved.facts)
    run.context.processes.wait()


def _is_over(run: Run) -> bool:
    return len(run.history) == run.recipe.epochs or bool(_stopped(run))


def _stopped(run: Run) -> str:
    """Return after which epoch the training stops early, and why; "" if it does not.

    It depends on the history alone, so that a resumed run stops after the same epoch. An mAP of 0
    is no result to improve on: detectors often stay there for some epochs before they learn.
    """
    done, best, patience = len(run.history), run.best, run.recipe.patience
    if not patience or done == run.recipe.epochs or best is None or not best["map"]:
        return ""
    if "val" not in run.history[-1] or done - best["epoch"] < patience:
        return ""
    return (
        f"after epoch {done} of {run.recipe.epochs}: the mAP on val has not improved since epoch "
        f"{best['epoch']} (patience {patience})"
    )


def _is_due(recipe: Recipe, epoch: int) -> bool:
    last = epoch + 1 == recipe.epochs
    return last or bool(recipe.evaluate_every and (epoch + 1) % recipe.evaluate_every == 0)


def _score(run: Run, entry: dict[str, Any]) -> None:
    """Score the averaged weights, and save them if the recipe selects the best.

    Without selection, the test set may be used if the run has no validation set.
    """
    watched = {"last": ("val", "test"), "best": ("val",), "best-on-test": ("test",)}
    name = next((split for split in watched[run.recipe.select] if split in run.caches), None)
    if name is None or (name == "test" and not run.recipe.evaluate_every):
        return
    entry[name] = _scores(run, name)
    found = entry[name]["map"]
    if run.recipe.select == "last" or math.isnan(found):
        return
    if run.best is None or found > run.best["map"]:
        run.best = {"epoch": entry["epoch"], "map": found, "on": name}
        _keep_weights(run, entry["epoch"])


def _scores(run: Run, name: str) -> dict[str, float]:
    found = evaluate(
        run.step.average.model,
        getattr(run.sets, name).index,
        run.caches[name],
        rule=run.recipe.rule,
        precision=run.recipe.precision,
        rank=run.context.processes.rank,
        count=run.context.processes.count,
    )
    return found.as_dict()


def _check_finite(run: Run, epoch: int) -> None:
    """Save the batch and stop if a loss was not finite; the weights are those before that step."""
    failed = int(run.step.totals.failed_step)
    if failed < 0:
        return
    place = failed - epoch * run.step.steps_per_epoch
    share = f"-process-{run.context.processes.rank}" if run.context.processes.count > 1 else ""
    path = run.folder / f"failed-step-{failed}{share}.safetensors"
    batches = run.step.batches
    batches.begin_epoch(epoch)
    for number in range(place + 1):
        pieces = batches.draw(torch.tensor(number, device=run.context.device))
    tensors = {
        f"{number}.{name}": tensor
        for number, piece in enumerate(pieces)
        for name, tensor in piece.tensors().items()
    }
    write_tensors(Checkpoint(tensors, {"epoch": epoch + 1, "step": place + 1}), path)
    last = run.folder / LAST
    before = f"; the last checkpoint is {last}" if last.exists() else ""
    raise TrainingFailedError(
        f"the loss is not finite at step {place + 1} of epoch {epoch + 1}; the batch is in "
        f"{path}{before}. A smaller optimisation.lr or box_gain, or precision fp32, usually helps"
    )


def _keep_weights(run: Run, epoch: int) -> None:
    """Save the averaged weights after an epoch for inference."""
    if run.context.processes.is_first:
        save_weights(
            run.step.average.model,
            to_plain(run.recipe),
            run.sets.train.index.classes,
            run.folder / WEIGHTS,
            epochs=epoch,
            images=len(run.caches["train"]),
        )
    run.context.processes.wait()


def _finish(run: Run) -> dict[str, Any]:
    """Save the last weights unless better ones were selected, and write the record."""
    stopped = _stopped(run)
    if stopped:
        run.context.report.note(f"stopped {stopped}")
    if run.best is None:
        _keep_weights(run, len(run.history))
    scored = next((name for name in ("test", "val") if name in run.caches), None)
    record = run_record(
        run.recipe,
        run.history,
        scores=_kept_scores(run, scored) if scored else {},
        scored_on=_scored_on(run, scored),
        best=run.best,
        notes=run.notes,
        device=run.context.device,
        data=run.sets.digest,
        weights=file_digest(run.folder / WEIGHTS) if run.context.processes.is_first else "",
        weights_from=run.weights_from,
        stopped=stopped,
    )
    if run.context.processes.is_first:
        write_record(record, run.folder)
    for callback in run.callbacks:
        callback.on_end(record)
    run.context.processes.wait()
    return record


def _kept_scores(run: Run, name: str) -> dict[str, float]:
    """Return the scores of the saved weights on a set, from the history if their epoch has them."""
    epoch = len(run.history) if run.best is None else run.best["epoch"]
    known: dict[str, float] | None = run.history[epoch - 1].get(name)
    if known is not None:
        return known
    if run.best is not None:
        best = read_tensors(run.folder / WEIGHTS).tensors
        run.step.average.model.load_state_dict(dict(best))
    return _scores(run, name)


def _scored_on(run: Run, scored: str | None) -> str:
    if scored is None:
        return ""
    data = run.recipe.data
    split: str | None = getattr(data, scored)
    return split or f"{data.hold_out:g} of {data.train}, held out"
