"""Flat parameters, learning-rate schedules, SGD and AdamW, and the moving average of weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from alphaiou._shapes import Bool, Float
from alphaiou.detectors import Detector
from alphaiou.training.recipe import Optimisation, Recipe

Number = Float[Tensor, ""]
Numbers = Float[Tensor, " numbers"]
AnyModel = TypeVar("AnyModel", bound=nn.Module)


# --- flat parameters ------------------------------------------------------------------------------


class FlatParameters:
    """The parameters of a model as segments of one tensor: weights, norms, biases.

    Each parameter becomes a view of its segment; four-dimensional parameters are stored channels
    last. Frozen parameters are left unchanged.

    Args:
        model: The model whose parameters become views.
        names: The names of these parameters; by default all trainable ones.

    Attributes:
        values: All parameter values.
        views: The parameters in the order of ``values``.
        names: The names of the parameters.
        cast: The number of leading values that are cast together in half precision: weights of
            convolutions and linear layers.
        decayed: The number of leading values that are weights, which decay.
        unbiased: The number of leading values that are not biases.
    """

    def __init__(self, model: nn.Module, names: Collection[str] | None = None) -> None:
        every = dict(model.named_parameters())
        if names is None:
            names = [name for name in every if every[name].requires_grad]
        cast = _cast_weights(model)
        groups: tuple[list[str], ...] = ([], [], [], [])
        for name in names:
            groups[0 if name in cast else _group(name, every[name])].append(name)
        self.names = [name for group in groups for name in group]
        sizes = [sum(every[name].numel() for name in group) for group in groups]
        self.cast, self.decayed, self.unbiased = sizes[0], sum(sizes[:2]), sum(sizes[:3])
        device = next(iter(every.values())).device
        self.values: Float[Tensor, " numbers"] = torch.empty(sum(sizes), device=device)
        self.views = [every[name] for name in self.names]
        with torch.no_grad():
            for parameter, view in zip(self.views, self.like(self.values), strict=True):
                view.copy_(parameter)
                parameter.data = view

    def like(self, flat: Float[Tensor, " some"]) -> list[Tensor]:
        """Split another tensor into views as the parameters are split, up to its length."""
        views, start = [], 0
        for parameter in self.views:
            if start == flat.numel():
                break
            piece = flat[start : start + parameter.numel()]
            views.append(_channels_last(piece, parameter.shape))
            start += parameter.numel()
        return views


class CastWeights:
    """A half-precision copy of the weights, cast in one kernel.

    Autocast casts each weight and each gradient separately, which takes more than a hundred small
    kernels per step. The values are the same.

    Args:
        parameters: The weights in fp32.
        dtype: The precision of the network; None disables casting.

    Attributes:
        by_name: The weights that the network uses in place of its own.
        leaves: The tensors to differentiate with respect to, in the order of the parameters.
    """

    def __init__(self, parameters: FlatParameters, dtype: torch.dtype | None) -> None:
        weights = parameters.values[: parameters.cast].detach()
        self.source, self.cast = weights, weights if dtype is None else weights.to(dtype)
        views = parameters.like(self.cast) if dtype is not None else []
        names = parameters.names[: len(views)]
        self.by_name = {
            name: view.detach().requires_grad_() for name, view in zip(names, views, strict=True)
        }
        self.leaves = [*self.by_name.values(), *parameters.views[len(views) :]]

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast the current weights."""
        if self.by_name:
            self.cast.copy_(self.source)

    def joined(self, gradients: Sequence[Tensor]) -> Float[Tensor, " numbers"]:
        """Return the gradients of ``leaves`` as one tensor, in the order of the parameters.

        Copying each gradient separately would launch two hundred small kernels, and so would one
        concatenation of two precisions.
        """
        casts = len(self.by_name)
        groups = (gradients[:casts], gradients[casts:])
        return torch.cat([torch.cat([*map(_as_stored, group)]) for group in groups if group])


def _cast_weights(model: nn.Module) -> set[str]:
    """Return the names of the parameters that autocast casts."""
    names = {
        f"{name}.weight".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, _ConvNd | nn.Linear)
    }
    kept = tuple(f"{part}." for part in getattr(model, "cast_later", ()))
    return {name for name in names if not name.startswith(kept)}


def _group(name: str, parameter: Tensor) -> int:
    """Split parameters into other weights, weights of norms, and biases."""
    if name.endswith("bias"):
        return 3
    return 1 if parameter.ndim > 1 else 2


def _channels_last(piece: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return piece.view(shape)
    outputs, inputs, height, width = shape
    return piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def _as_stored(parameter: Tensor) -> Tensor:
    """Return the values of a parameter in memory order."""
    return (parameter if parameter.ndim != 4 else parameter.permute(0, 2, 3, 1)).reshape(-1)


# --- rates of each step ---------------------------------------------------------------------------


class Rates(NamedTuple):
    """The rates of one step; ``box_growth`` is the box gain as a multiple of its initial value."""

    lr: float
    bias_lr: float
    momentum: float
    ema_decay: float
    alpha: float
    box_growth: float


def rates(step: int, steps_per_epoch: int, recipe: Recipe) -> Rates:
    """Return the rates of a step, counted from 0 over the whole training.

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


def rate_table(steps_per_epoch: int, recipe: Recipe) -> Float[Tensor, "steps 6"]:
    """Return the rates of all steps; a captured step indexes them without host synchronisation."""
    steps = range(steps_per_epoch * recipe.epochs)
    return torch.tensor([rates(step, steps_per_epoch, recipe) for step in steps])


def _share(epoch: int, recipe: Recipe) -> float:
    """Return the factor of the learning rate in an epoch, counted from 0."""
    how = recipe.optimisation
    if how.schedule == "cosine":
        return cosine(epoch / recipe.epochs, how.final_lr)
    return how.drop_factor ** sum(epoch >= drop for drop in how.drops)


def cosine(progress: float, end: float) -> float:
    """Interpolate from 1 to ``end`` along half a cosine.

    Examples:
        >>> cosine(0.0, 0.2), round(cosine(0.5, 0.2), 6), round(cosine(1.0, 0.2), 6)
        (1.0, 0.6, 0.2)
    """
    return end + (1.0 - end) * 0.5 * (1.0 + math.cos(math.pi * progress))


def warmup_length(steps_per_epoch: int, how: Optimisation) -> float:
    """Return the number of warm-up steps, at least 0.5 so that the first step is a warm-up step."""
    return max(how.warmup_epochs * steps_per_epoch, how.warmup_steps, 0.5)


def between(start: float, end: float, share: float) -> float:
    """Interpolate linearly between two numbers."""
    return start + (end - start) * share


# --- optimisers -----------------------------------------------------------------------------------


#: β₁, β₂ and ε of AdamW.
BETAS, EPSILON = (0.9, 0.999), 1e-8


class StepRates(NamedTuple):
    """The rates of one step, on the device."""

    lr: Number
    bias_lr: Number
    momentum: Number


class Optimiser:
    """Base class of optimisers of flat parameters.

    Args:
        parameters: The parameters to update.
        weight_decay: λ.
        decay_all: Whether norms and biases decay, too.
        lr_scales: The learning-rate factor of each value; 1 by default.
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
        """Return the state of the optimiser."""
        raise NotImplementedError

    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Update the parameters; if ``keep`` is false, nothing changes."""
        raise NotImplementedError

    def _move(self, change: Numbers, rates: StepRates, keep: Bool[Tensor, ""]) -> None:
        """Apply ``w ← w − ηc``, with a separate η for biases."""
        unbiased = self.parameters.unbiased
        change[:unbiased].mul_(rates.lr)
        change[unbiased:].mul_(rates.bias_lr)
        if self.lr_scales is not None:
            change.mul_(self.lr_scales)
        self.parameters.values.sub_(torch.where(keep, change, 0.0))


class SGD(Optimiser):
    """``g ← g + λw``, ``v ← μv + g``, ``w ← w − ηv``, or Nesterov's ``w ← w − η(g + μv)``.

    Args:
        parameters: The parameters to update.
        weight_decay: λ.
        nesterov: Whether the momentum is Nesterov's.
        decay_all: Whether norms and biases decay, too.
        lr_scales: The learning-rate factor of each value; 1 by default.
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
        """Return the state of the optimiser."""
        return {"velocity": self.velocity}

    @torch.no_grad()
    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Update the parameters; if ``keep`` is false, nothing changes."""
        decayed = self.parameters.values[: self.decayed]
        gradient[: self.decayed].add_(decayed, alpha=self.weight_decay)
        velocity = self.velocity * rates.momentum + gradient
        change = gradient + velocity * rates.momentum if self.nesterov else velocity.clone()
        self._move(change, rates, keep)
        self.velocity.copy_(torch.where(keep, velocity, self.velocity))


class AdamW(Optimiser):
    """``m ← β₁m + (1−β₁)g``, ``s ← β₂s + (1−β₂)g²``, ``w ← w − η(m̂/(√ŝ + ε) + λw)``.

    ``m̂`` and ``ŝ`` are ``m`` and ``s`` divided by ``1 − βᵗ`` at step t (bias correction).
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
        """Return the state of the optimiser."""
        return {"mean": self.mean, "square": self.square, "steps": self.steps}

    @torch.no_grad()
    def step(self, gradient: Numbers, rates: StepRates, *, keep: Bool[Tensor, ""]) -> None:
        """Update the parameters; if ``keep`` is false, nothing changes."""
        self.steps.add_(keep)
        mean = self.mean.lerp(gradient, 1.0 - BETAS[0])
        square = (self.square * BETAS[1]).addcmul_(gradient, gradient, value=1.0 - BETAS[1])
        # In fp64: 1 − β₂ᵗ loses most of its digits in fp32.
        shares = [(1.0 - beta ** self.steps.double()).float() for beta in BETAS]
        change = (mean / shares[0]).div_((square / shares[1]).sqrt_().add_(EPSILON))
        change[: self.decayed].add_(self.parameters.values[: self.decayed], alpha=self.weight_decay)
        self._move(change, rates, keep)
        self.mean.copy_(torch.where(keep, mean, self.mean))
        self.square.copy_(torch.where(keep, square, self.square))


def make_optimiser(recipe: Recipe, detector: Detector, parameters: FlatParameters) -> Optimiser:
    """Build the optimiser of a run."""
    how = recipe.optimisation
    decay, every = how.scaled_decay(recipe.batch_size), how.decay == "all"
    scales = lr_scales(detector, parameters)
    if how.optimiser == "adamw":
        return AdamW(parameters, decay, decay_all=every, lr_scales=scales)
    return SGD(parameters, decay, nesterov=how.nesterov, decay_all=every, lr_scales=scales)


def lr_scales(detector: Detector, parameters: FlatParameters) -> Numbers | None:
    """Return the learning-rate factor of each value, or None if all are 1."""
    scales = torch.tensor([detector.lr_scale(name) for name in parameters.names])
    if bool((scales == 1.0).all()):
        return None
    counts = torch.tensor([view.numel() for view in parameters.views])
    return scales.repeat_interleave(counts).to(parameters.values.device)


def clip(gradient: Numbers, norm: float) -> None:
    """Clip the norm of a gradient in place, as ``torch.nn.utils.clip_grad_norm_`` does."""
    gradient.mul_((norm / (gradient.norm() + 1e-6)).clamp(max=1.0))


# --- moving average -------------------------------------------------------------------------------


class MovingAverage(Generic[AnyModel]):
    """The exponential moving average of a model: ``m ← dm + (1 − d)w``.

    Args:
        model: A copy of the model, which holds the average.
        parameters: The parameters to average.
        followed: The model to average.
    """

    def __init__(self, model: AnyModel, parameters: FlatParameters, followed: AnyModel) -> None:
        self.model, self.source = model, parameters
        self.parameters = FlatParameters(model, parameters.names)
        moving = {id(buffer) for buffer in float_buffers(followed)}
        pairs = zip(model.buffers(), followed.buffers(), strict=True)
        self.buffers = [(mine, theirs) for mine, theirs in pairs if id(theirs) in moving]

    @torch.no_grad()
    def step(self, decay: Number) -> None:
        """Update the average by one step."""
        share = 1.0 - decay
        self.parameters.values.lerp_(self.source.values, share)
        if self.buffers:
            mine, theirs = (list(some) for some in zip(*self.buffers, strict=True))
            torch._foreach_mul_(mine, decay)
            torch._foreach_add_(mine, torch._foreach_mul(theirs, share))


def float_buffers(model: nn.Module) -> list[Tensor]:
    """Return the buffers that are averaged with the weights: the statistics of batch norms."""
    # Averaging constants would only add rounding errors: frozen norms, and buffers that are not
    # even saved.
    frozen = (
        id(buffer)
        for module in model.modules()
        if hasattr(module, "running_mean")
        and not (isinstance(module, _BatchNorm) and module.training)
        for buffer in module.buffers(recurse=False)
    )
    moving = {id(tensor) for tensor in model.state_dict(keep_vars=True).values()} - set(frozen)
    return [one for one in model.buffers() if one.is_floating_point() and id(one) in moving]
