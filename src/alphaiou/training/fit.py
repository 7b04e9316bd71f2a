"""The loop: epochs of steps, scores, checkpoints, and the record that a run leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from alphaiou.data.cache import ImageCache, build_cache
from alphaiou.data.dataset import DetectionDataset
from alphaiou.detectors import build_detector
from alphaiou.detectors.anchors import fit_anchors
from alphaiou.errors import AlphaIoUError
from alphaiou.losses import AlphaIoULoss
from alphaiou.metrics import Scores
from alphaiou.training.batches import CachedBatches, seed_of
from alphaiou.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    read_tensors,
    save_checkpoint,
    write_tensors,
)
from alphaiou.training.evaluate import evaluate
from alphaiou.training.processes import Processes
from alphaiou.training.recipe import Recipe, recipe_hash
from alphaiou.training.record import finished_record, run_record, write_record
from alphaiou.training.sets import RunSets, run_sets
from alphaiou.training.step import StepOptions, TrainingStep


class TrainingFailedError(AlphaIoUError):
    """A training cannot go on; the message says why, and what was saved."""


@dataclass(frozen=True)
class Execution:
    """Where and how a run is computed; none of it is part of the result.

    Attributes:
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: GPUs, or processes on the CPU; started by torchrun if more than one.
        nodes: Machines.
        workers: Threads that decode images.
        step: Compiled, captured; by default both on CUDA, neither elsewhere.
    """

    device: str = "auto"
    devices: int = 1
    nodes: int = 1
    workers: int | None = None
    step: StepOptions | None = None


@dataclass(frozen=True)
class Report:
    """Who is told what a run does; by default nobody."""

    note: Callable[[str], None] = lambda _: None
    cached: Callable[[int, int], None] = lambda _done, _all: None
    stepped: Callable[[int, int, int], None] = lambda _epoch, _step, _steps: None
    epoch_done: Callable[[dict[str, Any]], None] = lambda _: None


@dataclass
class _Run:
    """What the functions of a run share."""

    recipe: Recipe
    folder: Path
    report: Report
    processes: Processes
    device: torch.device
    sets: RunSets
    step: TrainingStep
    caches: dict[str, ImageCache]
    history: list[dict[str, Any]] = field(default_factory=list)
    best: dict[str, Any] | None = None


def fit(
    recipe: Recipe,
    folder: Path,
    *,
    execution: Execution = Execution(),  # noqa: B008
    report: Report = Report(),  # noqa: B008
) -> dict[str, Any]:
    """Train a detector as a recipe says, and leave a record.

    Stopped at any moment and called again, it goes on from the last finished epoch to the same
    result; a finished run is not computed again.

    Args:
        recipe: The run.
        folder: Runs are kept under it, each in a folder named by the hash of its recipe.
        execution: Where and how to compute.
        report: Who is told.

    Returns:
        The record, which is also in ``record.json`` of the run's folder.

    Raises:
        TrainingFailedError: The loss is not finite.
        DataError: The data cannot be used.
        CheckpointError: A checkpoint cannot be written or read.
    """
    run_folder = folder / recipe_hash(recipe)
    done = finished_record(run_folder)
    if done is not None:
        report.note(f"{run_folder} is finished already")
        return done
    run = _prepare(recipe, run_folder, execution, report)
    first = _resume(run)
    for epoch in range(first, recipe.epochs):
        _epoch(run, epoch)
    return _finish(run)


def _prepare(recipe: Recipe, folder: Path, execution: Execution, report: Report) -> _Run:
    processes, device = _launch(execution, recipe)
    sets = run_sets(recipe)
    for note in sets.notes:
        report.note(note)
    options = execution.step or StepOptions(*[device.type == "cuda" and processes.count == 1] * 2)
    cache = _cache(sets.train, recipe, device, execution, report)
    torch.manual_seed(seed_of("weights", recipe.seed))
    detector = _detector(recipe, sets.train, cache).to(device)
    processes.join(detector)
    batches = CachedBatches(
        cache,
        recipe,
        slots=_slots(cache, recipe),
        processes=processes,
        device=device,
        compile=options.compile,
    )
    step = TrainingStep(
        detector,
        batches,
        recipe,
        steps_per_epoch=batches.steps,
        processes=processes,
        options=options,
    )
    caches = {}
    for name, dataset in (("val", sets.val), ("test", sets.test)):
        if dataset is not None:
            caches[name] = _cache(dataset, recipe, device, execution, report)
    return _Run(recipe, folder, report, processes, device, sets, step, caches)


def _launch(execution: Execution, recipe: Recipe) -> tuple[Processes, torch.device]:
    from lightning.fabric import Fabric

    fabric = Fabric(
        accelerator=execution.device,
        devices=execution.devices,
        num_nodes=execution.nodes,
        strategy="ddp" if execution.devices * execution.nodes > 1 else "auto",
    )
    fabric.launch()
    return Processes(fabric), fabric.device


def _cache(
    dataset: DetectionDataset,
    recipe: Recipe,
    device: torch.device,
    execution: Execution,
    report: Report,
) -> ImageCache:
    cache = build_cache(
        dataset,
        recipe.image_size,
        device=device,
        workers=execution.workers,
        on_progress=lambda done: report.cached(done, len(dataset)),
    )
    for problem in cache.problems:
        report.note(str(problem))
    return cache


def _detector(recipe: Recipe, train: DetectionDataset, cache: ImageCache) -> torch.nn.Module:
    loss = AlphaIoULoss(
        recipe.loss.kind,
        recipe.alpha_schedule or recipe.loss.alpha,
        penalty_alpha=recipe.loss.penalty_alpha,
    )
    detector = build_detector(
        recipe.detector,
        len(train.index.classes),
        box_loss=loss,
        box_gain=recipe.box_gain,
        objectness_gain=recipe.objectness_gain,
        class_gain=recipe.class_gain,
        objectness=recipe.objectness,
    )
    detector.postprocess = replace(detector.postprocess, nms_threshold=recipe.nms_threshold)
    detector.anchors.copy_(fit_anchors(_box_sizes(cache), detector.anchors, seed=recipe.seed))
    return detector


def _box_sizes(cache: ImageCache) -> Float[Tensor, "boxes 2"]:
    """Width and height of every box, in pixels at the size of training."""
    boxes = cache.boxes.cpu()
    there = torch.arange(boxes.shape[1]) < cache.counts.cpu()[:, None]
    return (boxes[..., 2:] - boxes[..., :2])[there]


def _slots(cache: ImageCache, recipe: Recipe) -> int:
    """Boxes that a batch can hold: twice the mean of whole mosaics, of which crops keep a half."""
    images = recipe.batch_size // recipe.optimisation.accumulate
    most = images * 4 * cache.boxes.shape[1]
    mean = cache.counts.double().mean().item()
    return max(1, min(most, max(512, int(8 * mean * images))))


def _resume(run: _Run) -> int:
    """The epoch to begin with."""
    kept = load_checkpoint(run.folder)
    if kept is None:
        run.step.record()
        return 0
    run.step.load_state(dict(kept.tensors))
    run.history, run.best = list(kept.facts["history"]), kept.facts["best"]
    run.report.note(f"going on after epoch {len(run.history)} of {run.recipe.epochs}")
    run.step.record()
    return len(run.history)


def _epoch(run: _Run, epoch: int) -> None:
    step, steps, start = run.step, run.step.steps_per_epoch, time.perf_counter()
    step.begin_epoch(epoch)
    for number in range(steps):
        step()
        run.report.stepped(epoch, number + 1, steps)
    losses = (step.totals.losses / steps).tolist()  # waits for the device
    seconds = time.perf_counter() - start
    _check_finite(run, epoch)
    entry: dict[str, Any] = {
        "epoch": epoch + 1,
        "box": losses[0],
        "objectness": losses[1],
        "class": losses[2],
        "seconds": seconds,
        "images_per_second": steps * run.recipe.batch_size / seconds,
        "lost_boxes": int(step.totals.lost_boxes),
    }
    if _is_due(run.recipe, epoch):
        _score(run, entry)
    run.history.append(entry)
    run.report.epoch_done(entry)
    if run.processes.is_first:
        facts = {"history": run.history, "best": run.best}
        save_checkpoint(Checkpoint(step.state(), facts), run.folder)
    run.processes.wait()


def _is_due(recipe: Recipe, epoch: int) -> bool:
    last = epoch + 1 == recipe.epochs
    return last or bool(recipe.evaluate_every and (epoch + 1) % recipe.evaluate_every == 0)


def _score(run: _Run, entry: dict[str, Any]) -> None:
    """Score the averaged weights on what the selection looks at, and keep the best ones."""
    name = "test" if run.recipe.select == "best-on-test" else "val"
    scores = _scores(run, name)
    if scores is None:
        return
    entry[name] = scores.as_dict()
    if run.recipe.select == "last" or not run.processes.is_first:
        return
    if run.best is None or entry[name]["map"] > run.best["map"]:
        run.best = {"epoch": entry["epoch"], "map": entry[name]["map"], "on": name}
        _save_weights(run, "best")


def _scores(run: _Run, name: str) -> Scores | None:
    dataset: DetectionDataset | None = getattr(run.sets, name)
    if dataset is None:
        return None
    return evaluate(
        run.step.average.model,
        dataset.index,
        run.caches[name],
        rule=run.recipe.rule,
        precision=run.recipe.precision,
        processes=run.processes,
    )


def _check_finite(run: _Run, epoch: int) -> None:
    """Stop with the batch saved if a loss was not finite; the weights are those before it."""
    failed = int(run.step.totals.failed_step)
    if failed < 0:
        return
    place = failed - epoch * run.step.steps_per_epoch
    path = run.folder / f"failed-step-{failed}.safetensors"
    run.folder.mkdir(parents=True, exist_ok=True)
    batches = run.step.batches
    batches.begin_epoch(epoch)
    for number in range(place + 1):
        pieces = batches.draw(torch.tensor(number, device=run.device))
    tensors = {
        f"{number}.{name}": tensor
        for number, piece in enumerate(pieces)
        for name, tensor in vars(piece).items()
    }
    write_tensors(tensors, path, {"epoch": epoch + 1, "step": place + 1})
    raise TrainingFailedError(
        f"the loss is not finite at step {place + 1} of epoch {epoch + 1}; its batch is in {path}, "
        f"and the checkpoint before it in {run.folder}. A smaller optimisation.lr or box_gain, or "
        "precision fp32, usually helps"
    )


def _save_weights(run: _Run, name: str) -> None:
    """The averaged weights alone, for inference."""
    path = run.folder / f"{name}.safetensors"
    spare = path.with_name(f"{path.name}.part")
    run.folder.mkdir(parents=True, exist_ok=True)
    facts = {"recipe": asdict(run.recipe), "classes": run.sets.train.index.classes}
    write_tensors(run.step.average.model.state_dict(), spare, facts)
    spare.replace(path)


def _finish(run: _Run) -> dict[str, Any]:
    """Choose the weights, score them on the test set, and write the record."""
    first = run.processes.is_first
    if run.recipe.select == "last":
        if first:
            _save_weights(run, "best")
    elif run.best is not None:
        run.processes.wait()
        best = read_tensors(run.folder / "best.safetensors").tensors
        run.step.average.model.load_state_dict(dict(best))
    start = time.perf_counter()
    scores = _scores(run, "test") or _scores(run, "val")
    seconds = time.perf_counter() - start
    record = run_record(
        run.recipe,
        run.history,
        scores=scores,
        scored_on=run.recipe.data.test or run.recipe.data.val or "",
        best=run.best,
        notes=run.sets.notes,
        device=run.device,
        evaluation_seconds=seconds,
    )
    if first:
        write_record(record, run.folder)
    run.processes.wait()
    return record
