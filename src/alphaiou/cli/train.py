"""``alphaiou train``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Any

    from rich.console import Console

    from alphaiou.cli.train_options import Train
    from alphaiou.study.report.loggers import RunLogger
    from alphaiou.training.loop import Execution
    from alphaiou.training.recipe import Recipe

#: The files of a run that are named at its end.
WRITTEN = (
    "recipe.yaml",
    "record.json",
    "best.safetensors",
    "detections.npz",
    "batch.jpg",
    "predictions.jpg",
    "precision_recall.png",
    "training.html",
)


def train_command(arguments: Sequence[str]) -> type[Train]:
    """Train a detector with any box loss."""
    from alphaiou.cli.train_options import options_of

    return options_of(arguments)


def run_train(command: Train) -> int:
    """Train, then print the scores and the paths of the written files."""
    from dataclasses import replace
    from functools import partial

    from rich.console import Console

    from alphaiou.cli.training_progress import TrainingProgress
    from alphaiou.training.loop import fit
    from alphaiou.training.processes import is_first_process
    from alphaiou.training.recipe import recipe_hash

    execution = _execution(command)
    recipe = _recipe(command)
    folder = command.out / recipe_hash(recipe)
    console = Console(quiet=not is_first_process())
    command.out.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    _announce(command, recipe, console)
    loggers = _loggers(command)
    with TrainingProgress(recipe, console) as progress:
        report = progress.report()
        if not command.no_page:
            from alphaiou.study.report.training_page import save_batch

            report = replace(report, prepared=partial(save_batch, folder))
        record = fit(recipe, command.out, execution=execution, report=report, callbacks=loggers)
    if is_first_process():
        if command.keep_detections:
            _keep_detections(folder, command, console)
        if not command.no_page:
            _write_page(folder, record, command, console)
        for logger in loggers:
            logger.log_pictures(folder, len(record["history"]))
            logger.close()
        _conclude(record, folder, console)
    return 0


def _loggers(command: Train) -> list[RunLogger]:
    if not command.logger:
        return []
    from alphaiou.study.report.loggers import RunLogger

    return [RunLogger(name) for name in dict.fromkeys(command.logger)]


def _announce(command: Train, recipe: Recipe, console: Console) -> None:
    """Print what was chosen from the data, and what to expect of the training."""
    from alphaiou.training.auto import too_short

    chosen = command.chosen
    if chosen is not None:
        for reason in chosen.reasons:
            console.print(f"auto: {reason}", highlight=False, soft_wrap=True)
        warning = too_short(chosen.steps, recipe)
        if warning:
            console.print(f"warning: {warning}", highlight=False, soft_wrap=True)
    if not (recipe.data.val or recipe.data.test or recipe.data.hold_out):
        console.print(
            "no split to score on: --data.hold-out 0.2 holds out a fifth of the training images",
            highlight=False,
            soft_wrap=True,
        )


def _recipe(command: Train) -> Recipe:
    from dataclasses import fields, replace

    from alphaiou._environment import device_kind
    from alphaiou.cli import UsageError
    from alphaiou.detectors.registry import parse_loss
    from alphaiou.errors import AlphaIoUError
    from alphaiou.training.recipe import Recipe
    from alphaiou.training.recipes import with_settings
    from alphaiou.training.setup import resolve_auto

    given = command.recipe
    try:
        recipe = Recipe(**{item.name: getattr(given, item.name) for item in fields(given)})
        if command.source is not None:
            recipe = replace(recipe, data=replace(recipe.data, path=command.source))
        for name in ("loss", "rpn_loss", "match_loss"):
            text = getattr(command, name.replace("loss", "box_loss"))
            if text is not None:
                recipe = with_settings(recipe, **{name: parse_loss(text)})
        if command.alpha_from_to is not None:
            recipe = replace(recipe, alpha_schedule=_schedule(command.alpha_from_to))
        return resolve_auto(recipe, device_kind(command.device))
    except AlphaIoUError:  # about the data or the device, not the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


def _schedule(text: str) -> Any:  # noqa: ANN401 - AlphaSchedule, which needs torch
    from alphaiou.losses.module import AlphaSchedule

    start, _, rest = text.partition(":")
    end, _, shape = rest.partition(":")
    try:
        numbers = float(start), float(end)
    except ValueError:
        raise ValueError(
            f"--alpha-schedule {text!r}: write START:END or START:END:SHAPE, such as 1:3:cosine"
        ) from None
    return AlphaSchedule(*numbers, shape or "linear")  # type: ignore[arg-type]


def _execution(command: Train) -> Execution:
    from alphaiou._environment import device_kind
    from alphaiou.cli import UsageError
    from alphaiou.cli.options import check_missing
    from alphaiou.training.loop import Execution
    from alphaiou.training.step import StepOptions

    for name in ("devices", "nodes"):
        if getattr(command, name) < 1:
            raise UsageError(f"--{name} {getattr(command, name)}: must be at least 1")
    if command.workers is not None and command.workers < 0:
        raise UsageError(f"--workers {command.workers}: must be at least 0")
    alone = command.devices * command.nodes == 1
    fast = device_kind(command.device) == "cuda" and alone
    chosen = StepOptions(
        compile=fast and not command.no_compile, capture=fast and not command.no_graph
    )
    return Execution(
        device=command.device,
        devices=command.devices,
        nodes=command.nodes,
        workers=command.workers,
        missing=check_missing(command.missing),
        step=chosen if command.no_compile or command.no_graph else None,
    )


def _keep_detections(folder: Path, command: Train, console: Console) -> None:
    from alphaiou._environment import device_kind
    from alphaiou.inference.kept_detections import DETECTIONS
    from alphaiou.study.kept import keep_detections

    if not (folder / DETECTIONS).exists():
        with console.status("detecting objects to be kept"):
            device = device_kind(command.device)
            keep_detections(folder, device=device, workers=command.workers)


def _write_page(folder: Path, record: dict[str, Any], command: Train, console: Console) -> None:
    """Write the page, unless there is one; the run is finished also without it."""
    from alphaiou.errors import AlphaIoUError
    from alphaiou.study.report.training_page import PAGE, write_training_page

    if (folder / PAGE).exists():
        return
    try:
        with console.status("detecting objects for the page"):
            write_training_page(folder, record, device=command.device, workers=command.workers)
    except (AlphaIoUError, OSError) as error:
        text = f"{folder / PAGE} could not be written: {error}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)


def _conclude(record: dict[str, Any], folder: Path, console: Console) -> None:
    from alphaiou.cli.training_progress import final_table

    if record["scores"]:
        console.print(final_table(record))
    for name in WRITTEN:
        if (folder / name).exists():
            console.print(f"wrote {folder / name}", highlight=False, soft_wrap=True)
