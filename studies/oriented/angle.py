"""The loss of two boxes in one place against the angle between them: figure and table.

    python -m studies.oriented.angle

Writes ``studies/oriented/angle.csv`` and ``docs/images/oriented.svg``.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from alphaiou._figures import CATEGORICAL, DASHES, FULL_WIDTH, panel_title, save_figure
from alphaiou.losses.spec import LossSpec

LOSSES = ("iou", "giou", "ciou", "probiou", "kld", "gwd", "kfiou", "probiou+angle")
ALPHAS = (1.0, 3.0)
SHAPES = {4.0: "4:1", 1.2: "1.2:1", 1.0: "square"}
DRAWN = (4.0, 1.0)
DEGREES = (2, 5, 15, 45, 90)


def losses_at(text: str, ratio: float, degrees: Tensor) -> tuple[Tensor, Tensor]:
    """The loss at each angle, and its slope per degree, of boxes of area 1 and one width : height.

    Args:
        text: The loss, such as ``probiou:3``.
        ratio: Width divided by height.
        degrees: The angles of the prediction; the target lies at 0.
    """
    sides = torch.tensor([math.sqrt(ratio), 1.0 / math.sqrt(ratio)], dtype=torch.float64)
    target = torch.cat((torch.zeros(2), sides, torch.zeros(1))).expand(len(degrees), 5)
    pred = target.clone()
    pred[:, 4] = torch.deg2rad(degrees)
    pred.requires_grad_()
    loss = LossSpec.parse(text).function("cxcywhr")(pred, target)
    (gradient,) = torch.autograd.grad(loss.sum(), pred)
    return loss.detach(), torch.deg2rad(gradient[:, 4])


def rows() -> list[dict[str, str]]:
    """The rows of the table: every loss, power, shape and angle."""
    angles = torch.tensor(DEGREES, dtype=torch.float64)
    found = []
    for kind in LOSSES:
        for alpha in ALPHAS:
            for ratio in SHAPES:
                loss, slope = losses_at(f"{kind}:{alpha:g}", ratio, angles)
                for degree, value, change in zip(DEGREES, loss, slope, strict=True):
                    row = {"loss": kind, "alpha": f"{alpha:g}", "ratio": f"{ratio:g}"}
                    row |= {"degrees": str(degree), "value": f"{value:.6f}"}
                    found.append(row | {"slope_per_degree": f"{change:.6f}"})
    return found


def angle_figure() -> Figure:
    """Draw the loss against the angle: an elongated box and a square one, α = 1 and α = 3."""
    figure = Figure(figsize=(FULL_WIDTH, 4.6), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, (ratio, letters) in enumerate(zip(DRAWN, ("ab", "cd"), strict=True)):
        for column, (alpha, letter) in enumerate(zip(ALPHAS, letters, strict=True)):
            axes: Axes = grid[row, column]
            _draw(axes, ratio, alpha)
            panel_title(axes, letter, f"{SHAPES[ratio]}, α = {alpha:g}")
            axes.set(xlim=(0, 180), ylim=(-0.03, 1.6), xticks=range(0, 181, 45))
            if row:
                axes.set_xlabel("angle between the boxes, degrees")
            if not column:
                axes.set_ylabel("loss")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _draw(axes: Axes, ratio: float, alpha: float) -> None:
    degrees = torch.linspace(0.0, 180.0, 361, dtype=torch.float64)
    for kind in LOSSES:
        # IoU and CIoU coincide for squares, so one of them is dotted.
        dashes = DASHES[2] if kind == "iou" else DASHES[1] if "+" in kind else None
        index = LOSSES.index(kind.partition("+")[0])
        axes.plot(
            degrees.numpy(),
            losses_at(f"{kind}:{alpha:g}", ratio, degrees)[0].numpy(),
            label=LossSpec.parse(kind).display_name,
            color=CATEGORICAL[index % len(CATEGORICAL)],
            linestyle="-" if dashes is None else (0, dashes),
            zorder=3 if kind == "iou" else 2,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the table and the figure."""
    table = Path(__file__).with_name("angle.csv")
    with table.open("w", newline="", encoding="utf-8") as file:
        found = rows()
        writer = csv.DictWriter(file, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)
    image = Path(__file__).parents[2] / "docs/images/oriented"
    for path in (table, *save_figure(angle_figure, image, ("svg",))):
        sys.stdout.write(f"wrote {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
