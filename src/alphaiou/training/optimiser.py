"""SGD, AdamW and the moving average of the weights, over flat parameters.

All take their rates as tensors and never ask the host: a captured step repeats them as they are.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from alphaiou.detectors import Detector
from alphaiou.training.flat import FlatParameters, float_buffers
from alphaiou.training.recipe import Recipe

AnyModel = TypeVar("AnyModel", bound=nn.Module)
Number = Float[Tensor, ""]
Numbers = Float[Tensor, " numbers"]
#: Of AdamW: how much of the two means stays in a step, and what keeps their ratio finite.
BETAS, EPSILON = (0.9, 0.999), 1e-8


class StepRates(NamedTuple):
    """The numbers of one step, on the device."""

    lr: Number
    bias_lr: Number
    momentum: Number


class Optimiser:
    """What changes flat parameters, given a gradient.

    Args:
        parameters: What is changed.
        weight_decay: λ.
        decay_all: Whether norms and biases decay as weights do.
        lr_scales: The share of the learning rate for each number; all of it unless given.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        weight_decay: float,
        *,
        decay_all: bool = False,
        lr_scales: Numbers | None = None,
    ) -> None:
        self.parameters, self.weight_decay, self.lr_scales = parameters, weight_decay, lr_scales
        self.decayed = parameters.values.numel() if decay_all else parameters.decayed

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on."""
        raise NotImplementedError

    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Change the parameters; nothing changes where ``keep`` is false."""
        raise NotImplementedError

    def _move(self, change: Numbers, rates: StepRates, keep: Bool[Tensor, ""]) -> None:
        """``w ← w − ηc``, with an own η for biases."""
        unbiased = self.parameters.unbiased
        change[:unbiased].mul_(rates.lr)
        change[unbiased:].mul_(rates.bias_lr)
        if self.lr_scales is not None:
            change.mul_(self.lr_scales)
        self.parameters.values.sub_(torch.where(keep, change, 0.0))


class SGD(Optimiser):
    """``g ← g + λw``, ``v ← μv + g``, ``w ← w − ηv``, or Nesterov's ``w ← w − η(g + μv)``.

    Args:
        parameters: What is changed.
        weight_decay: λ.
        nesterov: Whether the momentum is Nesterov's.
        decay_all: Whether norms and biases decay as weights do.
        lr_scales: The share of the learning rate for each number; all of it unless given.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        weight_decay: float,
        *,
        nesterov: bool = True,
        decay_all: bool = False,
        lr_scales: Numbers | None = None,
    ) -> None:
        super().__init__(parameters, weight_decay, decay_all=decay_all, lr_scales=lr_scales)
        self.nesterov = nesterov
        self.velocity = torch.zeros_like(parameters.values)

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on."""
        return {"velocity": self.velocity}

    @torch.no_grad()
    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Change the parameters; nothing changes where ``keep`` is false."""
        decayed = self.parameters.values[: self.decayed]
        gradient[: self.decayed].add_(decayed, alpha=self.weight_decay)
        velocity = self.velocity * rates.momentum + gradient
        change = gradient + velocity * rates.momentum if self.nesterov else velocity.clone()
        self._move(change, rates, keep)
        self.velocity.copy_(torch.where(keep, velocity, self.velocity))


class AdamW(Optimiser):
    """``m ← β₁m + (1−β₁)g``, ``s ← β₂s + (1−β₂)g²``, ``w ← w − η(m̂/(√ŝ + ε) + λw)``.

    The hats divide by ``1 − βᵗ`` at the t-th step: means over the steps that there were.
    """

    def __init__(
        self,
        parameters: FlatParameters,
        weight_decay: float,
        *,
        decay_all: bool = False,
        lr_scales: Numbers | None = None,
    ) -> None:
        super().__init__(parameters, weight_decay, decay_all=decay_all, lr_scales=lr_scales)
        self.mean, self.square = (torch.zeros_like(parameters.values) for _ in BETAS)
        self.steps = torch.zeros((), dtype=torch.int64, device=parameters.values.device)

    def state(self) -> dict[str, Tensor]:
        """What the next step depends on."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    @torch.no_grad()
    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Change the parameters; nothing changes where ``keep`` is false."""
        self.steps.add_(keep)
        mean = self.mean.lerp(gradient, 1.0 - BETAS[0])
        square = (self.square * BETAS[1]).addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        # In fp64: 1 − β₂ᵗ has lost most of its digits otherwise.
        shares = [(1.0 - beta ** self.steps.double()).float() for beta in BETAS]
        change = (mean / shares[0]).div_((square / shares[1]).sqrt_().add_(EPSILON))
        change[: self.decayed].add_(self.parameters.values[: self.decayed], alpha=self.weight_decay)
        self._move(change, rates, keep)
        self.mean.copy_(torch.where(keep, mean, self.mean))
        self.square.copy_(torch.where(keep, square, self.square))


def make_optimiser(recipe: Recipe, detector: Detector, parameters: FlatParameters) -> Optimiser:
    """The optimiser of a run."""
    how = recipe.optimisation
    decay, every = how.scaled_decay(recipe.batch_size), how.decay == "all"
    scales = lr_scales(detector, parameters)
    if how.optimiser == "adamw":
        return AdamW(parameters, decay, decay_all=every, lr_scales=scales)
    return SGD(parameters, decay, nesterov=how.nesterov, decay_all=every, lr_scales=scales)


def lr_scales(detector: Detector, parameters: FlatParameters) -> Numbers | None:
    """The share of the learning rate for each number, or none where it is 1 for all."""
    scales = torch.tensor([detector.lr_scale(name) for name in parameters.names])
    if bool((scales == 1.0).all()):
        return None
    counts = torch.tensor([view.numel() for view in parameters.views])
    return scales.repeat_interleave(counts).to(parameters.values.device)


def clip(gradient: Numbers, norm: float) -> None:
    """Shorten a gradient that is longer than ``norm`` to about that, as torch does."""
    gradient.mul_((norm / (gradient.norm() + 1e-6)).clamp(max=1.0))


class MovingAverage(Generic[AnyModel]):
    """A copy of a model whose weights and statistics follow it: ``m ← dm + (1 − d)w``.

    Args:
        model: The copy.
        parameters: The parameters that it follows.
        followed: The model that it follows.
    """

    def __init__(self, model: AnyModel, parameters: FlatParameters, followed: AnyModel) -> None:
        self.model, self.followed, self.source = model, followed, parameters
        self.parameters = FlatParameters(model, parameters.names)

    @torch.no_grad()
    def step(self, decay: Number) -> None:
        """Follow by one step."""
        share = 1.0 - decay
        self.parameters.values.lerp_(self.source.values, share)
        mine, theirs = float_buffers(self.model), float_buffers(self.followed)
        if mine:
            torch._foreach_mul_(mine, decay)
            torch._foreach_add_(mine, torch._foreach_mul(theirs, share))
