"""Several processes that train one model, each on its share of every batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from lightning.fabric import Fabric


class Processes:
    """The processes of a training; one alone unless a process group is there.

    With several, the mean gradient, the number of positives and the statistics of batch norms are
    those of the whole batch: the result does not depend on their number but for rounding.
    """

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.fabric = fabric
        self.count = fabric.world_size if fabric else 1
        self.rank = fabric.global_rank if fabric else 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def average(self, tensor: Tensor) -> Tensor:
        """The mean over all processes, in place."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
            tensor.div_(self.count)
        return tensor

    def wait(self) -> None:
        """Until all are here."""
        if self.fabric is not None and self.count > 1:
            self.fabric.barrier()

    def shares(self, batch_size: int, pieces: int) -> list[slice]:
        """This process's rows of a batch, piece by piece."""
        each, rest = divmod(batch_size, pieces * self.count)
        if rest:
            raise ValueError(
                f"batch_size must be a multiple of {pieces} pieces times {self.count} processes, "
                f"got {batch_size}"
            )
        starts = [(piece * self.count + self.rank) * each for piece in range(pieces)]
        return [slice(start, start + each) for start in starts]

    def join(self, model: nn.Module) -> None:
        """Let batch norms see the whole batch, and losses count the positives of all of it."""
        if self.count == 1:
            return
        for module in model.modules():
            if hasattr(module, "mean_over_processes"):
                module.mean_over_processes = self.average  # type: ignore[assignment]
            if isinstance(module, nn.BatchNorm2d):
                module.forward = _SyncedNorm(module).__call__  # type: ignore


class _SyncedNorm:
    """A batch norm's forward pass over the batches of all processes, on any device."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        self.norm = norm
        self.alone: Callable[[Tensor], Tensor] = norm.forward

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.norm
        if not norm.training or norm.weight is None:
            return self.alone(x)
        wide = x.float()
        count = torch.distributed.get_world_size()
        mean = _total(wide.mean((0, 2, 3))) / count
        centred = wide - mean[:, None, None]
        variance = _total(centred.square().mean((0, 2, 3))) / count
        self._track(mean.detach(), variance.detach(), count * x.numel() // x.shape[1])
        scale = norm.weight * torch.rsqrt(variance + norm.eps)
        normed: Tensor = centred * scale[:, None, None] + norm.bias[:, None, None]
        return normed.to(x.dtype)

    def _track(self, mean: Tensor, variance: Tensor, numbers: int) -> None:
        norm = self.norm
        if norm.running_mean is None or norm.running_var is None or norm.momentum is None:
            return
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (numbers / max(1, numbers - 1)), norm.momentum)


def _total(tensor: Tensor) -> Tensor:
    """The sum over all processes, through which gradients flow."""
    from torch.distributed.nn.functional import all_reduce

    total: Tensor = all_reduce(tensor)  # type: ignore[no-untyped-call]
    return total
