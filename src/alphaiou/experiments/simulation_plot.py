"""The figure of a simulation: how each loss converges, and from where around the target."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patches import Circle
from numpy.typing import NDArray

from alphaiou.experiments.simulation import SimulationRun
from alphaiou.experiments.style import CATEGORICAL, DASHES, FULL_WIDTH, INK, STYLE, panel_title
from alphaiou.losses.simulate import CENTER, SimulationSettings
from alphaiou.losses.spec import LossSpec

MAX_COLUMNS = 4
MAP_PIXELS = 240


def simulation_figure(runs: Sequence[SimulationRun], settings: SimulationSettings) -> Figure:
    """Draw error and IoU against the iteration, and a map of the final IoU for every loss."""
    rows = -(-len(runs) // MAX_COLUMNS)
    heights = (2.5, 1.75 * rows + 0.3)
    figure = Figure(figsize=(FULL_WIDTH, sum(heights)), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=heights)
    upper, lower = parts
    _draw_convergence(upper, runs)
    _draw_maps(lower, runs, settings.radius, rows)
    return figure


def _draw_convergence(figure: SubFigure, runs: Sequence[SimulationRun]) -> None:
    a, b = figure.subplots(1, 2)
    looks = line_looks([run.spec for run in runs])
    for run, look in zip(runs, looks, strict=True):
        a.plot(run.result.error.tolist(), label=run.spec.display_name, **look)
        b.plot(run.result.iou.tolist(), **look)
    panel_title(a, "a", "Mean error, |Δx| + |Δy| + |Δw| + |Δh|")
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
        # Shifted from kind to kind, so that of two lines that coincide both can be seen.
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
    """Colour every place of the disc by the point of the simulation that is nearest to it."""
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
    """Paint a square in which every pixel has the value of the point nearest to it."""
    ticks = low + (np.arange(MAP_PIXELS) + 0.5) * (high - low) / MAP_PIXELS
    picture = np.empty((MAP_PIXELS, MAP_PIXELS))
    for row, y in enumerate(ticks):  # row by row: all distances at once would fill the memory
        squared = (ticks[:, None] - points[:, 0]) ** 2 + (y - points[:, 1]) ** 2
        picture[row] = values[squared.argmin(1)]
    return picture
