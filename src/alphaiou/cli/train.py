"""``alphaiou train``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from rich.console import Console

    from alphaiou.cli.train_options import Train
    from alphaiou.losses.spec import LossSpec
    from alphaiou.training.loop import Execution
    from alphaiou.training.recipe import Recipe


def train_command() -> type[Train]:
    """Train a detector with any box loss."""
    from alphaiou.cli.train_options import Train

    return Train


def run_train(command: Train) -> int:
    """Train, then print the scores and the paths of the written files."""
    from rich.console import Console

    from alphaiou.cli.training_progress import TrainingProgress, with_events
    from alphaiou.training.loop import fit
    from alphaiou.training.processes import is_first_process
    from alphaiou.training.recipe import recipe_hash

    execution = _execution(command)
    recipe = _recipe(command)
    console = Console(quiet=not is_first_process())
    command.out.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    with TrainingProgress(recipe, console) as progress:
        report = progress.report()
        if command.tensorboard:
            report = with_events(report, command.out / recipe_hash(recipe))
        record = fit(recipe, command.out, execution=execution, report=report)
    if is_first_process():
        _conclude(record, command, console)
    return 0


def _recipe(command: Train) -> Recipe:
    from dataclasses import replace

    from alphaiou._environment import device_kind
    from alphaiou.cli import UsageError
    from alphaiou.errors import AlphaIoUError
    from alphaiou.training.setup import resolve_auto

    recipe = command.recipe
    try:
        if command.source is not None:
            recipe = replace(recipe, data=replace(recipe.data, path=command.source))
        for name in ("loss", "rpn_loss", "match_loss"):
            text = getattr(command, name.replace("loss", "box_loss"))
            if text is not None:
                recipe = replace(recipe, **{name: _loss(text)})  # type: ignore[arg-type]
        if command.alpha_from_to is not None:
            recipe = replace(recipe, alpha_schedule=_schedule(command.alpha_from_to))
        return resolve_auto(recipe, device_kind(command.device))
    except AlphaIoUError:  # about the data or the device, not the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None


def _loss(text: str) -> LossSpec:
    from alphaiou.detectors.registry import DELTA_LOSSES
    from alphaiou.losses.spec import LossSpec

    return LossSpec(text) if text in DELTA_LOSSES else LossSpec.parse(text)


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


def _conclude(record: dict[str, Any], command: Train, console: Console) -> None:
    from alphaiou.cli.training_progress import final_table

    folder = command.out / str(record["name"])
    if record["scores"]:
        console.print(final_table(record))
    else:
        console.print("no split to score on: give --data.val, --data.test or --data.hold-out")
    for name in ("record.json", "best.safetensors"):
        console.print(f"wrote {folder / name}", highlight=False, soft_wrap=True)
