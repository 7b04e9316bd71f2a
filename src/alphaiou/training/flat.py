"""What a model learns in one tensor, so that a step over it is a handful of kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd


class FlatParameters:
    """The parameters that a model learns as segments of one tensor: weights, norms, biases.

    The model goes on as before: each parameter is a view of its segment, four-dimensional ones
    with their channels last. Parameters that do not learn stay where they are.

    Args:
        model: Whose parameters become views.
        names: Which ones; those that learn unless given.

    Attributes:
        values: All numbers.
        views: The parameters in the order of ``values``.
        names: Their names.
        cast: How many of the numbers are cast at once for a step of half precision: weights of
            convolutions and linear layers.
        decayed: How many of the numbers are weights, which decay.
        unbiased: How many of the numbers are no biases.
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
        """Another tensor cut into views as the parameters are, as far as it goes."""
        views, start = [], 0
        for parameter in self.views:
            if start == flat.numel():
                break
            piece = flat[start : start + parameter.numel()]
            views.append(_channels_last(piece, parameter.shape))
            start += parameter.numel()
        return views


class CastWeights:
    """The weights once more in half precision, cast all at once.

    Autocast casts each weight by itself, and each gradient back: more than a hundred small kernels
    a step. The numbers are the same.

    Args:
        parameters: The weights in fp32.
        dtype: The precision of the network; None leaves them as they are.

    Attributes:
        by_name: What the network computes with instead of its own weights.
        leaves: What gradients are taken for, in the order of the parameters.
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
        """Cast the weights as they are now."""
        if self.by_name:
            self.cast.copy_(self.source)

    def joined(self, gradients: Sequence[Tensor]) -> Float[Tensor, " numbers"]:
        """The gradients of ``leaves`` as one tensor, in the order of the parameters.

        A copy of each by itself would be two hundred small kernels, and so would be one of all that
        has two precisions.
        """
        casts = len(self.by_name)
        groups = (gradients[:casts], gradients[casts:])
        return torch.cat([torch.cat([*map(_as_stored, group)]) for group in groups if group])


def _cast_weights(model: nn.Module) -> set[str]:
    """The names of the parameters that autocast casts whenever they are used."""
    names = {
        f"{name}.weight".lstrip(".")
        for name, module in model.named_modules()
        if isinstance(module, _ConvNd | nn.Linear)
    }
    kept = tuple(f"{part}." for part in getattr(model, "cast_later", ()))
    return {name for name in names if not name.startswith(kept)}


def _group(name: str, parameter: Tensor) -> int:
    """Other weights, weights of norms, biases."""
    if name.endswith("bias"):
        return 3
    return 1 if parameter.ndim > 1 else 2


def _channels_last(piece: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return piece.view(shape)
    outputs, inputs, height, width = shape
    return piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def _as_stored(parameter: Tensor) -> Tensor:
    """The numbers in the order that they have in memory."""
    return (parameter if parameter.ndim != 4 else parameter.permute(0, 2, 3, 1)).reshape(-1)


def float_buffers(model: nn.Module) -> list[Tensor]:
    """The buffers that are averaged with the weights: the statistics of batch norms."""
    # An average of what never moves would only round it: frozen norms, and constants that are not
    # even saved.
    frozen = (
        id(buffer)
        for module in model.modules()
        if hasattr(module, "running_mean") and not isinstance(module, _BatchNorm)
        for buffer in module.buffers(recurse=False)
    )
    moving = {id(tensor) for tensor in model.state_dict(keep_vars=True).values()} - set(frozen)
    return [one for one in model.buffers() if one.is_floating_point() and id(one) in moving]
