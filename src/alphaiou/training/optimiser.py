"""SGD with Nesterov momentum and the moving average of the weights, over flat parameters.

Both take their rates as tensors and never ask the host: a captured step repeats them as they are.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from alphaiou.training.flat import FlatParameters, float_buffers

Number = Float[Tensor, ""]


class NesterovSGD:
    """``g ← g + λw``, ``v ← μv + g``, ``w ← w − η(g + μv)``; λ for weights, an own η for biases.

    Args:
        parameters: What is changed.
        weight_decay: λ.
    """

    def __init__(self, parameters: FlatParameters, weight_decay: float) -> None:
        self.parameters, self.weight_decay = parameters, weight_decay
        self.velocity = torch.zeros_like(parameters.values)

    @torch.no_grad()
    def step(
        self,
        gradient: Float[Tensor, " numbers"],
        *,
        lr: Number,
        bias_lr: Number,
        momentum: Number,
        keep: Tensor,
    ) -> None:
        """Change the parameters; nothing changes where ``keep`` is false."""
        values, flat = self.parameters.values, self.parameters
        gradient[: flat.decayed].add_(values[: flat.decayed], alpha=self.weight_decay)
        velocity = self.velocity * momentum + gradient
        change = gradient + velocity * momentum
        change[: flat.unbiased].mul_(lr)
        change[flat.unbiased :].mul_(bias_lr)
        values.sub_(torch.where(keep, change, 0.0))
        self.velocity.copy_(torch.where(keep, velocity, self.velocity))


class MovingAverage:
    """A copy of a model whose weights and statistics follow it: ``m ← dm + (1 − d)w``.

    Args:
        model: The copy.
        parameters: The parameters that it follows.
        followed: The model that it follows.
    """

    def __init__(self, model: nn.Module, parameters: FlatParameters, followed: nn.Module) -> None:
        self.model, self.followed, self.source = model, followed, parameters
        self.parameters = FlatParameters(model)

    @torch.no_grad()
    def step(self, decay: Number) -> None:
        """Follow by one step."""
        share = 1.0 - decay
        self.parameters.values.mul_(decay).add_(self.source.values * share)
        mine, theirs = float_buffers(self.model), float_buffers(self.followed)
        torch._foreach_mul_(mine, decay)
        torch._foreach_add_(mine, torch._foreach_mul(theirs, share))
