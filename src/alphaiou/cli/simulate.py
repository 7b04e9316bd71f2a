"""``alphaiou simulate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from alphaiou.losses.spec import LossSpec
    from alphaiou.simulate import SimulationRun, SimulationSettings

DEFAULT_LOSSES = ("iou", "giou", "diou", "ciou", "iou:3", "giou:3", "diou:3", "ciou:3")
ORIENTED_LOSSES = ("iou", "giou", "diou", "ciou", "probiou", "kld", "gwd", "kfiou")
FULL_POINTS = 5000


@dataclass(frozen=True)
class Simulate:
    """Regress boxes by gradient descent on each loss, no detector.

    The simulation of the DIoU paper: 343 boxes at each point around a target.

    Prints a table and writes to --out:
    - simulation.png, .svg   convergence, and the final IoU around the target
    - summary.csv            the table
    - curves.csv             mean error and IoU by iteration
    - results/               one file per loss; a second run skips finished losses
    """

    losses: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[LOSS ...]")
    ] = DEFAULT_LOSSES
    """kind, kind:alpha or kind:alpha:penalty_alpha; also kind+modifier, as in eiou+focal:3."""

    oriented: bool = False
    """Boxes with an angle, 162 at each point; by default with all their kinds, at α = 1 and 3."""

    full: bool = False
    """Use the published size: 5000 points, 1,715,000 cases."""

    points: int = 400
    """Number of starting points; ignored with --full."""

    iterations: int = 200
    """Number of gradient descent steps."""

    learning_rate: float = 0.1
    """Initial step size; divided by 10 after 80 and 90 percent of the iterations."""

    equal_slope: bool = False
    """Divide the step of each loss by its α, so that all losses have the same slope at IoU 1."""

    radius: float = 3.0
    """Maximum distance of the starting points from the target."""

    seed: int = 0
    """Seed of the starting points."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on."""

    fresh: bool = False
    """Recompute losses that an earlier run has finished."""

    out: Path = Path("runs/simulate")
    """Folder to write to."""


def run_simulate(command: Simulate) -> int:
    """Simulate every loss, print the table, and write the figure and the CSV files."""
    from rich.console import Console

    from alphaiou._figures import save_figure
    from alphaiou.simulate import simulation_figure, write_curves_csv, write_summary_csv

    specs, settings = _understand(command)
    command.out.mkdir(parents=True, exist_ok=True)  # fail before the work, not after it
    console = Console()
    runs = _run_all(command, specs, settings, console)
    console.print(_table(runs, settings, equal_slope=command.equal_slope))
    paths = [
        write_summary_csv(runs, settings, command.out / "summary.csv"),
        write_curves_csv(runs, command.out / "curves.csv"),
        *save_figure(lambda: simulation_figure(runs, settings), command.out / "simulation"),
    ]
    for path in paths:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _understand(command: Simulate) -> tuple[list[LossSpec], SimulationSettings]:
    from alphaiou.cli import UsageError
    from alphaiou.losses.spec import LossSpec
    from alphaiou.simulate import SimulationSettings

    texts = command.losses
    if command.oriented and texts == DEFAULT_LOSSES:
        texts = (*ORIENTED_LOSSES, *(f"{kind}:3" for kind in ORIENTED_LOSSES))
    try:
        specs = list(dict.fromkeys(LossSpec.parse(text) for text in texts))
        settings = SimulationSettings(
            points=FULL_POINTS if command.full else command.points,
            iterations=command.iterations,
            learning_rate=command.learning_rate,
            radius=command.radius,
            seed=command.seed,
            oriented=command.oriented,
        )
        for spec in specs:
            spec.function(settings.box_format)  # which not every loss is
    except ValueError as error:
        raise UsageError(str(error)) from None
    return specs, settings


def _run_all(
    command: Simulate, specs: Sequence[LossSpec], settings: SimulationSettings, console: Console
) -> list[SimulationRun]:
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    from alphaiou.simulate import run_simulations

    device, steps = _device(command.device), settings.cases * settings.iterations
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=len(specs) * steps)

        def start(spec: LossSpec, kept: bool) -> None:
            total = progress.tasks[0].total or 0.0
            # Finished losses are left out: they would distort the estimated time.
            progress.update(task, description=spec.display_name, total=total - kept * steps)

        runs = run_simulations(
            specs,
            settings,
            command.out,
            device=device,
            equal_slope=command.equal_slope,
            fresh=command.fresh,
            on_loss=start,
            on_step=lambda cases: progress.advance(task, cases),
        )
    kept = [str(run.spec) for run in runs if run.resumed]
    if kept:
        console.print(
            f"finished in an earlier run (--fresh recomputes them): {' '.join(kept)}",
            highlight=False,
        )
    return runs


def _device(name: str) -> str:
    import torch

    from alphaiou.cli import UsageError

    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UsageError("--device cuda: torch finds no CUDA device; use --device cpu")
    return ("cuda" if available else "cpu") if name == "auto" else name


def _table(
    runs: Sequence[SimulationRun], settings: SimulationSettings, *, equal_slope: bool
) -> Table:
    from rich import box
    from rich.table import Table

    from alphaiou.simulate import IOU_THRESHOLDS

    title = f"{settings.cases:,} cases, {settings.iterations} iterations, seed {settings.seed}"
    table = Table(box=box.SIMPLE_HEAD, title=title + ", step divided by α" * equal_slope)
    table.add_column("loss", no_wrap=True)
    shares = (f"IoU\n> {threshold:g}" for threshold in IOU_THRESHOLDS)
    for name in ("mean\nIoU", *shares, "total\nerror", "seconds"):
        table.add_column(name, justify="right", vertical="bottom")
    for run in runs:
        table.add_row(
            run.spec.display_name,
            f"{run.result.iou[-1].item():.4f}",
            *(f"{share:.1%}" for share in run.result.shares.tolist()),
            f"{run.result.error[-1].item() * settings.cases:,.0f}",
            f"{run.seconds:.1f}",
        )
    return table
