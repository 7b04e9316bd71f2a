"""The loss, its gradient and the weights of properties 2 to 5 against the IoU, for several α."""

import csv
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from alphaiou import properties
from alphaiou._figures import FULL_WIDTH, INK, alpha_colours, panel_title, save_figure

Curves = dict[float, dict[str, Tensor]]
"""By α: ``iou``, and the quantities of ``QUANTITIES`` at each of these overlaps."""

OFF_THE_AXIS = 1e3

_DOT: dict[str, Any] = {
    "marker": "o",
    "markersize": 4.5,
    "markeredgecolor": "white",
    "markeredgewidth": 0.7,
}


def _loss(iou: Tensor, alpha: float) -> Tensor:
    # By the weight, since the last digits of 1 − IoU^α cancel near IoU 1.
    return (1 - iou) * properties.relative_loss_weight(iou, alpha)


QUANTITIES: dict[str, Callable[[Tensor, float], Tensor]] = {
    "loss": _loss,
    "gradient": properties.relative_gradient_weight,  # the gradient of the IoU loss is 1
    "relative_loss_weight": properties.relative_loss_weight,
    "relative_gradient_weight": properties.relative_gradient_weight,
    "absolute_loss_weight": properties.absolute_loss_weight,
    "absolute_gradient_weight": properties.absolute_gradient_weight,
}


def compute_curves(alphas: Sequence[float], samples: int = 401) -> Curves:
    """Evaluate every quantity at evenly spaced overlaps, for each α once, in ascending order.

    Raises:
        ValueError: No α is given, or one is not a positive, finite number.
    """
    if not alphas:
        raise ValueError("alphas must hold at least one number, got none")
    iou = torch.linspace(0, 1, samples, dtype=torch.float64)
    return {
        alpha: {"iou": iou} | {name: f(iou, alpha) for name, f in QUANTITIES.items()}
        for alpha in sorted(set(alphas))
    }


def write_csv(curves: Curves, path: Path) -> Path:
    """Write all numbers of the figures, one row per α and IoU."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("alpha", "turning_point", "iou", *QUANTITIES))
        for alpha, curve in curves.items():
            head = (f"{alpha:.12g}", f"{properties.turning_point(alpha):.12g}")
            rows = zip(*(column.tolist() for column in curve.values()), strict=True)
            writer.writerows((*head, *(f"{value:.12g}" for value in row)) for row in rows)
    return path


def save_figures(curves: Curves, out: Path) -> list[Path]:
    """Draw both figures, each as PNG and as SVG."""
    return [
        *save_figure(partial(loss_and_gradient_figure, curves), out / "loss_and_gradient"),
        *save_figure(partial(reweighting_figure, curves), out / "reweighting"),
    ]


def loss_and_gradient_figure(curves: Curves) -> Figure:
    """Figure 1 of the paper: the loss and its gradient against the IoU, with turning points."""
    figure = Figure(figsize=(FULL_WIDTH, 3.1), layout="constrained")
    a, b = figure.subplots(1, 2)
    panel_title(a, "a", "Loss")
    _draw(a, curves, "loss")
    a.set(ylabel=r"$1 - \mathrm{IoU}^{\,\alpha}$", ylim=(0, 1.02))
    panel_title(b, "b", "Magnitude of its gradient")
    _draw(b, curves, "gradient")
    b.set(ylabel=r"$\alpha\,\mathrm{IoU}^{\,\alpha-1}$", ylim=(0, _ceiling(curves)))
    _legend(figure, curves)
    return figure


def reweighting_figure(curves: Curves) -> Figure:
    """Properties 2 to 5: the loss and the gradient relative to those of the IoU loss."""
    figure = Figure(figsize=(FULL_WIDTH, 5.2), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2, sharex=True)
    top = _ceiling(curves)
    panel_title(a, "a", "Relative loss weight")
    _draw(a, curves, "relative_loss_weight", turning_points=False)
    a.set(ylabel=r"$(1 - \mathrm{IoU}^{\,\alpha})\,/\,(1 - \mathrm{IoU})$", ylim=(0, top))
    panel_title(b, "b", "Relative gradient weight")
    _draw(b, curves, "relative_gradient_weight")
    b.set(ylabel=r"$\alpha\,\mathrm{IoU}^{\,\alpha-1}$", ylim=(0, top))
    panel_title(c, "c", "Absolute loss weight")
    _draw(c, curves, "absolute_loss_weight")
    c.set(ylabel=r"$\mathrm{IoU} - \mathrm{IoU}^{\,\alpha}$")
    panel_title(d, "d", "Absolute gradient weight")
    _draw(d, curves, "absolute_gradient_weight")
    d.set(ylabel=r"$\alpha\,\mathrm{IoU}^{\,\alpha-1} - 1$", ylim=(-1 - 0.02 * top, top - 1))
    for upper in (a, b):
        upper.set_xlabel("")
    figure.align_ylabels()
    _legend(figure, curves)
    return figure


def _draw(axes: Axes, curves: Curves, quantity: str, *, turning_points: bool = True) -> None:
    """Plot one quantity for every α, with a dot at the turning point of the gradient."""
    colours = alpha_colours(list(curves))
    for alpha, curve in curves.items():
        plain = alpha == 1
        # The gradient for α < 1 is infinite at IoU 0; a point far above the axis draws the same.
        x, y = curve["iou"].tolist(), curve[quantity].clamp(max=OFF_THE_AXIS).tolist()
        axes.plot(x, y, color=colours[alpha], linestyle="--" if plain else "-", zorder=3 - plain)
        if turning_points and not plain:
            point = torch.tensor(properties.turning_point(alpha), dtype=torch.float64)
            height = QUANTITIES[quantity](point, alpha).item()
            axes.plot(point.item(), height, **_DOT, markerfacecolor=colours[alpha], zorder=4)
    axes.set(xlabel="IoU", xlim=(0, 1))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])


def _ceiling(curves: Curves) -> float:
    """The top of a gradient axis: the gradient at IoU 1 is α; for α < 1 it is unbounded."""
    return 1.04 * max(2.0, *curves)


def _legend(figure: Figure, curves: Curves) -> None:
    colours = alpha_colours(list(curves))
    handles = [
        Line2D([], [], color=colours[alpha], linestyle="--" if alpha == 1 else "-")
        for alpha in curves
    ]
    labels = [f"α = {alpha:g}" + (" (IoU loss)" if alpha == 1 else "") for alpha in curves]
    handles.append(Line2D([], [], **_DOT, markerfacecolor=INK, linestyle="none"))
    labels.append(r"turning point $\alpha^{1/(1-\alpha)}$")
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
