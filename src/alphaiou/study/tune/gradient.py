"""Losses at equal gradient scale.

A power changes the scale of the gradient of a loss as well as its shape. Here the mean gradient of
each loss, over the pairs of boxes of the first batches of the baseline, is matched to that of the
baseline by a factor of the box gain. The gradient is that by the predicted box in units of the size
of the target, so that large and small boxes count the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alphaiou._config import ConfigError
from alphaiou._shapes import Float
from alphaiou.boxes import convert_boxes
from alphaiou.inference.weights import Checkpoint, read_tensors, write_tensors
from alphaiou.losses.module import AlphaIoULoss
from alphaiou.losses.pair_loss import PairLoss
from alphaiou.losses.spec import LossSpec
from alphaiou.training.loop import Execution, Report
from alphaiou.training.processes import launch
from alphaiou.training.recipe import Recipe
from alphaiou.training.setup import RunContext, prepare
from alphaiou.training.step import StepOptions

#: The batches whose pairs are taken, and the largest number of pairs that is kept of them.
BATCHES, MOST_PAIRS = 8, 20_000
Boxes = Float[Tensor, "pairs 4"]


@dataclass(frozen=True)
class GradientMatch:
    """The factor of the box gain with which a loss has the mean gradient of the baseline.

    Attributes:
        pred: Predicted boxes, as ``xyxy``.
        target: Their targets.
        baseline: The loss of the baseline.

    Examples:
        >>> pred = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 4.0, 2.0]])
        >>> match = GradientMatch(pred, pred + 0.5, LossSpec("iou"))
        >>> match(LossSpec("iou")), round(match(LossSpec("iou", 3.0)), 2)
        (1.0, 1.66)
    """

    pred: Boxes
    target: Boxes
    baseline: LossSpec

    def __call__(self, loss: LossSpec) -> float:
        """The factor for a loss.

        Raises:
            ConfigError: The loss, or the baseline, has no gradient on these boxes.
        """
        if loss == self.baseline:
            return 1.0
        return self._mean(self.baseline) / self._mean(loss)

    def _mean(self, loss: LossSpec) -> float:
        mean = mean_gradient(loss, self.pred, self.target)
        if not mean > 0:
            raise ConfigError(
                f"{loss.display_name} has no gradient on the boxes of the first batches, so that "
                "its box gain cannot be matched; leave this loss out"
            )
        return mean


def mean_gradient(loss: LossSpec, pred: Boxes, target: Boxes) -> float:
    """The mean norm of the gradient by the predicted box, in units of the size of the target.

    Examples:
        >>> target = torch.tensor([[0.0, 0.0, 2.0, 2.0]])
        >>> pred = target + torch.tensor([0.5, 0.0, 0.5, 0.0])
        >>> round(mean_gradient(LossSpec("iou"), pred, target), 3)
        0.933
    """
    moved = pred.detach().clone().requires_grad_()
    module = loss.module()
    module.reduction = "sum"
    (gradient,) = torch.autograd.grad(module(moved, target), moved)
    sizes = (target[:, 2:] - target[:, :2]).repeat(1, 2)
    return float((gradient * sizes).norm(dim=1).double().mean())


def match_of(recipe: Recipe, path: Path, execution: Execution) -> GradientMatch:
    """The match for a detector and its data, from the first batches of the baseline.

    Args:
        recipe: The baseline, whose first batches are trained.
        path: A file for the pairs; it is read if it exists.
        execution: How to compute.

    Raises:
        ConfigError: The detector learns no boxes by a loss of boxes.
    """
    if not path.exists():
        pred, target = first_pairs(recipe, path.parent, execution)
        write_tensors(Checkpoint({"pred": pred, "target": target}, {}), path)
    tensors = read_tensors(path).tensors
    return GradientMatch(tensors["pred"], tensors["target"], recipe.loss)


def first_pairs(recipe: Recipe, folder: Path, execution: Execution) -> tuple[Boxes, Boxes]:
    """The predicted boxes and their targets, as ``xyxy``, in the first batches of a training."""
    data = replace(recipe.data, val=None, test=None)
    # Streamed, since few images are needed; neither compiled nor captured, so that hooks run.
    execution = replace(execution, images="stream", workers=0, step=StepOptions())
    processes, device = launch(execution.device, 1, 1)
    context = RunContext(execution, Report(), processes, device)
    run = prepare(replace(recipe, data=data, select="last", patience=0), folder, context)
    pairs: list[tuple[Tensor, Tensor]] = []
    hooks = [
        module.register_forward_pre_hook(_keep(pairs))
        for name, module in run.step.detector.named_modules()
        if isinstance(module, PairLoss) and name.rpartition(".")[2] == "box_loss"
    ]
    if not hooks:
        raise ConfigError(
            f"loss {recipe.loss.kind!r} of {recipe.detector.name} is not a loss of boxes, so that "
            "no gain can be matched to it; take one of the IoU losses as the baseline"
        )
    with run.step.process_settings():
        run.step.begin_epoch(0)
        for _ in range(min(BATCHES, run.step.steps_per_epoch)):
            run.step()
    for hook in hooks:
        hook.remove()
    pred, target = (torch.cat(boxes).float().cpu() for boxes in zip(*pairs, strict=True))
    if not len(pred):
        raise ConfigError(
            f"{recipe.data.path}: the first {BATCHES} batches have no objects to match the "
            "gradients on; take a larger batch_size"
        )
    if len(pred) > MOST_PAIRS:
        kept = torch.linspace(0, len(pred) - 1, MOST_PAIRS).long()
        pred, target = pred[kept], target[kept]
    return pred, target


def _keep(pairs: list[tuple[Tensor, Tensor]]) -> Callable[..., None]:
    """A hook that keeps the pairs that a loss is called with."""

    def hook(module: PairLoss, given: tuple[Any, ...]) -> None:
        pred, target, *rest = given
        boxes = [pred.detach(), target.detach()]
        if rest and rest[0] is not None:
            boxes = [some[rest[0]] for some in boxes]
        if isinstance(module.function, AlphaIoULoss) and module.function.box_format != "cxcywhr":
            boxes = [convert_boxes(some, module.function.box_format, "xyxy") for some in boxes]
        pairs.append((boxes[0], boxes[1]))

    return hook
