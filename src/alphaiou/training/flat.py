"""All parameters of a model in one tensor, so that a step over them is a handful of kernels."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor, nn


class FlatParameters:
    """The parameters of a model as segments of one tensor: weights, norms' weights, biases.

    The model goes on as before: each parameter is a view of its segment, four-dimensional ones
    with their channels last.

    Args:
        model: Whose parameters become views.

    Attributes:
        values: All numbers.
        views: The parameters in the order of ``values``.
        names: Their names.
        decayed: How many of the numbers are weights, which decay.
        unbiased: How many of the numbers are no biases.
    """

    def __init__(self, model: nn.Module) -> None:
        groups: tuple[list[str], list[str], list[str]] = ([], [], [])
        parameters = dict(model.named_parameters())
        for name, parameter in parameters.items():
            groups[_group(name, parameter)].append(name)
        self.names = [name for group in groups for name in group]
        sizes = [sum(parameters[name].numel() for name in group) for group in groups]
        self.decayed, self.unbiased = sizes[0], sizes[0] + sizes[1]
        first = next(iter(parameters.values()))
        self.values: Float[Tensor, " numbers"] = torch.empty(sum(sizes), device=first.device)
        self.views = [parameters[name] for name in self.names]
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
        weights = parameters.values[: parameters.decayed].detach()
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


def _group(name: str, parameter: Tensor) -> int:
    if name.endswith("bias"):
        return 2
    return 0 if parameter.ndim > 1 else 1


def _channels_last(piece: Tensor, shape: torch.Size) -> Tensor:
    if len(shape) != 4:
        return piece.view(shape)
    outputs, inputs, height, width = shape
    return piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def float_buffers(model: nn.Module) -> list[Tensor]:
    """The buffers that are averaged with the weights: the statistics of batch norms."""
    found: Iterable[Tensor] = model.buffers()
    return [buffer for buffer in found if buffer.is_floating_point()]
