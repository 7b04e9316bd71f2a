"""Boxes regressed without a detector, as in the paper of DIoU: simulation, tables and figure."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Circle
from numpy.typing import NDArray
from torch import Tensor

from alphaiou import __version__
from alphaiou._figures import CATEGORICAL, DASHES, FULL_WIDTH, INK, STYLE, panel_title
from alphaiou._files import replacing
from alphaiou._shapes import Float
from alphaiou.boxes import PairFormat
from alphaiou.losses.similarity import box_iou
from alphaiou.losses.spec import LossSpec
from alphaiou.oriented import oriented_to_corners

CENTER = 10.0
RADIUS = 3.0
ASPECT_RATIOS = (1 / 4, 1 / 3, 1 / 2, 1.0, 2.0, 3.0, 4.0)  # width : height
AREAS = (0.5, 0.67, 0.75, 1.0, 1.33, 1.5, 2.0)
CASES_PER_POINT = len(ASPECT_RATIOS) ** 2 * len(AREAS)
# Of oriented boxes: a tall box is a wide one that is turned.
ORIENTED_RATIOS = (1.0, 2.0, 4.0)
ORIENTED_AREAS = (0.5, 1.0, 2.0)
ANGLES = tuple(math.radians(angle) for angle in range(0, 180, 30))
ORIENTED_CASES_PER_POINT = len(ORIENTED_RATIOS) ** 2 * len(ORIENTED_AREAS) * len(ANGLES)
IOU_THRESHOLDS = (0.5, 0.75, 0.95)
MIN_SIDE = 1e-3
POINTS_PER_CHUNK = {"cpu": 256, "cuda": 5000}
MAX_COLUMNS = 4  # of maps in the figure
MAP_PIXELS = 240

LossFunction = Callable[[Float[Tensor, "*batch box"], Float[Tensor, "*batch box"]], Tensor]
"""From aligned (cx, cy, w, h) or (cx, cy, w, h, θ) boxes, target second, to one loss per pair."""


@dataclass(frozen=True)
class SimulationSettings:
    """The size and the step of a simulation; the defaults are the published ones."""

    points: int = 5000
    iterations: int = 200
    learning_rate: float = 0.1
    radius: float = RADIUS
    seed: int = 0
    oriented: bool = False

    def __post_init__(self) -> None:
        for name in ("points", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {getattr(self, name)!r}")
        for name in ("learning_rate", "radius"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)!r}")

    @property
    def cases(self) -> int:
        """The number of boxes that are regressed."""
        return self.points * (ORIENTED_CASES_PER_POINT if self.oriented else CASES_PER_POINT)

    @property
    def box_format(self) -> PairFormat:
        """The format of the boxes."""
        return "cxcywhr" if self.oriented else "cxcywh"

    def step(self, iteration: int) -> float:
        """The step size at an iteration, counted from 0."""
        decays = (10 * iteration >= 8 * self.iterations) + (10 * iteration >= 9 * self.iterations)
        return self.learning_rate * 0.1**decays


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """The result of one loss over all cases; curves hold the start and every iteration."""

    points: Float[Tensor, "points 2"]
    """The places of the anchors."""
    error: Float[Tensor, " steps"]
    """Mean error per case."""
    iou: Float[Tensor, " steps"]
    """Mean IoU with the target."""
    final_error: Float[Tensor, " points"]
    """Mean error at the end, by the place of the anchors."""
    final_iou: Float[Tensor, " points"]
    """Mean IoU at the end, by the place of the anchors."""
    shares: Float[Tensor, " thresholds"]
    """Share of the cases that end above each of ``IOU_THRESHOLDS``."""


@dataclass(frozen=True)
class SimulationRun:
    """The result of one loss, and the seconds it took."""

    spec: LossSpec
    result: SimulationResult
    seconds: float
    resumed: bool = False


@dataclass(frozen=True, eq=False)
class Descent:
    """The end of some descents, case by case, and sums over the cases at every step."""

    boxes: Float[Tensor, "*batch box"]
    errors: Float[Tensor, "*batch"]
    ious: Float[Tensor, "*batch"]
    total_error: Float[Tensor, " steps"]
    total_iou: Float[Tensor, " steps"]


# The simulation


def simulate(
    loss: LossFunction,
    settings: SimulationSettings,
    *,
    device: str | torch.device = "cpu",
    points_per_chunk: int = 256,
    on_step: Callable[[int], None] | None = None,
) -> SimulationResult:
    """Regress all the cases with one loss.

    Args:
        loss: The loss, of boxes in (cx, cy, w, h), or (cx, cy, w, h, θ) if they are oriented.
        settings: The points, iterations, step and seed, and whether boxes are oriented.
        device: Where to compute. The cases are the same on every device.
        points_per_chunk: Points, each with all its cases, that are regressed as one batch. It
            bounds the memory and, apart from rounding, changes nothing else.
        on_step: Called after every iteration of a chunk with the number of cases it moved.

    Returns:
        Means over the cases, by iteration and by point.

    Examples:
        >>> from alphaiou import alpha_iou_loss
        >>> def diou(pred, target):
        ...     return alpha_iou_loss(pred, target, kind="diou", alpha=1.0, box_format="cxcywh")
        >>> result = simulate(diou, SimulationSettings(points=4, iterations=20))
        >>> bool(result.error[-1] < result.error[0])
        True
    """
    points = anchor_points(settings)
    cases = oriented_cases_at if settings.oriented else cases_at
    descents = [
        descend(loss, *cases(chunk.to(device)), settings, on_step)
        for chunk in torch.split(points, points_per_chunk)
    ]
    ious = torch.cat([descent.ious for descent in descents])
    errors = torch.cat([descent.errors for descent in descents])
    return SimulationResult(
        points=points,
        error=torch.stack([d.total_error for d in descents]).sum(0).cpu() / settings.cases,
        iou=torch.stack([d.total_iou for d in descents]).sum(0).cpu() / settings.cases,
        final_error=errors.double().mean(-1).cpu(),
        final_iou=ious.double().mean(-1).cpu(),
        shares=torch.stack([(ious > t).double().mean() for t in IOU_THRESHOLDS]).cpu(),
    )


def anchor_points(settings: SimulationSettings) -> Float[Tensor, "points 2"]:
    """Points uniform in the disc; they depend on the seed alone, not on the device."""
    generator = torch.Generator().manual_seed(settings.seed)
    radius, turn = torch.rand(settings.points, 2, generator=generator).unbind(-1)
    angle = 2 * math.pi * turn
    # The root makes the density uniform by area rather than by radius.
    offset = settings.radius * radius.sqrt()[:, None] * torch.stack((angle.cos(), angle.sin()), -1)
    return CENTER + offset


def cases_at(
    points: Float[Tensor, "points 2"],
) -> tuple[Float[Tensor, "points cases 4"], Float[Tensor, "points cases 4"]]:
    """All anchors at these points, each paired with all targets, in (cx, cy, w, h)."""
    ratios, areas = points.new_tensor(ASPECT_RATIOS), points.new_tensor(AREAS)
    target_sides = _sides(points.new_ones(()), ratios)
    anchor_sides = _sides(areas[:, None], ratios).reshape(-1, 2)
    shape = (len(points), len(anchor_sides), len(target_sides))
    anchors = torch.cat(
        (
            points[:, None, None].expand(*shape, 2),
            anchor_sides[None, :, None].expand(*shape, 2),
        ),
        dim=-1,
    )
    targets = torch.cat((torch.full_like(target_sides, CENTER), target_sides), dim=-1)
    return anchors.flatten(1, 2), targets.expand(*shape, 4).flatten(1, 2)


def oriented_cases_at(
    points: Float[Tensor, "points 2"],
) -> tuple[Float[Tensor, "points cases 5"], Float[Tensor, "points cases 5"]]:
    """All oriented anchors at these points, each paired with all targets, which lie at θ = 0."""
    ratios, areas = points.new_tensor(ORIENTED_RATIOS), points.new_tensor(ORIENTED_AREAS)
    target_sides, angles = _sides(points.new_ones(()), ratios), points.new_tensor(ANGLES)
    anchor_sides = _sides(areas[:, None], ratios).reshape(-1, 2)
    shape = (len(points), len(anchor_sides), len(angles), len(target_sides))
    anchors = torch.cat(
        (
            points[:, None, None, None].expand(*shape, 2),
            anchor_sides[:, None, None].expand(*shape, 2),
            angles[:, None, None].expand(*shape, 1),
        ),
        dim=-1,
    )
    upright = torch.zeros_like(target_sides[:, :1])
    targets = torch.cat((torch.full_like(target_sides, CENTER), target_sides, upright), dim=-1)
    return anchors.flatten(1, 3), targets.expand(*shape, 5).flatten(1, 3)


def descend(
    loss: LossFunction,
    anchors: Float[Tensor, "*batch box"],
    targets: Float[Tensor, "*batch box"],
    settings: SimulationSettings,
    on_step: Callable[[int], None] | None = None,
) -> Descent:
    """Move all boxes from the anchors towards their targets."""
    boxes, ious, errors = anchors, *_measure(anchors, targets)
    total_iou, total_error = [ious.double().sum()], [errors.double().sum()]
    for iteration in range(settings.iterations):
        pred = boxes.detach().requires_grad_()
        # The cases are independent, so the gradient of the sum holds the gradient of each.
        (gradient,) = torch.autograd.grad(loss(pred, targets).sum(), pred)
        boxes = boxes - settings.step(iteration) * (2 - ious)[..., None] * gradient
        sides = boxes[..., 2:4].clamp(min=MIN_SIDE)
        boxes = torch.cat((boxes[..., :2], sides, boxes[..., 4:]), dim=-1)
        ious, errors = _measure(boxes, targets)
        total_iou.append(ious.double().sum())
        total_error.append(errors.double().sum())
        if on_step is not None:
            on_step(ious.numel())
    return Descent(boxes, errors, ious, torch.stack(total_error), torch.stack(total_iou))


def _measure(boxes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    if boxes.shape[-1] == 4:
        return box_iou(boxes, targets, box_format="cxcywh"), (boxes - targets).abs().sum(-1)
    return box_iou(boxes, targets, box_format="cxcywhr"), _corner_distance(boxes, targets)


def _corner_distance(boxes: Tensor, targets: Tensor) -> Tensor:
    """The mean distance of the corners of oriented boxes, however the boxes are written."""
    ours, theirs = oriented_to_corners(boxes), oriented_to_corners(targets)
    shifted = [(ours.roll(shift, -2) - theirs).norm(dim=-1).mean(-1) for shift in range(4)]
    return torch.stack(shifted).amin(0)


def _sides(area: Tensor, ratio: Tensor) -> Tensor:
    """Width and height of boxes by their area and their width : height."""
    return torch.stack(((area * ratio).sqrt(), (area / ratio).sqrt()), -1)


# Runs, and their results on disk


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
    """Simulate each loss, or load the result that an earlier call kept under ``out``.

    Args:
        specs: The losses.
        settings: What to simulate.
        out: The folder under which each result is kept as soon as it is finished.
        device: Where to compute.
        equal_slope: Divide the step of each loss by its α, the slope of 1 − IoU^α at IoU 1.
        fresh: Compute finished results again.
        on_loss: Called with each loss before it starts, and with whether it has a kept result.
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
    """Simulate one loss and measure the time."""
    start = time.perf_counter()
    with _one_thread():
        result = simulate(
            spec.function(settings.box_format),
            settings,
            device=device,
            points_per_chunk=POINTS_PER_CHUNK.get(torch.device(device).type, 256),
            on_step=on_step,
        )
    return SimulationRun(spec, result, time.perf_counter() - start)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Keep torch to one core.

    In steps this small, threads gain little, and on a busy machine they mostly wait for one
    another.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def result_path(spec: LossSpec, settings: SimulationSettings, out: Path) -> Path:
    """The file of a loss's result, one per loss, settings and version."""
    key = json.dumps([asdict(spec), asdict(settings), __version__], sort_keys=True)
    digest = hashlib.sha256(key.encode()).hexdigest()[:10]
    return out / "results" / f"{str(spec).replace(':', '-')}-{digest}.npz"


def save_run(run: SimulationRun, path: Path) -> None:
    """Write a finished result, atomically."""
    with replacing(path) as file:
        np.savez_compressed(
            file,
            seconds=np.float64(run.seconds),
            **{f.name: getattr(run.result, f.name).numpy() for f in fields(SimulationResult)},
        )


def load_run(spec: LossSpec, path: Path) -> SimulationRun | None:
    """Load a kept result; None if there is none, or if it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            tensors = {f.name: torch.from_numpy(data[f.name]) for f in fields(SimulationResult)}
            seconds = float(data["seconds"])
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    return SimulationRun(spec, SimulationResult(**tensors), seconds, resumed=True)


# Tables


def write_curves_csv(runs: Sequence[SimulationRun], path: Path) -> Path:
    """Write the curves: one row per loss and iteration."""
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
    """Write the table: one row per loss."""
    rows = [summary(run, settings) for run in runs]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def summary(run: SimulationRun, settings: SimulationSettings) -> dict[str, str]:
    """The numbers of one loss by the names of their columns."""
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


# The figure


def simulation_figure(runs: Sequence[SimulationRun], settings: SimulationSettings) -> Figure:
    """Draw error and IoU against the iteration, and a map of the final IoU for every loss."""
    rows = -(-len(runs) // MAX_COLUMNS)
    heights = (2.5, 1.75 * rows + 0.3)
    figure = Figure(figsize=(FULL_WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    upper, lower = parts
    _draw_convergence(upper, runs, settings)
    _draw_maps(lower, runs, settings.radius, rows)
    return figure


def _draw_convergence(
    figure: SubFigure, runs: Sequence[SimulationRun], settings: SimulationSettings
) -> None:
    a, b = figure.subplots(1, 2)
    looks = line_looks([run.spec for run in runs])
    for run, look in zip(runs, looks, strict=True):
        a.plot(run.result.error.tolist(), label=run.spec.display_name, **look)
        b.plot(run.result.iou.tolist(), **look)
    error = "distance of the corners" if settings.oriented else "|Δx| + |Δy| + |Δw| + |Δh|"
    panel_title(a, "a", f"Mean error, {error}")
    a.set_yscale("log")
    panel_title(b, "b", "Mean IoU")
    b.set_ylim(0, 1.02)
    for axes in (a, b):
        axes.set(xlabel="iteration", xlim=(0, len(runs[0].result.error) - 1))
    legend = figure.legend(loc="outside right center", handlelength=2.8)
    for handle, look in zip(legend.get_lines(), looks, strict=True):
        handle.set_linestyle("-" if look["linestyle"] == "-" else (0, look["linestyle"][1]))


def line_looks(specs: Sequence[LossSpec]) -> list[dict[str, Any]]:
    """Colour by kind and modifiers, dashes by power, each in the order of appearance."""
    kinds = list(dict.fromkeys((spec.kind, spec.modifiers) for spec in specs))
    powers = list(dict.fromkeys((spec.alpha, spec.penalty_alpha) for spec in specs))
    looks = []
    for spec in specs:
        kind = kinds.index((spec.kind, spec.modifiers))
        power = powers.index((spec.alpha, spec.penalty_alpha))
        dashes = DASHES[power % len(DASHES)]
        # Shifted from kind to kind, so that both of two coinciding lines can be seen.
        style = (kind * sum(dashes) / 2, dashes) if dashes else "-"
        looks.append({"color": CATEGORICAL[kind % len(CATEGORICAL)], "linestyle": style})
    return looks


def _draw_maps(figure: SubFigure, runs: Sequence[SimulationRun], radius: float, rows: int) -> None:
    grid = figure.subplots(rows, -(-len(runs) // rows), squeeze=False).ravel()
    for axes in grid:
        axes.set_axis_off()
    images = [_draw_map(axes, run, radius) for axes, run in zip(grid, runs, strict=False)]
    bar = figure.colorbar(images[0], ax=list(grid), shrink=0.8, aspect=30, pad=0.02)
    bar.outline.set_visible(False)
    bar.set_label("mean final IoU")
    figure.suptitle(
        "(c) Final IoU by where a box started; the target is at the cross",
        fontsize=STYLE["axes.titlesize"],
        color=INK,
        x=0.012,
        ha="left",
    )


def _draw_map(axes: Axes, run: SimulationRun, radius: float) -> AxesImage:
    """Colour every place of the disc by the nearest point of the simulation."""
    low, high = CENTER - radius, CENTER + radius
    points, values = run.result.points.numpy(), run.result.final_iou.numpy()
    image = axes.imshow(
        nearest_picture(points, values, low, high),
        extent=(low, high, low, high),
        origin="lower",
        vmin=0,
        vmax=1,
        cmap="viridis",
        interpolation="nearest",
    )
    image.set_clip_path(Circle((CENTER, CENTER), radius, transform=axes.transData))
    for colour, width in (("black", 1.8), ("white", 0.8)):  # an outline, for dark and light maps
        axes.plot(CENTER, CENTER, "+", color=colour, markersize=5, markeredgewidth=width)
    axes.set_title(run.spec.display_name, fontsize=7.5, loc="center", pad=3, color=INK)
    return image


def nearest_picture(
    points: NDArray[np.floating], values: NDArray[np.floating], low: float, high: float
) -> NDArray[np.floating]:
    """A square picture in which every pixel has the value of the nearest point."""
    ticks = low + (np.arange(MAP_PIXELS) + 0.5) * (high - low) / MAP_PIXELS
    picture = np.empty((MAP_PIXELS, MAP_PIXELS))
    for row, y in enumerate(ticks):  # row by row: all distances at once would fill the memory
        squared = (ticks[:, None] - points[:, 0]) ** 2 + (y - points[:, 1]) ** 2
        picture[row] = values[squared.argmin(1)]
    return picture
