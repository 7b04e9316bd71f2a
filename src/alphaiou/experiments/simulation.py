"""Running the simulation for several losses, keeping what is finished, and writing its tables."""

import csv
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch

from alphaiou import __version__
from alphaiou.losses.simulate import (
    IOU_THRESHOLDS,
    SimulationResult,
    SimulationSettings,
    simulate,
)
from alphaiou.losses.spec import LossSpec

POINTS_PER_CHUNK = {"cpu": 256, "cuda": 5000}


@dataclass(frozen=True)
class SimulationRun:
    """The result of one loss, and how it came about."""

    spec: LossSpec
    result: SimulationResult
    seconds: float
    resumed: bool = False


def run_simulations(
    specs: Sequence[LossSpec],
    settings: SimulationSettings,
    out: Path,
    *,
    device: str = "cpu",
    equal_slope: bool = False,
    fresh: bool = False,
    on_loss: Callable[[LossSpec, bool], None] | None = None,
    on_step: Callable[[int], None] | None = None,
) -> list[SimulationRun]:
    """Simulate each loss, or take the result that an earlier call kept under ``out``.

    Args:
        specs: The losses.
        settings: What to simulate.
        out: The folder under which each result is kept as soon as it is there.
        device: Where to compute.
        equal_slope: Divide the step of each loss by its α, the slope of 1 − IoU^α at IoU 1.
        fresh: Compute again what is there already.
        on_loss: Called with each loss before it starts, and with whether its result was kept.
        on_step: Called after each step with the number of cases moved.

    Returns:
        The results, in the order of the losses.
    """
    runs = []
    for spec in specs:
        slope = (spec.alpha or 1.0) if equal_slope else 1.0
        own_settings = replace(settings, learning_rate=settings.learning_rate / slope)
        path = result_path(spec, own_settings, out)
        run = None if fresh else load_run(spec, path)
        if on_loss is not None:
            on_loss(spec, run is not None)
        if run is None:
            run = run_simulation(spec, own_settings, device=device, on_step=on_step)
            save_run(run, path)
        runs.append(run)
    return runs


def run_simulation(
    spec: LossSpec,
    settings: SimulationSettings,
    *,
    device: str = "cpu",
    on_step: Callable[[int], None] | None = None,
) -> SimulationRun:
    """Simulate one loss and take the time."""
    start = time.perf_counter()
    with _one_thread():
        result = simulate(
            spec.function("cxcywh"),
            settings,
            device=device,
            points_per_chunk=POINTS_PER_CHUNK.get(torch.device(device).type, 256),
            on_step=on_step,
        )
    return SimulationRun(spec, result, time.perf_counter() - start)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one core.

    In steps this small threads gain little, and on a busy machine they wait for one another many
    times longer than they work.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def result_path(spec: LossSpec, settings: SimulationSettings, out: Path) -> Path:
    """Where the result of a loss is kept: a file for each loss, settings and version."""
    key = json.dumps([asdict(spec), asdict(settings), __version__], sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:10]
    return out / "results" / f"{str(spec).replace(':', '-')}-{digest}.npz"


def save_run(run: SimulationRun, path: Path) -> None:
    """Keep a finished result; an interruption leaves no half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_suffix(".partial")
    with partial_path.open("wb") as file:
        np.savez_compressed(
            file,
            seconds=np.float64(run.seconds),
            **{f.name: getattr(run.result, f.name).numpy() for f in fields(SimulationResult)},
        )
    partial_path.replace(path)


def load_run(spec: LossSpec, path: Path) -> SimulationRun | None:
    """Read a result that was kept; None if there is none, or none that can be read."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            tensors = {f.name: torch.from_numpy(data[f.name]) for f in fields(SimulationResult)}
            seconds = float(data["seconds"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return SimulationRun(spec, SimulationResult(**tensors), seconds, resumed=True)


def write_curves_csv(runs: Sequence[SimulationRun], path: Path) -> Path:
    """Write the curves: a row for each loss and iteration."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("loss", "iteration", "mean_error", "mean_iou"))
        for run in runs:
            curves = zip(run.result.error.tolist(), run.result.iou.tolist(), strict=True)
            for iteration, (error, iou) in enumerate(curves):
                writer.writerow((run.spec, iteration, f"{error:.9g}", f"{iou:.9g}"))
    return path


def write_summary_csv(
    runs: Sequence[SimulationRun], settings: SimulationSettings, path: Path
) -> Path:
    """Write the table: a row for each loss."""
    rows = [summary(run, settings) for run in runs]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def summary(run: SimulationRun, settings: SimulationSettings) -> dict[str, str]:
    """The figures of one loss by the names of their columns."""
    result = run.result
    shares = zip(IOU_THRESHOLDS, result.shares.tolist(), strict=True)
    return {
        "loss": str(run.spec),
        "mean_iou": f"{result.iou[-1].item():.6f}",
        **{f"share_iou_over_{threshold}": f"{share:.6f}" for threshold, share in shares},
        "mean_error": f"{result.error[-1].item():.9g}",
        "total_error": f"{result.error[-1].item() * settings.cases:.9g}",
        "cases": str(settings.cases),
        "seconds": f"{run.seconds:.1f}",
    }
