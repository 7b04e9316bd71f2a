"""The regression simulation of the DIoU paper (Zheng et al., AAAI 2020): a loss on its own.

No detector and no images: boxes are moved by gradient descent on the loss itself, from anchors all
around a target. Targets have area 1, lie at (10, 10) and have 7 aspect ratios. Anchors lie at
points drawn uniformly from the disc of radius 3 around it, with 7 areas and 7 aspect ratios at each
point; every anchor is paired with every target, which makes 343 cases a point.

    B ← B − η·(2 − IoU)·∂L/∂B        B = (cx, cy, w, h)

η starts at 0.1 and is divided by 10 after 80 % and again after 90 % of the iterations. A step that
would make a side shorter than ``MIN_SIDE`` leaves it at ``MIN_SIDE``, so that a box stays a box.
The error of a case is the L1 distance between (cx, cy, w, h) and its target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from alphaiou.boxes import box_iou

CENTER = 10.0
RADIUS = 3.0
ASPECT_RATIOS = (1 / 4, 1 / 3, 1 / 2, 1.0, 2.0, 3.0, 4.0)  # width : height
AREAS = (0.5, 0.67, 0.75, 1.0, 1.33, 1.5, 2.0)
CASES_PER_POINT = len(ASPECT_RATIOS) ** 2 * len(AREAS)
IOU_THRESHOLDS = (0.5, 0.75, 0.95)
MIN_SIDE = 1e-3

LossFunction = Callable[[Float[Tensor, "*batch 4"], Float[Tensor, "*batch 4"]], Tensor]
"""From aligned (cx, cy, w, h) predictions and targets to one loss a pair."""


@dataclass(frozen=True)
class SimulationSettings:
    """The size and the step of a simulation; the defaults are the published ones."""

    points: int = 5000
    iterations: int = 200
    learning_rate: float = 0.1
    radius: float = RADIUS
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("points", "iterations"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer >= 1, got {getattr(self, name)!r}")
        for name in ("learning_rate", "radius"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)!r}")

    @property
    def cases(self) -> int:
        """How many boxes are regressed."""
        return self.points * CASES_PER_POINT

    def step(self, iteration: int) -> float:
        """η at an iteration, the first being 0."""
        decays = (10 * iteration >= 8 * self.iterations) + (10 * iteration >= 9 * self.iterations)
        return self.learning_rate * 0.1**decays


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """What one loss made of all the cases; the curves hold the start and every iteration."""

    points: Float[Tensor, "points 2"]
    """Where the anchors lay."""
    error: Float[Tensor, " steps"]
    """Mean error of a case."""
    iou: Float[Tensor, " steps"]
    """Mean IoU with the target."""
    final_error: Float[Tensor, " points"]
    """Mean error at the end, by the point at which the anchors lay."""
    final_iou: Float[Tensor, " points"]
    """Mean IoU at the end, by the point at which the anchors lay."""
    shares: Float[Tensor, " thresholds"]
    """Share of the cases that end above each of ``IOU_THRESHOLDS``."""


@dataclass(frozen=True, eq=False)
class Descent:
    """The end of some descents, case by case, and the sums over the cases on the way there."""

    boxes: Float[Tensor, "*batch 4"]
    errors: Float[Tensor, "*batch"]
    ious: Float[Tensor, "*batch"]
    total_error: Float[Tensor, " steps"]
    total_iou: Float[Tensor, " steps"]


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
        loss: The loss, of boxes in (cx, cy, w, h).
        settings: How many points and iterations, which step and seed.
        device: Where to compute. The cases are the same everywhere.
        points_per_chunk: How many points, of 343 cases each, are regressed as one batch. It bounds
            the memory and changes nothing else, rounding aside.
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
    descents = [
        descend(loss, *cases_at(chunk.to(device)), settings, on_step)
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
    """Points uniform in the disc; they depend on the seed alone, whatever the device."""
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


def descend(
    loss: LossFunction,
    anchors: Float[Tensor, "*batch 4"],
    targets: Float[Tensor, "*batch 4"],
    settings: SimulationSettings,
    on_step: Callable[[int], None] | None = None,
) -> Descent:
    """Move boxes from the anchors towards their targets, all of them at once."""
    boxes, ious, errors = anchors, *_measure(anchors, targets)
    total_iou, total_error = [ious.double().sum()], [errors.double().sum()]
    for iteration in range(settings.iterations):
        pred = boxes.detach().requires_grad_()
        # The cases are independent, so the gradient of the sum holds the gradient of each.
        (gradient,) = torch.autograd.grad(loss(pred, targets).sum(), pred)
        boxes = boxes - settings.step(iteration) * (2 - ious)[..., None] * gradient
        boxes = torch.cat((boxes[..., :2], boxes[..., 2:].clamp(min=MIN_SIDE)), dim=-1)
        ious, errors = _measure(boxes, targets)
        total_iou.append(ious.double().sum())
        total_error.append(errors.double().sum())
        if on_step is not None:
            on_step(ious.numel())
    return Descent(boxes, errors, ious, torch.stack(total_error), torch.stack(total_iou))


def _measure(boxes: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return box_iou(boxes, targets, box_format="cxcywh"), (boxes - targets).abs().sum(-1)


def _sides(area: Tensor, ratio: Tensor) -> Tensor:
    """Width and height of boxes by their area and their width : height."""
    return torch.stack(((area * ratio).sqrt(), (area / ratio).sqrt()), -1)
