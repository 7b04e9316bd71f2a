"""The training loop: epochs, evaluation, checkpoints, and the final record."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from alphaiou._environment import device_kind
from alphaiou.errors import AlphaIoUError
from alphaiou.inference.evaluation import evaluate
from alphaiou.inference.weights import (
    WEIGHTS,
    Checkpoint,
    CheckpointError,
    read_tensors,
    save_weights,
    write_tensors,
)
from alphaiou.training.checkpoint import LAST, load_checkpoint, locked, save_checkpoint
from alphaiou.training.processes import launch
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import finished_record, peak_memory, run_record, write_record
from alphaiou.training.setup import Execution, Report, Run, RunContext, prepare, resolve_auto

__all__ = ["Execution", "Report", "TrainingFailedError", "fit"]


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
) -> dict[str, Any]:
    """Train a detector with a recipe and write the record of the run.

    An interrupted run resumes from its last checkpoint and gives the same result. A finished run
    is not repeated.

    Args:
        recipe: The recipe of the run.
        folder: The folder of all runs. A run has its own subfolder, named by its recipe hash.
        execution: Where and how to run.
        report: Callbacks for the progress.

    Returns:
        The record, also written to ``record.json`` in the folder of the run.

    Raises:
        TrainingFailedError: If the loss is not finite.
        DataError: If the data cannot be used.
        CheckpointError: If a checkpoint cannot be written or read.
    """
    recipe = resolve_auto(recipe, device_kind(execution.device))
    run_folder = folder / recipe_hash(recipe)
    finished = finished_record(run_folder)
    if finished is not None:
        report.note(f"{run_folder} is finished already")
        return finished
    processes, device = launch(execution.device, execution.devices, execution.nodes)
    context = RunContext(execution, report if processes.is_first else Report(), processes, device)
    with locked(run_folder) if processes.is_first else nullcontext():
        run = prepare(recipe, run_folder, context)
        if recipe.select == "best-on-test":
            run.notes.append(CHOSEN_ON_TEST)
            context.report.note(CHOSEN_ON_TEST)
        with run.step.process_settings():
            first = _resume(run)
            for epoch in range(first, recipe.epochs):
                _epoch(run, epoch)
            return _finish(run)


def _resume(run: Run) -> int:
    """Load the last checkpoint, if any, and return the epoch to start with."""
    checkpoint = load_checkpoint(run.folder)
    if checkpoint is not None:
        _restore(run, checkpoint)
        run.context.report.note(f"resuming after epoch {len(run.history)} of {run.recipe.epochs}")
    run.step.record()
    return len(run.history)


def _restore(run: Run, checkpoint: Checkpoint) -> None:
    path = run.folder / LAST
    again = f"to start again: rm -r {run.folder}"
    if checkpoint.facts.get("data") != run.data_mark():
        raise CheckpointError(
            f"{path}: the data have changed since ({run.recipe.data.path}); restore them, or "
            f"{again}"
        )
    try:
        run.step.load_state(dict(checkpoint.tensors))
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{path}: does not fit this version of alphaiou ({reason}); {again}"
        ) from None
    run.history, run.best = list(checkpoint.facts["history"]), checkpoint.facts["best"]


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
    run.history.append(entry)
    run.context.report.epoch_done(entry)
    _save(run)


def _save(run: Run) -> None:
    """Write a checkpoint, unless the last one is recent and no best weights depend on it."""
    done = len(run.history)
    newest = run.best is not None and run.best["epoch"] == done
    recent = time.monotonic() - run.saved_at < run.context.execution.checkpoint_seconds
    if run.context.processes.is_first and (not recent or newest or done == run.recipe.epochs):
        facts = {"history": run.history, "best": run.best, "data": run.data_mark()}
        save_checkpoint(Checkpoint(run.step.state(), facts), run.folder)
        run.saved_at = time.monotonic()
    run.context.processes.wait()


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
        _keep_weights(run)


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


def _keep_weights(run: Run) -> None:
    """Save the averaged weights for inference."""
    if run.context.processes.is_first:
        classes = run.sets.train.index.classes
        save_weights(run.step.average.model, asdict(run.recipe), classes, run.folder / WEIGHTS)
    run.context.processes.wait()


def _finish(run: Run) -> dict[str, Any]:
    """Save the last weights unless better ones were selected, and write the record."""
    if run.best is None:
        _keep_weights(run)
    scored = next((name for name in ("test", "val") if name in run.caches), None)
    record = run_record(
        run.recipe,
        run.history,
        scores=_kept_scores(run, scored) if scored else {},
        scored_on=_scored_on(run, scored),
        best=run.best,
        notes=run.notes,
        device=run.context.device,
    )
    if run.context.processes.is_first:
        write_record(record, run.folder)
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
