"""``alphaiou tune``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from alphaiou.cli.options import Missing, check_missing
from alphaiou.data.problems import MISSING

if TYPE_CHECKING:
    from alphaiou.training.recipe import Recipe

OPTIONAL = {"help_behavior_hint": ""}


@dataclass(frozen=True)
class Tune:
    """Tune α, its schedule, the kind, the gains and the learning rate.

    Trials are scored on a held-out split, the best ones on test with new seeds.

    First, the mean gradient of each loss is matched to that of the baseline.

    Prints the best configurations and writes to --out:
    - tuning.md, .csv, .json   table with intervals, importance, Pareto front,
                               and the command that repeats the winner
    - journal.log              the trials; run again, the study goes on
    - a folder per run         record and weights

    Several processes of a machine may run the same command.
    """

    kinds: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[KIND ...]", **OPTIONAL)
    ] = ()
    """Losses without powers, such as iou ciou; without --config the first is the baseline."""

    data: Annotated[str | None, tyro.conf.arg(metavar="PATH", **OPTIONAL)] = None
    """Data set, or a word for a drawn one (default: that of --config, or shapes-discs-64)."""

    config: Annotated[Path | None, tyro.conf.arg(metavar="FILE", **OPTIONAL)] = None
    """Recipe of alphaiou train in YAML, whose loss is the baseline."""

    detector: str = "yolov5n"
    """Name of a detector, without --config."""

    epochs: Annotated[int | None, tyro.conf.arg(metavar="N", **OPTIONAL)] = None
    """Passes over the training images."""

    image_size: Annotated[int | None, tyro.conf.arg(metavar="N", **OPTIONAL)] = None
    """Long side of the images in pixels."""

    trials: int = 30
    """Number of trials, those of earlier calls included."""

    score: str = "map"
    """Score to maximise on the held-out split: map, map75_95, ap50, ap75, ..."""

    alpha: tuple[float, float] = (0.5, 5.0)
    """Range of α."""

    gain: float = 4.0
    """Gains are tuned between 1/GAIN and GAIN times their defaults."""

    only: Annotated[
        tuple[
            Literal["kind", "alpha", "schedule", "box_gain", "class_gain", "objectness_gain", "lr"],
            ...,
        ],
        tyro.conf.arg(**OPTIONAL),
    ] = ()
    """Hyperparameters to tune; the others keep their defaults (default: all)."""

    best: int = 3
    """Number of best configurations to repeat with new seeds."""

    seeds: int = 3
    """Number of new seeds; 0 repeats nothing."""

    seed: int = 0
    """Of the search and of all its trials."""

    sampler: Literal["tpe", "random"] = "tpe"
    """How trials are chosen."""

    workers: Annotated[int | None, tyro.conf.arg(metavar="N", **OPTIONAL)] = None
    """Trainings at a time: per GPU (default: 1), or on the CPU (default: one per core);
    0 trains in this process."""

    ray: Annotated[str | None, tyro.conf.arg(metavar="ADDRESS", **OPTIONAL)] = None
    """Ray cluster to train on: HOST:PORT, or auto for the one of this machine."""

    missing: Missing = MISSING

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute."""

    out: Path = Path("runs/tune")
    """Folder of the study."""


def run_tune(command: Tune) -> int:
    """Tune, and print the result."""
    from rich.console import Console

    from alphaiou.study.tune import TuneReport, loss_space, tune_recipe
    from alphaiou.study.tune.recipes import loss_kind
    from alphaiou.study.tune.search import Plan
    from alphaiou.training.loop import Execution

    console, notes = Console(stderr=True), set[str]()

    def show(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    def note(text: str) -> None:
        """Print a remark of all trials once."""
        if text not in notes:
            notes.add(text)
            show(text)

    recipe = _baseline(command)
    kinds = command.kinds or (loss_kind(recipe),)
    space = loss_space(kinds, alpha=command.alpha, gain=command.gain, only=command.only)
    plan = Plan(
        command.out,
        trials=command.trials,
        score=command.score,
        seed=command.seed,
        sampler=command.sampler,
        best=command.best,
        seeds=command.seeds,
        workers=command.workers,
        ray=command.ray,
        execution=Execution(device=command.device, missing=check_missing(command.missing)),
    )
    report = TuneReport(
        note=note,
        begun=lambda number, label: show(f"trial {number}: {label}"),
        ended=lambda number, outcome: show(f"trial {number}: {outcome}"),
    )
    tuning = tune_recipe(recipe, space, plan, report)
    sys.stdout.write(tuning.markdown())
    show(f"wrote {command.out / 'tuning.md'}, tuning.json and the journal")
    return 0


def _baseline(command: Tune) -> Recipe:
    from alphaiou.boxes import check_choice
    from alphaiou.cli import UsageError
    from alphaiou.detectors import DETECTORS
    from alphaiou.errors import AlphaIoUError
    from alphaiou.study.compare import DRAWN, CompareSettings
    from alphaiou.study.tune.recipes import small_recipe
    from alphaiou.training.recipe import read_recipe

    try:
        if command.config is None:
            check_choice("detector", command.detector, tuple(DETECTORS))
            settings = CompareSettings(
                data=command.data or DRAWN,
                seed=command.seed,
                detector=command.detector,
                image_size=command.image_size,
                epochs=command.epochs,
            )
            return small_recipe((*command.kinds, "iou")[0], settings)
        recipe = read_recipe(command.config)
        return replace(
            recipe,
            data=replace(recipe.data, path=command.data or recipe.data.path),
            epochs=command.epochs or recipe.epochs,
            image_size=command.image_size or recipe.image_size,
        )
    except AlphaIoUError:  # about the data, not about the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from None
