"""What changes from step to step: learning rates, momentum, the moving average, α, the gain."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from alphaiou.training.recipe import Optimisation, Recipe


class Rates(NamedTuple):
    """The numbers of one step; ``box_growth`` is what the box gain has become, times the first."""

    lr: float
    bias_lr: float
    momentum: float
    ema_decay: float
    alpha: float
    box_growth: float


def rates(step: int, steps_per_epoch: int, recipe: Recipe) -> Rates:
    """The numbers of a step, counted from 0 over the whole training.

    Examples:
        >>> first = rates(0, 180, Recipe())
        >>> first.lr, first.bias_lr, first.momentum
        (0.0, 0.1, 0.8)
    """
    how, epoch = recipe.optimisation, step // steps_per_epoch
    lr = how.lr * _share(epoch, recipe)
    warm = min(1.0, step / warmup_length(steps_per_epoch, how))
    progress = step / max(1, steps_per_epoch * recipe.epochs - 1)
    alpha = recipe.alpha_schedule(progress) if recipe.alpha_schedule else recipe.loss.alpha
    final_gain = recipe.box_gain if recipe.final_box_gain is None else recipe.final_box_gain
    return Rates(
        lr=between(0.0, lr, warm),
        bias_lr=between(how.warmup_bias_lr, lr, warm),
        momentum=between(how.warmup_momentum, how.momentum, warm),
        ema_decay=how.ema_decay * (1.0 - math.exp(-(step + 1) / how.ema_growth)),
        alpha=alpha,
        box_growth=between(1.0, final_gain / recipe.box_gain, progress),
    )


def _share(epoch: int, recipe: Recipe) -> float:
    """What is left of the learning rate in an epoch, counted from 0."""
    how = recipe.optimisation
    if how.schedule == "cosine":
        return cosine(epoch / recipe.epochs, how.final_lr)
    return how.drop_factor ** sum(epoch >= drop for drop in how.drops)


def cosine(progress: float, end: float) -> float:
    """From 1 to ``end`` along half a cosine.

    Examples:
        >>> cosine(0.0, 0.2), round(cosine(0.5, 0.2), 6), round(cosine(1.0, 0.2), 6)
        (1.0, 0.6, 0.2)
    """
    return end + (1.0 - end) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_length(steps_per_epoch: int, how: Optimisation) -> float:
    """Steps of warm-up, at least a half: the first step is always a warm one."""
    return max(how.warmup_epochs * steps_per_epoch, how.warmup_steps, 0.5)


def between(start: float, end: float, share: float) -> float:
    """``share`` of the way from one number to another."""
    return start + (end - start) * share


def rate_table(steps_per_epoch: int, recipe: Recipe) -> Float[Tensor, "steps 6"]:
    """The rates of every step: a captured step looks its own up, without a word from the host."""
    steps = range(steps_per_epoch * recipe.epochs)
    return torch.tensor([rates(step, steps_per_epoch, recipe) for step in steps])
